"""Keeping secrets out of events, traces, reports and logs.

Three nets: known secret values (from the environment, or added by the program) wherever they stand, also in their
base64 and URL-encoded forms; the values of fields whose name says secret; and texts with the shape of a credential.
It sits on every event, so the common case (nothing secret inside) is one regular expression per text.
"""

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

MASK = "[redacted]"
MIN_SECRET = 8

_SECRET_WORDS = frozenset({"password", "passwd", "passphrase", "secret", "authorization", "credential", "credentials"})
_SECRET_PAIRS = frozenset({
    ("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("account", "key"), ("signing", "key"),
    ("access", "token"), ("auth", "token"), ("bearer", "token"), ("refresh", "token"), ("id", "token"),
    ("session", "token"), ("api", "token"), ("client", "secret"), ("set", "cookie"),
})  # fmt: skip
_SECRET_NAMES = frozenset(
    {"apikey", "accesskey", "privatekey", "secretkey", "accesstoken", "authtoken", "token", "cookie"}
)
_VARIABLE_WORDS = frozenset({"key", "token", "secret", "password", "passwd", "credential", "credentials", "passphrase"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LONG = 20_000
# What vendors publish of their own credentials, PEM private keys, and bearer headers: how each begins, and its shape.
_SHAPES_BY_START = {
    "sk-": r"\bsk-[A-Za-z0-9_-]{16,}",
    **{f"gh{letter}_": rf"\bgh{letter}_[A-Za-z0-9]{{20,}}" for letter in "pousr"},
    "github_pat_": r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    "xox": r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "AKIA": r"\bAKIA[0-9A-Z]{16}",
    "AIza": r"\bAIza[0-9A-Za-z_-]{35}",
    "glpat-": r"\bglpat-[0-9A-Za-z_-]{20,}",
    "-----BEGIN ": r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    "earer ": r"(?<=[Bb]earer )[A-Za-z0-9._~+/-]{16,}=*",
}
_SHAPES = re.compile("|".join(_SHAPES_BY_START.values()), re.DOTALL)
_SHAPE_BY_START = {start: re.compile(shape, re.DOTALL) for start, shape in _SHAPES_BY_START.items()}


class Redactor:
    """Masks secrets in texts and JSON values.

    Args:
        secrets: values to mask wherever they stand; shorter than 8 characters are ignored.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        for secret in secrets:
            self.add(secret)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Redactor":
        """Knows the values of environment variables whose names say secret."""
        return cls(value for name, value in environ.items() if _VARIABLE_WORDS.intersection(name.lower().split("_")))

    def add(self, secret: str) -> None:
        """Mask this value from now on, also in base64 and URL-encoded form."""
        if len(secret) < MIN_SECRET:
            return
        raw = secret.encode("utf-8", "surrogatepass")
        self._secrets |= {secret, quote(secret, safe=""), base64.b64encode(raw).decode().rstrip("=")}
        self._secrets.add(base64.urlsafe_b64encode(raw).decode().rstrip("="))
        longest_first = sorted(self._secrets, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def text(self, text: str) -> str:
        """The text with every secret masked."""
        if len(text) > _LONG:
            return self._long_text(text)
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        return _SHAPES.sub(MASK, text)

    def _long_text(self, text: str) -> str:
        """The same for a long text: plain text is found 50 times faster than a shape, and in steps that are short."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            if secret in text:
                text = text.replace(secret, MASK)
        spans = sorted(span for start, shape in _SHAPE_BY_START.items() for span in _spans(text, start, shape))
        parts: list[str] = []
        kept = 0
        for begin, end in spans:
            if begin >= kept:
                parts += (text[kept:begin], MASK)
            kept = max(kept, end)
        return text if not parts else "".join((*parts, text[kept:]))

    def value(self, value: Any) -> Any:
        """The JSON value with every secret masked; the same object where nothing had to be."""
        if isinstance(value, str):
            if len(value) < MIN_SECRET:
                return value
            masked = self.text(value)
            return value if masked == value else masked
        if isinstance(value, Mapping):
            return self._replaced(value, value.items(), dict)
        if isinstance(value, (list, tuple)):
            return self._replaced(value, enumerate(value), list)
        return value

    def _replaced(self, value: Any, items: Iterable[tuple[Any, Any]], copy: Callable[[Any], Any]) -> Any:
        """A container with its children masked; it is copied when the first one has to be."""
        changed = None
        for place, child in items:
            if not child or child is True:
                continue
            if type(place) is str and isinstance(child, (str, list, tuple)) and says_secret(place):
                masked: Any = MASK
            else:
                masked = self.value(child)
            if masked is not child:
                changed = copy(value) if changed is None else changed
                changed[place] = masked
        return value if changed is None else changed


def _spans(text: str, start: str, shape: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    at = text.find(start)
    while at >= 0:
        # A bearer token stands behind its start, every other shape begins with it.
        found = shape.match(text, at) or shape.match(text, at + len(start))
        if found is not None:
            yield found.span()
        at = text.find(start, at + len(start) if found is None else found.end())


@lru_cache(maxsize=4_096)
def says_secret(name: str) -> bool:
    """True for names such as `password`, `api_key`, `clientSecret`, `Authorization`; not for `token_count`, `key`."""
    words = tuple(word.lower() for word in _WORD.findall(name))
    if not words:
        return False
    return (
        words[-1] in _SECRET_WORDS
        or words[-2:] in _SECRET_PAIRS
        or (len(words) == 1 and words[0] in _SECRET_NAMES)
        or "".join(words) in _SECRET_NAMES
    )
