"""What the model is told. The texts stand in data/; nothing in them changes from run to run but the blanks."""

from __future__ import annotations

from datetime import date
from functools import cache
from importlib.resources import files


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


def going_on(text: str, evidence: str) -> str:
    """The first turn of a conversation that carries on lost work: what was found, with tools at hand."""
    return _fill("going_on", question=text, evidence=evidence) if evidence else text


def _fill(name: str, **blanks: str) -> str:
    # one pass over the template: a blank's own text may hold braces, and page text must not fill a blank
    parts = _text(name).split("{")
    filled = [parts[0]]
    for part in parts[1:]:
        blank, _, rest = part.partition("}")
        filled.append(blanks[blank] + rest)
    return "".join(filled)
