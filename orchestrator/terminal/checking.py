"""What `check` compares a text with: the sources of a run, or a file that lists them."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator import trace
from orchestrator.errors import UsageError
from orchestrator.events import Source
from orchestrator.sources import Registry, clean
from orchestrator.terminal import history
from orchestrator.text.urls import title_of


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore")

    url: str
    title: str | None = None
    excerpts: tuple[str, ...] = ()
    id: str | None = None


def of_run(run: str, folder: Path) -> tuple[Registry, bool]:
    """The sources of a run, and whether its model was shown their ids: only then do ids count."""
    path = trace.find(run, folder)
    trace.require_content(trace.read(path), "check")
    result = history.load(path)
    return Registry(result.sources), result.ids_shown


def of_file(file: Path) -> Registry:
    """Sources from lines of `{"url", "title", "excerpts", "id"}`; all but `url` may be left out.

    Without `id` they are S1, S2, ... in order. Raises `UsageError` that names the line.
    """
    sources: dict[str, Source] = {}
    lines = [line for line in read_text(file).split("\n") if line.strip()]
    for number, text in enumerate(lines, 1):
        line = _line(file, number, text)
        name = line.id or f"S{number}"
        if name in sources:
            raise UsageError(f"{file}: line {number} has the id {name} of an earlier line.")
        sources[name] = Source(
            id=name, url=line.url, title=line.title or title_of(line.url), excerpts=line.excerpts
        )
    return Registry(sources.values())


def read_text(file: Path) -> str:
    """A file's text, cleaned of what no model takes."""
    try:
        return clean(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text.") from None


def _line(file: Path, number: int, text: str) -> _Line:
    try:
        return _Line.model_validate(json.loads(text))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the line"
        raise UsageError(f"{file}: line {number}, {field}: {first['msg']}.") from None
    except ValueError:
        raise UsageError(f"{file}: line {number} is not JSON.") from None
