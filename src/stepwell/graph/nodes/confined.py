"""Files below one folder, and nothing else: neither `..`, links nor a race lead out of it.

Every part of a path is opened relative to the folder before it, without following links (`openat`, `O_NOFOLLOW`), so
what was checked is what is used. A system without such calls (Windows) gets no file operations rather than unsafe ones.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from stepwell.errors import NodeRefused
from stepwell.identifiers import new_id

MAX_READ_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 64
SENSITIVE = (
    ".env",
    ".env.*",
    ".git",
    ".ssh",
    "*.pem",
    "*.key",
    "id_rsa*",
    "id_ed25519*",
    ".netrc",
    ".npmrc",
    ".pypirc",
)

_NOT_IN_PATHS = re.compile("[\x00\\\\\ud800-\udfff]")
_HAS_OPENAT = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class Item(NamedTuple):
    """A file or folder. `path` is relative to the root, `size` in bytes, `modified` in seconds since 1970."""

    path: str
    kind: str
    size: int
    modified: float


class Confined:
    """The files below a folder.

    Args:
        root: the folder; it may itself be reached through links.
        allow_sensitive: also files that usually hold secrets (`.env`, `.git`, keys).
    """

    def __init__(self, root: Path, *, allow_sensitive: bool = False) -> None:
        self.root = root.resolve()
        self._allow_sensitive = allow_sensitive

    def parts(self, path: str) -> tuple[str, ...]:
        """The parts of a relative path; () is the root itself.

        Raises:
            NodeRefused: it is absolute, leads upwards, or names what is kept secret.
        """
        if not isinstance(path, str) or len(path) > 4_096 or _NOT_IN_PATHS.search(path):
            raise NodeRefused(f"the path {path!r:.200} has a NUL character or a backslash, is no UTF-8, or is too long")
        pure = PurePosixPath(path)
        parts = tuple(part for part in pure.parts if part != ".")
        if pure.is_absolute() or ".." in parts or path.startswith("~") or (parts and ":" in parts[0]):
            raise NodeRefused(f"the path {path!r:.200} leads out of the folder", hint="give a path relative to it")
        if len(parts) > MAX_DEPTH:
            raise NodeRefused(f"the path {path!r:.80} is over {MAX_DEPTH} folders deep")
        if not self._allow_sensitive:
            for part in parts:
                if _is_sensitive(part):
                    raise NodeRefused(f"{path!r:.200} may hold secrets", hint="set allow_sensitive in its config")
        return parts

    @contextlib.contextmanager
    def folder(self, parts: tuple[str, ...], *, create: bool = False) -> Iterator[int]:
        """An open descriptor of a folder below the root."""
        if not _HAS_OPENAT:
            raise NodeRefused(
                "this system has no way to keep file operations inside a folder", hint="use Linux or macOS"
            )
        descriptor = os.open(self.root, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0))
        try:
            for part in parts:
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=descriptor)
                try:
                    inner = os.open(part, _FOLDER, dir_fd=descriptor)
                except OSError as error:
                    raise _refused("/".join(parts), error) from None
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """A regular file's content.

        Raises:
            NodeRefused: not there, no regular file, a link, or over `max_bytes`.
        """
        parts = self._file_parts(path)
        with self.folder(parts[:-1]) as folder:
            try:
                descriptor = os.open(parts[-1], os.O_RDONLY | _FILE, dir_fd=folder)
            except OSError as error:
                raise _refused(path, error) from None
            with os.fdopen(descriptor, "rb") as file:
                facts = os.fstat(descriptor)
                if not stat.S_ISREG(facts.st_mode):
                    raise NodeRefused(f"{path!r:.200} is not a regular file")
                if facts.st_size > max_bytes:
                    raise NodeRefused(f"{path!r:.200} has {facts.st_size:,} bytes; the limit is {max_bytes:,}")
                return file.read(max_bytes + 1)[:max_bytes]

    def write(self, path: str, content: bytes) -> None:
        """Replace a file as a whole, making its folders. A link of that name is replaced, never followed."""
        parts = self._file_parts(path)
        temporary = f".{new_id()}.tmp"
        with self.folder(parts[:-1], create=True) as folder:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
                with os.fdopen(os.open(temporary, flags, 0o644, dir_fd=folder), "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                raise _refused(path, error) from None
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)

    def move(self, path: str, destination: str) -> None:
        """Move a file or folder; what is at the destination is not overwritten."""
        source, target = self._file_parts(path), self._file_parts(destination)
        if target[: len(source)] == source:
            raise NodeRefused(f"{destination!r:.200} is inside {path!r:.200}")
        with self.folder(source[:-1]) as here, self.folder(target[:-1], create=True) as there:
            if _exists(target[-1], there):
                raise NodeRefused(f"{destination!r:.200} is there already")
            try:
                os.rename(source[-1], target[-1], src_dir_fd=here, dst_dir_fd=there)
            except OSError as error:
                raise _refused(path, error) from None

    def delete(self, path: str) -> None:
        """Delete a file, a link, or an empty folder."""
        parts = self._file_parts(path)
        with self.folder(parts[:-1]) as folder:
            try:
                facts = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
                if stat.S_ISDIR(facts.st_mode):
                    os.rmdir(parts[-1], dir_fd=folder)
                else:
                    os.unlink(parts[-1], dir_fd=folder)
            except OSError as error:
                raise _refused(path, error) from None

    def info(self, path: str) -> Item:
        """What is known of a file or folder; a link is shown as a link."""
        parts = self.parts(path)
        if not parts:
            facts = self.root.stat()
            return Item(".", "folder", 0, facts.st_mtime)
        with self.folder(parts[:-1]) as folder:
            try:
                facts = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
            except OSError as error:
                raise _refused(path, error) from None
        return _item("/".join(parts), facts)

    def entries(self, path: str) -> list[Item]:
        """What lies in a folder, sorted by name, without what may hold secrets and names that no path can give."""
        parts = self.parts(path)
        found = []
        with self.folder(parts) as folder:
            for name in sorted(os.listdir(folder)):  # noqa: PTH208  (of a descriptor)
                inner = "/".join((*parts, name))
                with contextlib.suppress(FileNotFoundError, NodeRefused):
                    self.parts(inner)
                    facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    found.append(_item(inner, facts))
        return found

    def walk(self, path: str = ".", *, limit: int = 10_000) -> Iterator[Item]:
        """Files and folders below a folder, folders before what is in them; links are shown and not followed."""
        waiting = [path]
        count = 0
        while waiting:
            for item in self.entries(waiting.pop()):
                count += 1
                if count > limit:
                    return
                yield item
                if item.kind == "folder" and item.path.count("/") < MAX_DEPTH - 1:
                    waiting.append(item.path)

    def _file_parts(self, path: str) -> tuple[str, ...]:
        parts = self.parts(path)
        if not parts:
            raise NodeRefused("the path names the folder itself", hint="name a file in it")
        return parts


def _is_sensitive(name: str) -> bool:
    return any(fnmatch(name.lower(), pattern) for pattern in SENSITIVE)


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _item(path: str, facts: os.stat_result) -> Item:
    kind = "other"
    for check, name in ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link")):
        if check(facts.st_mode):
            kind = name
    return Item(path, kind, facts.st_size if kind == "file" else 0, facts.st_mtime)


def _refused(path: str, error: OSError) -> NodeRefused:
    import errno

    reason = "it is, or goes through, a symbolic link" if error.errno in (errno.ELOOP, errno.EMLINK) else error.strerror
    if error.errno == errno.ENOTDIR:
        reason = "a part of it is no folder, or a symbolic link"
    return NodeRefused(f"{path!r:.200}: {reason}")
