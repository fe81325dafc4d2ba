"""The writer thread of a database file: operations that wait together share one transaction and one fsync."""

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

from stepwell.errors import StorageUnavailable
from stepwell.store.file_lock import Pause

T = TypeVar("T")

MAX_BATCH = 512

# What an operation did wrong itself; any other database error is the file's or the disk's.
_OWN_FAULTS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)


class Admission(Protocol):
    """What has to be held while an operation's transaction runs (the shared namespace lock)."""

    def enter(self, wake: Callable[[], object]) -> bool:
        """Try to get in; False means ask again, soon or when `wake` is called. May raise to give up."""
        ...

    def leave(self) -> None:
        """Called once the transaction ended, committed or not, or when the operation was taken back."""
        ...


class _Job(NamedTuple):
    operation: Callable[[sqlite3.Connection], Any]
    admission: Admission | None
    future: "Future[Any]"


class _Signal(NamedTuple):
    """Queued to wake the thread up: to ask deferred operations again, or to end."""

    closing: bool


class GroupWriter:
    """Runs operations on one connection, in batches.

    Operations queued while a transaction is under way go into the next one together: `BEGIN IMMEDIATE`, each
    operation in a savepoint of its own (one that raises is undone alone), `COMMIT`; futures resolve only then.
    A failing file or disk fails the whole batch.

    Args:
        transaction: runs a function inside one write transaction on the file's write connection, and raises
            translated errors. It must exclude other writers of this process.
        name: the thread's name.
    """

    def __init__(
        self, transaction: Callable[[Callable[[sqlite3.Connection], None]], None], name: str = "stepwell-writer"
    ) -> None:
        self._transaction = transaction
        self._name = name
        self._closed = False
        self.start_afresh()
        _writers.add(self)

    def start_afresh(self) -> None:
        """Also in a forked child, which has no thread and must not write what its parent queued."""
        self._queue: SimpleQueue[_Job | _Signal] = SimpleQueue()
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, operation: Callable[[sqlite3.Connection], T], admission: Admission | None = None) -> "Future[T]":
        """Queue an operation. Its future has the result once it is durable; cancelling works until it starts."""
        future: Future[T] = Future()
        with self._mutex:
            if self._closed:
                raise StorageUnavailable("the store is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._queue.put(_Job(operation, admission, future))
        return future

    def close(self) -> None:
        """Finish what was accepted, then end the thread."""
        with self._mutex:
            self._closed = True
            thread = self._thread
            self._queue.put(_Signal(closing=True))
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        deferred: list[_Job] = []
        closing = False
        pause = Pause()
        while not (closing and not deferred):
            fresh: list[_Job] = []
            closing = self._collect(fresh, wait=pause.next() if deferred else None) or closing
            jobs, deferred = deferred + fresh, []
            admitted: list[_Job] = []
            for job in jobs:
                self._admit(job, admitted, deferred)
            if admitted:
                self._commit(admitted)
                pause = Pause()

    def _collect(self, jobs: list[_Job], *, wait: float | None) -> bool:
        """Add what is queued to `jobs`; True when the writer is to end."""
        try:
            job = self._queue.get(timeout=wait)
            while True:
                if isinstance(job, _Job):
                    jobs.append(job)
                elif job.closing:
                    return True
                if len(jobs) >= MAX_BATCH:
                    return False
                job = self._queue.get_nowait()
        except Empty:
            return False

    def _wake(self) -> None:
        self._queue.put(_Signal(closing=False))

    def _admit(self, job: _Job, admitted: list[_Job], deferred: list[_Job]) -> None:
        admission, future = job.admission, job.future
        problem: BaseException | None = None
        inside = True
        if admission is not None and not future.cancelled():
            try:
                inside = admission.enter(self._wake)
            except BaseException as error:  # noqa: BLE001  (the waiting caller gets it)
                problem = error
        if problem is None and not inside:
            deferred.append(job)
        elif future.set_running_or_notify_cancel() and problem is None:
            admitted.append(job)
        else:
            if admission is not None:
                admission.leave()
            if problem is not None and not future.cancelled():
                future.set_exception(problem)

    def _commit(self, jobs: list[_Job]) -> None:
        outcomes: list[tuple[Any, BaseException | None]] = []

        def run(connection: sqlite3.Connection) -> None:
            for job in jobs:
                outcomes.append(_run_alone(connection, job.operation))

        try:
            self._transaction(run)
        except BaseException as error:  # noqa: BLE001  (every waiting caller gets it)
            outcomes = [(None, error)] * len(jobs)
        for job in jobs:
            if job.admission is not None:
                job.admission.leave()
        for job, (result, problem) in zip(jobs, outcomes, strict=True):
            if problem is not None:
                job.future.set_exception(problem)
            else:
                job.future.set_result(result)


def _run_alone(
    connection: sqlite3.Connection, operation: Callable[[sqlite3.Connection], T]
) -> tuple[T | None, BaseException | None]:
    """Run an operation in a savepoint: its result, or the error for which it was undone."""
    connection.execute("SAVEPOINT operation")
    try:
        result = operation(connection)
    except BaseException as error:
        if isinstance(error, sqlite3.Error) and not isinstance(error, _OWN_FAULTS):
            raise
        connection.execute("ROLLBACK TO operation")
        connection.execute("RELEASE operation")
        return None, error
    connection.execute("RELEASE operation")
    return result, None


_writers: "weakref.WeakSet[GroupWriter]" = weakref.WeakSet()


def _after_fork() -> None:
    for writer in tuple(_writers):
        writer.start_afresh()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
