"""What went wrong with a provider, in our errors; and which of it is worth another attempt."""

import asyncio
from typing import Any

from pydantic_ai import exceptions as ai

from stepwell.errors import ModelAnswerBroken, ModelRefused, ModelUnavailable, ProviderInvalid, StepwellError
from stepwell.llm.providers import VENDORS, ProviderSpec
from stepwell.redaction import Redactor

_TRANSIENT_STATUS = frozenset({408, 409, 425, 429})


def is_transient(error: BaseException) -> bool:
    """True if the same request may succeed a little later."""
    if isinstance(error, ai.ModelQuotaExceededError):
        return False
    if isinstance(error, ai.ModelHTTPError):
        if error.provider_retry_hint is False:
            return False
        return error.status_code in _TRANSIENT_STATUS or error.status_code >= 500
    return isinstance(
        error, (ai.ModelRateLimitError, ai.ModelUnavailableError, ai.ModelServerError, ai.ModelConnectionError)
    )


def retry_after(error: BaseException) -> float | None:
    """Seconds that the provider asked to wait."""
    wanted = error.retry_after if isinstance(error, ai.ModelAPIError) else None
    return max(wanted, 0.0) if wanted is not None else None


def failure_of(error: Exception, spec: ProviderSpec, redactor: Redactor, attempts: int = 1) -> StepwellError:
    """The error to raise for one of the model layer; keys in it are masked."""
    if isinstance(error, StepwellError):
        return error
    told = redactor.text(_told(error))[:1_000]
    status = error.status_code if isinstance(error, ai.ModelHTTPError) else None
    data: dict[str, Any] = {"provider": spec.name, "model": spec.model, "status": status, "attempts": attempts}
    which = f"the model provider {spec.name!r} ({spec.type}, {spec.model})"
    if is_transient(error):
        asked = retry_after(error)
        hint = None if asked is None else f"it asks to be left alone for {asked:g} s"
        tried = f" after {attempts} attempts" if attempts > 1 else ""
        return ModelUnavailable(f"{which} did not answer{tried}: {told}", hint=hint, retry_after=asked, **data)
    if isinstance(error, ai.ModelAuthenticationError):
        variables = (spec.api_key_env,) if spec.api_key_env else VENDORS[spec.type].key_variables
        named = f": look at {' or '.join(variables)}" if variables else ""
        return ModelRefused(f"{which} refused the API key: {told}", hint=f"the key is wrong{named}", **data)
    if isinstance(error, ai.ModelNotFoundError):
        return ModelRefused(f"{which} was not found: {told}", hint="correct `model` or `base-url`", **data)
    if isinstance(error, ai.ModelContextWindowExceededError):
        return ModelRefused(f"{which}: the input is too long: {told}", hint="send fewer or shorter messages", **data)
    if isinstance(error, (ai.ModelQuotaExceededError, ai.ModelHTTPError, ai.ContentFilterError)):
        return ModelRefused(f"{which} refused the request: {told}", **data)
    if isinstance(error, ai.UserError):
        return ProviderInvalid(f"{which}: {told}", hint="correct the provider in the manifest", provider=spec.name)
    return ModelAnswerBroken(f"{which} sent an answer that cannot be read: {told}", **data)


def truncated(spec: ProviderSpec) -> ModelAnswerBroken:
    """An answer that ended without its end: it must not pass for a short one."""
    return ModelAnswerBroken(
        f"the model provider {spec.name!r} ({spec.type}, {spec.model}) broke its answer off before the end",
        provider=spec.name, model=spec.model,
    )  # fmt: skip


def _told(error: Exception) -> str:
    body = error.body if isinstance(error, ai.ModelAPIError) else None
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict) and isinstance(inner.get("message"), str):
            status = f"{error.status_code} " if isinstance(error, ai.ModelHTTPError) else ""
            return f"{status}{inner['message']}"
    if isinstance(error, asyncio.TimeoutError) and not str(error):
        return "timed out"
    return str(error) or type(error).__name__
