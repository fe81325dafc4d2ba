"""The backend of a location that is allowed but not connected: every call says so, nothing falls back."""

from collections.abc import AsyncGenerator
from typing import Any, NoReturn

from stepwell.errors import StorageUnavailable
from stepwell.store.entries import Change


class UnavailableBackend:
    """Raises `StorageUnavailable` naming the location and how to connect it."""

    def __init__(self, location: str) -> None:
        self._location = location

    def _refuse(self) -> NoReturn:
        raise StorageUnavailable(
            f"the {self._location} storage location is not connected",
            hint="set STEPWELL_SERVER_URL and STEPWELL_SERVER_KEY, or run `stepwell login URL`",
            location=self._location,
        )

    async def _call(self, *_: Any, **__: Any) -> Any:
        self._refuse()

    text = read = scan = commit = lock = namespaces = clear = _call

    def watch(self, *_: Any, **__: Any) -> AsyncGenerator[Change, None]:
        """Refuse at once."""
        self._refuse()

    async def close(self) -> None:
        """Nothing is open."""
