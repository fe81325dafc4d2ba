"""A project's declarations of related projects in its manifest: reading them, and writing them into the file.

What else stands in the file (comments, order, spacing) stays as it is: a relation is a block of text at the end, and
what a change makes of the file is read back and compared before it takes the file's place.
"""

import contextlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stepwell.errors import (
    Conflict,
    InvalidArgument,
    ManifestInvalid,
    RelationPending,
    RelationUnknown,
    StepwellError,
    StorageUnavailable,
)
from stepwell.project.manifest import Manifest, load_manifest
from stepwell.storage.relations import (
    MAX_RELATIONS,
    Relation,
    Rule,
    check_alias,
    counterpart,
    find_relation,
    parse_relations,
    relation_problems,
)


def relations_of(manifest: Manifest) -> tuple[Relation, ...]:
    """What a manifest declares."""
    return parse_relations(manifest.related_projects)


class Change:
    """A new text of a manifest that was checked and is not written yet."""

    def __init__(self, manifest: Manifest, old: bytes, new: bytes) -> None:
        self.manifest = manifest
        self._old = old
        self._new = new

    def write(self) -> None:
        """Put the new text in the file's place, at once and durably.

        Raises:
            Conflict: somebody changed the file since it was read.
            StorageUnavailable: it cannot be written.
        """
        path = Path(self.manifest.file).resolve()
        if _read(path) != self._old:
            raise Conflict(f"{path} was changed meanwhile", hint="try again", keys=[str(path)])
        temporary = None
        try:
            handle, name = tempfile.mkstemp(prefix=".stepwell-", dir=path.parent)
            temporary = Path(name)
            with os.fdopen(handle, "wb") as file:
                file.write(self._new)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(path.stat().st_mode & 0o7777)
            temporary.replace(path)
        except OSError as error:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    temporary.unlink()
            raise StorageUnavailable(f"{path} cannot be written: {error.strerror}", path=str(path)) from None


def adding(folder: str, relation: Relation) -> Change | None:
    """The change that declares a relation in a project; None if just this alias and id are declared already.

    Raises:
        InvalidArgument: the alias or the project is declared otherwise, is this project, or there are too many.
        ManifestInvalid: the file is written in a way that a block cannot be added to.
    """
    manifest = load_manifest(folder)
    check_alias(relation.alias)
    known = relations_of(manifest)
    for other in known:
        if (other.alias == relation.alias) != (other.project_id == relation.project_id):
            raise InvalidArgument(
                f"{manifest.file} declares {other.alias!r} for {other.project_id} already",
                hint="remove that relation first, or take another alias",
                alias=other.alias,
            )
        if other.alias == relation.alias:
            return None
    wanted = [*manifest.related_projects, relation.to_dict()]
    if len(wanted) > MAX_RELATIONS or relation.project_id == manifest.project_id:
        raise InvalidArgument(
            "; ".join(relation_problems(wanted, manifest.project_id)).removeprefix("related-projects: "),
            argument="alias",
        )
    old = _read(manifest.file)
    text = old.decode()
    end = "\r\n" if "\r\n" in text else "\n"
    block = end.join(["", _header(manifest), *_lines(relation), ""])
    gap = "" if not text or text.endswith("\n") else end
    return _checked(manifest, old, f"{text}{gap}{block}", wanted)


def removing(folder: str, alias: str) -> Change:
    """The change that takes a relation out of a project.

    Raises:
        RelationUnknown: there is none of that alias.
        ManifestInvalid: the file is written in a way that a block cannot be taken out of.
    """
    manifest = load_manifest(folder)
    relation = find_relation(relations_of(manifest), alias)
    number = [declared["alias"] for declared in manifest.related_projects].index(relation.alias)
    wanted = [declared for declared in manifest.related_projects if declared["alias"] != alias]
    old = _read(manifest.file)
    lines = re.findall(r"[^\n]*\n|[^\n]+", old.decode())
    spans = _blocks(manifest, lines)
    if number < len(spans):
        first, last = spans[number]
        # A blank line before the block was made with it.
        if first > 0 and not lines[first - 1].strip() and (last == len(lines) or not lines[last].strip()):
            first -= 1
        del lines[first:last]
    return _checked(manifest, old, "".join(lines), wanted)


def removing_back(folder: str, project_id: str) -> Change:
    """The change that takes a project's declaration of another out, by the other's id.

    Raises:
        RelationUnknown: it declares no such project.
    """
    for relation in relations_of(load_manifest(folder)):
        if relation.project_id == project_id:
            return removing(folder, relation.alias)
    raise RelationUnknown(f"the project in {folder} does not declare {project_id}", hint="nothing was changed there")


def _prefix(manifest: Manifest) -> tuple[str, ...]:
    return ("tool", "stepwell") if Path(manifest.file).name == "pyproject.toml" else ()


def _header(manifest: Manifest) -> str:
    return f"[[{'.'.join((*_prefix(manifest), 'related-projects'))}]]"


def _lines(relation: Relation) -> list[str]:
    found = [f"alias = {_quoted(relation.alias)}", f"project-id = {_quoted(relation.project_id)}"]
    rules = [f"grant.{need.value} = {_inline(rule)}" for need, rule in relation.grant.rules.items()]
    return found + (rules or ["grant = {}"])


def _inline(rule: Rule) -> str:
    texts = f", prefixes = [{', '.join(map(_quoted, rule.prefixes))}]" if rule.mode == "prefixes" else ""
    return f"{{ mode = {_quoted(rule.mode)}{texts} }}"


def _quoted(text: str) -> str:
    """A TOML basic string: what may not stand in one is escaped."""
    shown = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in shown) + '"'


_TABLE = re.compile(r"\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")


def _blocks(manifest: Manifest, lines: Sequence[str]) -> list[tuple[int, int]]:
    """First and last line (exclusive) of each relation's block of text, in order.

    Whatever looks like a table but stands in a text of several lines is taken for one, too: the caller compares what
    comes out of it.
    """
    wanted = [*_prefix(manifest), "related-projects"]
    spans: list[tuple[int, int]] = []
    first: int | None = None
    last = 0
    for number, line in enumerate([*lines, "[end]"]):
        table = _TABLE.match(line)
        if table is None:
            if line.strip() and not line.lstrip().startswith("#"):
                last = number + 1  # comments behind the block belong to what follows
            continue
        names = [name.strip().strip("\"'") for name in table[1].split(".")]
        is_relation = names == wanted and line.lstrip().startswith("[[")
        if first is not None and (is_relation or names[: len(wanted)] != wanted):
            spans.append((first, last))
            first = None
        if is_relation:
            first = number
        last = number + 1
    return spans


def _checked(manifest: Manifest, old: bytes, text: str, wanted: list[Any]) -> Change:
    """The change, if it changes just what it should.

    Raises:
        ManifestInvalid: it would not.
    """
    import tomllib

    before = tomllib.loads(old.decode())
    try:
        after: Any = tomllib.loads(text)
        table, other = after, before
        for name in _prefix(manifest):
            table, other = table[name], other[name]
        found, _ = table.pop("related-projects", []), other.pop("related-projects", [])
        is_right = found == wanted and after == before
    except (ValueError, KeyError, TypeError, AttributeError):
        is_right = False
    if not is_right:
        problem = "related-projects: not written as blocks of its own, so it cannot be changed here"
        raise ManifestInvalid(
            f"{manifest.file}: {problem}",
            hint=f"change it by hand, or write each relation as {_header(manifest)}",
            file=manifest.file,
            problems=[problem],
        )
    return Change(manifest, old, text.encode())


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StorageUnavailable(f"{path} cannot be read: {error.strerror}", path=str(path)) from None


class Standing(NamedTuple):
    """How a relation stands: what this side declares, and what was found on the other.

    `state` is `unchecked` without a folder, `active` if both sides declare it, else `pending` or `wrong`, and
    `problem` says why; a server may have no (`unpublished`) or another declaration (`differs`) than the manifest.
    `back` is the other side's declaration.
    """

    relation: Relation
    state: str
    problem: str | None = None
    back: Relation | None = None

    def to_dict(self) -> dict[str, Any]:
        """The standing as JSON: `grants` is what the other project may do here, `granted` what this one may there."""
        return {
            "alias": self.relation.alias,
            "project_id": self.relation.project_id,
            "state": self.state,
            "problem": self.problem,
            "grants": self.relation.grant.to_dict(),
            "their_alias": self.back.alias if self.back else None,
            "granted": self.back.grant.to_dict() if self.back else None,
        }


def standing(manifest: Manifest, relation: Relation, folder: str | None) -> Standing:
    """How one of a project's relations stands, as far as the folder of the related project tells."""
    if folder is None:
        return Standing(relation, "unchecked")
    try:
        other = load_manifest(folder)
        if other.project_id != relation.project_id:
            return Standing(relation, "wrong", f"{folder} holds the project {other.project_id}")
        return Standing(relation, "active", None, counterpart(relation.alias, manifest.project_id, relations_of(other)))
    except RelationPending as pending:
        return Standing(relation, "pending", pending.message)
    except StepwellError as error:
        return Standing(relation, "wrong", error.message)


def alias_for(manifest: Manifest) -> str:
    """An alias that another project may use for this one: its name in the letters that an alias has."""
    made = re.sub(r"[^a-z0-9_-]+", "-", manifest.name.lower()).lstrip("0123456789_-").rstrip("-")[:64]
    return made or "caller"
