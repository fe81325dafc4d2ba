"""The backend of a location that is allowed but not connected: every call says so, nothing falls back."""

from collections.abc import AsyncGenerator
from typing import Any, NoReturn

from stepwell.errors import StorageUnavailable
from stepwell.store.entries import Change


class UnavailableBackend:
    """Raises `StorageUnavailable` naming the location and how to connect it.

    Args:
        location: its name.
        problem, hint: what is missing, if more is known than that it is not connected.
    """

    def __init__(self, location: str, problem: str | None = None, hint: str | None = None) -> None:
        self._location = location
        self._problem = problem
        self._hint = hint or "set STEPWELL_SERVER_URL and STEPWELL_SERVER_KEY, or run `stepwell login URL`"

    def refuse(self) -> NoReturn:
        """Say what is missing.

        Raises:
            StorageUnavailable: always.
        """
        what = f"the {self._location} storage location is not connected"
        raise StorageUnavailable(
            what if self._problem is None else f"{what}: {self._problem}", hint=self._hint, location=self._location
        )

    async def _call(self, *_: Any, **__: Any) -> Any:
        self.refuse()

    text = read = scan = commit = lock = namespaces = clear = _call

    def watch(self, *_: Any, **__: Any) -> AsyncGenerator[Change, None]:
        """Refuse at once."""
        self.refuse()

    async def close(self) -> None:
        """Nothing is open."""
