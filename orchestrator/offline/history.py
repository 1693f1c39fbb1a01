"""What the service refuses in a conversation's history: open calls, changed prefixes, a false ending."""

from __future__ import annotations

from orchestrator.offline import signing
from orchestrator.offline.errors import invalid
from orchestrator.offline.prompt import Json, Piece, Prompt, blocks
from orchestrator.offline.request import Request

_DROP_BETA = "thinking-binding-controls-2026-08-01"


def check(request: Request, prompt: Prompt) -> None:
    """All rules that bind a message to what came before it."""
    _client_calls(request.body["messages"])
    paused = _genuine_pause(request.body["messages"], prompt)
    _hosted_calls(request.body["messages"], paused=paused)
    _thinking_blocks(request, prompt)
    _ending(request, paused=paused)


def window(prompt: Prompt, limit: int) -> None:
    if prompt.tokens > limit:
        raise invalid(f"prompt is too long: {prompt.tokens} tokens > {limit} maximum")


def _client_calls(messages: list[Json]) -> None:
    """Every tool_use has its tool_result in the next message, and every tool_result its tool_use."""
    merged = _merged(messages)
    for index, (_, content) in enumerate(merged):
        following = merged[index + 1][1] if index + 1 < len(merged) else []
        before = merged[index - 1][1] if index else []
        answered = {each.get("tool_use_id") for each in following if each.get("type") == "tool_result"}
        missing = [b["id"] for b in content if b.get("type") == "tool_use" and b.get("id") not in answered]
        if missing:
            raise invalid(
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately "
                f"after: {', '.join(missing)}. Each `tool_use` block must have a corresponding "
                "`tool_result` block in the next message."
            )
        asked = {each.get("id") for each in before if each.get("type") == "tool_use"}
        for each in content:
            if each.get("type") == "tool_result" and each.get("tool_use_id") not in asked:
                raise invalid(
                    f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{each.get('tool_use_id')}. Each `tool_result` block must have a corresponding "
                    "`tool_use` block in the previous message."
                )


def _merged(messages: list[Json]) -> list[tuple[str, list[Json]]]:
    """Messages with consecutive ones of one role as one, as the service reads them."""
    merged: list[tuple[str, list[Json]]] = []
    for message in messages:
        if merged and merged[-1][0] == message["role"]:
            merged[-1][1].extend(blocks(message["content"]))
        elif message["role"] != "system":
            merged.append((message["role"], blocks(message["content"])))
    return merged


def _hosted_calls(messages: list[Json], *, paused: bool) -> None:
    merged = _merged(messages)
    for index, (_, content) in enumerate(merged):
        done = {each.get("tool_use_id") for each in content if each.get("type") == "mcp_tool_result"}
        asked = {each.get("id") for each in content if each.get("type") == "mcp_tool_use"}
        open_calls = [b["id"] for b in content if b.get("type") == "mcp_tool_use" and b["id"] not in done]
        if open_calls and not (paused and index == len(merged) - 1):
            raise invalid(
                f"messages.{index}: `mcp_tool_use` ids were found without `mcp_tool_result` blocks: "
                f"{', '.join(open_calls)}. Each `mcp_tool_use` block must have a corresponding "
                "`mcp_tool_result` block in the same message."
            )
        if strays := [each for each in done if each not in asked]:
            raise invalid(
                f"messages.{index}: unexpected `tool_use_id` found in `mcp_tool_result` blocks: {strays[0]}"
            )


def _genuine_pause(messages: list[Json], prompt: Prompt) -> bool:
    """Whether the conversation ends with the unchanged content of a response that paused."""
    if messages[-1]["role"] != "assistant":
        return False
    pieces = prompt.pieces
    if not pieces or pieces[-1].block.get("type") not in ("mcp_tool_use", "mcp_tool_result"):
        return False
    for index in range(len(pieces) - 1, 0, -1):
        if pieces[index].block.get("type") == "mcp_tool_use":
            return signing.is_last(str(pieces[index].block.get("id")), pieces[index - 1].digest)
    return False


def _thinking_blocks(request: Request, prompt: Prompt) -> None:
    """A thinking block is bound to the model that wrote it and to every byte before it."""
    pieces = prompt.pieces
    served = {str((each.block.get("to") or {}).get("model")) for each in pieces if _is(each, "fallback")}
    allowed = {request.model.id, *served, *request.fallbacks}
    for index, piece in enumerate(pieces):
        if not _is(piece, "thinking"):
            continue
        signature = str(piece.block.get("signature") or "")
        held = signing.opened(signature)
        if held is None:
            raise invalid(f"messages: Invalid `signature` in `thinking` block ({_place(pieces, index)})")
        before = pieces[index - 1].digest if index else ""
        if (held.model not in allowed or not signing.fits(signature, before)) and not _drops(request):
            raise invalid(
                f"messages: Invalid `signature` in `thinking` block ({_place(pieces, index)}): it is bound "
                "to a different conversation. Send model, system prompt, tools and messages unchanged."
            )


def _is(piece: Piece, kind: str) -> bool:
    return piece.section == "messages" and piece.block.get("type") == kind


def _place(pieces: list[Piece], index: int) -> str:
    return f"block {sum(1 for piece in pieces[:index] if piece.section == 'messages')} of the conversation"


def _drops(request: Request) -> bool:
    binding = (request.body.get("thinking") or {}).get("block_binding") or {}
    return _DROP_BETA in request.betas and binding.get("prefix_mismatch_behavior") == "drop_block"


def _ending(request: Request, *, paused: bool) -> None:
    for index, message in enumerate(request.body["messages"]):
        content = blocks(message["content"])
        if message["role"] == "assistant" and content and content[-1].get("type") == "thinking":
            raise invalid(f"messages.{index}: The final block in an assistant message cannot be `thinking`.")
    if request.body["messages"][-1]["role"] == "assistant" and not paused and not request.model.prefill:
        raise invalid(
            "This model does not support assistant message prefill. "
            "The conversation must end with a user message."
        )
