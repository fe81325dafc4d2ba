"""Reading artifacts in windows, and snapshots of source folders.

A window ends on a character's border, and the windows of a text put together are exactly its bytes. Lines end at a
line feed, a carriage return, or both together, as everywhere in the product, and keep their ends.
"""

import hashlib
import json
import os
import re
import stat
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from stepwell.errors import FileRejected, InvalidArgument
from stepwell.files.store import SCHEME, FileRecord, FileStore

DEFAULT_BYTES = 16 * 1024
MAX_BYTES = 1024 * 1024
MAX_LINES = 100_000
SNAPSHOT_TYPE = "application/vnd.stepwell.snapshot+json"
MAX_SNAPSHOT_FILES = 2_000
MAX_SNAPSHOT_BYTES = 64 * 1024 * 1024
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_LEFT_OUT = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache"})


class Window(NamedTuple):
    """A part of a text. Sizes are bytes; `next_offset` is where the next window begins, in byte mode only."""

    content: str
    bytes_read: int
    total_bytes: int
    truncated: bool
    next_offset: int | None = None
    warning: str | None = None


def artifact_of(value: Any) -> str:
    """The reference in what an artifact port is given: the text itself, or a record's `reference`.

    Raises:
        InvalidArgument: there is none. A path is never taken.
    """
    for key in ("reference", "$artifact", "uri", "artifact_uri"):
        if isinstance(value, dict) and isinstance(value.get(key), str):
            value = value[key]
    if not isinstance(value, str) or not value.startswith(SCHEME):
        raise InvalidArgument(
            f"{str(value)!r:.120} is not an artifact reference", hint=f"references look like {SCHEME}<uuid>",
            argument="artifact",
        )  # fmt: skip
    return value


def read_window(
    raw: bytes, *, start_byte: int = 0, max_bytes: int = DEFAULT_BYTES, start_line: int | None = None,
    max_lines: int | None = None,
) -> Window:  # fmt: skip
    """A window of a text: by lines where `start_line` or `max_lines` is given, else by bytes.

    Raises:
        InvalidArgument: a number is negative or zero where it must not be, or both modes are asked for.
    """
    for name, value, least in (
        ("start_byte", start_byte, 0), ("max_bytes", max_bytes, 1), ("start_line", start_line, 1),
        ("max_lines", max_lines, 1),
    ):  # fmt: skip
        if value is not None and value < least:
            raise InvalidArgument(f"{name} is {value}: it is a whole number from {least}", argument=name)
    by_lines = start_line is not None or max_lines is not None
    if by_lines and start_byte:
        raise InvalidArgument(
            "start_byte and lines cannot be combined", hint="give start_byte, or start_line and max_lines"
        )
    warning = _binary_warning(raw)
    if warning is not None:
        return Window("", 0, len(raw), truncated=False, warning=warning)
    if by_lines:
        return _lines(raw, start_line or 1, max_lines, min(max_bytes, MAX_BYTES))
    return _bytes(raw, start_byte, max_bytes)


def _bytes(raw: bytes, start: int, size: int) -> Window:
    warnings = []
    if size > MAX_BYTES:
        size = MAX_BYTES
        warnings.append(f"max_bytes was cut to {MAX_BYTES:,}")
    start = min(start, len(raw))
    if (snapped := _border(raw, start)) != start:
        start = snapped
        warnings.append(f"start_byte was inside a character and moved back to {start}")
    end = _border(raw, min(start + size, len(raw)))
    if end <= start < len(raw):  # a window smaller than the character: give the whole character
        end = start + 1
        while end < len(raw) and raw[end] & 0xC0 == 0x80:
            end += 1
    truncated = end < len(raw)
    return Window(
        raw[start:end].decode("utf-8", "backslashreplace"), end - start, len(raw), truncated,
        end if truncated else None, "; ".join(warnings) or None,
    )  # fmt: skip


def _border(raw: bytes, position: int) -> int:
    """The position, moved back to the beginning of the character that it is in."""
    back = position
    while 0 < back < len(raw) and raw[back] & 0xC0 == 0x80 and position - back < 3:
        back -= 1
    if back == position or back >= len(raw):
        return position
    lead = raw[back]
    length = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
    return back if back + length > position else position


def _lines(raw: bytes, start: int, count: int | None, max_bytes: int) -> Window:
    """Lines are taken one by one, as bytes: a file of millions of them is never in memory as so many texts."""
    limit = min(count or MAX_LINES, MAX_LINES)
    begin = end = -1
    kept = 0
    warning, truncated = None, False
    for line in islice(_LINE.finditer(raw), start - 1, None):
        begin = line.start() if begin < 0 else begin
        if kept == limit:
            truncated = True
            break
        if line.end() - begin > max_bytes:
            truncated = True
            if kept:
                warning = f"the lines did not all fit into max_bytes: go on at start_line {start + kept}"
            else:
                end = _border(raw, begin + max_bytes)
                warning = f"the line is longer than max_bytes: go on at start_byte {end}"
            break
        end, kept = line.end(), kept + 1
    window = raw[begin:end] if end > begin else b""
    return Window(window.decode("utf-8", "backslashreplace"), len(window), len(raw), truncated, None, warning)


def _binary_warning(raw: bytes) -> str | None:
    head = raw[:65_536]
    if (not head or _is_mostly_utf8(head)) and (b"\x00" not in raw or _is_utf8(raw)):
        return None
    digest = hashlib.sha256(raw).hexdigest()
    return f"binary content: {len(raw):,} bytes, sha256 {digest}; it cannot be shown as text"


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_mostly_utf8(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 3
    return True


def take_snapshot(
    store: FileStore, folder: Path, *, run_id: str | None = None, max_files: int = MAX_SNAPSHOT_FILES,
    max_bytes: int = MAX_SNAPSHOT_BYTES,
) -> FileRecord:  # fmt: skip
    """Store a source folder: every regular file by content, and a manifest with paths, sizes and hashes.

    Version control and caches are left out.

    Raises:
        FileRejected: a symbolic link or special file is inside, or the folder is over a limit.
    """
    files: list[dict[str, Any]] = []
    total = 0
    for path in _files_below(folder):
        relative = path.relative_to(folder).as_posix()
        if len(files) >= max_files:
            raise FileRejected(f"the folder has over {max_files:,} files", hint="snapshot a smaller folder")
        record = store.put_path(path, name=path.name[-200:], run_id=run_id)
        total += record.size
        if total > max_bytes:
            raise FileRejected(f"the folder has over {max_bytes:,} bytes", hint="snapshot a smaller folder")
        files.append({"path": relative, "size": record.size, "sha256": record.sha256, "reference": record.reference})
    manifest = json.dumps({"version": 1, "files": files}, ensure_ascii=False).encode()
    return store.put_bytes(manifest, name="snapshot.json", media_type=SNAPSHOT_TYPE, run_id=run_id)


def _files_below(folder: Path) -> list[Path]:
    found: list[Path] = []
    waiting = [folder]
    while waiting:
        for entry in sorted(os.scandir(waiting.pop()), key=lambda entry: entry.name):
            if entry.name in _LEFT_OUT:
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                waiting.append(Path(entry.path))
            elif stat.S_ISREG(mode):
                found.append(Path(entry.path))
            else:
                what = "a symbolic link" if stat.S_ISLNK(mode) else "a special file"
                raise FileRejected(f"{entry.path!r:.200} is {what}", hint="remove it, or snapshot another folder")
    return sorted(found)


def snapshot_member(store: FileStore, reference: str, path: str) -> str:
    """The reference of one file of a snapshot. The path is only compared with the manifest, never opened.

    Raises:
        InvalidArgument: the artifact is no snapshot, or has no such file.
    """
    record = store.record(reference)
    if record.media_type != SNAPSHOT_TYPE:
        raise InvalidArgument("the artifact is not a source snapshot", argument="snapshot_path")
    files = {file["path"]: file["reference"] for file in json.loads(store.read(reference))["files"]}
    if path not in files:
        from stepwell.graph.similar import closest

        close = closest(path, files)
        raise InvalidArgument(
            f"the snapshot has no file {path!r:.200}", argument="snapshot_path",
            hint=f"did you mean {', '.join(close)}?" if close else f"it has {len(files)} files", candidates=close,
        )  # fmt: skip
    return str(files[path])


def read_artifact(store: FileStore, arguments: dict[str, Any]) -> dict[str, Any]:
    """`tools/read_artifact`: a window of an artifact, or of one text file of a source snapshot.

    Args:
        arguments: `artifact` (a reference, never a path), `start_byte` and `max_bytes`, or `start_line` and
            `max_lines`; `snapshot_path` picks a file of a snapshot.
    """
    from stepwell.errors import StepwellError

    try:
        reference = artifact_of(arguments.get("artifact"))
        record = store.record(reference)
        path = arguments.get("snapshot_path")
        if path is not None:
            record = store.record(snapshot_member(store, reference, path))
        window = read_window(
            store.read(record.reference), start_byte=arguments.get("start_byte", 0),
            max_bytes=arguments.get("max_bytes", DEFAULT_BYTES), start_line=arguments.get("start_line"),
            max_lines=arguments.get("max_lines"),
        )  # fmt: skip
    except StepwellError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return {"content": "", "error": f"{error.message}{hint}", "bytes_read": 0, "total_bytes": 0, "truncated": False}
    made: dict[str, Any] = {
        "content": window.content, "bytes_read": window.bytes_read, "total_bytes": window.total_bytes,
        "truncated": window.truncated, "source_artifact": record.to_dict(),
    }  # fmt: skip
    if window.next_offset is not None:
        made["next_offset"] = window.next_offset
    return made | ({"warning": window.warning} if window.warning else {})
