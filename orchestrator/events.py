"""The one vocabulary: every value that can stand in a run file.

Both backends translate what their SDK says into these frozen events; budget, sources, trace, progress
and rendering see nothing else. An event holds what happened; the run's id, the sequence number and the
time are stamped on its line by the trace.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Status = Literal[
    "done",
    "uncited",
    "no_sources",
    "failed",
    "mcp_unavailable",
    "rate_limited",
    "budget",
    "step_limit",
    "timeout",
    "max_tokens",
    "context_exceeded",
    "refusal",
    "interrupted",
]
LimitName = Literal[
    "max_usd",
    "daily_usd",
    "max_steps",
    "max_seconds",
    "max_calls",
    "max_tokens",
    "context",
    "repeated_calls",
    "empty_searches",
    "repeated_text",
    "result_size",
]
Purpose = Literal["answer", "final", "correction", "judge"]


class Value(BaseModel):
    """A frozen value; a field it does not know is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(Value):
    """What one run may use. `None` is no limit, `0` allows nothing."""

    max_usd: float | None = 0.50
    """US dollars for the whole run, tools included."""
    max_steps: int | None = 12
    """Sampling passes of the model, the final answer's included."""
    max_seconds: float | None = 300
    """Wall-clock seconds."""
    max_calls: dict[str, int | None] = {"parallel-search-advanced": 2}
    """Calls by tool, server, or server/tool."""
    reserve: float = 0.2
    """Share of max_usd that is kept for the final answer."""
    worst_case: bool = False
    """Count every pass at its full max_tokens and the dearest rate, whatever the service has shown."""
    max_output_tokens: int = 16_000
    """Output tokens of one request, thinking included."""


class Usage(Value):
    """Tokens of one sampling iteration, as one model bills them. `input_tokens` are the uncached ones."""

    model: str
    kind: str = "message"
    input_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0
    thinking_tokens: int | None = None
    """The part of output_tokens that was thinking, where the service says it."""
    inference_geo: str | None = None
    service_tier: str | None = None
    speed: str | None = None

    @property
    def prompt_tokens(self) -> int:
        """All input of the request, cached or not."""
        return (
            self.input_tokens + self.cache_write_tokens + self.cache_write_1h_tokens + self.cache_read_tokens
        )


class Source(Value):
    """One thing that a tool returned. Its identity is the canonical URL, its id never moves."""

    id: str
    url: str
    """As the tool gave it, for display."""
    title: str
    published: str | None = None
    excerpts: tuple[str, ...] = ()


class Verdict(Value):
    """What the check says of one marker in the answer."""

    marker: str
    """The marker as the model wrote it."""
    source: str | None
    """The source's id, None when nothing was found under the marker."""
    url: str | None
    title: str | None
    sentence: str
    verdict: Literal["supported", "unsupported", "unknown", "dangling"]
    evidence: str | None
    """The excerpt's sentence that carries it, or what is missing, or the nearest known source."""
    judged: bool = False
    """True when a model, not the deterministic check, settled it."""


class Coverage(Value):
    """How many of the answer's factual sentences carry a citation, and which do not."""

    factual: int = 0
    cited: int = 0
    uncited: tuple[str, ...] = ()


class ChargeLine(Value):
    """One line of the ledger."""

    item: str
    """`MODEL input|cache_write|cache_read|output` or `SERVER/TOOL`."""
    quantity: float
    """Tokens, calls or URLs."""
    unit_usd: float
    usd: float
    estimated: bool
    """True when the service has not said it: an upper bound."""
    step: int
    purpose: Purpose = "answer"
    basis: str = ""
    """Where the price comes from: the price list with its date and row, `list`, `server` or `user`."""


class RunStarted(Value):
    event: Literal["run_started"] = "run_started"
    question: str
    backend: Literal["connector", "agent-sdk"]
    backend_reason: str
    model: str
    limits: Limits
    servers: tuple[str, ...]
    versions: dict[str, str]
    offline: bool
    base_url: str
    key_fingerprint: str | None = None
    """First eight hex digits of the key's SHA-256: enough to tell two keys apart, not to find one."""
    effort: str = "medium"
    follow_up: str | None = None
    """The run whose conversation this one carries on."""
    resumes: str | None = None
    """The run that this one completes: its spend counts here."""


class ToolInfo(Value):
    """A tool as its server lists it; `digest` is over name, schema and description where they are known."""

    name: str
    digest: str | None = None
    description: str = ""


class ToolsListed(Value):
    event: Literal["tools_listed"] = "tools_listed"
    server: str
    tools: tuple[ToolInfo, ...]


class PassStarted(Value):
    """One sampling pass of the model begins; `booked_usd` counts as spent until the pass is settled.

    The same step again with a larger amount means that the pass outgrew what was booked for it.
    """

    event: Literal["pass_started"] = "pass_started"
    step: int
    purpose: Purpose
    model: str
    context_tokens: int
    output_tokens: int
    """Output that the booking covers."""
    booked_usd: float


class PassFinished(Value):
    """Usage settles the passes in `steps`; a hosted loop reports once for all its passes."""

    event: Literal["pass_finished"] = "pass_finished"
    steps: tuple[int, ...]
    purpose: Purpose
    model: str
    usage: tuple[Usage, ...]
    stop_reason: str | None
    exact: bool
    """False when the service did not report usage and the passes stay at what was booked."""
    detail: str | None = None
    """What the service added to the stop reason, for instance a refusal's category and explanation."""


class TextDelta(Value):
    event: Literal["text_delta"] = "text_delta"
    text: str


class ToolCall(Value):
    event: Literal["tool_call"] = "tool_call"
    id: str
    server: str
    tool: str
    arguments: dict[str, Any]
    booked_usd: float | None = None
    """What counts as spent until its result is there, None where nobody offered the tool."""

    @property
    def item(self) -> str:
        """What its line in the ledger is called."""
        return f"{self.server}/{self.tool}"


class ToolResult(Value):
    """What a tool returned, before any source id was written into it."""

    event: Literal["tool_result"] = "tool_result"
    id: str
    content: Any
    """The MCP result's structured content where it has any, else its text or content blocks."""
    is_error: bool
    ms: float | None
    chars: int
    bytes: int
    """UTF-8 bytes of the text that the model is shown: what its price is estimated from."""
    usage: tuple[dict[str, Any], ...] = ()
    """The server's own report, for instance name, count and cost_usd, where visible."""
    denied: bool = False
    """True when the budget did not let the call through: it never reached the server."""


class Charge(Value):
    """`settles` names the pass whose booking this line closes; only the last line of a pass has it."""

    event: Literal["charge"] = "charge"
    line: ChargeLine
    settles: tuple[int, ...] = ()


class Checkpoint(Value):
    """The raw blocks of one finished pass or turn; opaque to all but the backend that wrote it."""

    event: Literal["checkpoint"] = "checkpoint"
    backend: Literal["connector", "agent-sdk"]
    blocks: tuple[dict[str, Any], ...]


class LimitReached(Value):
    event: Literal["limit_reached"] = "limit_reached"
    limit: LimitName
    value: float | str
    """What it was, or would have needed."""
    ceiling: float | str | None
    action: str
    """What was done about it and which option raises it, one sentence for the user."""


class CitationsChecked(Value):
    event: Literal["citations_checked"] = "citations_checked"
    verdicts: tuple[Verdict, ...]
    coverage: Coverage


class Ending(Value):
    """What every run file ends with; what was found so far stands in it whatever happened."""

    status: Status
    answer: str
    """The answer as the model wrote it, markers included; rendering is left to the reader."""
    ids_shown: bool
    """Whether the model was shown source ids: only then do they count as markers."""
    seconds: float
    message: str = ""
    """One sentence for the user: what happened and what to do. Empty when all is well."""
    warnings: tuple[str, ...] = ()


class RunFinished(Ending):
    event: Literal["run_finished"] = "run_finished"


class RunFailed(Ending):
    event: Literal["run_failed"] = "run_failed"
    boundary: str
    """Which boundary the failure crossed: anthropic, agent-sdk, mcp, ours."""


Event = (
    RunStarted
    | ToolsListed
    | PassStarted
    | PassFinished
    | TextDelta
    | ToolCall
    | ToolResult
    | Charge
    | Checkpoint
    | LimitReached
    | CitationsChecked
    | RunFinished
    | RunFailed
)
EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])
"""Reads one event from the readable part of a run-file line."""
