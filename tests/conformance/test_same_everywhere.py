"""The same operations through memory, SQLite, PostgreSQL and HTTP: same texts, revisions, order, errors."""

import asyncio
import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from stepwell.errors import StepwellError
from stepwell.jsontext import decode
from stepwell.storage.kv import KeyValue
from stepwell.store.backend import Backend
from stepwell.store.entries import Check, Domain, Holder, Namespace, Scope, Source, Span, Write
from tests.conformance.conftest import FACTORIES, PROJECT, Store
from tests.conformance.test_backend_entries import HOSTILE_KEYS, HOSTILE_TEXTS

NUMBERS = count()
ME = Holder(7, "here", "run")

# Keys that are refused everywhere, and values that are no JSON: the error must be the same to the letter.
REFUSED_KEYS = ["", "a\0b", "\ud800", "x" * 1025, "é" * 513, 5, None, b"k"]
ODD_VALUES = [
    float("nan"), [1, {"b": float("inf")}], {1: "a", "1": "b"}, {"a": object()}, b"bytes", {1, 2}, 10**5000,
    -(10**4299), "\ud800", "a\0b", 2**53 + 1, -(2**100), -0.0, 1.0, 1e16, 5e-324, True, None, "", [], {}, (1, (2,)),
    {"\ud800": "\0"}, {"": {"": []}}, {"__proto__": 1, "$ref": 2}, "x" * 100_000, [[[[]]]] * 3,
]  # fmt: skip
DEEP: Any = 1
for _ in range(2_000):
    DEEP = [DEEP]
CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
ODD_VALUES += [DEEP, CIRCLE]

keys = st.one_of(st.sampled_from([key for key in HOSTILE_KEYS if len(key) < 5]), st.sampled_from("ab"))
any_keys = st.one_of(keys, keys, keys, st.sampled_from(HOSTILE_KEYS), st.sampled_from(REFUSED_KEYS))
values = st.one_of(
    st.sampled_from(ODD_VALUES),
    st.sampled_from(HOSTILE_TEXTS).map(decode),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    ),
)
plain_texts = st.sampled_from(HOSTILE_TEXTS)
spans = st.one_of(st.just(Span()), keys.map(Span.prefix), st.builds(Span, keys, st.none() | keys))
operations = st.one_of(
    st.tuples(st.just("set"), any_keys, values),
    st.tuples(st.just("set"), any_keys, values),
    st.tuples(st.just("delete"), any_keys),
    st.tuples(st.just("update"), any_keys, values),
    st.tuples(st.just("get"), any_keys),
    st.tuples(st.just("lock"), st.lists(st.tuples(any_keys, st.none() | values), max_size=4), st.booleans()),
    st.tuples(
        st.just("commit"),
        st.lists(st.tuples(keys, st.sampled_from(["current", "current", "absent", "old", "ahead"])), max_size=3),
        st.dictionaries(keys, st.none() | plain_texts, max_size=4),
    ),
    st.tuples(st.just("scan"), spans, st.none() | keys, st.integers(1, 5), st.booleans()),
    st.tuples(st.just("list"), st.sampled_from(["", "a", "é", "\0", 5]), st.none() | keys, st.booleans()),
    st.tuples(st.just("read"), st.lists(keys, max_size=5)),
    st.tuples(st.just("clear")),
    st.tuples(st.just("stale lease"), keys),
)


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, dict[str, Backend]]]:
    """A handle on each backend, all used on one event loop."""
    with asyncio.Runner() as runner:
        stores: dict[str, Store] = {name: make(tmp_path_factory.mktemp(name)) for name, make in FACTORIES.items()}
        yield runner, {name: store.open() for name, store in stores.items()}
        for store in stores.values():
            runner.run(store.close())


@settings(
    max_examples=100, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)  # fmt: skip
@given(st.lists(operations, min_size=5, max_size=25))
def test_random_operations(everywhere: tuple[asyncio.Runner, dict[str, Backend]], steps: list[tuple]) -> None:
    runner, backends = everywhere
    number = next(NUMBERS)
    ns = Namespace(PROJECT, Domain.KV, Scope.CONVERSATION, conversation_id=f"example {number}")
    runner.run(_compare(backends, ns, steps))


def test_every_hostile_value_and_key(everywhere: tuple[asyncio.Runner, dict[str, Backend]]) -> None:
    runner, backends = everywhere
    every = [
        *(("set", "k", value) for value in ODD_VALUES),
        *(("update", "k", value) for value in ODD_VALUES),
        *(("commit", [], {"k": text}) for text in HOSTILE_TEXTS),
        *(("set", "k", decode(text)) for text in HOSTILE_TEXTS),
        *(("set", key, key) for key in [*HOSTILE_KEYS, *REFUSED_KEYS]),
        *(("get", key) for key in [*HOSTILE_KEYS, *REFUSED_KEYS]),
        *(("scan", Span.prefix(key), None, 5, reverse) for key in HOSTILE_KEYS for reverse in (False, True)),
        *(("scan", Span(), key, 50, reverse) for key in HOSTILE_KEYS for reverse in (False, True)),
        *(("list", key, None, False) for key in [*HOSTILE_KEYS, *REFUSED_KEYS]),
        ("commit", [(key, "current") for key in HOSTILE_KEYS], dict.fromkeys(HOSTILE_KEYS, "1")),
        ("commit", [(key, "ahead") for key in HOSTILE_KEYS], {"k": "1"}),
        *(("delete", key) for key in [*HOSTILE_KEYS, *REFUSED_KEYS]),
    ]
    runner.run(_compare(backends, Namespace(PROJECT, Domain.KV, Scope.PROJECT), every))


async def _compare(backends: dict[str, Backend], ns: Namespace, steps: list[tuple]) -> None:
    for step in steps:
        outcomes = await asyncio.gather(*(_outcome(backend, ns, step) for backend in backends.values()))
        assert all(outcome == outcomes[0] for outcome in outcomes), (step, dict(zip(backends, outcomes, strict=True)))
    last = [await _perform(backend, ns, ("scan", Span(), None, 1_000, False)) for backend in backends.values()]
    assert all(each == last[0] for each in last)


async def _outcome(backend: Backend, ns: Namespace, step: tuple) -> object:
    """What it gave, without the times, which no two backends share; or its error, whole."""
    try:
        return await _perform(backend, ns, step)
    except StepwellError as error:
        return json.dumps(error.to_dict(), sort_keys=True)


async def _perform(backend: Backend, ns: Namespace, step: tuple) -> object:
    kv = KeyValue(backend, ns, source=Source(PROJECT, "main", "run", "c"))
    match step:
        case "set", key, value:
            entry = await kv.set_value(key, value)
            assert await backend.text(ns, key) is not None
            return entry.key, entry.revision, entry.source, await backend.text(ns, key)
        case "delete", key:
            return await kv.delete_value(key)
        case "update", key, value:
            await kv.update_value(key, lambda _: value)
            return await backend.text(ns, key)
        case "get", key:
            entry = await kv.get_entry(key)
            return None if entry is None else (repr(entry.value), entry.revision, entry.source)
        case "lock", writes, fails:
            try:
                async with kv.lock(timeout=10) as tx:
                    for key, value in writes:
                        if value is None:
                            await tx.delete_value(key)
                        else:
                            await tx.set_value(key, value)
                    seen = [(entry.key, repr(entry.value), entry.revision) async for entry in tx.scan()]
                    if fails:
                        raise KeyError  # noqa: TRY301  (a failure of the caller's)
            except KeyError:
                return "rolled back", seen
            return seen
        case "commit", checks, writes:
            made = [Check(key, await _expected(backend, ns, key, what)) for key, what in checks]
            done = await backend.commit(ns, made, [Write(*item) for item in writes.items()])
            return done.revision, set(done.created), done.removed
        case "scan", span, after, limit, reverse:
            found = await backend.scan(ns, span, after=after, limit=limit, reverse=reverse)
            return [record._replace(created_at=0, updated_at=0) for record in found]
        case "list", prefix, after, reverse:
            listed = [entry async for entry in kv.scan(prefix, after=after, reverse=reverse)]
            return [(entry.key, repr(entry.value), entry.revision) for entry in listed]
        case "read", wanted:
            read = await backend.read(ns, wanted)
            return {key: record._replace(created_at=0, updated_at=0) for key, record in read.items()}
        case ("clear",):
            return await backend.clear(ns)
        case "stale lease", key:
            lease = await backend.lock(ns, timeout=10, holder=ME)
            await lease.release()
            await backend.commit(ns, (), [Write(key, "1")], lease=lease)
    raise AssertionError(step)


async def _expected(backend: Backend, ns: Namespace, key: str, what: str) -> int:
    record = (await backend.read(ns, [key])).get(key)
    revision = 0 if record is None else record.revision
    return {"current": revision, "absent": 0, "old": max(revision - 1, 0), "ahead": revision + 1}[what]
