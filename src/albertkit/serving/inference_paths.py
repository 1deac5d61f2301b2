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
from albertkit.serving.reading import parse_request, written

PATHS = ("/", "/models/{model:path}/pipeline/{task}", "/models/{model:path}", "/pipeline/{task}")
"""The paths. The first that matches a request is used."""

_CLIENT = re.compile(r"\bhf_hub/[1-9]")
"""The client in Python, in `User-Agent`. Only its `feature_extraction` sends no `parameters`. Other clients,
and releases before 1, omit them if they are empty."""
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
    hint = ""
    if task is None:
        served = find_model(models, name, None)
        task = _task_of_model(served)
        hint = _choice_of(served.name, task, is_named=name is not None)
    else:
        served = find_model(models, name, CALLS[task].task)
    kind = CALLS[task]
    try:
        _check_options(kind, value, f"{task}, the task of this request to the model {short(served.name)}")
        call = parse_request(kind, value)
    except ApiError as error:
        raise with_hint(error, hint) from None
    return call.to(served.name, hint=hint)


def _choice_of(name: str, task: str, *, is_named: bool) -> str:
    """Return a sentence on why this model and this task were chosen, and how to choose others."""
    if is_named:
        return (
            f"The path names no task, so {task} was chosen, the task of the model {short(name)}. To choose "
            f"another, use the path /models/{name:.80}/pipeline/TASK."
        )
    return (
        f"The path names no model and no task, so the model {short(name)} was chosen, with the task {task}. "
        "To choose another, use the path /models/NAME, /pipeline/TASK or /models/NAME/pipeline/TASK."
    )


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
    texts = inputs if isinstance(inputs, list) else [inputs]
    if value.keys() == {"inputs"} and _CLIENT.search(agent) and all(isinstance(text, str) for text in texts):
        return "feature-extraction"
    options = value.keys() - {"inputs", "parameters"}
    return "feature-extraction" if options & FeatureExtractionCall.model_fields.keys() else None


def _task_of_options(value: dict[str, Any]) -> str | None:
    """Return the task that has all options of a body, if there is only one."""
    given = _parameters(value)
    able = [task for task, kind in CALLS.items() if given and given <= kind.option_names()]
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


def _check_options(kind: type[Call], value: dict[str, Any], task: str) -> None:
    """Raise ApiError for an option that the task does not have."""
    nested = "parameters" in kind.model_fields
    allowed = kind.option_names()
    if not nested and "parameters" in value:
        message = (
            f"parameters is not an option of {task}. Put its options next to inputs, as in "
            f'{{"inputs": ..., "normalize": true}}. Its options are {", ".join(sorted(allowed))}.'
        )
        raise ApiError(422, "invalid", message, param="parameters")
    given = value.get("parameters") if nested else value.keys() - {"inputs"}
    if isinstance(given, dict | set) and (unknown := sorted(set(given) - allowed)):
        name = written(("parameters", unknown[0]) if nested else (unknown[0],))
        message = f"{name} is not an option of {task}. Its options are {', '.join(sorted(allowed))}."
        raise ApiError(422, "invalid", message, param=name)
