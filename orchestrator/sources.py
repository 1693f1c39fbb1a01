"""What the tools returned: numbered sources, their excerpts, and what the model is shown of them.

A source's identity is its canonical URL; its id (`S1`, `S2`, ...) is given once and never moves, follow-ups
included. Excerpts accumulate. What the registry hands to a model is neutralised: a page cannot forge an id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import Any

from orchestrator.events import Event, Source, ToolCall, ToolResult
from orchestrator.harvesting.excerpts import best
from orchestrator.harvesting.harvest import Written, walk
from orchestrator.harvesting.pagetext import clean
from orchestrator.harvesting.records import Found
from orchestrator.text.urls import canonical, spelled, title_of

__all__ = ["Registry", "canonical", "clean"]


class Registry:
    """All sources of a conversation, in the order in which they were first returned."""

    def __init__(self, sources: Iterable[Source] = ()) -> None:
        self._sources: dict[str, Source] = {}
        self._ids: dict[str, str] = {}
        """Every id ever given, in order, and the id of the source that it names: two ids may be one page."""
        self._by_identity: dict[str, str] = {}
        self._excerpts: dict[str, dict[str, None]] = {}
        self._stale: set[str] = set()
        """Ids whose source has gained excerpts since it was last built."""
        self._asked: dict[str, str] = {}
        for source in sources:
            self._keep(source)

    def __iter__(self) -> Iterator[Source]:
        return iter([self._whole(id) for id in self._sources])

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def ids(self) -> Set[str]:
        """All ids, as a live view."""
        return self._ids.keys()

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
        return self._whole(self._ids[id]) if id in self._ids else None

    def by_number(self, number: int) -> Source | None:
        """Return the source that a bare number means where ids are shown: the id, else the place from 1."""
        named = self.by_id(str(number)) or self.by_id(f"S{number}")
        return named or self.by_id(next(islice(self._ids, max(number - 1, 0), None), ""))

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
        number = len(self._ids) + 1
        while f"S{number}" in self._ids:
            number += 1
        return f"S{number}"

    def _keep(self, source: Source) -> None:
        id = self._by_identity.setdefault(canonical(source.url), source.id)
        self._ids[source.id] = id
        if id == source.id:
            self._sources[id] = source
            self._excerpts[id] = dict.fromkeys(source.excerpts)
        else:
            self._excerpts[id].update(dict.fromkeys(source.excerpts))
            self._stale.add(id)

    def _whole(self, id: str) -> Source:
        if id in self._stale:
            self._stale.discard(id)
            excerpts = tuple(self._excerpts[id])
            self._sources[id] = self._sources[id].model_copy(update={"excerpts": excerpts})
        return self._sources[id]


def asked_page(arguments: Mapping[str, Any] | None) -> str | None:
    """Return the one URL that a call asked for, None when it asked for none or several."""
    asked = [value for key in ("url", "urls", "uri", "link") for value in _listed((arguments or {}).get(key))]
    return asked[0] if len(asked) == 1 else None


def _listed(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, str)]
