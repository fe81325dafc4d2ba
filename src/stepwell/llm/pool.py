"""The models of a process: made when first used, their connections shared by all runs of an event loop."""

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepwell.errors import InvalidArgument, ProviderInvalid
from stepwell.llm.providers import ProviderSpec, api_key
from stepwell.redaction import Redactor

if TYPE_CHECKING:
    from pydantic_ai.models import Model

CONNECT_SECONDS = 10.0


class ModelPool:
    """Makes models and keeps them until it is closed.

    Args:
        redactor: learns every key that is read, before it is used.
    """

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor
        self._models: dict[ProviderSpec, tuple[Model, str | None]] = {}
        self._clients: list[Any] = []

    async def model(self, spec: ProviderSpec, environ: Mapping[str, str] = os.environ) -> "Model":
        """The model of a provider.

        Raises:
            ProviderInvalid: its key, or the package that speaks to it, is missing.
        """
        key = api_key(spec, environ)
        if key is not None:
            self.redactor.add(key)
        known = self._models.get(spec)
        if known is not None and known[1] == key:
            return known[0]
        # The first import of a vendor's package takes a second: not on the event loop.
        await asyncio.to_thread(_load, spec)
        model = self._make(spec, key)
        self._models[spec] = (model, key)
        return model

    def _make(self, spec: ProviderSpec, key: str | None) -> "Model":
        if spec.type == "test":
            from pydantic_ai.models.test import TestModel

            return TestModel(custom_output_text=spec.text, model_name=spec.model)
        import httpx2
        from pydantic_ai.models import create_async_httpx2_client

        client = create_async_httpx2_client(timeout=httpx2.Timeout(spec.timeout, connect=CONNECT_SECONDS))
        self._clients.append(client)
        url = spec.base_url
        if spec.type == "anthropic":
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            return AnthropicModel(spec.model, provider=AnthropicProvider(api_key=key, base_url=url, http_client=client))
        if spec.type == "google":
            from pydantic_ai.models.google import GoogleModel
            from pydantic_ai.providers.google import GoogleProvider

            return GoogleModel(spec.model, provider=GoogleProvider(api_key=key, base_url=url, http_client=client))
        from pydantic_ai.models.openai import OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        from stepwell.llm.chat_completions import ChatModel

        if spec.type == "openai":
            return OpenAIResponsesModel(
                spec.model, provider=OpenAIProvider(base_url=url, api_key=key, http_client=client)
            )
        if spec.type == "openai-chat":
            return ChatModel(spec.model, provider=OpenAIProvider(base_url=url, api_key=key, http_client=client))
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        return ChatModel(
            spec.model,
            provider=OpenAICompatibleProvider(spec.name, base_url=url or "", api_key=key, http_client=client),
        )

    async def close(self) -> None:
        """Close every connection."""
        clients, self._clients, self._models = self._clients, [], {}
        for client in clients:
            await client.aclose()


def spec_of(model: Any) -> ProviderSpec:
    """What stands for a model that a program brings along.

    Raises:
        InvalidArgument: it is none of pydantic-ai.
    """
    from pydantic_ai.models import Model

    if not isinstance(model, Model):
        raise InvalidArgument(
            f"a model is named by text, or is one of pydantic-ai, not {type(model).__name__}", argument="name"
        )
    return ProviderSpec(model.system, "test", model.model_name)


def _load(spec: ProviderSpec) -> None:
    module = {"anthropic": "anthropic", "google": "google", "test": "test"}.get(spec.type, "openai")
    try:
        __import__(f"pydantic_ai.models.{module}")
    except ImportError as error:
        raise ProviderInvalid(
            f"the model provider {spec.name!r} needs a package that is not installed: {error.name or error}",
            hint="install it: pip install 'stepwell[llm]'",
            provider=spec.name,
        ) from None
