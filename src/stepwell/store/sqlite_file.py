"""One SQLite database file: connections, write transactions, migrations, and errors in our words.

Entries and run journals are both kept in such files. A connection reads in WAL mode beside writers; every write
transaction begins `IMMEDIATE`, so it never fails half-way for want of a lock, and is durable when it returns
(`synchronous=FULL`).
"""

import os
import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeVar

from stepwell.errors import SchemaTooNew, StepwellError, StorageCorrupt, StorageUnavailable
from stepwell.store.file_lock import SETUP, LockFile, Pause, offset_of

PAGE_SIZE = 8_192
WAL_LIMIT_BYTES = 16 * 1024 * 1024
BUSY_SECONDS = 30.0
MAX_IDLE_READERS = 8

T = TypeVar("T")
Migration = Callable[[sqlite3.Connection], None]


class FileFacts(NamedTuple):
    """What `doctor` wants to know of a database file. Sizes are bytes; `problems` is empty for a sound file."""

    path: str
    schema: int
    size: int
    wal_size: int
    problems: list[str]


class SqliteFile:
    """A database file that is opened (and created or migrated) on first use.

    Args:
        path: the file; its folder is created with mode 0700, the file with 0600.
        migrations: statement-by-statement steps; number n brings version n-1 to n.

    Raises (on use):
        SchemaTooNew: the file is from a newer version; it is left alone.
        StorageCorrupt: the file is damaged or no database.
        StorageUnavailable: it cannot be opened, read or written; nothing was changed.

    Attributes:
        ready: opened before; what comes now does no set-up any more.
    """

    def __init__(self, path: str | os.PathLike[str], migrations: Sequence[Migration]) -> None:
        self.path = os.fspath(path)
        self._migrations = migrations
        self._readers: deque[sqlite3.Connection] = deque()
        self._writer: sqlite3.Connection | None = None
        self._mutex = threading.RLock()
        self._locks: LockFile | None = None
        self._inode = 0
        self._unshared = False  # connections see nobody else's writes: use each for one read
        self._closed = False
        self.ready = False
        _files.add(self)

    # -- reading -------------------------------------------------------------------------------------------------

    def borrow(self) -> sqlite3.Connection:
        """A connection for reading; give it back with `give_back`. Statements run to their end: no open cursors."""
        try:
            return self._readers.pop()
        except IndexError:
            return self._connect_reader()

    def give_back(self, connection: sqlite3.Connection) -> None:
        """Return a borrowed connection to the pool."""
        if self._closed or self._unshared or len(self._readers) >= MAX_IDLE_READERS:
            connection.close()
        else:
            self._readers.append(connection)

    def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run `operation` on a borrowed connection, with errors translated."""
        connection = self.borrow()
        try:
            result = operation(connection)
        except sqlite3.Error as error:
            connection.close()
            raise self.translate(error) from error
        except BaseException:
            connection.close()
            raise
        self.give_back(connection)
        return result

    def _connect_reader(self) -> sqlite3.Connection:
        self.open()
        try:
            return self._connect(read_only=True)
        except sqlite3.Error as error:
            raise self.translate(error) from error

    # -- writing -------------------------------------------------------------------------------------------------

    def transaction(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run `operation` in one durable write transaction: committed when this returns, undone when it raises."""
        self.open()
        with self._mutex:
            connection: sqlite3.Connection | None = None
            try:
                connection = self._writing_connection()
                _patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
                try:
                    result = operation(connection)
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                self._writer = None
                if connection is not None:
                    connection.close()
                raise self.translate(error) from error
            return result

    def _writing_connection(self) -> sqlite3.Connection:
        if self._closed:
            raise StorageUnavailable(f"the store {self.path} is closed")
        if self._writer is None:
            self._writer = self._connect(read_only=False)
        if _inode(self.path) != self._inode:
            # SQLite would go on writing the old file, which nobody finds any more.
            raise StorageUnavailable(
                f"{self.path} was deleted or replaced while it was in use",
                hint="restart this program: what it writes now would be lost",
                path=self.path,
            )
        return self._writer

    # -- locks ---------------------------------------------------------------------------------------------------

    def locks(self) -> LockFile:
        """The lock file beside the database."""
        locks = self._locks
        if locks is None:
            with self._mutex:
                self._make_folder()
                locks = self._locks = LockFile.at(f"{self.path}.lock")
        return locks

    # -- opening ---------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Create or migrate the file if that has to be done. May wait for another process that does it."""
        if self.ready:
            return
        if self._closed:
            raise StorageUnavailable(f"the store {self.path} is closed")
        with self._mutex:
            try:
                if self._version() != len(self._migrations):
                    self._migrate()
            except sqlite3.Error as error:
                raise self.translate(error) from error
            self._inode = _inode(self.path)
            self.ready = True

    def _version(self) -> int:
        """The file's schema version; 0 if there is no file or an empty one. Refuses newer ones."""
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise StorageUnavailable(f"{self.path} cannot be read: {error.strerror}", path=self.path) from None
        if size == 0:
            return 0
        connection = self._connect(read_only=True)
        try:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        except BaseException:
            connection.close()
            raise
        if version == len(self._migrations):
            self.give_back(connection)
            return version
        connection.close()
        if version > len(self._migrations):
            raise SchemaTooNew(
                f"{self.path} has schema version {version}; this stepwell knows up to {len(self._migrations)}",
                found=version,
                known=len(self._migrations),
                path=self.path,
            )
        return version

    def _migrate(self) -> None:
        self._make_folder()
        locks = self.locks()
        ticket = locks.acquire(offset_of(SETUP), BUSY_SECONDS, f"the set-up of {self.path}")
        try:
            version = self._version()
            if version == len(self._migrations):
                return
            if not os.path.exists(self.path):  # closing a descriptor of an open database would drop its locks
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            connection = self._connect(read_only=False)
            try:
                # Others who look at the version meanwhile make the file busy for an instant.
                _patiently(lambda: self._prepare(connection, version))
                for number in range(version, len(self._migrations)):
                    _patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
                    try:
                        self._migrations[number](connection)
                        connection.execute(f"PRAGMA user_version={number + 1}")
                        connection.execute("COMMIT")
                    except BaseException:
                        if connection.in_transaction:
                            connection.execute("ROLLBACK")
                        raise
            finally:
                connection.close()
        except OSError as error:
            raise StorageUnavailable(f"{self.path} cannot be created: {error.strerror}", path=self.path) from None
        finally:
            locks.release(ticket)

    def _prepare(self, connection: sqlite3.Connection, version: int) -> None:
        if version == 0 and connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            raise StorageCorrupt(
                f"{self.path} is a database, but not one of stepwell's",
                hint="move it away, or point stepwell at another data folder",
                path=self.path,
            )
        connection.execute(f"PRAGMA page_size={PAGE_SIZE}")
        connection.execute("PRAGMA journal_mode=WAL")

    def _make_folder(self) -> None:
        folder = os.path.dirname(os.path.abspath(self.path))
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageUnavailable(
                f"the data folder {folder} cannot be created: {error.strerror}",
                hint="set STEPWELL_HOME to a folder you may write to",
                path=folder,
            ) from None

    def _connect(self, *, read_only: bool) -> sqlite3.Connection:
        connection = self._connection("mode=rw")
        try:
            if not read_only:
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute(f"PRAGMA journal_size_limit={WAL_LIMIT_BYTES}")
                connection.execute("PRAGMA busy_timeout=0")
                return connection
            connection.execute("PRAGMA query_only=1")
            try:
                connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
            except sqlite3.OperationalError:
                # In a folder that may not be written SQLite cannot set up the shared memory of a WAL database. With
                # no WAL there is nothing in it to share: the file alone is the whole database.
                if os.access(os.path.dirname(self.path) or ".", os.W_OK) or _size(f"{self.path}-wal"):
                    raise
                connection.close()
                connection = self._connection("mode=ro&immutable=1")
                self._unshared = True
        except BaseException:
            connection.close()
            raise
        return connection

    def _connection(self, mode: str) -> sqlite3.Connection:
        # By URI, because a plain path would create a file that was deleted meanwhile.
        path = os.path.abspath(self.path).replace(os.sep, "/")
        path = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        return sqlite3.connect(
            f"file://{path if path.startswith('/') else '/' + path}?{mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=64,
        )

    # -- the rest ------------------------------------------------------------------------------------------------

    def facts(self) -> FileFacts:
        """Size, schema and soundness, for `doctor`. Reads the whole file."""

        def operation(connection: sqlite3.Connection) -> FileFacts:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            try:
                found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(20)").fetchall()]
            except sqlite3.DatabaseError as error:
                found = [str(error)]  # too damaged to be checked to the end
            return FileFacts(
                self.path,
                version,
                os.stat(self.path).st_size,
                _size(f"{self.path}-wal"),
                [problem for problem in found if problem != "ok"],
            )

        return self.read(operation)

    def translate(self, error: sqlite3.Error) -> StepwellError:
        """A database error in our words."""
        name = getattr(error, "sqlite_errorname", "") or ""
        text = str(error)
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")) or "no such table" in text:
            return StorageCorrupt(f"{self.path} is damaged or not a stepwell store: {text}", path=self.path)
        if name.startswith("SQLITE_FULL"):
            hint = "free some disk space; nothing was written, so the same call can be made again"
        elif name.startswith("SQLITE_READONLY") or "unable to open" in text:
            hint = "check the permissions of the file and its folder"
        elif name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            hint = "another process keeps the file busy: try again"
        else:
            hint = "try again; run `stepwell doctor` if it stays"
        return StorageUnavailable(f"{self.path} cannot be used now: {text}", hint=hint, path=self.path)

    def close(self) -> None:
        """Close every connection. Using the file again raises `StorageUnavailable`."""
        with self._mutex:
            self._closed = True
            self.ready = False
            while self._readers:
                self._readers.pop().close()
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def _forget(self) -> None:
        """In a forked child: start afresh. Inherited connections are kept but never touched, not even to close."""
        _inherited.append((self._readers, self._writer))
        self._readers = deque()
        self._writer = None
        self._mutex = threading.RLock()
        self._locks = None


def _patiently(operation: Callable[[], object]) -> None:
    """Repeat what finds the file busy, faster than SQLite's own busy handler: writers elsewhere are brief."""
    deadline = monotonic() + BUSY_SECONDS
    pause = Pause()
    while True:
        try:
            operation()
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode & 0xFF) != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                raise
            sleep(pause.next())
        else:
            return


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


_files: "weakref.WeakSet[SqliteFile]" = weakref.WeakSet()
_inherited: list[Any] = []


def _after_fork() -> None:
    for file in tuple(_files):
        file._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
