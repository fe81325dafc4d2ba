"""The same operations on every backend: same results, same errors, same revisions, same order."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.errors import Conflict
from stepwell.jsontext import encode
from stepwell.store.backend import Backend
from stepwell.store.entries import Check, Domain, Namespace, Scope, Source, Span, Write
from stepwell.store.memory import MemoryBackend
from stepwell.store.sqlite_backend import SqliteBackend

PROJECT = "01936d3f-6a00-7000-8000-0000000000aa"
ids = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=3)
namespaces = st.one_of(
    st.just(Namespace(PROJECT, Domain.KV, Scope.PROJECT)),
    st.builds(Namespace, st.just(PROJECT), st.sampled_from(Domain), st.just(Scope.CONVERSATION), st.none(), ids),
    st.builds(Namespace, st.none(), st.just(Domain.KV), st.just(Scope.WORKFLOW), ids, st.none()),
)
# Few letters, so that keys meet again; those around which orders differ between encodings.
keys = st.text(st.sampled_from("aAé_%/'\n\ud7ff\ue000\uffff\U00010000\U0010ffff"), min_size=1, max_size=3)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
texts = json_values.map(lambda value: encode(value, max_bytes=1_000_000))
sources = st.builds(Source, st.none() | ids, st.none() | ids, st.none() | ids, st.none() | ids)
spans = st.one_of(st.just(Span()), st.builds(Span.prefix, keys), st.builds(Span, keys, st.none() | keys))

commits = st.tuples(
    st.just("commit"),
    namespaces,
    st.lists(st.tuples(keys, st.sampled_from(["current", "absent", "old"])), max_size=2),
    st.dictionaries(keys, st.none() | texts, max_size=4),
    sources,
)
scans = st.tuples(
    st.just("scan"), namespaces, spans, st.none() | keys, st.integers(min_value=1, max_value=4), st.booleans()
)
reads = st.tuples(st.just("read"), namespaces, st.lists(keys, max_size=4))
clears = st.tuples(st.just("clear"), namespaces)
lists = st.tuples(
    st.just("list"),
    st.none() | st.just(PROJECT),
    st.none() | st.sampled_from(Domain),
    st.none() | st.sampled_from(Scope),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(commits, commits, commits, scans, reads, clears, lists), max_size=25))
def test_backends_agree(operations: list[tuple]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        backends: list[Backend] = [MemoryBackend(), SqliteBackend(Path(folder) / "x.sqlite")]
        asyncio.run(_compare(backends, operations))


async def _compare(backends: list[Backend], operations: list[tuple]) -> None:
    watched = Namespace(PROJECT, Domain.KV, Scope.PROJECT)
    for operation in operations:
        first, *others = [await _perform(backend, operation) for backend in backends]
        assert all(other == first for other in others), operation
    for backend in backends:
        for ns in {operation[1] for operation in operations if isinstance(operation[1], Namespace)} | {watched}:
            records = await backend.scan(ns, Span())
            assert [record.key for record in records] == sorted(
                (record.key for record in records), key=lambda key: key.encode()
            )
        await backend.close()


async def _perform(backend: Backend, operation: tuple) -> object:
    """The outcome without its times, which no two backends share."""
    match operation:
        case "commit", ns, checks, writes, source:
            made = [Check(key, await _expected(backend, ns, key, what)) for key, what in checks]
            try:
                committed = await backend.commit(ns, made, [Write(*item) for item in writes.items()], source=source)
            except Conflict as conflict:
                return conflict.to_dict()
            found = await backend.read(ns, list(writes))
            assert all(committed.created[key] == record.created_at for key, record in found.items())
            assert all(committed.at == record.updated_at for record in found.values())
            return committed.revision, committed.removed, set(committed.created)
        case "scan", ns, span, after, limit, reverse:
            return [_timeless(r) for r in await backend.scan(ns, span, after=after, limit=limit, reverse=reverse)]
        case "read", ns, wanted:
            found = await backend.read(ns, wanted)
            assert {key: record.text for key, record in found.items()} == {
                key: text for key in wanted if (text := await backend.text(ns, key)) is not None
            }
            return {key: _timeless(record) for key, record in found.items()}
        case "clear", ns:
            return await backend.clear(ns)
        case "list", project_id, domain, scope:
            found = await backend.namespaces(project_id=project_id, domain=domain, scope=scope)
            paged, after = [], None
            while page := await backend.namespaces(
                project_id=project_id, domain=domain, scope=scope, after=after, limit=2
            ):
                paged += page
                after = (page[-1].updated_at, page[-1].namespace)
            assert paged == found
            return {(info.namespace, info.revision, info.entries) for info in found}
    raise AssertionError(operation)


async def _expected(backend: Backend, ns: Namespace, key: str, what: str) -> int:
    record = (await backend.read(ns, [key])).get(key)
    revision = 0 if record is None else record.revision
    return {"current": revision, "absent": 0, "old": max(revision - 1, 0)}[what]


def _timeless(record):
    return record._replace(created_at=0, updated_at=0)
