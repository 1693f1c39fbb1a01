"""The run file: JSON Lines, one event a line, and the only state that a run has.

    {"event": ..., "run": ID, "seq": N, "at": UTC time, ...the event's own fields}

The first line has "schema" and "version" too. Secrets are masked in every readable field. A checkpoint is
opaque and must come back byte for byte: one in which something would have to be masked is written without
its blocks, and `checkpoints` then says that the conversation cannot be carried on.
Under a run's id stand `ID.jsonl` and, where the engine keeps a session, the folder `ID/` beside it.
"""

from __future__ import annotations

import json
import os
import re
import secrets as randomness
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pydantic import ValidationError

from orchestrator import __version__
from orchestrator.errors import UsageError
from orchestrator.events import (
    EVENT,
    Charge,
    Checkpoint,
    CitationsChecked,
    Event,
    PassFinished,
    PassStarted,
    RunFailed,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCall,
    ToolResult,
)

SCHEMA: Final = 1
MASK: Final = "[masked]"
RUN_ID: Final = re.compile(r"\d{8}-\d{6}-\d{3}-[0-9a-f]{6}")

_DURABLE: Final = (RunStarted, PassStarted, Charge, Checkpoint, RunFinished, RunFailed)
"""What must survive a power cut: that money may have been spent, and where to go on."""
_SHAPES: Final = (
    r"sk-ant-[A-Za-z0-9_-]{10,}",
    r"(?<![A-Za-z0-9])sk-(?:proj-)?[A-Za-z0-9]{20,}",
    r"(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}",
    r"AKIA[0-9A-Z]{16}",
    r"AIza[0-9A-Za-z_-]{35}",
    r"xox[abprs]-[A-Za-z0-9-]{10,}",
    r"(?<=[Bb]earer )(?=[^\s\d]*\d)[A-Za-z0-9._~+/=-]{16,}",  # with a digit, so that words stay
    r"(?<=[Bb]asic )(?=[^\s\d]*\d)[A-Za-z0-9+/]{16,}={0,2}",
    r"(?<=://)[^/@\s:]{1,64}:[^/@\s]{1,256}(?=@)",  # user:password in an address
)
_TELLTALES: Final = ("sk-", "gh", "AKIA", "AIza", "xox", "earer ", "asic ", "@")
"""Every shape holds one of these: most texts hold none, and need not be looked at closely."""
_SHORTEST_SECRET: Final = 8
"""A shorter value would mask ordinary words."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Record:
    """One line of a run file: the event as written, and the stamp it got."""

    run: str
    seq: int
    at: datetime
    event: Event

    def to_line(self) -> str:
        """The line, without the line feed."""
        data = self.event.model_dump()
        stamp = {"event": data.pop("event"), "run": self.run, "seq": self.seq, "at": _iso(self.at)}
        if self.seq == 0:
            stamp |= {"schema": SCHEMA, "version": __version__}
        return json.dumps(stamp | data, ensure_ascii=False, separators=(",", ":"))


class Trace:
    """Writes one run file. Without `content` no text of question, pages or answer is written.

    Text deltas are merged per block: they are written when another event follows (a new booking of the same
    pass does not count), or on closing.
    Raises `UsageError` when the file cannot be created; an existing one is never touched.
    """

    def __init__(self, path: Path, run_id: str, *, content: bool = True, secrets: Sequence[str] = ()) -> None:
        self.path = path
        self.run_id = run_id
        self._content = content
        self._mask = Mask(secrets)
        self._seq = 0
        self._text: list[str] = []
        self._step = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        except OSError as error:
            raise UsageError(
                f"The run file {path} cannot be written ({error.strerror}): name a folder with --runs-dir."
            ) from None

    def write(self, event: Event) -> Record:
        """Write one event; the record holds it as masked."""
        return self.write_all([event])[0]

    def write_all(self, events: Sequence[Event]) -> list[Record]:
        """Write several events in one go: after a crash the file has all of them or a torn line."""
        lines: list[str] = []
        records = [self._stamp(event, lines) for event in events]
        self._append(lines, durable=any(isinstance(event, _DURABLE) for event in events))
        return records

    def close(self) -> None:
        """Write the text that is still held back, and close the file. Closing twice does nothing."""
        if self._file >= 0:
            self._append(self._held_text(), durable=False)
            os.close(self._file)
            self._file = -1

    def _stamp(self, event: Event, lines: list[str]) -> Record:
        if isinstance(event, TextDelta):
            self._text.append(event.text)
            return Record(self.run_id, self._seq, _now(), self._mask(event))
        if not (isinstance(event, PassStarted) and event.step == self._step):
            lines += self._held_text()
        if isinstance(event, PassStarted):
            self._step = event.step
        record = Record(self.run_id, self._seq, _now(), self._mask(event))
        kept = record.event if self._content else _without_content(record.event)
        if kept is not None:
            lines.append(Record(record.run, record.seq, record.at, kept).to_line())
            self._seq += 1
        return record

    def _held_text(self) -> list[str]:
        text, self._text = "".join(self._text), []
        if not text or not self._content:
            return []
        record = Record(self.run_id, self._seq, _now(), self._mask(TextDelta(text=text)))
        self._seq += 1
        return [record.to_line()]

    def _append(self, lines: Iterable[str], *, durable: bool) -> None:
        data = memoryview("".join(f"{line}\n" for line in lines).encode())
        while data:
            data = data[os.write(self._file, data) :]
        if durable:
            os.fsync(self._file)


class Mask:
    """Replaces secrets, by their shape and by value, in every string of an event, dict keys included."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {form for secret in secrets if len(secret) >= _SHORTEST_SECRET for form in _forms(secret)}
        values = [re.escape(value) for value in sorted(known, key=len, reverse=True)]
        self._telltales = (*_TELLTALES, *known)
        self._pattern = re.compile("|".join([*values, *_SHAPES]))

    def __call__(self, event: Event) -> Event:
        data = event.model_dump()
        clean = self._walk(data)
        if clean == data:
            return event
        if isinstance(event, Checkpoint):
            return Checkpoint(backend=event.backend, blocks=())
        return EVENT.validate_python(clean)

    def text(self, text: str) -> str:
        if any(telltale in text for telltale in self._telltales):
            text = self._pattern.sub(MASK, text)
        return text if text.isascii() else _SURROGATE.sub("�", text)

    def _walk(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {self._walk(key): self._walk(item) for key, item in value.items()}
            case list() | tuple():
                return type(value)(self._walk(item) for item in value)
            case _:
                return value


_TEXTS: Final[dict[type[Event], dict[str, Any]]] = {
    RunStarted: {"question": ""},
    ToolCall: {"arguments": {}},
    ToolResult: {"content": None},
    PassFinished: {"detail": None},
    CitationsChecked: {"verdicts": ()},
    RunFinished: {"answer": "", "warnings": ()},
    RunFailed: {"answer": "", "warnings": ()},
}
"""The fields that hold text of question, pages or answer, and what stands in their place without content."""


def _forms(secret: str) -> tuple[str, str, str]:
    """As it is, in an address, and in JSON that stands in a string."""
    return secret, quote(secret, safe=""), json.dumps(secret)[1:-1]


def _without_content(event: Event) -> Event | None:
    """What is left for a run that keeps no text; None where nothing is."""
    if isinstance(event, Checkpoint):
        return None
    kept = event.model_copy(update=_TEXTS.get(type(event), {}))
    if isinstance(kept, CitationsChecked):
        kept = kept.model_copy(update={"coverage": kept.coverage.model_copy(update={"uncited": ()})})
    return kept


def read(path: Path) -> list[Record]:
    """The records of a run file. A torn last line is left out; anything else unreadable is a `UsageError`."""
    try:
        *whole, last = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    records = [_parse(path, number, line) for number, line in enumerate(whole, 1)]
    if last:
        try:
            records.append(_parse(path, len(whole) + 1, last))
        except UsageError:
            if _is_json(last):
                raise
    return records


def checkpoints(runs: Iterable[Iterable[Record]]) -> tuple[Checkpoint, ...] | None:
    """The conversation so far; None when a part of it was withheld, so that it cannot be carried on."""
    found = [r.event for records in runs for r in records if isinstance(r.event, Checkpoint)]
    return tuple(found) if all(checkpoint.blocks for checkpoint in found) else None


def require_content(records: Sequence[Record], purpose: str) -> None:
    """Raise `UsageError` for a run that was kept with --no-content, or never began."""
    first = records[0].event if records else None
    if not isinstance(first, RunStarted):
        raise UsageError(f"This run file holds no run: there is nothing to {purpose}.")
    if not first.question:
        raise UsageError(f"Run {records[0].run} was kept with --no-content: there is nothing to {purpose}.")


def new_run_id() -> str:
    """Unique, and sorted by time: 20261130-164312-482-9f3a1c (UTC, with milliseconds)."""
    now = datetime.now(UTC)
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}-{randomness.token_hex(3)}"


def run_files(folder: Path) -> list[Path]:
    """All run files of a folder, oldest first."""
    return sorted(p for p in folder.glob("*.jsonl") if RUN_ID.fullmatch(p.stem))


def find(run: str, folder: Path) -> Path:
    """The run file that an id, a unique prefix of one, a path or `last` names."""
    files = run_files(folder)
    if run == "last":
        if files:
            return files[-1]
        raise UsageError(f"There is no run in {folder} yet.")
    if Path(run).suffix == ".jsonl":
        if Path(run).is_file():
            return Path(run)
        raise UsageError(f"There is no run file {run}.")
    matching = [path for path in files if run and path.stem.startswith(run)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UsageError(f"{run} could be {len(matching)} runs, the newest is {matching[-1].stem}.")
    raise UsageError(f"There is no run {run} in {folder}: `runs` lists them.")


def chain(path: Path) -> list[list[Record]]:
    """The run, before it the runs that it resumes or follows up, oldest first."""
    runs: list[list[Record]] = []
    seen: set[str] = set()
    earlier: str | None = path.stem
    while earlier and earlier not in seen:
        seen.add(earlier)
        file = path.with_name(f"{earlier}.jsonl")
        if not file.is_file():
            raise UsageError(f"Run {earlier}, which {path.stem} goes on from, is no longer there.")
        runs.insert(0, read(file))
        first = runs[0][0].event if runs[0] else None
        earlier = (first.resumes or first.follow_up) if isinstance(first, RunStarted) else None
    return runs


def session_folder(path: Path) -> Path:
    """Where the engine may keep its session of this run."""
    return path.with_suffix("")


def remove(path: Path) -> None:
    """Delete a run: its file and the session folder beside it."""
    shutil.rmtree(session_folder(path), ignore_errors=True)
    path.unlink()


def _parse(path: Path, number: int, line: bytes) -> Record:
    try:
        data = json.loads(line)
        schema = data.pop("schema", SCHEMA)
        if schema != SCHEMA:
            raise UsageError(
                f"{path} was written by a newer version ({data.get('version')}, schema {schema}): update."
            )
        data.pop("version", None)
        stamp = {"run": data.pop("run"), "seq": data.pop("seq"), "at": datetime.fromisoformat(data.pop("at"))}
        return Record(event=EVENT.validate_python(data), **stamp)
    except (ValueError, KeyError, AttributeError, TypeError, ValidationError):
        raise UsageError(f"{path}: line {number} is not a line of a run file.") from None


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _now() -> datetime:
    return datetime.now(UTC)


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
