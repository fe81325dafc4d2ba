"""`@tool`: schemas from annotations, checked arguments, refused declarations."""

from datetime import date
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from stepwell import Context
from stepwell.errors import ToolArgumentsInvalid, ToolInvalid
from stepwell.tools.declaration import tool, tool_of


class Place(BaseModel):
    city: str
    country: str = "CH"


@tool(mode="manual", approval_timeout=60)
def book(
    place: Place, day: date, kind: Literal["hotel", "flat"], nights: Annotated[int, Field(ge=1)] = 1, *, ctx: Context
) -> str:
    """Book a room."""
    return f"{place.city} {day} {kind} {nights}"


def test_the_schema_is_made_from_the_annotations_and_hides_the_context():
    schema = book.schema
    assert list(schema["properties"]) == ["place", "day", "kind", "nights"]
    assert schema["required"] == ["place", "day", "kind"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["kind"]["enum"] == ["hotel", "flat"]
    assert schema["properties"]["nights"]["minimum"] == 1
    assert "$defs" in schema
    assert (book.name, book.description, book.mode, book.context_parameter) == ("book", "Book a room.", "manual", "ctx")


def test_checked_arguments_are_of_the_annotated_types_and_every_problem_is_named():
    checked = book.checked({"place": {"city": "Bern"}, "day": "2026-01-02", "kind": "flat"})
    assert checked == {"place": Place(city="Bern"), "day": date(2026, 1, 2), "kind": "flat"}
    with pytest.raises(ToolArgumentsInvalid) as refused:
        book.checked({"place": {}, "day": "soon", "kind": "tent", "nights": 0, "extra": 1})
    assert {problem.partition(":")[0] for problem in refused.value.data["problems"]} == {
        "place.city", "day", "kind", "nights", "extra"
    }  # fmt: skip
    for wrong in ("text", None, ["list"]):
        with pytest.raises(ToolArgumentsInvalid, match="no JSON object"):
            book.checked(wrong)


def test_parameters_may_have_names_that_pydantic_keeps_for_itself():
    @tool
    def odd(schema: str, model_config: int, copy: bool = False) -> None: ...

    assert list(odd.schema["properties"]) == ["schema", "model_config", "copy"]
    assert odd.checked({"schema": "s", "model_config": 1}) == {"schema": "s", "model_config": 1}


def print_nothing(x: int) -> None:
    """Do nothing."""


def test_wrong_declarations_are_refused():
    for options, word in (
        ({"name": "has space"}, "letters"), ({"mode": "sometimes"}, "mode"), ({"approval_timeout": 0}, "seconds"),
        ({"timeout": "1"}, "seconds"),
    ):  # fmt: skip
        with pytest.raises(ToolInvalid, match=word):
            tool(**options)(print_nothing)
    with pytest.raises(ToolInvalid, match="cannot be given by name"):

        @tool
        def many(*args: int) -> None: ...

    with pytest.raises(ToolInvalid, match="is a function"):
        tool_of(3)
