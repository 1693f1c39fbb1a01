"""What works on this machine, and for each thing that does not, what to do. No key is ever printed."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from pydantic import SecretStr

from orchestrator import __version__
from orchestrator.config import layers
from orchestrator.errors import EXIT_CODES, USAGE_EXIT_CODE, OrchestratorError, RunError
from orchestrator.settings import ANTHROPIC_URL, Options, Server
from orchestrator.terminal.console import short

_PACKAGES: Final = ("anthropic", "claude-agent-sdk", "mcp", "pydantic-settings", "genai-prices")
_PATIENCE_SECONDS: Final = 15
_HOSTS: Final[tuple[Literal["claude-desktop", "claude-code"], ...]] = ("claude-desktop", "claude-code")
"""The hosts whose files `install` writes."""


@dataclass(frozen=True)
class Finding:
    """One thing looked at; `code` is 0 when it is well, else the exit code of a run that needs it."""

    what: str
    remedy: str = ""
    code: int = 0

    def __str__(self) -> str:
        mark = "ok  " if not self.remedy else "fix " if self.code else "note"
        return f"{mark} {self.what}{f': {self.remedy}' if self.remedy else ''}"


async def report(options: Options, out: Callable[[str], None]) -> list[Finding]:
    """Look at everything and say each finding; returns those that would end a run."""
    broken = []
    async for finding in _findings(options):
        out(str(finding))
        if finding.code:
            broken.append(finding)
    return broken


async def _findings(options: Options) -> AsyncIterator[Finding]:
    yield _versions()
    yield _settings_files(options)
    for variable in _unknown_variables():
        yield Finding(f"{variable} is no setting of this program", "correct its name, or ignore this")
    yield _key("ANTHROPIC_API_KEY", options.anthropic_api_key, needed=not options.offline)
    yield _search_key(options)
    async with AsyncExitStack() as stack:
        if options.offline:
            from orchestrator.offline import stand_ins

            double = await stack.enter_async_context(stand_ins(corpus=options.corpus))
            options = options.with_stand_ins(double.anthropic_base_url, double.server_urls)
            yield Finding("the stand-ins started; no language model is used with --offline")
        for finding in _choices(options):
            yield finding
        for server in _servers(options):
            yield server if isinstance(server, Finding) else await _reached(server)
    yield _engine()
    async for finding in _hosts():
        yield finding
    yield _writable("run files", options.runs_folder, "name another folder with --runs-dir", USAGE_EXIT_CODE)
    yield _writable("state", options.state_folder, "only --daily-usd needs it", 0)
    yield _day(options)


def _versions() -> Finding:
    found, missing = [], []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    what = f"orchestrator {__version__}, Python {platform.python_version()}, {', '.join(found)}"
    if missing:
        return Finding(what, f"{', '.join(missing)} missing, install this package again", USAGE_EXIT_CODE)
    return Finding(what)


def _day(options: Options) -> Finding:
    from orchestrator.daily import spent_today

    if options.daily_usd is None:
        return Finding("no daily cap is set (--daily-usd)")
    day = spent_today(options.daily_file)
    return Finding(f"daily cap ${options.daily_usd:g}; {day or 'nothing spent today'}")


def _settings_files(options: Options) -> Finding:
    own = layers.config_folder() / layers.CONFIG_FILE
    read = [str(file) for file in (own, Path(layers.CONFIG_FILE), Path(".env")) if file.is_file()]
    return Finding(f"settings files: {', '.join(read) or f'none (yours would be {own})'}")


def _unknown_variables() -> list[str]:
    known = {layers.variable(name) for name in layers.known_options()}
    return sorted(name for name in os.environ if name.startswith("ORCHESTRATOR_") and name not in known)


def _key(variable: str, key: SecretStr | None, *, needed: bool) -> Finding:
    if key:
        return Finding(f"{variable} is set")
    if needed:
        return Finding(f"{variable} is not set", "set it, or use --offline", USAGE_EXIT_CODE)
    return Finding(f"{variable} is not set, and not needed")


def _search_key(options: Options) -> Finding:
    if options.parallel_api_key:
        return Finding("PARALLEL_API_KEY is set")
    return Finding("PARALLEL_API_KEY is not set", "set it for higher limits, other modes and domain filters")


def _choices(options: Options) -> list[Finding]:
    """Backend and price, as a run would find them now."""
    from orchestrator.prices import Prices

    try:
        name, reason = options.choose_backend()
        where = "" if options.anthropic_base_url == ANTHROPIC_URL else f" at {options.anthropic_base_url}"
        Prices(servers={}, price_in=options.price_in, price_out=options.price_out).rates(options.model, 1)
    except OrchestratorError as error:
        return [Finding("a run cannot start", str(error), USAGE_EXIT_CODE)]
    return [Finding(f"a run would use {options.model} through the {name}{where} ({reason})")]


def _servers(options: Options) -> list[Server | Finding]:
    try:
        return [*options.servers()]
    except OrchestratorError as error:
        return [Finding("the search servers are not set up", str(error), USAGE_EXIT_CODE)]


async def _reached(server: Server) -> Finding:
    from orchestrator.upstream import connect

    where = f"search server {server.name} ({server.url or server.command})"
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS), connect(server) as upstream:
            listed = [tool.upstream_name for tool in await upstream.tools()]
    except TimeoutError:
        remedy = f"no answer in {_PATIENCE_SECONDS} s, check network and proxy"
        return Finding(where, remedy, EXIT_CODES["mcp_unavailable"])
    except RunError as error:
        remedy = f"{error} Check address, key, network and proxy; --offline needs none of them"
        return Finding(where, remedy, EXIT_CODES[error.status])
    missing = sorted(set(server.tools) - set(listed))
    if missing:
        remedy = f"it lists {', '.join(listed)} but not {', '.join(missing)}: its entry needs other notes"
        return Finding(where, remedy, EXIT_CODES["mcp_unavailable"])
    access = "with a key" if server.authorization_token else "without a key"
    return Finding(f"{where} answers {access} and lists {', '.join(listed)}")


def _engine() -> Finding:
    """The command line that the Agent SDK starts: its own, else one on the PATH."""
    spec = find_spec("claude_agent_sdk")
    bundled = Path((spec.origin if spec else "") or "").parent / "_bundled"
    names = (bundled / "claude", bundled / "claude.exe")
    found = next((str(name) for name in names if name.is_file()), None) or shutil.which("claude")
    remedy = "only --backend agent-sdk needs it: install claude-agent-sdk from a wheel for this platform"
    if found is None:
        return Finding("the Agent SDK's command line was not found", remedy)
    try:
        said = subprocess.run(
            [found, "--version"], capture_output=True, timeout=_PATIENCE_SECONDS, check=True, encoding="utf-8"
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(f"the Agent SDK's command line does not start ({short(str(error))})", remedy)
    return Finding(f"Agent SDK command line {short(said)}")


async def _hosts() -> AsyncIterator[Finding]:
    """Whether the entries that `install` wrote are still there, and start."""
    from orchestrator.serving import hosts

    machine, found = hosts.Machine(), False
    for host in _HOSTS:
        for file, entry in hosts.installed(host, machine).items():
            found = True
            fault = await hosts.fault(entry)
            remedy = f"it does not start ({short(fault)}), `install {host}` writes it anew" if fault else ""
            yield Finding(f"the entry for {host} in {file} {'is there' if fault else 'starts'}", remedy)
    if not found:
        yield Finding("the MCP server is registered with no host; `install HOST` does it")


def _writable(what: str, folder: Path, remedy: str, code: int) -> Finding:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return Finding(f"folder for {what} {folder} is writable")
    except OSError as error:
        return Finding(f"folder for {what} {folder} cannot be written ({error.strerror})", remedy, code)
