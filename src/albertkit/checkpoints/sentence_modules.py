"""The modules that compute the vector of a text, and the files in which sentence-transformers saves them.

    modules.json                        the modules in order: Transformer, Pooling, Dense, Normalize
    sentence_bert_config.json           maximum length and lower case, beside the transformer
    config_sentence_transformers.json   prompts, number of dimensions
    1_Pooling/config.json
    2_Dense/config.json, model.safetensors

The transformer's own files are in the folder itself or, in older folders, in a sub-folder (`hub.resolve`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

import numpy as np
from safetensors.numpy import save

from albertkit.config import AlbertConfig
from albertkit.config_fields import SETTINGS_KEY, TASK_KEY
from albertkit.errors import CheckpointError, ConfigError
from albertkit.files import json_bytes
from albertkit.hub import MODULES_FILE

TASK = "sentence-embedding"
POOLING_KEY, NORMALIZE_KEY = "sentence_pooling", "sentence_normalize"
"""The config keys of a model for sentence embedding: its pooling, and whether it normalizes vectors."""

Pooling = Literal["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
"""How the vectors of a text's tokens, including [CLS] and [SEP], are combined into one vector."""
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)

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
FILES = (
    MODULES_FILE,
    MODEL_FILE,
    "sentence_*_config.json",
    "[0-9]*_*/config.json",
    "[0-9]*_Dense/model.safetensors",
)
"""The files of these folders as patterns, for downloads."""
POOLING_FLAGS: dict[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Older names of poolings, in the order in which sentence-transformers concatenates several."""


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

    pooling: tuple[Pooling, ...] = ("mean",)
    """Several poolings are concatenated."""
    steps: tuple[Step, ...] = ()
    """The steps after the pooling, without a final `Normalize`."""
    normalize: bool = False
    """Whether the last step scales the vector to length 1."""
    include_prompt: bool = True
    """Whether the tokens of the prompt are pooled."""
    max_length: int | None = None
    """Maximum number of tokens of a text; None means the model's maximum."""
    lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Texts that are put before an input, by name."""
    default_prompt_name: str | None = None
    dimensions: int | None = None
    """Number of dimensions that are kept of a vector, from the first, after all steps; None for all."""
    similarity: str | None = None
    """Name of the model's similarity function. albertkit saves it, but does not use it."""

    def size(self, hidden_size: int) -> int:
        """Return the number of dimensions of a vector.

        Raises:
            CheckpointError: A Dense module expects vectors of another size.
        """
        size = len(self.pooling) * hidden_size
        for step in self.steps:
            if isinstance(step, Dense):
                outputs, inputs = step.weight.shape
                if inputs != size:
                    raise CheckpointError(
                        f"a Dense module expects vectors of size {inputs}, but the modules before it return "
                        f"size {size}. Copy the folder of the model again."
                    )
                size = outputs
        return size if self.dimensions is None else min(size, self.dimensions)

    def entries(self) -> dict[str, Any]:
        """Return the entries of the config that tasks and pipelines read."""
        length = {} if self.max_length is None else {SETTINGS_KEY: {"max_length": self.max_length}}
        return length | {
            TASK_KEY: TASK,
            POOLING_KEY: self.pooling[0] if len(self.pooling) == 1 else list(self.pooling),
            NORMALIZE_KEY: self.normalize,
        }


def check_pooling(pooling: Any) -> tuple[Pooling, ...]:
    """Return the pooling, or several, as a tuple; raise ConfigError for an unknown one."""
    names = (pooling,) if isinstance(pooling, str) else pooling
    if not isinstance(names, list | tuple) or not names or any(name not in POOLINGS for name in names):
        raise ConfigError(f"pooling is {pooling!r}. Expected one of {', '.join(POOLINGS)}.")
    return cast(tuple[Pooling, ...], tuple(names))


def sentence_modules(config: AlbertConfig) -> SentenceModules | None:
    """Return the modules of a model for sentence embedding, or None for other models.

    Raises:
        ConfigError: The config contains an unknown pooling.
    """
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
    """Add the modules of a model to its config; raise CheckpointError if their sizes do not match."""
    modules.size(config.hidden_size)
    config.sentence_modules = modules
    config.extra |= modules.entries()


# --- files -------------------------------------------------------------------------------------


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

    add("Pooling", _pooling_config(modules, config.hidden_size))
    for step in (*modules.steps, *([Normalize()] if modules.normalize else [])):
        if isinstance(step, Normalize):
            add("Normalize", {})
        else:
            path = add("Dense", _dense_config(step))
            written[f"{path}/model.safetensors"] = _dense_weights(step)
    length = {} if modules.max_length is None else {"max_seq_length": modules.max_length}
    written[SETTINGS_FILE] = json_bytes(length | {"do_lower_case": modules.lower_case})
    written[MODEL_FILE] = json_bytes(
        {
            "model_type": "SentenceTransformer",
            "prompts": dict(modules.prompts),
            "default_prompt_name": modules.default_prompt_name,
            "similarity_fn_name": modules.similarity,
            **({} if modules.dimensions is None else {"truncate_dim": modules.dimensions}),
        }
    )
    written[MODULES_FILE] = json_bytes(
        [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for number, (kind, path) in enumerate(listed)
        ]
    )
    return written


def _pooling_config(modules: SentenceModules, hidden_size: int) -> dict[str, Any]:
    config: dict[str, Any] = {"word_embedding_dimension": hidden_size}
    if tuple(name for name in POOLING_FLAGS.values() if name in modules.pooling) == modules.pooling:
        config |= {flag: name in modules.pooling for flag, name in POOLING_FLAGS.items()}
    else:  # the older flags have a fixed order
        config["pooling_mode"] = list(modules.pooling)
    return config | {"include_prompt": modules.include_prompt}


def _dense_config(step: Dense) -> dict[str, Any]:
    names = {name: torch_name for torch_name, name in ACTIVATIONS.items()}
    outputs, inputs = step.weight.shape
    config = {
        "in_features": inputs,
        "out_features": outputs,
        "bias": step.bias is not None,
        "activation_function": names[step.activation],
    }
    return config | ({"use_residual": True} if step.is_residual else {})


def _dense_weights(step: Dense) -> bytes:
    tensors = {"linear.weight": step.weight, "linear.bias": step.bias, "residual.weight": step.residual}
    stored = {name: np.ascontiguousarray(one) for name, one in tensors.items() if one is not None}
    return save(stored, metadata={"format": "pt"})
