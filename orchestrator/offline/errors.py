"""How the stand-in refuses: the service's error shape."""

from __future__ import annotations

from typing import Any, Final

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


class ApiError(Exception):
    """A request is refused before anything is sampled."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}

    def body(self, request_id: str) -> dict[str, Any]:
        error = {"type": _TYPES.get(self.status, "api_error"), "message": self.message}
        return {"type": "error", "error": error, "request_id": request_id}


def invalid(message: str) -> ApiError:
    return ApiError(400, message)
