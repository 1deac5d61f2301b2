"""Determine the call of `huggingface_hub.InferenceClient` that a request makes, and its model.

A path names a model, a task, both or neither. Without a task, the form of the body decides, or otherwise the
head of the model. If there is no model either, options that only one task has decide.
"""

import re
from collections.abc import Mapping
from typing import Any

from albertkit.errors import short
from albertkit.serving.api_errors import ApiError
from albertkit.serving.inference_client import CALLS, Call, FeatureExtractionCall, with_hint
from albertkit.serving.models import ServedModel, find_model
from albertkit.serving.reading import invalid

PATHS = ("/", "/models/{model:path}/pipeline/{task}", "/models/{model:path}", "/pipeline/{task}")
"""The paths. The first that matches a request is used."""

_CLIENT = re.compile(r"\bhf_hub/[1-9]")
"""The client in Python, in `User-Agent`. Only its `feature_extraction` sends no `parameters`. Other clients,
and releases before 1, omit them if they are empty."""
_MASK = "[MASK]"
_ZERO_SHOT = {"candidate_labels", "hypothesis_template", "multi_label"}  # options of no other task


def read_call(
    value: dict[str, Any],
    models: Mapping[str, ServedModel],
    *,
    name: str | None,
    task: str | None,
    agent: str = "",
) -> Call:
    """Return the call of a body, with its model.

    Args:
        value: the object in the body.
        models: models by name.
        name: name of the model in the path; None for the first model with the task.
        task: task in the path; None to determine it from the body or the model.
        agent: the header `User-Agent`.

    Raises:
        ApiError: the model or task does not exist, the model is not for the task, or the body does not match
            the task.
    """
    if task is not None and task not in CALLS:
        raise ApiError(
            404, "unknown_task", f"there is no task {short(task)}. The tasks are {', '.join(CALLS)}."
        )
    name = name.rstrip("/") if name else None
    task = task or _task_of_form(value, agent) or (_task_of_options(value) if name is None else None)
    served, hint = find_model(models, name, CALLS[task].task if task else None), ""
    if task is None:
        task = _task_of_model(served)
        lacks = "task" if name else "model and no task"
        hint = (
            f"The path names no {lacks}, so {task} was chosen, the task of the model {short(served.name)}. "
            "To choose another, use the path /models/NAME/pipeline/TASK."
        )
    about = f"{task}, the task of this request to the model {short(served.name)}"
    try:
        call = CALLS[task](value, served.name, about=about, hint=hint)
        has_masks = any(_MASK in text for text in _texts(value) if isinstance(text, str))
        if has_masks and hint and task != "fill-mask":
            raise invalid(f"inputs has {_MASK}, but {task} fills no masks", "inputs")
    except ApiError as error:
        raise with_hint(error, hint) from None
    return call


def _task_of_form(value: dict[str, Any], agent: str) -> str | None:
    """Return the task of a body with a form that no other task has."""
    inputs = value.get("inputs")
    forms = inputs if isinstance(inputs, dict) else {}
    if "source_sentence" in forms or "sentences" in forms:
        return "sentence-similarity"
    if "question" in forms:
        return "question-answering"
    if not _ZERO_SHOT.isdisjoint(_parameters(value)):
        return "zero-shot-classification"
    is_plain = all(isinstance(text, str) for text in _texts(value))
    if value.keys() == {"inputs"} and _CLIENT.search(agent) and is_plain:
        return "feature-extraction"
    options = value.keys() - {"inputs", "parameters"}
    return "feature-extraction" if options & {*FeatureExtractionCall.option_names()} else None


def _texts(value: dict[str, Any]) -> list[Any]:
    inputs = value.get("inputs")
    return inputs if isinstance(inputs, list) else [inputs]


def _task_of_options(value: dict[str, Any]) -> str | None:
    """Return the task that has all options of a body, if there is only one."""
    given = _parameters(value)
    able = [task for task, kind in CALLS.items() if given and given <= {*kind.option_names()}]
    return able[0] if len(able) == 1 else None


def _parameters(value: dict[str, Any]) -> set[str]:
    """Return the names of the options in `parameters`."""
    given = value.get("parameters")
    return set(given) if isinstance(given, dict) else set()


def _task_of_model(served: ServedModel) -> str:
    """Return the task of a model's head. If there are several, return the first that the client supports."""
    tasks = [task for task in served.pipelines if task != "feature-extraction"] or ["feature-extraction"]
    for task in tasks:
        if task in CALLS:
            return task
    raise ApiError(
        404,
        "wrong_task",
        f"the model {short(served.name)} is for {', '.join(tasks)}, for which InferenceClient has no method. "
        f"Use a route of /openapi.json, or /models/{served.name:.80}/pipeline/feature-extraction for "
        "vectors.",
    )
