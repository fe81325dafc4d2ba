"""`stepwell workflows` as somebody new to it uses it, mistakes included."""

import json
from pathlib import Path

from tests.cli.conftest import Cli

NODES = [{"key": "text", "nodeType": "io/input_text"}, {"key": "show", "nodeType": "utils/preview"}]
EDGES = [{"sourceKey": "text", "sourcePort": "length", "targetKey": "show", "targetPort": "data"}]
DRAFT = {"name": "Count", "nodes": NODES, "edges": EDGES}


def test_a_draft_with_keys_is_checked_imported_and_run(cli: Cli, project: Path) -> None:
    Path("draft.json").write_text(json.dumps(DRAFT))
    assert cli("workflows", "validate", "--file", "draft.json").out == "valid\n"
    wrong = DRAFT | {"edges": [EDGES[0] | {"targetPort": "dat"}]}
    Path("wrong.json").write_text(json.dumps(wrong))
    told = cli("workflows", "validate", "--file", "wrong.json")
    assert told.code == 2
    assert 'edges[0].targetPort: utils/preview has no input "dat"' in told.out
    assert cli("workflows", "import", "count", "draft.json").out.startswith("created workflows/count/workflow.json")
    report = cli("workflows", "run", "count", "one", "--json").json
    assert report["output"]["outputs"]["show"]["original_data"] == 3
    assert cli("workflows", "executions", "count", "--json").json["total"] == 1


def test_a_list_that_goes_on_says_so(cli: Cli, project: Path) -> None:
    Path("draft.json").write_text(json.dumps(DRAFT))
    for key in ("one", "two", "three"):
        cli("workflows", "import", key, "draft.json")
    told = cli("workflows", "list", "--limit", "2")
    assert (len(told.out.splitlines()), told.err) == (2, "more: --offset 2\n")
    assert cli("workflows", "list", "--limit", "2", "--json").json["next_cursor"] == "2"
    rest = cli("workflows", "list", "--limit", "2", "--offset", "2", "--json").json
    assert (len(rest["items"]), rest["next_cursor"]) == (1, None)


def test_mistakes_are_told_before_anything_runs(cli: Cli, project: Path) -> None:
    Path("draft.json").write_text(json.dumps(DRAFT))
    cli("workflows", "import", "count", "draft.json")
    for setting, part in (("txt.text=x", 'did you mean "text"?'), ("text.txt=x", "did you mean text?")):
        told = cli("workflows", "run", "count", "--set", setting)
        assert (told.code, part in told.err) == (2, True), told
    none = cli("workflows", "executions", "count")
    assert (none.code, none.out, none.err) == (0, "", "there is none\n")
    for arguments in ((), ("count", "--file", "draft.json")):
        told = cli("workflows", "validate", *arguments)
        assert (told.code, "give WORKFLOW or --file" in told.err) == (2, True)
    for more in ((), ("--json",)):
        assert cli("workflows", "trace", "nothing", *more).code == 3
