"""An MCP server that says exactly what a test tells it to, however odd: raw JSON-RPC over HTTP or stdio.

The stand-ins of `offline` are servers of their kind; this is for what no proper server library would send.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from starlette.types import Receive, Scope, Send

from orchestrator.offline.hosting import address, listen, serving
from orchestrator.settings import Server, ToolNotes

Json = dict[str, Any]
READ_ONLY = {"readOnlyHint": True}


@dataclass
class OddServer:
    """`results` by tool: a raw result, a function of the arguments, or bytes for the whole body."""

    tools: list[Any] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)
    page_size: int | None = None
    sse: bool = False
    before: list[Json] = field(default_factory=list)
    """Messages that stream ahead of each call's answer (`sse` only)."""
    modern_only: bool = False
    seen: list[Json] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def slowly(self) -> None:
        """What the tool `slow` does before it answers."""

    def methods(self) -> list[str]:
        return [message["method"] for message in self.seen]

    def answer(self, message: Json) -> Any:
        """The result of a request, an `{"error": ...}`, or bytes."""
        params = message.get("params") or {}
        match message["method"]:
            case "initialize" if self.modern_only:
                data = {"supported": ["2026-07-28"], "requested": "2025-11-25"}
                return {"error": {"code": -32022, "message": "Unsupported", "data": data}}
            case "initialize":
                info = {"name": "odd", "version": "1"}
                return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            case "server/discover" if self.modern_only:
                extra = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
                return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **extra}
            case "tools/list":
                return self._page(int(params.get("cursor") or 0))
            case "tools/call":
                result = self.results[params["name"]]
                return result(params.get("arguments") or {}) if callable(result) else result
        return {"error": {"code": -32601, "message": "Method not found"}}

    def _page(self, start: int) -> Json:
        end = start + (self.page_size or len(self.tools) or 1)
        more = {"nextCursor": str(end)} if end < len(self.tools) else {}
        modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"} if self.modern_only else {}
        return {"tools": self.tools[start:end], **more, **modern}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while (event := await receive())["type"] == "http.request":
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        message = json.loads(body or b"{}")
        if "method" not in message:
            await _reply(send, 405, "text/plain", b"")
            return
        self.seen.append(message)
        self.headers.append({key.decode(): value.decode() for key, value in scope["headers"]})
        if "id" not in message:
            await _reply(send, 202, "application/json", b"")
            return
        if message["method"] == "tools/call" and message["params"]["name"] == "slow":
            await self.slowly()
        await self._send(send, message)

    async def _send(self, send: Send, message: Json) -> None:
        answer = self.answer(message)
        if isinstance(answer, bytes):
            kind = "text/html" if answer.startswith(b"<") else "application/json"
            await _reply(send, 200, kind, answer.replace(b'"ID"', json.dumps(message["id"]).encode()))
            return
        whole = {"jsonrpc": "2.0", "id": message["id"]}
        whole |= answer if "error" in answer else {"result": answer}
        if not self.sse or message["method"] != "tools/call":
            await _reply(send, 200, "application/json", json.dumps(whole).encode())
            return
        token = message["params"].get("_meta", {}).get("progressToken")
        ahead = [json.loads(json.dumps(told).replace('"TOKEN"', json.dumps(token))) for told in self.before]
        text = "".join(f"event: message\ndata: {json.dumps(each)}\n\n" for each in [*ahead, whole])
        await _reply(send, 200, "text/event-stream", text.encode())


async def _reply(send: Send, status: int, kind: str, body: bytes) -> None:
    headers = [(b"content-type", kind.encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def running(odd: OddServer, port: int = 0) -> Iterator[str]:
    """Serve it until the block ends; the port can then be used again."""
    bound = listen(port)
    with serving([(odd, bound)]):
        yield f"{address(bound)}/mcp"


def tool(name: str, **more: Any) -> Json:
    """A proper tools/list entry that only reads."""
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": READ_ONLY, **more}


def text_result(text: str, **more: Any) -> Json:
    return {"content": [{"type": "text", "text": text}], **more}


def http(url: str, *tools: str, seconds: float = 30) -> Server:
    """A configured server; without `tools` it has no notes."""
    notes = {name: ToolNotes(role="search", usd_per_call=0.001, timeout_seconds=seconds) for name in tools}
    return Server(name="odd", url=url, tools=notes)


CHILD = """
import json, os, sys
print("not JSON at all", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "child", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "say", "inputSchema": {}}, {"name": "die", "inputSchema": {}}]}
    elif params["name"] == "die":
        os._exit(3)
    else:
        text = params["arguments"].get("text", "")
        result = {"content": [{"type": "text", "text": f"{os.getpid()} {text} \\ud83d \\U0001f40d"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
"""A server over stdio: chatty, without input types, with a lone surrogate in what it says."""


def child() -> Server:
    return Server(name="child", type="stdio", command=sys.executable, args=("-c", CHILD))


class Killable:
    """A server in a process of its own, on the same port each time: `echo`, and `slow`, which never ends."""

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Killable:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.odd_server", str(self.port)]
        folder = Path(__file__).parents[1]
        self._process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        self.port = int(self._line())

    def wait_for_a_call(self) -> None:
        assert self._line() == "slow"

    def kill(self) -> None:
        """As the system kills: nothing is closed in good order."""
        assert self._process is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def _line(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.readline().strip()


class _Slow(OddServer):
    async def slowly(self) -> None:
        sys.stdout.write("slow\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


def main() -> None:
    odd = _Slow(
        [tool("echo"), tool("slow")], {"echo": lambda arguments: text_result(arguments["text"]), "slow": {}}
    )
    with running(odd, int(sys.argv[1])) as url:
        sys.stdout.write(f"{url.split(':')[2].split('/')[0]}\n")
        sys.stdout.flush()
        anyio.run(anyio.sleep_forever)


if __name__ == "__main__":
    main()
