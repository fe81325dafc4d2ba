"""Worker threads for the synchronous code of runs.

`concurrent.futures` has a pool, with three traits that runs cannot live with: threads that wait for the event loop
(for a nested node, in `ctx.wait`) use up its limit until nothing moves, a thread that never returns keeps the process
from ending, and a `StopIteration` leaves its caller waiting forever.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from stepwell.errors import RunClosed

T = TypeVar("T")


class _Job(NamedTuple):
    function: Callable[[], Any]
    future: "Future[Any]"


class WorkerThreads:
    """Daemon threads, started when they are needed.

    Args:
        limit: how many may be working at once; those that wait for the event loop are not counted.
        name: the threads' names begin with it.
    """

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._mutex = threading.Lock()
        self._count = 0
        self._idle = 0
        self._waiting = 0
        self._queued = 0
        self._closed = False

    def submit(self, function: Callable[[], T]) -> "Future[T]":
        """Call `function` in a thread; cancelling the future works until the call begins."""
        future: Future[T] = Future()
        with self._mutex:
            if self._closed:
                raise RunClosed("the host is closed")
            self._queued += 1
            self._queue.put(_Job(function, future))
            self._grow()
        return future

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The calling thread waits for the event loop: somebody else may work meanwhile."""
        with self._mutex:
            self._waiting += 1
            self._grow()
        try:
            yield
        finally:
            with self._mutex:
                self._waiting -= 1

    def close(self) -> None:
        """Begin nothing more. Threads that are idle end now, others after their job."""
        with self._mutex:
            self._closed = True
            for _ in range(self._count):
                self._queue.put(None)

    def _grow(self) -> None:
        if self._queued > self._idle and self._count - self._waiting < self._limit and not self._closed:
            self._count += 1
            threading.Thread(target=self._run, name=f"{self._name}-{self._count}", daemon=True).start()

    def _run(self) -> None:
        job: _Job | None = None
        while True:
            with self._mutex:
                if self._count - self._waiting > self._limit:
                    self._count -= 1
                    return
                self._idle += 1
            job = self._queue.get()
            with self._mutex:
                self._idle -= 1
                if job is None:
                    self._count -= 1
                    return
                self._queued -= 1
                closed = self._closed
            if closed:
                job.future.cancel()
            else:
                _perform(job)
            job = None  # an idle thread must not keep what it worked on alive


def _perform(job: _Job) -> None:
    if not job.future.set_running_or_notify_cancel():
        return
    try:
        result = job.function()
    except StopIteration as error:  # no future takes it as it is
        stopped = RuntimeError(f"{error!r} was raised")
        stopped.__cause__ = error
        job.future.set_exception(stopped)
    except BaseException as error:  # noqa: BLE001  (whoever waits gets it)
        job.future.set_exception(error)
    else:
        job.future.set_result(result)


class Bridge:
    """From one call in a worker thread back to the event loop. What is waited for there ends with the call."""

    def __init__(self, threads: WorkerThreads, loop: asyncio.AbstractEventLoop) -> None:
        self._threads = threads
        self._loop = loop
        self._mutex = threading.Lock()
        self._pending: set[Future[Any]] = set()
        self._cancelled = False

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop and block until it is done.

        Raises:
            asyncio.CancelledError: the call was cancelled or ran out of time.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        with self._mutex:
            self._pending.add(future)
            if self._cancelled:
                future.cancel()
        try:
            with self._threads.waiting():
                return future.result()
        except CancelledError as error:
            raise asyncio.CancelledError(*error.args) from None
        finally:
            with self._mutex:
                self._pending.discard(future)

    def cancel(self) -> None:
        """Cancel what the thread waits for, now and from now on."""
        with self._mutex:
            self._cancelled = True
            pending = tuple(self._pending)
        for future in pending:
            future.cancel()


_bridge: ContextVar[Bridge | None] = ContextVar("stepwell_bridge", default=None)


def current_bridge() -> Bridge | None:
    """The bridge of the call that this thread works on; None elsewhere."""
    return _bridge.get()


async def in_thread(threads: WorkerThreads, function: Callable[[], T]) -> T:
    """Call a blocking function in a worker thread, with a copy of the caller's context variables."""
    bridge = Bridge(threads, asyncio.get_running_loop())
    context = copy_context()
    context.run(_bridge.set, bridge)
    try:
        return await asyncio.wrap_future(threads.submit(lambda: context.run(function)))
    except asyncio.CancelledError:
        bridge.cancel()
        raise
