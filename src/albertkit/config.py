"""AlbertConfig: the settings that define an ALBERT model, with their checks and their JSON form.

Names, defaults and file format are those of the documented `AlbertConfig`. The published sizes
(`AlbertConfig.preset`) come from `published.py`. This module does not need PyTorch.
"""

import copy
import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from albertkit.errors import ConfigError, ModelNotFoundError, did_you_mean, warn_caller
from albertkit.files import atomic_path, json_bytes, made_folder, read_json
from albertkit.hub import as_path, refuse_push_to_hub, resolve, split_hub_options, take_loading_options
from albertkit.hub_upload import PushToHub
from albertkit.published import CHECKPOINTS, REPOSITORIES, SIZES, VERSIONS, warn_of_contradictions

CONFIG_FILE = "config.json"
GOOGLE_CONFIG_FILE = "albert_config.json"

IGNORED_LABEL = -100
"""The label of tokens that the loss ignores, as in PyTorch's cross-entropy."""
TASK_KEY = "finetuning_task"
"""The config key for the task name of a fine-tuned model."""
SETTINGS_KEY = "task_settings"
"""The config key for the settings with which the rows of a fine-tuned model were made."""
THRESHOLDS_KEY = "thresholds"
"""The config key for the probability that each label must exceed to be predicted."""

ACTIVATION_ALIASES = {
    **dict.fromkeys(("gelu_accurate", "gelu_fast", "gelu_python_tanh", "gelu_pytorch_tanh"), "gelu_new"),
    **{"gelu_python": "gelu", "swish": "silu"},
}
"""Other names of activation functions, as in `transformers`."""
ACTIVATION_NAMES = (
    *("gelu", "gelu_new", "relu", "silu", "leaky_relu", "linear", "mish", "quick_gelu", "tanh"),
    *ACTIVATION_ALIASES,
)
"""The names of `hidden_act`. PyTorch, NumPy, ONNX and Keras define the functions without the aliases."""

UNITS = {
    **dict.fromkeys(("embedding_size", "hidden_size", "intermediate_size"), "dimensions"),
    **{"vocab_size": "pieces", "num_hidden_layers": "layers", "inner_group_num": "layers"},
    **{"num_hidden_groups": "groups", "num_attention_heads": "heads", "type_vocab_size": "segments"},
    "max_position_embeddings": "tokens",
}
"""The fields that are sizes, and their units."""
PROBABILITIES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob")
_POSITIVE = ("initializer_range", "layer_norm_eps")
ALWAYS_WRITTEN = (
    *(*UNITS, *PROBABILITIES, *_POSITIVE),
    *("pad_token_id", "bos_token_id", "eos_token_id", "hidden_act"),
)
"""The fields that every config.json contains, even if they have their defaults."""
_NOT_WRITTEN = ("id2label", "label2id", "attn_implementation", "name_or_path")
_PROBLEM_TYPES = (None, "regression", "single_label_classification", "multi_label_classification")
_MULTIPLES = (("hidden_size", "num_attention_heads"), ("num_hidden_layers", "num_hidden_groups"))

_OTHER_NAMES = {
    "torch_dtype": "dtype",
    "use_return_dict": "return_dict",
    "_attn_implementation": "attn_implementation",
    "_name_or_path": "name_or_path",
}
"""Other names of fields, which `transformers` also uses."""
_LABEL_ARGUMENTS = ("num_labels", "id2label", "label2id")
_MOST_LABELS = 1_000_000  # each label needs memory, and a damaged file may have any number
# Other keys that can be passed without a warning: those of our tasks, and those that code for `transformers`
# passes to any config.
_KNOWN_KEYS = {
    *("null_score_diff_threshold", "text_pairs", "sentence_pooling", "sentence_normalize", "task_settings"),
    *("transformers_version", "task_specific_params", "tokenizer_class", TASK_KEY, "sep_token_id"),
    THRESHOLDS_KEY,
    *("use_cache", "is_decoder", "add_cross_attention", "chunk_size_feed_forward", "prefix"),
}


@dataclass(init=False, eq=False, repr=False)
class AlbertConfig(PushToHub):
    """The sizes and settings of an ALBERT model, and the default outputs of its forward pass.

    The defaults are those of `transformers`: the sizes of ALBERT-xxlarge. Prefer
    `AlbertConfig.preset("base")` or `from_pretrained`. Every field is a keyword argument. `torch_dtype` and
    `use_return_dict` are older names of `dtype` and `return_dict`.

    `AlbertConfig(**config.to_dict())` returns an equal config. Other keys, as arguments or as attributes, go
    into `extra` and are written to JSON.

    Raises:
        ConfigError: Sizes do not match, a value is out of range, `model_type` is not "albert", or a keyword
            looks like a misspelled field.
    """

    model_type: ClassVar[str] = "albert"
    is_encoder_decoder: ClassVar[bool] = False
    pretrained_config_archive_map: ClassVar[dict[str, str]] = REPOSITORIES
    """The name on the Hugging Face hub of each published checkpoint."""
    # Attributes that code written for `transformers` reads.
    attribute_map: ClassVar[dict[str, str]] = {}
    base_config_key: ClassVar[str] = ""
    base_model_pp_plan: ClassVar[dict[str, Any] | None] = None
    base_model_tp_plan: ClassVar[dict[str, Any] | None] = None
    keys_to_ignore_at_inference: ClassVar[list[str]] = []
    pruned_heads: ClassVar[dict[int, list[int]]] = {}
    sub_configs: ClassVar[dict[str, Any]] = {}

    vocab_size: int = 30000
    """Vocabulary size, V."""
    embedding_size: int = 128
    """Embedding size, E."""
    hidden_size: int = 4096
    """Hidden size of the encoder, H; a multiple of `num_attention_heads`."""
    num_hidden_layers: int = 12
    """Number of times that a layer group is applied; a multiple of `num_hidden_groups`."""
    num_hidden_groups: int = 1
    """Number of groups of layers that share their parameters. The i-th application uses group
    `i // (num_hidden_layers / num_hidden_groups)`."""
    inner_group_num: int = 1
    """Number of different layers in a group, applied one after the other. The model executes
    `num_hidden_layers * inner_group_num` layers (`depth`), of which
    `num_hidden_groups * inner_group_num` have their own parameters."""
    num_attention_heads: int = 64
    """Number of attention heads of each layer, N."""
    intermediate_size: int = 16384
    """Size of the feed-forward layer, I."""
    max_position_embeddings: int = 512
    """Maximum length of a row, in tokens."""
    type_vocab_size: int = 2
    """Number of segment types."""
    hidden_act: str | Callable[[Any], Any] = "gelu_new"
    """"gelu" (erf), "gelu_new" (the tanh approximation, which the published models use), "relu", "silu",
    "leaky_relu", "linear", "mish", "quick_gelu" or "tanh"; another name of `transformers` for one of them,
    such as "swish"; or a function from tensor to tensor, which cannot be saved as JSON."""
    hidden_dropout_prob: float = 0
    """Dropout probability of embeddings, attention output and feed-forward output, in [0, 1)."""
    attention_probs_dropout_prob: float = 0
    """Dropout probability of the attention probabilities, in [0, 1)."""
    classifier_dropout_prob: float = 0.1
    """Dropout probability before a task head, in [0, 1)."""
    initializer_range: float = 0.02
    """Standard deviation of the truncated normal distribution that initializes every matrix."""
    layer_norm_eps: float = 1e-12
    """Value added to the variance in each LayerNorm, for numerical stability."""
    pad_token_id: int = 0
    """Id of `<pad>`."""
    bos_token_id: int = 2
    """Id of `[CLS]`."""
    eos_token_id: int = 3
    """Id of `[SEP]`."""
    tie_word_embeddings: bool = True
    """Whether the masked language modeling head uses the word embeddings as its output matrix."""
    output_attentions: bool = False
    """Whether the forward pass returns attention probabilities. A call may override it."""
    output_hidden_states: bool = False
    """Whether the forward pass returns the hidden states of all layers. A call may override it."""
    return_dict: bool = True
    """Whether the forward pass returns a dataclass instead of a tuple. A call may override it."""
    problem_type: str | None = None
    """"regression", "single_label_classification" or "multi_label_classification"."""
    dtype: Any = None
    """Data type in which the weights were saved, such as "float32"."""
    architectures: list[str] | None = None
    """Names of the model classes that the checkpoint was saved from."""
    id2label: dict[int, str] = None  # type: ignore[assignment]  # the constructor sets it
    """Names of the classes by id. Ids are int here and str in JSON. Default: LABEL_0 and LABEL_1. Setting it
    also sets `label2id`."""
    label2id: dict[str, int] = None  # type: ignore[assignment]
    """Ids of the classes by name."""
    attn_implementation: Literal["sdpa", "eager"] = "sdpa"
    """"sdpa" (fused) or "eager" (explicit; also used for calls that return attentions or pass a head mask).
    None means "sdpa". Both compute the same values, so it is not written to JSON."""
    name_or_path: str = ""
    """The name or path that was passed to `from_pretrained`; not written to JSON."""

    def __init__(self, **arguments: Any) -> None:
        self.__dict__.setdefault("extra", {})  # a subclass may have set attributes
        self.extra: dict[str, Any]
        """Keys that albertkit does not use, from a file or set as attributes; written to JSON."""
        self.sentence_modules: Any = None
        """The modules of a sentence-embedding model, if `extra` cannot describe them; see
        `checkpoints/sentence_modules.py`. Not written to JSON."""
        is_file = arguments.get("model_type") is not None
        _check_architecture(arguments, self.model_type)
        others = {name for name in arguments if name not in (*ARGUMENTS, *_NO_KEYS)}
        public = {name for name in others if not name.startswith("_")}
        close = {name for name in public if difflib.get_close_matches(name, ARGUMENTS, n=1, cutoff=0.9)}
        if close:
            raise _unknown_arguments(close)
        for name in sorted(public - _KNOWN_KEYS - self.extra.keys()):
            if not is_file:
                warn_caller(
                    f"AlbertConfig has no argument {name!r}{did_you_mean(name, ARGUMENTS)}. It is kept and "
                    f"written to {CONFIG_FILE}, but does not change the model."
                )
        self.__dict__ |= {field.name: field.default for field in fields(AlbertConfig)} | _labels()
        self._set({**arguments, **{name: copy.deepcopy(arguments[name]) for name in others}})

    # --- attributes -------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        # Called only for names that are not attributes.
        if name in _OTHER_NAMES:
            return getattr(self, _OTHER_NAMES[name])
        extra = self.__dict__.get("extra", {})
        if name in extra:
            return extra[name]
        raise AttributeError(f"AlbertConfig has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field, in the form in which the config has it, or another key, which goes into `extra`."""
        name = _OTHER_NAMES.get(name, name)
        if name == "id2label":
            if not isinstance(value, Mapping):
                raise ConfigError(f"id2label is {value!r}. Expected a dict from indices to labels.")
            value = {int(index): label for index, label in value.items()}
            self.__dict__["label2id"] = {label: index for index, label in value.items()}
        elif name == "dtype":
            value = None if value is None else str(value).removeprefix("torch.")
        elif name == "attn_implementation":
            value = value or "sdpa"
        elif name == "return_dict":
            value = value is not False
        if name in ARGUMENTS or name == "sentence_modules" or hasattr(type(self), name) or name == "extra":
            super().__setattr__(name, value)
        else:
            self.__dict__.setdefault("extra", {})[name] = value

    def _set(self, values: Mapping[str, Any]) -> None:
        """Set several values, whose labels must agree, and check the result."""
        values = {name: value for name, value in values.items() if name not in _NO_KEYS}
        for other, name in _OTHER_NAMES.items():
            if other in values:
                values[name] = one_of(**{name: values.get(name), other: values.pop(other)})
        number, *mappings = (values.pop(name, None) for name in _LABEL_ARGUMENTS)
        if mappings != [None, None] or number not in (None, self.num_labels):
            values |= _labels(number, *mappings)
        for name, value in values.items():
            setattr(self, name, value)
        self.validate()

    @property
    def num_labels(self) -> int:
        """Number of classes. Setting a different number renames the classes to LABEL_0, LABEL_1, ..."""
        return len(self.id2label)

    @num_labels.setter
    def num_labels(self, value: int) -> None:
        if value != self.num_labels:
            self.id2label = _labels(value)["id2label"]

    @property
    def depth(self) -> int:
        """Number of layers executed in one forward pass: `num_hidden_layers * inner_group_num`."""
        return self.num_hidden_layers * self.inner_group_num

    def validate(self) -> None:
        """Raise ConfigError if a value is out of range or sizes do not match."""

        def check(is_valid: Callable[[Any], bool], expected: str, *names: str) -> None:
            for name in names:
                if not is_valid(getattr(self, name)):
                    raise ConfigError(f"{name} must be {expected}, got {getattr(self, name)!r}")

        def is_number(value: Any) -> bool:
            return isinstance(value, int | float)

        check(lambda size: type(size) is int and size >= 1, "a whole number of at least 1", *UNITS)
        check(lambda value: is_number(value) and 0 <= value < 1, "a number in [0, 1)", *PROBABILITIES)
        check(lambda value: is_number(value) and 0 < value < math.inf, "a positive number", *_POSITIVE)
        functions = f"a function or one of {', '.join(ACTIVATION_NAMES)}"
        check(lambda act: callable(act) or act in ACTIVATION_NAMES, functions, "hidden_act")
        check(lambda value: isinstance(value, bool), "True or False", "tie_word_embeddings")
        check(_PROBLEM_TYPES.__contains__, f"one of {', '.join(_PROBLEM_TYPES[1:])}", "problem_type")
        check(("sdpa", "eager").__contains__, "one of sdpa, eager", "attn_implementation")
        check(
            lambda names: (
                names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names))
            ),
            "a list of class names",
            "architectures",
        )
        check(
            lambda number: isinstance(number, int) and 0 <= number < self.vocab_size,
            f"an id below vocab_size ({self.vocab_size})",
            "pad_token_id",
        )
        for dividend, divisor in _MULTIPLES:
            size, parts = getattr(self, dividend), getattr(self, divisor)
            if size % parts:
                raise ConfigError(f"{dividend} ({size}) must be a multiple of {divisor} ({parts})")
        if sorted(self.id2label) != list(range(len(self.id2label))) or not self.id2label:
            raise ConfigError(f"id2label has the ids {sorted(self.id2label)}. Expected 0, 1, 2, ...")

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
        if size not in SIZES or version not in VERSIONS:
            raise ConfigError(
                f"no preset {size!r} of version {version!r}. Choose one of {', '.join(SIZES)}, and one of "
                f"{', '.join(VERSIONS)}."
            )
        return cls(**{**CHECKPOINTS[f"albert-{size}-{version}"].config, **overrides})

    def replace(self, **changes: Any) -> Self:
        """Return a copy with changed values. Changing `num_labels` renames the labels.

        Raises:
            ConfigError: A name is unknown, or a value is not valid.
        """
        known = {*ARGUMENTS, TASK_KEY, *self.extra, *inspect.signature(type(self)).parameters}
        if unknown := changes.keys() - known:
            raise _unknown_arguments(unknown, known)
        config = copy.copy(self)
        own = {name: value for name, value in vars(self).items() if name != "sentence_modules"}
        config.__dict__.update(copy.deepcopy(own))
        config._set(changes)
        return config

    def update(self, config_dict: Mapping[str, Any]) -> None:
        """Change values in place. Keys that are not arguments are kept in `extra`.

        Raises:
            ConfigError: A value is not valid. The config is then unchanged.
        """
        _check_architecture(config_dict, self.model_type)
        changed = self.replace()
        changed._set(config_dict)
        self.__dict__.update(vars(changed))

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> Self:  # noqa: ARG002
        """Return this config, because ALBERT has only a text encoder."""
        return self

    def __eq__(self, other: object) -> bool:
        not_compared = {"name_or_path": None, "sentence_modules": None}
        return isinstance(other, AlbertConfig) and vars(self) | not_compared == vars(other) | not_compared

    __hash__ = None  # type: ignore[assignment]  # mutable, like a dict

    def __repr__(self) -> str:
        left_out = {"extra", "sentence_modules"}
        values = {name: value for name, value in vars(self).items() if name not in left_out} | self.extra
        return f"AlbertConfig({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    # --- files ------------------------------------------------------------------------------------

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], **overrides: Any) -> Self:
        """Return a config from the content of a `config.json`. Unknown keys are kept and saved again.

        Raises:
            ConfigError: The file belongs to another type of model or has an invalid value, or an override has
                an unknown name.
        """
        _check_architecture(values, cls.model_type)
        # A subclass may have arguments of its own.
        names = {*ARGUMENTS, *inspect.signature(cls).parameters} - {"name_or_path"}
        known = {name: value for name, value in values.items() if name in names and value is not None}
        if "id2label" in known:
            known.pop("num_labels", None)  # older files contain both; the label names take precedence
        config = cls(**known)
        others = values.keys() - names - {"name_or_path", *_NO_KEYS}
        config.extra |= copy.deepcopy({name: value for name, value in values.items() if name in others})
        return config.replace(**overrides)

    @classmethod
    def from_google_dict(cls, values: Mapping[str, Any], **overrides: Any) -> Self:
        """Return a config from the content of an `albert_config.json`, in which "gelu" means "gelu_new"."""
        if values.get("hidden_act", "gelu") == "gelu":
            values = {**values, "hidden_act": "gelu_new"}
        return cls.from_dict(values, **overrides)

    @classmethod
    def from_json_file(cls, path: str | Path, **overrides: Any) -> Self:
        """Return a config from a JSON file. A file named `albert_config.json` is in Google's format.

        Raises:
            ModelNotFoundError: The file does not exist.
            ConfigError: The file is not a JSON object, or has an invalid value.
        """
        path = Path(path)
        if not path.is_file():
            raise ModelNotFoundError(f"there is no config file {path}. Check the path.")
        read = cls.from_google_dict if path.name == GOOGLE_CONFIG_FILE else cls.from_dict
        return read(read_json(path, ConfigError), **overrides)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Self:
        """Load the config of a folder, a config file, or a model on the hub.

        If the config of a published model differs from the published values, a warning lists the differences.

        Args:
            pretrained_model_name_or_path: A folder, a config file, or a hub name.
            options: Arguments of this class, which override the file; hub options (see `hub.HubOptions`); and
                loading options of `transformers` (see `hub.take_loading_options`).

        Raises:
            ModelNotFoundError: The folder, file or hub model does not exist, or it has no config.
            ConfigError: The config belongs to another type of model or has an invalid value, or a loading
                option is not supported.
        """
        hub, overrides = split_hub_options(take_loading_options(options))
        path = as_path(pretrained_model_name_or_path)
        if path and path.is_file() and (path.suffix == ".json" or path.open("rb").read(1) == b"{"):
            return cls.from_json_file(path, **overrides)
        names = (CONFIG_FILE, GOOGLE_CONFIG_FILE)
        folder = resolve(pretrained_model_name_or_path, patterns=names, **hub)
        file = next(folder / name for name in names if (folder / name).is_file())
        config = cls.from_json_file(file)
        warn_of_contradictions(pretrained_model_name_or_path, vars(config), settled=overrides.keys())
        config.name_or_path = str(pretrained_model_name_or_path)
        return config.replace(**overrides)

    @classmethod
    def get_config_dict(
        cls, pretrained_model_name_or_path: str | Path, **options: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a model's config as a dictionary, and the keyword arguments that are not hub options."""
        hub, unused = split_hub_options(options)
        return cls.from_pretrained(pretrained_model_name_or_path, **hub).to_dict(), unused

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `config.json`: all sizes, and other values that are not the default.

        Raises:
            ConfigError: `hidden_act` is a function, which cannot be saved as JSON.
        """
        if callable(self.hidden_act):
            name = getattr(self.hidden_act, "__name__", repr(self.hidden_act))
            raise ConfigError(
                f"hidden_act is the function {name}, which cannot be saved as JSON. "
                f"Use one of the names {', '.join(ACTIVATION_NAMES)}."
            )
        values: dict[str, Any] = {**self.extra, "model_type": self.model_type}
        for field in fields(AlbertConfig):
            value = getattr(self, field.name)
            is_changed = field.name not in _NOT_WRITTEN and value != field.default
            if field.name in ALWAYS_WRITTEN or is_changed:
                values[field.name] = value
        if self.id2label != _labels()["id2label"]:
            values |= {"id2label": self.id2label, "label2id": self.label2id}
        return copy.deepcopy(values)

    def to_diff_dict(self) -> dict[str, Any]:
        """Return the entries of `to_dict` that differ from the default config, and `model_type`."""
        values, default = self.to_dict(), AlbertConfig().to_dict()
        same = {name for name in values if name in default and default[name] == values[name]}
        return {name: values[name] for name in values if name not in same - {"model_type"}}

    def to_json_string(self, use_diff: bool = False) -> str:
        """Return `to_dict` (or `to_diff_dict`) as indented JSON with sorted keys and a final newline."""
        values = self.to_diff_dict() if use_diff else self.to_dict()
        return json_bytes(values, sort_keys=True).decode()

    def to_json_file(self, json_file_path: str | Path, use_diff: bool = False) -> None:
        """Write `to_json_string` to a file."""
        text = self.to_json_string(use_diff)
        with atomic_path(json_file_path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def save_pretrained(self, save_directory: str | Path, push_to_hub: bool = False) -> None:
        """Write `config.json` into a folder; the folder is created if it does not exist.

        Raises:
            ConfigError: `push_to_hub` is True.
        """
        refuse_push_to_hub(push_to_hub, save_directory)
        with made_folder(Path(save_directory)) as folder:
            self.to_json_file(folder / CONFIG_FILE)


ARGUMENTS = (*(field.name for field in fields(AlbertConfig)), "num_labels", "torch_dtype", "use_return_dict")
"""Names of the arguments of `AlbertConfig`."""


def as_config(config: Any) -> AlbertConfig:
    """Return a config as an `AlbertConfig`; it may also be an ALBERT config of `transformers`."""
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


class AutoConfig:
    """The config class for code that does not name an architecture. It always loads an `AlbertConfig`."""

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


# --- arguments and labels -----------------------------------------------------------------------


def one_of(**alternatives: Any) -> Any:
    """Return the value of the alternative that is not None; they are several names of one setting."""
    given = {name: value for name, value in alternatives.items() if value is not None}
    if len({str(value) for value in given.values()}) > 1:
        raise ConfigError(f"{' and '.join(alternatives)} are one setting but have different values: {given}")
    return next(iter(given.values()), None)


_NO_KEYS = ("model_type", "is_encoder_decoder", "pruned_heads")
"""Keys of files that no config has as a value, because ALBERT allows one value."""


def _check_architecture(values: Mapping[str, Any], model_type: str) -> None:
    """Raise ConfigError if the keys of a file show that its model is not a supported ALBERT model."""
    given = values.get("model_type")
    if given not in (None, "albert", model_type):
        raise ConfigError(
            f"this config has model_type {given!r}. albertkit supports ALBERT only (model_type 'albert')."
        )
    for key, only in (
        ("is_encoder_decoder", False),
        ("pruned_heads", {}),
        ("position_embedding_type", "absolute"),
    ):
        if values.get(key) and values[key] != only:
            raise ConfigError(f"{key} is {values[key]!r}. albertkit supports only {only!r}.")


def _unknown_arguments(names: Iterable[str], others: Iterable[str] = ()) -> ConfigError:
    parts = [f"{name!r}{did_you_mean(name, [*ARGUMENTS, *others])}" for name in sorted(names)]
    return ConfigError(
        f"AlbertConfig has no argument {', '.join(parts)}. To add a key of your own, set it as an attribute."
    )


def _labels(num_labels: Any = None, id2label: Any = None, label2id: Any = None) -> dict[str, Any]:
    """Return both mappings of labels. If they contradict each other, `id2label` takes precedence."""
    given = {"id2label": id2label, "label2id": label2id}
    try:  # files have the ids of `id2label`, and some also those of `label2id`, as strings
        names = id2label and {int(index): label for index, label in id2label.items()}
        ids = label2id and {label: int(index) for label, index in label2id.items()}
        hash(tuple((names or {}).values()))  # raises for labels that are lists
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"id2label must map whole numbers to labels, and label2id labels to whole numbers ({error}): "
            f"got {given}"
        ) from error
    if names is None and ids is not None:
        names = {index: label for label, index in ids.items()}
        if len(names) != len(ids):
            raise ConfigError(f"label2id gives several labels the same id: {ids!r}. Expected 0, 1, 2, ...")
    if names is None:
        number = 2 if num_labels is None else num_labels
        if not isinstance(number, Integral) or not 1 <= int(number) <= _MOST_LABELS:
            raise ConfigError(
                f"num_labels must be a whole number of at least 1, got {number!r} (maximum: {_MOST_LABELS:,})"
            )
        names = {index: f"LABEL_{index}" for index in range(int(number))}
    if num_labels is not None and num_labels != len(names):
        raise ConfigError(
            f"num_labels is {num_labels}, but id2label names {len(names)} labels. "
            "Pass one of the two, or make them agree."
        )
    inverse = {label: index for index, label in names.items()}
    ids = inverse if ids is None else ids
    wrong = [label for label, index in ids.items() if label in inverse and names.get(index) != label]
    if wrong:
        warn_caller(
            f"id2label gives {wrong[0]!r} the id {inverse[wrong[0]]}, but label2id gives it the id "
            f"{ids[wrong[0]]}. albertkit uses id2label. Correct label2id, or omit it."
        )
        ids = inverse
    return {"id2label": names, "label2id": ids}
