"""Receipts of commits are forgotten by the database's time, whatever a client's clock made of their ids."""

from stepwell.identifiers import new_id
from stepwell.store import postgres
from stepwell.store.entries import Domain, Namespace, Scope, Write
from stepwell.store.postgres import PostgresBackend
from tests.databases import Database

NS = Namespace("01936d3f-6a00-7000-8000-0000000000aa", Domain.KV, Scope.PROJECT)


async def test_a_receipt_lasts_a_day_whatever_the_clocks_of_clients_and_servers_say(monkeypatch):
    ahead = postgres.now_micros() + 5 * 86_400_000_000
    monkeypatch.setattr(postgres, "now_micros", lambda: ahead)
    database = Database()
    backend = PostgresBackend(database.dsn)
    try:
        past, old = "01000000-0000-7000-8000-000000000001", "01000000-0000-7000-8000-000000000002"
        for commit_id in (past, old, new_id()):
            await backend.commit(NS, (), [Write("k", f'"{commit_id}"')], commit_id=commit_id)
        database.run("UPDATE stepwell.commit_log SET at = at - 2 * 86400000000 WHERE commit_id = %s", (old,))
        await backend.trim_log()
        assert await backend.is_committed(NS, past)
        assert not await backend.is_committed(NS, old)
        again = await backend.commit(NS, (), [Write("k", '"again"')], commit_id=past, repeat=True)
        assert again.revision == 1
    finally:
        await backend.close()
        database.drop()
