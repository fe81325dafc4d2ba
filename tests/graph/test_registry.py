"""The registry: declarations that are wrong, types of other packages, values made to fit."""

import importlib.metadata

import pytest
from pydantic import BaseModel

from stepwell.errors import NodeTypeInvalid
from stepwell.graph.ports import Misfit, fit, fits
from stepwell.graph.registry import Registry, default_registry, node_type
from tests.graph.conftest import Need, Pass


def declared(**fields):
    """A node type with these inputs."""

    class Inputs(BaseModel):
        pass

    made = type("Inputs", (BaseModel,), fields | {"__module__": __name__})
    return node_type("x/made", title="Made")(
        type("Made", (), {"Inputs": made, "Outputs": Inputs, "run": lambda self, inputs, ctx: {}})
    )


def test_wrong_declarations_are_refused():
    from typing import Literal

    with pytest.raises(NodeTypeInvalid, match="category/name"):
        node_type("Upper", title="x")
    with pytest.raises(NodeTypeInvalid, match="needs"):
        Registry([int])
    with pytest.raises(NodeTypeInvalid, match="default of 'mode'"):
        Registry([declared(__annotations__={"mode": Literal["a", "b"]}, mode="c")])
    with pytest.raises(NodeTypeInvalid, match="reserved"):
        Registry([declared(__annotations__={"retries": int}, retries=1)])
    with pytest.raises(NodeTypeInvalid, match="two node types"):
        Registry([declared(), declared()])
    assert Registry([Pass]).with_types(Need).names() == ["t/need", "t/pass"]


def test_types_of_other_packages_are_found_and_broken_ones_are_named(monkeypatch):
    def entry(name, value):
        return importlib.metadata.EntryPoint(name, value, "stepwell.nodes")

    entries = [entry("good", "tests.graph.conftest:Pass"), entry("many", "tests.graph.conftest:TYPES"),
               entry("gone", "tests.graph.nowhere:X"), entry("wrong", "tests.graph.conftest:node_id")]  # fmt: skip
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: entries)
    default_registry.cache_clear()
    registry = default_registry()
    default_registry.cache_clear()
    assert {"t/pass", "t/need", "chat/input"} <= set(registry.names())
    assert [failure.partition(" ")[0] for failure in registry.failures] == ["gone", "wrong"]


@pytest.mark.parametrize(
    ("value", "port", "expected"),
    [
        (50.0, "integer", 50), ("50", "integer", 50), (" 50 ", "integer", 50), ("1e3", "number", 1000.0),
        ("9123372036854000123", "integer", 9123372036854000123), ({"a": 1}, "string", '{"a": 1}'), ('["x"]', "array", ["x"]),
        ('{"a": 1}', "object", {"a": 1}), ("hi", "agent_context", {"messages": [{"role": "user", "content": "hi"}]}),
        (None, "any", None), (0, "json", 0), (False, "boolean", False),
    ],
)  # fmt: skip
def test_values_change_form_where_nothing_is_lost(value, port, expected):
    fitted = fit(value, port)
    assert fitted == expected
    assert type(fitted) is type(expected)


@pytest.mark.parametrize(
    ("value", "port"),
    [
        (True, "integer"), (50.5, "integer"), ("x", "integer"), (None, "string"), (5, "string"), (True, "string"),
        ("true", "boolean"), (1, "boolean"), ("x", "array"), ([1], "object"), (float("inf"), "number"), ("NaN", "number"),
        (3, "agent_context"), ("", "number"),
    ],
)  # fmt: skip
def test_values_that_would_lose_something_do_not_fit(value, port):
    with pytest.raises(Misfit):
        fit(value, port)


def test_types_of_ports_fit_towards_text_and_json():
    for source, target in (("any", "integer"), ("integer", "any"), ("markdown", "text"), ("object", "string"),
                           ("array", "json"), ("integer", "number"), ("image", "file"), ("string", "agent_context"),
                           ("string", "object")):  # fmt: skip
        assert fits(source, target), (source, target)
    for source, target in (("integer", "string"), ("boolean", "number"), ("array", "object"), ("file", "image")):
        assert not fits(source, target), (source, target)
