"""Writes the entry that starts our MCP server into a host's own configuration file, and takes it out again.

Nobody else's entry loses a byte, the file is replaced in one step, and a dated copy of the old one stays.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, Literal, get_args

from orchestrator.errors import RunError, UsageError
from orchestrator.serving import jsonedit
from orchestrator.settings import Server

Host = Literal["claude-desktop", "claude-code", "cursor", "vscode"]

NAME: Final = "orchestrator"
ARGS: Final = ("-P", "-m", "orchestrator", "mcp")
"""Without a space, for some hosts start a shell; `-P`: nothing is imported from the host's folder."""
_TRIES: Final = 5

_KEYS: Final[dict[Host, str]] = {
    "claude-desktop": "mcpServers",
    "claude-code": "mcpServers",
    "cursor": "mcpServers",
    "vscode": "servers",
}
_AFTERWARDS: Final[dict[Host, str]] = {
    "claude-desktop": "Quit Claude Desktop and start it again: it reads the file at its start.",
    "claude-code": "Sessions that are open do not see it: start a new one, and look with /mcp.",
    "cursor": "Put it into ~/.cursor/mcp.json, or .cursor/mcp.json of a project.",
    "vscode": "Put it into .vscode/mcp.json, or the file that `MCP: Open User Configuration` opens.",
}


def _source_folder() -> Path | None:
    try:
        distribution("orchestrator")
    except PackageNotFoundError:
        return Path(__file__).absolute().parents[2]
    return None


@dataclass(frozen=True)
class Machine:
    """What decides where files lie and how we are started."""

    platform: str = sys.platform
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    python: str = sys.executable
    source: Path | None = field(default_factory=_source_folder)
    """The folder to import us from, where we are no installed package."""


def entry(host: Host, machine: Machine, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """How this host starts our server. `env` is what the server is to find in its environment, keys too."""
    told = dict(env or {})
    if machine.source is not None:
        told["PYTHONPATH"] = str(machine.source)
    started: dict[str, Any] = {"command": _command(machine), "args": list(ARGS)}
    if host in ("claude-code", "vscode"):
        started = {"type": "stdio", **started}
    return started | ({"env": told} if told else {})


def shown(host: Host, machine: Machine, env: Mapping[str, str] | None = None) -> tuple[str, str]:
    """The configuration as JSON, and a sentence about what to do with it."""
    whole = {_KEYS[host]: {NAME: entry(host, machine, env)}}
    return json.dumps(whole, ensure_ascii=False, indent=2), _AFTERWARDS[host]


def files(host: Host, machine: Machine) -> list[Path]:
    """The files that this host reads. Raises `UsageError` for a host whose files we do not write."""
    home = Path(machine.environ.get("USERPROFILE" if _windows(machine) else "HOME") or Path.home())
    match host:
        case "claude-desktop":
            return [folder / "claude_desktop_config.json" for folder in _desktop_folders(machine, home)]
        case "claude-code":
            return [Path(machine.environ.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json"]
    raise UsageError(f"The files of {host} are yours to write: --print shows what goes where.")


def install(host: Host, machine: Machine, env: Mapping[str, str] | None = None) -> list[str]:
    """Put the entry into the host's files; what was done, a sentence each. Doing it twice changes nothing.

    Raises `UsageError` for a file that is not JSON, or cannot be written: it is left as it is then.
    """
    path = (_KEYS[host], NAME)
    value = entry(host, machine, env)
    said = [_edit(file, lambda text: jsonedit.put(text, path, value)) for file in files(host, machine)]
    return [*said, _AFTERWARDS[host]]


def uninstall(host: Host, machine: Machine) -> list[str]:
    """Take the entry out of the host's files; what was done, a sentence each."""
    path = (_KEYS[host], NAME)
    there = [file for file in files(host, machine) if file.is_file()]
    said = [_edit(file, lambda text: jsonedit.drop(text, path) if text.strip() else text) for file in there]
    return [*said, _AFTERWARDS[host]] if said else [f"{host} has no configuration file here."]


def installed(host: Host, machine: Machine) -> dict[Path, dict[str, Any]]:
    """The entries that are there now, by file."""
    found = {}
    for file in files(host, machine):
        try:
            servers = json.loads(file.read_text(encoding="utf-8-sig")).get(_KEYS[host], {})
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(servers, dict) and isinstance(servers.get(NAME), dict):
            found[file] = servers[NAME]
    return found


async def fault(started: Mapping[str, Any]) -> str | None:
    """Start the server of an entry as a host would: why it does not work, None when it does."""
    from orchestrator.upstream import connect

    try:
        server = Server.model_validate({"name": NAME, "type": "stdio"} | _plain(started))
        async with connect(server) as ours:
            await ours.tools()
    except (RunError, ValueError) as error:
        return str(error)
    return None


def _plain(started: Mapping[str, Any]) -> dict[str, Any]:
    return {key: started[key] for key in ("command", "args", "env") if key in started}


def host_named(name: str) -> Host:
    """Raises `UsageError` with the known names."""
    for host in get_args(Host):
        if host == name:
            return host  # type: ignore[no-any-return]
    raise UsageError(f"There is no host {name!r}; known are {', '.join(get_args(Host))}.")


def _windows(machine: Machine) -> bool:
    return machine.platform == "win32"


def _desktop_folders(machine: Machine, home: Path) -> list[Path]:
    """Where Claude Desktop looks. Its packaged form on Windows never reads the usual place."""
    if machine.platform == "darwin":
        return [home / "Library" / "Application Support" / "Claude"]
    if not _windows(machine):
        return [Path(machine.environ.get("XDG_CONFIG_HOME") or home / ".config") / "Claude"]
    usual = Path(machine.environ.get("APPDATA") or home / "AppData" / "Roaming") / "Claude"
    local = Path(machine.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    packaged = sorted(
        package / "LocalCache" / "Roaming" / "Claude" for package in local.glob("Packages/Claude_*")
    )
    return [*packaged, usual] if usual.is_dir() or not packaged else packaged


def _command(machine: Machine) -> str:
    """The interpreter that runs us, by a path without spaces where Windows has one."""
    python = str(Path(machine.python).absolute()) if machine.platform == sys.platform else machine.python
    if sys.platform == "win32" and " " in python:
        import ctypes

        short = ctypes.create_unicode_buffer(1024)
        if ctypes.windll.kernel32.GetShortPathNameW(python, short, len(short)):
            return short.value
    return python


def _edit(file: Path, change: Any) -> str:
    """Change a file in one step, unless somebody else changes it meanwhile: then look again."""
    target = file.resolve()  # a link stays a link
    for _ in range(_TRIES):
        before = target.read_bytes() if target.exists() else None
        after = _changed(file, before or b"", change)
        if after == (before or b""):
            return f"{file}: nothing to change."
        copy = _backup(target) if before is not None else None
        if _replace(target, before, after):
            kept = f" The old one is {copy.name}." if copy else ""
            return f"{file}: written.{kept}"
        if copy:
            copy.unlink()
    raise UsageError(f"{file} is being changed by another program: close the app and try again.")


def _changed(file: Path, before: bytes, change: Any) -> bytes:
    mark = b"\xef\xbb\xbf" if before.startswith(b"\xef\xbb\xbf") else b""
    try:
        return mark + str(change(before.removeprefix(mark).decode("utf-8"))).encode("utf-8")
    except ValueError as error:
        raise UsageError(
            f"{file} is not plain JSON ({error}): it was left as it is. Correct it first."
        ) from None


def _backup(target: Path) -> Path:
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S-%f")
    copy = target.with_name(f"{target.name}.{stamp}.bak")
    try:
        shutil.copy2(target, copy)
    except OSError as error:
        raise UsageError(f"{target} was left as it is: no copy can be made ({error.strerror}).") from None
    return copy


def _replace(target: Path, before: bytes | None, after: bytes) -> bool:
    """False when the file is no longer what it was."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("wb", dir=target.parent, prefix=f".{target.name}.", delete=False) as fresh:
            fresh.write(after)
            fresh.flush()
            os.fsync(fresh.fileno())
        new = Path(fresh.name)
        if before is not None:
            shutil.copymode(target, new)
        if (target.read_bytes() if target.exists() else None) != before:
            new.unlink()
            return False
        new.replace(target)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}.") from None
    return True
