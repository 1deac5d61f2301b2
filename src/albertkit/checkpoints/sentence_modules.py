"""The modules that compute the vector of a text, and the files in which sentence-transformers saves them.

    modules.json                        the modules in order: Transformer, Pooling, Dense, Normalize
    sentence_bert_config.json           maximum length and lower case, beside the transformer
    config_sentence_transformers.json   prompts, number of dimensions
    1_Pooling/config.json
    2_Dense/config.json, model.safetensors

The transformer's own files are in the folder itself or, in older folders, in a sub-folder (`hub.resolve`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from safetensors.numpy import save

from albertkit.checkpoints.folder import read_folder
from albertkit.config import CONFIG_FILE, SETTINGS_KEY, TASK_KEY, AlbertConfig
from albertkit.errors import CheckpointError, ConfigError, reading
from albertkit.files import json_bytes, read_json
from albertkit.hub import MODULES_FILE, read_modules

TASK = "sentence-embedding"
POOLING_KEY, NORMALIZE_KEY = "sentence_pooling", "sentence_normalize"
"""The config keys of a model for sentence embedding: its pooling, and whether it normalizes vectors."""

Pooling = Literal["mean", "cls", "max"]
"""How the vectors of a text's tokens, including [CLS] and [SEP], are combined into one vector."""
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Older names of poolings, some of which are not supported."""

ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "identity",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.SiLU": "silu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
}
"""Activation functions of Dense modules: the class in the file, and its name here."""

SETTINGS_FILE, MODEL_FILE = "sentence_bert_config.json", "config_sentence_transformers.json"
_LONGEST = 1_000_000  # the settings of a tokenizer without a maximum length contain a far larger number
_VECTOR = "sentence_embedding"  # the input and output of the modules after the pooling


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """A layer on the vector of a text: activation(weight @ vector + bias), plus a residual connection."""

    weight: np.ndarray
    """(D, C), float32."""
    bias: np.ndarray | None
    """(D,)."""
    activation: str
    """A value of `ACTIVATIONS`."""
    is_residual: bool = False
    residual: np.ndarray | None = None
    """(D, C) of a residual connection between vectors of different sizes."""


@dataclass(frozen=True, slots=True)
class Normalize:
    """A step that scales the vector to length 1."""


Step = Dense | Normalize


@dataclass(frozen=True)
class SentenceModules:
    """The computation of a text's vector: the changes to the text, the pooling, and the steps after it."""

    pooling: Pooling = "mean"
    steps: tuple[Step, ...] = ()
    """The steps after the pooling, without a final `Normalize`."""
    normalize: bool = False
    """Whether the last step scales the vector to length 1."""
    max_length: int | None = None
    """Maximum number of tokens of a text; None means the model's maximum."""
    lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Texts that are put before an input, by name."""
    default_prompt_name: str | None = None
    dimensions: int | None = None
    """Number of dimensions that remain of a vector, from the first, after all steps; None for all."""
    similarity: str | None = None
    """Name of the model's similarity function. albertkit saves it, but does not use it."""

    def size(self, hidden_size: int) -> int:
        """Return the number of dimensions of a vector; raise CheckpointError if the steps do not match."""
        size = hidden_size
        for step in self.steps:
            if isinstance(step, Dense):
                outputs, inputs = step.weight.shape
                if inputs != size:
                    raise CheckpointError(f"a Dense module expects size {inputs}, but gets size {size}")
                size = outputs
        return size if self.dimensions is None else min(size, self.dimensions)


def check_pooling(pooling: Any) -> Pooling:
    if pooling not in POOLINGS:
        raise ConfigError(f"pooling is {pooling!r}. Expected one of {', '.join(POOLINGS)}.")
    return pooling


def sentence_modules(config: AlbertConfig) -> SentenceModules | None:
    """Return the modules of a model for sentence embedding, or None for other models."""
    extra = config.extra
    if POOLING_KEY not in extra or extra.get(TASK_KEY, TASK) != TASK:
        return None
    settings, pooling = extra.get(SETTINGS_KEY), check_pooling(extra[POOLING_KEY])
    modules = config.sentence_modules or SentenceModules()
    return replace(
        modules,
        pooling=pooling,
        # If the pooling has changed, the model was fine-tuned without the steps.
        steps=modules.steps if pooling == modules.pooling else (),
        normalize=bool(extra.get(NORMALIZE_KEY, False)),
        max_length=settings.get("max_length") if isinstance(settings, dict) else None,
    )


def attach(config: AlbertConfig, modules: SentenceModules) -> None:
    """Add the modules of a model to its config, with the entries that tasks and pipelines read."""
    modules.size(config.hidden_size)
    config.sentence_modules = modules
    config.extra |= {TASK_KEY: TASK, POOLING_KEY: modules.pooling, NORMALIZE_KEY: modules.normalize}
    if modules.max_length is not None:
        config.extra[SETTINGS_KEY] = {"max_length": modules.max_length}


# --- reading ------------------------------------------------------------------------------------


def read_sentence_modules(folder: Path) -> SentenceModules | None:
    """Return the modules of the model in a folder, whose `modules.json` is there or in the folder above.

    The result is None if sentence-transformers did not write the folder, or if the model embeds no texts.
    """
    root = folder
    if not (root / MODULES_FILE).is_file():
        root = folder.parent
        listed = read_modules(root) if (root / MODULES_FILE).is_file() else []
        if [path for _, path in listed[:1]] != [folder.name] or (root / CONFIG_FILE).is_file():
            return None
    model = _json(root / MODEL_FILE)
    if model.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        return None  # for example a cross-encoder, whose head is in the weights
    with reading(root / MODULES_FILE, CheckpointError):
        first, second, *others = [*read_modules(root), ("", ""), ("", "")]
        _expect("the first module", first[0], ["Transformer"])
        _expect("the second module", second[0], ["Pooling"])
        steps = [_read_step(kind, root / path) for kind, path in others if kind not in ("", "Dropout")]
        normalizes = bool(steps) and isinstance(steps[-1], Normalize)
        files = [folder / SETTINGS_FILE, *sorted(folder.glob("sentence_*_config.json"))]
        settings = next((_json(file) for file in files if file.is_file()), {})
        task = settings.get("transformer_task", "feature-extraction")
        _expect("transformer_task", task, ["feature-extraction"])
        length: Any = settings.get("max_seq_length")
        if length is None:  # current versions save it in the tokenizer's file
            length = _json(folder / "tokenizer_config.json").get("model_max_length")
        has_limit = type(length) in (int, float) and 0 < length <= _LONGEST
        prompts, default = model.get("prompts") or {}, model.get("default_prompt_name")
        if not all(isinstance(prompt, str) for prompt in prompts.values()):
            raise ValueError(f"the prompts are {prompts}, not texts")
        _expect("default_prompt_name", default, [None, *prompts])
        dimensions = model.get("truncate_dim")
        if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
            raise ValueError(f"truncate_dim is {dimensions!r}. Expected a whole number of at least 1")
        return SentenceModules(
            pooling=_read_pooling(root / second[1], has_prompts=bool(prompts)),
            steps=tuple(steps[:-1] if normalizes else steps),
            normalize=normalizes,
            max_length=int(length) if has_limit else None,
            lower_case=bool(settings.get("do_lower_case", False)),
            prompts=prompts,
            default_prompt_name=default,
            dimensions=dimensions,
            similarity=model.get("similarity_fn_name"),
        )


def _read_pooling(folder: Path, *, has_prompts: bool) -> Pooling:
    config = read_json(folder / CONFIG_FILE, CheckpointError)
    flags = [name for flag, name in _POOLING_FLAGS.items() if config.get(flag)] or ["mean"]
    modes = config.get("pooling_mode", flags)
    mode: Any = modes[0] if isinstance(modes, list) and len(modes) == 1 else modes
    _expect("the pooling", mode, POOLINGS)
    if has_prompts:
        _expect("include_prompt", config.get("include_prompt", True), [True])
    return mode


def _read_step(kind: str, folder: Path) -> Step:
    _expect("a module after the pooling", kind, ["Dense", "Dropout", "Normalize"])
    config = _json(folder / CONFIG_FILE)
    for name in ("module_input_name", "module_output_name"):
        _expect(name, config.get(name) or _VECTOR, [_VECTOR])
    if kind == "Normalize":
        return Normalize()
    config, tensors = read_folder(folder)
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    _expect("activation_function", activation, ACTIVATIONS)
    is_residual = bool(config.get("use_residual", False))
    outputs, inputs = config.get("out_features"), config.get("in_features")
    expected = {"linear.weight": (outputs, inputs)}
    expected |= {"linear.bias": (outputs,)} if config.get("bias", True) else {}
    expected |= {"residual.weight": (outputs, inputs)} if is_residual and outputs != inputs else {}
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    if shapes != expected:
        raise CheckpointError(f"{folder}: the weights are {shapes}. config.json describes {expected}.")
    weights = {name: tensor.astype(np.float32) for name, tensor in tensors.items()}
    bias, residual = weights.get("linear.bias"), weights.get("residual.weight")
    return Dense(weights["linear.weight"], bias, ACTIVATIONS[activation], is_residual, residual)


def _json(file: Path) -> dict[str, Any]:
    return read_json(file, CheckpointError) if file.is_file() else {}


def _expect(name: str, value: Any, expected: Iterable[Any]) -> None:
    expected = list(expected)
    if value not in expected:
        raise CheckpointError(f"{name} is {value!r}. Supported: {', '.join(map(str, expected))}.")


# --- writing ------------------------------------------------------------------------------------


def files_of(config: AlbertConfig) -> dict[str, bytes]:
    """Return the files that sentence-transformers needs to open the folder of a model, by their paths in it.

    The result is empty if the model is not for sentence embedding. Every version of sentence-transformers
    reads the files.
    """
    modules = sentence_modules(config)
    if modules is None:
        return {}
    listed = [("Transformer", "")]
    written: dict[str, bytes] = {}

    def add(kind: str, config: Mapping[str, Any]) -> str:
        path = f"{len(listed)}_{kind}"
        listed.append((kind, path))
        written[f"{path}/config.json"] = json_bytes(config)
        return path

    flags = {flag: name == modules.pooling for flag, name in _POOLING_FLAGS.items()}
    add("Pooling", {"word_embedding_dimension": config.hidden_size, **flags, "include_prompt": True})
    for step in (*modules.steps, *([Normalize()] if modules.normalize else [])):
        if isinstance(step, Normalize):
            add("Normalize", {})
            continue
        outputs, inputs = step.weight.shape
        dense = {
            "in_features": inputs,
            "out_features": outputs,
            "bias": step.bias is not None,
            "activation_function": next(cls for cls, name in ACTIVATIONS.items() if name == step.activation),
        }
        path = add("Dense", dense | ({"use_residual": True} if step.is_residual else {}))
        tensors = {"linear.weight": step.weight, "linear.bias": step.bias, "residual.weight": step.residual}
        stored = {name: np.ascontiguousarray(array) for name, array in tensors.items() if array is not None}
        written[f"{path}/model.safetensors"] = save(stored, metadata={"format": "pt"})
    length = {} if modules.max_length is None else {"max_seq_length": modules.max_length}
    written[SETTINGS_FILE] = json_bytes(length | {"do_lower_case": modules.lower_case})
    model = {
        "model_type": "SentenceTransformer",
        "prompts": dict(modules.prompts),
        "default_prompt_name": modules.default_prompt_name,
        "similarity_fn_name": modules.similarity,
    }
    dimensions = {} if modules.dimensions is None else {"truncate_dim": modules.dimensions}
    written[MODEL_FILE] = json_bytes(model | dimensions)
    written[MODULES_FILE] = json_bytes(
        [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for number, (kind, path) in enumerate(listed)
        ]
    )
    return written
