"""Whatever TOML a manifest holds, it is either a manifest or a list of problems."""

from pathlib import Path
from typing import Any

import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell.errors import ManifestInvalid
from stepwell.project.manifest import load_manifest

WORDS = st.sampled_from(
    "project-id executor name data-storage scope-model settings providers related-projects alias grant read write "
    "knowledge entrypoints mode prefixes all none local both home server url a:b 6f1c8a3e-0000-4000-8000-000000000001".split()
)
TEXT = WORDS | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LEAVES = TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.dates()
TABLES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=20
)


@given(table=st.dictionaries(TEXT, TABLES, max_size=8))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_table(tmp_path: Path, table: dict[str, Any]) -> None:
    (tmp_path / "stepwell.toml").write_text(tomlkit.dumps(table), encoding="utf-8")
    try:
        manifest = load_manifest(str(tmp_path))
    except ManifestInvalid as error:
        problems = error.data["problems"]
    else:
        problems = None
        assert manifest.project_id
        assert ":" in manifest.executor
    assert problems is None or (problems and all(problem.isprintable() for problem in problems))
