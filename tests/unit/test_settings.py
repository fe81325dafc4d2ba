"""Settings: which source wins, where a value came from, and what is refused."""

import itertools
from pathlib import Path

import pytest

from stepwell.errors import InvalidArgument
from stepwell.settings import NAMES, load_settings, unknown_settings, unknown_variables

SOURCES = ("flag", "env", "project", "user")


def user_file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("given", [s for n in range(1, 5) for s in itertools.combinations(SOURCES, n)])
def test_the_first_source_that_says_something_wins(tmp_path: Path, given: tuple[str, ...]) -> None:
    folder = {source: str(tmp_path / source) for source in SOURCES}
    settings = load_settings(
        {"home": folder["flag"]} if "flag" in given else None,
        environ={"STEPWELL_HOME": folder["env"]} if "env" in given else {},
        project={"home": folder["project"]} if "project" in given else None,
        user_file=user_file(tmp_path, f'home = "{folder["user"]}"' if "user" in given else ""),
    )
    assert settings.home == folder[given[0]]
    origin = settings.all()[0].origin
    assert origin.split()[0] == given[0]
    assert settings.kv_dir == str(Path(folder[given[0]], "kv"))
    assert settings.persistent_value_dir != settings.kv_dir


@pytest.mark.parametrize("variable", ["STEPWELL_SERVER_URL", "STEPWELL_SERVER__URL"])
def test_both_forms_of_an_environment_variable(variable: str) -> None:
    settings = load_settings(environ={variable: "https://example.org"}, user_file="/nonexistent")
    assert settings.server_url == "https://example.org"
    assert f"env {variable}" in [setting.origin for setting in settings.all()]


@pytest.mark.parametrize("text", ['server-url = "http://a"', 'server_url = "http://a"', '[server]\nurl = "http://a"'])
def test_the_forms_of_a_name_in_toml(tmp_path: Path, text: str) -> None:
    assert load_settings(environ={}, user_file=user_file(tmp_path, text)).server_url == "http://a"


def test_defaults_follow_the_platform_folders(tmp_path: Path) -> None:
    settings = load_settings(environ={"XDG_DATA_HOME": str(tmp_path)}, user_file="/nonexistent")
    assert Path(settings.home).name == "stepwell"
    assert {setting.origin for setting in settings.all()} == {"default"}
    assert [setting.name for setting in settings.all()] == list(NAMES)
    relative = load_settings(environ={"XDG_DATA_HOME": "relative"}, user_file="/nonexistent")
    assert Path(relative.home).is_absolute()


@pytest.mark.parametrize("variable", ["STEPWELL_HOME", "STEPWELL_KV_STORE_DIR", "STEPWELL_PERSISTENT_VALUE_STORE_DIR"])
@pytest.mark.parametrize("value", ["", "  ", "relative", "./x", "~nobody-of-that-name/x", "a\x00b"])
def test_a_folder_that_is_none_is_refused_by_name(variable: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=variable) as caught:
        load_settings(environ={variable: value}, user_file="/nonexistent")
    assert caught.value.hint


def test_a_file_where_a_folder_is_needed(tmp_path: Path) -> None:
    for path in (tmp_path / "file", tmp_path / "dangling"):
        path.write_text("") if path.name == "file" else path.symlink_to(tmp_path / "nowhere")
        with pytest.raises(InvalidArgument, match="no folder"):
            load_settings(environ={"STEPWELL_HOME": str(path)}, user_file="/nonexistent")


def test_relative_folders_by_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings({"home": "data"}, environ={}).home == str(tmp_path / "data")
    project = {"home": ".stepwell"}
    assert load_settings(environ={}, project=project, project_folder="/srv/p").home == "/srv/p/.stepwell"
    with pytest.raises(InvalidArgument, match="relative"):
        load_settings(environ={}, user_file=user_file(tmp_path, 'home = "data"'))


def test_the_home_sign_is_the_users_folder() -> None:
    assert load_settings(environ={"STEPWELL_HOME": "~/data"}).home == str(Path.home() / "data")


@pytest.mark.parametrize("value", ["localhost:8000", "ftp://x", "javascript:alert(1)", ""])
def test_a_server_address_is_http(value: str) -> None:
    with pytest.raises(InvalidArgument, match="STEPWELL_SERVER_URL"):
        load_settings(environ={"STEPWELL_SERVER_URL": value}, user_file="/nonexistent")


@pytest.mark.parametrize(
    "text", ["home = ", "home = 3", "home = ['x']", "\x00", 'hom = "/x"', "[server]\nurll = 'x'", "x=" + "[" * 5000]
)
def test_a_user_file_that_is_wrong_is_named(tmp_path: Path, text: str) -> None:
    path = user_file(tmp_path, text)
    with pytest.raises(InvalidArgument, match="config.toml"):
        load_settings(environ={}, user_file=path)


def test_a_user_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b'home = "/\xe9"')
    for path in (tmp_path / "latin", tmp_path):
        with pytest.raises(InvalidArgument, match="cannot be read"):
            load_settings(environ={}, user_file=str(path))


def test_a_secret_is_never_shown() -> None:
    settings = load_settings(environ={"STEPWELL_SERVER_KEY": "canary"}, user_file="/nonexistent")
    assert settings.server_key == "canary"
    assert "canary" not in repr([(setting.name, setting.shown, setting.origin) for setting in settings.all()])
    with pytest.raises(InvalidArgument) as caught:
        load_settings(environ={"STEPWELL_SERVER_KEY": "canary\x00"}, user_file="/nonexistent")
    assert "canary" not in caught.value.message


def test_misspelt_names_are_told_with_a_guess() -> None:
    assert unknown_settings({"hoem": "/x", "server": {"url": "http://a", "kye": "x"}}) == [
        "hoem: unknown setting; did you mean home?",
        "server.kye: unknown setting; did you mean server-key?",
    ]
    assert "secret" in unknown_settings({"server-key": "x"}, manifest=True)[0]
    (problem,) = unknown_variables(
        {"STEPWELL_HOEM": "x", "STEPWELL_HOME": "x", "PATH": "x", "STEPWELL_SERVER__URL": ""}
    )
    assert problem.endswith("did you mean STEPWELL_HOME?")
