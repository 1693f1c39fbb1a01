"""The SDK's errors in our words, and the attempts that it makes by itself."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import anthropic
import httpx2

from orchestrator.backends.faults import Fault, Service, explain, rate_limited
from orchestrator.backends.messages import encodable
from orchestrator.errors import BackendError

PATIENCE_SECONDS: Final = 20.0
"""The longest Retry-After that is waited for; above it the error names the wait."""


@contextmanager
def translated(service: Service) -> Iterator[None]:
    """Turn what the SDK raises into our errors; ours pass through."""
    try:
        yield
    except anthropic.APIStatusError as error:
        raise explain(fault(error), service) from error
    except anthropic.APIConnectionError as error:
        raise BackendError(_unreachable(error, service)) from error
    except httpx2.TransportError as error:
        raise BackendError(broken_off(service, f" ({type(error).__name__}: {error})")) from error
    except (anthropic.AnthropicError, ValueError, TypeError) as error:
        raise BackendError(
            f"{service.name} sent something unreadable ({type(error).__name__}: {error})"
        ) from error


def impatient(
    service: Service,
) -> Callable[[Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]:
    """SDK middleware that does not wait for a far Retry-After: the SDK would, for hours."""

    async def handle(call: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        response = await call_next(call)
        wait = _seconds(response.headers.get("retry-after"))
        if response.status_code == 429 and wait is not None and wait > PATIENCE_SECONDS:
            raise rate_limited(service.name, wait)
        return response

    return handle


def attentive(
    lost: Callable[[], None],
) -> Callable[[Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]:
    """SDK middleware that notes each attempt that may be billed without an answer: the SDK repeats it."""

    async def handle(call: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        try:
            return await call_next(call)
        except anthropic.APIConnectionError as error:
            if not isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout):
                lost()
            raise

    return handle


def _seconds(header: str | None) -> float | None:
    try:
        return float(header) if header else None
    except ValueError:
        return None


def fault(error: anthropic.APIStatusError) -> Fault:
    body = error.body if isinstance(error.body, Mapping) else {}
    inner = body.get("error")
    message = inner.get("message") if isinstance(inner, Mapping) else None
    return Fault(
        status=error.status_code,
        type=error.type,
        message=str(encodable(message or error.message)),
        retry_after=_seconds(error.response.headers.get("retry-after")),
    )


def broken_off(service: Service, why: str = "") -> str:
    return f"{service.name} broke off its answer; go on with resume{why}"


def _unreachable(error: BaseException, service: Service) -> str:
    """Words for a connection that failed, from the deepest cause that says something."""
    cause = error
    while cause.__cause__ or cause.__context__:
        cause = cause.__cause__ or cause.__context__ or cause
    if isinstance(cause, ssl.SSLError):
        remedy = "behind an inspecting proxy, SSL_CERT_FILE must name its certificate"
    elif isinstance(error, anthropic.APITimeoutError):
        remedy = "it did not answer in time; try again later with resume"
    else:
        remedy = "check ANTHROPIC_BASE_URL, the network and the proxy"
    return f"{service.base_url} cannot be reached: {remedy} ({type(cause).__name__}: {cause})"
