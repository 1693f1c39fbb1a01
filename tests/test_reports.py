"""98 real reports of another research agent, each against the sources that its own list names.

They lie in a shared folder beside the project and are read there; nothing of them is copied. As a script,
`python -m tests.test_reports` prints the figures before and after as a table.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from orchestrator.citations import check
from orchestrator.citing import references
from orchestrator.citing.markers import scan
from orchestrator.citing.notation import Answer, Notation, answer
from orchestrator.citing.reading import read
from orchestrator.sources import Registry, canonical
from orchestrator.text.markdown import structure
from tests.properties import seeded
from tests.test_render import SPACES, WORDS

REPORTS = Path(__file__).parents[2] / "shared" / "reports" / "cited-reports.jsonl"

PIECES = [word.replace("␣", " ") for word in WORDS.split()] + SPACES
LINKS = ["[x](URL)", "URL", "<URL>", "[1]: URL\n", "[S1](URL)", "([T](URL))", "![i](URL)"]

pytestmark = pytest.mark.skipif(
    not REPORTS.exists(), reason="the shared folder with real reports is not here"
)


class Faults(NamedTuple):
    """What is wrong with one report's citations and its list."""

    duplicate: int
    """Entries whose page another entry lists already."""
    uncited: int
    """Entries that the text never cites."""
    missing: int
    """Markers that no entry explains."""


@cache
def reports() -> tuple[str, ...]:
    lines = REPORTS.read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line)["text"] for line in lines)


@cache
def own_sources(text: str) -> Registry:
    """The pages that a report's own list names, which is all that is known of its sources."""
    registry = Registry()
    registry.add([{"url": url} for url in references.find(text, scan(text)).targets.values()])
    return registry


def faults(text: str, registry: Registry) -> Faults:
    """Count by the report's own numbers, as a reader would."""
    listed = references.find(text, scan(text)).targets
    pages = Counter(canonical(url) for url in listed.values())
    reading = read(text, registry, ids_shown=False)
    refs = {ref for cited in reading.cited for ref in cited.marker.refs}
    linked = {canonical(cited.marker.url) for cited in reading.cited if cited.marker.url}
    cited = refs | {ref for ref, url in listed.items() if canonical(url) in linked}
    named = [named.source for cited in reading.cited for named in cited.named]
    return Faults(
        duplicate=sum(pages.values()) - len(pages),
        uncited=sum(ref not in cited for ref in listed),
        missing=sum(source is None for source in named),
    )


@cache
def rendered_markdown(text: str) -> Answer:
    return answer(text, own_sources(text), ids_shown=False, notation="markdown")


@pytest.mark.parametrize("notation", ["text", "markdown"])
def test_rendered_reports_have_no_duplicate_no_uncited_and_no_missing_entry(notation: Notation) -> None:
    """The promise of the bibliography, on texts that nobody here wrote; once more changes nothing."""
    for text in reports():
        registry = own_sources(text)
        rendered = rendered_markdown(text)
        if notation == "text":
            rendered = answer(text, registry, ids_shown=False, notation="text")
        assert rendered.warning is None
        assert faults(rendered.text, registry) == Faults(0, 0, 0)
        assert len({canonical(entry.url) for entry in rendered.entries}) == len(rendered.entries)
        again = answer(rendered.text, registry, ids_shown=False, notation=notation)
        assert again == rendered


def test_no_code_block_of_a_report_changes() -> None:
    """Fences and code spans come back to the character."""
    for text in reports():
        rendered = rendered_markdown(text).text
        assert [rendered[start:end] for start, end in structure(rendered).code] == [
            text[start:end] for start, end in structure(text).code
        ]


def test_text_outside_markers_of_a_report_is_unchanged() -> None:
    """All words come back in order, apart from those of markers and lists."""
    for text in reports():
        registry = own_sources(text)
        reading = read(text, registry, ids_shown=False)
        rendered = rendered_markdown(text).text
        gone = [*reading.lists, *(cited.marker[:2] for cited in reading.cited)]
        position = place = 0
        for start, end in [*sorted(gone), (len(text), 0)]:
            for words in re.findall(r"\w[^\n]*\w", text[position : max(start, position)]):
                place = rendered.find(words, place)
                assert place >= 0, words
                place += len(words)
            position = max(position, end)


@pytest.mark.parametrize("notation", ["text", "markdown"])
def test_reports_strewn_with_markers_render_soundly(notation: Notation) -> None:
    """Pieces of real reports with markers, links and Markdown put in anywhere: the same promises hold."""
    chance, times = seeded()
    for _ in range(times):
        text = chance.choice(reports())
        registry = own_sources(text)
        strewn = _strewn(chance, text, [source.url for source in registry] or ["https://a.example/"])
        for ids_shown in (True, False):
            rendered = answer(strewn, registry, ids_shown=ids_shown, notation=notation)
            if rendered.warning:
                continue
            assert answer(rendered.text, registry, ids_shown=ids_shown, notation=notation) == rendered
            assert faults(rendered.text, registry) == Faults(0, 0, 0)


def _strewn(chance: random.Random, text: str, urls: list[str]) -> str:
    start = chance.randrange(max(1, len(text) - 1_500))
    pieces = list(
        text[start : start + chance.randrange(200, 1_500)] + chance.choice(["", "\n\n" + text[-800:]])
    )
    for _ in range(chance.randrange(1, 12)):
        place = chance.randrange(len(pieces) + 1)
        piece = chance.choice([*PIECES, *LINKS]).replace("URL", chance.choice(urls))
        if chance.random() < 0.15:
            del pieces[place : place + chance.randrange(20)]
        else:
            pieces.insert(place, piece)
    return "".join(pieces)


def test_every_report_can_be_checked() -> None:
    """`check` never crashes; without the pages' text its verdicts are `unknown` or `dangling`."""
    for text in reports():
        registry = own_sources(text)
        for ids_shown in (True, False):
            checked = check(text, registry, ids_shown=ids_shown)
            assert {verdict.verdict for verdict in checked.verdicts} <= {"unknown", "dangling"}
        assert checked.coverage.factual


def figures() -> str:
    """The table: how many reports had each fault, and how many have it after rendering."""
    before, after, markers = [], [], 0
    for text in reports():
        registry = own_sources(text)
        rendered = rendered_markdown(text).text
        before.append(faults(text, registry))
        after.append(faults(rendered, registry))
        markers += len(read(text, registry, ids_shown=False).cited)
    rows = [
        f"{len(before)} reports, {markers} markers",
        "",
        "| fault | before: reports (cases) | after |",
        "|---|---|---|",
    ]
    for field in Faults._fields:
        counts = [[getattr(found, field) for found in column] for column in (before, after)]
        had, has = (f"{sum(map(bool, column))} ({sum(column)})" for column in counts)
        rows.append(f"| {field} entry | {had} | {has} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(figures())  # noqa: T201 - a script's output
