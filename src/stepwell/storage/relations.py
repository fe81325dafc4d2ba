"""Who may do what in a related project: declarations, grants and the decision. No I/O, so every host decides alike.

A declares B and B declares A; what A may do in B is what B's declaration of A grants. One declaration without the
other is *pending* and grants nothing.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from stepwell.errors import InvalidArgument, InvalidId, RelationDenied, RelationPending, RelationUnknown
from stepwell.identifiers import check_project_id
from stepwell.settings import one_line, suggest

MAX_RELATIONS: Final = 32
MAX_PREFIXES: Final = 32

_ALIAS = re.compile(r"[a-z][a-z0-9_-]{0,63}\Z")
_FIELDS = ("alias", "project-id", "grant")
_GRANTS = ("read", "write", "knowledge", "entrypoints")


class Need(StrEnum):
    """A right that an access needs, by its name in a grant."""

    READ = "read"
    WRITE = "write"
    KNOWLEDGE_READ = "knowledge.read"
    KNOWLEDGE_WRITE = "knowledge.write"
    ENTRYPOINTS = "entrypoints"


class Asked(NamedTuple):
    """What an access asks for: a right on a key (KV or Knowledge) or on an entrypoint's id."""

    need: Need
    key: str


class Rule(NamedTuple):
    """One right of a grant: `mode` is none, all or prefixes; prefixes are compared exactly, case included."""

    mode: str = "none"
    prefixes: tuple[str, ...] = ()

    def allows(self, key: str) -> bool:
        """True if the rule covers a key."""
        return self.mode == "all" or (self.mode == "prefixes" and key.startswith(self.prefixes))

    def to_dict(self) -> dict[str, Any]:
        """The rule as a manifest has it."""
        return {"mode": self.mode} | ({"prefixes": list(self.prefixes)} if self.mode == "prefixes" else {})


NOTHING: Final = Rule()
EVERYTHING: Final = Rule("all")


class Grant(NamedTuple):
    """What the other project may do in the declaring one. A right that is left out is none.

    `rules` holds the rights that are declared; no `knowledge.*` among them means no Knowledge at all.
    """

    rules: Mapping[Need, Rule]

    def rule(self, need: Need) -> Rule:
        """The rule of a right."""
        return self.rules.get(need, NOTHING)

    def to_dict(self) -> dict[str, Any]:
        """The grant as a manifest has it."""
        made: dict[str, Any] = {}
        for need, rule in self.rules.items():
            table, _, name = need.value.rpartition(".")  # plain text: keys of JSON
            (made.setdefault(table, {}) if table else made)[name] = rule.to_dict()
        return made


NEW_GRANT: Final = Grant({Need.READ: EVERYTHING, Need.WRITE: NOTHING})
"""What a relation that the command line writes grants."""


class Relation(NamedTuple):
    """One project's declaration of another: the name it has here, its id, and what it may do here."""

    alias: str
    project_id: str
    grant: Grant

    def to_dict(self) -> dict[str, Any]:
        """The relation as a manifest has it."""
        return {"alias": self.alias, "project-id": self.project_id, "grant": self.grant.to_dict()}


def check_alias(alias: Any) -> str:
    """An alias of the right form.

    Raises:
        InvalidArgument: it has another form.
    """
    if not isinstance(alias, str) or not _ALIAS.match(alias):
        raise InvalidArgument(
            f"{alias!r:.80} is not an alias",
            hint="it begins with a letter a-z, then has at most 63 of a-z 0-9 _ -",
            argument="alias",
        )
    return alias


def parse_relations(declared: Sequence[Mapping[str, Any]]) -> tuple[Relation, ...]:
    """Relations from a manifest's tables that `relation_problems` found nothing wrong with."""
    found = []
    for table in declared:
        rules: dict[Need, Rule] = {}
        grant = table.get("grant", {})
        for name, rule in grant.items():
            if name == "knowledge":
                rules |= {Need(f"knowledge.{inner}"): _rule_of(rule[inner]) for inner in rule}
            else:
                rules[Need(name)] = _rule_of(rule)
        found.append(Relation(table["alias"], check_project_id(table["project-id"]), Grant(rules)))
    return tuple(found)


def _rule_of(table: Mapping[str, Any]) -> Rule:
    return Rule(table["mode"], tuple(table.get("prefixes", ())))


# -- deciding ----------------------------------------------------------------------------------------------------------


def find_relation(relations: Sequence[Relation], alias: str) -> Relation:
    """A project's own declaration behind an alias.

    Raises:
        RelationUnknown: there is none.
    """
    for relation in relations:
        if relation.alias == alias:
            return relation
    known = ", ".join(relation.alias for relation in relations)
    raise RelationUnknown(
        f"this project declares no related project {alias!r:.80}",
        hint=f"there are: {known}" if known else "declare it with `stepwell relations add`",
        alias=str(alias)[:80],
    )


def counterpart(alias: str, caller_id: str, target_relations: Sequence[Relation] | None) -> Relation:
    """What the related project declares about the caller.

    Args:
        alias: the caller's name for the related project.
        caller_id: the caller's project id.
        target_relations: what the related project declares; None if it is not there.

    Raises:
        RelationPending: nothing.
    """
    for relation in target_relations or ():
        if relation.project_id == caller_id:
            return relation
    raise RelationPending(
        f"the relation {alias!r} is pending: the related project does not declare this one",
        hint=f"add project-id {caller_id} to the related projects there; until then nothing is granted",
        alias=alias,
    )


def decide(
    alias: str,
    caller_id: str,
    caller_relations: Sequence[Relation],
    target_relations: Sequence[Relation] | None,
    asked: Iterable[Asked],
) -> Relation:
    """Decide one access of a caller to the project behind one of its aliases.

    Args:
        alias: the caller's name for the related project.
        caller_id: the caller's project id.
        caller_relations: what the caller declares, as it is now.
        target_relations: what the project of the alias's id declares, as it is now; None if it is not there.
        asked: every right the access needs; all have to be granted.

    Returns:
        The caller's own declaration; its `project_id` is the related project's.

    Raises:
        RelationUnknown, RelationPending: there is no relation, or only one side declares it.
        RelationDenied: names the alias, the key and the right that is missing, and nothing that is stored.
    """
    relation = find_relation(caller_relations, alias)
    grant = counterpart(alias, caller_id, target_relations).grant
    for need, key in asked:
        if not grant.rule(need).allows(key):
            raise RelationDenied(
                f"the related project {alias!r} does not grant {need} on {key!r:.200}",
                hint=f"its declaration of this project needs a grant.{need} that covers it",
                alias=alias,
                key=key,
                grant=need.value,
            )
    return relation


def allowed_entrypoints(grant: Grant, ids: Iterable[str]) -> list[str]:
    """Which entrypoints a grant opens."""
    rule = grant.rule(Need.ENTRYPOINTS)
    return [entrypoint for entrypoint in ids if rule.allows(entrypoint)]


# -- checking a declaration --------------------------------------------------------------------------------------------


def relation_problems(declared: Any, own_id: str) -> list[str]:
    """What is wrong with the `related-projects` of a manifest, a line each.

    Args:
        declared: the value of the key.
        own_id: the declaring project's id.
    """
    if not isinstance(declared, list) or not all(isinstance(relation, dict) for relation in declared):
        return ["related-projects: not an array of tables"]
    problems: list[str] = []
    if len(declared) > MAX_RELATIONS:
        problems.append(f"related-projects: {len(declared)} relations; at most {MAX_RELATIONS}")
    aliases: set[str] = set()
    ids: set[str] = set()
    for number, relation in enumerate(declared):
        where = f"related-projects[{number}]"
        problems += _unknown(relation, _FIELDS, where)
        alias = relation.get("alias")
        if not isinstance(alias, str) or not _ALIAS.match(alias):
            problems.append(f"{where}.alias: {alias!r:.80} does not match [a-z][a-z0-9_-]{{0,63}}")
        elif alias in aliases:
            problems.append(f"{where}.alias: {alias!r} is used twice")
        else:
            aliases.add(alias)
        try:
            target = check_project_id(relation.get("project-id"))
        except InvalidId as error:
            problems.append(f"{where}.project-id: {error.message}")
        else:
            if target == own_id:
                problems.append(f"{where}.project-id: a project cannot be related to itself")
            if target in ids:
                problems.append(f"{where}.project-id: {target} is used twice")
            ids.add(target)
        problems += _grant_problems(relation.get("grant", {}), f"{where}.grant")
    return problems


def _unknown(table: Mapping[str, Any], known: Sequence[str], where: str) -> list[str]:
    return [f"{where}.{one_line(key)}: unknown key{suggest(key, known)}" for key in table if key not in known]


def _grant_problems(grant: Any, where: str) -> list[str]:
    if not isinstance(grant, dict):
        return [f"{where}: not a table"]
    problems = _unknown(grant, _GRANTS, where)
    for name in ("read", "write", "entrypoints"):
        if name in grant:
            problems += _rule_problems(grant[name], f"{where}.{name}")
    knowledge = grant.get("knowledge", {})
    if not isinstance(knowledge, dict):
        return [*problems, f"{where}.knowledge: not a table with read and write"]
    problems += _unknown(knowledge, ("read", "write"), f"{where}.knowledge")
    for name in ("read", "write"):
        if name in knowledge:
            problems += _rule_problems(knowledge[name], f"{where}.knowledge.{name}")
    return problems


def _rule_problems(rule: Any, where: str) -> list[str]:
    if not isinstance(rule, dict):
        return [f'{where}: {rule!r:.80} is not a table like {{mode = "all"}}']
    problems = _unknown(rule, ("mode", "prefixes"), where)
    mode = rule.get("mode")
    if mode not in ("none", "all", "prefixes"):
        return [*problems, f"{where}.mode: {mode!r:.80} is not one of none, all, prefixes"]
    prefixes = rule.get("prefixes")
    if mode != "prefixes":
        return problems if prefixes is None else [*problems, f'{where}.prefixes: only with mode = "prefixes"']
    texts = prefixes if isinstance(prefixes, list) else []
    unique = {text for text in texts if isinstance(text, str) and text}
    if not 1 <= len(texts) <= MAX_PREFIXES or len(unique) != len(texts):
        problems.append(f"{where}.prefixes: 1 to {MAX_PREFIXES} non-empty, unique texts are needed")
    return problems
