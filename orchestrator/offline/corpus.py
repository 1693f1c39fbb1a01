"""A small corpus under full-text search: what the stand-ins search and fetch."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Final
from urllib.parse import urlsplit

from orchestrator.offline import documents
from orchestrator.offline.documents import Page

PASSAGE_CHARS: Final = 600
"""A passage ends with the paragraph that brings it to this length."""

_TOKENIZER: Final = "porter unicode61"
_QUERY_WORDS: Final = 48
_STOP_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """a about am an are be been can could describe did do does explain he her here his how i is it its
        may me might must my of our please shall she should tell that the their them there these they this
        those to us was we were what when where which who whom whose why will would you your""",
    )
)
"""Words of a question that say nothing of its subject. Python's keywords are not among them."""


@dataclass(frozen=True)
class Hit:
    """A page that answers a query, with its best passages, best first."""

    page: Page
    excerpts: tuple[str, ...]


class Corpus:
    """Pages in an in-memory SQLite FTS5 index. Safe to use from several threads."""

    def __init__(self, pages: Iterable[Page]) -> None:
        self._pages = list(pages)
        self._by_key = _addresses(self._pages)
        self._lock = Lock()
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        # Two tables: a word may be common in texts and telling in a title, and ranks weigh rarity by table.
        for table in ("titles", "passages"):
            self._db.execute(
                f"CREATE VIRTUAL TABLE {table} USING fts5(text, page UNINDEXED, tokenize='{_TOKENIZER}')"
            )
        self._db.executemany(
            "INSERT INTO titles VALUES (?, ?)", ((p.title, n) for n, p in enumerate(self._pages))
        )
        self._db.executemany("INSERT INTO passages VALUES (?, ?)", _passages(self._pages))

    @classmethod
    def load(cls, folder: Path | None = None) -> Corpus:
        """The user's folder, or the Python language reference. Raises `UsageError` for an unusable folder."""
        return cls(documents.folder(folder) if folder else documents.python_reference())

    def __len__(self) -> int:
        return len(self._pages)

    def __iter__(self) -> Iterator[Page]:
        return iter(self._pages)

    def search(
        self, query: str, *, limit: int = 10, passages: int = 4, accepts: Callable[[Page], bool] | None = None
    ) -> list[Hit]:
        """The `limit` best pages that `accepts` lets through, each with up to `passages` excerpts."""
        found: dict[int, list[tuple[float, str]]] = {}
        for page, text, score in self._ranked("passages", query):
            found.setdefault(page, []).append((score, text))
        titles = {page: score for page, _, score in self._ranked("titles", query)}
        # The best passage decides; further ones, and the title, say that the page is really about it.
        scores = {
            page: titles.get(page, 0) + sum(score / 2**n for n, (score, _) in enumerate(hits))
            for page, hits in found.items()
        }
        pages = sorted(found, key=lambda page: -scores[page])
        chosen = [page for page in pages if accepts is None or accepts(self._pages[page])][:limit]
        return [Hit(self._pages[page], tuple(text for _, text in found[page][:passages])) for page in chosen]

    def page(self, url: str) -> Page | None:
        """The page at an address, its section where the fragment names one that is known."""
        return self._by_key.get(_key(url)) or self._by_key.get(_key(url.partition("#")[0]))

    def excerpts(self, page: Page, query: str) -> list[str]:
        """All passages of a page, those that answer the query first, best first, the rest in their order."""
        passages = list(split(page.text))
        by_rank = {text: n for n, (_, text, _) in enumerate(self._ranked("passages", query))}
        return sorted(passages, key=lambda passage: by_rank.get(passage, len(by_rank)))

    def _ranked(self, table: str, query: str) -> list[tuple[int, str, float]]:
        """Rows of a table that hold any word of the query: page, text and score, best first."""
        expression = match_expression(query)
        if not expression:
            return []
        with self._lock:
            return self._db.execute(
                f"SELECT page, text, -rank FROM {table} WHERE {table} MATCH ? ORDER BY rank, rowid LIMIT 500",
                (expression,),
            ).fetchall()


def match_expression(query: str) -> str:
    """An FTS5 expression for any text: any of its words and word pairs, each quoted; "" without words."""
    words = [word.lower() for word in re.findall(r"\w+", query) if word.strip("_")][:_QUERY_WORDS]
    telling = [word for word in words if word not in _STOP_WORDS] or words
    pairs = [f"{one} {two}" for one, two in pairwise(words) if not _STOP_WORDS.intersection((one, two))]
    return " OR ".join(f'"{term}"' for term in dict.fromkeys(telling + pairs))


def split(text: str) -> Iterator[str]:
    """Passages of a text: whole paragraphs up to about `PASSAGE_CHARS`, a longer one in pieces."""
    passage: list[str] = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("## ") and not all(piece.startswith("## ") for piece in passage):
            yield "\n\n".join(passage)
            passage = []
        for piece in _pieces(paragraph):
            passage.append(piece)
            if sum(map(len, passage)) >= PASSAGE_CHARS:
                yield "\n\n".join(passage)
                passage = []
    if passage:
        yield "\n\n".join(passage)


def _pieces(paragraph: str) -> Iterator[str]:
    """A paragraph too long for one passage, cut after a sentence or a line, else after a word."""
    while len(paragraph) > 2 * PASSAGE_CHARS:
        window = paragraph[: 2 * PASSAGE_CHARS]
        cuts = [found.end() for found in re.finditer(r"[.!?]\s|\n", window)] or [window.rfind(" ") + 1]
        cut = cuts[-1] or len(window)
        yield paragraph[:cut].rstrip()
        paragraph = paragraph[cut:]
    yield paragraph


def _passages(pages: list[Page]) -> Iterator[tuple[str, int]]:
    """Rows of the index. A paragraph on several pages counts for the shortest, the most specific."""
    seen: set[str] = set()
    for number in sorted(range(len(pages)), key=lambda n: len(pages[n].text)):
        page = pages[number]
        own = [paragraph for paragraph in page.text.split("\n\n") if paragraph not in seen]
        seen.update(own)
        for passage in split("\n\n".join(own)):
            yield passage, number


def _addresses(pages: list[Page]) -> dict[str, Page]:
    """Pages by address, and the whole document under an address that has only sections."""
    found = {_key(page.url): page for page in pages}
    sections: dict[str, list[Page]] = {}
    for page in pages:
        sections.setdefault(page.url.partition("#")[0], []).append(page)
    for url, parts in sections.items():
        if _key(url) not in found:
            found[_key(url)] = Page(
                url, parts[0].title.rpartition(" — ")[2] + f": {_name(url)}", _joined(parts)
            )
    return found


def _joined(parts: list[Page]) -> str:
    """The sections of one document, without those that another one contains."""
    return "\n\n".join(
        part.text
        for part in parts
        if not any(part is not other and part.text in other.text for other in parts)
    )


def _name(url: str) -> str:
    return urlsplit(url).path.rpartition("/")[2].rpartition(".")[0].replace("_", " ")


def _key(url: str) -> str:
    """What two spellings of one address share."""
    try:
        parts = urlsplit(url.strip())
        host, port = (parts.hostname or "").removeprefix("www."), parts.port
    except ValueError:
        return url
    place = host if port in (None, 80, 443) else f"{host}:{port}"
    scheme = "" if parts.scheme in ("http", "https") else f"{parts.scheme}:"
    return f"{scheme}{place}{parts.path.rstrip('/')}?{parts.query}#{parts.fragment}"
