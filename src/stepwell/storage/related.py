"""Related projects in code: `ctx.storage.local.related_projects.get("inventory").kv`.

The handles here are the surface; a `RelatedPlace` behind them decides and reaches the data. Every single call asks it
anew, so nothing that was granted once is remembered.
"""

from collections.abc import Sequence
from typing import Any, Final, NoReturn, Protocol

from stepwell.errors import InvalidArgument, StorageUnavailable
from stepwell.identifiers import check_key
from stepwell.storage.entry import Entry
from stepwell.storage.kv import KeyValue
from stepwell.storage.relations import Asked, Need
from stepwell.storage.transaction import UPDATE_TIMEOUT, Updater, check_no_transaction


class RelatedPlace(Protocol):
    """What stands behind the handles at one location.

    Every method reads both sides' declarations anew and raises `RelationUnknown`, `RelationPending` or
    `RelationDenied` before it touches anything; where the project itself cannot be reached, `StorageUnavailable`.
    """

    def check(self, alias: str) -> None:
        """Refuse an alias that the calling project does not declare."""
        ...

    async def kv(self, alias: str, asked: Sequence[Asked]) -> KeyValue:
        """The related project's own KV, once everything asked for is granted; for one operation."""
        ...

    def knowledge(self, alias: str) -> Any:
        """A handle with the methods of `Knowledge`, each of which is decided when it is called."""
        ...

    async def entrypoints(self, alias: str) -> list[dict[str, Any]]:
        """The granted entrypoints, described."""
        ...

    async def run(self, alias: str, entrypoint_id: str, args: Sequence[str]) -> Any:
        """Run a granted entrypoint to its end and return its payload."""
        ...


class RelatedProjects:
    """The related projects of one location.

    Args:
        place: what reaches them; None where nothing does.
        location: the location's name, for messages.
    """

    def __init__(self, place: RelatedPlace | None, location: str) -> None:
        self._place = place
        self._location = location

    def get(self, alias: str) -> "RelatedProject":
        """The related project of an alias.

        Raises:
            RelationUnknown: this project declares no such alias.
            StorageUnavailable: nothing here reaches related projects.
        """
        if self._place is None:
            raise StorageUnavailable(
                f"related projects cannot be reached here at the {self._location} location",
                hint="connect a server" if self._location == "server" else "use the context of a run",
                location=self._location,
            )
        self._place.check(alias)
        return RelatedProject(self._place, alias)

    def __repr__(self) -> str:
        return f"<RelatedProjects {self._location}>"


class RelatedProject:
    """One related project, as far as it grants access: `kv`, `knowledge` and its entrypoints."""

    def __init__(self, place: RelatedPlace, alias: str) -> None:
        self._place = place
        self.alias = alias
        self.kv = RelatedKeyValue(place, alias)

    @property
    def knowledge(self) -> Any:
        """The project's Knowledge, with the methods of `Knowledge`.

        A grant of prefixes opens documents by their keys `knowledge.document.<id>`; listing and searching need the
        index `knowledge.documents` as well.
        """
        return self._place.knowledge(self.alias)

    async def list_entrypoints(self) -> list[dict[str, Any]]:
        """The entrypoints that are granted: id, title, schemas.

        Raises:
            RelationUnknown, RelationPending: there is no relation, or only one side declares it.
        """
        check_no_transaction(f"the related project {self.alias!r}")
        return await self._place.entrypoints(self.alias)

    async def run_entrypoint(self, entrypoint_id: str, args: Sequence[str] = ()) -> Any:
        """Run an entrypoint of the related project and return its payload.

        The run is the related project's own: with its journal and its storage, and without related projects.

        Args:
            entrypoint_id: which one.
            args: its command line arguments, for its own `create_input`.

        Raises:
            RelationDenied: the entrypoint is not granted.
            EntrypointNotFound, InputInvalid: nothing was started.
            RunFailed: it did not complete; the message says why.
        """
        if not isinstance(entrypoint_id, str) or not entrypoint_id:
            raise InvalidArgument(f"{entrypoint_id!r:.80} is not an entrypoint's id", argument="entrypoint_id")
        if isinstance(args, str) or not all(isinstance(arg, str) for arg in args):
            raise InvalidArgument("args is not a list of texts", hint='for example ["--name", "Ada"]', argument="args")
        check_no_transaction(f"the related project {self.alias!r}")
        return await self._place.run(self.alias, entrypoint_id, args)

    def __getattr__(self, name: str) -> NoReturn:
        raise _missing(f"related project {self.__dict__.get('alias')!r}", name, _PROJECT)

    def __repr__(self) -> str:
        return f"<RelatedProject {self.alias!r}>"


class RelatedKeyValue:
    """A related project's KV, project scope: single entries, and nothing that lists, locks or watches."""

    def __init__(self, place: RelatedPlace, alias: str) -> None:
        self._place = place
        self._alias = alias

    async def get_value(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default` if there is no entry. Needs `read`.

        Raises:
            RelationUnknown, RelationPending, RelationDenied: also for a key that is not there.
        """
        return await (await self._open(key, Need.READ)).get_value(key, default)

    async def set_value(self, key: str, value: Any) -> Entry:
        """Store `value` under `key` and return the entry written. Needs `write`.

        Raises:
            RelationUnknown, RelationPending, RelationDenied, ValueNotSerializable, ValueTooLarge: nothing was written.
        """
        return await (await self._open(key, Need.WRITE)).set_value(key, value)

    async def delete_value(self, key: str) -> bool:
        """Remove the entry of `key` for good: True if there was one. Needs `write`.

        Raises:
            RelationUnknown, RelationPending, RelationDenied: nothing was removed.
        """
        return await (await self._open(key, Need.WRITE)).delete_value(key)

    async def update_value(
        self, key: str, updater: Updater, default: Any = None, *, timeout: float = UPDATE_TIMEOUT
    ) -> Any:
        """Replace the value of `key` by `updater(value)`; see `KeyValue.update_value`. Needs `read` and `write`.

        Raises:
            RelationUnknown, RelationPending, RelationDenied, UpdateConflict: the entry is as it was.
        """
        handle = await self._open(key, Need.READ, Need.WRITE)
        return await handle.update_value(key, updater, default, timeout=timeout)

    async def _open(self, key: str, *needs: Need) -> KeyValue:
        check_no_transaction(f"the related project {self._alias!r}")
        check_key(key)
        return await self._place.kv(self._alias, [Asked(need, key) for need in needs])

    def __getattr__(self, name: str) -> NoReturn:
        raise _missing(f"kv of the related project {self.__dict__.get('_alias')!r}", name, _KV)

    def __repr__(self) -> str:
        return f"<RelatedKeyValue {self._alias!r}>"


_KV: Final = "get_value, set_value, delete_value, update_value"
_PROJECT: Final = "kv, knowledge, list_entrypoints, run_entrypoint"


def _missing(what: str, name: str, there: str) -> AttributeError:
    """The answer to what projects do not open to each other: an ordinary missing attribute, so that `hasattr` works."""
    return AttributeError(f"the {what} has no {name!r}; it has {there}")
