"""Does an excerpt back a sentence? Behaviour by example, properties, and the measured rates as a floor."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.claims.support import Excerpts, is_factual, support

HERE = Path(__file__).parent

HUBBLE = (
    "The Hubble Space Telescope was launched into low Earth orbit on April 24, 1990, aboard the Space "
    "Shuttle Discovery. It was named after the astronomer Edwin Hubble. The mirror, 2.4 meters wide, had "
    "been ground wrongly by about 2,200 nanometers. In December 1993 astronauts installed corrective optics. "
    'The mission cost $1.5 billion at launch. "It was a bad day for astronomy," said Weiler.'
)
SALES = (
    "Sales rose 5% to $3,412,000 in 2019 but fell 3% in 2020. Exports did not recover before 2022. "
    "The northern branch was larger than the southern one. Between 40 and 60 shops were closed. "
    "No more than 12 shops may open on Sundays."
)
PYTHON = (
    "`__exit__()` methods should not reraise the passed-in exception; this is the caller's responsibility. "
    "Python 3.12 removed the module distutils, which PEP 632 had deprecated. Guido van Rossum released "
    "Python 0.9.0 in February 1991 while at CWI in the Netherlands."
)
MOSCOW = "Москва была основана в 1147 году. Население города составляет 13 миллионов человек."
TOKYO = "東京タワーは1958年12月23日に完成した。高さは333メートルである。"


@pytest.mark.parametrize(
    ("sentence", "excerpt"),
    [
        ("Hubble was launched on 24 April 1990.", HUBBLE),
        ("The telescope went up aboard *Discovery* on 1990-04-24 [S1].", HUBBLE),
        ("The Hubble Space Telescope was launched in 1990 [\\[1\\]](https://example.org/2019).", HUBBLE),
        ("Astronauts installed corrective optics in December of 1993.", HUBBLE),
        ("The mirror had been ground wrongly by about 2200 nanometers.", HUBBLE),
        ("The mission cost 1.5 billion dollars at launch.", HUBBLE),
        ("Weiler said “It was a bad day for astronomy”.", HUBBLE),
        ("- The telescope’s mirror is 2.4 metres wide", HUBBLE),
        ("Sales rose by 5 percent to about $3.4 million in 2019.", SALES),
        ("In 2020 sales fell by three per cent.", SALES),
        ("Exports didn't recover before 2022.", SALES),
        ("The southern branch was smaller than the northern one.", SALES),
        ("40–60 shops were closed.", SALES),
        ("At most twelve shops may open on Sundays.", SALES),
        ("`__exit__` methods should not reraise the exception that was passed in.", PYTHON),
        ("The Dutch institute CWI is where Guido van Rossum released Python 0.9.0 in 1991.", PYTHON),
        ("Python was first released in the 1990s by Guido van Rossum.", PYTHON),
        ("Москва основана в 1147 году.", MOSCOW),
        ("東京タワーは1958年に完成した。", TOKYO),
    ],
)
def test_what_an_excerpt_says_is_supported_in_any_common_form(sentence: str, excerpt: str) -> None:
    found = support(sentence, ["Something else entirely.", excerpt])
    assert found.verdict == "supported", found.evidence
    assert found.evidence
    assert found.evidence in excerpt


@pytest.mark.parametrize(
    ("sentence", "excerpt", "missing"),
    [
        ("The Hubble Space Telescope was launched in 1997.", HUBBLE, "1997"),
        ("Hubble was launched on May 24, 1990.", HUBBLE, "May 24, 1990"),
        ("The telescope was launched aboard the Space Shuttle Endeavour.", HUBBLE, "Endeavour"),
        ("The mission cost $1.7 billion at launch.", HUBBLE, "$1.7 billion"),
        ("The mission cost €1.5 billion at launch.", HUBBLE, "€1.5 billion"),
        ("The mirror is 2.4 miles wide.", HUBBLE, "2.4 miles"),
        ("The mirror is 2.41 meters wide.", HUBBLE, "2.41 meters"),
        ("Weiler said “it was a good day for astronomy”.", HUBBLE, "good day"),
        ("Sales rose by 5% to $3.5 million in 2019.", SALES, "$3.5 million"),
        ("Python 3.1 removed the module distutils.", PYTHON, "Python 3.1"),
        ("`__enter__()` methods should not reraise the passed-in exception.", PYTHON, "__enter__()"),
        ("Tim Peters released Python 0.9.0 in February 1991.", PYTHON, "Tim Peters"),
        ("Москва была основана в 1157 году.", MOSCOW, "1157"),
        ("東京タワーは1968年に完成した。", TOKYO, "1968"),
    ],
)
def test_a_value_that_the_excerpts_lack_is_named(sentence: str, excerpt: str, missing: str) -> None:
    found = support(sentence, [excerpt])
    assert found.verdict == "unsupported"
    assert missing in (found.evidence or "")


@pytest.mark.parametrize(
    ("sentence", "excerpt"),
    [
        ("Astronauts installed corrective optics in April 1990.", HUBBLE),
        ("In 2020 sales fell by 5%.", SALES),
        ("Sales rose 5% in 2020.", SALES),
        ("Hubble was launched in December 1993.", HUBBLE),
        ("No more than 60 shops may open on Sundays.", SALES),
    ],
)
def test_a_value_must_stand_where_the_rest_of_the_sentence_stands(sentence: str, excerpt: str) -> None:
    """The hard kind: the false value is in the excerpts, in another role."""
    assert support(sentence, [excerpt]).verdict == "unsupported"


@pytest.mark.parametrize(
    ("sentence", "excerpt"),
    [
        ("Exports recovered before 2022.", SALES),
        ("Exports did not recover after 2022.", SALES),
        ("Sales did not rise in 2019.", SALES),
        ("Sales fell 5% in 2019.", SALES),
        ("The northern branch was smaller than the southern one.", SALES),
        ("The southern branch was larger than the northern one.", SALES),
        ("No fewer than 12 shops may open on Sundays.", SALES),
        ("`__exit__()` methods should reraise the passed-in exception.", PYTHON),
        ("Hubble was never launched into low Earth orbit.", HUBBLE),
    ],
)
def test_a_turned_negation_or_direction_is_unsupported(sentence: str, excerpt: str) -> None:
    found = support(sentence, [excerpt])
    assert found.verdict == "unsupported"
    assert "differs" in (found.evidence or "")


def test_a_sentence_about_something_else_is_unsupported() -> None:
    found = support("Bees tell each other by dancing where flowers are.", [HUBBLE, SALES])
    assert found.verdict == "unsupported"


@pytest.mark.parametrize("excerpts", [[], [""], ["  \n "], ["https://example.org/1990"]])
def test_without_text_to_compare_the_verdict_is_unknown(excerpts: list[str]) -> None:
    assert support("Hubble was launched in 1990.", excerpts) == ("unknown", None)


def test_a_pronoun_takes_up_the_name_of_the_sentence_before() -> None:
    excerpt = (
        "Marie Curie was born in Warsaw. In 1903 she won the Nobel Prize in Physics with Henri Becquerel."
    )
    assert support("Marie Curie won the Nobel Prize in Physics in 1903.", [excerpt]).verdict == "supported"


def test_the_title_of_a_page_names_what_its_excerpts_are_about() -> None:
    excerpts = ["Opened in 1889, it was the tallest structure in the world until 1930."]
    sentence = "The Eiffel Tower opened in 1889."
    assert support(sentence, excerpts).verdict == "unsupported"
    assert support(sentence, excerpts, title="Eiffel Tower - history").verdict == "supported"


def test_numbers_inside_urls_and_markers_are_no_evidence() -> None:
    excerpt = "The bridge was opened, see [the page](https://example.org/1932/opening) and note [7]."
    assert support("The bridge was opened in 1932.", [excerpt]).verdict == "unsupported"
    assert support("The bridge was opened 7 times.", [excerpt]).verdict == "unsupported"


def test_one_source_can_be_read_once_for_many_sentences() -> None:
    source = Excerpts([HUBBLE])
    assert [source.support(f"Hubble was launched in {year}.").verdict for year in (1990, 1991)] == [
        "supported",
        "unsupported",
    ]


@given(
    number=st.integers(3, 10**9), text=st.sampled_from([HUBBLE, SALES, PYTHON, MOSCOW]), unit=st.booleans()
)
def test_a_sentence_whose_number_is_not_in_the_excerpts_is_never_supported(
    number: int, text: str, unit: bool
) -> None:
    words = {"three": 3, "twelve": 12, "thirteen": 13}
    digits = "".join(c for c in text if c.isdigit())
    if str(number) in digits or number in words.values():
        return
    first = text.partition(".")[0]
    sentence = f"{first}, {number}{' km' if unit else ''}."
    assert support(sentence, [text]).verdict == "unsupported"


@given(sentence=st.text(max_size=200))
def test_nothing_is_supported_by_nothing(sentence: str) -> None:
    assert support(sentence, []).verdict == "unknown"
    assert support(sentence, ["", " "]).verdict == "unknown"


@given(sentence=st.text(max_size=80), excerpts=st.lists(st.text(max_size=120), max_size=3))
def test_any_text_gets_a_verdict_and_always_the_same(sentence: str, excerpts: list[str]) -> None:
    first = support(sentence, excerpts)
    assert first == support(sentence, excerpts)
    assert first.verdict in ("supported", "unsupported", "unknown")
    assert (first.evidence is None) == (first.verdict == "unknown")


BLOW_UP = """[|9|[(|"|1,|1.|a.|<a|not |1990 |May 1 |東京|from a to b |than a |![a](|by Ann |Ann Bob |[^1, |a+
http://|*| |_a|-|https://a.b/((|\\[|&#|((((a|[[|[a[b]](c""".replace("\n", "|").split("|")


@pytest.mark.parametrize("piece", BLOW_UP)
def test_inputs_built_to_make_scanners_blow_up_are_read_to_the_end(piece: str) -> None:
    """Quadratic work on these would take minutes."""
    text = piece * (30_000 // len(piece))
    assert support("Water boils at 100 degrees.", [text]).verdict != "supported"
    assert support(text, ["Water boils at 100 degrees."]).verdict != "supported"
    assert support(text[:190], [text[:10_000]]).evidence is not None or not text.strip(piece)


@pytest.mark.parametrize(
    "sentence",
    [
        "The Hubble Space Telescope launched in 1990 [1].",
        "- Launched in 1990",
        "| Revenue | $5.2 billion |",
        "In summary, sales rose 5%.",
        "The following year, sales rose again.",
        "Contact lenses were invented in 1887.",
        "Visitors from abroad spent more than locals did.",
        "Note that `__exit__()` should not reraise the exception.",
        "However, costs vary widely between regions.",
        "The company did not mention the price in its report.",
        "東京は日本の首都です。",
        "Столица России — Москва.",
    ],
)
def test_a_claim_about_the_world_is_factual(sentence: str) -> None:
    assert is_factual(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "When did it launch?",
        "## Key findings of 2024",
        "**Background**",
        "Key findings",
        "Here are the key points:",
        "Here is what I found.",
        "I could not find any information about this.",
        "I couldn’t verify the date.",
        "No reliable information was found on this topic.",
        "The sources do not mention the price.",
        "The launch date could not be verified.",
        "Unfortunately, I was unable to find it.",
        "See the documentation for details.",
        "Let me know if you need more detail on the launch.",
        "Would you like a shorter version",
        "The following table shows the results.",
        "Yes.",
        "",
        "---",
        "[1]",
    ],
)
def test_what_an_answer_says_about_itself_is_not_factual(sentence: str) -> None:
    assert not is_factual(sentence)


def _rates() -> ModuleType:
    spec = importlib.util.spec_from_file_location("support_rates", HERE / "bench" / "support_rates.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_labelled_set_is_what_its_description_says() -> None:
    excerpts, items = (
        [json.loads(line) for line in (HERE / "labelled" / name).read_text(encoding="utf-8").splitlines()]
        for name in ("excerpts.jsonl", "items.jsonl")
    )
    known = {row["id"]: row for row in excerpts}
    assert len(items) >= 400
    assert len({item["id"] for item in items}) == len(items)
    for item in items:
        assert {known[id]["source"] for id in item["excerpts"]} == {item["source"]}
        assert {known[id]["split"] for id in item["excerpts"]} == {item["split"]}
    swaps = [item for item in items if item["label"].endswith("swapped")]
    assert sum(item["hard"] for item in swaps) >= len(swaps) / 2
    assert not any(item["hard"] for item in items if item not in swaps)


def test_rates_are_counted_by_label_with_their_interval() -> None:
    rates = _rates()
    items = [{"label": "negated", "hard": False}, {"label": "negated", "hard": False}]
    row = next(row for row in rates.ROWS if row[0] == "negated")
    assert rates.rate(items, [True, False], row) == (1, 2)
    low, high = rates.wilson(1, 2)
    assert low < 0.5 < high
