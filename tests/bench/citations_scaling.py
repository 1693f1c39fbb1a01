"""Time of check and rendering from 10 KB to 10 MB of answer, and for inputs built to make scanners blow up.

    python tests/bench/citations_scaling.py              the tables of the README
    python tests/bench/citations_scaling.py --largest 1  stop at 1 MB

An answer cites one source every 200 characters, links and ids by turns, with lists, tables and code in
between; 1 MB of it cites 5,000 sources. Linear means that the last column stays about the same.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from orchestrator.citations import check
from orchestrator.citing.notation import answer
from orchestrator.sources import Registry
from orchestrator.text.markdown import structure

CLAIM = (
    "The tower number {n} was finished in {year} and is {height} metres tall, taller than its neighbour,"
    " which was finished {before} years before it and stands in the same street"
)
HOSTILE = {
    "[": "[",
    "digits in a bracket": "[1111111111",
    "a digit run": "1",
    "nested brackets": "[[1]",
    "unclosed links": "[a](",
    "full-width brackets": "【",
    "unclosed tags": "<cite ",
    "brackets in a URL": "https://a.example/(",
    "backticks": "` a",
    "quotes of quotes": "> ",
    "unbalanced quotation marks": "“a. B ",
    "table bars": "| a ",
    "headings of sources": "# Sources\n",
    "entries of lists": "[1] https://a.example\n",
}


def case(size: int) -> tuple[str, Registry]:
    """An answer of about `size` characters, and the sources that it cites: one for every 200 characters."""
    count = max(size // 200, 5)
    pages = [
        {
            "url": f"https://example.org/towers/{n}",
            "title": f"Tower {n}",
            "excerpts": [
                _claim(n) + ".",
                "Another sentence of the page that says nothing of importance at all.",
            ],
        }
        for n in range(1, count + 1)
    ]
    registry = Registry()
    registry.add({"results": pages})
    parts = []
    for n in range(1, count + 1):
        marker = f"[S{n}]" if n % 2 else f"[Tower {n}](https://example.org/towers/{n})"
        lead = "- " if n % 7 == 0 else "| row | " if n % 11 == 0 else ""
        parts.append(f"{lead}{_claim(n)} {marker}.{chr(10) * (1 + (n % 3 == 0))}")
        if n % 50 == 0:
            parts.append("\n```\ncode[1] [S1]\n```\n\n")
    return "".join(parts), registry


def _claim(n: int) -> str:
    return CLAIM.format(n=n, year=1800 + n % 200, height=100 + n % 700, before=n % 40)


def seconds(work: Callable[[str, Registry], object], text: str, registry: Registry) -> float:
    """Processor time, so that what else the machine does stays out of it."""
    structure.cache_clear()
    start = time.process_time()
    work(text, registry)
    return time.process_time() - start


def checking(text: str, registry: Registry) -> None:
    check(text, registry, ids_shown=True)


def rendering(text: str, registry: Registry) -> None:
    answer(text, registry, ids_shown=True, notation="markdown")


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--largest", type=float, default=10, help="megabytes of the largest answer")
    largest = options.parse_args().largest
    print("| answer | sources | check s | render s | seconds per MB |\n|---|---|---|---|---|")
    for size in (10_000, 100_000, 1_000_000, 10_000_000):
        if size > largest * 1_000_000:
            break
        text, registry = case(size)
        checked, rendered = (seconds(work, text, registry) for work in (checking, rendering))
        rate = (checked + rendered) / len(text) * 1_000_000
        print(
            f"| {len(text):,} | {len(registry):,} | {checked:.2f} | {rendered:.2f} | {rate:.2f} |", flush=True
        )
    print("\n| hostile input | 25,000 characters, s | 100,000 characters, s | factor |\n|---|---|---|---|")
    for name, piece in HOSTILE.items():
        texts = (piece * (size // len(piece)) for size in (25_000, 100_000))
        small, large = (seconds(checking, text, Registry()) for text in texts)
        print(f"| {name} | {small:.3f} | {large:.3f} | {large / max(small, 1e-4):.1f} |", flush=True)


if __name__ == "__main__":
    main()
