"""The search servers: what an entry of mcp_config/ or of the user's own file means.

The files have the shape that hosts read: `{"mcpServers": {NAME: {type, url, headers | command, args, env}}}`.
Beside an entry may stand `"notes"` (`ServerNotes`): what hosts do not need and a budget does. The notes of a
built-in server hold for an entry of the same name in the user's file, unless that brings its own.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from orchestrator.errors import ConfigurationError
from orchestrator.events import Value

Pin = Literal["mode", "max_chars", "max_results", "include_domain", "exclude_domain"]


class ToolNotes(Value):
    """What we note about one tool of a server: its role, its price, its size, its patience."""

    role: Literal["search", "fetch"]
    usd_per_call: float | None = None
    """In the mode that the connection is pinned to, with the extra results it may return."""
    usd_per_call_by_mode: dict[str, float] = Field(default_factory=dict)
    """Prices where the mode is pinned; `usd_per_call` is for a connection that pins none."""
    extra_result_usd: float = 0.0
    """Price of each result beyond `included_results`."""
    included_results: int = 10
    usd_per_url: float | None = None
    """Price per URL in the `urls` argument, instead of per call."""
    max_chars: int = 100_000
    """Largest result, in characters of text."""
    timeout_seconds: float = 30
    """How long one call may take."""


class Server(Value):
    """One MCP server as configured: how to reach it, and our notes."""

    name: str
    type: Literal["http", "stdio"] = "http"
    url: str | None = None
    """With pinned settings already in its query."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Without the bearer token."""
    authorization_token: SecretStr | None = None
    """The bearer token, where the entry has one: the connector passes it by itself, others as a header."""
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, SecretStr] = Field(default_factory=dict)
    tools: dict[str, ToolNotes] = Field(default_factory=dict)
    """Empty for a server without notes: all tools it marks read-only, at prices the user gives."""
    description: str = ""


class ServerNotes(Value):
    """Our notes on one server."""

    description: str = ""
    default: bool = False
    """Used when no server is named (and its key, where it needs one, is there)."""
    key: str | None = None
    """The variable that holds its key."""
    key_required: bool = False
    """Without the key the entry is left out; else only the header that carries it."""
    pins: dict[Pin, str] = Field(default_factory=dict)
    """Our option -> the URL query parameter that pins it on a keyed connection."""
    tools: dict[str, ToolNotes] = Field(default_factory=dict)


class _Entry(BaseModel):
    """One entry as hosts write it; keys that only some host knows are passed over."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["http", "streamable-http", "stdio"] | None = None
    url: str | None = Field(None, validation_alias=AliasChoices("url", "serverUrl", "httpUrl"))
    headers: dict[str, str] = Field(default_factory=dict)
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    notes: ServerNotes | None = None

    @model_validator(mode="after")
    def _one_way_in(self) -> _Entry:
        if (self.url is None) == (self.command is None):
            raise ValueError('needs either "url" or "command"')
        if (self.type == "stdio") != (self.command is not None) and self.type is not None:
            raise ValueError(f'type "{self.type}" does not go with {"command" if self.command else "url"}')
        return self


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")

    servers: dict[str, _Entry] = Field(validation_alias=AliasChoices("mcpServers", "servers"))


@dataclass(frozen=True)
class Configured:
    """An entry with the notes that hold for it and the file it stands in."""

    name: str
    entry: _Entry
    notes: ServerNotes | None
    file: Path

    def missing_key(self, variables: Mapping[str, str]) -> str | None:
        """The variable without which this server cannot be used, when it is unset."""
        notes = self.notes
        return (
            notes.key if notes and notes.key and notes.key_required and notes.key not in variables else None
        )

    def resolve(self, variables: Mapping[str, str], pins: Mapping[Pin, str], base: str | None) -> Server:
        """The server with variables expanded and, where the connection is keyed, pins in its URL.

        `base` takes the place of scheme, host and path of the URL (the stand-ins).
        """
        headers = self._expand_all("headers", self.entry.headers, variables)
        token = next((headers.pop(n) for n in list(headers) if n.lower() == "authorization"), "")
        scheme, _, bearer = token.partition(" ")
        if token and scheme.lower() != "bearer":
            headers["Authorization"] = token
            bearer = ""
        url = self._url(variables, {p: v for p, v in pins.items() if p in self.pinnable(variables)}, base)
        return Server(
            name=self.name,
            type="http" if url else "stdio",
            url=url,
            headers={name: SecretStr(value) for name, value in headers.items()},
            authorization_token=SecretStr(bearer.strip()) if bearer.strip() else None,
            command=self.entry.command and self._expand("command", self.entry.command, variables),
            args=tuple(self._expand(f"args[{i}]", a, variables) for i, a in enumerate(self.entry.args)),
            env={k: SecretStr(v) for k, v in self._expand_all("env", self.entry.env, variables).items()},
            tools=self._priced(url),
            description=self.notes.description if self.notes else "",
        )

    def pinnable(self, variables: Mapping[str, str]) -> frozenset[Pin]:
        """The options that this connection keeps; an anonymous one keeps none."""
        headers = self._expand_all("headers", self.entry.headers, variables)
        keyed = any(name.lower() in ("authorization", "x-api-key") for name in headers)
        return frozenset(self.notes.pins) if self.notes and keyed else frozenset()

    def _url(self, variables: Mapping[str, str], pins: Mapping[Pin, str], base: str | None) -> str | None:
        if self.entry.url is None:
            return None
        url = urlsplit(self._expand("url", self.entry.url, variables))
        if url.scheme not in ("http", "https") or not url.hostname:
            raise self._wrong("url", "is not an http(s) address")
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        if self.notes:
            query = {self.notes.pins[pin]: value for pin, value in pins.items()} | query
        if base is not None:
            url = urlsplit(base)
        # Commas stay readable: they separate domains.
        return urlunsplit(url._replace(query=urlencode(query, safe=",", quote_via=quote)))

    def _priced(self, url: str | None) -> dict[str, ToolNotes]:
        """Notes with the price of the mode and result count that the URL pins."""
        if self.notes is None:
            return {}
        query = dict(parse_qsl(urlsplit(url or "").query))
        mode = query.get(self.notes.pins.get("mode", ""), "")
        asked = query.get(self.notes.pins.get("max_results", ""), "")
        results = int(asked) if asked.isdecimal() else 0
        priced = {}
        for name, tool in self.notes.tools.items():
            usd = tool.usd_per_call_by_mode.get(mode, tool.usd_per_call)
            if usd is not None:
                usd += tool.extra_result_usd * max(0, results - tool.included_results)
            extra = 0.0 if asked else tool.extra_result_usd
            priced[name] = tool.model_copy(update={"usd_per_call": usd, "extra_result_usd": extra})
        return priced

    def _expand(self, field: str, text: str, variables: Mapping[str, str]) -> str:
        def value(match: re.Match[str]) -> str:
            name, default = match.groups()
            found = variables.get(name) or default
            if found is None:
                raise self._wrong(field, f"names the variable {name}, which is not set")
            return found

        return _VARIABLE.sub(value, text)

    def _expand_all(self, field: str, values: dict[str, str], variables: Mapping[str, str]) -> dict[str, str]:
        """Expanded values, without those whose only missing variable is a key this server can do without."""
        optional = self.notes.key if self.notes and not self.notes.key_required else None
        kept = {}
        for name, text in values.items():
            if optional and optional not in variables and re.search(rf"\$\{{{re.escape(optional)}\}}", text):
                continue
            kept[name] = self._expand(f"{field}.{name}", text, variables)
        return kept

    def _wrong(self, field: str, what: str) -> ConfigurationError:
        return ConfigurationError(f"{self.file}: mcpServers.{self.name}.{field} {what}")


def catalogue(own: Path | None) -> dict[str, Configured]:
    """Every server that can be named: the built-in ones, and over them those of the user's file."""
    builtin = _read(builtin_file())
    if own is None:
        return builtin
    return builtin | {
        name: (
            Configured(name, found.entry, found.notes or builtin[name].notes, own)
            if name in builtin
            else found
        )
        for name, found in _read(own).items()
    }


def names_in(file: Path) -> tuple[str, ...]:
    """The names of a file's servers, in its order."""
    return tuple(_read(file))


def builtin_folder() -> Path:
    """mcp_config/: inside the installed package, or beside it in a source tree."""
    package = Path(__file__).parents[1]
    inside = package / "mcp_config"
    return inside if inside.is_dir() else package.parent / "mcp_config"


def builtin_file() -> Path:
    return builtin_folder() / "servers.json"


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def _read(file: Path) -> dict[str, Configured]:
    try:
        data = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file}: is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"{file}: is not JSON: {error.msg} in line {error.lineno}, column {error.colno}"
        ) from None
    found = _validated(file, data).servers
    for name in found:
        if not _NAME.fullmatch(name) or "__" in name:
            raise ConfigurationError(
                f"{file}: mcpServers.{name}: a server's name may hold letters, digits, - and _ (no __)"
            )
    return {name: Configured(name, entry, entry.notes, file) for name, entry in found.items()}


def _validated(file: Path, data: Any) -> _File:
    try:
        return _File.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ConfigurationError(f"{file}: {field}: {first['msg'].removeprefix('Value error, ')}") from None


def obstacle(server: Server, base_url: str) -> str | None:
    """Why the connector of the service at `base_url` cannot use this server; None where it can."""
    if server.url is None:
        return f"{server.name}: it is started by a command on this machine"
    if server.headers:
        header = next(iter(server.headers))
        return f"{server.name}: it needs the header {header}, and only a bearer token is sent"
    if is_loopback(base_url):
        return None
    if urlsplit(server.url).scheme != "https":
        return f"{server.name}: {server.url} is not https"
    if _is_private(server.url):
        return f"{server.name}: {server.url} is not reachable from the internet"
    return None


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _is_private(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return (
            is_loopback(url)
            or "." not in host
            or host.endswith((".local", ".internal", ".lan", ".home.arpa"))
        )
