"""A server in a thread of the test process, which tests reach over the loopback interface."""

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from random_models import save_random_model

from albertkit.engines.engine import BatchScores, Engine, Job, Row
from albertkit.modeling.heads import AlbertForPreTraining, AlbertForQuestionAnswering
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.serving.app import Service
from albertkit.serving.models import ServedModel
from albertkit.serving.server import listen, make_server
from albertkit.serving.settings import ServingSettings
from albertkit.tokenization.tokenizer import AlbertTokenizer


def save_random_models(
    heads: Mapping[str, type[AlbertPreTrainedModel]], vocabulary: Path, root: Path, *, seed: int
) -> dict[str, str]:
    """Save a small random model for every head, and return the folders.

    A model with the name "nli" has the labels of natural language inference.
    """
    tokenizer = AlbertTokenizer(vocabulary)
    torch.manual_seed(seed)
    for name, head in heads.items():
        labels = {"num_labels": 2 if head in (AlbertForQuestionAnswering, AlbertForPreTraining) else 3}
        if name == "nli":
            labels = {"id2label": {0: "contradiction", 1: "neutral", 2: "Entailment"}}
        save_random_model(head, tokenizer, root / name, seed=None, max_position_embeddings=64, **labels)
    return {name: str(root / name) for name in heads}


@dataclass
class Reply:
    """The response to a request."""

    status: int
    headers: http.client.HTTPMessage
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def kind(self) -> str:
        """Return the type of an error, after checking its fields."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "request_id"}
        assert error["message"]
        return error["type"]


@dataclass
class Running:
    """A running server, and functions that send requests to it."""

    service: Service
    port: int
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers of every request."""

    def ask(
        self,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        method: str | None = None,
    ) -> Reply:
        """Send a request on a new connection. A body that is not bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        given = {} if body is None else {"Content-Type": "application/json"}
        try:
            method = method or ("GET" if body is None else "POST")
            connection.request(method, path, content, given | dict(headers or self.headers))
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())
        finally:
            connection.close()

    def results(self, path: str, body: Any) -> Any:
        reply = self.ask(path, body)
        assert reply.status == 200, reply.content
        return reply.json["results"]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def figure(self, name: str) -> float:
        """Return a value of /metrics, or 0 if it is missing."""
        lines = self.ask("/metrics").content.decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def errors(self, kind: str) -> float:
        """Return the number of errors of a type, with any model and status."""
        text = self.ask("/metrics").content.decode()
        counts = re.findall(rf'^albertkit_errors_total{{.*type="{kind}".*}} (.*)$', text, re.MULTILINE)
        return sum(map(float, counts))


@contextmanager
def running(
    settings: ServingSettings, models: Mapping[str, ServedModel] | None = None, *, key: str | None = None
) -> Iterator[Running]:
    """Run a server for the duration of a `with` block."""
    service = Service(settings, models)
    server = make_server(service, key=key)
    listening = listen(settings)
    listening.listen(128)
    port = listening.getsockname()[1]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield Running(service, port)
    finally:
        server.should_exit = True
        thread.join(60)
        service.close()
        assert not thread.is_alive()


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"the condition was not true within {seconds} s"
        time.sleep(0.01)


class WatchedEngine(Engine):
    """An engine that waits for `may_go`, records its batches, and then calls another engine.

    All scores are multiplied by `factor`. The first score of a row with the token `poison` is NaN. A row with
    the token `bomb` raises an error.
    """

    def __init__(self, engine: Engine, *, poison: int = -1, bomb: int = -1) -> None:
        self.engine = engine
        self.factor = 1.0
        self.may_go = threading.Event()
        self.may_go.set()
        self.entered = threading.Event()
        self.batches_seen: list[list[int]] = []
        self.poison, self.bomb = poison, bomb

    def batches(self, rows: Sequence[Row], job: Job) -> BatchScores:
        self.batches_seen.append([len(row.input_ids) for row in rows])
        self.entered.set()
        assert self.may_go.wait(60)
        if any(self.bomb in row.input_ids for row in rows):
            raise RuntimeError("this row cannot be computed")
        for numbers, scores in self.engine.batches(rows, job):
            scaled = [self.factor * row_scores for row_scores in scores]
            for number, row_scores in zip(numbers, scaled, strict=True):
                if self.poison in rows[number].input_ids:
                    row_scores[0, 0] = np.nan
            yield numbers, scaled
