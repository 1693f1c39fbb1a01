"""The commands around a run: the record, the other ways in, this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field
from pydantic_settings import CliPositionalArg

from orchestrator.config.layers import Ceilings, Key, Names, Settings, Shown, Usd, present
from orchestrator.errors import Interrupted, UsageError
from orchestrator.settings import Options, Places, Showing
from orchestrator.terminal import console

if TYPE_CHECKING:
    from orchestrator.result import Result

RunName = CliPositionalArg[Annotated[str, Shown("RUN")]]


class Command(Settings):
    """What every command has."""

    unused: ClassVar[frozenset[str]] = frozenset()
    """Options of its bases that this command has no use for."""

    def execute(self) -> int:
        """Do it; the exit code."""
        raise NotImplementedError


class Runs(Command, Places):
    """List the runs, newest last."""

    unused: ClassVar[frozenset[str]] = frozenset({"no_content"})

    def execute(self) -> int:
        from orchestrator.daily import spent_today
        from orchestrator.terminal import history

        for line in history.listing(self.runs_folder):
            console.out(line)
        if (day := spent_today(self.daily_file)) is not None:
            console.say(f"{day} under the daily cap")
        return 0


class RunsShow(Command, Showing, Places):
    """Show one run: its answer, its sources, what it cost."""

    unused: ClassVar[frozenset[str]] = frozenset({"no_content", "verbose"})
    run: RunName
    """An id, a unique prefix of one, a path, or `last`."""

    def execute(self) -> int:
        from orchestrator import trace
        from orchestrator.terminal import history

        path = trace.find(self.run, self.runs_folder)
        if self.format == "stream-json":
            console.deliver("\n".join(record.to_line() for record in trace.read(path)), self.output)
            return 0
        result = history.load(path)
        for line in () if self.quiet else history.facts(result):
            console.say(line)
        deliver(result, self)
        return 0


class RunsRemove(Command, Places):
    """Delete runs, and what the engine kept of them."""

    unused: ClassVar[frozenset[str]] = frozenset({"no_content"})
    runs: CliPositionalArg[Annotated[tuple[str, ...], Shown("RUN")]]
    """Ids, unique prefixes, paths, or `last`."""

    def execute(self) -> int:
        from orchestrator import trace

        for path in [trace.find(name, self.runs_folder) for name in self.runs]:
            trace.remove(path)
            console.say(f"removed {path.stem}")
        return 0


class Offline(Command):
    """Run the stand-ins alone, for your own tests.

    Prints their addresses as one line of JSON and runs until Ctrl-C.
    """

    port: Annotated[int, Shown("N")] = 0
    """Port of the Messages API; 0 takes a free one."""
    corpus: Annotated[Path | None, Shown("DIR")] = None
    """Serve these Markdown, text or HTML files instead of the Python language reference."""

    def execute(self) -> int:
        async def serve() -> None:
            from orchestrator.offline import stand_ins

            try:
                async with stand_ins(corpus=self.corpus, port=self.port) as running:
                    console.out(json.dumps(running.addresses()))
                    await asyncio.Event().wait()
            except OSError as error:
                raise UsageError(f"Port {self.port} cannot be used: {error.strerror}.") from None

        return _until_stopped(serve())


class Mcp(Command, Options):
    """Run the MCP server for Claude Desktop, Claude Code, Cursor and VS Code.

    It speaks on standard input and output, or with --http on a port, and reads nothing from the current
    directory. What it may use by the hour and by the day holds for all callers together.
    """

    reads_current_directory: ClassVar[bool] = False
    unused: ClassVar[frozenset[str]] = frozenset({"follow_up"})
    http: Annotated[str | None, Shown("HOST:PORT")] = None
    """Speak Streamable HTTP there; any but a loopback address needs ORCHESTRATOR_HTTP_TOKEN."""
    http_token: Key = None
    """The bearer token that callers over HTTP must send."""
    hourly_usd: Usd = 2.0
    """US dollars an hour; for a day there is --daily-usd."""
    hourly_calls: Ceilings = Field(default_factory=dict)
    """Calls an hour of a tool, a server or SERVER/TOOL, repeatable."""
    daily_calls: Ceilings = Field(default_factory=dict)
    """Calls a day of a tool, a server or SERVER/TOOL, repeatable."""

    def execute(self) -> int:
        from orchestrator.serving import doors
        from orchestrator.serving.caps import Ceiling

        hour = Ceiling(self.hourly_usd, self.hourly_calls)
        day = Ceiling(self.daily_usd, self.daily_calls)
        return _until_stopped(doors.serve(self, self.http, token=self.http_token, hour=hour, day=day))


class Install(Command):
    """Register that server with claude-desktop, claude-code, cursor or vscode.

    Entries of others stay as they are, and a dated copy of the file is kept. For cursor and vscode it
    shows what goes where.
    """

    host: CliPositionalArg[str]
    """claude-desktop, claude-code, cursor or vscode."""
    print: bool = False
    """Only show what would be written."""
    uninstall: bool = False
    """Take the entry out again."""
    env: Annotated[Names, Shown("NAME")] = ()
    """Write this variable with its present value into the entry, repeatable; keys only if you name them."""

    def execute(self) -> int:
        from orchestrator.serving import hosts

        host, machine = hosts.host_named(self.host), hosts.Machine()
        if self.uninstall:
            done = hosts.uninstall(host, machine)
        elif self.print or host in ("cursor", "vscode"):
            entry, hint = hosts.shown(host, machine, present(self.env))
            console.out(entry)
            done = [hint]
        else:
            done = hosts.install(host, machine, present(self.env))
        for line in done:
            console.say(line)
        return 0


class Doctor(Command, Options):
    """Say what works here, and what to do about the rest."""

    def execute(self) -> int:
        from orchestrator.terminal import doctor

        broken = console.run(doctor.report(self, console.out))
        if not broken:
            return 0
        code = min(finding.code for finding in broken)
        return console.fail(code, f"{len(broken)} of these must be fixed before `ask` works as it is set up.")


def _until_stopped(serving: Coroutine[Any, Any, None]) -> int:
    """Serve; being stopped is how serving ends."""
    with suppress(Interrupted):
        console.run(serving)
    return 0


def deliver(result: Result, showing: Showing) -> None:
    """The result in the format asked for, to where it was asked for."""
    from orchestrator import render

    console.deliver(render.render(result, showing.format), showing.output)
