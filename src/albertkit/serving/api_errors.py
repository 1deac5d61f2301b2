"""Error responses: an HTTP status, a type for programs and metrics, and a message for people."""

import json
from typing import Any

from albertkit.serving.libraries import fastapi

CLIENT_GONE = 499  # nobody reads it; nginx counts such requests under this number


class ApiError(Exception):
    """A request that is answered with an error.

    Args:
        status: of HTTP.
        kind: one of few words, such as "too_many_items"; errors are counted by it.
        message: what was received, what was expected and what to do.
        param: the part of the request that it is about.
        retry_after: seconds after which another try may succeed.
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

    def response(self, path: str = "") -> fastapi.Response:
        """Return the answer in the shape of OpenAI's errors, or in that of the paths of `InferenceClient`."""
        content: dict[str, Any]
        if path == "/" or path.startswith(("/models/", "/pipeline/")):
            content = {"error": str(self), "error_type": self.kind, "param": self.param}
        else:
            content = {"error": {"message": str(self), "type": self.kind, "param": self.param}}
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        # Not as UTF-8: what was received may hold halves of characters.
        return fastapi.Response(
            json.dumps(content).encode("ascii"), self.status, headers, media_type="application/json"
        )


def too_much(kind: str, what: str, received: int, most: int, todo: str) -> ApiError:
    """Return the error for a request that is too large."""
    return ApiError(413, kind, f"the request has {received:,} {what}; expected at most {most:,}. {todo}")
