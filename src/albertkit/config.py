"""AlbertConfig: the settings that define an ALBERT model, with their checks and their JSON form.

Names, defaults and file format are those of the documented `AlbertConfig`. The published sizes
(`AlbertConfig.preset`) come from `published.py`. This module does not need PyTorch.
"""
# ruff: noqa: RUF009 - the functions called in the body of the dataclass declare its fields

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self

from albertkit.config_base import ConfigBase, takes_other_names
from albertkit.config_fields import (
    ACTIVATION,
    CLASS_NAMES,
    FLAG,
    POSITIVE,
    any_of,
    rate,
    read_dtype,
    read_labels,
    refuse_pruned_heads,
    setting,
    settle_labels,
    size,
)
from albertkit.errors import ConfigError
from albertkit.published import CHECKPOINTS, REPOSITORIES, SIZES, VERSIONS

IGNORED_LABEL = -100
"""The label of tokens that the loss ignores, as in PyTorch's cross-entropy."""


@takes_other_names
@dataclass(kw_only=True, eq=False, repr=False)
class AlbertConfig(ConfigBase):
    """The sizes and settings of an ALBERT model, and the default outputs of its forward pass.

    The defaults are those of `transformers`: the sizes of ALBERT-xxlarge. Prefer
    `AlbertConfig.preset("base")` or `from_pretrained`. Every field is a keyword argument. `torch_dtype` and
    `use_return_dict` are older names of `dtype` and `return_dict`.

    `AlbertConfig(**config.to_dict())` returns an equal config. With `model_type="albert"`, the arguments are
    treated as the content of a `config.json`: unknown keys are kept, but a key that looks like a misspelled
    field raises an error.

    Raises:
        ConfigError: Sizes do not match, a value is out of range, `model_type` is not "albert", or a keyword
            is unknown (the message suggests the closest known name).
    """

    model_type: ClassVar[str] = "albert"
    is_encoder_decoder: ClassVar[bool] = False
    pretrained_config_archive_map: ClassVar[dict[str, str]] = REPOSITORIES
    """The name on the Hugging Face hub of each published checkpoint."""

    vocab_size: int = size(30000, "pieces")
    """Vocabulary size, V."""
    embedding_size: int = size(128, "dimensions")
    """Embedding size, E."""
    hidden_size: int = size(4096, "dimensions")
    """Hidden size of the encoder, H; a multiple of `num_attention_heads`."""
    num_hidden_layers: int = size(12, "layers")
    """Number of times that a layer group is applied; a multiple of `num_hidden_groups`."""
    num_hidden_groups: int = size(1, "groups")
    """Number of groups of layers that share their parameters. The i-th application uses group
    `i // (num_hidden_layers / num_hidden_groups)`."""
    inner_group_num: int = size(1, "layers")
    """Number of different layers in a group, applied one after the other. The model executes
    `num_hidden_layers * inner_group_num` layers (`depth`), of which
    `num_hidden_groups * inner_group_num` have their own parameters."""
    num_attention_heads: int = size(64, "heads")
    """Number of attention heads of each layer, N."""
    intermediate_size: int = size(16384, "dimensions")
    """Size of the feed-forward layer, I."""
    max_position_embeddings: int = size(512, "tokens")
    """Maximum length of a row, in tokens."""
    type_vocab_size: int = size(2, "segments")
    """Number of segment types."""
    hidden_act: str | Callable[[Any], Any] = setting("gelu_new", ACTIVATION, written="always")
    """"gelu" (erf), "gelu_new" (the tanh approximation, which the published models use), "relu", "silu",
    "leaky_relu", "linear", "mish", "quick_gelu" or "tanh"; another name of `transformers` for one of them,
    such as "swish"; or a function from tensor to tensor, which cannot be saved as JSON."""
    hidden_dropout_prob: float = rate(0)
    """Dropout probability of embeddings, attention output and feed-forward output, in [0, 1)."""
    attention_probs_dropout_prob: float = rate(0)
    """Dropout probability of the attention probabilities, in [0, 1)."""
    classifier_dropout_prob: float = rate(0.1)
    """Dropout probability before a task head, in [0, 1)."""
    initializer_range: float = setting(0.02, POSITIVE, written="always")
    """Standard deviation of the truncated normal distribution that initializes every matrix."""
    layer_norm_eps: float = setting(1e-12, POSITIVE, written="always")
    """Value added to the variance in each LayerNorm, for numerical stability."""
    pad_token_id: int = setting(0, written="always", unit="id")
    """Id of `<pad>`."""
    bos_token_id: int = setting(2, written="always", unit="id")
    """Id of `[CLS]`."""
    eos_token_id: int = setting(3, written="always", unit="id")
    """Id of `[SEP]`."""
    tie_word_embeddings: bool = setting(True, FLAG)
    """Whether the masked language modeling head uses the word embeddings as its output matrix."""
    output_attentions: bool = setting(False)
    """Whether the forward pass returns attention probabilities. A call may override it."""
    output_hidden_states: bool = setting(False)
    """Whether the forward pass returns the hidden states of all layers. A call may override it."""
    return_dict: bool = setting(True, convert=lambda value: value is not False)
    """Whether the forward pass returns a dataclass instead of a tuple. A call may override it."""
    problem_type: str | None = setting(
        None, any_of(None, "regression", "single_label_classification", "multi_label_classification")
    )
    """"regression", "single_label_classification" or "multi_label_classification"."""
    dtype: Any = setting(None, convert=read_dtype)
    """Data type in which the weights were saved, such as "float32"."""
    architectures: list[str] | None = setting(None, CLASS_NAMES)
    """Names of the model classes that the checkpoint was saved from."""
    pruned_heads: dict[int, list[int]] = setting(None, convert=refuse_pruned_heads)
    """Always empty: models with pruned attention heads are not supported."""
    id2label: dict[int, str] = setting(None, convert=read_labels, written="never")
    """Names of the classes by id. Ids are int here and str in JSON. Default: LABEL_0 and LABEL_1. Setting it
    also sets `label2id`."""
    label2id: dict[str, int] = setting(None, written="never")
    """Ids of the classes by name."""
    attn_implementation: Literal["sdpa", "eager"] = setting(
        "sdpa", any_of("sdpa", "eager"), convert=lambda value: value or "sdpa", written="never"
    )
    """"sdpa" (fused) or "eager" (explicit; also used for calls that return attentions or pass a head mask).
    None means "sdpa". Both compute the same values, so it is not written to JSON."""
    name_or_path: str = setting("", written="never")
    """The name or path that was passed to `from_pretrained`; not written to JSON."""
    if TYPE_CHECKING:  # arguments of the constructor that set other fields
        num_labels: int = 2
        torch_dtype: Any = None
        use_return_dict: bool | None = None
    else:

        @property
        def num_labels(self) -> int:
            """Number of classes. Setting a different number renames the classes to LABEL_0, LABEL_1, ..."""
            return len(self.id2label)

        @num_labels.setter
        def num_labels(self, value: int) -> None:
            if value != self.num_labels:
                self.id2label = settle_labels({"num_labels": value})["id2label"]

    def __post_init__(self) -> None:
        self.validate()

    @property
    def depth(self) -> int:
        """Number of layers executed in one forward pass: `num_hidden_layers * inner_group_num`."""
        return self.num_hidden_layers * self.inner_group_num

    @classmethod
    def preset(
        cls,
        size: Literal["base", "large", "xlarge", "xxlarge"],
        *,
        version: Literal["v1", "v2"] = "v2",
        **overrides: Any,
    ) -> Self:
        """Return the config of a published size, with the dropout probabilities of that version.

        Raises:
            ConfigError: The size or version is unknown.
        """
        if size not in SIZES:
            raise ConfigError(f"no preset {size!r}. Choose one of {', '.join(SIZES)}.")
        if version not in VERSIONS:
            raise ConfigError(f"no preset version {version!r}. Choose one of {', '.join(VERSIONS)}.")
        return cls(**{**CHECKPOINTS[f"albert-{size}-{version}"].config, **overrides})

    def validate(self) -> None:
        """Raise ConfigError if a value is out of range or sizes do not match."""
        for name, declared in self._settings.items():
            check, value = declared.metadata["check"], getattr(self, name)
            if check and not check[0](value):
                raise ConfigError(f"{name} must be {check[1]}, got {value!r}")
        for dividend, divisor in (
            ("hidden_size", "num_attention_heads"),
            ("num_hidden_layers", "num_hidden_groups"),
        ):
            if getattr(self, dividend) % getattr(self, divisor):
                raise ConfigError(
                    f"{dividend} ({getattr(self, dividend)}) must be a multiple of "
                    f"{divisor} ({getattr(self, divisor)})"
                )
        if not isinstance(self.pad_token_id, int) or not 0 <= self.pad_token_id < self.vocab_size:
            raise ConfigError(
                f"pad_token_id ({self.pad_token_id!r}) must be an id below vocab_size ({self.vocab_size})"
            )
        if sorted(self.id2label) != list(range(len(self.id2label))) or not self.id2label:
            raise ConfigError(
                f"id2label has the ids {sorted(self.id2label)}. Expected 0, 1, 2, ...: "
                "label k names score k of a head."
            )


def as_config(config: Any) -> AlbertConfig:
    """Return a config as an `AlbertConfig`; it may also be an ALBERT config of `transformers`.

    Raises:
        ConfigError: The object is not a config, or it belongs to another type of model.
    """
    if isinstance(config, AlbertConfig):
        return config
    if not (hasattr(config, "model_type") and hasattr(config, "to_dict")):
        raise ConfigError(f"received a config of type {type(config).__name__}. Expected an AlbertConfig.")
    values = {name: value for name, value in config.to_dict().items() if name != "_name_or_path"}
    return AlbertConfig.from_dict(
        {"model_type": config.model_type, **values},
        attn_implementation=getattr(config, "_attn_implementation", None),
        name_or_path=getattr(config, "name_or_path", ""),
    )


ARGUMENTS = AlbertConfig._arguments
"""Names of the arguments of `AlbertConfig`."""


class AutoConfig:
    """The config class for code that does not name an architecture. It always loads an `AlbertConfig`."""

    def __init__(self) -> NoReturn:
        raise TypeError("AutoConfig cannot be instantiated. Use AutoConfig.from_pretrained.")

    @staticmethod
    def from_pretrained(pretrained_model_name_or_path: str | Path, **options: Any) -> AlbertConfig:
        """Load the config of a model; see `AlbertConfig.from_pretrained`.

        Raises:
            ConfigError: The checkpoint's `model_type` is not "albert".
        """
        return AlbertConfig.from_pretrained(pretrained_model_name_or_path, **options)

    @staticmethod
    def for_model(model_type: str, **values: Any) -> AlbertConfig:
        """Return a new config with these arguments.

        Raises:
            ConfigError: `model_type` is not "albert", or an argument is unknown or not valid.
        """
        return AlbertConfig.from_dict({"model_type": model_type}, **values)
