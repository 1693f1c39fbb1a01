"""What the Messages API says when it cannot answer, as our errors, in words with a remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.errors import (
    BackendError,
    LimitExceeded,
    McpUnavailable,
    RateLimited,
    Refused,
    RunError,
)
from orchestrator.settings import ANTHROPIC_URL

_MCP: Final = re.compile(r"mcp server", re.I)
_MCP_NAME: Final = re.compile(r"mcp server '([^']+)'", re.I)
_UNAUTHORISED: Final = re.compile(
    r"authenticat|authori[sz]|forbidden|oauth|client registration|\b40[13]\b", re.I
)
_UNPAID: Final = re.compile(r"\b402\b|credit", re.I)
_LIMITED: Final = re.compile(r"rate.limit|too many requests|\b429\b", re.I)
_NO_CONNECTOR: Final = re.compile(r"mcp_servers|mcp_toolset|mcp-client|\bmcp\b", re.I)
_TOO_LONG: Final = re.compile(r"prompt is too long(?:\D*(\d+)\D+(\d+))?", re.I)
_BETA_REFUSED: Final = re.compile(r"anthropic-beta", re.I)


@dataclass(frozen=True)
class Fault:
    """One error answer: the HTTP status, or 200 where it came inside a stream; the error's type and text."""

    status: int
    type: str | None
    message: str
    retry_after: float | None = None
    """Seconds."""


@dataclass(frozen=True)
class Service:
    """Who was asked: for the words of an error."""

    base_url: str
    model: str
    servers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "The model service" if self.base_url == ANTHROPIC_URL else f"The service at {self.base_url}"


def refused_betas(fault: Fault, sent: tuple[str, ...]) -> frozenset[str]:
    """The beta names that this error says the service does not know."""
    if fault.status != 400 or not _BETA_REFUSED.search(fault.message):
        return frozenset()
    return frozenset(beta for beta in sent if beta in fault.message)


def explain(fault: Fault, service: Service) -> RunError:
    """The error that ends the run, or (a limit) the loop."""
    said = fault.message.strip().rstrip(".")
    if too_long := _TOO_LONG.search(said):
        return context_exceeded(*too_long.groups())
    if fault.status == 413 or fault.type == "request_too_large":
        return context_exceeded()
    if _MCP.search(said):
        return _mcp(fault, said, service)
    if fault.status == 429 or fault.type == "rate_limit_error":
        return rate_limited(service.name, fault.retry_after)
    return BackendError(_words(fault, said, service))


def _words(fault: Fault, said: str, service: Service) -> str:
    if fault.status in (401, 403) or fault.type in ("authentication_error", "permission_error"):
        return f"{service.name} refused the key: check ANTHROPIC_API_KEY ({said})"
    if fault.status == 402 or fault.type == "billing_error" or "credit balance" in said:
        return f"{service.name} wants payment first: {said}"
    if fault.status >= 500 or fault.type in ("overloaded_error", "api_error", "timeout_error"):
        return f"{service.name} is overloaded or failing; try again later with resume ({said})"
    if fault.status in (404, 405):
        return _not_there(said, service)
    if _NO_CONNECTOR.search(said):
        return f"{service.name} has no MCP connector: use --backend agent-sdk ({said})"
    return f"{service.name} refused the request ({fault.type or fault.status}): {said}"


def _not_there(said: str, service: Service) -> str:
    if service.model in said:
        return f"{service.name} does not know the model {service.model}: choose another --model"
    return f"{service.name} has no Messages API there: check ANTHROPIC_BASE_URL ({said[:200]})"


def stopped(reason: str | None, details: Mapping[str, Any], max_tokens: int) -> RunError | None:
    """The error that a stop reason means; None for an ordinary ending, and for one that nobody knows."""
    match reason:
        case "max_tokens":
            return LimitExceeded(
                "max_tokens",
                max_tokens,
                max_tokens,
                f"the answer was cut at {max_tokens} output tokens;"
                " raise --max-output-tokens, or --max-usd where that lowered it",
            )
        case "model_context_window_exceeded":
            return context_exceeded()
        case "refusal":
            category = details.get("category")
            why = details.get("explanation") or "it gave no reason"
            said = f"The model declined to answer ({category or 'no category'}): {why}"
            return Refused(f"{said.rstrip('.')}; ask in other words", category)
        case "tool_use":
            return BackendError("The model called a tool that nobody offered it; ask again")
    return None


def rate_limited(who: str, retry_after: float | None) -> RateLimited:
    wait = f"in {retry_after:.0f} s" if retry_after else "later"
    return RateLimited(f"{who} limits the rate of requests; go on {wait} with resume", retry_after)


def context_exceeded(value: str | None = None, ceiling: str | None = None) -> LimitExceeded:
    return LimitExceeded(
        "context",
        float(value) if value else "more than fits",
        float(ceiling) if ceiling else None,
        "the conversation no longer fits into the model's context window; ask a narrower question",
    )


def _mcp(fault: Fault, said: str, service: Service) -> RunError:
    named = _MCP_NAME.search(said)
    name = named[1] if named else " or ".join(service.servers)
    return search_refusal(name, said, fault.retry_after) or McpUnavailable(
        f"The search server {name} cannot be reached from the model service: try again, choose another"
        f" with --server, or use --backend agent-sdk ({said})"
    )


def search_refusal(server: str, said: str, retry_after: float | None = None) -> RunError | None:
    """What a search server's own words mean: its rate limit, its key, its price; None for anything else."""
    if _LIMITED.search(said):
        return rate_limited(f"The search server {server}", retry_after)
    if _UNPAID.search(said):
        return McpUnavailable(f"The search server {server} wants payment first ({said})")
    if _UNAUTHORISED.search(said):
        return McpUnavailable(
            f"The search server {server} refused its key: check it (PARALLEL_API_KEY for Parallel's),"
            f" or unset it where the server works without ({said})"
        )
    return None
