"""The settings of a server: flags of `albertkit serve`."""

import re
from dataclasses import dataclass, field
from typing import Literal

from albertkit.errors import ConfigError
from albertkit.recipe import check_numbers, number

PREFIX = "ALBERTKIT_SERVE_"
"""Prefix of the environment variables for the flags of `albertkit serve`."""
KEY_VARIABLE = "ALBERTKIT_SERVE_KEY"

_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/?#\sA-Z]+")


@dataclass(frozen=True, kw_only=True)
class ServingSettings:
    """All settings of a server."""

    models: dict[str, str]
    """Folder or hub name of each model, by the name that requests use."""
    tasks: dict[str, str] = field(default_factory=dict)
    """Task of each model, by its name, if its head does not determine the task."""
    engine: str = "auto"
    """Inference engine: auto (depends on the model), onnx or onnx-int8 (ONNX Runtime on the CPU), torch
    (PyTorch without padding) or plain (the PyTorch model itself). ALBERTKIT_THREADS sets the number of
    threads."""
    device: str | None = None
    """Device: cpu, cuda, cuda:1, mps, ... (default: the best available device)."""
    host: str = "127.0.0.1"
    """Address to listen on. With the default, only this machine can connect."""
    port: int = 8080
    """Port to listen on; 0 for any free port."""
    workers: int = number(1, "processes", minimum=1)
    """Number of processes. Each has its own copy of the models and its share of the cores."""
    playground: bool = False
    """Serve a page for trying the models in a browser, at /playground."""
    key_file: str | None = None
    """File with the key that requests must send as a bearer token (default: the environment variable
    ALBERTKIT_SERVE_KEY)."""
    public_docs: bool = False
    """Serve the description of the API, /docs and /openapi.json, without a key."""
    cors: list[str] = field(default_factory=list)
    """Origin whose pages may send requests from a browser, such as https://example.com, or * for any. Can be
    repeated."""
    metrics_port: int | None = None
    """Second port with only /metrics, /healthz and /readyz, without a key; 0 for any free port (default: no
    second port)."""
    log_format: Literal["text", "json"] = "text"
    """Format of the log on stderr: text, or one JSON object per line. It has a line for each request."""

    batch_tokens: int | None = number(None, "tokens", minimum=1)
    """Maximum number of tokens per batch (default: depends on the device). A batch can combine several
    requests."""
    batch_wait: float = number(0.004, "seconds", minimum=0)
    """Maximum time in seconds to wait for requests that are being tokenized, before computing a batch that is
    not full."""
    max_requests: int = number(64, "requests", minimum=1)
    """Maximum number of requests in progress. The server answers further requests with status 429."""
    max_body_bytes: int = number(2_000_000, "bytes", minimum=1)
    """Maximum size of a request body, in bytes."""
    max_items: int = number(256, "inputs", minimum=1)
    """Maximum number of inputs per request."""
    max_characters: int = number(200_000, "characters", minimum=1)
    """Maximum number of characters per request. A context counts once for each choice."""
    max_tokens: int = number(65_536, "tokens", minimum=1)
    """Maximum number of tokens per request."""
    max_seconds: float = number(30.0, "seconds", above=0)
    """Maximum time in seconds until the response. A request can set a shorter time in the header
    X-Request-Timeout."""
    client_seconds: float = number(10.0, "seconds", above=0)
    """Maximum time in seconds for a client to send a request, and to receive a response."""

    def __post_init__(self) -> None:
        check_numbers(self)
        if not self.models:
            raise ConfigError("there is no model to serve. Expected at least one.")
        if unknown := self.tasks.keys() - self.models.keys():
            models = f"the models are {', '.join(self.models)}. Use one of their names."
            raise ConfigError(f"a task is set for {', '.join(sorted(unknown))}, but {models}")
        for name, port in (("port", self.port), ("metrics_port", self.metrics_port)):
            if port is not None and not 0 <= port < 65_536:
                raise ConfigError(f"{name} is {port}. Expected 0 to 65535.")
        if self.port and self.port == self.metrics_port:
            raise ConfigError(f"port and metrics_port are both {self.port}. Choose two ports.")
        for origin in self.cors:
            if not _ORIGIN.fullmatch(origin):
                expected = "an origin in lowercase without a path, such as https://example.com, or *"
                raise ConfigError(f"cors is {origin!r}. Expected {expected}.")
        if self.batch_wait >= 1:
            raise ConfigError(f"batch_wait is {self.batch_wait}. Expected less than 1 second.")
