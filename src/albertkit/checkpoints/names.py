"""The only table of tensors: their shapes, their names in Hugging Face's and our files, and in other formats.

Our name of a tensor is its path in the module tree, so a state dict needs no translation. The table gives the
encoder's names without a prefix. In a model with a head, the encoder has the prefix `albert.`, and the head
has none. Other formats are further columns of the same table. Julia's files use Google's names, and Keras
files use ours with slashes.
"""

import re
from collections.abc import Callable, Container
from functools import cache, lru_cache

from albertkit.config import AlbertConfig
from albertkit.errors import CheckpointError
from albertkit.heads import BASE_PREFIX, HEADS, TensorSpec, linear_pair, norm_pair

REQUIRED = ("embeddings", "encoder")
"""Parts that every checkpoint must have; the other parts are task heads that fine-tuning can initialize."""

_LAYER = "encoder.albert_layer_groups.{group}.albert_layers.{layer}."
_GOOGLE = "bert/encoder/transformer/group_{group}/inner_group_{layer}/"
_OLDER = "bert/encoder/layer_shared/"
_GARDEN = "transformer/"


def _in_layer(
    pair: Callable[..., list[TensorSpec]], ours: str, shape: str, google: str, older: str, garden: str
) -> list[TensorSpec]:
    return pair(_LAYER + ours, "encoder", shape, _GOOGLE + google, _OLDER + older, _GARDEN + garden)


TABLE: tuple[TensorSpec, ...] = (
    TensorSpec("embeddings.word_embeddings.weight", "embeddings", "V E", "bert/embeddings/word_embeddings",
        garden="word_embeddings/embeddings"),
    TensorSpec("embeddings.position_embeddings.weight", "embeddings", "P E",
        "bert/embeddings/position_embeddings", garden="position_embedding/embeddings"),
    TensorSpec("embeddings.token_type_embeddings.weight", "embeddings", "S E",
        "bert/embeddings/token_type_embeddings", garden="type_embeddings/embeddings"),
    *norm_pair("embeddings.LayerNorm", "embeddings", "E", "bert/embeddings/LayerNorm", None,
           "embeddings/layer_norm"),
    *linear_pair("encoder.embedding_hidden_mapping_in", "encoder", "H E",
             "bert/encoder/embedding_hidden_mapping_in", None, "embedding_projection"),
    *_in_layer(norm_pair, "full_layer_layer_norm", "H", "LayerNorm_1", "output/LayerNorm",
               "output_layer_norm"),
    *(spec
      for name in ("query", "key", "value")
      for spec in _in_layer(linear_pair, f"attention.{name}", "H H", f"attention_1/self/{name}",
                           f"attention/self/{name}", f"self_attention/{name}")),
    *_in_layer(linear_pair, "attention.dense", "H H", "attention_1/output/dense", "attention/output/dense",
               "self_attention/attention_output"),
    *_in_layer(norm_pair, "attention.LayerNorm", "H", "LayerNorm", "attention/output/LayerNorm",
               "self_attention_layer_norm"),
    *_in_layer(linear_pair, "ffn", "I H", "ffn_1/intermediate/dense", "intermediate/dense", "intermediate"),
    *_in_layer(linear_pair, "ffn_output", "H I", "ffn_1/intermediate/output/dense", "output/dense", "output"),
    *dict.fromkeys(spec for head in HEADS.values() for spec in head.tensors),
)  # fmt: skip
"""In the order of PyTorch's state dicts. The tensors of the heads are in `heads.py`."""

OLDER_FACTOR = "bert/embeddings/word_embeddings_2"
"""In the first Chinese checkpoints: the second factor of the word embeddings, E x H, without a bias."""

TIED = {
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}
"""Second name of a shared tensor -> the name it is stored under, in our files and in others."""

UNTIED = {"predictions.bias": "predictions.decoder.bias"}
"""The same for a model with untied word embeddings: `transformers` then reads only the decoder's own bias, so
that bias takes precedence if a file has both."""


def shared_names(config: AlbertConfig) -> dict[str, str]:
    return TIED if config.tie_word_embeddings else UNTIED


WRAPPERS = ("module.", "_orig_mod.")
"""Prefixes of models saved from inside torch's DataParallel or `torch.compile`."""

_KERAS_ENDINGS = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}

OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}
"""TensorFlow's names of LayerNorm tensors, which the first converters to PyTorch kept."""

NOT_WEIGHTS = {
    "embeddings.position_ids": "the positions 0, 1, 2, ...: a constant that older versions stored",
    "embeddings.token_type_ids": "the segment 0: a constant that older versions stored",
}
"""Buffers in older files without learned values, each with the reason for leaving it out."""

_LEFT_OUT = {
    re.compile(rf".*{OLDER_FACTOR}", re.DOTALL): "multiplied into the word embeddings",
    re.compile(
        r"(.+/)?(adam_[mv]|lamb_\w+|Adam(_\d+)?|AdamWeightDecay\w*|LAMB\w*)"
        r"|(.+/)?(beta[12]_power|global_step|save_counter)"
        # Keys of TensorFlow 2 (object_graph.py).
        r"|(.+/)?(optimizer|keras_api/metrics|save_counter)/.+|.+/\.OPTIMIZER_SLOT/.+"
    ): "state of an optimizer or of a run",
    re.compile(r".+/ExponentialMovingAverage"): "a moving average of weights that are in the file themselves",
}
"""Patterns of other tensor names that are left out, each with the reason."""


def _pattern(template: str) -> str:
    """Return a regular expression for a name of the table, with its `group` and `layer`."""
    text = re.escape(template)
    return re.sub(r"\\\{(group|layer)\\\}", lambda match: rf"(?P<{match[1]}>\d{{1,4}})", text)


_SPECS = {re.compile(_pattern(spec.ours)): spec for spec in TABLE}


@cache
def _google_specs() -> dict[re.Pattern[str], TensorSpec]:
    """Return patterns of Google's names; created at first use, because most files have none.

    A TensorFlow Hub module, or a model inside another, puts a scope before the names, and some have no
    "bert/". The heads of fine-tuned models have no scope, so their names must match from the beginning.
    """
    return {
        re.compile(
            (r"(?:[^/]+/)*?" if "/" in name else "") + _pattern(name).replace("bert/", "(?:bert/)?", 1)
        ): spec
        for spec in TABLE
        for name in (spec.google, spec.older, spec.garden)
        if name is not None
    }


def canonical(name: str) -> str:
    """Return a name from a file without wrappers and with current endings; `albert.` is kept if present.

    Google's and Keras' names are converted to ours; an encoder's name gets the prefix `albert.`.
    """
    while name.startswith(WRAPPERS):
        name = name.partition(".")[2]
    if is_keras(name):
        # Such as "tf_albert_model/albert/pooler/kernel:0": the first level is the name of the model's object.
        levels = name.removesuffix(":0").replace("_._", "/").split("/")  # items of a list: `list_._0`
        name = ".".join([*levels[1:-1], _KERAS_ENDINGS.get(levels[-1], levels[-1])])
    elif google := from_google(name):
        return google[0]
    for old, new in OLD_ENDINGS.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


@lru_cache(500)  # loading a model looks up each of its 40 or so names several times
def from_google(name: str) -> tuple[str, TensorSpec] | None:
    """Return our name (with prefix for the encoder) and the spec of Google's tensor name, or None."""
    if "/" not in name and not name.startswith("output_"):
        return None
    # The model garden once named the attention's output differently.
    name = name.replace("/self_attention_output/", "/self_attention/attention_output/")
    for pattern, spec in _google_specs().items():
        if match := pattern.fullmatch(name):
            # The older layout and the garden have one layer, and therefore no numbers.
            numbers = {"group": 0, "layer": 0} | match.groupdict()
            return prefix_of(spec) + spec.ours.format_map(numbers), spec
    return None


def to_google(name: str) -> str:
    bare = canonical(name).removeprefix(BASE_PREFIX)
    for pattern, spec in _SPECS.items():
        if (match := pattern.fullmatch(bare)) and spec.google is not None:
            return spec.google.format_map(match.groupdict())
    raise CheckpointError(f"The original code has no tensor like {name}. Choose the format 'hf'.")


def is_keras(name: str) -> bool:
    """Return whether a name is a Keras variable, as `transformers` stored them with TensorFlow."""
    return name.endswith(":0")


def is_turned(name: str) -> bool:
    """Return whether TensorFlow files store the matrix of that name as inputs x outputs."""
    if is_keras(name):
        return name.endswith("/kernel:0")
    known = from_google(name)
    return known is not None and known[1].transposed


@lru_cache(500)
def spec_of(name: str) -> TensorSpec | None:
    """Return the spec of a tensor by its name, with or without prefix, or None for an unknown name."""
    bare = canonical(name).removeprefix(BASE_PREFIX)
    return next((spec for pattern, spec in _SPECS.items() if pattern.fullmatch(bare)), None)


def in_model(name: str, expected: Container[str]) -> str | None:
    """Return the name in `expected` of a tensor with the name `name` in a file, or None.

    Covers an encoder's file in a model with a head, and the reverse.
    """
    name = canonical(name)
    forms = (name, BASE_PREFIX + name, name.removeprefix(BASE_PREFIX))
    return next((form for form in forms if form in expected), None)


def why_no_weight(name: str) -> str | None:
    """Return the reason why a tensor is not a weight (a constant, training state); None if it may be one."""
    for pattern, reason in _LEFT_OUT.items():
        if pattern.fullmatch(name):
            return reason
    return NOT_WEIGHTS.get(canonical(name).removeprefix(BASE_PREFIX))


def executed_layers(config: AlbertConfig, prefix: str) -> list[str]:
    """Return the layers' names in the order of execution; shared layers occur several times."""
    return [
        f"{prefix}encoder.albert_layer_groups.{group}.albert_layers.{inner}"
        for group in range(config.num_hidden_groups)
        for _ in range(config.num_hidden_layers // config.num_hidden_groups)
        for inner in range(config.inner_group_num)
    ]


def prefix_of(spec: TensorSpec) -> str:
    """Return the prefix of the spec's name in a model with a head."""
    return BASE_PREFIX if spec.part in (*REQUIRED, "pooler") else ""
