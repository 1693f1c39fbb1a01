"""Plain text out of Markdown, and the words of a sentence with the clause that each stands in."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from orchestrator.claims.words import BREAKS, RELATIVES, fold

_LABEL = r"((?:[^\[\]\n]|\[[^\[\]\n]{0,60}\]){0,300})"
_LINK = rf"!?\[{_LABEL}\]\([^()\s]{{0,999}}(?:\([^()\s]{{0,99}}\)[^()\s]{{0,99}})?(?:\s[^()\n]{{0,199}})?\)"
_MARKUP = (
    (re.compile(r"\\([\\\[\]()*_`#.!~|<>+-])"), r"\1"),
    (re.compile(_LINK), r"\1"),
    (re.compile(r"<?\b(?:https?|file|ftp)://[^\s<>]+>?|\bwww\.[^\s<>]+"), " "),
    (re.compile(r"\[\^?S?\d{1,4}(?:[\s,;–-]{1,3}S?\d{1,4}){0,20}\]|【[^【】\n]{0,80}】"), " "),
    (re.compile(r"</?[A-Za-z][^<>\n]{0,300}>"), " "),
    (re.compile(r"\*{1,3}|`{2,3}|~~"), ""),
    (re.compile(r"(?m)^[ \t]{0,8}(?:#{1,6}[ \t]|>[ \t]?|[-+•][ \t])+"), ""),
    (re.compile(r"[|\s]+"), " "),
)
_MARKED = re.compile(r"[\[<*`~#>|•+\n\t/【\\]|^\s*-|www\.|  ")
_TYPOGRAPHY = str.maketrans(
    "‘’‛“”„«»「」『』−‐‑＝，：；（）", "'''" + '"' * 9 + "---=,:;()", "\u00ad\u200b\ufeff"
)

_PHRASES = {
    tuple(phrase.split()): tuple(meaning.split())
    for meaning, phrases in {
        "atmost of of": ("at most", "no more than", "not more than", "no greater than", "up to"),
        "atleast of of": ("at least", "no less than", "not less than", "no fewer than", "no later than"),
        "also of": ("not only", "not just"),
        "not always": ("not necessarily",),
        "not anymore": ("no longer",),
        "regardless of": ("no matter",),
        "surely of": ("no doubt",),
        "not being": ("from being",),
        "instead of": ("rather than",),
        "except of": ("apart from", "other than"),
        "% of": ("per cent", "percentage points", "percentage point"),
    }.items()
    for phrase in phrases
}
"""What means one thing together and another word by word, and the words it is read as."""
_OPENINGS = frozenset(phrase[0] for phrase in _PHRASES)

_TOKEN = re.compile(
    r"""
    (?P<plain>[^\W\d_]+(?=[ ,;:!?"`]|\.?$|\.\s))
    | (?P<clause>[,;:()\[\]{}"`—–…!?/=]|\.{2,}|\s-\s)
    | (?P<time>(?<![\d:])\d{1,2}:\d\d(?::\d\d)?(?![\d:])(?:\s?[ap]\.?m\b\.?)?)
    | (?P<code>__\w{1,60}__(?:\(\))? | --[a-z][\w-]{0,60} | [^\W\d]\w{0,60}(?:\.\w{1,60}){0,8}\(\)
        | [^\W\d_]{2,60}(?:\.[^\W\d]\w{1,60})+ | [^\W\d_][^\W_]{0,60}(?:_[^\W_]{1,60})+
        | v?\d{1,9}(?:\.\d{1,9}){2,8}(?![\w.]\w) | [A-Za-z]{1,20}-?\d{1,20}[A-Za-z\d]{0,20}
        | [^\W\d_]{1,60}[+#]+)
    | (?P<number>(?:(?<![\w.)-])-)?(?:US\$|[$€£¥₹]\s?)?
        (?:\d{1,3}(?:[,'\u00a0\u202f\u2009]\d{3})+(?!\d)(?:\.\d{1,20})? | \d{1,3}(?:\ \d{3}){2,}(?!\d)
        | \d{1,3}(?:\.\d{3}){2,}(?!\d) | \d+(?:\.\d{1,20})?(?:,\d{1,2}(?![\d,]))?)
        (?:st|nd|rd|th|'?s|k|K|M|bn|B)?(?![^\W\d_]{4,}))
    | (?P<word>(?:[^\W\d_]\.){2,} | [^\W\d_]+(?:'[^\W\d_]+)*)
    | (?P<mark>[%‰°$€£¥₹])
    """,
    re.VERBOSE,
)
_NO_SPACES = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0e7f]")


class Token(NamedTuple):
    """One word or number: `folded` is what it is compared by."""

    kind: str
    text: str
    start: int
    folded: str


def plain(text: str) -> str:
    """Return the text without Markdown, tags, URLs and citation markers, with straight quotes."""
    text = html.unescape(text)
    if not text.isascii():
        text = text.translate(_TYPOGRAPHY)
    if _MARKED.search(text):
        for pattern, replacement in _MARKUP:
            text = pattern.sub(replacement, text)
    return text.strip()


def tokens(text: str) -> tuple[list[Token], list[int]]:
    """Return the tokens of a sentence of plain text, and the number of the clause that each stands in."""
    found: list[Token] = []
    clauses: list[int] = []
    clause = 0
    for match in _TOKEN.finditer(text):
        kind, piece, start = match.lastgroup or "", match[0], match.start()
        if kind == "clause":
            clause += not found or clauses[-1] == clause
            continue
        for word, offset in _parts(kind, piece):
            if word in RELATIVES and clauses and clauses[-1] == clause - 1:
                clause -= 1  # "1960, when" and "Hudson, who" stand together
            elif word in BREAKS and clauses and clauses[-1] == clause:
                clause += 1
            shown = piece if not offset else word
            found.append(Token("word" if kind == "plain" else kind, shown, start + offset, word))
            clauses.append(clause)
    _join(found)
    return found, clauses


def _join(found: list[Token]) -> None:
    """Read phrases like `no longer` and `at most` as the words that say what they mean."""
    for at, token in enumerate(found):
        if token.folded in _OPENINGS:
            for length in (3, 2):
                words = tuple(other.folded for other in found[at : at + length])
                for n, word in enumerate(_PHRASES.get(words, ())[: len(words)]):
                    found[at + n] = found[at + n]._replace(folded=word)


def _parts(kind: str, piece: str) -> Iterator[tuple[str, int]]:
    """Yield what one token counts as: a word, or pairs of characters in scripts without spaces."""
    folded = fold(piece)
    if kind in ("plain", "word") and not piece.isascii() and _NO_SPACES.search(piece):
        for at in range(max(1, len(piece) - 1)):
            yield piece[at : at + 2], at
    elif kind == "code":
        bare = folded.removesuffix("()")
        yield bare.removeprefix("v") if bare[1:2].isdigit() else bare, 0
    elif piece in ("US", "U.S.", "U.S"):
        yield "usa", 0
    elif kind == "word":
        bare = folded.split("'")[0] if len(folded) > 2 else folded
        yield "not" if folded.endswith("n't") else bare.replace(".", ""), 0
    else:
        yield folded, 0
