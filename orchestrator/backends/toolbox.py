"""The search servers as the Agent SDK's command line knows them: names, list of tools, words for trouble."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from orchestrator.backends.faults import search_refusal
from orchestrator.errors import McpUnavailable, RunError
from orchestrator.events import ToolInfo, ToolsListed
from orchestrator.settings import Server

LONGEST_NAME: Final = 64
"""Characters of a tool's full name; the service refuses the whole request for one longer name."""
LONGEST_ALIAS: Final = 30


def aliases(servers: Sequence[Server]) -> dict[str, Server]:
    """The servers under names that leave room for a tool's."""
    return {
        server.name if len(server.name) <= LONGEST_ALIAS else f"server{at}": server
        for at, server in enumerate(servers)
    }


def full_name(alias: str, tool: str) -> str:
    """What the engine calls a server's tool: any other character becomes an underscore."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", f"mcp__{alias}__{tool}")


def write_servers(named: Mapping[str, Server], path: Path) -> Path:
    """The servers as a file of the child's own: a command line, keys included, is read by everyone."""
    entries: dict[str, dict[str, Any]] = {}
    for alias, server in named.items():
        if server.type == "stdio":
            env = {name: value.get_secret_value() for name, value in server.env.items()}
            entries[alias] = {
                "type": "stdio",
                "command": server.command,
                "args": list(server.args),
                "env": env,
            }
        else:
            headers = {name: value.get_secret_value() for name, value in server.headers.items()}
            if server.authorization_token is not None:
                headers["Authorization"] = f"Bearer {server.authorization_token.get_secret_value()}"
            entries[alias] = {"type": "http", "url": server.url, "headers": headers}
    path.touch(mode=0o600)
    path.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    return path


@dataclass
class Toolbox:
    """What the servers list, sorted into what may be used and what may not, by full names."""

    names: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Server and tool of each full name that may be used."""
    unwanted: list[str] = field(default_factory=list)
    listed: list[ToolsListed] = field(default_factory=list)

    def add(self, alias: str, server: Server, tools: Sequence[Mapping[str, Any]]) -> None:
        """Sort one server's tools. Raises McpUnavailable when none may be used."""
        infos = tuple(
            ToolInfo(name=tool["name"], description=tool.get("description") or "") for tool in tools
        )
        self.listed.append(ToolsListed(server=server.name, tools=infos))
        before = len(self.names)
        for tool in tools:
            name = full_name(alias, tool["name"])
            read_only = (tool.get("annotations") or {}).get("readOnly")
            wanted = tool["name"] in server.tools if server.tools else read_only
            if wanted and len(name) <= LONGEST_NAME:
                self.names[name] = (server.name, tool["name"])
            else:
                self.unwanted.append(name)
        if len(self.names) == before:
            what = (
                "none of the tools that its notes name"
                if server.tools
                else "no tool that is marked read-only"
            )
            raise McpUnavailable(f"The search server {server.name} lists {what}")


def unavailable(server: str, status: Mapping[str, Any]) -> RunError:
    """Why a server that is not connected cannot be used, in words."""
    said = str(status.get("error") or status.get("status") or "it was not started").rstrip(".")
    if status.get("status") == "needs-auth":
        said = f"unauthorised: {said}"
    return search_refusal(server, said) or McpUnavailable(
        f"The search server {server} cannot be reached: try again, or choose another with --server ({said})"
    )
