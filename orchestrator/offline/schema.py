"""The shape of a request: fields, their types and no others, in words that are pydantic's at both ends."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from orchestrator.offline.errors import invalid

Json = dict[str, Any]
ToolName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Loose(BaseModel):
    """A part of which only some fields matter here."""

    model_config = ConfigDict(extra="allow", strict=True)


class CacheControl(_Strict):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class Cacheable(_Loose):
    type: str
    cache_control: CacheControl | None = None


# --- content -----------------------------------------------------------------------------------------------


class Text(_Strict):
    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None
    citations: list[Json] | None = None


class Thinking(_Strict):
    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUse(_Loose):
    type: Literal["tool_use"]
    id: str
    name: str
    input: Json
    cache_control: CacheControl | None = None


class McpToolUse(ToolUse):
    type: Literal["mcp_tool_use"]  # type: ignore[assignment]
    server_name: str


class Result(_Strict):
    tool_use_id: str
    content: str | list[Cacheable] | None = None
    is_error: bool | None = None
    cache_control: CacheControl | None = None


class ToolResult(Result):
    type: Literal["tool_result"]


class McpToolResult(Result):
    type: Literal["mcp_tool_result"]


class Listing(_Loose):
    type: Literal["mcp_tool_listing"]
    mcp_server_name: str
    tools: list[Json]


class Other(Cacheable):
    """Blocks that are not looked into; `aurora` is what the stand-in says when it is to say something new."""

    type: Literal[
        "image",
        "document",
        "search_result",
        "redacted_thinking",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "advisor_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "container_upload",
        "compaction",
        "tool_addition",
        "tool_removal",
        "fallback",
        "aurora",
    ]


Block = Annotated[
    Text | Thinking | ToolUse | McpToolUse | ToolResult | McpToolResult | Listing | Other,
    Field(discriminator="type"),
]


class Message(_Loose):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


# --- tools -------------------------------------------------------------------------------------------------


class ObjectSchema(_Loose):
    type: Literal["object"]
    properties: dict[str, Json | bool] | None = None
    required: list[str] | None = None


class CustomTool(_Strict):
    type: Literal["custom"] | None = None
    name: ToolName
    description: str | None = None
    input_schema: ObjectSchema
    cache_control: CacheControl | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    eager_input_streaming: bool | None = None
    input_examples: list[Json] | None = None
    allowed_callers: list[str] | None = None


class ToolConfig(_Strict):
    enabled: bool | None = None
    defer_loading: bool | None = None


class PinnedTool(_Strict):
    name: str
    description: str | None = None
    input_schema: Json


class Toolset(_Strict):
    type: Literal["mcp_toolset"]
    mcp_server_name: str
    default_config: ToolConfig | None = None
    configs: dict[str, ToolConfig] | None = None
    cache_control: CacheControl | None = None
    tools: list[PinnedTool] | None = None


class McpServer(_Strict):
    type: Literal["url"]
    name: str
    url: Annotated[str, StringConstraints(pattern=r"^https?://")]
    authorization_token: str | None = None
    tool_configuration: Json | None = None


class ToolChoice(_Strict):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


# --- settings ----------------------------------------------------------------------------------------------


class ThinkingConfig(_Strict):
    type: Literal["adaptive", "between_tools", "disabled", "enabled"]
    budget_tokens: int | None = Field(default=None, ge=1_024)
    display: Literal["summarized", "omitted", "updates"] | None = None
    block_binding: Json | None = None


class TaskBudget(_Strict):
    type: Literal["tokens"]
    total: int = Field(ge=20_000)
    remaining: int | None = None


class OutputFormat(_Strict):
    type: Literal["json_schema"]
    schema_: Json = Field(alias="schema")


class OutputConfig(_Strict):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None
    task_budget: TaskBudget | None = None


class Amount(_Strict):
    type: Literal["input_tokens", "tool_uses", "thinking_turns", "all"]
    value: int | None = None


class ClearToolUses(_Strict):
    type: Literal["clear_tool_uses_20250919"]
    trigger: Amount | None = None
    keep: Amount | None = None
    clear_at_least: Amount | None = None
    exclude_tools: list[str] | None = None
    clear_tool_inputs: bool | list[str] | None = None


class ClearThinking(_Strict):
    type: Literal["clear_thinking_20251015"]
    keep: Amount | Literal["all"] | None = None


class Compact(_Strict):
    type: Literal["compact_20260112"]
    trigger: Amount | None = None
    instructions: str | None = None
    pause_after_compaction: bool | None = None


Edit = Annotated[ClearToolUses | ClearThinking | Compact, Field(discriminator="type")]


class ContextManagement(_Strict):
    edits: list[Edit] | None = None


class Fallback(_Strict):
    model: str
    max_tokens: int | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    speed: Literal["standard", "fast"] | None = None


class Count(_Strict):
    """What `count_tokens` takes."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    system: str | list[Text] | None = None
    tools: list[Json] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingConfig | None = None
    cache_control: CacheControl | None = None
    context_management: ContextManagement | None = None
    mcp_servers: list[McpServer] | None = None
    output_config: OutputConfig | None = None
    speed: Literal["standard", "fast"] | None = None
    compaction: Json | None = None
    billing_policy: Json | None = None


class Create(Count):
    """What `messages` takes."""

    max_tokens: int = Field(ge=1)
    stream: bool | None = None
    metadata: Json | None = None
    stop_sequences: list[str] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    container: str | Json | None = None
    inference_geo: str | None = None
    fallbacks: Literal["default"] | list[Fallback] | None = None
    diagnostics: Json | None = None
    fallback_credit_token: str | Json | None = None
    thread: Json | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


_BODY: Final[dict[bool, TypeAdapter[Any]]] = {False: TypeAdapter(Create), True: TypeAdapter(Count)}
_TOOLS: Final[dict[str, TypeAdapter[Any]]] = {
    "custom": TypeAdapter(CustomTool),
    "mcp_toolset": TypeAdapter(Toolset),
}
_COMBINING: Final = ("allOf", "anyOf", "oneOf")


def check(body: Any, *, counting: bool = False) -> None:
    """Raise the 400 that the first thing wrong with a request's shape gets."""
    if not isinstance(body, dict):
        raise invalid("The request body is not a JSON object.")
    _fits(_BODY[counting], body, ())
    for index, tool in enumerate(body.get("tools") or ()):
        kind = tool.get("type") or "custom"
        if kind in ("custom", "mcp_toolset"):
            _fits(_TOOLS[kind], tool, ("tools", index, kind))
        if kind == "custom" and any(word in tool["input_schema"] for word in _COMBINING):
            raise invalid(
                f"tools.{index}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at "
                "the top level"
            )


def _fits(wanted: TypeAdapter[Any], value: Any, place: tuple[str | int, ...]) -> None:
    try:
        wanted.validate_python(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        # Of a union's branches the one that got deepest says what is meant.
        worst = max(found, key=lambda each: (each["type"] == "extra_forbidden", len(each["loc"])))
        parts = [str(part) for part in (*place, *worst["loc"]) if not _is_branch(part)]
        raise invalid(f"{'.'.join(parts)}: {worst['msg']}") from error


def _is_branch(part: str | int) -> bool:
    """A name that pydantic gives to a branch of a union, not a part of the request."""
    return isinstance(part, str) and (part in ("str", "constrained-str") or "[" in part or part[:1].isupper())
