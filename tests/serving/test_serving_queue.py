"""Tests of the queue's estimate of the time of a request, without a server."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")

from albertkit.engines.engine import BatchScores, Engine, Job, Row
from albertkit.serving import queue as queue_module
from albertkit.serving.limits import ApiError
from albertkit.serving.metrics import Metrics
from albertkit.serving.queue import RowQueue, Ticket, Work
from albertkit.serving.settings import ServingSettings


class Zeros(Engine):
    def batches(self, rows: Sequence[Row], job: Job) -> BatchScores:
        yield range(len(rows)), [np.zeros((1, 1), np.float32)] * len(rows)


@pytest.fixture(name="queue")
def queue_fixture() -> Iterator[RowQueue]:
    settings = ServingSettings(models={"a": "bundled"}, batch_wait=0.0, batch_tokens=100)
    queue = RowQueue(Metrics(), settings, torch_threads=None)
    yield queue
    queue.close()


def compute(queue: RowQueue, text: str, *, tokens: int) -> None:
    row = Row(input_ids=[2] * tokens, token_type_ids=[0] * tokens, example=0)
    ticket = Ticket(characters=len(text), seconds=30.0)
    queue.compute(Work(ticket, Zeros(), [row], Job(), lambda scores: scores))


def test_a_slow_batch_does_not_reject_requests_forever(
    queue: RowQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.seconds_per_token = 1.0
    large = Ticket(characters=1000, seconds=30.0)
    with pytest.raises(ApiError, match=r"takes about 300\.0 seconds"):
        queue.enter(large)
    monkeypatch.setattr(queue_module, "_VALID_SECONDS", 0.0)
    queue.enter(large)
    compute(queue, "a" * 300, tokens=100)
    assert queue.seconds_per_token < 0.1  # without the batch of long ago


def test_short_texts_do_not_predict_many_tokens_of_long_texts(queue: RowQueue) -> None:
    for _ in range(50):
        compute(queue, "a", tokens=3)
    assert 2000 < 10_000 * queue.tokens_per_character < 4000
