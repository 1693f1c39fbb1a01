"""How the stand-in model reads: excerpts out of results or a prompt, the sentences that match best."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

_ANY_ID = re.compile(r"\[S\d{1,6}\]")
_ID_HEAD = re.compile(r"""^[\s>#*\-]*(?:<\w+\s+)?(?:\[|source_id["']?\s*[:=]\s*["']?|id=["'])(S\d{1,6})\b""")
_ID_BEHIND = re.compile(r"https?://\S+\s+\[(S\d{1,6})\]")
_CLOSED = re.compile(r"\s*</source>\s*$")
_TITLE = re.compile(r"\s*(?:title\s*:|#{1,6}\s)\s*(.+)", re.IGNORECASE)
_FIELD = re.compile(r"\s*(?:</?\w[^>]*>|[A-Z][A-Za-z ]{1,18}:(?:\s+\S{1,40})?|-{3,}|\.{3}|Title:.*)\s*$")
"""A line of a result that says something about the page and not of it."""
_LINK = re.compile(r"(?<!!)\[([^\]\n]{1,300})\]\(<?(https?://[^\s>]+?)>?\)(?=[\s.,;:!?|]|$)", re.MULTILINE)
_URL = re.compile(r"https?://[^\s<>\"'\]]+")
_BREAK = re.compile(r"(?<=[.!?])[\"')]?\s+(?=[\"'(`]?[A-Z0-9])|\n\s*\n|\n(?=\s*(?:[-*#>|]|\d+\.)\s)")
_WORD = re.compile(r"\w+")
_HEADING = re.compile(r"^\s*#{1,6}\s.*$", re.MULTILINE)
_STOP = frozenset(
    re.findall(
        r"\w+",
        """
        a about after all also am an and any are as at be been before but by can could did do does
        doing for from had has have he her his how i if in into is it its just me more most my no
        not of on one only or other our out over she should so some such than that the their them
        then there these they this to too up was we were what when where which while who whom why
        will with would you your please tell explain give find describe happen happens work works
        use used using
        """,
    )
)
_SHORTEST, _LONGEST = 30, 420


@dataclass(frozen=True)
class Excerpt:
    """A piece of text and how it is to be cited."""

    text: str
    marker: str


@dataclass(frozen=True)
class Found:
    sentence: str
    marker: str
    score: float


def words(text: str) -> list[str]:
    """The words that matter, cut to a common stem."""
    return [_stem(word) for word in _WORD.findall(text.lower()) if word not in _STOP and len(word) > 1]


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def best(question: str, excerpts: Iterable[Excerpt], limit: int = 3) -> list[Found]:
    """The sentences that match the question best, in the order in which they were read."""
    wanted = set(words(question))
    candidates = _candidates(excerpts)
    stems = [set(words(sentence)) for sentence, _ in candidates]
    seen = Counter(word for each in stems for word in each & wanted)
    scored: list[tuple[float, int]] = []
    for index, each in enumerate(stems):
        score = sum(1 + math.log(len(stems) / seen[word]) for word in each & wanted)
        scored.append((score - 0.01 * math.log1p(index), index))
    need = min(2, len(wanted)) if len(wanted) > 2 else 1
    good = [(s, i) for s, i in scored if len(stems[i] & wanted) >= need] or [
        (s, i) for s, i in scored if stems[i] & wanted
    ]
    chosen = sorted(sorted(good, reverse=True)[:limit], key=lambda pair: pair[1])
    return [Found(*candidates[index], score) for score, index in chosen]


def _candidates(excerpts: Iterable[Excerpt]) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for excerpt in excerpts:
        for sentence in sentences(excerpt.text):
            found.setdefault(sentence, excerpt.marker)
    return list(found.items())


def sentences(text: str) -> Iterator[str]:
    """Whole sentences that can stand by themselves: no code, no list, no markers of other texts."""
    for piece in _BREAK.split(_HEADING.sub("\n\n", text)):
        sentence = " ".join(piece.split())
        if not _SHORTEST <= len(sentence) <= _LONGEST or sentence[-1] not in ".!?":
            continue
        if sentence[0].isalnum() and not any(mark in sentence for mark in ("[", "]", "<", ">>>", "|", "://")):
            yield sentence


def excerpts(content: Any) -> list[Excerpt]:
    """Everything citable in a tool result's content: JSON with results, or text with links or source ids."""
    if isinstance(content, str):
        parsed = _json(content)
        return from_text(content) if parsed is None else list(_from_json(parsed))
    if isinstance(content, list):
        texts = [str(block.get("text", "")) for block in content if isinstance(block, dict)]
        return [each for text in texts for each in excerpts(text)]
    return []


def _json(text: str) -> Any:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return None


def _from_json(value: Any) -> Iterator[Excerpt]:
    if isinstance(value, list):
        for each in value:
            yield from _from_json(each)
    elif isinstance(value, dict):
        if isinstance(value.get("url"), str):
            marker = _marker(value)
            for text in _texts(value):
                yield Excerpt(text, marker)
        else:
            for each in value.values():
                if isinstance(each, dict | list):
                    yield from _from_json(each)


def _marker(result: dict[str, Any]) -> str:
    identifier = result.get("source_id") or result.get("id")
    if isinstance(identifier, str) and re.fullmatch(r"S\d+", identifier):
        return f"[{identifier}]"
    return link(str(result.get("title") or ""), result["url"])


def _texts(result: dict[str, Any]) -> Iterator[str]:
    for value in result.values():
        if isinstance(value, str) and len(value) > _SHORTEST and not value.startswith("http"):
            yield value
        elif isinstance(value, list):
            yield from (each for each in value if isinstance(each, str))


def link(title: str, url: str) -> str:
    """A Markdown link to exactly this URL."""
    label = re.sub(r"[\[\]\\\n|*_`<>]", " ", title).strip() or url.split("/")[2]
    return f"[{' '.join(label.split())}](<{url}>)" if re.search(r"[()\s]", url) else f"[{label}]({url})"


def from_text(text: str) -> list[Excerpt]:
    """Excerpts of a plain or Markdown text: what follows a source id, a link or an address belongs to it."""
    found: list[Excerpt] = []
    marker, title = "", ""
    lines: list[str] = []
    by_id = any(_id_of(line) for line in text.splitlines())
    for line in text.splitlines():
        title = named[1].strip() if (named := _TITLE.match(line)) else title
        head = "" if _CLOSED.match(line) else _id_of(line) if by_id else _link_of(line, title)
        if head is None:
            lines += [] if _FIELD.match(line) else [line]
            continue
        _close(found, marker, lines)
        marker, title, lines = head, "", [_rest(line)]
    _close(found, marker, lines)
    return found


def _id_of(line: str) -> str | None:
    """The source id that this line begins a source with: in front, or behind the address."""
    begins = _ID_HEAD.match(line) or _ID_BEHIND.search(line)
    return f"[{begins[1]}]" if begins else None


def _link_of(line: str, title: str) -> str | None:
    """The link that this line begins a source with; None where it goes on with the last one."""
    if titled := _LINK.search(line):
        return link(titled[1], titled[2])
    if address := _URL.search(line):
        return link(title, address[0].rstrip(".,;:)"))
    return None


def _rest(line: str) -> str:
    """What a line says beside the address it names."""
    bare = _URL.sub("", _LINK.sub("", _ANY_ID.sub("", line)))
    return "" if _FIELD.match(bare) or bare.lstrip().startswith("<") else re.sub(r"^[\s:—–\-|()]+", "", bare)


def _close(found: list[Excerpt], marker: str, lines: list[str]) -> None:
    text = "\n".join(lines).strip()
    if marker and text:
        found.append(Excerpt(text, marker))
