"""Files by reference."""

import os
import stat
import threading
from pathlib import Path

import pytest

from stepwell.errors import FileMissing, FileRejected, StorageCorrupt
from stepwell.files.run_files import RunFiles
from stepwell.files.store import FileStore, conversation_of


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "files", max_bytes=1_000)


def test_bytes_come_back_and_are_stored_once(store, tmp_path):
    one = store.put_bytes(b"\x00hello", name="a.txt", run_id="r1")
    two = store.put_bytes(b"\x00hello", name="b.bin", run_id="r2")
    assert one.reference != two.reference
    assert (one.sha256, one.size, one.media_type) == (two.sha256, 6, "text/plain")
    assert store.read(one.reference) == store.read(two.reference) == b"\x00hello"
    blobs = [path for path in (tmp_path / "files" / "blobs").rglob("*") if path.is_file()]
    assert len(blobs) == 1
    assert stat.S_IMODE(blobs[0].stat().st_mode) == 0o600
    assert store.delete_run("r1") == 1
    assert store.read(two.reference) == b"\x00hello"
    assert store.delete_run("r2") == 1
    assert not blobs[0].exists()


def test_files_go_with_their_conversation_and_what_others_refer_to_stays(store, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("shared")
    mine, same = (conversation_of(project, "c/1") for project in ("p1", "p2"))
    attached = [store.put_path(path, conversation=owner) for owner in (mine, mine, same)]
    of_run = store.put_path(path, run_id="r1")
    assert store.delete_conversation(mine) == 2
    for gone in attached[:2]:
        with pytest.raises(FileMissing):
            store.record(gone.reference)
    assert store.read(attached[2].reference) == store.read(of_run.reference) == b"shared"
    assert (store.delete_conversation(mine), store.delete_conversation(same), store.delete_run("r1")) == (0, 1, 1)
    assert [path for path in (tmp_path / "files" / "blobs").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", "a/b", "a\\b", "a\x00b", "a\nb", "\u202eexe.txt", "x" * 256, None, 5]
)
def test_bad_names_are_refused_and_leave_nothing(store, tmp_path, name):
    with pytest.raises(FileRejected):
        store.put_bytes(b"x", name=name)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_too_large_a_file_leaves_nothing(store, tmp_path):
    with pytest.raises(FileRejected):
        store.put_chunks(iter([b"x" * 600] * 3), name="big")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_media_types_are_checked(store):
    assert store.put_bytes(b"", name="x.unknown").media_type == "application/octet-stream"
    for wrong in ("text", "text/", "a/b; c", "A/B", 5):
        with pytest.raises(FileRejected):
            store.put_bytes(b"", name="x", media_type=wrong)


def test_only_regular_files_are_copied_in(store, tmp_path):
    plain = tmp_path / "plain.txt"
    plain.write_text("x")
    assert store.put_path(plain).name == "plain.txt"
    link, fifo = tmp_path / "link", tmp_path / "fifo"
    link.symlink_to("/etc/passwd")
    os.mkfifo(fifo)
    for path in (link, fifo, tmp_path, tmp_path / "absent", "/dev/zero", "a\x00b"):
        outcome = []
        thread = threading.Thread(target=lambda path=path: outcome.append(_refused(store, path)), daemon=True)
        thread.start()
        thread.join(5)
        assert outcome == [True], path


def _refused(store, path) -> bool:
    try:
        store.put_path(path)
    except FileRejected:
        return True
    return False


@pytest.mark.parametrize("reference", ["", "x", "artifact://../../etc/passwd", "artifact://", "/etc/passwd", None, 5])
def test_what_is_no_reference_finds_nothing(store, reference):
    with pytest.raises(FileMissing):
        store.read(reference)


def test_damage_is_noticed(store, tmp_path):
    kept = store.put_bytes(b"hello", name="a")
    blob = next(path for path in (tmp_path / "files" / "blobs").rglob("*") if path.is_file())
    blob.write_bytes(b"jello")
    with pytest.raises(StorageCorrupt):
        store.read(kept.reference)
    blob.write_bytes(b"short")
    blob.unlink()
    with pytest.raises(FileMissing):
        store.read(kept.reference)
    other = store.put_bytes(b"other", name="b", run_id="r")
    next((tmp_path / "files" / "refs").glob("*.json")).write_text("{")
    store.delete_run("r")  # a record cannot be read: no content is thrown away
    assert [path for path in (tmp_path / "files" / "blobs").rglob("*") if path.is_file()]
    assert other.size == 5


async def test_a_run_has_its_own_files(store, tmp_path):
    files = RunFiles(store, "r1")
    (tmp_path / "a.md").write_text("# é")
    attached = await files.attach(tmp_path / "a.md")
    written = await files.write("out.json", "{}", media_type="application/json")
    assert {record.reference for record in await files.list()} == {attached.reference, written.reference}
    assert await files.read(attached.reference) == "# é".encode()
    assert (await files.record(written.reference)).media_type == "application/json"
    assert await RunFiles(store, "r2").list() == []
