"""What the model is told. The texts stand in data/; only their blanks change from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Final

EVIDENCE_BYTES: Final = 20_000
"""Evidence that a fresh conversation begins with."""


@cache
def _text(name: str) -> str:
    return (files("orchestrator") / "data" / f"{name}.md").read_text(encoding="utf-8").strip()


def system(*, ids_shown: bool) -> str:
    """The system prompt: the same bytes for every run, so that it can be cached."""
    return _text("system").replace("{citing}", _text("citing_ids" if ids_shown else "citing_urls"))


def question(text: str, today: date) -> str:
    """The first user turn. The date stands here, since the system prompt never changes."""
    return f"{text}\n\n(Today is {today.isoformat()}.)"


def final(text: str, evidence: str, reason: str) -> str:
    """The final request: the question and the evidence, under source ids, and that it must answer now."""
    return _fill("final", question=text, evidence=evidence or "(none)", reason=reason)


def going_on(text: str, told: Sequence[tuple[str, str]], evidence: str) -> str:
    """The first turn of a fresh conversation that carries on an earlier one: what was asked and found."""
    before = "\n\n".join(f"Asked before: {asked}\nAnswered: {answer}" for asked, answer in told)
    return _fill("going_on", question=text, before=before or "(no answer yet)", evidence=evidence or "(none)")


def plain(reason: Exception) -> str:
    """A reason in the words for a model: without the advice that is meant for the user."""
    return str(reason).partition(";")[0]


def _fill(name: str, **blanks: str) -> str:
    # one pass over the template: a blank's own text may hold braces, and page text must not fill a blank
    parts = _text(name).split("{")
    filled = [parts[0]]
    for part in parts[1:]:
        blank, _, rest = part.partition("}")
        filled.append(blanks[blank] + rest)
    return "".join(filled)
