"""Rendering: one answer and one bibliography in four formats, safe against what pages call themselves."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.citations import check
from orchestrator.citing.markers import scan
from orchestrator.citing.notation import Notation, answer
from orchestrator.citing.reading import read
from orchestrator.citing.rewrite import rewrite
from orchestrator.events import ChargeLine
from orchestrator.render import OFFLINE, render, render_check
from orchestrator.result import Ledger, Result
from orchestrator.sources import Registry, canonical
from orchestrator.text.markdown import structure
from tests.properties import sampled

PAGES: list[dict[str, Any]] = [
    {"url": "https://en.wikipedia.org/wiki/ICE_(FPGA)", "title": "ICE (FPGA)", "text": "An FPGA."},
    {
        "url": "https://two.example/a b?utm_source=x",
        "title": "Two [S3] <b>*bold*</b> | https://evil.example",
        "text": "x",
    },
    {"url": "https://three.example/", "title": "</title><script>alert(1)</script>\n# Heading", "text": "y"},
    {"url": "file:///home/me/notes.md", "title": "My notes", "text": "z"},
]
FIELDS = """
    run_id status limits_reached question answer citations sources coverage ledger steps tool_calls backend
    model models_used offline started seconds run_file
"""
NOTATIONS: tuple[Notation, ...] = ("text", "markdown")


def registry() -> Registry:
    known = Registry()
    known.add(PAGES)
    return known


def shown(text: str, notation: Notation = "markdown", *, ids_shown: bool = True) -> str:
    return answer(text, registry(), ids_shown=ids_shown, notation=notation).text


def body(text: str, *, ids_shown: bool = True) -> str:
    """The answer as text, without its bibliography."""
    return shown(text, "text", ids_shown=ids_shown).split("\n\nSources:")[0]


class TestMarkersInTheText:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("A [S2]. B [S1]. C [S2][S1].", "A [1]. B [2]. C [1][2]."),
            ("A [S1, S3].", "A [1][2]."),
            ("A [S1], [S3] and [S4].", "A [1], [2] and [3]."),
            ("A [[S1], [S3]] b.", "A [1], [2] b."),
            ("A [S1][S1] b [S1] [S1].", "A [1] b [1]."),
            ("A [S9] b.", "A b."),
            ("A [S9].", "A."),
            ("A[S9].", "A."),
            ("A ([S9]).", "A."),
            ("A (see [S9]) b.", "A b."),
            ("A (source: [S9]).", "A."),
            ("A [[S9]].", "A."),
            ("A **[S9]** b *c*.", "A b *c*."),
            ("A *b [S9]*.", "A *b*."),
            ("A [S1], [S9].", "A [1]."),
            ("A [S9], [S1].", "A [1]."),
            ("A [S1, S9].", "A [1]."),
            ("[S9] A.", "A."),
            ("- [S9] A\n- B [S9]", "- A\n- B"),
            ("| A [S9] | [S9] |", "| A | |"),
            ("A<sup>[S9]</sup> b", "A b"),
            ("Wow![S1]", "Wow! [1]"),
            ("word[S1] and arr[S1]", "word [1] and arr [1]"),
            ("A [S1]: b, [S1](c) d", "A [1] : b, [1] d"),
            ("A [fake](https://evil.example/x) b.", "A fake b."),
            ("A https://evil.example/x, b.", "A evil.example/x, b."),
            ("A <https://evil.example/x> b.", "A evil.example/x b."),
            ("A [S9](https://evil.example/x) b.", "A b."),
            ("A ![alt](https://evil.example/x.png) b.", "A alt b."),
            ("A [![alt](https://evil.example/x)](https://evil.example/y) b.", "A alt b."),
            ("A [x](javascript:alert(1)) b.", "A x b."),
            ("Fact [ICE (FPGA)](https://en.wikipedia.org/wiki/ICE_(FPGA)).", "Fact [1]."),
            ("The [ICE](https://en.wikipedia.org/wiki/ICE_(FPGA)) is.", "The ICE [1] is."),
            ("Fact [citation:My [notes]](file:///home/me/notes.md).", "Fact [1]."),
            ("A 【1†source】 b 【4:0†source】.", "A [1] b."),
            ("<cite id='S1'>A b</cite>.", "A b [1]."),
            ("A \ue200cite\ue202turn0search1\ue201.", "A."),
        ],
    )
    def test_each_marker_becomes_a_number_or_is_gone(self, text: str, expected: str) -> None:
        """Cases I050, I052, I053, I058 and I067; with its leading space and the brackets around it."""
        assert body(text) == expected

    def test_lists_that_the_model_wrote_are_replaced_by_ours(self) -> None:
        """Never both; what stands behind a list stays."""
        text = (
            "A [1]. B [2].\n\n## Sources\n\n[1] x https://three.example\n[2] y https://evil.example\n\nBye."
        )
        for ids_shown in (True, False):
            assert shown(text, ids_shown=ids_shown) == (
                "A [[1]](https://three.example/). B.\n\n\nBye.\n\n## Sources\n\n"
                "1. [\\</title\\>\\<script\\>alert(1)\\</script\\> # Heading](https://three.example/)"
            )

    def test_an_answer_of_markers_alone_stays_as_it_is_with_a_warning(self) -> None:
        """Case I058."""
        for text in ("[S9]", "[S9] [S8]\n", "## Sources\n\n1. https://evil.example"):
            found = answer(text, registry(), ids_shown=True, notation="markdown")
            assert (found.text, found.entries) == (text, ())
            assert found.warning
        assert answer("", registry(), ids_shown=True, notation="text").warning is None

    def test_code_stays_as_it_is(self) -> None:
        """Case I055."""
        text = "A [S1]\n\n```\nx[S1] [fake](https://evil.example)\n```\n\n    y[S2]\n\n`z[S3]` end"
        written = rewrite(text, registry(), ids_shown=True).body
        assert [written[start:end] for start, end in structure(written).code] == [
            text[start:end] for start, end in structure(text).code
        ]

    def test_cells_beyond_a_tables_last_column_are_read_all_the_same(self) -> None:
        """Markdown leaves them out; whoever reads the text does not."""
        text = "| a | b |\n|---|---|\n| 1 | 2 | [S1] [x](https://three.example) | more |"
        once = answer(text, registry(), ids_shown=True, notation="markdown")
        assert [entry.id for entry in once.entries] == ["S1", "S3"]
        assert answer(once.text, registry(), ids_shown=True, notation="markdown") == once

    @pytest.mark.parametrize("notation", NOTATIONS)
    def test_the_bibliography_never_falls_into_an_open_fence(self, notation: Notation) -> None:
        """An answer that was cut off in its code."""
        text = shown("A [S1].\n\n~~~~python\nx = 1", notation)
        assert text.startswith("A [")
        assert re.search(r"x = 1\n~~~~\n\n(## )?Sources", text)


class TestBibliography:
    def test_each_cited_source_once_numbered_by_first_use_and_no_other(self) -> None:
        """DESIGN: same in every format."""
        text = "A [S3]. B [S1]. C [S3]. D [x](https://three.example#part)."
        for notation in ("text", "markdown", "html"):
            entries = answer(text, registry(), ids_shown=True, notation=notation).entries
            assert [(entry.number, entry.id) for entry in entries] == [(1, "S3"), (2, "S1")]

    @pytest.mark.parametrize("notation", NOTATIONS)
    def test_more_sources_than_years_have_digits_are_numbered_all_the_same(self, notation: Notation) -> None:
        """[1234] is a year elsewhere, and a number where the list has one."""
        known = Registry()
        known.add([{"url": f"https://many.example/{n}", "text": "x"} for n in range(1_300)])
        text = "In [1999] it was. " + " ".join(f"A [S{n}]." for n in range(1, 1_301))
        once = answer(text, known, ids_shown=True, notation=notation)
        assert len(once.entries) == 1_300
        assert once.text.startswith("In [1999] it was.")
        assert answer(once.text, known, ids_shown=True, notation=notation) == once

    def test_without_a_citation_there_is_no_list(self) -> None:
        """None that is not cited."""
        assert shown("A.") == "A."

    def test_links_survive_brackets_and_spaces(self) -> None:
        """Case I070: what a Markdown reader finds is the page."""
        links = [link for link in structure(shown("A [S1] [S2].")).links if link.href]
        assert {canonical(link.href) for link in links} == {canonical(page["url"]) for page in PAGES[:2]}
        assert "utm_source=x" in shown("A [S2].")

    def test_titles_with_markup_in_them_are_shown_as_words(self) -> None:
        """Case I062: Markdown, HTML, newlines, our own markers in a page's title."""
        text = shown("A [S2]. B [S3].")
        lines = text.split("## Sources\n\n")[1].split("\n")
        assert lines[0].startswith(
            "1. [Two (S3) \\<b\\>\\*bold\\*\\</b\\> \\| evil.example](https://two.example/a%20b"
        )
        assert lines[1].startswith("2. [\\</title\\>\\<script\\>")
        assert len(lines) == 2

    def test_local_documents_are_listed_like_pages(self) -> None:
        """Case I044."""
        assert "1. [My notes](file:///home/me/notes.md)" in shown("A [S4].")


class _Page(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


class TestHtml:
    def test_citations_point_to_their_entry_and_entries_to_their_page(self) -> None:
        """A fragment that can be put on any page."""
        text = answer("A [S1] and `[S1]`.", registry(), ids_shown=True, notation="html", anchor="run-1").text
        tags = _Page(text).tags
        assert ("a", {"class": "cite", "href": "#run-1-1"}) in tags
        assert ("li", {"id": "run-1-1"}) in tags
        assert [attrs["href"] for tag, attrs in tags if tag == "a"][
            1
        ] == "https://en.wikipedia.org/wiki/ICE_%28FPGA%29"
        assert "<code>[S1]</code>" in text

    @pytest.mark.parametrize(
        "text",
        [
            "<script>alert(1)</script> [S3]",
            "<img src=x onerror=alert(1)> [S3]",
            "[x](javascript:alert(1)) [S3]",
            "<javascript:alert(1)> [S3]",
            "![x](https://evil.example/track.gif) [S3]",
            "<a href='https://evil.example' onclick='x'>x</a> [S3]",
            "<iframe src='https://evil.example'></iframe> [S3]",
            '[x](https://three.example/" onmouseover="alert(1)) [S3]',
        ],
    )
    def test_nothing_of_an_answer_or_a_page_runs_or_loads(self, text: str) -> None:
        """Everything is escaped; the only links are to registered pages and within the page."""
        page = _Page(render_check(text, check(text, registry(), ids_shown=True), registry(), "html"))
        known = {canonical(source["url"]) for source in PAGES}
        for tag, attributes in page.tags:
            assert tag not in ("script", "img", "iframe", "link", "object", "form")
            assert not any(name.startswith("on") for name in attributes)
            href = attributes.get("href")
            assert href is None or href.startswith("#source-") or canonical(href) in known

    def test_a_source_that_is_no_page_is_no_link(self) -> None:
        """Only what is safe to click."""
        known = Registry()
        known.add([{"uri": "note:///x", "title": "Note"}])
        page = _Page(answer("A [S1].", known, ids_shown=True, notation="html").text)
        assert [attributes["href"] for tag, attributes in page.tags if tag == "a"] == ["#source-1"]

    def test_the_page_is_self_contained_in_light_and_dark(self) -> None:
        """One file, no script, nothing loaded."""
        page = render(result(), "html")
        assert page.startswith("<!doctype html>")
        assert "prefers-color-scheme: dark" in page
        assert "<title>How &lt;tall&gt;?</title>" in page
        assert not re.search(r"<(?:script|link|img|iframe)|url\(|@import", page)


def result(**changed: Any) -> Result:
    fields: dict[str, Any] = {
        "run_id": "r1",
        "status": "done",
        "limits_reached": (),
        "question": "How <tall>?",
        "answer": "Tall it is [S1]. Not so [S9].",
        "sources": tuple(registry()),
        "ledger": Ledger(
            usd=0.01,
            cap=0.5,
            reserved=0.1,
            lines=(
                ChargeLine(item="m output", quantity=1, unit_usd=0.01, usd=0.01, estimated=False, step=1),
            ),
        ),
        "steps": 1,
        "tool_calls": 1,
        "backend": "connector",
        "model": "m",
        "models_used": ("m",),
        "offline": False,
        "started": datetime(2026, 1, 1, tzinfo=UTC),
        "seconds": 1.0,
        "run_file": None,
        "ids_shown": True,
    } | changed
    checked = check(fields["answer"], registry(), ids_shown=fields["ids_shown"])
    return Result.model_validate(fields | {"citations": checked.verdicts, "coverage": checked.coverage})


class TestResults:
    def test_json_has_the_stable_fields_and_the_rendered_answer(self) -> None:
        """DESIGN, "The JSON result"."""
        fields = json.loads(render(result(), "json"))
        assert set(fields) >= set(FIELDS.split())
        assert fields["answer"].startswith(
            "Tall it is [[1]](https://en.wikipedia.org/wiki/ICE_%28FPGA%29). Not so."
        )
        assert fields["answer"].count("ICE (FPGA)") == 1
        assert [citation["verdict"] for citation in fields["citations"]][1] == "dangling"
        assert set(fields["ledger"]["lines"][0]) >= {
            "item",
            "quantity",
            "unit_usd",
            "usd",
            "estimated",
            "step",
        }

    def test_every_format_says_what_does_not_hold(self) -> None:
        """It never claims more than it checked."""
        for format in ("text", "markdown", "html"):
            text = render(result(), format)
            assert "“Tall it is.” Not found in source 1: " in text
            assert "“Not so.” A citation was taken out" in text

    @pytest.mark.parametrize("format", ["text", "markdown", "html", "json"])
    def test_the_stand_in_is_never_taken_for_a_model(self, format: str) -> None:
        """DESIGN, "Offline": the result states it."""
        assert OFFLINE in render(result(offline=True), format)
        assert OFFLINE not in render(result(), format)

    @pytest.mark.parametrize("format", ["text", "markdown", "html"])
    def test_a_run_without_an_answer_delivers_what_it_found(self, format: str) -> None:
        """Case I028: partial is marked as partial."""
        text = render(result(status="budget", answer="", message="the cap was too low"), format)
        assert "budget: the cap was too low. There is no answer." in text
        assert "ICE (FPGA)" in text
        assert "My notes" in text
        partial = render(result(status="timeout", answer="Half an answer [S1].", message="m"), format)
        assert "timeout: m. What follows is partial." in partial

    def test_an_unknown_format_is_refused(self) -> None:
        """A mistake of ours, not of the user."""
        with pytest.raises(ValueError, match="no such format"):
            render(result(), "pdf")

    def test_check_prints_its_own_fields(self) -> None:
        """DESIGN: `check --format json`."""
        text = "A [S1]. B [S9]."
        fields = json.loads(render_check(text, check(text, registry(), ids_shown=True), registry(), "json"))
        assert list(fields)[:5] == ["text", "citations", "bibliography", "dangling", "coverage"]
        assert fields["dangling"] == ["[S9]"]
        assert fields["bibliography"] == [
            {
                "number": 1,
                "id": "S1",
                "url": "https://en.wikipedia.org/wiki/ICE_(FPGA)",
                "title": "ICE (FPGA)",
            }
        ]
        assert "was taken out" in render_check(
            text, check(text, registry(), ids_shown=True), registry(), "text"
        )


WORDS = r"""
    [S1] [S2] [S9] [1] [2] [9] [S1,S9] [S1-S4] [[S2]] [^1] [^9] 【1】 【7†source】 ［1］ \[S1\] [citation:1]
    [S1](https://three.example) [x](https://three.example) [x](https://evil.example) <https://three.example>
    [x](<https://two.example/a␣b>) <https://evil.example> https://three.example https://evil.example/x_(y)
    ![i](https://evil.example) [![i](u)](v) <cite>S1</cite> <cite>x</cite> <a␣href='https://evil.example'>x</a>
    [S [ ] ( ) ` `` ! \ < > | - # * _ : ; , . ␣a ␣arr word 1 S see 1. [1]: [^1]: Sources: ##␣Sources --- ~~~
    ```
"""
SPACES = [" ", "\n", "\n\n", "    ", "\t", "🙂", "\r\n", "\u3000"]
PIECES = st.sampled_from([word.replace("␣", " ") for word in WORDS.split()] + SPACES)
ANSWERS = st.lists(PIECES, max_size=25).map("".join)


@sampled
@given(ANSWERS, st.booleans(), st.sampled_from(NOTATIONS))
def test_rendering_twice_changes_nothing(text: str, ids_shown: bool, notation: Notation) -> None:
    """The rendered answer is an answer whose citations are all in order."""
    once = answer(text, registry(), ids_shown=ids_shown, notation=notation)
    if once.warning:
        return
    twice = answer(once.text, registry(), ids_shown=ids_shown, notation=notation)
    assert twice.text == once.text
    assert twice.entries == once.entries


@sampled
@given(ANSWERS, st.booleans())
def test_no_raw_marker_survives_and_both_sides_agree(text: str, ids_shown: bool) -> None:
    """Case I053: no marker without an entry, no entry without a marker, in any format."""
    for notation in NOTATIONS:
        found = answer(text, registry(), ids_shown=ids_shown, notation=notation)
        if found.warning:
            continue
        left = read(found.text, registry(), ids_shown=False).cited
        named = [named.source for cited in left for named in cited.named]
        assert all(source is not None for source in named)
        assert all(cited.marker.kind in ("id", "link") for cited in left)
        order = dict.fromkeys(source.id for source in named if source)
        assert list(order) == [entry.id for entry in found.entries]
        assert [entry.number for entry in found.entries] == list(range(1, len(order) + 1))


@sampled
@given(ANSWERS, st.booleans())
def test_text_outside_markers_is_unchanged_to_the_character(text: str, ids_shown: bool) -> None:
    """All that is neither marker nor list comes back in order; only space and brackets beside it may go."""
    reading = read(text, registry(), ids_shown=ids_shown)
    written = rewrite(text, registry(), ids_shown=ids_shown)
    if written.warning:
        return
    gone = sorted([*reading.lists, *(cited.marker[:2] for cited in reading.cited)])
    position = place = 0
    for start, end in [*gone, (len(reading.text), 0)]:
        for word in re.findall(r"[^\W_]+", reading.text[position : max(start, position)]):
            if word in ("see", "and", "source", "Sources"):
                continue  # may be part of brackets or a list that held nothing else
            place = written.body.find(word, place)
            assert place >= 0, word
            place += len(word)
        position = max(position, end)


@sampled
@given(ANSWERS)
def test_html_holds_no_link_but_ours(text: str) -> None:
    """Whatever the answer."""
    page = _Page(answer(text, registry(), ids_shown=True, notation="html").text)
    known = {canonical(source["url"]) for source in PAGES}
    for tag, attributes in page.tags:
        assert tag not in ("script", "img")
        href = attributes.get("href")
        assert href is None or href.startswith("#") or canonical(href) in known


def test_every_marker_in_rendered_markdown_is_a_numbered_link() -> None:
    """One form, and only one."""
    for marker in scan(rewrite("A [S1][S2] https://three.example 【4】.", registry(), ids_shown=True).body):
        assert marker.kind == "link"
        assert marker.label
