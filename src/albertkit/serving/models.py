"""Models to be served: loaded, asked a question whose answer is known, then given their name."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from albertkit import reference
from albertkit.checkpoints.formats import load_config
from albertkit.engines.choosing import is_int8, make_engine
from albertkit.engines.engine import BATCH_TOKENS, Engine, Row
from albertkit.engines.light_model import LightModel, Model
from albertkit.errors import CheckpointError
from albertkit.heads import HEADS, Output
from albertkit.pipelines import pipeline
from albertkit.pipelines.interface import Pipeline
from albertkit.pipelines.zero_shot_classification import find_entailment
from albertkit.serving.api_errors import ApiError
from albertkit.serving.batching import RowQueue
from albertkit.serving.queued_engine import QueuedEngine
from albertkit.serving.work import Ticket
from albertkit.tasks.feature_extraction import text_vectors

_PROBE = "She opened the door and went into the room."
_TOLERANCE = 1e-3  # of the largest score
_ROUGH = 0.2  # of scores in int8: it is the same model, and no other
_OUTPUTS: Mapping[str, Output] = {"sentence-order": "order", "feature-extraction": "hidden_states"}


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model under its name, with a pipeline for each task that it can do."""

    name: str
    source: str
    pipelines: dict[str, Pipeline]
    budget: int
    """Most tokens computed at once."""
    expected: dict[Output, np.ndarray]
    """What its engine said of the probe when it was loaded."""
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def engine(self) -> Engine:
        """What computes it."""
        return self.any_pipeline.engine

    @property
    def any_pipeline(self) -> Pipeline:
        """One of its pipelines: all have the same model, tokenizer and engine."""
        return next(iter(self.pipelines.values()))

    def probe(self, queue: RowQueue, *, seconds: float) -> bool:
        """Tell whether the probe, computed before anything else in the queue, has its answer."""
        row = _probe_row(self.any_pipeline)
        ticket = Ticket(characters=0, seconds=seconds, urgent=True)
        engine = QueuedEngine(self.engine, queue, ticket, budget=self.budget)
        try:
            return all(
                _alike(engine.run([row], output=output)[0], expected)
                for output, expected in self.expected.items()
            )
        except ApiError:
            return False

    def describe(self) -> dict[str, Any]:
        """Return what requests can ask of it."""
        config = self.any_pipeline.model.config
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "albertkit",
            "tasks": list(self.pipelines),
            "max_tokens": config.max_position_embeddings,
            "embedding_size": text_vectors(config).size(config.hidden_size),
        }


def load_model(
    name: str,
    source: str,
    *,
    task: str | None = None,
    engine: str = "auto",
    device: str | None = None,
    batch_tokens: int | None = None,
) -> ServedModel:
    """Load a model, and compare the scores of its engine with those of the model by definition.

    Args:
        name: in requests.
        source: folder or hub name.
        task: None for what the model's head is for; a pretrained one fills masks and judges the order of
            texts, and one of natural language inference also scores labels that it was not trained on. Every
            model makes embeddings.
        engine: "auto", "onnx", "onnx-int8", "torch" or "plain".
        device: "cpu", "cuda:1" and so on, as for `pipeline`; None for the best single device.
        batch_tokens: most tokens computed at once; None for what suits the device.

    Raises:
        AlbertKitError: as for `pipeline`; a CheckpointError also where the scores differ.
    """
    architectures = load_config(source).architectures or []
    pretrained = task is None and architectures[:1] == ["AlbertForPreTraining"]
    first = pipeline("sentence-order" if pretrained else task, source, device=device)
    if isinstance(first.model, LightModel):
        first.model.own_weights()
    first.engine = make_engine(first.model, engine)
    # What users write is text; only fill-mask reads [MASK] all the same.
    first.tokenizer.parse_special_tokens = False
    shared: dict[str, Any] = {"model": first.model, "tokenizer": first.tokenizer, "engine": first.engine}
    pipelines = {first.task: first}
    for other in _other_tasks(first, pretrained=pretrained):
        pipelines.setdefault(other, pipeline(other, **shared))
    row = _probe_row(first)
    exact = engine != "onnx-int8" and not is_int8(first.model)
    outputs: list[Output] = [_OUTPUTS.get(one, "logits") for one in pipelines]
    expected: dict[Output, np.ndarray] = {
        output: first.engine.run([row], output=output)[0] for output in outputs
    }
    defined = _scores_by_definition(first.model, row, outputs)
    if not all(_alike(scores, defined[output], exact=exact) for output, scores in expected.items()):
        raise CheckpointError(
            f"{source}: the engine {engine!r} says something else than the model, or it says no numbers, "
            "so it is not served. Look at the weights, or use --engine plain"
        )
    if isinstance(first.model, LightModel):
        first.model.release_memory()
    return ServedModel(name, source, pipelines, batch_tokens or _batch_tokens(first.model), expected)


def _other_tasks(first: Pipeline, *, pretrained: bool) -> Iterator[str]:
    """Yield the further tasks of a model, beside that of its first pipeline."""
    if pretrained:
        yield "fill-mask"
    if first.task == "text-classification" and find_entailment(first.model.config.label2id) is not None:
        yield "zero-shot-classification"
    yield "feature-extraction"


def find_model(models: Mapping[str, ServedModel], name: str | None, task: str | None) -> ServedModel:
    """Return the model that a request names; where it names none, the first that does the task.

    Raises:
        ApiError: there is none.
    """
    if name is not None and name not in models:
        raise ApiError(
            404,
            "unknown_model",
            f"there is no model {name!r:.80}; served are {', '.join(models)}",
            param="model",
        )
    able = {one: model for one, model in models.items() if task is None or task in model.pipelines}
    if name is None and able:
        return next(iter(able.values()))
    if name is None or name not in able:
        others = f"; these are: {', '.join(able)}" if able else ""
        what = "no model here" if name is None else f"the model {name!r}"
        todo = (
            ""
            if able
            else f". Start the server with one, --model NAME=FOLDER; served are {', '.join(models)}"
        )
        raise ApiError(
            404,
            "wrong_task",
            f"{what} is {'' if name is None else 'not '}for {task}{others}{todo}",
            param="model",
        )
    return able[name]


def _probe_row(one: Pipeline) -> Row:
    encoded = one.tokenizer(_PROBE, truncation=True, max_length=min(32, one.max_length))
    return Row(input_ids=encoded["input_ids"], token_type_ids=encoded["token_type_ids"], example=0)


def _scores_by_definition(model: Model, row: Row, outputs: list[Output]) -> dict[Output, np.ndarray]:
    """Return outputs (1, K) for [CLS]: a PyTorch model is called, others are computed by `reference`."""
    if not isinstance(model, LightModel):
        plain = make_engine(model, "plain")
        return {output: plain.run([row], output=output)[0] for output in outputs}
    ids, segments = np.array([row.input_ids]), np.array([row.token_type_ids])  # (1, T)
    head = HEADS[model.architecture]
    if head.has_choices:
        ids, segments = ids[None], segments[None]  # (1, 1, T)
    found = reference.forward(model.architecture, model.config, model.weights, ids, token_type_ids=segments)
    scores = {"hidden_states": found["hidden_states"][-1]} | {
        output: found[one.names[0]] if len(one.names) == 1 else np.stack([found[n] for n in one.names], -1)
        for output, one in head.scores.items()
    }
    return {output: scores[output].reshape(-1, scores[output].shape[-1])[:1] for output in outputs}


def _batch_tokens(model: Model) -> int:
    """Return the most tokens computed at once that suit the device."""
    if isinstance(model, LightModel):
        return BATCH_TOKENS
    from albertkit.engines.plain import default_batch_tokens

    return default_batch_tokens(model.device)


def _alike(found: np.ndarray, expected: np.ndarray, *, exact: bool = True) -> bool:
    tolerance = (_TOLERANCE if exact else _ROUGH) * max(1.0, float(np.abs(expected).max()))
    return bool(np.isfinite(expected).all()) and np.allclose(found, expected, rtol=0, atol=tolerance)
