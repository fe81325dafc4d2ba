"""What a call costs, from a maintained price table; never guessed."""

from typing import Any


def cost_of(usage: Any, model: str, provider: str | None, url: str | None) -> float | None:
    """The cost in US dollars of one call, or None where model and provider are not in the table.

    Args:
        usage: pydantic-ai's `RequestUsage`.
        model: as the provider names it.
        provider: its name as pydantic-ai knows it (`openai`, `anthropic`, `google`, …).
        url: where the call went; a server of one's own has no list price, whatever the model is called.
    """
    from genai_prices import calc_price

    if usage.cost is not None:
        return float(usage.cost)
    try:
        if url is not None:
            return float(calc_price(usage, model, provider_api_url=url).total_price)
        return float(calc_price(usage, model, provider_id=provider).total_price) if provider else None
    except (LookupError, ValueError):
        return None
