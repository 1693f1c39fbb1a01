"""The Messages API of the stand-in over HTTP: routes, keys, errors, server-sent events, and its control."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from orchestrator.errors import UsageError
from orchestrator.offline import connector, history, models, rules
from orchestrator.offline.errors import ApiError, invalid
from orchestrator.offline.oddities import DroppedError
from orchestrator.offline.prompt import Counter, Json
from orchestrator.offline.request import Request
from orchestrator.offline.response import Response
from orchestrator.offline.search_state import SearchState
from orchestrator.offline.state import Behaviour, Fault, State

_SECRET_HEADERS: Final = frozenset({"authorization", "x-api-key"})
_FAULT_ERRORS: Final = {
    "401": "invalid x-api-key",
    "403": "Your API key does not have permission to use the specified resource.",
    "413": "Request exceeds the maximum size",
    "429": "This request would exceed your organization's rate limit.",
    "500": "Internal server error",
    "529": "Overloaded",
}
_BAD_KEY: Final = re.compile("^bad|bogus|invalid|wrong", re.IGNORECASE)
_NO_SPACE: Final = (",", ":")


class MessagesApi:
    """Handles every request of one set of stand-ins; the search servers' state is controlled from here."""

    def __init__(self, search: SearchState) -> None:
        self.state = State()
        self.search = search
        self._ids = itertools.count(1)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/messages", _Endpoint(self.messages), methods=["POST"]),
                Route("/v1/messages/count_tokens", _Endpoint(self.count_tokens), methods=["POST"]),
                Route("/v1/models", _Endpoint(self.list_models), methods=["GET"]),
                Route("/v1/models/{model}", _Endpoint(self.retrieve_model), methods=["GET"]),
                Route("/control/bill", self._bill, methods=["GET"]),
                Route("/control/requests", self._requests, methods=["GET"]),
                Route("/control/configure", self._configure, methods=["POST"]),
                Route("/control/script", self._script, methods=["POST"]),
                Route("/control/reset", self._reset, methods=["POST"]),
                Route("/{path:path}", _Endpoint(self.nothing), methods=["GET", "POST", "PUT", "DELETE"]),
            ]
        )

    def request_id(self) -> str:
        return f"req_01{next(self._ids):022d}"

    async def messages(self, http: HttpRequest, send: Send, request_id: str) -> None:
        body = await self._read(http)
        with self.state.working():
            fault = self.state.coming_fault(tools=isinstance(body, dict) and bool(body.get("tools")))
            request = self._checked(http, body, fault, request_id)
            async with connector.toolbox(body, self.state.behaviour.mcp_timeout) as box:
                response = Response(request, self.state, box, fault)
                history.check(request, response.prompt)
                history.window(response.prompt, response.window)
                if request.stream:
                    await _send_events(send, response.events(), request_id)
                else:
                    await _send_json(send, 200, await response.whole(), request_id)

    def _checked(self, http: HttpRequest, body: Any, fault: Fault | None, request_id: str) -> Request:
        number = self.state.log(_log_entry(http, body))
        self._check_key(http)
        if fault in _FAULT_ERRORS:
            self.state.spend_faulty_pass()
            after = {"retry-after": f"{self.state.behaviour.retry_after:g}"} if fault == "429" else {}
            raise ApiError(int(fault), _FAULT_ERRORS[fault], after)
        return self._read_request(http, body, number, request_id)

    def _read_request(
        self, http: HttpRequest, body: Any, number: int, request_id: str, *, counting: bool = False
    ) -> Request:
        version = rules.check_version(http.headers.get("anthropic-version"))
        betas = rules.check_betas(http.headers.get("anthropic-beta", ""), self.state.behaviour.refused_betas)
        model = rules.check_shape(body, betas, version, counting=counting)
        request = Request(body, betas, version, model, number, request_id)
        rules.check(request)
        return request

    async def count_tokens(self, http: HttpRequest, send: Send, request_id: str) -> None:
        body = await self._read(http)
        number = self.state.log(_log_entry(http, body))
        self._check_key(http)
        request = self._read_request(http, body, number, request_id, counting=True)
        async with connector.toolbox(body, self.state.behaviour.mcp_timeout) as box:
            listed = {name: server.tools for name, server in box.servers.items()}
            prompt = request.prompt(Counter(self.state.behaviour.bytes_per_token), listed)
        await _send_json(send, 200, {"input_tokens": prompt.tokens}, request_id)

    async def list_models(self, http: HttpRequest, send: Send, request_id: str) -> None:
        self._check_key(http)
        data = [_model_info(model) for model in models.MODELS.values()]
        page = {"data": data, "has_more": False, "first_id": data[0]["id"], "last_id": data[-1]["id"]}
        await _send_json(send, 200, page, request_id)

    async def retrieve_model(self, http: HttpRequest, send: Send, request_id: str) -> None:
        self._check_key(http)
        model = models.find(http.path_params["model"])
        if model is None:
            raise ApiError(404, f"model: {http.path_params['model']}")
        await _send_json(send, 200, _model_info(model), request_id)

    async def nothing(self, http: HttpRequest, _send: Send, _request_id: str) -> None:
        self.state.log(_log_entry(http, None))
        raise ApiError(404, "Not Found")

    async def _read(self, http: HttpRequest) -> Any:
        raw = await http.body()
        try:
            body = json.loads(raw)
            if b"\\u" in raw:
                json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise invalid("The request body is not valid JSON: no low surrogate in string") from error
        except ValueError as error:
            raise invalid(f"The request body is not valid JSON: {error}") from error
        return body

    def _check_key(self, http: HttpRequest) -> None:
        scheme, _, bearer = http.headers.get("authorization", "").partition(" ")
        key = (bearer if scheme.lower() == "bearer" else "") or http.headers.get("x-api-key", "")
        if not key:
            raise ApiError(401, "x-api-key header is required")
        if _BAD_KEY.search(key) or key in self.state.behaviour.refused_keys:
            raise ApiError(401, "invalid x-api-key")

    # The control of the stand-ins: not part of the service.

    def bill(self) -> dict[str, Any]:
        """What everything since the last reset costs, in US dollars."""
        model_usd = self.state.bill.total()
        tools_usd = self.search.usd
        return {
            "model_usd": model_usd,
            "tools_usd": tools_usd,
            "usd": model_usd + tools_usd,
            "passes": self.state.bill.lines(),
            "tool_calls": [
                {"server": call.server, "tool": call.tool, "usd": call.usd, "is_error": call.is_error}
                for call in list(self.search.calls)
            ],
        }

    def configure(self, changes: Mapping[str, Any]) -> Behaviour:
        """Change the behaviour of both; raises ValidationError or UsageError for what it does not know."""
        told = self.state.configure(changes)
        if "search" in changes:
            self.search.configure(**told.search)
        return told

    def reset(self) -> int:
        """Forget everything on both sides; return how many scripted passes were left over."""
        self.search.reset()
        return self.state.reset()

    async def _bill(self, _: HttpRequest) -> JSONResponse:
        await anyio.to_thread.run_sync(self.state.settle)
        return JSONResponse(self.bill())

    async def _requests(self, _: HttpRequest) -> JSONResponse:
        return JSONResponse({"requests": self.state.requests()})

    async def _configure(self, http: HttpRequest) -> JSONResponse:
        try:
            told = self.configure(await http.json())
        except (ValidationError, UsageError) as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse(told.model_dump())

    async def _script(self, http: HttpRequest) -> JSONResponse:
        try:
            return JSONResponse({"queued": self.state.script((await http.json())["passes"])})
        except ValidationError as error:
            return JSONResponse({"error": str(error)}, 400)

    async def _reset(self, _: HttpRequest) -> JSONResponse:
        return JSONResponse({"unconsumed": self.reset()})


Handler = Callable[[HttpRequest, Send, str], Awaitable[None]]


class _Endpoint:
    """Runs a handler as an ASGI application: errors in the service's shape, an end when the client leaves."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.api: MessagesApi = handler.__self__  # type: ignore[attr-defined]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = HttpRequest(scope, receive)
        request_id = self.api.request_id()
        await http.body()
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_when_left, receive, group.cancel_scope)
            await self._answer(http, send, request_id)
            group.cancel_scope.cancel()

    async def _answer(self, http: HttpRequest, send: Send, request_id: str) -> None:
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.handler(http, noting, request_id)
        except Exception as error:
            # uvicorn closes the connection without an ending when an application fails after its start.
            if started or _inside(error, DroppedError):
                raise
            refusal = _inside(error, ApiError) or ApiError(500, f"The stand-in failed: {error!r}")
            await _send_json(send, refusal.status, refusal.body(request_id), request_id, refusal.headers)


_ErrorT = TypeVar("_ErrorT", bound=Exception)


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


async def _send_json(
    send: Send, status: int, body: Json, request_id: str, headers: dict[str, str] | None = None
) -> None:
    raw = json.dumps(body, ensure_ascii=True, separators=_NO_SPACE).encode()
    told = {
        "content-type": "application/json",
        "content-length": str(len(raw)),
        "request-id": request_id,
        **(headers or {}),
    }
    await _start(send, status, told)
    await send({"type": "http.response.body", "body": raw})


async def _send_events(send: Send, events: AsyncIterator[Json], request_id: str) -> None:
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


def _log_entry(http: HttpRequest, body: Any) -> dict[str, Any]:
    headers = {name: value for name, value in http.headers.items() if name not in _SECRET_HEADERS}
    return {"method": http.method, "path": http.url.path, "headers": headers, "body": body}


def _model_info(model: models.Model) -> Json:
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.name,
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": model.window,
        "max_tokens": model.max_output,
    }
