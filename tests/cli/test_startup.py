"""Start-up costs what is imported: the light commands load none of the heavy parts."""

import sys

import pytest

from tests.cli.conftest import Program

HEAVY = ("pydantic", "fastapi", "httpx", "asyncio", "rich", "alembic", "importlib.metadata", "tomlkit", "platformdirs")

REPORT = """
import sys
try:
    {code}
finally:
    sys.stderr.write("LOADED " + " ".join(sys.modules))
"""


def loaded_by(program: Program, code: str) -> set[str]:
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", REPORT.format(code=code)], cwd=program.folder, capture_output=True, text=True, check=True
    )
    return set(done.stderr.rpartition("LOADED ")[2].split())


def command(*arguments: str) -> str:
    return f"sys.argv = ['stepwell', *{arguments!r}]; from stepwell.cli.main import main; assert main() == 0"


@pytest.mark.parametrize(
    ("code", "also"),
    [
        ("import stepwell", ("click", "typing", "json")),
        (command("--version"), ("click", "typing", "json")),
        (command("--help"), ("sqlite3",)),
        (command("kv", "get", "key"), ("click",)),
        (command("--project", ".", "kv", "get", "key", "--json"), ("click",)),
        (command("kv", "get", "key", "-v"), ()),
    ],
)
def test_light_commands_load_no_heavy_module(program: Program, code: str, also: tuple[str, ...]) -> None:
    assert program("kv", "set", "key", "1").code == 0
    loaded = loaded_by(program, code)
    assert "sys" in loaded
    heavy = HEAVY if "-v" not in code else tuple(name for name in HEAVY if name != "asyncio")
    assert not loaded.intersection({*heavy, *also})


def test_a_local_run_loads_nothing_of_servers_and_models(program: Program) -> None:
    loaded = loaded_by(program, command("run", ".", "-q"))
    assert "stepwell.runtime.runner" in loaded
    assert not loaded.intersection({"httpx", "fastapi", "uvicorn", "psycopg", "alembic", "pydantic_ai", "genai_prices"})


def test_the_quick_answer_is_the_same_as_the_long_one(program: Program) -> None:
    """`-v` is not known to the quick way, so the second call goes through the whole command line."""
    for key, value in (("plain", '{"b": [1, 1.0, null], "a": "\\u0000 é 😀"}'), ("-k=v", "-5"), ("键", '""')):
        assert program("kv", "set", "--", key, value).code == 0
    assert program("kv", "set", "plain", "3", "--conversation-id", "c 1").code == 0
    for arguments in (
        ("plain",), ("plain", "--json"), ("键", "--json"), ("plain", "--conversation-id", "c 1"),
        ("plain", "--conversation-id=c 1", "--json"), ("plain", "--domain", "persistent_value"), ("missing",),
        ("plain", "--domain", "nope"), ("plain", "--conversation-id", ""), ("x" * 1025,), ("plain", "more"),
        ("--project", "/nowhere", "plain"), ("--", "-k=v"), (), ("plain", "--project"),
    ):  # fmt: skip
        quick, long = program("kv", "get", *arguments), program("-v", "kv", "get", *arguments)
        assert quick == long, arguments
    assert program("kv", "get", "--", "-k=v").out == "-5\n"
