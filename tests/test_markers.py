"""The scanner: every form of marker in every place, code and look-alikes left alone, linear in time."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.citing.markers import references, scan, url_end
from orchestrator.citing.reading import read
from orchestrator.citing.rewrite import rewrite
from orchestrator.citing.streaming import shown_length
from orchestrator.events import Source
from orchestrator.harvesting.pagetext import harmless
from orchestrator.sources import Registry
from orchestrator.text.markdown import structure
from tests.properties import sampled

KNOWN = Registry(
    [
        Source(id="S1", url="https://en.wikipedia.org/wiki/ICE_(FPGA)", title="ICE (FPGA)"),
        Source(id="S2", url="https://example.org/two?utm_source=x", title="The second page"),
        Source(id="S3", url="https://www.example.com/three/", title="Three | [odd] *title*"),
    ]
)

FORMS: dict[str, list[str]] = {
    "[S1]": ["S1"],
    "[s2]": ["S2"],
    "[S1, S2]": ["S1", "S2"],
    "[S1,S2,S3]": ["S1", "S2", "S3"],
    "[S1; S3]": ["S1", "S3"],
    "[S1 and S2]": ["S1", "S2"],
    "[S1][S2]": ["S1", "S2"],
    "[S1-S3]": ["S1", "S2", "S3"],
    "[S1–3]": ["S1", "S2", "S3"],
    "[1]": ["S1"],
    "[1, 2]": ["S1", "S2"],
    "[1,2,3]": ["S1", "S2", "S3"],
    "[1–3]": ["S1", "S2", "S3"],
    "[1-2]": ["S1", "S2"],
    "[[1]]": ["S1"],
    "[[S2]]": ["S2"],
    "[[S1], [S2]]": ["S1", "S2"],
    "[^1]": ["S1"],
    "[^S2]": ["S2"],
    "[source 3]": ["S3"],
    "[Source: S3]": ["S3"],
    "[cite: 1, 2]": ["S1", "S2"],
    "[citation:1]": ["S1"],
    "【1】": ["S1"],
    "【S2】": ["S2"],
    "【1†source】": ["S1"],
    "【2†L10-L20】": ["S2"],
    "［1］": ["S1"],
    "［S1、S2］": ["S1", "S2"],
    "\\[S1\\]": ["S1"],
    "[The second page](https://example.org/two)": ["S2"],
    "[S1](https://en.wikipedia.org/wiki/ICE_(FPGA))": ["S1"],
    "[[1]](https://example.org/two)": ["S2"],
    '[ICE](<https://en.wikipedia.org/wiki/ICE_(FPGA)> "a title")': ["S1"],
    "[citation:Three [odd] *title*](https://example.com/three)": ["S3"],
    "<https://example.com/three>": ["S3"],
    "https://en.wikipedia.org/wiki/ICE_(FPGA)": ["S1"],
    "HTTPS://EXAMPLE.com/three/#part": ["S3"],
    '<a href="https://example.org/two">two</a>': ["S2"],
    "<cite>S2</cite>": ["S2"],
    '<cite id="S1"></cite>': ["S1"],
    "[S9]": [],
    "[S1, S9]": ["S1"],
    "[9]": [],
    "[^9]": [],
    "[^S9]": [],
    "【9†source】": [],
    "【4:0†source】": [],
    "【turn0search1】": [],
    "[turn1news2]": [],
    "citeturn0search0turn1view2": [],
    "\ue200cite\ue202turn0search1\ue201": [],
    ":contentReference[oaicite:0]{index=0}": [],
    "[cite_start]": [],
    "[gone](https://example.net/gone)": [],
    "<https://example.net/gone>": [],
    "https://example.net/gone": [],
    "![chart](https://example.net/chart.png)": [],
}

PLACES = {
    "prose": "The tower is tall {}.",
    "after the full stop": "The tower is tall. {} It was built long ago.",
    "line start": "{} The tower is tall.",
    "table": "| Name | Fact |\n|---|---|\n| Tower | tall {} |\n| Mast | short |",
    "list": "- The tower is tall {}\n- The mast is not\n  1. nested, too {}",
    "heading": "## Towers {}\n\nThe tower is tall.",
    "quote": "> The tower is tall {}\n> and old.",
    "emphasis": "**The tower is tall {}** and *old {}*.",
    "parentheses": "The tower is tall (see {}).",
}

CODE = {
    "fence": "Text.\n\n```python\nx = arr{}\n```\n\nMore.",
    "tilde fence": "Text.\n\n~~~\ny {}\n~~~\n",
    "indented code": "Text.\n\n    z = {}\n\nMore.",
    "inline code": "Write `a {} b` here.",
    "double backticks": "Write ``a ` {} b`` here.",
    "code in a list": "- item\n\n  ```\n  {}\n  ```\n",
    "code in a quote": "> ```\n> {}\n> ```\n",
    "pre": "<pre>{}</pre> text",
}


def cited(text: str, *, ids_shown: bool = True) -> list[str]:
    """The ids that a text cites, in order."""
    found = read(text, KNOWN, ids_shown=ids_shown).cited
    return [named.source.id for one in found for named in one.named if named.source]


@pytest.mark.parametrize(("form", "place"), list(product(FORMS, PLACES)))
def test_every_form_is_understood_in_every_place(form: str, place: str) -> None:
    """Cases I059 and I061; what cannot be resolved is dropped, never shown raw (I052, I053)."""
    text = PLACES[place].replace("{}", form)
    times = PLACES[place].count("{}")
    assert cited(text) == FORMS[form] * times
    body = rewrite(text, KNOWN, ids_shown=True).body
    assert all(marker.kind == "link" and KNOWN.by_url(marker.url or "") for marker in scan(body))
    assert "turn" not in body
    assert "†" not in body


@pytest.mark.parametrize(
    ("form", "place"),
    [(form, place) for form, place in product(FORMS, CODE) if place != "pre" or "<" not in form],
)
def test_code_is_left_alone(form: str, place: str) -> None:
    """Case I055: fences of both kinds, indented, inline and preformatted code."""
    text = CODE[place].replace("{}", form)
    assert cited(text) == []
    assert rewrite(text, KNOWN, ids_shown=True).body == text


@pytest.mark.parametrize(
    "text",
    [
        "arr[1] and data_set[2][3] and x[1]",
        "argv[1] = 5",
        "items[3].append(4)",
        "values[2] += 1",
        "x[0] and list[0]",
        "In [2024] and [1999, 2001] and [2020-2024]",
        "Full-width 【重要】 and ［注］ and 【2024年】 are text",
        "- [ ] open\n- [x] done",
        "[citation needed], [sic], [Smith 2020], [...], [1.5], [a], [A1]",
        "[top](#top) and [mail](mailto:a@example.org)",
        "a] b [ c ]( d",
        "S1 and (S2) and S3 alone",
        "1. first\n2. second",
    ],
)
def test_what_only_looks_like_a_marker_is_text(text: str) -> None:
    """Array indexes, years, full-width brackets in Chinese text, task lists, anchors."""
    assert scan(text) == []
    assert rewrite(text, KNOWN, ids_shown=True).body == text


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://en.wikipedia.org/wiki/ICE_(FPGA)", "https://en.wikipedia.org/wiki/ICE_(FPGA)"),
        ("(https://en.wikipedia.org/wiki/ICE_(FPGA))", "https://en.wikipedia.org/wiki/ICE_(FPGA)"),
        ("see https://a.example/b.", "https://a.example/b"),
        ("**https://a.example/b**", "https://a.example/b"),
        ("“https://a.example/b”", "https://a.example/b"),
        ("https://a.example/b，然后", "https://a.example/b"),
        ("https://a.example/b[1]", "https://a.example/b"),
        ("https://a.example/b[S1].", "https://a.example/b"),
        ("https://a.example/b[c]", "https://a.example/b[c]"),
        ("https://a.example/b?q=[x](y)!", "https://a.example/b?q=[x](y)"),
        ("https://a.example/b).", "https://a.example/b"),
        ("https://a.example/a_(b)_(c),", "https://a.example/a_(b)_(c)"),
        ("https://a.example/b…", "https://a.example/b"),
    ],
)
def test_a_bare_url_ends_where_a_reader_would_end_it(text: str, url: str) -> None:
    """Cases I070 and I074: balanced brackets stay, punctuation does not."""
    start = text.index("https")
    assert text[start : url_end(text, start)] == url


def test_where_ids_were_not_shown_only_urls_name_sources() -> None:
    """DESIGN, "Citations": in a connector conversation [S3] is dangling, [3] needs a list in the text."""
    assert cited("A [S1]. B [1]. C [two](https://example.org/two).", ids_shown=False) == ["S2"]
    listed = "A [1]. B [2].\n\n## Sources\n\n1. https://example.com/three\n2. [x](https://example.net/gone)"
    assert cited(listed, ids_shown=False) == ["S3"]


@pytest.mark.parametrize(
    "listing",
    [
        "## Sources\n\n[1] Two: https://example.org/two\n[2] https://example.com/three",
        "**References:**\n1. Two, https://example.org/two\n2. [Three](https://example.com/three)",
        "Sources:\n- https://example.org/two\n- https://example.com/three",
        "[1]: https://example.org/two 'Two'\n[2]: <https://example.com/three>",
        "[^1]: Two. https://example.org/two\n[^2]: Three.\n    https://example.com/three",
        "[1] Two https://example.org/two\n[2] Three https://example.com/three",
        "### 七、参考文献\n[1] 二：https://example.org/two\n[2] 三：https://example.com/three",
        "Works cited\n===========\n\n| n | page |\n|---|---|\n| 1 | https://example.org/two |\n"
        "| 2 | https://example.com/three |",
        "## Sources\n[1] Two\nhttps://example.org/two\n[2] Three\nhttps://example.com/three",
    ],
)
def test_reference_lists_of_the_models_own_give_numbers_their_meaning(listing: str) -> None:
    """Footnotes, definitions and lists in the shapes of real reports; the list itself cites nothing."""
    marker = "[^{}]" if listing.startswith("[^") else "[{}]"
    text = f"A {marker.format(1)}. B {marker.format(2)}.\n\n{listing}"
    assert cited(text, ids_shown=False) == ["S2", "S3"]
    body = rewrite(text, KNOWN, ids_shown=False).body
    assert body == "A [[1]](https://example.org/two?utm_source=x). B [[2]](https://www.example.com/three/)."


def test_a_list_that_names_its_sources_by_id_is_understood_where_ids_were_shown() -> None:
    """Footnotes on top of ids."""
    for text in (
        "A [^1].\n\n[^1]: See [S3] for that.",
        "A [1].\n\n## Sources\n1. Three [S3]",
        "A [^1].\n\n[^1]: [S3]",
    ):
        assert cited(text) == ["S3"]
        assert cited(text, ids_shown=False) == []


def test_sections_that_only_sound_like_lists_stay() -> None:
    """An author's works, a reader's notes, recommended links are part of the answer."""
    for heading in ("Works", "Notes", "Further reading", "Links", "Literature"):
        text = f"## {heading}\n\n- The first was written in 1937 [S1]\n- The second is better [S2]"
        assert cited(text) == ["S1", "S2"]
        assert f"## {heading}\n\n- The first was written" in rewrite(text, KNOWN, ids_shown=True).body


def test_prose_about_sources_is_no_reference_list() -> None:
    """Only a list of entries is replaced."""
    text = "## Sources of error\n\n- drift\n- noise\n\nNotes: see above.\n\n[1] is a start of a sentence."
    assert rewrite(text, Registry(), ids_shown=False).body.startswith(
        "## Sources of error\n\n- drift\n- noise"
    )


def test_a_link_within_the_document_is_left_and_what_cites_in_its_label_is_not() -> None:
    """`#part` and `mailto:` name no page."""
    text = "See [the part](#part) and [me](mailto:a@example.org)."
    assert scan(text) == []
    assert rewrite("See [the part [S9]](#part).", KNOWN, ids_shown=True).body == "See [the part](#part)."


def test_known_ids_of_another_form_are_markers_too() -> None:
    """`check --sources` takes the user's own ids."""
    registry = Registry([Source(id="doc-7", url="https://example.org/7", title="Seven")])
    found = read("A [doc-7]. B [doc-8].", registry, ids_shown=True).cited
    assert [named.source and named.source.id for one in found for named in one.named] == ["doc-7"]


@pytest.mark.parametrize(
    ("body", "refs"),
    [
        ("S1", ("S1",)),
        ("s1 , s2", ("S1", "S2")),
        ("S3-S1", ("S3", "S1")),
        ("S1-S999", ("S1", "S999")),
        ("1-3, 5", ("1", "2", "3", "5")),
        ("0", ()),
        ("2024", ()),
        ("S2024", ("S2024",)),
        ("1.5", ()),
        ("x1", ()),
        ("", ()),
        ("1,,2", ()),
    ],
)
def test_reference_bodies(body: str, refs: tuple[str, ...]) -> None:
    """Ranges are bounded, years and indexes are no references."""
    assert references(body) == refs


HOSTILE_INPUTS = [
    "[" * 100_000,
    "[1" * 15_000,
    "[" + "1" * 30_000,
    "[" + "1," * 15_000,
    "[1]" * 30_000,
    "【" * 30_000,
    "[^" * 15_000,
    "\\[" * 15_000,
    "<cite " * 20_000,
    "<cite>" * 20_000,
    "<a href=" * 20_000,
    "https://" * 20_000,
    "https://a" + "(" * 30_000,
    "https://a" + ")" * 30_000,
    "https://a" + "." * 30_000,
    "x_" * 15_000 + "[1]",
    "citeturn0" * 20_000,
    "\ue200" * 30_000,
    "`" * 15_000 + "[1]",
    "> " * 20_000 + "[1]",
    "[a](" * 20_000,
    "[" * 500 + "1" + "]" * 500,
    "|" * 15_000,
    "# Sources\n" * 5_000,
    "[1] https://a.example\n" * 5_000,
]


@pytest.mark.parametrize("text", HOSTILE_INPUTS, ids=lambda text: repr(text[:9]))
def test_inputs_built_to_make_scanners_blow_up_do_not(text: str) -> None:
    """Case I056; the times are in bench/citations_scaling.py, a quadratic scanner would never end here."""
    rewrite(text, KNOWN, ids_shown=True)
    harmless(text)


FRAGMENTS = st.sampled_from(
    [
        *FORMS,
        "[",
        "]",
        "(",
        ")",
        "`",
        "```\n",
        "\n",
        "\n\n",
        " ",
        "a",
        "word",
        ".",
        "!",
        "\\",
        "<",
        ">",
        "|",
        "- ",
        "S",
        "1",
        ",",
    ]
)


@sampled
@given(st.lists(FRAGMENTS, max_size=30).map("".join))
def test_markers_are_in_order_inside_the_text_and_never_in_code(text: str) -> None:
    """Whatever the text, stretches do not overlap and code is code."""
    code = structure(text).code
    position = 0
    for marker in scan(text):
        assert position <= marker.start < marker.end <= len(text)
        assert not any(start <= marker.start < end for start, end in code)
        position = marker.end


@sampled
@given(st.lists(FRAGMENTS, max_size=30).map("".join))
@example("[[S1]]")
def test_disarmed_text_holds_no_id_and_keeps_its_length(text: str) -> None:
    """Page text cannot forge an id, not even from inside code."""
    shown = harmless(text)
    assert len(shown) == len(text)
    assert not any(marker.kind == "id" for marker in scan(shown.replace("`", " ")))


@sampled
@given(st.lists(FRAGMENTS, max_size=20).map("".join), st.integers(1, 7))
def test_streaming_never_shows_half_a_marker(text: str, chunk: int) -> None:
    """Split over chunks of any size, a marker is shown whole or not at all."""
    found = [
        marker
        for marker in scan(text)
        if marker.kind != "tag" and "\n" not in text[marker.start : marker.end]
    ]
    for end in range(chunk, len(text), chunk):
        shown = shown_length(text[:end])
        assert shown <= end
        assert not any(marker.start < shown < marker.end for marker in found)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_shown_whole_however_it_is_split(form: str) -> None:
    """The same for every form by itself, character by character."""
    text = f"The tower is tall {form}, and old. The end of it."
    found = scan(text)
    assert found
    for size in range(len(text)):
        shown = shown_length(text[:size])
        assert not any(marker.start < shown < marker.end for marker in found)
    assert shown_length(text) == len(text)
