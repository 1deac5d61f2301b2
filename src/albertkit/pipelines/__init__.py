"""Pipelines: pass texts and get answers in the formats of `transformers`.

    fill = pipeline("fill-mask")                     # the bundled model
    fill("The captain opened the [MASK].", top_k=3)  # [{score, token, token_str, sequence}, ...]

Texts of similar length share a batch. The answers keep the order of the texts and do not depend on the batch.
"""

from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from albertkit.checkpoints.formats import load_config
from albertkit.config import AlbertConfig, is_misspelled, one_of
from albertkit.devices import Device, read_device
from albertkit.engines.choosing import engine_device, load_complete_model
from albertkit.engines.light_model import Model, class_name, class_names
from albertkit.errors import ConfigError, did_you_mean, short
from albertkit.heads import HEADS
from albertkit.hub import BUNDLED
from albertkit.pipelines.core import Pipeline, check_options, find_definition, name_with_package
from albertkit.pipelines.tasks import ALIASES, DEFINITIONS, Definition
from albertkit.tasks.registry import TASKS, needs_class, user_task_of
from albertkit.tasks.task import Task
from albertkit.tokenization.base import TokenizerBase
from albertkit.vocabularies import load_tokenizer

__all__ = ["Pipeline", "pipeline"]

_SHARED = ("device", "batch_size", "batch_tokens", "num_workers", "engine")


def pipeline(
    task: str | Task | type[Task] | None = None,
    model: str | Path | Model | None = None,
    tokenizer: str | Path | TokenizerBase | None = None,
    *,
    config: AlbertConfig | str | Path | None = None,
    device: Device = None,
    device_map: Any = None,
    dtype: Any = None,
    torch_dtype: Any = None,
    use_fast: bool | None = None,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
    trust_remote_code: bool | None = None,
    model_kwargs: Mapping[str, Any] | None = None,
    pipeline_class: type[Pipeline] | None = None,
    **defaults: Any,
) -> Pipeline:
    """Create the pipeline for a task.

    Args:
        task: name of the task, or a task of your own. For any pretrained model: "fill-mask",
            "feature-extraction" or "sentence-order". For a fine-tuned model: "text-classification"
            ("sentiment-analysis"), "token-classification" ("ner"), "question-answering", "multiple-choice" or
            "zero-shot-classification". None for the task of the model's class.
        model: a folder, a checkpoint of another library (`docs/how-to/convert.md`), a hub name, or a loaded
            model; None for the bundled model, which is not fine-tuned.
        tokenizer: a folder, a hub name, or a tokenizer; None for the tokenizer in the model's folder or file.
            Required for a model that is already loaded.
        config: a config that replaces the checkpoint's config.
        device: "cpu", "cuda:1", "mps" and so on; or the number of a GPU, or -1 for the CPU. On a machine
            without GPUs, the function warns about a GPU number and uses the CPU. None for the best single
            device (CUDA, then MPS, then CPU); a model that is already loaded then stays on its device.
        device_map: another name of `device`; pass only one of them.
        dtype: data type of the weights, float32 by default. The engines `torch` and `plain` compute in this
            type; `onnx` and `onnx-int8` always compute in float32.
        torch_dtype: older name of `dtype`.
        use_fast: which of the two tokenizer classes to use; both return the same ids.
        revision: branch, tag or commit on the hub.
        cache_dir: folder for downloads, instead of the hub's own cache.
        token: hub token; True for the saved token, False for none, None for the saved token if there is one.
        local_files_only: whether to use only files that are already downloaded.
        trust_remote_code: has no effect: code of a checkpoint never runs.
        model_kwargs: further arguments for the model's `from_pretrained`, such as `attn_implementation`, or
            `{"disable_mmap": True}` to copy the weights into memory instead of mapping their file. It can
            also contain the arguments from `device_map` to `local_files_only` above.
        pipeline_class: your own class, derived from `Pipeline`.
        defaults: `batch_size` (maximum number of rows in a batch), `batch_tokens` (maximum number of tokens
            in a batch), `engine`, and default options of every call, such as `top_k=3`; see
            `albertkit.options`.

    Returns:
        The pipeline. Call it with inputs.

    Raises:
        ModelNotFoundError: there is no model of this name or in this folder.
        CheckpointError: the weights are damaged, or lack the head that the task needs.
        ConfigError: the task or device is unknown, or the model does not fit the task.
        TokenizerError: the tokenizer is damaged, or is not an ALBERT tokenizer.
    """
    del trust_remote_code
    if isinstance(tokenizer, AlbertConfig):  # the third argument of `transformers`
        raise ConfigError("the third argument is the tokenizer, but received a config. Pass config=...")
    if not isinstance(model, str | Path | None) and not class_names(model):
        raise ConfigError(
            f"Expected a folder, a hub name or a loaded model of albertkit, got {name_with_package(model)}."
        )
    if not isinstance(model_kwargs, Mapping | None):
        raise ConfigError(f"model_kwargs is {short(model_kwargs)}. Expected a dict.")
    model_kwargs = dict(model_kwargs or {})
    hub_options = {
        "device_map": device_map,
        "dtype": dtype,
        "torch_dtype": torch_dtype,
        "revision": revision,
        "cache_dir": cache_dir,
        "token": token,
        "local_files_only": local_files_only,
    }
    for name in hub_options.keys() & model_kwargs.keys():
        if hub_options[name]:
            raise ConfigError(f"{name} is passed twice, directly and in model_kwargs. Pass it once.")
        hub_options[name] = model_kwargs.pop(name)
    device_map, dtype, torch_dtype = map(hub_options.pop, ("device_map", "dtype", "torch_dtype"))
    if device is not None and device_map is not None:
        raise ConfigError("device and device_map are the same argument. Pass only device.")
    definition = _choose_definition(task, model, config, hub_options)
    device = one_of(device=device, device_map=device_map)
    if isinstance(model, str | Path | None):
        device = engine_device(defaults.get("engine"), device)
    place = read_device(device)
    dtype = one_of(dtype=dtype, torch_dtype=torch_dtype)
    if pipeline_class is None:  # before a model is downloaded
        ours = [
            one for one in signature(pipeline).parameters if any(is_misspelled(x, [one]) for x in defaults)
        ]
        check_options(definition, defaults, [*_SHARED, *ours])
    if isinstance(model, str | Path | None):
        model = BUNDLED if model is None else model
        tokenizer = model if tokenizer is None else tokenizer
        model = load_complete_model(
            model,
            definition.architectures[0],
            task=definition.name,
            device=place,
            config=config,
            dtype=dtype,
            model_kwargs=model_kwargs,
            **hub_options,
        )
    else:
        if tokenizer is None:
            raise ConfigError("a loaded model does not include its tokenizer. Pass tokenizer=...")
        if config is not None or dtype is not None or model_kwargs:
            raise ConfigError(
                "config, dtype and model_kwargs are for loading a model, but this model is already loaded. "
                "Omit them."
            )
        defaults["device"] = place
    if isinstance(tokenizer, str | Path):
        tokenizer = load_tokenizer(tokenizer, use_fast=use_fast, **hub_options)
    chosen = definition.name if definition.name in DEFINITIONS else task
    return (pipeline_class or Pipeline)(model, tokenizer, chosen, **defaults)


def _choose_definition(
    task: str | Task | type[Task] | None,
    model: str | Path | Model | None,
    config: AlbertConfig | str | Path | None,
    hub_options: dict[str, Any],
) -> Definition:
    """Return the definition of a task; None means the task of the model's class."""
    if isinstance(task, Task | type):
        return find_definition(task)
    name = ALIASES.get(task, task) if task is not None else ""
    if name in DEFINITIONS and (model is None or name not in TASKS):
        return DEFINITIONS[name]
    known = f"one of {', '.join([*DEFINITIONS, *ALIASES])}"
    classes: list[str] = []
    loaded = None
    try:
        if not isinstance(model, str | Path | None):
            loaded, classes = model.config, [class_name(model)]
        elif model is not None:
            loaded = load_config(config or model, **hub_options)
            classes = loaded.architectures or []
    except OSError:
        if name in DEFINITIONS or task is None:
            raise  # otherwise, the name of the task is the first problem
    if (own := user_task_of(loaded)) is not None:
        raise needs_class(str(model) if isinstance(model, str | Path) else "the model", own)
    if name in DEFINITIONS:
        return DEFINITIONS[name]
    if task is not None:
        meant = did_you_mean(str(task), [*DEFINITIONS, *ALIASES])
        raise ConfigError(f"there is no pipeline for the task {task!r}{meant}. Expected {known}.")
    head = next((one for one in classes if one in HEADS), None)
    if head is None or HEADS[head].task not in DEFINITIONS:
        of_head = f", because it is for {HEADS[head].task}" if head else ""
        raise ConfigError(
            f"the task is None, and {head or 'the class'}, the class of the model, has no pipeline{of_head}. "
            f"Expected a task, {known}, or a `Task` of your own."
        )
    return DEFINITIONS[HEADS[head].task]


# --- the names of the classes in `transformers`


class FeatureExtractionPipeline(Pipeline):
    """`Pipeline` for `feature-extraction`, unless another task is passed."""

    default_task = "feature-extraction"


class FillMaskPipeline(Pipeline):
    """`Pipeline` for `fill-mask`, unless another task is passed."""

    default_task = "fill-mask"


class QuestionAnsweringPipeline(Pipeline):
    """`Pipeline` for `question-answering`, unless another task is passed."""

    default_task = "question-answering"


class TextClassificationPipeline(Pipeline):
    """`Pipeline` for `text-classification`, unless another task is passed."""

    default_task = "text-classification"


class TokenClassificationPipeline(Pipeline):
    """`Pipeline` for `token-classification`, unless another task is passed."""

    default_task = "token-classification"


class ZeroShotClassificationPipeline(Pipeline):
    """`Pipeline` for `zero-shot-classification`, unless another task is passed."""

    default_task = "zero-shot-classification"
