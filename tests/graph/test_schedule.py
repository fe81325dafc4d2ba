"""Scheduled tasks: when they are due, and that each is run once."""

from datetime import UTC, datetime, timedelta

import pytest

from stepwell.errors import InvalidArgument
from stepwell.graph.cron import moment_of, parse_cron, zone_of
from tests.graph.conftest import save
from tests.graph.test_nodes_data import failure, one

NOW = datetime(2026, 3, 1, 12, 30, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "zone", "expected"),
    [
        ("* * * * *", "UTC", "2026-03-01T12:31"), ("0 8 * * *", "UTC", "2026-03-02T08:00"),
        ("*/15 * * * *", "UTC", "2026-03-01T12:45"), ("30 8 * * mon-fri", "Europe/Berlin", "2026-03-02T07:30"),
        ("0 0 29 2 *", "UTC", "2028-02-29T00:00"), ("0 0 13 * fri", "UTC", "2026-03-06T00:00"),
        ("30 2 29 3 *", "Europe/Berlin", "2027-03-29T00:30"),  # 02:30 of 2026-03-29 does not exist there
        ("0 12 1 jan,jul 7", "UTC", "2026-07-01T12:00"), ("5-10/5 * * * *", "UTC", "2026-03-01T13:05"),
    ],
)  # fmt: skip
def test_cron_expressions_give_the_next_time(expression, zone, expected):
    found = parse_cron(expression).next(NOW, zone_of(zone))
    assert found.isoformat()[:16] == expected


def test_impossible_times_are_refused():
    assert parse_cron("0 0 31 2 *").next(NOW, zone_of(None)) is None
    for wrong in ("* * * *", "60 * * * *", "a * * * *", "*/0 * * * *", "5-1 * * * *", "* * * * 8", "* * 0 * *"):
        with pytest.raises(InvalidArgument):
            parse_cron(wrong)
    for wrong in ("yesterday", "2020-01-01T00:00:00Z", "-5m", ""):
        with pytest.raises(InvalidArgument):
            moment_of(wrong, zone_of(None), NOW)
    assert moment_of("30m", zone_of(None), NOW) == NOW + timedelta(minutes=30)
    assert moment_of("2026-03-01T14:00", zone_of("Europe/Berlin"), NOW).hour == 13


async def test_tasks_are_planned_changed_and_run_once(graphs):
    from stepwell.graph.scheduling import Schedule

    save(graphs.folder, "later", {"t": "io/input_text"})
    made = (await one(graphs, "tools/schedule", {"action": "create_task", "workflow_id": "later", "run_at": "1s"}))[
        "data"
    ]
    hourly = {"action": "create_task", "workflow_id": "later", "frequency": "hourly", "task_text": "hi"}
    repeated = (await one(graphs, "tools/schedule", hourly))["data"]
    assert (made["id"], repeated["id"]) == (1, 2)
    assert (await one(graphs, "tools/schedule", {"action": "pause_task", "id": 2}))["data"]["status"] == "paused"
    assert (await failure(graphs, "tools/schedule", {"action": "pause_task", "id": 2}))["code"] == "invalid_argument"
    await one(graphs, "tools/schedule", {"action": "resume_task", "id": 2})
    assert (await one(graphs, "tools/schedule", {"action": "get_task", "id": 9}))["status"] == "not_found"
    assert (await one(graphs, "tools/schedule", {"limit": 1}))["total"] == 2
    assert (await failure(graphs, "tools/schedule", hourly | {"workflow_id": "gone"}))["code"] == "workflow_not_found"

    from stepwell.storage.declaration import DataStorage, ScopeModel
    from stepwell.storage.location import Storage
    from stepwell.store.entries import NO_SOURCE
    from tests.unit.conftest import PROJECT_ID

    storage = Storage(
        local=graphs.host.local_stores, server=None, project_id=PROJECT_ID, workflow_name="", conversation_id=None,
        data_storage=DataStorage.LOCAL, scope_model=ScopeModel.PROJECT, source=NO_SOURCE,
    )  # fmt: skip
    schedule = Schedule(storage.host.kv)
    begun = []

    async def begin(task):
        begun.append(task["id"])
        return {"status": "completed" if task["id"] == 1 else "failed", "run_id": "r"}

    later = datetime.now(UTC) + timedelta(hours=2)
    assert [task["id"] for task in await schedule.due(later)] == [1, 2]
    await schedule.run_due(later, begin)
    assert begun == [1, 2]
    assert (await schedule.get(1))["status"] == "completed"
    again = await schedule.get(2)
    assert (again["status"], again["attempts"]) == ("pending", 1)  # failed: tried again
    for _ in range(3):
        await schedule.run_due(later, begin)
    assert begun == [1, 2, 2, 2, 2]
    again = await schedule.get(2)
    assert (again["attempts"], again["next_run_at"] > later.isoformat()) == (0, True)
