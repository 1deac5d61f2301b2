"""The models of a server: load them, and compare their scores with the reference before they are served."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from albertkit import reference
from albertkit.checkpoints.formats import load_config
from albertkit.engines.choosing import engine_device, make_engine
from albertkit.engines.engine import Engine, Row
from albertkit.engines.light_model import LightModel, Model, is_int8
from albertkit.errors import CheckpointError, short
from albertkit.heads import HEADS, Output
from albertkit.pipelines.core import Pipeline, pipeline
from albertkit.pipelines.tasks import find_entailment
from albertkit.serving.limits import ApiError
from albertkit.serving.queue import QueuedEngine, RowQueue, Ticket
from albertkit.serving.settings import ServingSettings
from albertkit.tasks.sentence_embedding import text_vectors
from albertkit.tasks.text_classification import PAIRS_KEY

logger = logging.getLogger("albertkit.serving")

_PROBE = "She opened the door and went into the room."
_TOLERANCE = 1e-3  # of the largest score
_ROUGH = 0.2  # the same for int8, which only shows that it is the same model
_OUTPUTS: Mapping[str, Output] = {"sentence-order": "order", "feature-extraction": "hidden_states"}


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model with its name, and a pipeline for each of its tasks."""

    name: str
    pipelines: dict[str, Pipeline]
    row: Row
    """The row of the probe."""
    expected: dict[Output, np.ndarray]
    """Scores of the probe, computed when the model was loaded."""
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def engine(self) -> Engine:
        return self.any_pipeline.engine

    @property
    def any_pipeline(self) -> Pipeline:
        """One of the pipelines, which all have the same model, tokenizer and engine."""
        return next(iter(self.pipelines.values()))

    def probe(self, queue: RowQueue, *, seconds: float) -> bool:
        """Return whether the scores of the probe are the expected ones. The probe goes first in the queue."""
        ticket = Ticket(characters=0, seconds=seconds, urgent=True)
        engine = QueuedEngine(self.engine, queue, ticket)
        try:
            return all(
                _alike(engine.run([self.row], output=output)[0], expected)
                for output, expected in self.expected.items()
            )
        except ApiError:
            return False
        except Exception as error:  # a device that fails raises anything
            logger.error("the probe of the model %s failed: %s", self.name, error)
            return False

    def describe(self) -> dict[str, Any]:
        config = self.any_pipeline.model.config
        vectors, longest = text_vectors(config), config.max_position_embeddings
        has_labels = {"text-classification", "token-classification"} & self.pipelines.keys()
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "albertkit",
            "tasks": list(self.pipelines),
            "max_tokens": min(longest, vectors.max_length or longest),
            "embedding_size": vectors.size(config.hidden_size),
            "text_pairs": config.extra.get(PAIRS_KEY),
            "labels": list(config.id2label.values()) if has_labels else None,
        }


def load_model(name: str, settings: ServingSettings) -> ServedModel:
    """Load a model of a server, and compare the scores of its engine with those of the reference.

    Without a task in the settings, the tasks are those of the head. A pretraining head has fill-mask and
    sentence-order. A model for natural language inference also has zero-shot-classification. Every model has
    feature-extraction.
    """
    source, task, engine = settings.models[name], settings.tasks.get(name), settings.engine
    architectures = load_config(source).architectures or []
    pretrained = task is None and architectures[:1] == ["AlbertForPreTraining"]
    device = engine_device(engine, settings.device)
    first = pipeline("sentence-order" if pretrained else task, source, device=device)
    if isinstance(first.model, LightModel):
        first.model.own_weights()
    first.engine = make_engine(first.model, engine)
    # Special tokens in a user's text are plain text, except [MASK] for fill-mask.
    first.tokenizer.parse_special_tokens = False
    shared: dict[str, Any] = {"model": first.model, "tokenizer": first.tokenizer, "engine": first.engine}
    pipelines = {first.task: first}
    others = ["fill-mask"] if pretrained else []
    if first.task == "text-classification" and find_entailment(first.model.config.label2id) is not None:
        others.append("zero-shot-classification")
    for other in (*others, "feature-extraction"):
        if other != first.task:
            pipelines[other] = pipeline(other, **shared)
    encoded = first.tokenizer(_PROBE, truncation=True, max_length=min(32, first.max_length))
    row = Row(input_ids=encoded["input_ids"], token_type_ids=encoded["token_type_ids"], example=0)
    exact = engine != "onnx-int8" and not is_int8(first.model)
    outputs: list[Output] = [_OUTPUTS.get(name, "logits") for name in pipelines]
    try:
        expected: dict[Output, Any] = {
            output: first.engine.run([row], output=output)[0] for output in outputs
        }
    except CheckpointError as error:
        raise CheckpointError(f"{source}: {error}") from error
    defined = _scores_by_definition(first.model, row, outputs)
    if not all(_alike(scores, defined[output], exact=exact) for output, scores in expected.items()):
        todo = "Use the engine 'plain'."
        raise CheckpointError(
            f"{source}: the scores of the engine {engine!r} differ from the reference. {todo}"
        )
    if isinstance(first.model, LightModel):
        first.model.release_memory()
    return ServedModel(name, pipelines, row, expected)


def find_model(models: Mapping[str, ServedModel], name: str | None, task: str | None) -> ServedModel:
    """Return the model that a request names, or if it names none, the first model trained for the task."""
    if name is not None and name not in models:
        message = f"there is no model {short(name)}. The models are {', '.join(models)}."
        raise ApiError(404, "unknown_model", message, param="model")
    able = {each: model for each, model in models.items() if task is None or task in model.pipelines}
    if name is None and task == "feature-extraction" and len(models) > 1:
        # Every model computes embeddings, but those of models for another task are worse.
        able = {each: model for each, model in models.items() if next(iter(model.pipelines)) == task}
        able = able or {each: model for each, model in models.items() if "fill-mask" in model.pipelines}
    chosen = next(iter(able), None) if name is None else name
    if chosen in able:
        return able[chosen]
    what = "no model of this server is" if name is None else f"the model {name!r} is not"
    if task == "feature-extraction":
        todo = f"Every model computes vectors: name one of {', '.join(models)}."
    elif able:
        todo = f"Use one of {', '.join(able)}."
    else:
        todo = f"The models are {', '.join(models)}. To add one, start the server with --model NAME=FOLDER."
    raise ApiError(404, "wrong_task", f"{what} for {task}. {todo}", param="model")


def _scores_by_definition(model: Model, row: Row, outputs: list[Output]) -> dict[Output, np.ndarray]:
    """Return outputs (1, K) for [CLS] from the PyTorch model, or from `reference` for a light model."""
    if not isinstance(model, LightModel):
        plain = make_engine(model, "plain")
        return {output: plain.run([row], output=output)[0] for output in outputs}
    ids, segments = np.array([row.input_ids]), np.array([row.token_type_ids])  # (1, T)
    head = HEADS[model.architecture]
    if head.has_choices:
        ids, segments = ids[None], segments[None]  # (1, 1, T)
    computed = reference.forward(
        model.architecture, model.config, model.weights, ids, token_type_ids=segments
    )
    scores = {"hidden_states": computed["hidden_states"][-1]}
    for output in head.scores.keys() & outputs:
        columns = [computed[name] for name in head.scores[output].names]
        scores[output] = columns[0] if len(columns) == 1 else np.stack(columns, axis=-1)
    return {output: scores[output].reshape(-1, scores[output].shape[-1])[:1] for output in outputs}


def _alike(scores: np.ndarray, expected: np.ndarray, *, exact: bool = True) -> bool:
    tolerance = (_TOLERANCE if exact else _ROUGH) * max(1.0, float(np.abs(expected).max()))
    return np.allclose(scores, expected, rtol=0, atol=tolerance)
