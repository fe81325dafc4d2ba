"""`stepwell doctor`: check this machine and the project's data; every finding comes with its fix."""

import os
import sys

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.place import Place
from stepwell.cli.render import Output, safe
from stepwell.errors import ProjectNotFound, StepwellError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from stepwell.settings import Settings

MAX_WAL_BYTES = 256 * 1024 * 1024
PROVIDER_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY")
NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "afs", "lustre", "glusterfs")


class Finding(dict[str, "str | None"]):
    """One finding: `level` (ok, warning, error), `check`, `message`, `fix`."""

    def __init__(self, level: str, check: str, message: str, fix: str | None = None) -> None:
        super().__init__(level=level, check=check, message=message, fix=fix)


@click.command()
@common
@pass_output
def doctor(output: Output) -> int:
    """Check Python, folders, stores, Knowledge, clock and versions. Exit code 1 if something is wrong."""
    with output.user_prints():
        findings = [*_machine(), *_project(output)]
    failed = any(finding["level"] == "error" for finding in findings)
    if output.json:
        output.data({"ok": not failed, "findings": findings}, "")
    else:
        for finding in findings:
            mark = {"ok": "ok     ", "warning": "warning", "error": "ERROR  "}[finding["level"] or "ok"]
            output.text(f"{mark}  {finding['check']}: {finding['message']}")
            if finding["fix"]:
                output.text(f"         fix: {safe(finding['fix'])}")
    return 1 if failed else 0


def _machine() -> "Iterator[Finding]":
    import sqlite3
    import time

    from stepwell import __version__
    from stepwell.settings import unknown_variables

    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("ok", "python", f"{version}, stepwell {__version__}")
    if sqlite3.sqlite_version_info < (3, 35):
        yield Finding("error", "sqlite", sqlite3.sqlite_version, "use a Python built with SQLite 3.35 or newer")
    else:
        yield Finding("ok", "sqlite", sqlite3.sqlite_version)
    if time.time() < 1_760_000_000:
        yield Finding("warning", "clock", "the clock is in the past", "set the clock; order is kept, times are not")
    else:
        yield Finding("ok", "clock", "plausible")
    keys = [name for name in PROVIDER_KEYS if os.environ.get(name)]
    for problem in unknown_variables(os.environ):
        yield Finding("warning", "environment", problem, "correct its name, or unset it")
    yield Finding("ok", "provider keys", ", ".join(keys) if keys else "none in the environment")


def _project(output: Output) -> "Iterator[Finding]":
    from stepwell.project.loader import load_project
    from stepwell.settings import load_settings

    try:
        place = Place(output)
    except ProjectNotFound as error:
        yield Finding("warning", "project", error.message, error.hint)
        try:
            yield from _folders(load_settings())
        except StepwellError as wrong:
            yield Finding("error", "settings", wrong.message, wrong.hint)
        return
    except StepwellError as error:
        yield Finding("error", "project", error.message, error.hint)
        return
    yield Finding("ok", "project", f"{place.manifest.name} {place.manifest.project_id}")
    try:
        load_project(place.manifest.folder)
        yield Finding("ok", "executor", place.manifest.executor)
    except StepwellError as error:
        yield Finding("error", "executor", error.message, error.hint)
    yield from _providers(place.manifest.providers)
    yield from _folders(place.settings)
    yield from _stores(place)
    yield from _knowledge(place)


def _providers(declared: "Mapping[str, Any]") -> "Iterator[Finding]":
    """Each model provider that the manifest or the environment declares: is there everything it needs?"""
    from stepwell.llm.providers import PREFIX, api_key, is_provider_variable, provider_names, provider_spec

    for variable in sorted(os.environ):
        if variable.startswith(PREFIX) and not is_provider_variable(variable):
            yield Finding("warning", "environment", f"{variable}: no field of a provider", "correct it, or unset it")
    for name in provider_names(declared):
        try:
            spec = provider_spec(name, declared)
            api_key(spec)
        except StepwellError as error:
            yield Finding("warning", f"provider {name}", error.message, error.hint)
        else:
            yield Finding("ok", f"provider {name}", f"{spec.type}, {spec.model}")


def _folders(settings: "Settings") -> "Iterator[Finding]":
    for name, folder in (
        ("home", settings.home), ("kv folder", settings.kv_dir), ("persistent folder", settings.persistent_value_dir)
    ):  # fmt: skip
        existing = folder
        while existing and not os.path.exists(existing):
            existing = os.path.dirname(existing)
        if not os.path.isdir(existing) or not os.access(existing, os.W_OK | os.X_OK):
            yield Finding("error", name, f"{folder} cannot be written", "set STEPWELL_HOME to a folder of yours")
            continue
        kind = _file_system(existing)
        if kind.startswith(NETWORK_FILE_SYSTEMS):
            yield Finding(
                "warning", name, f"{folder} is on {kind}", "keep local data on a local disk: locks need one machine"
            )
        else:
            yield Finding("ok", name, folder)


def _file_system(path: str) -> str:
    """The type of the file system a path is on; empty where the system does not tell."""
    try:
        with open("/proc/mounts", encoding="utf-8", errors="replace") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return ""
    path = os.path.realpath(path)
    inside = [mount for mount in mounts if path == mount[0] or path.startswith(mount[0].rstrip("/") + "/")]
    return max(inside, key=lambda mount: len(mount[0]), default=["", ""])[1]


def _stores(place: Place) -> "Iterator[Finding]":
    from stepwell.storage.paths import local_path
    from stepwell.store.entries import Domain
    from stepwell.store.sqlite import SqliteCore
    from stepwell.store.sqlite_journal import SqliteJournal

    settings, project_id = place.settings, place.manifest.project_id
    journal = os.path.join(settings.home, "journal", f"{project_id}.sqlite")
    files = [("journal", journal, SqliteJournal)]
    for name, domain in (("kv store", Domain.KV), ("persistent store", Domain.PERSISTENT_VALUE)):
        files.append((name, local_path(settings.kv_dir, settings.persistent_value_dir, project_id, domain), SqliteCore))  # type: ignore[arg-type]
    for name, path, kind in files:
        if not os.path.exists(path):
            yield Finding("ok", name, "not created yet")
            continue
        store = kind(path)
        try:
            facts = store.facts()
        except StepwellError as error:
            yield Finding("error", name, error.message, error.hint)
            continue
        finally:
            store.close()
        if facts.problems:
            yield Finding(
                "error", name, "; ".join(facts.problems), "restore it from a backup, or export what can be read"
            )
        elif facts.wal_size > MAX_WAL_BYTES:
            yield Finding(
                "warning",
                name,
                f"its WAL is {facts.wal_size:,} bytes",
                "end processes that keep reading, then reopen it",
            )
        else:
            yield Finding("ok", name, f"schema {facts.schema}, {facts.size:,} bytes, WAL {facts.wal_size:,} bytes")


def _knowledge(place: Place) -> "Iterator[Finding]":
    from stepwell.cli.commands.knowledge import with_knowledge
    from stepwell.knowledge.checking import check_base
    from stepwell.storage.declaration import DataStorage

    if place.manifest.data_storage is DataStorage.SERVER:
        return
    try:
        problems = with_knowledge(place, None, check_base)
    except StepwellError as error:
        yield Finding("error", "knowledge", error.message, error.hint)
        return
    if problems:
        yield Finding("error", "knowledge", "; ".join(problems[:5]), "stepwell knowledge check --repair")
    else:
        yield Finding("ok", "knowledge", "index and documents agree")
