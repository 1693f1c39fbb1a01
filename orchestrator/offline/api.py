"""The Messages API of the stand-in: its endpoints, its keys, and in which order a request is checked."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.routing import Route
from starlette.types import Send

from orchestrator.offline import connector, history, models, rules
from orchestrator.offline.answering import Endpoint, Handler, send_events, send_json
from orchestrator.offline.control import Control
from orchestrator.offline.errors import ApiError, invalid
from orchestrator.offline.prompt import Counter, Json
from orchestrator.offline.request import Request
from orchestrator.offline.response import Response
from orchestrator.offline.state import Fault, State

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


class MessagesApi:
    """Handles every request to one stand-in."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._ids = itertools.count(1)

    def app(self, control: Control) -> Starlette:
        """The ASGI application, with the control beside the service's own endpoints."""
        return Starlette(
            routes=[
                self._route("/v1/messages", self.messages, "POST"),
                self._route("/v1/messages/count_tokens", self.count_tokens, "POST"),
                self._route("/v1/models", self.list_models, "GET"),
                self._route("/v1/models/{model}", self.retrieve_model, "GET"),
                *control.routes(),
                self._route("/{path:path}", self.nothing, "GET", "POST", "PUT", "DELETE"),
            ]
        )

    def _route(self, path: str, handler: Handler, *methods: str) -> Route:
        return Route(path, Endpoint(handler, self._new_id), methods=list(methods))

    def _new_id(self) -> str:
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
                    await send_events(send, response.events(), request_id)
                else:
                    await send_json(send, 200, await response.whole(), request_id)

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
        await send_json(send, 200, {"input_tokens": prompt.tokens}, request_id)

    async def list_models(self, http: HttpRequest, send: Send, request_id: str) -> None:
        self._check_key(http)
        data = [_model_info(model) for model in models.MODELS.values()]
        page = {"data": data, "has_more": False, "first_id": data[0]["id"], "last_id": data[-1]["id"]}
        await send_json(send, 200, page, request_id)

    async def retrieve_model(self, http: HttpRequest, send: Send, request_id: str) -> None:
        self._check_key(http)
        model = models.find(http.path_params["model"])
        if model is None:
            raise ApiError(404, f"model: {http.path_params['model']}")
        await send_json(send, 200, _model_info(model), request_id)

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
