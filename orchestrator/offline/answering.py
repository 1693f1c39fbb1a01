"""How an answer becomes HTTP: errors in the service's shape, server-sent events, clients that leave."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import anyio
from starlette.requests import Request as HttpRequest
from starlette.types import Message, Receive, Scope, Send

from orchestrator.offline.errors import ApiError
from orchestrator.offline.oddities import DroppedError
from orchestrator.offline.prompt import Json

Handler = Callable[[HttpRequest, Send, str], Awaitable[None]]
"""Answers a request through `send`, under the request id given; raises `ApiError` to refuse it."""

_NO_SPACE: Final = (",", ":")
_ErrorT = TypeVar("_ErrorT", bound=Exception)


class Endpoint:
    """Runs a handler as an ASGI application, and cancels it as soon as the client has left."""

    def __init__(self, handler: Handler, new_id: Callable[[], str]) -> None:
        self._handler = handler
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = HttpRequest(scope, receive)
        await http.body()
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_when_left, receive, group.cancel_scope)
            await self._answer(http, send, self._new_id())
            group.cancel_scope.cancel()

    async def _answer(self, http: HttpRequest, send: Send, request_id: str) -> None:
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._handler(http, noting, request_id)
        except Exception as error:
            # uvicorn closes the connection without an ending when an application fails after its start.
            if started or _inside(error, DroppedError):
                raise
            refusal = _inside(error, ApiError) or ApiError(500, f"The stand-in failed: {error!r}")
            await send_json(send, refusal.status, refusal.body(request_id), request_id, refusal.headers)


def _inside(error: BaseException, wanted: type[_ErrorT]) -> _ErrorT | None:
    """The wanted error, also where task groups wrapped it up."""
    if isinstance(error, wanted):
        return error
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return next((found for each in inner if (found := _inside(each, wanted))), None)


async def _cancel_when_left(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def send_json(
    send: Send, status: int, body: Json, request_id: str, headers: dict[str, str] | None = None
) -> None:
    """One JSON body."""
    raw = json.dumps(body, ensure_ascii=True, separators=_NO_SPACE).encode()
    told = {
        "content-type": "application/json",
        "content-length": str(len(raw)),
        "request-id": request_id,
        **(headers or {}),
    }
    await _start(send, status, told)
    await send({"type": "http.response.body", "body": raw})


async def send_events(send: Send, events: AsyncIterator[Json], request_id: str) -> None:
    """Server-sent events, each named by its type, as they come."""
    headers = {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "request-id": request_id,
    }
    await _start(send, 200, headers)
    async for event in events:
        data = json.dumps(event, ensure_ascii=True, separators=_NO_SPACE)
        raw = f"event: {event['type']}\ndata: {data}\n\n".encode()
        await send({"type": "http.response.body", "body": raw, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _start(send: Send, status: int, headers: dict[str, str]) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
