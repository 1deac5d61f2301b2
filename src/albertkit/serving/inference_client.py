"""The calls of `huggingface_hub.InferenceClient`: each is converted to a request of our own routes.

The path names the task, and optionally the model:

    InferenceClient(base_url="http://localhost:8080/models/NAME/pipeline/fill-mask").fill_mask("a [MASK]")
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from albertkit.errors import short
from albertkit.serving import schemas
from albertkit.serving.libraries import pydantic
from albertkit.serving.limits import ApiError
from albertkit.serving.models import ServedModel, find_model

PATHS = ("/models/{model:path}/pipeline/{task}", "/pipeline/{task}")
_RENAMED = {"truncate": "truncation"}
"""Option of the client -> the name in our request, if they differ."""
_CONSTANTS = {"align_to_words": (False,), "truncation_direction": ("right", "Right")}
"""Options of the client that our requests lack, and their values that change nothing."""


class Body(pydantic.BaseModel):
    """A request of the client: `feature_extraction` sends its options beside the inputs."""

    model_config = pydantic.ConfigDict(extra="allow")
    inputs: Any = pydantic.Field(description="One input or a list, as in the client's method for the task.")
    parameters: dict[str, Any] | None = pydantic.Field(None, description="Options of the client's method.")


@dataclass(frozen=True)
class Call:
    """A method of the client."""

    schema: type[schemas.TaskRequest]
    """Our request."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Default values of options, if they differ from those of our request."""
    answer: Callable[[Any, Any], Any] = lambda _, result: result
    """Returns the answer for one input from our result."""
    always_list: bool = False
    """Whether the answer to a single input is in a list."""


CALLS: Mapping[str, Call] = {
    "fill-mask": Call(
        schemas.FillMaskRequest, answer=lambda _, result: result[0] if len(result) == 1 else result
    ),
    "text-classification": Call(schemas.ClassifyRequest, {"top_k": None}, always_list=True),
    "zero-shot-classification": Call(schemas.ZeroShotRequest),
    "token-classification": Call(schemas.TagRequest, {"aggregation_strategy": "simple"}),
    "question-answering": Call(
        schemas.AnswerRequest,
        answer=lambda request, result: result[0] if (request.top_k or 1) == 1 else result,
    ),
    "feature-extraction": Call(
        schemas.EmbeddingsRequest, answer=lambda _, result: result["embedding"], always_list=True
    ),
    "sentence-similarity": Call(schemas.EmbeddingsRequest),
}
"""The call for each task that a path can name."""

Answer = list[Any] | dict[str, Any]
"""The content of a response: for each task as the client's method returns it, for one input or for a list."""


class InferenceError(pydantic.BaseModel):
    """An error in the format of the client."""

    error: str
    error_type: str
    param: str | None
    request_id: str


def read_call(
    body: Body, models: Mapping[str, ServedModel], *, model: str | None, task: str
) -> tuple[schemas.TaskRequest, Callable[[list[Any]], Any]]:
    """Return our request for a call, and the function that converts our results to the client's answer."""
    if task not in CALLS:
        message = f"there is no task {short(task)}. The tasks are {', '.join(CALLS)}."
        raise ApiError(404, "unknown_task", message)
    call = CALLS[task]
    served = find_model(models, model, call.schema.task)
    options = (body.parameters or {}) | (body.model_extra or {})
    for name, allowed in _CONSTANTS.items():
        value = options.pop(name, None)
        if value not in (None, *allowed):
            message = f"{name} is {short(value)}. Expected {allowed[0]!r}."
            raise ApiError(422, "invalid", message, param=f"parameters.{name}")
    given = {_RENAMED.get(name, name): value for name, value in options.items() if value is not None}
    inputs = body.inputs
    is_similarity = task == "sentence-similarity"
    if is_similarity:
        if not isinstance(inputs, dict) or not isinstance(inputs.get("sentences"), list):
            message = "inputs: Expected an object with source_sentence and sentences."
            raise ApiError(422, "invalid", message, param="inputs")
        inputs = [inputs.get("source_sentence"), *inputs["sentences"]]
    request = call.schema.model_validate({"model": served.name, "input": inputs, **call.defaults, **given})

    def shape(results: list[Any]) -> Any:
        if is_similarity:  # the vectors have length 1, up to rounding errors
            vectors = np.array([result["embedding"] for result in results])  # (1 + N, H)
            return (vectors[1:] @ vectors[0]).clip(-1, 1).tolist()
        answers = [call.answer(request, result) for result in results]
        return answers if call.always_list or isinstance(inputs, list) else answers[0]

    return request, shape
