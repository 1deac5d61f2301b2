"""Error responses: an HTTP status, a type for programs and metrics, and a message for people."""

import json
from typing import Any

from albertkit.serving.libraries import fastapi

CLIENT_GONE = 499  # for metrics, as in nginx: no client reads this response


class ApiError(Exception):
    """An error response to a request.

    Args:
        status: HTTP status.
        kind: type of the error, such as "too_many_items". Metrics count errors by type.
        message: what was received, what was expected and what to do.
        param: field or header of the request that caused the error.
        retry_after: seconds after which the client can try again.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.retry_after = retry_after

    def response(self, path: str) -> fastapi.Response:
        """Return the response in OpenAI's error format, or in that of `InferenceClient` on its paths."""
        content: dict[str, Any]
        if path == "/" or path.startswith(("/models/", "/pipeline/")):
            content = {"error": str(self), "error_type": self.kind, "param": self.param}
        else:
            content = {"error": {"message": str(self), "type": self.kind, "param": self.param}}
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        # ASCII, because the message may quote lone surrogates, which UTF-8 does not allow.
        return fastapi.Response(
            json.dumps(content).encode("ascii"), self.status, headers, media_type="application/json"
        )


def too_much(kind: str, what: str, received: int, limit: int, todo: str) -> ApiError:
    """Return the error for a request that is too large."""
    return ApiError(413, kind, f"the request has {received:,} {what}. Expected at most {limit:,}. {todo}.")


def internal_error() -> ApiError:
    """Return the error for a request that failed for a reason that only the log names."""
    return ApiError(500, "internal", "the request failed in the server. See the server's log.")
