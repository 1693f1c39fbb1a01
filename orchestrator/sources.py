"""What the tools returned: numbered sources, their excerpts, and what the model is shown of them.

A source's identity is its canonical URL; its id (`S1`, `S2`, ...) is given once and never moves, follow-ups
included. Excerpts accumulate. What the registry hands to a model is neutralised: a page cannot forge an id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.errors import UsageError
from orchestrator.events import Event, Source, ToolCall, ToolResult
from orchestrator.excerpts import best
from orchestrator.harvest import Written, walk
from orchestrator.pagetext import clean, one_line
from orchestrator.records import Found
from orchestrator.urls import canonical, spelled, title_of

__all__ = ["Registry", "canonical", "clean", "read"]


class Registry:
    """All sources of a conversation, in the order in which they were first returned."""

    def __init__(self, sources: Iterable[Source] = ()) -> None:
        self._sources: dict[str, Source] = {}
        self._order: list[str] = []
        self._by_identity: dict[str, str] = {}
        self._excerpts: dict[str, dict[str, None]] = {}
        self._stale: set[str] = set()
        """Ids whose source has gained excerpts since it was last built."""
        self._asked: dict[str, str] = {}
        for source in sources:
            self._keep(source)

    def __iter__(self) -> Iterator[Source]:
        return iter([self._whole(id) for id in self._order])

    def __len__(self) -> int:
        return len(self._order)

    @property
    def ids(self) -> Set[str]:
        """All ids, as a live view."""
        return self._sources.keys()

    def see(self, event: Event) -> None:
        """Fold one event: results that reached the server and succeeded add sources, others nothing."""
        match event:
            case ToolCall():
                page = asked_page(event.arguments)
                if page is not None:
                    self._asked[event.id] = page
            case ToolResult(denied=False, is_error=False):
                walk(event.content, self._name, self._asked.get(event.id))

    def add(self, content: Any, arguments: Mapping[str, Any] | None = None) -> list[Source]:
        """Return the sources in a tool's result, in order and once each; known ones keep their ids.

        `arguments` of the call tell which page a result is that names no URL itself.
        """
        seen: dict[str, None] = {}

        def name(found: Found) -> Written:
            written = self._name(found)
            seen[written.id] = None
            return written

        walk(content, name, asked_page(arguments))
        return [self._whole(id) for id in seen]

    def label(self, content: Any, arguments: Mapping[str, Any] | None = None, *, links: bool = False) -> Any:
        """Return a result as the model is to see it, source ids written in; unknown sources are added first.

        Text stays text, JSON keeps its shape with `source_id` and `cite` beside each URL. `cite` is `[S3]`,
        or `[S3](url)` with `links`, which a reader can click. Page text is neutralised.
        """

        def name(found: Found) -> Written:
            written = self._name(found)
            url = spelled(self._sources[written.id].url)
            return Written(written.id, f"[{written.id}]({url})") if links else written

        return walk(content, name, asked_page(arguments))

    def by_id(self, id: str) -> Source | None:
        """Return the source of this id, None where there is none."""
        return self._whole(id) if id in self._sources else None

    def by_number(self, number: int) -> Source | None:
        """Return the source that a bare number means where ids are shown: the id, else the place from 1."""
        if str(number) in self._sources:
            return self._whole(str(number))
        return self._whole(self._order[number - 1]) if 0 < number <= len(self._order) else None

    def by_url(self, url: str) -> Source | None:
        """Return the source that this URL names in any spelling."""
        id = self._by_identity.get(canonical(url))
        return self._whole(id) if id else None

    def evidence(self, question: str, max_bytes: int, *, ids: bool = True) -> str:
        """Return the passages that fit the question best, best first, each in its `<source>` element.

        At most `max_bytes` of UTF-8; empty when nothing fits. Without `ids` the elements name sources by
        their URL alone: for a conversation in which ids do not count.
        """
        return best(question, self, max_bytes, ids=ids)

    def _name(self, found: Found) -> Written:
        identity = canonical(found.url)
        id = self._by_identity.get(identity)
        if id is None:
            id = self._new_id()
            self._keep(Source(id=id, url=clean(found.url), title=found.title or title_of(clean(found.url))))
        source = self._sources[id]
        if found.title and source.title == title_of(source.url):
            source = source.model_copy(update={"title": found.title})
        if found.published and not source.published:
            source = source.model_copy(update={"published": found.published})
        excerpts = self._excerpts[id]
        excerpts.update(dict.fromkeys(found.texts))
        if len(excerpts) != len(source.excerpts):
            self._stale.add(id)
        self._sources[id] = source
        return Written(id, f"[{id}]")

    def _new_id(self) -> str:
        number = len(self._order) + 1
        while f"S{number}" in self._sources:
            number += 1
        return f"S{number}"

    def _keep(self, source: Source) -> None:
        if source.id not in self._sources:
            self._order.append(source.id)
        self._sources[source.id] = source
        self._by_identity.setdefault(canonical(source.url), source.id)
        self._excerpts[source.id] = dict.fromkeys(source.excerpts)

    def _whole(self, id: str) -> Source:
        if id in self._stale:
            self._stale.discard(id)
            excerpts = tuple(self._excerpts[id])
            self._sources[id] = self._sources[id].model_copy(update={"excerpts": excerpts})
        return self._sources[id]


class _Line(BaseModel):
    """One line of a sources file."""

    model_config = ConfigDict(extra="ignore")

    url: str = Field(min_length=1)
    title: str | None = None
    excerpts: tuple[str, ...] = ()
    id: str | None = Field(default=None, min_length=1)
    published: str | None = None


def read(path: Path) -> Registry:
    """Read a file of `{"url", "title", "excerpts", "id"}` lines; without `id` they are S1, S2, ... in order.

    Raises `UsageError` naming the line that is wrong.
    """
    sources: dict[str, Source] = {}
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read sources from {path}: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = _Line.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"])) or "the line"
            raise UsageError(f"{path}, line {number}: {field}: {first['msg']}") from error
        id = entry.id or f"S{len(sources) + 1}"
        if id in sources:
            raise UsageError(f"{path}, line {number}: id {id} is given twice")
        title = one_line(entry.title or "") or title_of(entry.url)
        excerpts = tuple(map(clean, entry.excerpts))
        sources[id] = Source(id=id, url=entry.url, title=title, published=entry.published, excerpts=excerpts)
    return Registry(sources.values())


def asked_page(arguments: Mapping[str, Any] | None) -> str | None:
    """Return the one URL that a call asked for, None when it asked for none or several."""
    asked = [value for key in ("url", "urls", "uri", "link") for value in _listed((arguments or {}).get(key))]
    return asked[0] if len(asked) == 1 else None


def _listed(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, str)]
