"""The commands: what each prints, and the exit code it ends with.

Standard output gets the checked answer once, at the end, and nothing else; everything for people goes to
standard error. Each command is a settings class; nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from pydantic_settings import CliPositionalArg

from orchestrator import __version__
from orchestrator.config.layers import Shown
from orchestrator.errors import EXIT_CODES, USAGE_EXIT_CODE, Interrupted, RunError, UsageError
from orchestrator.settings import Options, Places, Showing
from orchestrator.terminal import argv, commands, console
from orchestrator.terminal.commands import Command, RunName, deliver

if TYPE_CHECKING:
    from orchestrator.trace import Record


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
        from orchestrator import citations, render
        from orchestrator.terminal import checking

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
            return console.fail(1, f"Citations that name none of the sources: {len(checked.dangling)}.")
        if self.strict and checked.unsupported:
            return console.fail(1, f"Citations that their source does not back: {len(checked.unsupported)}.")
        return 0


COMMANDS: Final[dict[str, dict[str, type[Command]]]] = {
    "research": {"ask": Ask, "resume": Resume, "check": Check},
    "the record": {"runs": commands.Runs, "runs show": commands.RunsShow, "runs rm": commands.RunsRemove},
    "other ways in": {"mcp": commands.Mcp, "install": commands.Install},
    "this machine": {"doctor": commands.Doctor, "offline": commands.Offline},
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
    args = [console.readable(arg) for arg in (sys.argv[1:] if args is None else args)]
    try:
        return _dispatch(args)
    except UsageError as error:
        return console.fail(USAGE_EXIT_CODE, str(error))
    except RunError as error:
        return console.fail(EXIT_CODES[error.status], str(error))
    except KeyboardInterrupt:
        return console.fail(EXIT_CODES["interrupted"], "Stopped.")
    except BrokenPipeError:
        console.give_up_output()
        return console.fail(EXIT_CODES["failed"], "Nobody reads standard output any more.")
    except Exception as error:
        if "--verbose" in args:
            traceback.print_exc()
        what = f"This is a fault of the program (--verbose shows more): {type(error).__name__}: {error}"
        return console.fail(EXIT_CODES["failed"], what)


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
    for heading, group in COMMANDS.items():
        lines.append(f"{heading}:")
        for name, command in group.items():
            said = (inspect.getdoc(command) or "").partition("\n")[0]
            lines.append(f"  {f'{name} {argv.positional(command)}':<20} {said}")
        lines.append("")
    return "\n".join(lines)


def _research(options: Options, showing: Showing, question: str, *, resume: str | None = None) -> int:
    """Run, show progress, deliver: what `ask` and `resume` share."""
    from orchestrator import runner, trace
    from orchestrator.terminal import history, progress

    console.require_place(showing.output)
    for notice in () if showing.quiet else options.notices():
        console.say(notice)
    seen: list[Record] = []
    listeners: list[Callable[[Record], None]] = [seen.append]
    with ExitStack() as stack:
        if showing.format == "stream-json":
            line = stack.enter_context(console.lines(showing.output))
            listeners.append(lambda record: line(record.to_line()))
        named = resume or options.follow_up
        so_far = history.load(trace.find(named, options.runs_folder)) if named else None
        views = progress.shown(quiet=showing.quiet, verbose=showing.verbose, so_far=so_far)
        listeners += stack.enter_context(views)
        try:
            result = console.run(runner.run(question, options, listeners, resume=resume))
        except Interrupted:
            if not seen:
                raise
            result = history.load(options.runs_folder / f"{seen[0].run}.jsonl")
    if showing.format != "stream-json":
        deliver(result, showing)
    code = EXIT_CODES[result.status]
    return console.fail(code, f"{result.status}: {result.message}") if code else 0
