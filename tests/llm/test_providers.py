"""Providers: what the manifest, the environment and a keyring say, and errors that name the missing setting."""

import sys
from types import SimpleNamespace

import pytest

from stepwell.errors import ManifestInvalid, ProviderInvalid
from stepwell.llm.answer import parsed_arguments
from stepwell.llm.pool import ModelPool
from stepwell.llm.prices import cost_of
from stepwell.llm.providers import api_key, is_provider_variable, provider_names, provider_problems, provider_spec
from stepwell.project.manifest import load_manifest
from stepwell.redaction import MASK, Redactor

MAIN = {"main": {"type": "anthropic", "model": "m", "settings": {"max-tokens": 5}}}


def test_the_environment_sets_and_replaces_fields():
    environ = {
        "STEPWELL_PROVIDERS__MAIN__MODEL": "other", "STEPWELL_PROVIDERS__MAIN__MAX_RETRIES": "7",
        "STEPWELL_PROVIDERS__EXTRA__TYPE": "test", "STEPWELL_PROVIDERS__MAIN__TIMEOUT": "1.5",
    }  # fmt: skip
    assert provider_names(MAIN, environ) == ["main", "extra"]
    spec = provider_spec("main", MAIN, environ)
    assert (spec.type, spec.model, spec.max_retries, spec.timeout) == ("anthropic", "other", 7, 1.5)
    assert spec.settings == (("max_tokens", 5),)
    assert provider_spec("extra", MAIN, environ).type == "test"
    assert is_provider_variable("STEPWELL_PROVIDERS__MAIN__API_KEY")
    assert not is_provider_variable("STEPWELL_PROVIDERS__MAIN__MODLE")


def test_a_provider_is_found_by_name_as_the_only_one_as_the_default_and_with_another_model():
    assert provider_spec(None, MAIN, {}).name == "main"
    two = MAIN | {"default": {"type": "test"}}
    assert provider_spec(None, two, {}).name == "default"
    named = provider_spec("main:bigger", two, {})
    assert (named.name, named.type, named.model) == ("main", "anthropic", "bigger")
    assert provider_spec("openai:gpt-5", {}, {})[:3] == ("openai", "openai", "gpt-5")


@pytest.mark.parametrize(
    ("name", "providers", "words"),
    [
        (None, {}, ("no model provider", "[tool.stepwell.providers.default]")),
        (None, {"a": {"type": "test"}, "b": {"type": "test"}}, ("none is called 'default'", "ctx.llm('a')")),
        ("mian", MAIN, ("no model provider 'mian'", "did you mean 'main'")),
        ("x", {"x": {"model": "m"}}, ("has no type", "set type in [tool.stepwell.providers.x]")),
        ("x", {"x": {"type": "openai"}}, ("has no model", "STEPWELL_PROVIDERS__X__MODEL")),
        ("x", {"x": {"type": "openai-compatible", "model": "m"}}, ("has no base-url", "…")),
        ("nonsense:m", {}, ("'nonsense' is not one of", "…")),
    ],
)
def test_what_is_missing_is_named(name, providers, words):
    with pytest.raises(ProviderInvalid) as refused:
        provider_spec(name, providers, {})
    assert words[0] in refused.value.message
    assert words[1] == "…" or words[1] in refused.value.hint


def test_a_key_comes_from_its_variable_or_a_keyring_and_is_named_where_it_is_missing(monkeypatch):
    spec = provider_spec("main", MAIN, {})
    with pytest.raises(ProviderInvalid, match="has no API key") as refused:
        api_key(spec, {"ANTHROPIC_API_KEY": "  "})
    assert refused.value.hint == "set ANTHROPIC_API_KEY in the environment"
    assert api_key(spec, {"ANTHROPIC_API_KEY": "vendor"}) == "vendor"
    environ = {"ANTHROPIC_API_KEY": "vendor", "STEPWELL_PROVIDERS__MAIN__API_KEY": "own"}
    assert api_key(spec, environ) == "own"
    assert api_key(spec._replace(api_key_env="MINE"), {"MINE": "mine", "ANTHROPIC_API_KEY": "vendor"}) == "mine"
    with pytest.raises(ProviderInvalid):
        api_key(spec._replace(api_key_env="MINE"), {"ANTHROPIC_API_KEY": "vendor"})
    ring = spec._replace(api_key_keyring="stepwell/me")
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ProviderInvalid, match="has no API key") as refused:
        api_key(ring, {})
    assert "`keyring`" in refused.value.hint
    kept = {("stepwell", "me"): "from the ring"}
    monkeypatch.setitem(sys.modules, "keyring", SimpleNamespace(get_password=lambda *place: kept.get(place)))
    assert api_key(ring, {}) == "from the ring"
    with pytest.raises(ProviderInvalid, match="has no API key"):
        api_key(ring._replace(api_key_keyring="other/me"), {})
    local = provider_spec("x", {"x": {"type": "openai-compatible", "model": "m", "base-url": "http://h"}}, {})
    assert api_key(local, {"OPENAI_API_KEY": "never sent elsewhere"}) is None


def test_every_problem_of_the_table_is_told_at_once_and_keys_are_refused(tmp_path):
    wrong = {
        "1x": {}, "text": "no table",
        "a": {"type": "openia", "api-key": "sk-123", "modle": "m", "timeout": 0, "max-retries": True,
              "base-url": "ftp://x", "settings": {"temprature": 1}},
    }  # fmt: skip
    problems = provider_problems(wrong)
    assert len(problems) == 9
    assert "sk-123" not in str(problems)
    for word in ("did you mean model", "did you mean temperature", "api-key-env", "not a table", "seconds over 0"):
        assert any(word in problem for problem in problems), word
    (tmp_path / "stepwell.toml").write_text(
        'project-id = "01936d3f-6a00-7000-8000-0000000000aa"\nexecutor = "a:b"\n[providers.x]\nkey = "secret-value"\n'
    )
    with pytest.raises(ManifestInvalid, match=r"providers\.x\.key: a key does not belong") as refused:
        load_manifest(str(tmp_path))
    assert "secret-value" not in str(refused.value)


async def test_a_key_is_masked_before_it_is_used_and_a_new_one_makes_a_new_model():
    redactor = Redactor()
    pool = ModelPool(redactor)
    spec = provider_spec("main", MAIN, {})
    first = await pool.model(spec, {"ANTHROPIC_API_KEY": "first-secret-key"})
    assert redactor.text("x first-secret-key x") == f"x {MASK} x"
    assert await pool.model(spec, {"ANTHROPIC_API_KEY": "first-secret-key"}) is first
    assert await pool.model(spec, {"ANTHROPIC_API_KEY": "second-secret-key"}) is not first
    await pool.close()


def test_costs_are_known_for_the_vendors_own_models_only():
    from pydantic_ai.usage import RequestUsage

    usage = RequestUsage(input_tokens=1_000_000, output_tokens=0)
    assert cost_of(usage, "gpt-4o", "openai", "https://api.openai.com/v1/") == pytest.approx(2.5)
    assert cost_of(usage, "claude-sonnet-4-5", "anthropic", "https://api.anthropic.com") > 0
    assert cost_of(usage, "gpt-4o", "openai", "http://127.0.0.1:8000/v1") is None
    assert cost_of(usage, "never-heard-of", "openai", "https://api.openai.com/v1/") is None
    assert cost_of(usage, "test", None, None) is None


@pytest.mark.parametrize(
    ("given", "read"),
    [('{"a": 1}', {"a": 1}), ({"a": 1}, {"a": 1}), ("", {}), (None, {}), ("[1]", "[1]"), ("{broken", "{broken")],
)
def test_arguments_are_an_object_or_the_text_they_were(given, read):
    assert parsed_arguments(given) == read
