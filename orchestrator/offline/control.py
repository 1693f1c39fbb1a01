"""The control of the stand-ins: bill, log, behaviour, script. No part of the services they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio.to_thread
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from orchestrator.errors import UsageError
from orchestrator.offline.search_state import SearchState
from orchestrator.offline.state import Behaviour, State


class Control:
    """One control over the Messages API and the search servers; safe to use from any thread."""

    def __init__(self, state: State, search: SearchState) -> None:
        self.state = state
        self.search = search

    def bill(self) -> dict[str, Any]:
        """What everything since the last reset costs, in US dollars; waits until nothing is worked on."""
        self.state.settle()
        model_usd, tools_usd = self.state.bill.total(), self.search.usd
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

    def routes(self) -> list[Route]:
        """The same over HTTP, JSON in and out."""
        return [
            Route("/control/bill", self._bill, methods=["GET"]),
            Route("/control/requests", self._requests, methods=["GET"]),
            Route("/control/configure", self._configure, methods=["POST"]),
            Route("/control/script", self._script, methods=["POST"]),
            Route("/control/reset", self._reset, methods=["POST"]),
        ]

    async def _bill(self, _: Request) -> JSONResponse:
        return JSONResponse(await anyio.to_thread.run_sync(self.bill))

    async def _requests(self, _: Request) -> JSONResponse:
        return JSONResponse({"requests": self.state.requests()})

    async def _configure(self, http: Request) -> JSONResponse:
        try:
            told = self.configure(await http.json())
        except (ValidationError, UsageError) as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse(told.model_dump())

    async def _script(self, http: Request) -> JSONResponse:
        try:
            return JSONResponse({"queued": self.state.script((await http.json())["passes"])})
        except ValidationError as error:
            return JSONResponse({"error": str(error)}, 400)

    async def _reset(self, _: Request) -> JSONResponse:
        return JSONResponse({"unconsumed": self.reset()})
