"""The only reader of the environment, .env, orchestrator.toml and mcp_config/: every option, defined once.

Each command is a subclass (in cli.py). Where values come from stands in layers.py, what a server entry
means in servers.py. The docstring under a field is its help text and the manual.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import platformdirs
from pydantic import AliasChoices, Field, PrivateAttr, SecretStr

from orchestrator.config.layers import (
    SHORT_NAMES,
    Address,
    Calls,
    Count,
    Key,
    Names,
    NoFlag,
    Positive,
    PositiveOrNone,
    Prices,
    Seconds,
    Settings,
    Shown,
    Usd,
)
from orchestrator.config.servers import Configured, Pin, Server, ToolNotes, catalogue, names_in, obstacle
from orchestrator.errors import ConfigurationError, UsageError
from orchestrator.events import Limits, RunStarted

__all__ = ["ANTHROPIC_URL", "Options", "Places", "Server", "Settings", "Showing", "ToolNotes"]

ANTHROPIC_URL: Final = "https://api.anthropic.com"
DECLINING_MODELS: Final = ("claude-opus-5-5", "claude-fable", "claude-mythos")
"""Models whose classifiers decline some questions that another model answers."""


class Places(Settings):
    """Run files"""

    runs_dir: Annotated[Path | None, Shown("DIR")] = None
    """Folder for run files; by default in the user's state folder."""
    no_content: bool = False
    """Keep no text in the run file. Such a run cannot be resumed, followed up, reported or checked."""

    @property
    def state_folder(self) -> Path:
        """What outlives a run and is shared by all of a user's processes."""
        return platformdirs.user_state_path("orchestrator", appauthor=False)

    @property
    def daily_file(self) -> Path:
        """The ledger of the daily cap."""
        return self.state_folder / "daily.sqlite3"

    @property
    def runs_folder(self) -> Path:
        return (self.runs_dir.expanduser() if self.runs_dir else self.state_folder / "runs").absolute()


class Searching(Settings):
    """Searching"""

    server: Names = ()
    """Search server, repeatable. Default: parallel-search, with a key also parallel-search-advanced."""
    mcp_config: Annotated[Path | None, Shown("FILE")] = None
    """More search servers, in the mcpServers shape; without --server, all of them and no others."""
    mode: Literal["turbo", "fast", "basic", "advanced"] = "fast"
    """How hard the search server tries. Needs PARALLEL_API_KEY, like the next four."""
    max_chars: PositiveOrNone = None
    """Longest text of one result, in characters; kept without a key wherever we write the result."""
    max_results: PositiveOrNone = None
    """Results of one search."""
    include_domain: Annotated[Names, Shown("DOMAIN")] = ()
    """Only results from this domain, repeatable."""
    exclude_domain: Annotated[Names, Shown("DOMAIN")] = ()
    """No results from this domain, repeatable."""
    offline: bool = False
    """No network, no key: a small search server and a stand-in for the model, on this machine."""
    corpus: Annotated[Path | None, Shown("DIR")] = None
    """With --offline: search these Markdown, text or HTML files instead of the Python language reference."""
    parallel_api_key: Key = Field(
        default=None, validation_alias=AliasChoices("PARALLEL_API_KEY", "parallel_api_key"), repr=False
    )
    """Key of the Parallel search server; it works without one too."""


class Limiting(Settings):
    """Limits (`none` is no limit, 0 allows nothing)"""

    max_usd: Usd = 0.50
    """US dollars for the whole run, searches included."""
    max_steps: Count = 12
    """Sampling passes of the model, the final answer's included."""
    max_seconds: Seconds = 300
    """Wall-clock seconds."""
    max_calls: Calls = Field(default_factory=lambda: Limits().max_calls)
    """Calls of a tool, a server or SERVER/TOOL, repeatable (`advanced`: parallel-search-advanced)."""
    reserve: Annotated[float, Field(ge=0, le=1), Shown("SHARE")] = 0.2
    """Share of the dollars that is kept for the final answer."""
    worst_case: bool = False
    """Count on the dearest that could happen, not on how the service has billed so far."""
    max_output_tokens: Positive = 16_000
    """Output tokens of one request, thinking included."""
    daily_usd: Usd = None
    """US dollars a day for all runs of this user together."""
    price_in: Usd = None
    """Input price of the model in US dollars per million tokens, where the price list does not know it."""
    price_out: Usd = None
    """Output price of the model in US dollars per million tokens."""
    price_call: Prices = Field(default_factory=dict)
    """Price of one call of a tool, a server or SERVER/TOOL, repeatable; 0 is an answer."""


class Modelling(Settings):
    """Model"""

    backend: Literal["auto", "connector", "agent-sdk"] = "auto"
    """Who runs the tool loop: the Messages API's MCP connector, or the Claude Agent SDK on this machine."""
    model: Annotated[str, Shown("MODEL")] = "claude-opus-5-5"
    """Model that answers."""
    effort: Literal["low", "medium", "high", "xhigh", "max"] = "medium"
    """How much the model thinks."""
    fallbacks: Annotated[Literal["auto", "on", "off"], NoFlag] = "auto"
    """Whether the service may hand a declined question to another model (connector)."""
    mcp_beta: Annotated[str, NoFlag] = "mcp-client-2026-09-15"
    """Beta header of the MCP connector."""
    clear_trigger: Annotated[Count, NoFlag] = 40_000
    """Input tokens from which old tool results are cleared from the context (connector)."""
    clear_keep: Annotated[int, Field(ge=0), NoFlag] = 4
    """Tool results that clearing leaves."""
    clear_at_least: Annotated[int, Field(ge=0), NoFlag] = 8_000
    """Tokens that clearing must free, so that it is worth the cache it costs."""
    anthropic_api_key: Key = Field(
        default=None, validation_alias=AliasChoices("ANTHROPIC_API_KEY", "anthropic_api_key"), repr=False
    )
    """Key of the model service."""
    anthropic_base_url: Address = Field(
        default=ANTHROPIC_URL, validation_alias=AliasChoices("ANTHROPIC_BASE_URL", "anthropic_base_url")
    )
    """Address of the model service; anything that speaks the Messages API."""


class Answering(Settings):
    """Answer"""

    strict: bool = False
    """Also count sentences that their cited source does not support as not backed."""
    judge: bool = False
    """Ask a small model where words alone cannot settle whether a source supports a sentence."""
    judge_model: Annotated[str, Shown("MODEL")] = "claude-haiku-5-5"
    """Model that judges."""
    follow_up: Annotated[str | None, Shown("RUN")] = None
    """Go on with the conversation of this run: an id, a unique prefix, a path or `last`."""


class Showing(Settings):
    """Output"""

    format: Literal["text", "markdown", "json", "html", "stream-json"] = "text"
    """How the answer is written; stream-json is the run as it happens, one event a line."""
    output: Annotated[Path | None, Shown("FILE")] = None
    """Write to this file instead of standard output."""
    quiet: bool = False
    """Say nothing on standard error but why it failed."""
    verbose: bool = False
    """Say more on standard error."""


class Options(Places, Answering, Modelling, Limiting, Searching):
    """Everything that one run needs."""

    _stand_ins: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def daily_file(self) -> Path:
        """The ledger of the daily cap; runs against the stand-ins spend nothing and have one of their own."""
        return self.state_folder / "daily-offline.sqlite3" if self.offline else super().daily_file

    @property
    def limits(self) -> Limits:
        return Limits(**{name: getattr(self, name) for name in Limits.model_fields})

    @property
    def uses_fallbacks(self) -> bool:
        """Whether a question that the model declines may be served by another one."""
        known = self.offline or self.anthropic_base_url == ANTHROPIC_URL
        declines = self.model.startswith(DECLINING_MODELS)
        return self.fallbacks == "on" or (self.fallbacks == "auto" and known and declines)

    def like(self, started: RunStarted) -> Self:
        """The same options with model, backend, servers and limits of a run, where none were given."""
        before = started.limits.model_dump() | {
            "backend": started.backend,
            "model": started.model,
            "effort": started.effort,
            "offline": started.offline,
            "server": started.servers,
        }
        given = self.model_fields_set
        return self.model_copy(update={name: v for name, v in before.items() if name not in given})

    def servers(self) -> tuple[Server, ...]:
        """The servers to use. Raises `ConfigurationError` that names file and field, or the known names."""
        variables = self._variables()
        return tuple(
            found.resolve(variables, self._pins(), self._stand_ins.get(found.name))
            for found in self._chosen()
        )

    def notices(self) -> tuple[str, ...]:
        """What was asked for and will not be kept, one sentence each, for standard error."""
        asked = {pin for pin in self._pins() if pin in self.model_fields_set}
        if self.choose_backend()[0] == "agent-sdk":
            asked.discard("max_chars")  # there we write the result, and cut it ourselves
        variables = self._variables()
        notes = []
        for found in self._chosen():
            lost = sorted(f"--{pin.replace('_', '-')}" for pin in asked - found.pinnable(variables))
            if lost:
                notes.append(f"{found.name} ignores {', '.join(lost)}: {_why_not_kept(found)}")
        return tuple(notes)

    def choose_backend(self) -> tuple[Literal["connector", "agent-sdk"], str]:
        """The backend and why. Raises `ConfigurationError` where the named one cannot reach a server."""
        hindrance = next(filter(None, (obstacle(s, self.anthropic_base_url) for s in self.servers())), None)
        if self.backend == "agent-sdk":
            return "agent-sdk", "as asked"
        if self.backend == "connector":
            if hindrance:
                raise ConfigurationError(f"The connector cannot use {hindrance}. Use --backend agent-sdk.")
            return "connector", "as asked"
        if hindrance:
            return "agent-sdk", f"the connector cannot use {hindrance}"
        if self.offline:
            return "connector", "offline, and every server is reachable from the stand-in"
        if self.anthropic_base_url != ANTHROPIC_URL:
            return "agent-sdk", "the base URL is not Anthropic's"
        return "connector", "the base URL is Anthropic's and every server is public https"

    @property
    def at_stand_ins(self) -> bool:
        """Whether every address is a stand-in's: offline goes nowhere else."""
        return bool(self._stand_ins)

    def with_stand_ins(self, anthropic_base_url: str, server_urls: Mapping[str, str]) -> Self:
        """The same options, with every address replaced by its stand-in's; no key of the user goes there."""
        unknown = [found.name for found in self._chosen() if found.name not in server_urls]
        if unknown:
            raise UsageError(
                f"{unknown[0]} has no offline stand-in; --offline knows {', '.join(sorted(server_urls))}."
            )
        key = SecretStr("offline")
        copy = self.model_copy(
            update={
                "anthropic_base_url": anthropic_base_url,
                "anthropic_api_key": key,
                "parallel_api_key": self.parallel_api_key and key,
            }
        )
        copy._stand_ins = dict(server_urls)
        return copy

    def secrets(self) -> tuple[str, ...]:
        """Every secret value that this run knows: what the trace must mask."""
        values = [self.anthropic_api_key, self.parallel_api_key]
        for server in self.servers():
            values += [server.authorization_token, *server.headers.values(), *server.env.values()]
        return tuple(value.get_secret_value() for value in values if value)

    def _chosen(self) -> list[Configured]:
        known = catalogue(self.mcp_config)
        variables = self._variables()
        names = tuple(dict.fromkeys(SHORT_NAMES.get(name, name) for name in self.server))
        for name in names:
            if name not in known:
                raise ConfigurationError(
                    f"There is no server {name!r}; known are {', '.join(sorted(known))}."
                )
            if missing := known[name].missing_key(variables):
                raise ConfigurationError(f"The server {name} needs a key: set {missing}.")
        if not names and self.mcp_config:
            names = names_in(self.mcp_config)
        if not names:
            names = tuple(name for name, found in known.items() if found.notes and found.notes.default)
        chosen = [known[name] for name in names if not known[name].missing_key(variables)]
        if not chosen:
            raise ConfigurationError("No search server is configured: name one with --server.")
        return chosen

    def _variables(self) -> dict[str, str]:
        """What ${VAR} in a server entry may name. Only keys may come from .env or a settings file."""
        found = {name: value for name, value in os.environ.items() if value}
        for name, key in (
            ("ANTHROPIC_API_KEY", self.anthropic_api_key),
            ("PARALLEL_API_KEY", self.parallel_api_key),
        ):
            found.pop(name, None)
            if key:
                found[name] = key.get_secret_value()
        return found

    def _pins(self) -> dict[Pin, str]:
        pins: dict[Pin, str] = {"mode": self.mode}
        if self.max_chars:
            pins["max_chars"] = str(self.max_chars)
        if self.max_results:
            pins["max_results"] = str(self.max_results)
        if self.include_domain:
            pins["include_domain"] = ",".join(self.include_domain)
        if self.exclude_domain:
            pins["exclude_domain"] = ",".join(self.exclude_domain)
        return pins


def _why_not_kept(found: Configured) -> str:
    if found.notes and found.notes.pins and found.notes.key:
        return f"a connection without {found.notes.key} cannot be pinned"
    return "this server has no such setting"
