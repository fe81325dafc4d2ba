"""Shared by all tests: data never goes to the user's own folders."""

import os
from pathlib import Path

import pytest

for name in list(os.environ):
    if name.startswith("STEPWELL_") and name != "STEPWELL_TESTKIT":
        del os.environ[name]


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has its own data folder."""
    monkeypatch.setenv("STEPWELL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
