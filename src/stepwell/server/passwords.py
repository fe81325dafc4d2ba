"""Passwords: Argon2id with the library's current parameters."""

from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

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
