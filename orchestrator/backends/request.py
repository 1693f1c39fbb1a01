"""The fragments of a Messages API request with the MCP connector: pure functions from settings to JSON.

Any script that calls `client.beta.messages` can hold them; nothing in here knows of a run.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final

from orchestrator.settings import Server

Json = dict[str, Any]
Feature = tuple[str, Json]
"""The beta header that something needs, and the fields of the request that it is."""

OLDER_MCP_BETA: Final = "mcp-client-2025-11-20"
"""What a service that does not know the newer header may still know."""
CLEARING_BETA: Final = "context-management-2025-06-27"
FALLBACK_BETA: Final = "server-side-fallback-2026-07-01"
THINKING_COUNT_BETA: Final = "thinking-token-count-2026-05-13"
"""Hidden thinking is billed and not streamed: with it the stream says roughly how much there was."""
CACHED: Final[Json] = {"type": "ephemeral"}
"""The mark of a cache breakpoint; at the top level, the service moves one along by itself."""
CALLS: Final = frozenset({"mcp_tool_use", "server_tool_use"})
THINKING: Final = frozenset({"thinking", "redacted_thinking"})


def mcp_server(server: Server) -> Json:
    """An entry of `mcp_servers`: the connector takes an address and a bearer token and nothing else."""
    entry: Json = {"type": "url", "name": server.name, "url": server.url}
    if server.authorization_token is not None:
        entry["authorization_token"] = server.authorization_token.get_secret_value()
    return entry


def mcp_toolset(server: str, allowed: Iterable[str]) -> Json:
    """An entry of `tools`: these tools of one server and no others."""
    return {
        "type": "mcp_toolset",
        "mcp_server_name": server,
        "default_config": {"enabled": False},
        "configs": {tool: {"enabled": True} for tool in allowed},
    }


def cached_system(text: str) -> list[Json]:
    """A system prompt whose bytes, and those of the tools before it, are kept in the prompt cache."""
    return [{"type": "text", "text": text, "cache_control": CACHED}]


def clearing(trigger: int, keep: int, at_least: int) -> Json:
    """`context_management` that clears old tool results on the service's side.

    `trigger` and `at_least` are input tokens, `keep` counts tool results.
    """
    edit: Json = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": trigger},
        "keep": {"type": "tool_uses", "value": keep},
    }
    if at_least:
        edit["clear_at_least"] = {"type": "input_tokens", "value": at_least}
    return {"edits": [edit]}


def with_features(body: Json, features: Iterable[Feature], refused: Container[str] = ()) -> Json:
    """The request with each feature's fields and beta, but for the betas that the service refuses."""
    kept = [(beta, fields) for beta, fields in features if beta not in refused]
    whole = dict(body)
    for _, fields in kept:
        whole |= fields
    return whole | {"betas": [beta for beta, _ in kept]}


def user(text: str) -> Json:
    """A user message."""
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def complete(content: Sequence[Json]) -> list[Json]:
    """Assistant content that a user message may follow.

    Calls without a result are dropped where the response ends with them, then the thinking before them;
    empty texts too. What stays is as it came.
    """
    answered = {block.get("tool_use_id") for block in content}
    kept = [block for block in content if block.get("type") != "text" or block.get("text")]
    while kept and (kept[-1].get("type") in THINKING or _is_open(kept[-1], answered)):
        kept.pop()
    return kept


def _is_open(block: Mapping[str, Any], answered: set[Any]) -> bool:
    return block.get("type") in CALLS | {"tool_use"} and block.get("id") not in answered


def json_bytes(value: Any) -> int:
    """UTF-8 bytes of the value as JSON."""
    return len(json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace"))
