"""Requests and modes in the journal's file: older files get the tables, one answer wins, questions are recognised."""

import asyncio
from pathlib import Path

import pytest

from stepwell.store.approvals import ApprovalRow
from stepwell.store.journal import EventRow, RunFilter, RunRow
from stepwell.store.sqlite_file import SqliteFile
from stepwell.store.sqlite_journal import MIGRATIONS, SqliteJournal
from stepwell.store.sqlite_writer import GroupWriter

RUN = RunRow("r1", "p", "main", None, "running", 1, 1, None, "{}", "", None, 0)


def row(request_id: str, item: str = "a", arguments: str = "{}", **more) -> ApprovalRow:
    given = ApprovalRow(request_id, "r1", item, "tool", arguments, "pending", 1, None, None, None, None, None)
    return given._replace(**more)


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
def test_a_journal_of_an_older_version_keeps_its_runs_and_gets_the_tables(tmp_path: Path, version: int):
    path = tmp_path / "journal.sqlite"
    old = SqliteFile(path, MIGRATIONS[:version])
    writer = GroupWriter(old.transaction)
    values = ", ".join("?" * len(RUN))
    writer.submit(lambda connection: connection.execute(f"INSERT INTO run VALUES ({values})", RUN)).result()
    writer.close()
    old.close()
    journal = SqliteJournal(path)
    assert [found.id for found in journal.list(RunFilter(), before=None, limit=5)] == ["r1"]
    assert journal.approvals.list(run_id=None, status=None, before=None, limit=5) == []
    journal.approvals.set_mode("t", "manual").result()
    journal.append("r1", [EventRow(1, 1, "x", "{}")]).result()
    assert not journal.was_deleted("r1")
    assert journal.delete("r1").result()
    assert journal.was_deleted("r1")
    journal.close()
    again = SqliteJournal(path)
    assert again.approvals.modes() == {"t": "manual"}
    assert again.facts().schema == len(MIGRATIONS)
    again.close()


def test_the_same_question_is_the_same_request_until_it_is_used(tmp_path: Path):
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    store = journal.approvals
    first = store.request(row("1")).result()
    assert store.request(row("2")).result() == first
    assert store.answer("1", "approved", "{}", 5).result()
    assert store.request(row("3")).result().status == "approved"
    store.mark("1", "used_at", 6).result()
    assert store.request(row("4")).result().id == "4"
    assert store.request(row("5", arguments='{"other":1}')).result().id == "5"
    assert store.get("4").status == "withdrawn"
    assert store.request(row("6", item="b")).result().id == "6"
    assert store.get("5").status == "pending"
    journal.close()


async def test_of_many_answers_at_once_one_wins_and_none_comes_late(tmp_path: Path):
    journals = [SqliteJournal(tmp_path / "journal.sqlite") for _ in range(3)]
    journals[0].approvals.request(row("1")).result()
    journals[0].approvals.request(row("2", item="b", expires_at=10)).result()
    won = await asyncio.gather(
        *(
            asyncio.wrap_future(journals[number % 3].approvals.answer("1", status, f'{{"n":{number}}}', 5))
            for number, status in enumerate(["approved", "denied"] * 10)
        )
    )
    assert sum(won) == 1
    assert journals[1].approvals.get("1").answer == f'{{"n":{won.index(True)}}}'
    assert not journals[0].approvals.answer("2", "approved", "{}", 10).result()
    assert journals[0].approvals.answer("2", "expired", "{}", 10).result()
    for journal in journals:
        journal.close()
