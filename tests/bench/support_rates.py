"""Measured error rates of the support check on the labelled set, beside other ways to answer the question.

    python tests/bench/support_rates.py                       the untouched half, as in the README
    python tests/bench/support_rates.py --half tuned --wrong  the tuned half, and what it gets wrong
    python tests/bench/support_rates.py --with PYTHON         also `citesure`, installed for that interpreter

A false pass is a sentence that should not be called supported and is; a false strip one that should be and
is not. Intervals are Wilson's at 95% and take the items for independent, which those of one document are not.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
LABELLED = ROOT / "tests" / "labelled"

Item = dict[str, Any]
Row = tuple[str, Callable[[Item], bool], bool, float | None]

SWAPS = ("number swapped", "date swapped", "name swapped")
ROWS: tuple[Row, ...] = (
    ("swapped, value absent", lambda i: i["label"] in SWAPS and not i["hard"], False, 0.02),
    ("  number", lambda i: i["label"] == SWAPS[0] and not i["hard"], False, None),
    ("  date", lambda i: i["label"] == SWAPS[1] and not i["hard"], False, None),
    ("  name", lambda i: i["label"] == SWAPS[2] and not i["hard"], False, None),
    ("swapped, value elsewhere (hard)", lambda i: i["hard"], False, 0.10),
    ("  number", lambda i: i["label"] == SWAPS[0] and i["hard"], False, None),
    ("  date", lambda i: i["label"] == SWAPS[1] and i["hard"], False, None),
    ("  name", lambda i: i["label"] == SWAPS[2] and i["hard"], False, None),
    ("negated", lambda i: i["label"] == "negated", False, 0.10),
    ("direction flipped", lambda i: i["label"] == "direction flipped", False, 0.10),
    ("unrelated", lambda i: i["label"] == "unrelated", False, 0.05),
    ("half true", lambda i: i["label"] == "half true", False, None),
    ("supported and paraphrased", lambda i: i["label"] in ("supported", "paraphrased"), True, 0.20),
    ("  supported", lambda i: i["label"] == "supported", True, None),
    ("  paraphrased", lambda i: i["label"] == "paraphrased", True, None),
)


def load(half: str | None = None) -> list[Item]:
    """Return the items of one half (or all) with the page's title and the texts of its excerpts."""
    lines = (LABELLED / "excerpts.jsonl").read_text(encoding="utf-8").splitlines()
    rows = {row["id"]: row for row in map(json.loads, lines)}
    items = [json.loads(line) for line in (LABELLED / "items.jsonl").read_text(encoding="utf-8").splitlines()]
    for item in items:
        found = [rows[id] for id in item["excerpts"]]
        item |= {"excerpts": [row["text"] for row in found], "title": found[0]["document"]}
    return [item for item in items if half in (None, item["split"])]


def wilson(wrong: int, n: int) -> tuple[float, float]:
    """Return the 95% interval of a rate."""
    if not n:
        return 0.0, 1.0
    z = 1.959964
    rate = wrong / n
    middle = rate + z * z / (2 * n)
    spread = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return max(0.0, (middle - spread) / (1 + z * z / n)), min(1.0, (middle + spread) / (1 + z * z / n))


def ours(items: Sequence[Item]) -> list[bool]:
    """Our check, each document read once as a run would."""
    from orchestrator.claims.support import Excerpts

    prepared: dict[str, Excerpts] = {}
    verdicts = []
    for item in items:
        if item["source"] not in prepared:
            prepared[item["source"]] = Excerpts(item["excerpts"], item["title"])
        verdicts.append(prepared[item["source"]].support(item["sentence"]).verdict == "supported")
    return verdicts


def overlap(items: Sequence[Item]) -> list[bool]:
    """Plain word overlap: at least 60% of the sentence's longer words stand in one excerpt."""
    verdicts = []
    for item in items:
        words = set(re.findall(r"\w{4,}|\d+", item["sentence"].lower()))
        best = max(len(words & set(re.findall(r"\w+", text.lower()))) for text in item["excerpts"])
        verdicts.append(best >= 0.6 * len(words))
    return verdicts


_CITESURE = """
import json, sys
from citesure import segment_passages, status_for_score
from citesure.overlap import score_compound_claim
for item in json.load(sys.stdin):
    passages = [p for text in item["excerpts"] for p in segment_passages(text)]
    print(int(str(status_for_score(score_compound_claim(item["sentence"], passages)[0])) == "supported"))
"""


def citesure(items: Sequence[Item], python: str) -> list[bool]:
    """The tiers of `citesure` that need no network: its overlap score over the same excerpts."""
    done = subprocess.run(
        [python, "-c", _CITESURE], input=json.dumps(items), capture_output=True, text=True, check=True
    )
    return [line == "1" for line in done.stdout.split()]


def rate(items: Sequence[Item], verdicts: Sequence[bool], row: Row) -> tuple[int, int]:
    """Return how many of a row's items are wrong, of how many."""
    _, chosen, should_pass, _ = row
    picked = [passed for item, passed in zip(items, verdicts, strict=True) if chosen(item)]
    return sum(passed != should_pass for passed in picked), len(picked)


def table(items: Sequence[Item], columns: dict[str, list[bool]]) -> str:
    """Return the rates as a Markdown table."""
    lines = [
        "| wrong verdicts on | n | goal | " + " | ".join(columns) + " |",
        "|---|---|---|" + "---|" * len(columns),
    ]
    for row in ROWS:
        cells = []
        for verdicts in columns.values():
            wrong, n = rate(items, verdicts, row)
            low, high = wilson(wrong, n)
            cells.append(f"{wrong / max(n, 1):.1%} ({low:.1%} to {high:.1%})")
        goal = f"{row[3]:.0%}" if row[3] is not None else ""
        lines.append(f"| {row[0].replace('  ', '&emsp;')} | {n} | {goal} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--half", choices=("tuned", "untouched"), default="untouched")
    parser.add_argument("--with", dest="python", help="interpreter that has citesure installed")
    parser.add_argument("--wrong", action="store_true", help="list the wrong verdicts (tuned half only)")
    chosen = parser.parse_args()
    items = load(chosen.half)
    started = time.perf_counter()
    columns = {"this check": ours(items)}
    seconds = time.perf_counter() - started
    columns["word overlap"] = overlap(items)
    if chosen.python:
        columns["citesure, no network"] = citesure(items, chosen.python)
    print(f"{len(items)} items, {chosen.half} half, {1000 * seconds / len(items):.2f} ms each\n")
    print(table(items, columns))
    print("\nbearout judges every sentence with a language model: it gives no verdict without a network.")
    if chosen.wrong and chosen.half == "tuned":
        _list_wrong(items)


def _list_wrong(items: Sequence[Item]) -> None:
    from orchestrator.claims.support import support

    for item in items:
        found = support(item["sentence"], item["excerpts"], item["title"])
        if (found.verdict == "supported") != (item["label"] in ("supported", "paraphrased")):
            hard = " hard" if item["hard"] else ""
            print(f"\n{item['id']} [{item['label']}{hard}] {item['sentence']}\n    {found.evidence}")


if __name__ == "__main__":
    main()
