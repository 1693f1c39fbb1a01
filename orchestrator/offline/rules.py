"""What the service refuses, and the words it does so in: one small check per rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from orchestrator.offline import models
from orchestrator.offline.betas import BETAS
from orchestrator.offline.errors import ApiError, invalid
from orchestrator.offline.prompt import Json, blocks
from orchestrator.offline.request import Request

_FIELDS: Final = frozenset(
    re.findall(
        r"\w+",
        """
        model messages max_tokens system tools tool_choice thinking stream metadata stop_sequences
        service_tier cache_control container context_management mcp_servers output_config
        inference_geo speed fallbacks compaction diagnostics billing_policy fallback_credit_token
        thread
        """,
    )
)
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
_TASK_BUDGET_MINIMUM: Final = 20_000
_BREAKPOINTS: Final = 4
_ROLES: Final = ("user", "assistant", "system")
_SYSTEM_TURNS: Final = ("mid-conversation-system", "mid-conversation-tool-changes", "per-turn-control")
"""Betas under which instructions may stand between the messages."""
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")


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
    if not isinstance(body, dict):
        raise invalid("The request body is not a JSON object.")
    for name in ("model", "messages", *(() if counting else ("max_tokens",))):
        if name not in body:
            raise invalid(f"{name}: Field required")
    for name in body:
        if name in _SAMPLING and version == NEWEST_VERSION:
            raise invalid(
                f"`{name}` is not supported on this API version. Please remove it from your request."
            )
        if name not in (*_FIELDS, *_SAMPLING) or (
            name in _NEEDED_BETA and not betas & set(_NEEDED_BETA[name])
        ):
            raise invalid(f"{name}: Extra inputs are not permitted")
    model = models.find(str(body["model"]))
    if model is None:
        raise ApiError(404, f"model: {body['model']}")
    if not counting:
        _check_max_tokens(body["max_tokens"], model)
    return model


def _check_max_tokens(value: Any, model: models.Model) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise invalid("max_tokens: Input should be a valid integer")
    if value < 1:
        raise invalid("max_tokens: Input should be greater than or equal to 1")
    if value > model.max_output:
        raise invalid(
            f"max_tokens: {value} > {model.max_output}, which is the maximum allowed number of output tokens "
            f"for {model.id}"
        )


def check(request: Request) -> None:
    """Every rule that needs no more than the request itself."""
    for rule in _RULES:
        rule(request)


def _thinking(request: Request) -> None:
    told = request.body.get("thinking")
    if told is None:
        return
    kind = told.get("type") if isinstance(told, dict) else None
    if kind not in ("enabled", "disabled", "adaptive", "between_tools"):
        raise invalid("thinking.type: Input should be 'adaptive', 'between_tools', 'disabled' or 'enabled'")
    if request.model.must_think and kind != "adaptive":
        raise invalid(f"thinking.type: `{kind}` is not supported on {request.model.id}. Use `adaptive`.")
    if kind == "enabled" and int(told.get("budget_tokens") or 0) < 1_024:
        raise invalid("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")


def _tool_choice(request: Request) -> None:
    choice = request.body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in ("auto", "any", "tool", "none"):
        raise invalid("tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'")
    if not request.body.get("tools") and kind != "none":
        raise invalid("tool_choice: may only be specified while providing tools")
    if request.model.chooses_freely and kind in ("any", "tool"):
        raise invalid(f"tool_choice: `{kind}` is not supported on {request.model.id}. Use `auto` or `none`.")


def _output_config(request: Request) -> None:
    config = request.body.get("output_config") or {}
    if config.get("effort") not in (None, *_EFFORTS):
        raise invalid("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
    budget = config.get("task_budget")
    if budget is None:
        return
    if _TASK_BUDGET_BETA not in request.betas:
        raise invalid("output_config.task_budget: Extra inputs are not permitted")
    if not request.model.task_budget:
        raise invalid(f"output_config.task_budget: not supported on {request.model.id}")
    if int(budget.get("total") or 0) < _TASK_BUDGET_MINIMUM:
        raise invalid("output_config.task_budget.total: Input should be greater than or equal to 20000")


def _structured(request: Request) -> None:
    if not (request.body.get("output_config") or {}).get("format"):
        return
    for where, block in _content(request.body):
        for inner in (block, *blocks(block.get("content") if block.get("type") == "tool_result" else None)):
            if inner.get("type") in ("document", "search_result") and (inner.get("citations") or {}).get(
                "enabled"
            ):
                raise invalid(f"{where}: citations cannot be enabled together with output_config.format")


def _fallbacks(request: Request) -> None:
    told = request.body.get("fallbacks")
    if told is None or told == "default":
        if told == "default" and "server-side-fallback-2026-07-01" not in request.betas:
            raise invalid("fallbacks: Input should be a valid list")
        return
    if not isinstance(told, list):
        raise invalid("fallbacks: Input should be 'default' or a valid list")
    if not request.model.fallbacks:
        raise invalid(f"fallbacks: not supported on {request.model.id}")
    for index, entry in enumerate(told):
        if models.find(str(entry.get("model"))) is None:
            raise invalid(f"fallbacks.{index}.model: {entry.get('model')} is not an allowed fallback model")


def _speed(request: Request) -> None:
    if request.body.get("speed") == "fast" and not request.model.fast:
        raise invalid(f"speed: `fast` is not supported on {request.model.id}")


def _mcp(request: Request) -> None:
    """Each server has exactly one toolset, and each toolset a server."""
    names = [server.get("name") for server in request.body.get("mcp_servers") or ()]
    sets = [
        t.get("mcp_server_name") for t in request.body.get("tools") or () if t.get("type") == "mcp_toolset"
    ]
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
    for index, server in enumerate(request.body.get("mcp_servers") or ()):
        if server.get("type") != "url" or not str(server.get("url", "")).startswith(("https://", "http://")):
            raise invalid(f"mcp_servers.{index}.url: Input should be a valid URL")


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
    if not isinstance(messages, list) or not messages:
        raise invalid("messages: at least one message is required")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise invalid(f"messages.{index}.role: Input should be 'user' or 'assistant'")
        if message["role"] == "system" and not any(beta.startswith(_SYSTEM_TURNS) for beta in request.betas):
            raise invalid(f"messages.{index}.role: Input should be 'user' or 'assistant'")
        if not message.get("content") and not (message["role"] == "assistant" and index == len(messages) - 1):
            raise invalid(f"messages.{index}: all messages must have non-empty content")
    if messages[0]["role"] != "user":
        raise invalid('messages: first message must use the "user" role')


def _text(request: Request) -> None:
    for place, block in (
        *((f"system.{i}", b) for i, b in enumerate(blocks(request.body.get("system")))),
        *_content(request.body),
    ):
        if block.get("type") == "text" and not str(block.get("text") or ""):
            raise invalid(f"{place}: text content blocks must be non-empty")
        if block.get("type") == "text" and not str(block["text"]).strip():
            raise invalid(f"{place}: text content blocks must contain non-whitespace text")


def _placement(request: Request) -> None:
    """Documents do not stand in assistant messages, nor citations in what the user says."""
    if request.version != NEWEST_VERSION:
        return
    for place, block in _content(request.body):
        role = request.body["messages"][int(place.split(".")[1])]["role"]
        if role == "assistant" and block.get("type") == "document":
            raise invalid(f"{place}: `document` blocks are not supported in assistant messages")
        if role == "user":
            inner = (
                blocks(block.get("content")) if block.get("type") in ("tool_result", "search_result") else []
            )
            deep = [
                b
                for each in inner
                if each.get("type") == "search_result"
                for b in blocks(each.get("content"))
            ]
            for each in (block, *inner, *deep):
                if each.get("type") == "text" and each.get("citations"):
                    raise invalid(
                        f"{place}: `text` blocks in user messages must not have non-empty `citations`"
                    )


def _content(body: Json) -> Iterator[tuple[str, Json]]:
    """All content blocks of the messages with their place."""
    for index, message in enumerate(body["messages"]):
        for position, block in enumerate(blocks(message.get("content"))):
            yield f"messages.{index}.content.{position}", block


_RULES: Final[tuple[Callable[[Request], None], ...]] = (
    _messages,
    _thinking,
    _tool_choice,
    _output_config,
    _structured,
    _fallbacks,
    _speed,
    _mcp,
    _breakpoints,
    _text,
    _placement,
)
