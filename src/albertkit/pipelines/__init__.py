"""Pipelines: pass texts and get answers in the formats of `transformers`.

    fill = pipeline("fill-mask")                     # the bundled model
    fill("The captain opened the [MASK].", top_k=3)  # [{score, token, token_str, sequence}, ...]

For one text, a pipeline returns one answer, and for a list of texts, a list of answers. For any other
iterable or a file (a `Path`), it returns a generator, which reads a few batches ahead. Texts of similar
length share a batch. The answers keep the order of the texts and do not depend on the batch.

This file creates pipelines. Each pipeline class has its own file.
"""

from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any, Literal, overload

from albertkit.checkpoints.formats import load_config
from albertkit.config import AlbertConfig, is_misspelled, one_of
from albertkit.devices import Device, read_device
from albertkit.engines.choosing import engine_device, load_complete_model
from albertkit.engines.light_model import Model, class_name, class_names
from albertkit.errors import ConfigError, did_you_mean
from albertkit.heads import HEADS
from albertkit.hub import BUNDLED
from albertkit.pipelines.feature_extraction import FeatureExtractionPipeline
from albertkit.pipelines.interface import SHARED, Pipeline, name_with_package
from albertkit.pipelines.limits import check_dict
from albertkit.pipelines.masked_lm import FillMaskPipeline
from albertkit.pipelines.multiple_choice import MultipleChoicePipeline
from albertkit.pipelines.own_task import TaskPipeline
from albertkit.pipelines.question_answering import QuestionAnsweringPipeline
from albertkit.pipelines.sentence_order import SentenceOrderPipeline
from albertkit.pipelines.text_classification import TextClassificationPipeline
from albertkit.pipelines.token_classification import TokenClassificationPipeline
from albertkit.pipelines.zero_shot_classification import ZeroShotClassificationPipeline
from albertkit.tasks.registry import TASKS, needs_class, task_of, user_task_of
from albertkit.tasks.task import Task
from albertkit.tokenization.base import TokenizerBase
from albertkit.vocabularies import load_tokenizer

__all__ = [
    "FeatureExtractionPipeline",
    "FillMaskPipeline",
    "MultipleChoicePipeline",
    "Pipeline",
    "QuestionAnsweringPipeline",
    "SentenceOrderPipeline",
    "TextClassificationPipeline",
    "TokenClassificationPipeline",
    "ZeroShotClassificationPipeline",
    "pipeline",
]

_CLASSES: tuple[type[Pipeline], ...] = (
    FillMaskPipeline,
    FeatureExtractionPipeline,
    TextClassificationPipeline,
    TokenClassificationPipeline,
    QuestionAnsweringPipeline,
    MultipleChoicePipeline,
    SentenceOrderPipeline,
    ZeroShotClassificationPipeline,
)
_PIPELINES: dict[str, type[Pipeline]] = {name: one for one in _CLASSES for name in (one.task, *one.aliases)}


@overload
def pipeline(task: Literal["fill-mask"], model: Any = None, **options: Any) -> FillMaskPipeline: ...
@overload
def pipeline(
    task: Literal["feature-extraction"], model: Any = None, **options: Any
) -> FeatureExtractionPipeline: ...
@overload
def pipeline(
    task: Literal["text-classification", "sentiment-analysis"], model: Any = None, **options: Any
) -> TextClassificationPipeline: ...
@overload
def pipeline(
    task: Literal["token-classification", "ner"], model: Any = None, **options: Any
) -> TokenClassificationPipeline: ...
@overload
def pipeline(
    task: Literal["question-answering"], model: Any = None, **options: Any
) -> QuestionAnsweringPipeline: ...
@overload
def pipeline(
    task: Literal["multiple-choice"], model: Any = None, **options: Any
) -> MultipleChoicePipeline: ...
@overload
def pipeline(task: Literal["sentence-order"], model: Any = None, **options: Any) -> SentenceOrderPipeline: ...
@overload
def pipeline(
    task: Literal["zero-shot-classification"], model: Any = None, **options: Any
) -> ZeroShotClassificationPipeline: ...
@overload
def pipeline(task: Task | type[Task], model: Any = None, **options: Any) -> TaskPipeline: ...
@overload
def pipeline(task: str | None = None, model: Any = None, **options: Any) -> Pipeline: ...
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
        pipeline_class: your own class, derived from one of the pipeline classes.
        defaults: `batch_size` (maximum number of rows in a batch), `batch_tokens` (maximum number of tokens
            in a batch), `engine`, and default arguments of every call, such as `top_k=3`.

    Returns:
        The pipeline. Call it with inputs.

    Raises:
        ModelNotFoundError: there is no model of this name or in this folder.
        CheckpointError: the weights are damaged, or lack the head that the task needs.
        ConfigError: the task or device is unknown, or the model does not fit the task.
        TokenizerError: the tokenizer is damaged, or is not an ALBERT tokenizer.
    """
    del trust_remote_code
    is_unknown = isinstance(task, str) and task not in _PIPELINES
    if is_unknown and isinstance(model, str) and model in _PIPELINES and not Path(model).exists():
        raise ConfigError(f"the arguments are swapped. The task comes first: pipeline({model!r}, {task!r})")
    if isinstance(tokenizer, AlbertConfig):  # the third argument of `transformers`
        raise ConfigError("the third argument is the tokenizer, but received a config. Pass config=...")
    if not isinstance(model, str | Path | None) and not class_names(model):
        raise ConfigError(
            f"Expected a folder, a hub name or a loaded model of albertkit, got {name_with_package(model)}."
        )
    given_class: Any = pipeline_class
    if given_class is not None and not (isinstance(given_class, type) and issubclass(given_class, Pipeline)):
        raise ConfigError(f"pipeline_class is {pipeline_class!r}. Expected a class derived from a pipeline.")
    hub_options, model_kwargs = _take(
        check_dict("model_kwargs", model_kwargs, expected="arguments of the model's from_pretrained"),
        device_map=device_map,
        dtype=dtype,
        torch_dtype=torch_dtype,
        revision=revision,
        cache_dir=cache_dir,
        token=token,
        local_files_only=local_files_only,
    )
    device_map, dtype, torch_dtype = map(hub_options.pop, ("device_map", "dtype", "torch_dtype"))
    if device is not None and device_map is not None:
        raise ConfigError("device and device_map are the same argument. Pass only device.")
    chosen = pipeline_class or _choose_class(task, model, config, hub_options)
    device = one_of(device=device, device_map=device_map)
    if isinstance(model, str | Path | None):
        device = engine_device(defaults.get("engine"), device)
    place = read_device(device)
    dtype = one_of(dtype=dtype, torch_dtype=torch_dtype)
    if pipeline_class is None:  # before a model is downloaded
        names = signature(pipeline).parameters
        ours = [one for one in names if any(is_misspelled(name, [one]) for name in defaults)]
        chosen.check_options(defaults, [*SHARED, *ours], without=chosen.without_defaults)
    if isinstance(model, str | Path | None):
        model = BUNDLED if model is None else model
        tokenizer = model if tokenizer is None else tokenizer
        model = load_complete_model(
            model,
            chosen.architecture,
            task=chosen.task,
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
    return chosen(model, tokenizer, **defaults)


def _take(given: Mapping[str, Any], **direct: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments, which may be in `model_kwargs`, and the other entries of `model_kwargs`."""
    rest = dict(given)
    for name in direct.keys() & rest.keys():
        if direct[name]:
            raise ConfigError(f"{name} is passed twice, directly and in model_kwargs. Pass it once.")
        direct[name] = rest.pop(name)
    return direct, rest


def _choose_class(
    task: str | Task | type[Task] | None,
    model: str | Path | Model | None,
    config: AlbertConfig | str | Path | None,
    hub_options: dict[str, Any],
) -> type[Pipeline]:
    """Return the pipeline class of a task; None means the task of the model's class."""
    if isinstance(task, Task | type):
        return TaskPipeline.of(task_of(task))
    chosen = _PIPELINES.get(task) if isinstance(task, str) else None
    if chosen is not None and (model is None or chosen.task not in TASKS):
        return chosen
    known = f"one of {', '.join(_PIPELINES)}"
    names: list[str] = []
    try:
        if not isinstance(model, str | Path | None):
            loaded, names = model.config, [class_name(model)]
        elif model is not None:
            loaded = load_config(config or model, **hub_options)
            names = loaded.architectures or []
        else:
            loaded = None
    except OSError:
        if chosen is not None or task is None:
            raise
        loaded = None  # there is no such model, but the name of the task is the first problem
    if (own := user_task_of(loaded)) is not None:
        raise needs_class(str(model) if isinstance(model, str | Path) else "the model", own)
    if chosen is not None:
        return chosen
    if task is not None:
        raise ConfigError(
            f"there is no pipeline for the task {task!r}{did_you_mean(str(task), _PIPELINES)}. "
            f"Expected {known}."
        )
    if model is None:
        raise ConfigError(f"the task is None and so is the model. Expected a task, {known}.")
    name = next((name for name in names if name in HEADS), None)
    if name is None:
        raise ConfigError(
            f"the task is None, and the class {', '.join(names) or 'unknown'} of the model does not imply "
            f"it. Expected a task, {known}."
        )
    if HEADS[name].task not in _PIPELINES:
        raise ConfigError(
            f"the task is None, and {name}, the class of the model, has no pipeline, because it is for "
            f"{HEADS[name].task}. Expected a task, {known}, or a `Task` of your own."
        )
    return _PIPELINES[HEADS[name].task]
