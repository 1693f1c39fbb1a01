"""The MCP connector: the stand-in calls the MCP servers of a request for real, with `mcp` as its client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from orchestrator.offline.errors import ApiError, invalid
from orchestrator.offline.prompt import Json

_LARGEST_EVENT = 64 * 1024 * 1024
_UNAUTHORISED = frozenset({401, 403})


@dataclass(frozen=True)
class Server:
    """One MCP server of the request: an open client, and the tools it lists (or that were pinned)."""

    name: str
    client: Client
    listing: list[Json]
    enabled: frozenset[str]

    @property
    def tools(self) -> list[Json]:
        return [tool for tool in self.listing if tool["name"] in self.enabled]


@dataclass
class Toolbox:
    """All MCP servers of one request."""

    servers: dict[str, Server] = field(default_factory=dict)
    fresh: list[str] = field(default_factory=list)
    """Servers that were asked for their tools now, and not pinned."""

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any], patience: float) -> Json:
        """Carry out one call; whatever goes wrong inside the loop is a result with `is_error`."""
        found = self.servers.get(server)
        if found is None or tool not in found.enabled:
            return _failed(f"Tool '{tool}' not found on MCP server '{server}'.")
        try:
            result = await found.client.call_tool(tool, dict(arguments), read_timeout_seconds=patience)
        except Exception as error:
            return _failed(f"Error while calling MCP tool '{tool}': {error}")
        # The service passes text on and nothing else: no structured content, no _meta.
        texts = [{"type": "text", "text": each.text} for each in result.content if each.type == "text"]
        return {"is_error": bool(result.is_error), "content": texts}


def _failed(text: str) -> Json:
    return {"is_error": True, "content": [{"type": "text", "text": text}]}


@asynccontextmanager
async def toolbox(body: Json, patience: float) -> AsyncIterator[Toolbox]:
    """Open the MCP servers of a request; one that cannot be reached is a 400, as with the service."""
    toolsets = {tool["mcp_server_name"]: tool for tool in body.get("tools") or () if _is_toolset(tool)}
    known = _earlier_listings(body)
    async with AsyncExitStack() as stack:
        box = Toolbox()
        for wanted in body.get("mcp_servers") or ():
            toolset = toolsets[wanted["name"]]
            known_listing = toolset.get("tools") or known.get(wanted["name"])
            client, listing = await _open(stack, wanted, patience, known_listing)
            if known_listing is None:
                box.fresh.append(wanted["name"])
            enabled = frozenset(tool["name"] for tool in listing if _enabled(tool["name"], toolset))
            box.servers[wanted["name"]] = Server(wanted["name"], client, listing, enabled)
        yield box


def _is_toolset(tool: Json) -> bool:
    return tool.get("type") == "mcp_toolset"


def _enabled(tool: str, toolset: Json) -> bool:
    default = (toolset.get("default_config") or {}).get("enabled", True)
    return bool(((toolset.get("configs") or {}).get(tool) or {}).get("enabled", default))


def _earlier_listings(body: Json) -> dict[str, list[Json]]:
    """Listings that stand in the conversation already; the servers are not asked again."""
    return {
        block["mcp_server_name"]: list(block["tools"])
        for message in body.get("messages") or ()
        if isinstance(message.get("content"), list)
        for block in message["content"]
        if isinstance(block, dict) and block.get("type") == "mcp_tool_listing"
    }


async def _open(
    stack: AsyncExitStack, wanted: Json, patience: float, listing: list[Json] | None
) -> tuple[Client, list[Json]]:
    """Connect; a server whose tools are known already is not asked for them."""
    statuses: list[int] = []

    async def note(response: httpx2.Response) -> None:
        statuses.append(response.status_code)

    token = wanted.get("authorization_token")
    http = httpx2.AsyncClient(
        headers={"Authorization": f"Bearer {token}"} if token else None,
        timeout=httpx2.Timeout(patience, connect=5),
        event_hooks={"response": [note]},
        trust_env=False,  # A proxy of this machine must not stand between two programs on loopback.
    )
    transport = streamable_http_client(wanted["url"], http_client=http, max_sse_event_size=_LARGEST_EVENT)
    try:
        await stack.enter_async_context(http)
        client = await stack.enter_async_context(
            Client(transport, mode="legacy", read_timeout_seconds=patience, cache=None)
        )
        return client, await _tools(client) if listing is None else list(listing)
    except Exception as error:
        raise _unreachable(wanted["name"], statuses) from error


async def _tools(client: Client) -> list[Json]:
    """All tools that the server lists, page by page."""
    found: list[Json] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += [
            {"name": tool.name, "description": tool.description or "", "input_schema": tool.input_schema}
            for tool in page.tools
        ]
        cursor = page.next_cursor
        if cursor is None:
            return found


def _unreachable(name: str, statuses: list[int]) -> ApiError:
    if statuses and statuses[-1] in _UNAUTHORISED:
        return invalid(
            f"Authentication error while communicating with MCP server '{name}'. "
            "Please check your authorization token."
        )
    if statuses and statuses[-1] == 429:
        return invalid(f"Rate limit error while communicating with MCP server '{name}'. (HTTP 429)")
    return invalid(f"Connection error while communicating with MCP server '{name}'.")
