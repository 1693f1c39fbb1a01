"""A result as text, Markdown, JSON or HTML: one rewritten answer and one bibliography in every format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final, Literal, get_args

from orchestrator.citations import Checked
from orchestrator.citing.notation import Answer, Notation, answer, bibliography, escaped
from orchestrator.citing.rewrite import Entry, entry
from orchestrator.claims.tokens import plain
from orchestrator.events import Verdict
from orchestrator.harvesting.pagetext import harmless, one_line
from orchestrator.result import Result
from orchestrator.sources import Registry

Format = Literal["text", "markdown", "json", "html"]
OFFLINE: Final = "No language model was used: a stand-in put this together from matching sentences."


def render(result: Result, format: str) -> str:
    """Return a whole run as one document: `text`, `markdown`, a standalone `html` page, or one `json` object.

    In JSON `answer` is the answer as rendered in Markdown. Raises `ValueError` for another format.
    """
    match format:
        case "json":
            return _json(_fields(result))
        case "html":
            return page(result.question, _fragment(result))
        case "text" | "markdown":
            return _document(result, format)
    raise ValueError(f"no such format: {format}; there are {', '.join(get_args(Format))}")


def render_check(text: str, checked: Checked, registry: Registry, format: str) -> str:
    """Return what `check` prints of a text: the text as rendered, and which of its citations do not hold."""
    notation: Notation = "html" if format == "html" else "text" if format == "text" else "markdown"
    shown = answer(text, registry, ids_shown=checked.ids_shown, notation=notation)
    warnings = [shown.warning] if shown.warning else []
    if format == "json":
        fields = {
            "text": shown.text,
            "citations": [verdict.model_dump() for verdict in checked.verdicts],
            "bibliography": [entry._asdict() for entry in shown.entries],
            "dangling": [verdict.marker for verdict in checked.dangling],
            "coverage": checked.coverage.model_dump(),
            "warnings": warnings,
        }
        return _json(fields)
    notes = _notes([*warnings, *_findings(checked.verdicts, shown.entries)], notation)
    if notation == "html":
        return page("Checked citations", shown.text + notes)
    return _joined([shown.text, notes])


def page(title: str, fragment: str) -> str:
    """Return a self-contained HTML page around a fragment; light and dark, no script, nothing loaded."""
    style = files("orchestrator").joinpath("data/page.css").read_text(encoding="utf-8")
    head = escape(one_line(title))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{head}</title>\n<style>\n{style}</style></head>\n"
        f"<body><h1>{head}</h1>\n{fragment}</body></html>"
    )


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, indent=2)


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part.strip())


def _shown(result: Result, notation: Notation) -> Answer:
    return answer(result.answer, Registry(result.sources), ids_shown=result.ids_shown, notation=notation)


def _warnings(result: Result, shown: Answer) -> list[str]:
    offline = [OFFLINE] if result.offline else []
    return [*offline, *result.warnings, *([shown.warning] if shown.warning else [])]


def _fields(result: Result) -> dict[str, Any]:
    shown = _shown(result, "markdown")
    return result.model_dump(mode="json") | {"answer": shown.text, "warnings": _warnings(result, shown)}


def _document(result: Result, notation: Notation) -> str:
    shown, notice = _shown(result, notation), _notice(result)
    found = "" if shown.text.strip() else bibliography(_everything(result), notation, "Sources found")
    notes = _notes([*_warnings(result, shown), *_findings(result.citations, shown.entries)], notation)
    return _joined([f"> {notice}" if notice and notation == "markdown" else notice, shown.text, found, notes])


def _fragment(result: Result) -> str:
    shown, notice = _shown(result, "html"), _notice(result)
    found = [] if shown.text.strip() else _everything(result)
    listed = "".join(
        f"<li>{escape(one.title)} <span class=url>{escape(one.url)}</span></li>" for one in found
    )
    return "\n".join(
        [
            f'<p class="notice">{escape(notice)}</p>' if notice else "",
            shown.text,
            f"<h2>Sources found</h2><ol>{listed}</ol>" if listed else "",
            _notes([*_warnings(result, shown), *_findings(result.citations, shown.entries)], "html"),
        ]
    )


def _everything(result: Result) -> list[Entry]:
    """What a run found that wrote no answer."""
    return [entry(number, source) for number, source in enumerate(result.sources, start=1)]


def _notice(result: Result) -> str:
    """Say in a line that a run did not end as it should; empty when it did."""
    if result.status == "done":
        return ""
    rest = "What follows is partial." if result.answer.strip() else "There is no answer."
    return f"{result.status}: {one_line(result.message) or 'the run did not come to its end'}. {rest}"


def _findings(verdicts: Sequence[Verdict], entries: Sequence[Entry]) -> list[str]:
    """Say which citations do not hold, by their numbers in the rendered answer."""
    numbers = {entry.id: entry.number for entry in entries}
    found = []
    for verdict in verdicts:
        sentence = harmless(plain(verdict.sentence))
        if verdict.verdict == "unsupported" and verdict.source in numbers:
            reason = harmless(plain(verdict.evidence or "it says otherwise"))
            found.append(f"“{sentence}” Not found in source {numbers[verdict.source]}: {reason}.")
        elif verdict.verdict == "dangling":
            found.append(f"“{sentence}” A citation was taken out: it names nothing that the tools returned.")
    return list(dict.fromkeys(found))


def _notes(notes: Sequence[str], notation: Notation) -> str:
    if not notes:
        return ""
    said = [escaped(note, notation) for note in notes]
    if notation == "html":
        return (
            '<section class="notes"><h2>Notes</h2><ul>'
            + "".join(f"<li>{n}</li>" for n in said)
            + "</ul></section>"
        )
    return "\n".join(["Notes:" if notation == "text" else "## Notes", "", *(f"- {note}" for note in said)])
