"""What decides how a server behaves: flags of `albertkit serve`."""

from dataclasses import dataclass, field

from albertkit.errors import ConfigError

KEY_VARIABLE = "ALBERTKIT_SERVING_KEY"


@dataclass(frozen=True, kw_only=True)
class ServingSettings:
    """Everything but the models' files."""

    models: dict[str, str]
    """Folder or hub name of each model, by the name that requests use."""
    tasks: dict[str, str] = field(default_factory=dict)
    """The task of a model, by its name, where its head does not say it or says another."""
    engine: str = "auto"
    """What computes the models: auto (chosen by a rule), onnx and onnx-int8 (ONNX Runtime, on the CPU), torch
    (without padding), plain (the PyTorch model itself)."""
    device: str | None = None
    """cpu, cuda, cuda:1, mps ... (default: the best there is)."""
    host: str = "127.0.0.1"
    """Address to listen on; this machine alone can reach the default."""
    port: int = 8080
    """Port to listen on; 0 for any that is free."""
    workers: int = 1
    """Processes, each with its own copy of the models and its share of the cores."""
    playground: bool = False
    """Serve a page to try the models in a browser, at /playground."""
    key_file: str | None = None
    """File with the key that requests must bring as a bearer token; else ALBERTKIT_SERVING_KEY is read."""

    batch_tokens: int | None = None
    """Most tokens computed at once, of all requests (default: what suits the device)."""
    batch_wait: float = 0.004
    """Most seconds that a batch which is not full waits for requests that are being tokenized."""
    max_requests: int = 64
    """Maximum number of requests in progress; further requests are answered with 429."""
    max_body_bytes: int = 2_000_000
    """Longest body of a request, in bytes."""
    max_items: int = 256
    """Most inputs of a request."""
    max_characters: int = 200_000
    """Most characters of a request, as they are tokenized: a context counts once for each choice."""
    max_tokens: int = 65_536
    """Most tokens of a request."""
    max_seconds: float = 30.0
    """Longest time for an answer; the header X-Request-Timeout asks for less."""
    client_seconds: float = 10.0
    """Longest time that a client may take to send a request, or to take an answer."""

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError("there is no model to serve; expected at least one")
        if unknown := self.tasks.keys() - self.models.keys():
            raise ConfigError(
                f"a task is given for {', '.join(sorted(unknown))}; the models are {', '.join(self.models)}"
            )
        if not 0 <= self.port < 65_536:
            raise ConfigError(f"port is {self.port}; expected 0 to 65535")
        for name in (
            "workers",
            "max_requests",
            "max_body_bytes",
            "max_items",
            "max_characters",
            "max_tokens",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least 1")
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise ConfigError(f"batch_tokens is {self.batch_tokens}; expected at least 1")
        for name in ("max_seconds", "client_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} is {getattr(self, name)}; expected a number of seconds over 0")
        if not 0 <= self.batch_wait < 1:
            raise ConfigError(f"batch_wait is {self.batch_wait}; expected 0 to 1 second")
