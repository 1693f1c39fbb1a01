"""What the Agent SDK's command line is told besides the question: environment, servers, session files.

Nothing here imports the SDK. What its process may do is decided here alone: nothing is inherited that
could send the question elsewhere, join a file to it, or make a request that nobody asked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from orchestrator.backends import RunContext
from orchestrator.backends.faults import Fault, Service, explain, rate_limited
from orchestrator.budget import REMEDY
from orchestrator.errors import BackendError, LimitExceeded, McpUnavailable, RunError
from orchestrator.events import Checkpoint, ToolInfo, ToolsListed
from orchestrator.settings import Server

CONNECT_SECONDS: Final = 30.0
"""How long the search servers may take until they are connected."""
CALL_SECONDS: Final = 60.0
"""How long a call may take where the server's notes say nothing."""
LONGEST_NAME: Final = 64
"""Characters of a tool's full name; the service refuses the whole request for one longer name."""

QUIET: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DO_NOT_TRACK": "1",
    # the question is data: no file, skill or memory joins it
    "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
    "CLAUDE_CODE_DISABLE_BUNDLED_SKILLS": "1",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    # our servers only, their tools offered from the first pass on, every call awaited, results whole
    "ENABLE_CLAUDEAI_MCP_SERVERS": "false",
    "ENABLE_TOOL_SEARCH": "false",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS": "0",
    "MAX_MCP_OUTPUT_TOKENS": "1000000",
    # no request that nobody asked for
    "CLAUDE_CODE_DISABLE_REFUSAL_RETRY": "1",
    "CLAUDE_CODE_DISABLE_REFUSAL_FALLBACK": "1",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    "DISABLE_COMPACT": "1",
    "CLAUDE_CODE_MAX_RETRIES": "2",
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
}
_REDIRECTING: Final = re.compile(
    r"(ANTHROPIC|CLAUDE|MCP|MAX|API|DISABLE|ENABLE|AWS_BEARER)_|\w+_API_KEY$", re.IGNORECASE
)
_PLAIN_NAME: Final = re.compile(r"(?!.*__)[A-Za-z0-9-][A-Za-z0-9_-]{0,28}[A-Za-z0-9-]?")
_UNAUTHORISED: Final = re.compile(r"\b40[13]\b|unauthori[sz]ed|forbidden|oauth|client registration", re.I)
_UNPAID: Final = re.compile(r"\b402\b|credit", re.I)
_NEVER_SENT: Final = re.compile(r"ECONNREFUSED|ENOTFOUND|EAI_AGAIN|certificate", re.I)
_LIMITED: Final = re.compile(r"\b429\b|too many requests|rate.limit", re.I)
_TRUST: Final = re.compile(r"CLAUDE_CODE_(CERT_STORE|CLIENT_\w+)$")


def environment(context: RunContext, home: Path, max_tokens: int) -> dict[str, str]:
    """What is set over the environment that the child inherits; proxies and certificates stay as they are."""
    inherited = os.environ
    # an empty variable counts as unset; leaving it out would let the inherited one through
    emptied = {name: "" for name in inherited if _REDIRECTING.match(name) and not _TRUST.match(name)}
    bundle = inherited.get("SSL_CERT_FILE") or inherited.get("REQUESTS_CA_BUNDLE")
    trusted = {"NODE_EXTRA_CA_CERTS": bundle} if bundle and "NODE_EXTRA_CA_CERTS" not in inherited else {}
    options = context.options
    seconds = min(CONNECT_SECONDS, options.limits.max_seconds or CONNECT_SECONDS)
    patience = [notes.timeout_seconds for server in context.servers for notes in server.tools.values()]
    return {
        **emptied,
        **trusted,
        **QUIET,
        "ANTHROPIC_BASE_URL": options.anthropic_base_url,
        "ANTHROPIC_API_KEY": _key(context),
        "CLAUDE_CONFIG_DIR": str(home),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(max_tokens),
        "MCP_TIMEOUT": str(int(seconds * 1000)),
        "MCP_TOOL_TIMEOUT": str(int(max(patience, default=CALL_SECONDS) * 1000)),
    }


def _key(context: RunContext) -> str:
    key = context.options.anthropic_api_key
    return key.get_secret_value() if key else ""


def aliases(servers: Sequence[Server]) -> dict[str, Server]:
    """The servers under names that read back unambiguously and leave room for a tool's name."""
    return {
        server.name if _PLAIN_NAME.fullmatch(server.name) else f"server{at}": server
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


@contextmanager
def folders(keep: Path | None) -> Iterator[tuple[Path, Path]]:
    """The child's home, kept where `keep` says, and an empty working folder beside its server list."""
    with tempfile.TemporaryDirectory(prefix="orchestrator-", ignore_cleanup_errors=True) as scratch:
        work = Path(scratch) / "work"
        home = keep or Path(scratch) / "home"
        work.mkdir()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield home, work


def session(context: RunContext, home: Path) -> str | None:
    """The session to go on with, copied into this run's home; None where there is nothing to go on with.

    Raises FileNotFoundError when the earlier run's session is gone.
    """
    if not context.earlier:
        return None
    last = context.earlier[-1].blocks[-1]
    if context.folder is None:
        raise FileNotFoundError("nothing is kept")
    kept = context.folder.parent / str(last.get("run")) / "projects"
    found = next(kept.glob(f"*/{last.get('session_id')}.jsonl"), None)
    if found is None:
        raise FileNotFoundError(kept)
    (home / "projects" / "earlier").mkdir(parents=True, exist_ok=True)
    shutil.copy(found, home / "projects" / "earlier")
    return found.stem


def checkpoint(context: RunContext, session_id: str) -> Checkpoint:
    """Where this run's session is found again."""
    return Checkpoint(backend="agent-sdk", blocks=({"session_id": session_id, "run": context.run_id},))


def descendants(pid: int) -> list[int]:
    """The processes that a process started (stdio servers), where the system tells."""
    found: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, listing.read_text(encoding="ascii").split()):
                found += [child, *descendants(child)]
    return found


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
    if status.get("status") == "needs-auth" or _UNAUTHORISED.search(said):
        return McpUnavailable(
            f"The search server {server} refused its key: check it (PARALLEL_API_KEY for Parallel's),"
            f" or unset it where the server works without ({said})"
        )
    if _LIMITED.search(said):
        return rate_limited(f"The search server {server}", None)
    if _UNPAID.search(said):
        return McpUnavailable(f"The search server {server} wants payment first ({said})")
    return McpUnavailable(
        f"The search server {server} cannot be reached: try again, or choose another with --server ({said})"
    )


def never_sent(text: str) -> bool:
    """Whether this connection error says that no request can have reached the service."""
    return bool(_NEVER_SENT.search(text))


def failed(context: RunContext, result: Mapping[str, Any], retry_after: float | None) -> RunError:
    """The error that a result message tells of, by its fields."""
    text = "; ".join(result.get("errors") or ()) or result.get("result") or result["subtype"]
    limits, status = context.options.limits, result.get("api_error_status")
    if result["subtype"] == "error_max_turns":
        steps = result["num_turns"]
        return LimitExceeded(
            "max_steps", steps, limits.max_steps, f"{steps} steps are used{REMEDY}--max-steps"
        )
    if result["subtype"] == "error_max_budget_usd":
        usd = result.get("total_cost_usd") or 0.0
        return LimitExceeded("max_usd", usd, limits.max_usd, f"${usd:.4f} is spent{REMEDY}--max-usd")
    service = Service(context.options.anthropic_base_url, context.options.model)
    if status or text.startswith("Prompt is too long"):
        return explain(Fault(status or 400, None, text, retry_after), service)
    if result.get("terminal_reason") == "api_error":
        remedy = "check ANTHROPIC_BASE_URL, the network and the proxy" if never_sent(text) else "try again"
        return BackendError(f"{service.base_url} cannot be reached or broke off: {remedy} ({text})")
    return BackendError(f"The engine ended the conversation: {text}", "agent-sdk")
