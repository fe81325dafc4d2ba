"""Scheduled tasks of a project: stored as entries, run by whoever asks for what is due."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from stepwell.errors import EntryNotFound, InvalidArgument
from stepwell.graph.cron import expression_of, moment_of, parse_cron, zone_of
from stepwell.storage.kv import KeyValue

PREFIX = "schedule.task."
NUMBER = "schedule.last"
STATUSES = ("pending", "running", "completed", "failed", "cancelled", "paused")
MAX_TASKS = 10_000

Task = dict[str, Any]


class Schedule:
    """The tasks of a project.

    Args:
        kv: the project's entries.
    """

    def __init__(self, kv: KeyValue) -> None:
        self._kv = kv

    async def create(self, fields: dict[str, Any], now: datetime) -> Task:
        """Store a new task. It is due at `run_at`, or at the next time of its frequency.

        Raises:
            InvalidArgument: no workflow, no time, a time that has passed, or two inputs.
        """
        if not fields.get("workflow_id"):
            raise InvalidArgument("a task needs workflow_id: what is to run", argument="workflow_id")
        _check_input(fields)
        task = _with_time(dict(fields), now)
        number = await self._kv.update_value(NUMBER, lambda last: last + 1, default=0)
        made = {"id": number, "status": "pending", "attempts": 0, "created_at": now.isoformat(), **task}
        await self._kv.set_value(_key(number), made)
        return made

    async def all(self, status: str | None = None) -> list[Task]:
        """Every task, oldest first."""
        found: list[Task] = []
        async for entry in self._kv.scan(PREFIX):
            if status is None or entry.value.get("status") == status:
                found.append(entry.value)
        return found

    async def get(self, number: int) -> Task:
        """A task by its number.

        Raises:
            EntryNotFound: there is none.
        """
        task = await self._kv.get_value(_key(number))
        if task is None:
            raise EntryNotFound(f"there is no task {number}", id=number)
        return dict(task)

    async def change(self, number: int, change: Callable[[Task], Task]) -> Task:
        """Change a task; concurrent changes are all kept."""
        await self.get(number)
        return dict(await self._kv.update_value(_key(number), lambda task: change(dict(task))))

    async def update(self, number: int, fields: dict[str, Any], now: datetime) -> Task:
        """Change what a task does, or when."""

        def change(task: Task) -> Task:
            merged = task | fields
            _check_input(merged)
            timed = {"run_at", "frequency", "custom_cron", "timezone"} & set(fields)
            return _with_time(merged, now) if timed else merged

        return await self.change(number, change)

    async def set_status(self, number: int, status: str, *, allowed: tuple[str, ...]) -> Task:
        """Pause, resume or cancel a task.

        Raises:
            InvalidArgument: it is in a status that does not allow this.
        """

        def change(task: Task) -> Task:
            if task["status"] not in allowed:
                raise InvalidArgument(
                    f"the task {number} is {task['status']}", hint=f"it has to be {' or '.join(allowed)}"
                )
            return task | {"status": status}

        return await self.change(number, change)

    async def due(self, now: datetime) -> list[Task]:
        """The tasks that should have begun, the most urgent first."""
        waiting = [task for task in await self.all("pending") if datetime.fromisoformat(task["next_run_at"]) <= now]
        return sorted(waiting, key=lambda task: (-task.get("priority", 0), task["next_run_at"], task["id"]))

    async def run_due(self, now: datetime, begin: Callable[[Task], Awaitable[dict[str, Any]]]) -> list[Task]:
        """Run what is due, one after the other. A task that somebody else took meanwhile is left to them.

        Args:
            begin: runs a task's workflow; returns `status` and `run_id`.
        """
        done = []
        for task in await self.due(now):
            taken: list[bool] = []

            def take(known: Task, task: Task = task, taken: list[bool] = taken) -> Task:
                taken[:] = [known["status"] == "pending" and known["next_run_at"] == task["next_run_at"]]
                return known | {"status": "running", "started_at": now.isoformat()} if taken[0] else known

            await self.change(task["id"], take)
            if taken == [True]:
                outcome = await begin(task)
                done.append(await self.change(task["id"], lambda known, outcome=outcome: _ended(known, outcome, now)))  # type: ignore[misc]
        return done


def start_of(task: Task) -> dict[str, Any]:
    """What a task's workflow is started with: its text, else its params; those are for one node where it names one."""
    target, params = task.get("target_node_id"), task.get("params")
    if target and params:
        return {"input": task.get("task_text"), "nodes": {target: params}}
    return {"input": task.get("task_text") or params}


def _check_input(task: Task) -> None:
    if task.get("target_node_id") and not task.get("params"):
        raise InvalidArgument("target_node_id needs params: the values for that node", argument="target_node_id")
    if task.get("task_text") and task.get("params") and not task.get("target_node_id"):
        raise InvalidArgument(
            "task_text and params are both the input of the run", argument="params",
            hint="give one of them, or name the node that params are for in target_node_id",
        )  # fmt: skip


def _key(number: int) -> str:
    return f"{PREFIX}{number:012d}"


def _with_time(task: Task, now: datetime) -> Task:
    zone = zone_of(task.get("timezone"))
    frequency = task.get("frequency") or ("custom" if task.get("custom_cron") else "once")
    first = moment_of(task["run_at"], zone, now) if task.get("run_at") else None
    if frequency == "once" and first is None:
        raise InvalidArgument("a task that runs once needs run_at", hint="e.g. 30m", argument="run_at")
    cron = expression_of(frequency, task.get("custom_cron"), first, zone)
    due = first or (parse_cron(cron).next(now, zone) if cron is not None else None)
    if cron is not None:
        parse_cron(cron)
    if due is None:
        raise InvalidArgument(f"{cron!r} never comes", argument="custom_cron")
    return task | {"frequency": frequency, "cron": cron, "next_run_at": due.astimezone(UTC).isoformat()}


def _ended(task: Task, outcome: dict[str, Any], now: datetime) -> Task:
    """The task after a run: repeated ones wait for their next time, failed ones are tried again."""
    made = task | {"last_run_id": outcome.get("run_id"), "last_status": outcome["status"], "ended_at": now.isoformat()}
    if task["status"] == "cancelled":
        return made
    failed = outcome["status"] != "completed"
    attempts = task.get("attempts", 0) + 1 if failed else 0
    made["attempts"] = attempts
    if failed and attempts <= task.get("max_retries", 3):
        return made | {"status": "pending", "next_run_at": now.isoformat()}
    if task.get("cron"):
        following = parse_cron(task["cron"]).next(now, zone_of(task.get("timezone")))
        if following is not None:
            return made | {"status": "pending", "attempts": 0, "next_run_at": following.isoformat()}
    return made | {"status": "failed" if failed else "completed"}
