"""What the service refuses, and the words it does so in: one small check per rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from orchestrator.offline import models, schema
from orchestrator.offline.betas import BETAS
from orchestrator.offline.errors import ApiError, invalid
from orchestrator.offline.prompt import Json, blocks
from orchestrator.offline.request import Request

NEWEST_VERSION: Final = "2026-10-21"
_VERSIONS: Final = ("2023-01-01", "2023-06-01", NEWEST_VERSION)
_SAMPLING: Final = ("temperature", "top_p", "top_k")
_NEEDED_BETA: Final = {
    "mcp_servers": ("mcp-client-2025-04-04", "mcp-client-2025-11-20", "mcp-client-2026-09-15"),
    "context_management": ("context-management-2025-06-27", "compact-2026-01-12"),
    "fallbacks": ("server-side-fallback-2026-06-01", "server-side-fallback-2026-07-01"),
    "compaction": ("compact-2026-09-04",),
    "diagnostics": ("cache-diagnosis-2026-04-07",),
    "thread": ("message-threads-2026-08-12",),
}
_TASK_BUDGET_BETA: Final = "task-budgets-2026-03-13"
_BREAKPOINTS: Final = 4
_SYSTEM_TURNS: Final = ("mid-conversation-system", "mid-conversation-tool-changes", "per-turn-control")
"""Betas under which instructions may stand between the messages."""


def check_betas(header: str, refused: tuple[str, ...]) -> frozenset[str]:
    """The beta names of the header, all of them known and enabled."""
    names = [name.strip() for name in header.split(",") if name.strip()]
    unknown = [name for name in names if name not in BETAS or name in refused]
    if unknown:
        listed = ", ".join(f"`{name}`" for name in unknown)
        raise invalid(
            f"Unexpected value(s) {listed} for the `anthropic-beta` header. Please consult our "
            "documentation at platform.claude.com/docs or try again without the header."
        )
    return frozenset(names)


def check_version(header: str | None) -> str:
    """The API version that a request was written for; some refusals came with a later one."""
    if header is None:
        raise invalid("anthropic-version: header is required")
    if header not in _VERSIONS:
        raise invalid(f'anthropic-version: "{header}" is not a valid version')
    return header


def check_shape(body: Any, betas: frozenset[str], version: str, *, counting: bool = False) -> models.Model:
    """Fields and their types; the model that is asked for."""
    schema.check(body, counting=counting)
    for name in body:
        if name in _SAMPLING and version == NEWEST_VERSION:
            raise invalid(
                f"`{name}` is not supported on this API version. Please remove it from your request."
            )
        if name in _NEEDED_BETA and not betas & set(_NEEDED_BETA[name]):
            raise invalid(f"{name}: Extra inputs are not permitted")
    model = models.find(body["model"])
    if model is None:
        raise ApiError(404, f"model: {body['model']}")
    if not counting and body["max_tokens"] > model.max_output:
        raise invalid(
            f"max_tokens: {body['max_tokens']} > {model.max_output}, which is the maximum allowed number of "
            f"output tokens for {model.id}"
        )
    return model


def check(request: Request) -> None:
    """Every rule that needs no more than the request itself."""
    for rule in _RULES:
        rule(request)


def _thinking(request: Request) -> None:
    kind = request.thinking["type"]
    if request.model.must_think and kind != "adaptive":
        raise invalid(f"thinking.type: `{kind}` is not supported on {request.model.id}. Use `adaptive`.")


def _tool_choice(request: Request) -> None:
    kind = (request.body.get("tool_choice") or {}).get("type")
    if kind not in (None, "none") and not request.body.get("tools"):
        raise invalid("tool_choice: may only be specified while providing tools")
    if request.model.chooses_freely and kind in ("any", "tool"):
        raise invalid(f"tool_choice: `{kind}` is not supported on {request.model.id}. Use `auto` or `none`.")


def _task_budget(request: Request) -> None:
    if (request.body.get("output_config") or {}).get("task_budget") is None:
        return
    if _TASK_BUDGET_BETA not in request.betas:
        raise invalid("output_config.task_budget: Extra inputs are not permitted")
    if not request.model.task_budget:
        raise invalid(f"output_config.task_budget: not supported on {request.model.id}")


def _structured(request: Request) -> None:
    if not (request.body.get("output_config") or {}).get("format"):
        return
    for place, block in _content(request.body):
        if any((each.get("citations") or {}).get("enabled") for each in _nested(block) if _is_citable(each)):
            raise invalid(f"{place}: citations cannot be enabled together with output_config.format")


def _is_citable(block: Json) -> bool:
    return block.get("type") in ("document", "search_result")


def _nested(block: Json) -> Iterator[Json]:
    """A block and those inside it: of a tool result, of a search result."""
    yield block
    if block.get("type") in ("tool_result", "search_result"):
        for inner in blocks(block.get("content")):
            yield from _nested(inner)


def _fallbacks(request: Request) -> None:
    told = request.body.get("fallbacks")
    if told == "default" and "server-side-fallback-2026-07-01" not in request.betas:
        raise invalid("fallbacks: Input should be a valid list")
    if not isinstance(told, list):
        return
    if not request.model.fallbacks:
        raise invalid(f"fallbacks: not supported on {request.model.id}")
    for index, entry in enumerate(told):
        if models.find(entry["model"]) is None:
            raise invalid(f"fallbacks.{index}.model: {entry['model']} is not an allowed fallback model")


def _speed(request: Request) -> None:
    if request.body.get("speed") == "fast" and not request.model.fast:
        raise invalid(f"speed: `fast` is not supported on {request.model.id}")


def _mcp(request: Request) -> None:
    """Each server has exactly one toolset, and each toolset a server."""
    names = [server["name"] for server in request.body.get("mcp_servers") or ()]
    tools = request.body.get("tools") or ()
    sets = [tool["mcp_server_name"] for tool in tools if tool.get("type") == "mcp_toolset"]
    for name in names:
        if names.count(name) > 1:
            raise invalid(f"mcp_servers: MCP server names must be unique. Found duplicate: '{name}'")
        if sets.count(name) != 1:
            raise invalid(
                f"MCP server '{name}' must be referenced by exactly one mcp_toolset in tools, "
                f"found {sets.count(name)}"
            )
    for name in sets:
        if name not in names:
            raise invalid(f"mcp_toolset: MCP server '{name}' is not defined in mcp_servers")


def _breakpoints(request: Request) -> None:
    marks = sum(1 for _ in _marks(request.body))
    if marks > _BREAKPOINTS:
        raise invalid(
            f"A maximum of {_BREAKPOINTS} blocks with cache_control may be provided. Found {marks}."
        )


def _marks(body: Json) -> Iterator[Json]:
    if body.get("cache_control"):
        yield body
    for block in (*(body.get("tools") or ()), *blocks(body.get("system"))):
        if block.get("cache_control"):
            yield block
    for _, block in _content(body):
        if block.get("cache_control"):
            yield block


def _messages(request: Request) -> None:
    messages = request.body["messages"]
    for index, message in enumerate(messages):
        if message["role"] == "system" and not any(beta.startswith(_SYSTEM_TURNS) for beta in request.betas):
            raise invalid(f"messages.{index}.role: Input should be 'user' or 'assistant'")
        if not message["content"] and not (message["role"] == "assistant" and index == len(messages) - 1):
            raise invalid(f"messages.{index}: all messages must have non-empty content")
    if messages[0]["role"] != "user":
        raise invalid('messages: first message must use the "user" role')


def _text(request: Request) -> None:
    system = ((f"system.{index}", block) for index, block in enumerate(blocks(request.body.get("system"))))
    for place, block in (*system, *_content(request.body)):
        if block["type"] == "text" and not block["text"]:
            raise invalid(f"{place}: text content blocks must be non-empty")
        if block["type"] == "text" and not block["text"].strip():
            raise invalid(f"{place}: text content blocks must contain non-whitespace text")


def _placement(request: Request) -> None:
    """Documents do not stand in assistant messages, nor citations in what the user says."""
    if request.version != NEWEST_VERSION:
        return
    for place, block in _content(request.body):
        role = request.body["messages"][int(place.split(".")[1])]["role"]
        if role == "assistant" and block["type"] == "document":
            raise invalid(f"{place}: `document` blocks are not supported in assistant messages")
        cited = any(each.get("type") == "text" and each.get("citations") for each in _nested(block))
        if role == "user" and cited:
            raise invalid(f"{place}: `text` blocks in user messages must not have non-empty `citations`")


def _content(body: Json) -> Iterator[tuple[str, Json]]:
    """All content blocks of the messages with their place."""
    for index, message in enumerate(body["messages"]):
        for position, block in enumerate(blocks(message.get("content"))):
            yield f"messages.{index}.content.{position}", block


_RULES: Final[tuple[Callable[[Request], None], ...]] = (
    _messages,
    _thinking,
    _tool_choice,
    _task_budget,
    _structured,
    _fallbacks,
    _speed,
    _mcp,
    _breakpoints,
    _text,
    _placement,
)
