"""The two ways the guide gives to back up and restore the server's own PostgreSQL."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from stepwell.server.embedded_postgres import EmbeddedPostgres
from tests.connected import Client

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "server.md"
PROJECT = "/api/v1/projects/01936d3f-6a00-7000-8000-0000000000df"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data folder that PostgreSQL's user may enter, with a short path."""
    base = Path(tempfile.mkdtemp(prefix="sw-backup-"))
    base.chmod(0o711)
    yield base / "server"
    EmbeddedPostgres(base / "server").halt("immediate")
    shutil.rmtree(base, ignore_errors=True)


@contextmanager
def serving(home: Path, folder: Path) -> Iterator[dict[str, str]]:
    """`stepwell server` on a data folder; gives what it says when it is ready."""
    client = Client(home)
    process = subprocess.Popen(
        client.command("server", "--json", "--port", "0", "--log-level", "error", "--data-dir", folder),
        stdout=subprocess.PIPE, text=True, env=os.environ | client.environment,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        assert process.wait(timeout=30) == 0


def entry(told: dict[str, str], key: str, value: int | None = None) -> int | None:
    """Write an entry, or read it."""
    with httpx.Client(base_url=told["url"], headers={"Authorization": f"Bearer {key}"}) as client:
        if value is not None:
            assert client.put(PROJECT, json={"name": "p"}).is_success
            assert client.put(f"{PROJECT}/kv/project/entries/k", json=value).status_code == 200
        answer = client.get(f"{PROJECT}/kv/project/entries/k")
    return answer.json()["value"] if answer.status_code == 200 else None


def guide_commands(folder: Path, into: Path) -> list[str]:
    """The guide's shell commands for a dump and for restoring it, with another folder."""
    blocks = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (dump,) = [block for block in blocks if '"$bin/pg_dump"' in block]
    (restore,) = [block for block in blocks if '"$bin/pg_restore"' in block]
    setting = "folder=~/.local/share/stepwell/server"
    assert setting in dump
    dump = dump.replace(setting, f"folder={folder}")
    head = dump.partition('"$bin/pg_dump"')[0]
    return [f"cd {into}\n{dump}", f"cd {into}\n{head}{restore}"]


def test_a_dump_through_the_socket_comes_back_with_data_and_keys(tmp_path: Path, folder: Path):
    dump, restore = guide_commands(folder, tmp_path)
    with serving(tmp_path / "home", folder) as told:
        key = told["admin_key"]
        assert entry(told, key, 1) == 1
        subprocess.run(dump, shell=True, check=True, executable="/bin/bash", env=_environment())
        assert entry(told, key, 2) == 2
    shutil.rmtree(folder)  # everything is lost
    with serving(tmp_path / "home", folder) as told:
        assert told["admin_key"] != key
        subprocess.run(restore, shell=True, check=True, executable="/bin/bash", env=_environment())
    with serving(tmp_path / "home", folder) as told:
        assert "admin_key" not in told
        assert entry(told, key) == 1
        assert entry(told, key, 3) == 3


def test_a_copy_of_the_folder_comes_back(tmp_path: Path, folder: Path):
    with serving(tmp_path / "home", folder) as told:
        key = told["admin_key"]
        entry(told, key, 1)
    copy = folder.with_name("copy")
    subprocess.run(["cp", "-a", folder, copy], check=True)
    with serving(tmp_path / "home", folder) as told:
        entry(told, key, 2)
    shutil.rmtree(folder)
    copy.rename(folder)
    with serving(tmp_path / "home", folder) as told:
        assert entry(told, key) == 1


def _environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
