"""AlbertConfig: every number that shapes an ALBERT model, checked, and its JSON form.

The names, defaults and file are those of the documented `AlbertConfig`; the published shapes
(`AlbertConfig.preset`) are those of `published.py`. Nothing here needs torch.
"""
# ruff: noqa: RUF009 - the functions called in the body of the dataclass declare its fields

import copy
import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self, TypeVar

from albertkit.config_fields import (
    ACTIVATION,
    ACTIVATION_NAMES,
    CLASS_NAMES,
    LABEL_ARGUMENTS,
    OTHER_NAMES,
    POSITIVE,
    any_of,
    check_other_keys,
    is_misspelled,
    rate,
    read_dtype,
    read_labels,
    read_pruned_heads,
    setting,
    settle_labels,
    size,
    under_one_name,
    unknown_arguments,
)
from albertkit.errors import ConfigError, ModelNotFoundError
from albertkit.files import atomic_path, json_text, made_folder, read_json
from albertkit.hub import refuse_push_to_hub, resolve, split_hub_options, take_loading_options
from albertkit.published import CHECKPOINTS, REPOSITORIES, SIZES, VERSIONS, warn_of_contradictions

CONFIG_FILE = "config.json"
GOOGLE_CONFIG_FILE = "albert_config.json"

IGNORED_LABEL = -100
"""The label of a token that no loss counts, as in torch's cross-entropy."""

_Config = TypeVar("_Config")


def _takes_other_names(config_class: type[_Config]) -> type[_Config]:
    """Let the constructor take `num_labels`, older names of fields, and keys of files that are no fields."""
    construct = config_class.__init__

    @functools.wraps(construct)
    def initialize(self: Any, **arguments: Any) -> None:
        other = {name: arguments.pop(name) for name in [*arguments] if name not in ARGUMENTS}
        check_other_keys(other)
        unknown = {name for name in other if name not in _OF_EVERY_FILE}
        if "model_type" in other:  # the content of a file
            unknown = {name for name in unknown if is_misspelled(name, ARGUMENTS)}
        if unknown:
            raise unknown_arguments(unknown, ARGUMENTS)
        arguments = settle_labels(under_one_name(arguments))
        construct(self, **arguments)
        self.extra = copy.deepcopy({name: value for name, value in other.items() if name != "model_type"})

    config_class.__init__ = initialize
    return config_class


@_takes_other_names
@dataclass(kw_only=True, eq=False, repr=False)
class AlbertConfig:
    """The shape of an ALBERT model, and what its forward pass returns by default.

    The defaults are the documented ones: the xxlarge shape. Prefer `AlbertConfig.preset("base")`, or
    `from_pretrained`. Every field is a keyword argument; `torch_dtype` and `use_return_dict` are older
    names of `dtype` and `return_dict`.

    `AlbertConfig(**config.to_dict())` is the same config: with `model_type="albert"` the arguments are
    the content of a `config.json`, whose other keys are kept unless one is a misspelled field.

    Raises:
        ConfigError: sizes that do not fit each other, values out of range, another `model_type`, or an
            unknown keyword (the message names the nearest known one).
    """

    model_type: ClassVar[str] = "albert"
    is_encoder_decoder: ClassVar[bool] = False
    pretrained_config_archive_map: ClassVar[dict[str, str]] = REPOSITORIES
    """Published checkpoint -> its name on the Hugging Face hub."""

    vocab_size: int = size(30000)
    """Number of pieces in the vocabulary, V."""
    embedding_size: int = size(128)
    """Width of the vocabulary embeddings, E."""
    hidden_size: int = size(4096)
    """Width of the encoder, H; a multiple of `num_attention_heads`."""
    num_hidden_layers: int = size(12)
    """How many times a layer group is applied; a multiple of `num_hidden_groups`."""
    num_hidden_groups: int = size(1)
    """Number of groups of layers that share their parameters. Layer i uses group
    `i // (num_hidden_layers / num_hidden_groups)`."""
    inner_group_num: int = size(1)
    """Number of different layers inside a group, applied one after the other. So
    `num_hidden_layers * inner_group_num` layers are executed (`depth`), of which
    `num_hidden_groups * inner_group_num` have parameters of their own."""
    num_attention_heads: int = size(64)
    """Number of heads of each layer, N."""
    intermediate_size: int = size(16384)
    """Width of the feed-forward layer."""
    max_position_embeddings: int = size(512)
    """Maximum sequence length, in tokens."""
    type_vocab_size: int = size(2)
    """Number of kinds of segments."""
    hidden_act: str | Callable[[Any], Any] = setting("gelu_new", ACTIVATION, written="always")
    """"gelu" (erf), "gelu_new" or "gelu_pytorch_tanh" (the tanh approximation, which the published models
    use), "relu", "silu" or "swish"; or a function from tensor to tensor, which cannot be written to JSON."""
    hidden_dropout_prob: float = rate(0)
    """Dropout of embeddings, attention output and feed-forward output, in [0, 1)."""
    attention_probs_dropout_prob: float = rate(0)
    """Dropout of the attention probabilities, in [0, 1)."""
    classifier_dropout_prob: float = rate(0.1)
    """Dropout before a task head, in [0, 1)."""
    initializer_range: float = setting(0.02, POSITIVE, written="always")
    """Standard deviation of the truncated normal distribution that initializes every matrix."""
    layer_norm_eps: float = setting(1e-12, POSITIVE, written="always")
    """Number added to the variance in each LayerNorm."""
    pad_token_id: int = setting(0, written="always")
    """Id of `<pad>`."""
    bos_token_id: int = setting(2, written="always")
    """Id of `[CLS]`."""
    eos_token_id: int = setting(3, written="always")
    """Id of `[SEP]`."""
    tie_word_embeddings: bool = setting(True)
    """Whether the masked-word head uses the word embeddings as its output matrix."""
    output_attentions: bool = setting(False)
    """Whether the forward pass returns attention probabilities, unless a call says otherwise."""
    output_hidden_states: bool = setting(False)
    """Whether the forward pass returns the hidden states of all layers, unless a call says otherwise."""
    return_dict: bool = setting(True, convert=lambda value: value is not False)
    """Whether the forward pass returns names with its outputs, unless a call says otherwise."""
    problem_type: str | None = setting(
        None, any_of(None, "regression", "single_label_classification", "multi_label_classification")
    )
    """"regression", "single_label_classification" or "multi_label_classification"."""
    dtype: Any = setting(None, convert=read_dtype)
    """Type in which the weights were saved, such as "float32"."""
    architectures: list[str] | None = setting(None, CLASS_NAMES)
    """Names of the classes that the checkpoint was saved from."""
    pruned_heads: dict[int, list[int]] = setting(None, convert=read_pruned_heads)
    """{distinct layer: [heads removed]}, filled in by `prune_heads`."""
    id2label: dict[int, str] = setting(None, convert=read_labels, written="never")
    """Names of the classes by id; ids are int here and str in JSON. Default: LABEL_0 and LABEL_1."""
    label2id: dict[str, int] = setting(None, written="never")
    """Ids of the classes by name."""
    attn_implementation: Literal["sdpa", "eager"] = setting("sdpa", any_of("sdpa", "eager"), written="never")
    """"sdpa" (fused) or "eager" (readable; chosen for a call that asks for attentions or gives a head mask).
    How to compute, not what: never written to JSON."""
    name_or_path: str = setting("", written="never")
    """What `from_pretrained` was given; not written to JSON."""
    extra: dict[str, Any] = field(default_factory=dict, init=False)
    """Keys that mean nothing here, of a file or set as attributes; written to JSON."""

    if TYPE_CHECKING:  # arguments that set other fields
        num_labels: int = 2
        torch_dtype: Any = None
        use_return_dict: bool | None = None
    else:

        @property
        def num_labels(self) -> int:
            """Number of classes; setting another number renames them LABEL_0, LABEL_1, ..."""
            return len(self.id2label)

        @num_labels.setter
        def num_labels(self, value: int) -> None:
            if value != self.num_labels:
                labels = settle_labels({"num_labels": value})
                self.id2label, self.label2id = labels["id2label"], labels["label2id"]

    def __post_init__(self) -> None:
        self.validate()

    @property
    def depth(self) -> int:
        """Layers executed in one forward pass: `num_hidden_layers * inner_group_num`."""
        return self.num_hidden_layers * self.inner_group_num

    @classmethod
    def preset(
        cls,
        size: Literal["base", "large", "xlarge", "xxlarge"],
        *,
        version: Literal["v1", "v2"] = "v2",
        **overrides: Any,
    ) -> Self:
        """Return one of the four published shapes, with the dropout rates of that version.

        Raises:
            ConfigError: an unknown size or version.
        """
        if size not in SIZES:
            raise ConfigError(f"no preset {size!r}; choose one of {', '.join(SIZES)}")
        if version not in VERSIONS:
            raise ConfigError(f"no preset version {version!r}; choose one of {', '.join(VERSIONS)}")
        return cls(**{**CHECKPOINTS[f"albert-{size}-{version}"].config, **overrides})

    def validate(self) -> None:
        """Raise ConfigError unless these values describe a possible model."""
        for name, declared in _SETTINGS.items():
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
                f"id2label has the ids {sorted(self.id2label)}, expected 0, 1, 2, ...: "
                "label k names the k-th score of a head"
            )

    # --- attributes -------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        # Reached only for names that are not attributes.
        if name in OTHER_NAMES:
            return getattr(self, OTHER_NAMES[name])
        extra = self.__dict__.get("extra", {})
        if name in extra:
            return extra[name]
        raise AttributeError(f"AlbertConfig has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        name = OTHER_NAMES.get(name, name)
        if name in _SETTINGS:
            convert = _SETTINGS[name].metadata["convert"]
            super().__setattr__(name, convert(value) if convert else value)
        elif name in ("model_type", "is_encoder_decoder"):  # always the same
            check_other_keys({name: value})
        elif name == "extra" or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            self._set_other_key(name, value)

    def _set_other_key(self, name: str, value: Any) -> None:
        """Keep a key that is no field: code for `transformers` sets such keys, and a file keeps them."""
        check_other_keys({name: value})
        if name not in self.extra and name not in _KEPT_KEYS and not name.startswith("_"):
            if is_misspelled(name, ARGUMENTS):
                raise unknown_arguments([name], ARGUMENTS)
            warnings.warn(
                f"AlbertConfig has no argument {name!r}: it is kept and written to {CONFIG_FILE}, and "
                "changes nothing in the model",
                UserWarning,
                stacklevel=3,
            )
        self.extra[name] = value

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values; another `num_labels` names the labels anew.

        Raises:
            ConfigError: an unknown name, or values that describe no possible model.
        """
        if unknown := {name for name in changes if name not in ARGUMENTS}:
            raise unknown_arguments(unknown, ARGUMENTS)
        changes = under_one_name(changes)
        if changes.get("num_labels") == self.num_labels:
            changes.pop("num_labels")
        values = {name: copy.deepcopy(getattr(self, name)) for name in _SETTINGS}
        if any(changes.get(name) is not None for name in LABEL_ARGUMENTS):
            del values["id2label"], values["label2id"]
        config = type(self)(**{**values, **changes})
        config.extra = copy.deepcopy(self.extra)
        return config

    def update(self, config_dict: Mapping[str, Any]) -> None:
        """Change values in place; other keys than arguments are kept as attributes are.

        Raises:
            ConfigError: values that describe no possible ALBERT model; then nothing has changed.
        """
        check_other_keys(config_dict)
        changed = self.replace(**{name: value for name, value in config_dict.items() if name in ARGUMENTS})
        for name, value in config_dict.items():
            if name not in ARGUMENTS:
                setattr(changed, name, value)
        self.__dict__.update(changed.__dict__)

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> Self:  # noqa: ARG002
        """Return this config: ALBERT has only a text encoder."""
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AlbertConfig) and self._values() == other._values()

    def _values(self) -> dict[str, Any]:
        """Return all values except the name that the config was loaded from."""
        return {name: value for name, value in vars(self).items() if name != "name_or_path"}

    __hash__ = None  # type: ignore[assignment]  # mutable, like a dict

    def __repr__(self) -> str:
        values = {name: value for name, value in vars(self).items() if name != "extra"} | self.extra
        return f"AlbertConfig({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    # --- files ------------------------------------------------------------------------------------

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], **overrides: Any) -> Self:
        """Return a config from the content of a `config.json`; unknown keys are kept and written back.

        Raises:
            ConfigError: the file is of another model type, or describes no possible model; an
                unknown name among the overrides.
        """
        check_other_keys(values)
        known = {name: value for name, value in values.items() if name in ARGUMENTS and value is not None}
        known.pop("name_or_path", None)
        if "id2label" in known:
            known.pop("num_labels", None)  # older files carry both, and the names are what counts
        config = cls(**known)
        config.extra = copy.deepcopy(
            {name: value for name, value in values.items() if name not in {*ARGUMENTS, "model_type"}}
        )
        return config.replace(**overrides)

    @classmethod
    def from_google_dict(cls, values: Mapping[str, Any], **overrides: Any) -> Self:
        """Return a config from the content of an `albert_config.json`, where "gelu" is the tanh form."""
        if values.get("hidden_act", "gelu") == "gelu":
            values = {**values, "hidden_act": "gelu_new"}
        return cls.from_dict(values, **overrides)

    @classmethod
    def from_json_file(cls, path: str | Path, **overrides: Any) -> Self:
        """Return a config from a JSON file; a file named `albert_config.json` is read as Google's.

        Raises:
            ModelNotFoundError: no such file.
            ConfigError: the file is not a JSON object, or describes no possible model.
        """
        path = Path(path)
        if not path.is_file():
            raise ModelNotFoundError(f"no config file {path}")
        read = cls.from_google_dict if path.name == GOOGLE_CONFIG_FILE else cls.from_dict
        return read(read_json(path, ConfigError), **overrides)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Self:
        """Return the config of a local folder, a config file, or a model on the hub.

        If the config of a published model contradicts what is known of that model, a warning names each
        contradiction.

        Args:
            pretrained_model_name_or_path: a folder, a config file, or a name on the hub.
            options: arguments of this class, which override the file; options of the hub (`hub.HubOptions`);
                and loading options of `transformers` (`hub.take_loading_options`).

        Raises:
            ModelNotFoundError: no such folder, file or hub model, or no config in it.
            ConfigError: the config is of another model type or describes no possible model; a loading
                option that is not supported.
        """
        hub, overrides = split_hub_options(take_loading_options(options))
        if Path(pretrained_model_name_or_path).is_file():
            return cls.from_json_file(pretrained_model_name_or_path, **overrides)
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
        """Return a model's config as a dictionary, and the options that are none of the hub's.

        Raises:
            ModelNotFoundError, ConfigError: as for `from_pretrained`.
        """
        hub, unused = split_hub_options(options)
        return cls.from_pretrained(pretrained_model_name_or_path, **hub).to_dict(), unused

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `config.json`: all sizes, and other values where they are not the default.

        Raises:
            ConfigError: `hidden_act` is a function, which JSON cannot hold.
        """
        if callable(self.hidden_act):
            name = getattr(self.hidden_act, "__name__", repr(self.hidden_act))
            raise ConfigError(
                f"hidden_act is the function {name}, which cannot be written to JSON; "
                f"use one of the names {', '.join(ACTIVATION_NAMES)}"
            )
        values: dict[str, Any] = {**self.extra, "model_type": self.model_type}
        for name, declared in _SETTINGS.items():
            written, value = declared.metadata["written"], getattr(self, name)
            if written == "always" or (written == "if changed" and value != getattr(_DEFAULT, name)):
                values[name] = value
        if self.id2label != _DEFAULT.id2label:
            values |= {"id2label": self.id2label, "label2id": self.label2id}
        return copy.deepcopy(values)

    def to_diff_dict(self) -> dict[str, Any]:
        """Return what of `to_dict` differs from the default config, and the `model_type`."""
        default = _DEFAULT.to_dict()
        return {
            name: value
            for name, value in self.to_dict().items()
            if name == "model_type" or name not in default or default[name] != value
        }

    def to_json_string(self, use_diff: bool = False) -> str:
        """Return `to_dict` (or `to_diff_dict`) as indented JSON, keys sorted, with a final newline."""
        values = self.to_diff_dict() if use_diff else self.to_dict()
        return json_text(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    def to_json_file(self, json_file_path: str | Path, use_diff: bool = False) -> None:
        """Write `to_json_string` to a file."""
        text = self.to_json_string(use_diff)
        with atomic_path(json_file_path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def save_pretrained(self, save_directory: str | Path, push_to_hub: bool = False) -> None:
        """Write `config.json` into the folder, which is created if it is missing.

        Raises:
            ConfigError: `push_to_hub` is True.
        """
        refuse_push_to_hub(push_to_hub, save_directory)
        with made_folder(Path(save_directory)) as folder:
            self.to_json_file(folder / CONFIG_FILE)


_SETTINGS = {declared.name: declared for declared in fields(AlbertConfig) if declared.name != "extra"}
ARGUMENTS = (*_SETTINGS, "num_labels", "torch_dtype", "use_return_dict")
"""Names of the arguments of `AlbertConfig`."""
# Keys that `to_dict`, here or in `transformers`, writes and that are no setting.
_OF_EVERY_FILE = {"model_type", "transformers_version", "is_encoder_decoder"}
# Other keys that are set as attributes without a warning: tasks of albertkit read the first ones, and code
# for `transformers` sets the others on any config.
_KEPT_KEYS = {
    *("null_score_diff_threshold", "text_pairs", "sentence_pooling", "sentence_normalize", "early_exit"),
    "task_settings",
    *("transformers_version", "task_specific_params", "tokenizer_class", "finetuning_task", "sep_token_id"),
    *("use_cache", "is_decoder", "add_cross_attention", "chunk_size_feed_forward", "prefix"),
}
_DEFAULT = AlbertConfig()


class AutoConfig:
    """Stands for `AlbertConfig`, in code that names no architecture."""

    def __init__(self) -> NoReturn:
        raise TypeError("AutoConfig is not instantiated; use AutoConfig.from_pretrained")

    @staticmethod
    def from_pretrained(pretrained_model_name_or_path: str | Path, **options: Any) -> AlbertConfig:
        """Return what `AlbertConfig.from_pretrained` returns.

        Raises:
            ConfigError: the checkpoint's model_type is not "albert".
        """
        return AlbertConfig.from_pretrained(pretrained_model_name_or_path, **options)
