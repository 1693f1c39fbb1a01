"""The stand-in model. It is a plain program and no language model.

It looks for a search tool, searches with the question, and answers with the sentences of what came back
that match the question best, each followed by where it stands. It has no memory: all that it does follows
from the request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from orchestrator.offline import arguments, judging, reading
from orchestrator.offline.prompt import Json, blocks
from orchestrator.offline.reading import Excerpt
from orchestrator.offline.state import Pass, ScriptedCall

NOTHING_FOUND = "Nothing was found: the searches returned no source that answers this question."
NO_SEARCH = "Nothing was found: there is no search tool here, and no source was given."
_MOST_SEARCHES = 2
_REMINDER = re.compile(r"<(system-reminder|env|context)\b.*?</\1>", re.DOTALL)
_QUESTION_LINE = re.compile(r"^\s*(?:the\s+)?question\s*:\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
_QUESTION_TAG = re.compile(r"<question>\s*(.+?)\s*</question>", re.IGNORECASE | re.DOTALL)
_SHORTER = re.compile(
    r"\b(short|shorter|brief|briefly|briefer|concise|summari[sz]e|one sentence)\b", re.IGNORECASE
)
_CORRECTION = re.compile(r"\b(citations?|cite[sd]?|markers?|uncited|unsupported|dangling)\b", re.IGNORECASE)
_FEW_WORDS = 12


@dataclass(frozen=True)
class Tool:
    """A tool that the model may call; `server` is None where the client carries it out."""

    name: str
    server: str | None
    description: str
    schema: Json

    @property
    def searches(self) -> int:
        """How much this looks like the tool to search with; 0 is not at all."""
        name = self.name.rsplit("__", 1)[-1].lower()
        properties = self.schema.get("properties") or {}
        takes_text = any(
            each in properties for each in ("objective", "query", "queries", "search_queries", "q")
        )
        says = "search" in self.description.lower()
        return 4 * ("search" in name) + 2 * takes_text + says if takes_text or "search" in name else 0


@dataclass
class _Turn:
    """What happened since the user last said something."""

    prompt: str = ""
    searches: int = 0
    excerpts: list[Excerpt] = field(default_factory=list)
    answer: str = ""


def think(body: Json, continued: list[Json], tools: list[Tool]) -> Pass:
    """Decide the next pass from the request and from the blocks that this response has said already."""
    turns = _turns(body, continued)
    text = _in_form(body, turns[-1]) or _from_before(turns)
    return Pass(text=text) if text else _research(turns, tools)


def _in_form(body: Json, now: _Turn) -> str:
    """The answer to a request that wants a form and no research."""
    if items := judging.items(now.prompt):
        return "\n".join(judging.verdicts(items))
    schema = ((body.get("output_config") or {}).get("format") or {}).get("schema")
    return json.dumps(arguments.value(schema, schema, _question(now.prompt), [])) if schema else ""


def _from_before(turns: list[_Turn]) -> str:
    """The answer where the user asks for the last one again: shorter, or with better citations."""
    now, before = turns[-1], turns[:-1]
    earlier = next((turn for turn in reversed(before) if turn.answer), None)
    if earlier is None:
        return ""
    if _SHORTER.search(now.prompt) and len(now.prompt.split()) <= _FEW_WORDS:
        return _shorter(earlier.answer)
    if not _corrects(now.prompt):
        return ""
    asked = next((turn.prompt for turn in reversed(before) if not _corrects(turn.prompt)), now.prompt)
    return _answer(_question(asked), [each for turn in turns for each in turn.excerpts])


def _research(turns: list[_Turn], tools: list[Tool]) -> Pass:
    """Search until something was found, then answer from it."""
    now = turns[-1]
    question = _question(now.prompt)
    evidence = now.excerpts or reading.from_text(now.prompt)
    tool = max(tools, key=lambda each: each.searches, default=None)
    if tool and tool.searches and now.searches < _MOST_SEARCHES and not reading.best(question, evidence):
        return Pass(calls=(_search(tool, question, now.searches),))
    if not now.searches and not evidence:
        evidence = [each for turn in turns for each in turn.excerpts]
        return Pass(text=_answer(question, evidence) if evidence else NO_SEARCH)
    return Pass(text=_answer(question, evidence))


def _corrects(prompt: str) -> bool:
    """Whether this asks for another answer with better citations, and is no question about citing."""
    return bool(_CORRECTION.search(prompt)) and not prompt.rstrip().endswith("?")


def _answer(question: str, evidence: list[Excerpt]) -> str:
    found = reading.best(question, evidence)
    if not found:
        return NOTHING_FOUND
    return " ".join(f"{each.sentence[:-1]} {each.marker}{each.sentence[-1]}" for each in found)


def _shorter(answer: str) -> str:
    first = re.match(r".+?(?:\]|\))[.!?](?=\s|$)|.+?[.!?](?=\s|$)", answer, re.DOTALL)
    return first[0] if first else answer


def _search(tool: Tool, question: str, attempt: int) -> ScriptedCall:
    words = [word for word in re.findall(r"[\w'-]+", question) if reading.words(word)]
    short = " ".join(words[:6]) or question[:60]
    queries = [short, " ".join(words[-4:])] if attempt == 0 else [" ".join(words[:2]), " ".join(words[2:5])]
    distinct = list(dict.fromkeys(query for query in queries if query)) or [short]
    objective = question if attempt == 0 else f"{short} (in other words)"
    return ScriptedCall(
        tool=tool.name, server=tool.server, input=arguments.fill(tool.schema, objective, distinct)
    )


def _question(prompt: str) -> str:
    """The question in a prompt that may say more around it."""
    marked = _QUESTION_TAG.search(prompt) or _QUESTION_LINE.search(prompt)
    if marked:
        return marked[1]
    paragraphs = [each.strip() for each in re.split(r"\n\s*\n", prompt) if each.strip()]
    asking = next((each for each in paragraphs if each.endswith("?")), None)
    return asking or (paragraphs[0] if paragraphs else "")


def _turns(body: Json, continued: list[Json]) -> list[_Turn]:
    """The conversation by what the user said; results of tools belong to the turn they came in."""
    turns = [_Turn()]
    for role, block in _said(body, continued):
        match block.get("type"):
            case "text" if role == "user":
                text = _REMINDER.sub("", str(block.get("text", ""))).strip()
                if not text:
                    continue
                if turns[-1].searches or turns[-1].answer:
                    turns.append(_Turn())
                turns[-1].prompt = f"{turns[-1].prompt}\n\n{text}".strip()
            case "text" if role == "assistant":
                turns[-1].answer += str(block.get("text", ""))
            case "mcp_tool_use" | "tool_use":
                turns[-1].searches += 1
            case "mcp_tool_result" | "tool_result" if not block.get("is_error"):
                turns[-1].excerpts += reading.excerpts(block.get("content"))
            case _:
                pass
    return turns


def _said(body: Json, continued: list[Json]) -> Iterator[tuple[str, Json]]:
    for message in body.get("messages") or ():
        for block in blocks(message.get("content")):
            yield str(message.get("role")), block
    for block in continued:
        yield "assistant", block


def tools(body: Json, hosted: dict[str, list[Json]]) -> list[Tool]:
    """All tools that the model may call in this request."""
    if (body.get("tool_choice") or {}).get("type") == "none":
        return []
    found = [
        Tool(each["name"], server, str(each.get("description") or ""), each.get("input_schema") or {})
        for server, listing in hosted.items()
        for each in listing
    ]
    own = [each for each in body.get("tools") or () if isinstance(each.get("input_schema"), dict)]
    found += [
        Tool(each["name"], None, str(each.get("description") or ""), each["input_schema"]) for each in own
    ]
    return found
