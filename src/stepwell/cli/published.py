"""A project's relations at its server: publishing them, and comparing them with the manifest."""

from stepwell.cli.place import Place
from stepwell.cli.render import Output
from stepwell.errors import ProjectNotFound, StorageUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from stepwell.project.relations import Standing
    from stepwell.storage.location import Remote
    from stepwell.storage.relations import Relation


def publish(output: Output) -> "list[Standing]":
    """Make the manifest's relations those of the project at its server, and the project known there if it is not.

    Raises:
        StorageForbidden, StorageUnavailable: the project may use no server, or there is none.
        AccessDenied, ProjectNotFound: the user is no maintainer of the project.
    """
    place = Place(output)
    path = f"/projects/{place.manifest.project_id}"
    declared = [dict(table) for table in place.manifest.related_projects]

    async def published(remote: "Remote") -> "Any":
        # Whoever makes the project known owns it; for everybody else this changes nothing.
        await remote.ask("PUT", path, {}, {"name": place.manifest.name})
        return await remote.ask("PUT", f"{path}/relations", {}, {"relations": declared})

    return _compared(place, _ask(place, published)["items"])


def standings_there(output: Output) -> "list[Standing]":
    """How the project's relations stand at its server. Changes nothing there.

    Raises:
        StorageForbidden, StorageUnavailable: the project may use no server, or there is none.
    """
    place = Place(output)

    async def read(remote: "Remote") -> "Any":
        try:
            return await remote.ask("GET", f"/projects/{place.manifest.project_id}/relations", {})
        except ProjectNotFound:  # nobody has published anything, or not to this user
            return {"items": []}

    return _compared(place, _ask(place, read)["items"])


def _ask(place: Place, question: "Any") -> "Any":
    """Ask the project's server something. A project is not made known to it by being asked for."""
    import asyncio

    from stepwell.cli.place import PATIENCE_SECONDS
    from stepwell.storage.server import server_stores
    from stepwell.storage.unavailable import UnavailableBackend
    from stepwell.store.entries import Domain

    async def asked() -> "Any":
        try:
            _ = place.storage().server  # refused where the manifest declares that it is not used
        finally:
            await place.close()
        stores = server_stores(place.settings, patience=PATIENCE_SECONDS)
        try:
            if stores.remote is None:
                backend = stores.backend(None, Domain.KV)
                if isinstance(backend, UnavailableBackend):
                    backend.refuse()
                raise StorageUnavailable(
                    "relations are published through a server, and only its database is connected",
                    hint="set STEPWELL_SERVER_URL and STEPWELL_SERVER_KEY, or run `stepwell login URL`",
                    location="server",
                )
            return await question(stores.remote)
        finally:
            await stores.close()

    return asyncio.run(asked())


def _compared(place: Place, items: "Sequence[dict[str, Any]]") -> "list[Standing]":
    from stepwell.project.relations import Standing, relations_of
    from stepwell.storage.relations import parse_relations

    there = {relation.alias: relation for relation in parse_relations(items)}
    states = {item["alias"]: item["state"] for item in items}
    found = []
    for relation in relations_of(place.manifest):
        other = there.pop(relation.alias, None)
        state, problem = _state(relation, other, states.get(relation.alias, ""))
        found.append(Standing(relation, state, problem))
    gone = "the server has it, the manifest has not: `stepwell relations publish` takes it out there"
    return found + [Standing(relation, "differs", gone) for relation in there.values()]


def _state(relation: "Relation", there: "Relation | None", state: str) -> tuple[str, str | None]:
    if there is None:
        return "unpublished", "the server does not have it: `stepwell relations publish`"
    if there != relation:
        return "differs", "the server has another declaration: `stepwell relations publish` replaces it"
    if state == "active":
        return state, None
    return state, "the related project does not declare this one there, or you have no role in it"
