"""How the vector of a text is made, and the files in which sentence-transformers keeps it.

    modules.json                        the modules in order: Transformer, Pooling, Dense, Normalize
    sentence_bert_config.json           maximum length and lower case, beside the transformer
    config_sentence_transformers.json   prompts
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
from albertkit.errors import ConfigError
from albertkit.files import json_text
from albertkit.hub import MODULES_FILE

TASK = "sentence-embedding"
POOLING_KEY, NORMALIZE_KEY = "sentence_pooling", "sentence_normalize"
"""Where the config of a model for sentence embedding says how a vector is made."""

Pooling = Literal["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
"""How the vectors of a text's tokens, [CLS] and [SEP] included, become one."""
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
    """Scale the vector to length 1."""


Step = Dense | Normalize


@dataclass(frozen=True)
class SentenceModules:
    """How the vector of a text is made: what is done to the text, the pooling, what follows it."""

    pooling: tuple[Pooling, ...] = ("mean",)
    """Several poolings are concatenated."""
    steps: tuple[Step, ...] = ()
    """What follows the pooling, but for a last `Normalize`."""
    normalize: bool = False
    """Whether the vector is of length 1 at the end."""
    include_prompt: bool = True
    """Whether the tokens of the prompt are pooled."""
    max_length: int | None = None
    """Maximum number of tokens of a text; None for the model's."""
    lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Texts that are put before a text, by name."""
    default_prompt_name: str | None = None
    similarity: str | None = None
    """The name of the similarity that the vectors are made for; kept, and not used."""

    def size(self, hidden_size: int) -> int:
        """Return the number of dimensions of a vector."""
        sizes = [len(step.weight) for step in self.steps if isinstance(step, Dense)]
        return sizes[-1] if sizes else len(self.pooling) * hidden_size

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
    """Return how a model makes the vector of a text; None for a model that is not for sentence embedding.

    Raises:
        ConfigError: the config names an unknown pooling.
    """
    extra = config.extra
    if POOLING_KEY not in extra or extra.get(TASK_KEY, TASK) != TASK:
        return None
    settings, pooling = extra.get(SETTINGS_KEY), check_pooling(extra[POOLING_KEY])
    read = config.sentence_modules or SentenceModules()
    return replace(
        read,
        pooling=pooling,
        steps=read.steps if pooling == read.pooling else (),  # fine-tuned since then, without them
        normalize=bool(extra.get(NORMALIZE_KEY, False)),
        max_length=settings.get("max_length") if isinstance(settings, dict) else None,
    )


def attach(config: AlbertConfig, modules: SentenceModules) -> None:
    """Let a config say how its model makes the vector of a text."""
    config.sentence_modules = modules
    config.extra |= modules.entries()


# --- files -------------------------------------------------------------------------------------


def files_of(config: AlbertConfig) -> dict[str, bytes]:
    """Return the files that make sentence-transformers open a model's folder, by their paths in it.

    A model that is not for sentence embedding has none. Every version of sentence-transformers reads them.
    """
    modules = sentence_modules(config)
    return {} if modules is None else _files(modules, config.hidden_size)


def _files(modules: SentenceModules, hidden_size: int) -> dict[str, bytes]:
    listed = [("Transformer", "")]
    written: dict[str, bytes] = {}

    def add(kind: str, config: Mapping[str, Any]) -> str:
        path = f"{len(listed)}_{kind}"
        listed.append((kind, path))
        written[f"{path}/config.json"] = _bytes(config)
        return path

    add("Pooling", _pooling_config(modules, hidden_size))
    for step in (*modules.steps, *([Normalize()] if modules.normalize else [])):
        if isinstance(step, Normalize):
            add("Normalize", {})
            continue
        names = {name: torch_name for torch_name, name in ACTIVATIONS.items()}
        config = {
            "in_features": step.weight.shape[1],
            "out_features": step.weight.shape[0],
            "bias": step.bias is not None,
            "activation_function": names[step.activation],
        }
        path = add("Dense", config | ({"use_residual": True} if step.is_residual else {}))
        tensors = {
            "linear.weight": step.weight,
            "linear.bias": step.bias,
            "residual.weight": step.residual,
        }
        stored = {name: np.ascontiguousarray(one) for name, one in tensors.items() if one is not None}
        written[f"{path}/model.safetensors"] = save(stored, metadata={"format": "pt"})
    settings = {} if modules.max_length is None else {"max_seq_length": modules.max_length}
    written[SETTINGS_FILE] = _bytes(settings | {"do_lower_case": modules.lower_case})
    written[MODEL_FILE] = _bytes(
        {
            "model_type": "SentenceTransformer",
            "prompts": dict(modules.prompts),
            "default_prompt_name": modules.default_prompt_name,
            "similarity_fn_name": modules.similarity,
        }
    )
    written[MODULES_FILE] = _bytes(
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
    else:  # the older flags have one order
        config["pooling_mode"] = list(modules.pooling)
    return config | {"include_prompt": modules.include_prompt}


def _bytes(value: Any) -> bytes:
    return (json_text(value, indent=2, ensure_ascii=False) + "\n").encode()
