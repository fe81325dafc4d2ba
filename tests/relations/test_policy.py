"""Who may do what: the decision by itself, without files."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import InvalidArgument, RelationDenied, RelationPending, RelationUnknown
from stepwell.storage.relations import (
    NEW_GRANT,
    Asked,
    Need,
    Rule,
    allowed_entrypoints,
    check_alias,
    decide,
    relation_problems,
)
from tests.relations.conftest import ALL, IDS, declared, parsed, rule

A = parsed(declared("stock", "b", write=ALL))


def ask(grant: dict[str, Any], *asked: tuple[Need, str]) -> str:
    """Decide an access of `a` to `b`, which calls it by another alias."""
    back = parsed(declared("shop", "a", **grant))
    return decide("stock", IDS["a"], A, back, [Asked(*one) for one in asked]).project_id


NEEDS = {
    Need.READ: lambda given: {"read": given},
    Need.WRITE: lambda given: {"write": given},
    Need.KNOWLEDGE_READ: lambda given: {"knowledge": {"read": given}},
    Need.KNOWLEDGE_WRITE: lambda given: {"knowledge": {"write": given}},
    Need.ENTRYPOINTS: lambda given: {"entrypoints": given},
}


@pytest.mark.parametrize("need", NEEDS)
def test_each_right_opens_itself_and_no_other(need: Need):
    grant = NEEDS[need](ALL)
    assert ask(grant, (need, "any")) == IDS["b"]
    for other in set(NEEDS) - {need}:
        with pytest.raises(RelationDenied) as denied:
            ask(grant, (other, "any"))
        assert denied.value.data == {"alias": "stock", "key": "any", "grant": other.value}
        for part in ("stock", "any", other.value):
            assert part in denied.value.message


@pytest.mark.parametrize("need", NEEDS)
def test_none_and_what_is_left_out_are_the_same(need: Need):
    for grant in ({}, NEEDS[need]({"mode": "none"})):
        with pytest.raises(RelationDenied):
            ask(grant, (need, "any"))


def test_everything_asked_for_has_to_be_granted():
    both = [(Need.READ, "k"), (Need.WRITE, "k")]
    for grant in ({"read": ALL}, {"write": ALL}):
        with pytest.raises(RelationDenied):
            ask(grant, *both)
    assert ask({"read": ALL, "write": ALL}, *both) == IDS["b"]


@pytest.mark.parametrize(
    ("key", "is_open"),
    [
        ("stock:", True), ("stock:1", True), ("stock", False), ("Stock:1", False), ("STOCK:1", False),
        (" stock:1", False), ("%", False), ("a_c", False), ("axc", False), ("a%c", True), ("a%cd", True), ("e\u0301", False),
        ("\u00e9t", True),
    ],
)  # fmt: skip
def test_prefixes_are_literal_and_exact(key: str, is_open: bool):
    grant = {"read": rule("stock:", "a%c", "\u00e9")}
    if is_open:
        assert ask(grant, (Need.READ, key)) == IDS["b"]
    else:
        with pytest.raises(RelationDenied):
            ask(grant, (Need.READ, key))


@given(st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=32, unique=True), st.text(max_size=8))
def test_a_prefix_rule_is_startswith(prefixes: list[str], key: str):
    assert Rule("prefixes", tuple(prefixes)).allows(key) == any(key[: len(prefix)] == prefix for prefix in prefixes)


def test_the_callers_own_grant_opens_nothing_for_it():
    back = parsed(declared("shop", "a"))
    mine = parsed(declared("stock", "b", read=ALL, write=ALL))
    with pytest.raises(RelationDenied):
        decide("stock", IDS["a"], mine, back, [Asked(Need.READ, "k")])


def test_one_side_alone_is_pending():
    for theirs in ((), None, parsed(declared("stock", "c", read=ALL))):
        with pytest.raises(RelationPending, match="pending") as pending:
            decide("stock", IDS["a"], A, theirs, [Asked(Need.READ, "k")])
        assert IDS["a"] in (pending.value.hint or "")


def test_an_alias_is_the_callers_own():
    theirs = parsed(declared("shop", "a", read=ALL))
    for alias in ("shop", "b", IDS["b"], "Stock", ""):
        with pytest.raises(RelationUnknown):
            decide(alias, IDS["a"], A, theirs, [])


def test_relations_come_back_as_they_were_declared():
    table = declared(
        "stock", "b", read=ALL, write=rule("a", "b"), knowledge={"read": {"mode": "none"}}, entrypoints=ALL
    )
    (relation,) = parsed(table)
    assert relation.to_dict() == table
    assert relation_problems([relation.to_dict()], IDS["a"]) == []


def test_a_new_relation_may_read_and_not_write():
    assert NEW_GRANT.to_dict() == {"read": {"mode": "all"}, "write": {"mode": "none"}}


def test_entrypoints_are_granted_by_their_ids():
    (relation,) = parsed(declared("shop", "a", entrypoints=rule("sto")))
    assert allowed_entrypoints(relation.grant, ["get", "store", "Store", "stock"]) == ["store", "stock"]


@pytest.mark.parametrize("alias", ["", "A", "1a", "a" * 65, "a b", "a\n", "é", None, 3, "-a"])
def test_what_is_no_alias(alias: Any):
    with pytest.raises(InvalidArgument):
        check_alias(alias)
    assert relation_problems([declared(alias, "b")], IDS["a"])


def test_limits_of_a_declaration():
    assert relation_problems([declared("a" * 64, "b", read=rule(*[str(n) for n in range(32)]))], IDS["a"]) == []
    for wrong in (rule(), rule(""), rule("a", "a"), rule(*[str(n) for n in range(33)]), {"mode": "some"}, "all"):
        assert relation_problems([declared("x", "b", read=wrong)], IDS["a"]), wrong
    many = [{"alias": f"p{n}", "project-id": f"01936d3f-6a00-7000-8000-0000000001{n:02x}"} for n in range(33)]
    assert relation_problems(many[:32], IDS["a"]) == []
    assert "at most 32" in relation_problems(many, IDS["a"])[0]
    assert "itself" in relation_problems([declared("me", "a")], IDS["a"])[0]
    assert "twice" in relation_problems([declared("x", "b"), declared("x", "c")], IDS["a"])[0]
    assert "twice" in relation_problems([declared("x", "b"), declared("y", "b")], IDS["a"])[0]
