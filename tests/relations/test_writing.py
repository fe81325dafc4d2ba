"""Writing relations into manifests: the relation comes or goes, and everything else stays as it was."""

import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell.errors import Conflict, InvalidArgument, ManifestInvalid, RelationUnknown
from stepwell.project.manifest import load_manifest
from stepwell.project.relations import adding, alias_for, relations_of, removing, removing_back
from stepwell.storage.relations import NEW_GRANT, Grant, Need, Relation, Rule
from tests.relations.conftest import IDS

HEAD = f"""# The project's own words.
[project]
name   =  "odd"     # spaces stay
version = "1"

[tool.stepwell]
project-id = "{IDS["a"]}"
executor = "x:y"
"""
TAIL = '\n[tool.other]\n# kept\nlines = """\n[[tool.stepwell.related-projects]] in a text\n"""\n'
B = Relation("stock", IDS["b"], NEW_GRANT)
C = Relation("far", IDS["c"], Grant({Need.KNOWLEDGE_READ: Rule("prefixes", ("x",)), Need.ENTRYPOINTS: Rule("all")}))


def write(folder: Path, text: str, name: str = "pyproject.toml") -> Path:
    """A manifest; no line ends are changed."""
    (folder / name).write_bytes(text.encode())
    return folder / name


def add(folder: Path, relation: Relation) -> None:
    change = adding(str(folder), relation)
    assert change is not None
    change.write()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("text", [HEAD, HEAD + TAIL, HEAD.rstrip("\n")])
def test_adding_and_removing_leave_the_rest_as_it_was(tmp_path: Path, text: str, end: str):
    text = text.replace("\n", end)
    file = write(tmp_path, text)
    file.chmod(0o640)
    for relation in (B, C):
        add(tmp_path, relation)
    assert relations_of(load_manifest(str(tmp_path))) == (B, C)
    assert file.read_bytes().decode().startswith(text)
    assert (b"\r\n" in file.read_bytes()) == (end == "\r\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    removing(str(tmp_path), "stock").write()
    assert relations_of(load_manifest(str(tmp_path))) == (C,)
    removing_back(str(tmp_path), IDS["c"]).write()
    assert file.read_bytes().decode().rstrip() == text.rstrip()
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_stepwell_toml_and_a_link_to_it(tmp_path: Path):
    real = tmp_path / "real"
    real.mkdir()
    write(real, f'project-id = "{IDS["a"]}"\nexecutor = "x:y"\n[settings]\n', "stepwell.toml")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "stepwell.toml").symlink_to(real / "stepwell.toml")
    add(linked, B)
    assert (linked / "stepwell.toml").is_symlink()
    assert relations_of(load_manifest(str(real))) == (B,)
    assert "[[related-projects]]" in (real / "stepwell.toml").read_text()


def test_blocks_as_people_write_them(tmp_path: Path):
    blocks = f"""
# before
[[ tool . stepwell . "related-projects" ]]  # one
alias = "stock"
project-id = "{IDS["b"]}"
[tool.stepwell.related-projects.grant]
read = {{ mode = "all" }}
[tool.stepwell.related-projects.grant.knowledge.read]
mode = "prefixes"
prefixes = [
  "a",  # why
]

# about the next
[[tool.stepwell.related-projects]]
alias = "far"
project-id = "{IDS["c"]}"
"""
    file = write(tmp_path, HEAD + blocks + TAIL.replace("[[tool", "[tool"))
    removing(str(tmp_path), "stock").write()
    left = file.read_text()
    assert [relation.alias for relation in relations_of(load_manifest(str(tmp_path)))] == ["far"]
    for kept in ("# before", "# about the next", "spaces stay", "# kept"):
        assert kept in left
    for gone in ("# one", "# why", IDS["b"]):
        assert gone not in left


@pytest.mark.parametrize(
    "text",
    [
        HEAD + f'related-projects = [{{ alias = "stock", project-id = "{IDS["b"]}" }}]\n',
        HEAD + f'[[tool.stepwell.related-projects]]\nalias = "stock"\nproject-id = "{IDS["b"]}"\n'
        "grant.read.mode = 'prefixes'\ngrant.read.prefixes = ['''\n[[tool.stepwell.related-projects]]\n''']\n",
    ],
)  # fmt: skip
def test_what_is_written_otherwise_is_left_alone(tmp_path: Path, text: str):
    file = write(tmp_path, text)
    with pytest.raises(ManifestInvalid, match="related-projects"):
        removing(str(tmp_path), "stock")
    assert file.read_text() == text


def test_what_is_refused(tmp_path: Path):
    file = write(tmp_path, HEAD)
    add(tmp_path, B)
    text = file.read_text()
    assert adding(str(tmp_path), B._replace(grant=Grant({}))) is None
    for wrong in (
        B._replace(alias="other"),
        C._replace(alias="stock"),
        C._replace(alias="Far"),
        C._replace(project_id=IDS["a"]),
    ):
        with pytest.raises(InvalidArgument):
            adding(str(tmp_path), wrong)
    with pytest.raises(RelationUnknown):
        removing(str(tmp_path), "far")
    with pytest.raises(RelationUnknown):
        removing_back(str(tmp_path), IDS["c"])
    assert file.read_text() == text
    for number in range(31):
        add(tmp_path, Relation(f"p{number}", f"01936d3f-6a00-7000-8000-0000000001{number:02x}", NEW_GRANT))
    with pytest.raises(InvalidArgument, match="at most 32"):
        adding(str(tmp_path), C)


def test_a_file_that_somebody_changed_meanwhile_is_not_overwritten(tmp_path: Path):
    file = write(tmp_path, HEAD)
    change = adding(str(tmp_path), B)
    assert change is not None
    file.write_text(HEAD + "# mine\n")
    with pytest.raises(Conflict):
        change.write()
    assert file.read_text() == HEAD + "# mine\n"


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
RULES = st.one_of(
    st.sampled_from([Rule("none"), Rule("all")]),
    st.lists(TEXTS, min_size=1, max_size=4, unique=True).map(lambda texts: Rule("prefixes", tuple(texts))),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(list(Need)), RULES))
def test_any_grant_comes_back_as_it_was_written(tmp_path: Path, rules: dict[Need, Rule]):
    write(tmp_path, HEAD)
    relation = B._replace(grant=Grant(rules))
    add(tmp_path, relation)
    assert relations_of(load_manifest(str(tmp_path))) == (relation,)
    removing(str(tmp_path), "stock").write()
    assert (tmp_path / "pyproject.toml").read_text() == HEAD


@pytest.mark.parametrize(
    ("name", "alias"), [("My Shop!", "my-shop"), ("2 Büros", "b-ros"), ("仓库", "caller"), ("a" * 99, "a" * 64)]
)
def test_an_alias_from_a_name(tmp_path: Path, name: str, alias: str):
    write(tmp_path, HEAD + f'name = "{name}"\n')
    assert alias_for(load_manifest(str(tmp_path))) == alias
