"""`stepwell relations`: declare related projects, and see how the declarations of both sides fit."""

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.published import publish, standings_there
from stepwell.cli.related import check_related, related_option
from stepwell.cli.render import Output
from stepwell.errors import InvalidArgument, InvalidId, Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stepwell.project.relations import Change, Standing
    from stepwell.storage.relations import Grant, Rule


@click.group()
def relations() -> None:
    """Declare related projects and what they may do."""


@relations.command("list")
@related_option
@common
@pass_output
def list_(output: Output, related: tuple[str, ...]) -> None:
    """List the declared relations; with the folder of a related project, how its own declaration fits."""
    _show(output, _standings(output, related))


@relations.command("check")
@related_option
@click.option("--location", type=click.Choice(["local", "server"]), default="local", show_default=True)
@common
@pass_output
def check(output: Output, related: tuple[str, ...], location: str) -> int:
    """Like list, with exit code 5 if a relation is not declared on both sides.

    On this machine that is known of relations whose folder is given. At the server it is known of all; there a
    relation may also not be published, or differ from the manifest.
    """
    if location == "server" and related:
        raise click.UsageError("--related-project names folders of this machine: not with --location server")
    found = standings_there(output) if location == "server" else _standings(output, related)
    _show(output, found)
    _explain(output, found)
    return 0 if all(one.state in ("active", "unchecked") for one in found) else Kind.DENIED.exit_code


@relations.command("publish")
@common
@pass_output
def publish_(output: Output) -> None:
    """Make the manifest's relations those of the project at the connected server, in force from the next access on.

    Needs a maintainer of the project there; a project that the server does not know is made known to it.
    """
    found = publish(output)
    _show(output, found)
    _explain(output, found)


@relations.command("add")
@click.argument("alias")
@click.argument("other", metavar="FOLDER|PROJECT_ID")
@click.option("--back-alias", help="The other project's alias for this one; this one's name without.")
@click.option("--read", multiple=True, metavar="RULE", help="What the other may read of KV here.  [default: all]")
@click.option("--write", multiple=True, metavar="RULE", help="What it may write of KV here.  [default: none]")
@click.option("--knowledge-read", multiple=True, metavar="RULE", help="What it may read of Knowledge here.")
@click.option("--knowledge-write", multiple=True, metavar="RULE", help="What it may change of Knowledge here.")
@click.option("--entrypoints", multiple=True, metavar="RULE", help="Which entrypoints it may run here.")
@common
@pass_output
def add(output: Output, /, alias: str, other: str, back_alias: str | None, **rules: tuple[str, ...]) -> None:
    """Declare another project under ALIAS; given its folder, declare this one there, too.

    RULE is none, all, or prefix:TEXT (repeatable). The side that is declared in the other folder grants read = all and
    write = none; change it there.
    """
    from stepwell.project.manifest import load_manifest
    from stepwell.project.relations import adding, alias_for, relations_of
    from stepwell.storage.relations import NEW_GRANT, Relation

    own = load_manifest(output.project)
    project_id, folder = _other(other)
    changes = [adding(own.folder, Relation(alias, project_id, _grant(rules)))]
    if changes[0] is None and any(rules.values()):
        raise InvalidArgument(
            f"{alias!r} is declared already", hint="remove it first, or change its grant in the file", argument="alias"
        )
    if folder is not None:
        known = [
            relation.alias for relation in relations_of(load_manifest(folder)) if relation.project_id == own.project_id
        ]
        back = back_alias or (known[0] if known else alias_for(own))
        changes.append(adding(folder, Relation(back, own.project_id, NEW_GRANT)))
    elif back_alias is not None:
        raise click.UsageError("--back-alias needs the folder of the other project")
    # Both were worked out before the first is written: what is refused on one side changes neither.
    changed = _write(changes)
    (relation,) = [relation for relation in relations_of(load_manifest(own.folder)) if relation.alias == alias]
    _report(output, alias, relation.project_id, "active" if folder is not None else "pending", changed)
    if folder is None:
        output.talk(f"pending until the other side declares {own.project_id}")


@relations.command("remove")
@click.argument("alias")
@click.option("--folder", help="The related project's folder: take this project out there, too.")
@common
@pass_output
def remove(output: Output, alias: str, folder: str | None) -> None:
    """Take the relation ALIAS out of this project. The other side's declaration then grants nothing."""
    from stepwell.project.manifest import load_manifest
    from stepwell.project.relations import relations_of, removing, removing_back
    from stepwell.storage.relations import find_relation

    own = load_manifest(output.project)
    relation = find_relation(relations_of(own), alias)
    changes: list[Change | None] = [removing(own.folder, alias)]
    if folder is not None:
        other = load_manifest(folder)
        if other.project_id != relation.project_id:
            raise InvalidArgument(f"{folder} holds another project than the one called {alias!r}", argument="--folder")
        changes.append(removing_back(folder, own.project_id))
    _report(output, alias, relation.project_id, "removed", _write(changes))


def _standings(output: Output, related: tuple[str, ...]) -> "list[Standing]":
    from stepwell.project.manifest import load_manifest
    from stepwell.project.relations import relations_of, standing
    from stepwell.storage.relations import find_relation

    folders = check_related(related)
    manifest = load_manifest(output.project)
    declared = relations_of(manifest)
    for alias in folders:
        find_relation(declared, alias)
    return [standing(manifest, relation, folders.get(relation.alias)) for relation in declared]


def _show(output: Output, found: "list[Standing]") -> None:
    output.items(
        [one.to_dict() for one in found],
        [("alias", lambda r: r["alias"]), ("project", lambda r: r["project_id"]), ("state", lambda r: r["state"]),
         ("it may here", lambda r: _told(r["grants"])), ("we may there", lambda r: _told(r["granted"]))],
        empty="no relations",
    )  # fmt: skip


def _explain(output: Output, found: "list[Standing]") -> None:
    for one in found:
        if one.problem is not None:
            output.talk(f"{one.relation.alias}: {one.problem}")


def _told(grant: "dict[str, Any] | None") -> str:
    """A grant in a line: `read all, write item:`."""
    if grant is None:
        return ""
    flat = {name: rule for name, rule in grant.items() if name != "knowledge"}
    flat |= {f"knowledge.{name}": rule for name, rule in grant.get("knowledge", {}).items()}
    return ", ".join(f"{name} {' '.join(rule.get('prefixes', [rule['mode']]))}" for name, rule in flat.items())


def _other(given: str) -> tuple[str, str | None]:
    """The id of the other project, and its folder if that was given."""
    import os

    from stepwell.identifiers import check_project_id
    from stepwell.project.manifest import load_manifest

    if not os.path.isdir(given):
        try:
            return check_project_id(given), None
        except InvalidId:
            raise InvalidArgument(
                f"{given!r:.200} is neither a folder nor a project id", argument="FOLDER|PROJECT_ID"
            ) from None
    return load_manifest(given).project_id, os.path.abspath(given)


def _grant(rules: "dict[str, tuple[str, ...]]") -> "Grant":
    from stepwell.storage.relations import NEW_GRANT, Grant, Need

    needs = {name: Need(name.replace("knowledge_", "knowledge.")) for name in rules}
    return Grant({**NEW_GRANT.rules, **{needs[name]: _rule(name, given) for name, given in rules.items() if given}})


def _rule(name: str, given: tuple[str, ...]) -> "Rule":
    from stepwell.storage.relations import MAX_PREFIXES, Rule

    option = f"--{name.replace('_', '-')}"
    if given in (("none",), ("all",)):
        return Rule(given[0])
    prefixes = tuple(text.removeprefix("prefix:") for text in given)
    is_right = all(text.startswith("prefix:") and len(text) > 7 and _is_unicode(text) for text in given)
    if not is_right or len(set(prefixes)) != len(prefixes) or len(prefixes) > MAX_PREFIXES:
        raise InvalidArgument(
            f"{option} {', '.join(given)!r:.200} is not none, all, or 1 to {MAX_PREFIXES} different prefix:TEXT",
            argument=option,
        )
    return Rule("prefixes", prefixes)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _write(changes: "list[Change | None]") -> list[str]:
    """Write the changes; gives the files that changed."""
    found = [change for change in changes if change is not None]
    for change in found:
        change.write()
    return [change.manifest.file for change in found]


def _report(output: Output, alias: str, project_id: str, state: str, changed: list[str]) -> None:
    shown = {"alias": alias, "project_id": project_id, "state": state, "changed": changed}
    output.data(shown, lambda: f"{alias} is {state}" + "".join(f"\nchanged {file}" for file in changed))
