"""Tasks beside the code that started them: waited for in the end, and heard of as soon as one fails."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any


class BackgroundTasks:
    """The background tasks of a run, or of a workflow within one.

    Args:
        loop: where they run.
        on_failure: called once, on the loop, with the first exception that a task ends with; a cancelled task is none.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_failure: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed: BaseException | None = None

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str | None) -> "asyncio.Task[Any]":
        """Start a task, from any thread."""
        if not self._is_here():
            started: Future[asyncio.Task[Any]] = Future()
            self._loop.call_soon_threadsafe(lambda: started.set_result(self.start(coroutine, name)))
            return started.result()
        task = self._loop.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self) -> None:
        """Wait until all have ended, those too that are started meanwhile.

        Raises:
            Exception: what the first one failed with.
        """
        while self._tasks and self._failed is None:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # what a task does when it has ended was only scheduled
        if self._failed is not None:
            raise self._failed

    async def cancel(self) -> None:
        """Cancel what is left and wait for it, though not for what will not end."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        is_left = task not in self._tasks  # it was cancelled with all others: there is another reason for the end
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failed is None and not is_left:
            self._failed = error
            self._on_failure(error)

    def _is_here(self) -> bool:
        with contextlib.suppress(RuntimeError):
            return asyncio.get_running_loop() is self._loop
        return False
