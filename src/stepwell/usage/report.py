"""One provider call's token counts."""

from typing import Any, NamedTuple, Self

from stepwell.errors import UsageInvalid

_COUNTS = (
    "input_tokens", "output_tokens", "total_tokens", "reasoning_tokens", "cached_input_tokens", "cache_creation_tokens"
)  # fmt: skip
_NAMES = ("node_name", "provider_name", "model_id")


class TokenReport(NamedTuple):
    """Token counts of one call, canonical and inclusive.

    `input_tokens` counts every prompt token, cache reads and writes included; `output_tokens` counts reasoning;
    `total_tokens` is their sum. `cost_usd` is what the call cost, where its price is known; `partial` says that the
    answer broke off, so that the counts may be too low.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int | None = None
    reasoning_tokens: int = 0
    cached_input_tokens: int = 0
    cache_creation_tokens: int = 0
    node_name: str | None = None
    provider_name: str | None = None
    model_id: str | None = None
    cost_usd: float | None = None
    partial: bool | None = None

    @classmethod
    def of(cls, **fields: Any) -> Self:
        """A report from keyword arguments.

        Raises:
            UsageInvalid: names an unknown field.
        """
        for name in fields:
            if name not in cls._fields:
                raise UsageInvalid(
                    f"{name!r:.60} is not a field of a token report", hint=f"fields are {', '.join(cls._fields)}"
                )
        return cls(**fields)

    def checked(self) -> "TokenReport":
        """The report with its total filled in.

        Raises:
            UsageInvalid: a count is negative, fractional or not a number, or the counts contradict each other.
        """
        for name in _COUNTS:
            count = getattr(self, name)
            if count is None and name == "total_tokens":
                continue
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise UsageInvalid(f"{name} is {count!r:.40}: it must be a whole number from 0", field=name)
        for name in _NAMES:
            if not isinstance(getattr(self, name), (str, type(None))):
                raise UsageInvalid(f"{name} is {getattr(self, name)!r:.40}: it must be text", field=name)
        if self.cost_usd is not None and not (isinstance(self.cost_usd, (int, float)) and 0 <= self.cost_usd < 1e12):
            raise UsageInvalid(f"cost_usd is {self.cost_usd!r:.40}: it must be a number from 0", field="cost_usd")
        total = self.input_tokens + self.output_tokens
        if self.total_tokens is not None and self.total_tokens < total:
            raise UsageInvalid(
                f"total_tokens is {self.total_tokens}, less than input and output together ({total})",
                field="total_tokens",
            )
        if self.cached_input_tokens + self.cache_creation_tokens > self.input_tokens:
            raise UsageInvalid(
                "cached_input_tokens and cache_creation_tokens together exceed input_tokens",
                hint="input_tokens counts cache reads and writes too: add them first",
                field="input_tokens",
            )
        if self.reasoning_tokens > self.output_tokens:
            raise UsageInvalid(
                "reasoning_tokens exceed output_tokens",
                hint="output_tokens counts reasoning too: add it first",
                field="output_tokens",
            )
        return self._replace(total_tokens=self.total_tokens if self.total_tokens is not None else total)

    def fields(self) -> dict[str, Any]:
        """What is known of it, as JSON."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    def amounts(self) -> dict[str, int]:
        """What this report adds to a total."""
        return {
            "input": self.input_tokens,
            "output": self.output_tokens,
            "reasoning": self.reasoning_tokens,
            "cache_read": self.cached_input_tokens,
            "cache_write": self.cache_creation_tokens,
            "total": self.total_tokens or 0,
            "calls": 1,
        }


EMPTY_TOTAL = dict.fromkeys(TokenReport().amounts(), 0)


def add(total: dict[str, int] | None, amounts: dict[str, int]) -> dict[str, int]:
    """A total with `amounts` added."""
    base = total or EMPTY_TOTAL
    return {name: base.get(name, 0) + amount for name, amount in amounts.items()}
