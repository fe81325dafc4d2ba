"""The `workflows/` folder of a project: the source of truth for its graph workflows."""

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from time import time_ns
from typing import Any, NamedTuple

from stepwell.errors import InvalidArgument, StorageUnavailable, WorkflowContentInvalid, WorkflowNotFound
from stepwell.graph.format import MAX_BYTES, WorkflowFile, content_hash, parse_content, read_workflow, written
from stepwell.graph.similar import closest
from stepwell.identifiers import iso_time, new_id

FOLDER = "workflows"
FILE = "workflow.json"
MAX_KEY_CHARS = 64
LOCK_SECONDS = 30.0
SETTLED_NS = 50_000_000
"""A file that was changed less than this ago may change again without its times telling so."""

_KEY = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])\Z")


class Stored(NamedTuple):
    """A workflow as it lies in the folder. `file` is None where the content cannot be read; `problem` says why."""

    key: str
    path: Path
    file: WorkflowFile | None
    problem: str | None
    modified_at: str

    @property
    def id(self) -> str | None:
        """The workflow's id, from its file."""
        return self.file.id if self.file is not None else None

    @property
    def hash(self) -> str | None:
        """What identifies the content."""
        return content_hash(self.file.data) if self.file is not None else None

    @property
    def name(self) -> str:
        """The workflow's name; its key where it has none."""
        return (self.file.name if self.file is not None else "") or self.key

    def time(self, field: str) -> str:
        """`createdAt` or `updatedAt` from the file; when the file was changed where it has none."""
        value = self.file.data.get(field) if self.file is not None else None
        return value if isinstance(value, str) and value else self.modified_at


class _Seen(NamedTuple):
    stamp: tuple[int, int, int]
    stored: Stored


class WorkflowFolder:
    """The graph workflows of a project.

    Args:
        project_folder: the project's folder; `workflows/<key>/workflow.json` lie below it.
    """

    def __init__(self, project_folder: Path) -> None:
        self.root = project_folder / FOLDER
        self._seen: dict[str, _Seen] = {}

    def all(self) -> list[Stored]:
        """Every workflow, also those that cannot be read, sorted by key."""
        found = [self._read(key) for key in self._keys()]
        return [stored for stored in found if stored is not None]

    def _keys(self) -> list[str]:
        """The names of the folders that may hold a workflow."""
        try:
            names = sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StorageUnavailable(f"{self.root} cannot be read: {error.strerror}", path=str(self.root)) from None
        return [name for name in names if _KEY.match(name) and len(name) <= MAX_KEY_CHARS]

    def names(self) -> frozenset[str]:
        """Every key and id."""
        found = self.all()
        return frozenset({stored.key for stored in found} | {stored.id for stored in found if stored.id is not None})

    def find(self, reference: str) -> Stored | None:
        """A workflow by key, by id, or by the path of its file inside the project; None if there is none.

        Raises:
            InvalidArgument: several have that id, because a folder was copied by hand.
        """
        wanted = reference.strip().removeprefix("./")
        parts = wanted.split("/")
        if len(parts) in (2, 3) and parts[0] == FOLDER and parts[2:] in ([], [FILE]):
            wanted = parts[1]
        if _KEY.match(wanted) and len(wanted) <= MAX_KEY_CHARS and (stored := self._read(wanted)) is not None:
            return stored
        lowered = wanted.lower()
        found = [stored for stored in self.all() if stored.id == lowered]
        if len(found) > 1:
            keys = [stored.key for stored in found]
            raise InvalidArgument(
                f"{len(found)} workflows have the id {lowered}: {', '.join(keys[:5])}", argument="workflow_id",
                hint="give the key; without its workflowId a copy is known by its key alone", candidates=keys[:5],
            )  # fmt: skip
        return found[0] if found else None

    def get(self, reference: str) -> Stored:
        """A workflow by key, id or path.

        Raises:
            WorkflowNotFound: there is none; names the likeliest keys. InvalidArgument: several have that id.
            WorkflowContentInvalid: its file cannot be read as a workflow.
        """
        stored = self.find(reference)
        if stored is None:
            raise self._not_found(reference)
        if stored.file is None:
            raise WorkflowContentInvalid(stored.problem or "the file cannot be read", path=str(stored.path))
        return stored

    def check_exists(self, key: str) -> None:
        """Raise WorkflowNotFound if there is no workflow of a key; its file is not read."""
        if not _KEY.match(key) or len(key) > MAX_KEY_CHARS or not self._is_there(key):
            raise self._not_found(key)

    def _not_found(self, reference: str) -> WorkflowNotFound:
        close = closest(reference, self._keys())
        return WorkflowNotFound(
            f"there is no workflow {reference!r:.80} in {FOLDER}/",
            hint=f"did you mean {', '.join(close)}?" if close else "`stepwell workflows list` shows what there is",
            candidates=close,
        )

    def _is_there(self, key: str) -> bool:
        return not (self.root / key).is_symlink() and (self.root / key / FILE).is_file()

    def _read(self, key: str) -> Stored | None:
        path = self.root / key / FILE
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            with _opened_folder(path.parent) as folder:
                descriptor = os.open(FILE if folder is not None else path, flags, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            problem = "it is a symbolic link" if path.is_symlink() else error.strerror
            return Stored(key, path, None, f"{FOLDER}/{key}/{FILE} cannot be read: {problem}", iso_time(0))
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                return Stored(key, path, None, f"{FOLDER}/{key}/{FILE} is not a regular file", iso_time(0))
            stamp = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
            seen = self._seen.get(key)
            if seen is not None and seen.stamp == stamp:
                return seen.stored
            if facts.st_size > MAX_BYTES:
                problem = f"{FOLDER}/{key}/{FILE} has {facts.st_size:,} bytes; the limit is {MAX_BYTES:,}"
                return Stored(key, path, None, problem, iso_time(facts.st_mtime_ns // 1_000))
            stored = _stored(key, path, file.read(), iso_time(facts.st_mtime_ns // 1_000))
        if time_ns() - facts.st_mtime_ns > SETTLED_NS:
            self._seen[key] = _Seen(stamp, stored)
        return stored

    def locked(self) -> "FolderLock":
        """`with folder.locked():` nobody else imports a workflow meanwhile, in any process.

        One lock for all keys: two keys must not get the same id either.
        """
        return FolderLock(self.root)

    def write(self, key: str, document: dict[str, Any]) -> Path:
        """Replace a workflow's file as a whole. Hold `locked()` where it depends on what was there.

        Raises:
            StorageUnavailable: the folder cannot be written; the old file is as it was.
        """
        check_workflow_key(key)
        path = self.root / key / FILE
        raw = written(document).encode()
        try:
            with contextlib.suppress(FileExistsError):
                path.parent.mkdir(parents=True)
            with _opened_folder(path.parent) as folder:
                _replace(path, raw, folder)
        except OSError as error:
            reason = "its folder is a symbolic link, or no folder" if error.errno == errno.ENOTDIR else error.strerror
            raise StorageUnavailable(f"{path} cannot be written: {reason}", path=str(path)) from None
        self._seen.pop(key, None)
        return path


@contextlib.contextmanager
def _opened_folder(path: Path) -> Iterator[int | None]:
    """A workflow's folder, held open, so that what is done in it stays in it; None where the system has no such thing.

    A symbolic link is no folder of the project, whoever puts one there and whenever.

    Raises:
        NotADirectoryError: it is a symbolic link, or no folder.
    """
    if os.open not in os.supports_dir_fd:
        if path.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        yield None
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):  # how systems say that it is a link
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _replace(path: Path, raw: bytes, folder: int | None) -> None:
    """Write a file under another name first, so that nobody ever sees a part of it."""
    name = f".{new_id()}.tmp"
    temporary, target = (name, path.name) if folder is not None else (str(path.parent / name), str(path))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        with os.fdopen(os.open(temporary, flags, 0o666, dir_fd=folder), "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


class FolderLock:
    """The right to change the workflows of a folder.

    The lock file lies with the user's own data, not in the project: there it would be in the way of version control.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def __enter__(self) -> None:
        from stepwell.settings import load_settings
        from stepwell.store.file_lock import LockFile, offset_of

        folder = Path(load_settings().home) / "locks"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageUnavailable(f"{folder} cannot be written: {error.strerror}") from None
        self._locks = LockFile.at(str(folder / "imports.lock"))
        place = offset_of(os.path.realpath(self._root))
        self._ticket = self._locks.acquire(place, LOCK_SECONDS, f"the folder {self._root}")

    def __exit__(self, *_: object) -> None:
        self._locks.release(self._ticket)


def check_workflow_key(key: Any) -> str:
    """A workflow key: lower-case words joined by dashes, at most 64 characters.

    Raises:
        InvalidArgument: it has another form.
    """
    if type(key) is not str or len(key) > MAX_KEY_CHARS or not _KEY.match(key):
        raise InvalidArgument(
            f"the workflow key {key!r:.80} is not lower-case words joined by dashes, of at most {MAX_KEY_CHARS} "
            "characters", hint="write it like fetch-and-store", argument="workflow_key",
        )  # fmt: skip
    if _DEVICES.match(key):
        raise InvalidArgument(
            f"the workflow key {key!r} is the name of a device on Windows: no folder can have it there",
            hint=f"write it like {key}-flow", argument="workflow_key",
        )  # fmt: skip
    return key


def _stored(key: str, path: Path, raw: bytes, modified_at: str) -> Stored:
    try:
        file = read_workflow(parse_content(raw, what=f"{FOLDER}/{key}/{FILE}"))
    except WorkflowContentInvalid as error:
        return Stored(key, path, None, error.message, modified_at)
    return Stored(key, path, file, None, modified_at)
