"""The writer thread of a database file: operations that wait together share one transaction and one fsync."""

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

from stepwell.errors import StorageUnavailable

T = TypeVar("T")

MAX_BATCH = 512
_RETRY_DEFERRED = 0.002


class Admission(Protocol):
    """What has to be held while an operation's transaction runs (the shared namespace lock)."""

    def enter(self) -> bool:
        """Try to get in; False means ask again in a moment. May raise to give up."""
        ...

    def leave(self) -> None:
        """Called once after the transaction, committed or not."""
        ...


class _Job(NamedTuple):
    operation: Callable[[sqlite3.Connection], Any]
    admission: Admission | None
    future: "Future[Any]"


class GroupWriter:
    """Runs operations on one connection, in batches.

    Operations queued while a transaction is under way go into the next one together: `BEGIN IMMEDIATE`, each
    operation in a savepoint of its own (one that raises is undone alone), `COMMIT`; futures resolve only then.

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
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, operation: Callable[[sqlite3.Connection], T], admission: Admission | None = None) -> "Future[T]":
        """Queue an operation. Its future has the result once it is durable; cancelling works until it starts."""
        future: Future[T] = Future()
        if self._closed:
            raise StorageUnavailable("the store is closed")
        if self._thread is None:
            self._start()
        self._queue.put(_Job(operation, admission, future))
        return future

    def close(self) -> None:
        """Finish what was accepted, then end the thread."""
        with self._mutex:
            self._closed = True
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._queue.put(None)
            thread.join()

    def _start(self) -> None:
        with self._mutex:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        deferred: list[_Job] = []
        closing = False
        while not (closing and not deferred):
            jobs, deferred = deferred, []
            closing = self._collect(jobs, wait=_RETRY_DEFERRED if jobs else None) or closing
            admitted: list[_Job] = []
            for job in jobs:
                self._admit(job, admitted, deferred)
            if admitted:
                self._commit(admitted)

    def _collect(self, jobs: list[_Job], *, wait: float | None) -> bool:
        """Add what is queued to `jobs`; True when the writer is to end."""
        try:
            job = self._queue.get(timeout=wait)
            while True:
                if job is None:
                    return True
                jobs.append(job)
                if len(jobs) >= MAX_BATCH:
                    return False
                job = self._queue.get_nowait()
        except Empty:
            return False

    @staticmethod
    def _admit(job: _Job, admitted: list[_Job], deferred: list[_Job]) -> None:
        if job.future.cancelled():
            job.future.set_running_or_notify_cancel()
            return
        try:
            inside = job.admission is None or job.admission.enter()
        except BaseException as error:  # noqa: BLE001  (the waiting caller gets it)
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(error)
            return
        if not inside:
            deferred.append(job)
        elif job.future.set_running_or_notify_cancel():
            admitted.append(job)
        elif job.admission is not None:
            job.admission.leave()

    def _commit(self, jobs: list[_Job]) -> None:
        outcomes: list[tuple[_Job, Any, BaseException | None]] = []

        def run(connection: sqlite3.Connection) -> None:
            alone = len(jobs) == 1
            for job in jobs:
                if not alone:
                    connection.execute("SAVEPOINT operation")
                try:
                    result = job.operation(connection)
                except sqlite3.Error:
                    raise  # the file or the disk failed: the whole transaction did
                except BaseException as error:
                    if alone:
                        raise
                    connection.execute("ROLLBACK TO operation")
                    outcomes.append((job, None, error))
                else:
                    outcomes.append((job, result, None))
                if not alone:
                    connection.execute("RELEASE operation")

        try:
            self._transaction(run)
        except BaseException as error:  # noqa: BLE001  (every waiting caller gets it)
            outcomes = [(job, None, error) for job in jobs]
        for job in jobs:
            if job.admission is not None:
                job.admission.leave()
        for job, result, problem in outcomes:
            if problem is not None:
                job.future.set_exception(problem)
            else:
                job.future.set_result(result)
