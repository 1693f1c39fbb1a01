"""The terminal's side of the commands: standard output, standard error, files, signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import unicodedata
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from orchestrator.errors import Interrupted, UsageError

T = TypeVar("T")
_STOPPING: Final = ("SIGINT", "SIGTERM", "SIGHUP")
_LONGEST: Final = 100


def prepare() -> None:
    """A console that lacks a character must not end a run."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def readable(argument: str) -> str:
    """An argument without the lone surrogates that undecodable bytes leave."""
    return argument.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def standard_input() -> str:
    return sys.stdin.buffer.read().decode("utf-8-sig", "replace")


def say(line: str) -> None:
    """One line on standard error; a closed one is no reason to fail."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def fail(code: int, message: str) -> int:
    """The one line that every non-zero exit prints; returns the code."""
    say(f"orchestrator: {' '.join(message.split())}")
    return code


def out(text: str) -> None:
    """Text and a line feed on standard output; JSON is all ASCII where the console is not UTF-8."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
    if encoding != "utf8" and text.startswith("{"):
        with suppress(ValueError):
            text = json.dumps(json.loads(text))
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def give_up_output() -> None:
    """Standard output is closed: what is left in its buffer goes nowhere, silently."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def deliver(text: str, file: Path | None) -> None:
    """The command's one answer, to standard output or into a file."""
    if file is None:
        out(harmless(text) if sys.stdout.isatty() else text)
        return
    file.write_text(f"{text}\n", encoding="utf-8", newline="\n")


@contextmanager
def lines(file: Path | None) -> Iterator[Callable[[str], None]]:
    """Where lines go as they come: standard output or a file."""
    if file is None:
        yield out
        return
    with file.open("w", encoding="utf-8", newline="\n", buffering=1) as stream:
        yield lambda line: print(line, file=stream)


def require_place(file: Path | None) -> None:
    """Refuse an --output that could not be written, before anything is spent."""
    if file and (file.is_dir() or not os.access(file if file.exists() else file.absolute().parent, os.W_OK)):
        raise UsageError(f"--output {file} cannot be written: name a file in a folder that exists.")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end. Ctrl-C, SIGTERM or a lost terminal cancel it, wait for its end, raise `Interrupted`."""
    return asyncio.run(_interruptible(work))


async def _interruptible(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    # Where loops know no signal handlers (Windows), asyncio.run turns Ctrl-C into the same cancellation.
    with suppress(NotImplementedError):
        for name in _STOPPING:
            if hasattr(signal, name):
                loop.add_signal_handler(getattr(signal, name), task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise Interrupted("Stopped before it was done.") from None


def short(value: Any) -> str:
    """A value as one line of at most a hundred characters."""
    line = plain(value if isinstance(value, str) else str(value))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def plain(text: str) -> str:
    """One line without control characters: what pages say must not drive a terminal."""
    return "".join(c if unicodedata.category(c)[0] != "C" else " " for c in " ".join(text.split()))


def harmless(text: str) -> str:
    """Text without the control characters that drive a terminal; line feeds and tabs stay."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")


def dollars(usd: float) -> str:
    """A cap as a person writes it."""
    return f"${usd:.2f}" if round(usd, 2) == usd else f"${usd:g}"
