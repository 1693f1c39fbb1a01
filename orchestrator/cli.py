"""The commands: what each prints, and the exit code it ends with.

Standard output gets the checked answer once, at the end, and nothing else; everything for people goes to
standard error. Each command is a settings class; nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from pydantic import Field
from pydantic_settings import CliPositionalArg

from orchestrator import __version__, argv, console
from orchestrator.errors import EXIT_CODES, USAGE_EXIT_CODE, Interrupted, RunError, UsageError
from orchestrator.layers import Ceilings, Key, Settings, Shown, Usd
from orchestrator.settings import Options, Places, Showing

if TYPE_CHECKING:
    from orchestrator.result import Result
    from orchestrator.trace import Record

RunName = CliPositionalArg[Annotated[str, Shown("RUN")]]


class Command(Settings):
    """What every command has."""

    unused: ClassVar[frozenset[str]] = frozenset()
    """Options of its bases that this command has no use for."""

    def execute(self) -> int:
        """Do it; the exit code."""
        raise NotImplementedError


class Ask(Command, Showing, Options):
    """Research a question and print an answer whose citations are checked.

    examples:
      ask --offline "How does the with statement handle exceptions?"      no key, no network
      ask "When did the Hubble Space Telescope launch?" --max-usd 0.10
      ask - --format json --output answer.json < question.txt
    """

    question: CliPositionalArg[str]
    """What to find out; `-` reads it from standard input."""

    def execute(self) -> int:
        question = console.standard_input() if self.question == "-" else self.question
        return _research(self, self, question)


class Resume(Command, Showing, Options):
    """Complete a run that crashed, was stopped or hit a limit.

    What it had spent counts. Model, backend, servers and limits are its own, unless given anew.

    examples:
      resume last --max-usd 1
    """

    unused: ClassVar[frozenset[str]] = frozenset({"follow_up"})
    run: RunName
    """An id, a unique prefix of one, a path, or `last`."""

    def execute(self) -> int:
        from orchestrator import trace
        from orchestrator.events import RunStarted

        path = trace.find(self.run, self.runs_folder)
        records = trace.read(path)
        trace.require_content(records, "resume")
        started = records[0].event
        assert isinstance(started, RunStarted)
        return _research(self.like(started), self, "", resume=path.stem)


class Check(Command, Showing, Places):
    """Check the citations of any text against a run or a list of sources.

    Ends 1 when a citation names nothing that is there.

    examples:
      check answer.md --run last
      check report.md --sources sources.jsonl --format json

    A line of sources.jsonl is {"url": ..., "title": ..., "excerpts": [...], "id": ...}.
    """

    unused: ClassVar[frozenset[str]] = frozenset({"no_content", "verbose"})
    file: CliPositionalArg[str]
    """The text; `-` reads it from standard input."""
    run: Annotated[str | None, Shown("RUN")] = None
    """Check against what this run's tools returned."""
    sources: Annotated[Path | None, Shown("FILE")] = None
    """Check against these sources, one JSON object a line; without ids they are S1, S2, ... in order."""
    strict: bool = False
    """End 1 also when a source does not say what the sentence says."""

    def execute(self) -> int:
        from orchestrator import checking, citations, render

        if (self.run is None) == (self.sources is None):
            raise UsageError("Name what to check against: --run RUN or --sources FILE.")
        console.require_place(self.output)
        text = console.standard_input() if self.file == "-" else checking.read_text(Path(self.file))
        if self.sources is not None:
            registry, ids_shown = checking.of_file(self.sources), True
        else:
            registry, ids_shown = checking.of_run(self.run or "", self.runs_folder)
        checked = citations.check(text, registry, ids_shown=ids_shown)
        form = "json" if self.format == "stream-json" else self.format
        console.deliver(render.render_check(text, checked, registry, form), self.output)
        if checked.dangling:
            return _fail(1, f"{len(checked.dangling)} citations name nothing that is among the sources.")
        if self.strict and checked.unsupported:
            return _fail(1, f"{len(checked.unsupported)} citations are not backed by their source.")
        return 0


class Runs(Command, Places):
    """List the runs, newest last."""

    unused: ClassVar[frozenset[str]] = frozenset({"no_content"})

    def execute(self) -> int:
        from orchestrator import history

        for line in history.listing(self.runs_folder):
            console.out(line)
        return 0


class RunsShow(Command, Showing, Places):
    """Show one run: its answer, its sources, what it cost."""

    unused: ClassVar[frozenset[str]] = frozenset({"no_content", "verbose"})
    run: RunName
    """An id, a unique prefix of one, a path, or `last`."""

    def execute(self) -> int:
        from orchestrator import history, trace

        path = trace.find(self.run, self.runs_folder)
        if self.format == "stream-json":
            console.deliver("\n".join(record.to_line() for record in trace.read(path)), self.output)
            return 0
        result = history.load(path)
        for line in () if self.quiet else history.facts(result):
            console.say(line)
        _deliver(result, self)
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
        from orchestrator import doors
        from orchestrator.caps import Ceiling

        hour = Ceiling(self.hourly_usd, self.hourly_calls)
        day = Ceiling(self.daily_usd, self.daily_calls)
        return _until_stopped(doors.serve(self, self.http, token=self.http_token, hour=hour, day=day))


class Doctor(Command, Options):
    """Say what works here, and what to do about the rest."""

    def execute(self) -> int:
        from orchestrator import doctor

        broken = console.run(doctor.report(self, console.out))
        if not broken:
            return 0
        code = min(finding.code for finding in broken)
        return _fail(code, f"{len(broken)} of these must be fixed before `ask` works as it is set up.")


COMMANDS: Final[dict[str, dict[str, type[Command]]]] = {
    "research": {"ask": Ask, "resume": Resume, "check": Check},
    "the record": {"runs": Runs, "runs show": RunsShow, "runs rm": RunsRemove},
    "other ways in": {"mcp": Mcp},
    "this machine": {"doctor": Doctor, "offline": Offline},
}
"""Every command by the heading it stands under in the help."""

_HELP: Final = """\
usage: {prog} COMMAND [options]

Ask a question, get an answer whose every citation is checked against what the search tools
really returned, for no more money than you said, with a record that shows how.

{commands}
RUN is an id, a unique prefix of one, a path, or `last`.
`{prog} COMMAND --help` explains a command, --version prints the version.

Start here, without any key:
  {prog} ask --offline "How does the with statement handle exceptions?"
"""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. Each non-zero one has said in one line what happened."""
    console.prepare()
    try:
        return _dispatch([console.readable(arg) for arg in (sys.argv[1:] if args is None else args)])
    except UsageError as error:
        return _fail(USAGE_EXIT_CODE, str(error))
    except RunError as error:
        return _fail(EXIT_CODES[error.status], str(error))
    except KeyboardInterrupt:
        return _fail(EXIT_CODES["interrupted"], "Stopped.")
    except BrokenPipeError:
        console.give_up_output()
        return _fail(EXIT_CODES["failed"], "Nobody reads standard output any more.")
    except Exception as error:
        return _fail(EXIT_CODES["failed"], f"This is a fault of the program: {type(error).__name__}: {error}")


def _dispatch(args: list[str]) -> int:
    prog = "python -m orchestrator" if sys.argv[0].endswith("__main__.py") else "orchestrator"
    if not args or args[0] in ("-h", "--help", "help"):
        console.out(_HELP.format(prog=prog, commands=_overview()).rstrip())
        return 0
    if args[0] == "--version":
        console.out(f"orchestrator {__version__}")
        return 0
    known = {name: command for group in COMMANDS.values() for name, command in group.items()}
    if args[:2] == ["runs", "list"]:
        args = ["runs", *args[2:]]  # the long form of what `runs` alone does
    name = next((name for name in (" ".join(args[:2]), args[0]) if name in known), None)
    if name is None:
        names = ", ".join(name for name in known if " " not in name)
        raise UsageError(f"There is no command {args[0]!r}; there are {names}. Options stand after it.")
    command = known[name]
    rest = args[name.count(" ") + 1 :]
    return argv.parse(command, f"{prog} {name}", rest, without=command.unused).execute()


def _overview() -> str:
    lines = []
    for heading, commands in COMMANDS.items():
        lines.append(f"{heading}:")
        for name, command in commands.items():
            said = (inspect.getdoc(command) or "").partition("\n")[0]
            lines.append(f"  {f'{name} {argv.positional(command)}':<20} {said}")
        lines.append("")
    return "\n".join(lines)


def _research(options: Options, showing: Showing, question: str, *, resume: str | None = None) -> int:
    """Run, show progress, deliver: what `ask` and `resume` share."""
    from orchestrator import progress, runner

    console.require_place(showing.output)
    for notice in () if showing.quiet else options.notices():
        console.say(notice)
    seen: list[Record] = []
    listeners: list[Callable[[Record], None]] = [seen.append]
    if showing.format == "stream-json":
        listeners.append(lambda record: console.out(record.to_line()))
    with progress.shown(quiet=showing.quiet, verbose=showing.verbose) as views:
        try:
            result = console.run(runner.run(question, options, [*listeners, *views], resume=resume))
        except Interrupted:
            if not seen:
                raise
            result = _stopped(options, seen[0].run)
    if showing.format != "stream-json":
        _deliver(result, showing)
    code = EXIT_CODES[result.status]
    return _fail(code, f"{result.status}: {result.message}") if code else 0


def _until_stopped(serving: Coroutine[Any, Any, None]) -> int:
    """Serve; being stopped is how serving ends."""
    with suppress(Interrupted):
        console.run(serving)
    return 0


def _stopped(options: Options, run: str) -> Result:
    """What a run that the user stopped had found: its file says it."""
    from orchestrator import history

    return history.load(options.runs_folder / f"{run}.jsonl")


def _deliver(result: Result, showing: Showing) -> None:
    from orchestrator import render

    console.deliver(render.render(result, showing.format), showing.output)


def _fail(code: int, message: str) -> int:
    """The one line that every non-zero exit prints."""
    console.say(f"orchestrator: {' '.join(message.split())}")
    return code
