"""Signatures of thinking blocks and ids of tool calls: both carry the proof of the conversation before them.

The key is a constant, so that a conversation can go on in another process, as it can with the service.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Final, NamedTuple

_KEY: Final = b"stand-in: no secret, only a seal"
_SEAL: Final = 32


class Held(NamedTuple):
    """What a signature says of its thinking block."""

    model: str
    tokens: int


def sign(prefix: str, model: str, tokens: int) -> str:
    """Seal a thinking block of this size to the model and to the digest of all that came before it."""
    held = json.dumps([model, tokens]).encode()
    return base64.b64encode(_seal(f"thinking|{prefix}|{model}|{tokens}") + held).decode()


def opened(signature: str) -> Held | None:
    """What the signature holds, whatever it is bound to; None for one that was not made here."""
    try:
        raw = base64.b64decode(signature, validate=True)
        model, tokens = json.loads(raw[_SEAL:])
        return Held(str(model), int(tokens))
    except (ValueError, TypeError):
        return None


def thinking_tokens(signature: str) -> int | None:
    held = opened(signature)
    return held.tokens if held else None


def fits(signature: str, prefix: str) -> bool:
    """Whether this signature was made behind exactly this prefix."""
    held = opened(signature)
    return held is not None and hmac.compare_digest(signature, sign(prefix, held.model, held.tokens))


def call_id(stem: str, prefix: str, *, last: bool) -> str:
    """An id for a tool call opened behind this prefix; `last` seals in that the turn pauses after it."""
    return f"{stem}_01{_seal(f'call|{prefix}|{last}').hex()[:22]}"


def is_last(identifier: str, prefix: str) -> bool:
    """Whether this call, opened behind this prefix, was the one that its response paused at."""
    stem, _, _ = identifier.partition("_01")
    return identifier == call_id(stem, prefix, last=True)


def _seal(text: str) -> bytes:
    return hmac.new(_KEY, text.encode(), hashlib.sha256).digest()
