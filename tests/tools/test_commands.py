"""`stepwell tools`, `approvals` and `usage` print what their schemas say, and keep what was set and counted."""

import sqlite3
from pathlib import Path

import pytest

from stepwell.cli.schemas import SCHEMAS
from tests.cli.conftest import Cli, cli, project  # noqa: F401
from tests.cli.schema_check import misfits

CODE = '''
from stepwell import Context, Entrypoint, Executor, TokenReport, TokenUsage, tool, workflow

@tool(mode="manual", approval_timeout=3600)
def remove(name: str) -> str:
    """Remove something."""
    return f"removed {name}"

@workflow
async def main(data: dict, ctx: Context) -> str:
    for model, cost in (("m1", 0.25), ("m1", 0.5), ("m2", None)):
        await ctx.token_usage.report(TokenReport(
            input_tokens=10, output_tokens=1, provider_name="p", model_id=model, cost_usd=cost))
    return await ctx.tools.call("remove", name="x")

executor = Executor(tools=[remove], entrypoints=[Entrypoint("main", main, token_usage=TokenUsage(enabled=True))])
'''


@pytest.fixture
def ready(cli: Cli, project: Path) -> Cli:  # noqa: F811
    """A project whose run waits, with usage reported."""
    (project / "demo.py").write_text(CODE)
    assert cli("run", ".", "--conversation-id", "c1", "--json").code == 7
    return cli


def test_usage_by_day_model_and_conversation(ready: Cli) -> None:
    total = ready("usage", "--json").json
    assert misfits(SCHEMAS["usage"], total) == []
    assert (total["tokens"]["total"], total["cost_usd"], total["unpriced_calls"]) == (33, 0.75, 1)
    assert "cost $0.7500+" in ready("usage").out
    own = ready("usage", "--conversation-id", "c1", "--json").json
    assert (own["tokens"], own["cost_usd"], own["unpriced_calls"]) == (total["tokens"], 0.75, 1)
    by = {kind: ready("usage", "--by", kind, "--json").json for kind in ("day", "model", "conversation")}
    assert [misfits(SCHEMAS["usage_by"], page) for page in by.values()] == [[], [], []]
    assert [(part["name"], part["tokens"]["calls"], part["cost_usd"]) for part in by["model"]["items"]] == [
        ("p/m1", 2, 0.75), ("p/m2", 1, None)
    ]  # fmt: skip
    (day,) = by["day"]["items"]
    assert day["tokens"] == total["tokens"]
    assert [part["name"] for part in by["conversation"]["items"]] == ["c1"]
    assert ready("usage", "--by", "day", "--until", "2020-01-01", "--json").json["items"] == []
    assert ready("usage", "--by", "day", "--since", day["name"], "--json").json["items"] == [day]
    for wrong in (
        ("--since", "2026-01-01"),
        ("--by", "day", "--since", "x"),
        ("--by", "day", "--conversation-id", "c"),
    ):
        assert ready("usage", *wrong).code == 2


def test_tools_and_approvals_fit_their_schemas(ready: Cli) -> None:
    assert misfits(SCHEMAS["tools"], ready("tools", "list", "--json").json) == []
    assert misfits(SCHEMAS["tool_mode"], ready("tools", "set", "remove", "disabled", "--json").json) == []
    (tool,) = ready("tools", "list", "--json").json["items"]
    assert (tool["mode"], tool["default_mode"]) == ("disabled", "manual")
    assert ready("tools", "set", "remove", "default").out == "remove: manual\n"
    wrong = ready("tools", "set", "remov", "auto", "--json")
    assert (wrong.code, "did you mean remove" in wrong.error["hint"]) == (3, True)
    page = ready("approvals", "list", "--json").json
    assert misfits(SCHEMAS["approvals"], page) == []
    (request,) = page["items"]
    assert misfits(SCHEMAS["approval"], ready("approvals", "show", request["id"], "--json").json) == []
    answered = ready("approvals", "deny", request["id"], "--no-resume", "--reason", "no", "--json")
    assert misfits(SCHEMAS["approval"], answered.json) == []
    assert ready("runs", "show", request["run_id"], "--json").json["status"] == "waiting_input"
    assert "it was answered: `stepwell runs resume" in ready("runs", "show", request["run_id"]).out
    assert ready("runs", "resume", request["run_id"], "--json").json["error"]["code"] == "tool_denied"
    assert ready("approvals", "list", "--json").json["items"] == []
    assert ready("approvals", "list", "--status", "denied", "--json").json["items"][0]["reason"] == "no"
    assert ready("approvals", "approve", "nothing", "--json").error["code"] == "approval_not_found"


def expire(home: Path) -> None:
    """Let the time of every request for approval be over."""
    (journal,) = (home / "journal").glob("*.sqlite")
    with sqlite3.connect(journal) as database:
        database.execute("UPDATE approval SET expires_at = 1 WHERE status = 'pending'")
    database.close()


def test_a_request_that_nobody_answered_in_time_says_how_to_go_on(ready: Cli, tmp_path: Path) -> None:
    (request,) = ready("approvals", "list", "--json").json["items"]
    run_id = request["run_id"]
    assert f"it waits for a person: `stepwell approvals list --run {run_id}`" in ready("runs", "show", run_id).out
    expire(tmp_path / "home")
    said = f"nobody answered in time: `stepwell runs resume {run_id}` goes on as after a denial"
    listed = ready("approvals", "list")
    assert (listed.out, said in listed.err) == ("", True)
    shown = ready("approvals", "show", request["id"]).out
    assert ("remove, expired" in shown, said in shown) == (True, True)
    assert said in ready("runs", "show", run_id).out
    late = ready("approvals", "approve", request["id"], "--json")
    assert (late.code, late.error["code"], late.error["hint"]) == (4, "approval_conflict", said)
    resumed = ready("runs", "resume", run_id, "--json").json
    assert (resumed["status"], resumed["error"]["reason"]) == ("failed", "nobody answered in time")
    assert said not in ready("approvals", "list").err
    assert said not in ready("approvals", "show", request["id"]).out


def test_doctor_says_what_a_provider_is_missing(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    with (project / "pyproject.toml").open("a") as file:
        file.write('\n[tool.stepwell.providers.main]\ntype = "anthropic"\nmodel = "m"\n')
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("STEPWELL_PROVIDERS__MAIN__MODLE", "x")

    def findings() -> dict[str, tuple[str, str]]:
        return {one["check"]: (one["level"], one["fix"]) for one in cli("doctor", "--json").json["findings"]}

    found = findings()
    assert found["provider main"] == ("warning", "set ANTHROPIC_API_KEY in the environment")
    assert found["environment"][0] == "warning"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-secret-key")
    assert findings()["provider main"][0] == "ok"
