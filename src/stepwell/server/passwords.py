"""Passwords: Argon2id with the library's current parameters."""

import asyncio
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from stepwell.errors import ServerBusy

_hasher = PasswordHasher()


def hash_of(password: str) -> str:
    """What is stored of a password; takes some 50 ms on purpose."""
    return _hasher.hash(password)


def verify(stored: str | None, password: str) -> bool:
    """True if the password is the one stored. Without one it takes as long, and is never right."""
    try:
        return _hasher.verify(stored or _nobody(), password) and stored is not None
    except (VerificationError, InvalidHashError):
        return False


@cache
def _nobody() -> str:
    return hash_of("nobody has this password")


class PasswordChecks:
    """Checks passwords, few at once: each takes memory and time on purpose, and anybody may ask for one.

    Args:
        at_once: checks that run side by side.
        waiting: checks that may wait for their turn.
    """

    def __init__(self, at_once: int = 2, waiting: int = 20) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._asked = 0

    async def verify(self, stored: str | None, password: str) -> bool:
        """See `verify`.

        Raises:
            ServerBusy: too many wait already.
        """
        if self._asked >= self._most:
            raise ServerBusy("too many passwords are being checked", hint="try again in a moment")
        self._asked += 1
        try:
            async with self._turns:
                return await asyncio.to_thread(verify, stored, password)
        finally:
            self._asked -= 1
