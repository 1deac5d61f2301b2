"""AlbertConfig: every number that shapes an ALBERT model, checked, and its JSON form.

The names, defaults and file are those of the documented `AlbertConfig`; the published shapes
(`AlbertConfig.preset`) are those of `published.py`. Nothing here needs torch.
"""

import copy
import difflib
import inspect
import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from albertkit.errors import ConfigError, ModelNotFoundError, did_you_mean
from albertkit.files import atomic_path, json_text, made_folder
from albertkit.hub import resolve
from albertkit.loading_options import refuse_push_to_hub, take_loading_options
from albertkit.published import CHECKPOINTS, REPOSITORIES, SIZES, VERSIONS, warn_of_contradictions

CONFIG_FILE = "config.json"
GOOGLE_CONFIG_FILE = "albert_config.json"

# The names of `hidden_act`; modeling/layers.py has the functions.
ACTIVATION_NAMES = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish")
ATTENTION_NAMES = ("sdpa", "eager")
PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")
IGNORED_LABEL = -100
"""The label of a token that no loss counts, as in torch's cross-entropy."""


class AlbertConfig:
    """The shape of an ALBERT model, and what its forward pass returns by default.

    The defaults are the documented ones: the xxlarge shape. Prefer `AlbertConfig.preset("base")`
    and its kin, or `from_pretrained`.

    Args: Sizes
        vocab_size: pieces in the vocabulary, V.
        embedding_size: width of the vocabulary embeddings, E.
        hidden_size: width of the encoder, H; a multiple of `num_attention_heads`.
        num_hidden_layers: times a layer group is applied; a multiple of `num_hidden_groups`.
        num_hidden_groups: groups of layers that share their parameters. Layer i uses group
            `i // (num_hidden_layers / num_hidden_groups)`.
        inner_group_num: different layers inside a group, applied one after the other. So
            `num_hidden_layers * inner_group_num` layers are executed (`depth`), of which
            `num_hidden_groups * inner_group_num` have parameters of their own.
        num_attention_heads: heads of each layer, N.
        intermediate_size: width of the feed-forward layer.
        max_position_embeddings: longest sequence, in tokens.
        type_vocab_size: kinds of segment.

    Args: Behavior
        hidden_act: "gelu" (erf), "gelu_new" or "gelu_pytorch_tanh" (tanh approximation, that of the
            published models), "relu", "silu"/"swish", or a function from tensor to tensor
            (which cannot be written to JSON).
        hidden_dropout_prob: dropout of embeddings, attention output and feed-forward output, in [0, 1).
        attention_probs_dropout_prob: dropout of the attention probabilities, in [0, 1).
        classifier_dropout_prob: dropout before a task head, in [0, 1).
        initializer_range: standard deviation of the truncated normal that fills every matrix.
        layer_norm_eps: added to the variance in each LayerNorm.
        pad_token_id, bos_token_id, eos_token_id: ids of `<pad>`, `[CLS]`, `[SEP]`.
        tie_word_embeddings: the masked-word head uses the word embeddings as its output matrix.
        attn_implementation: "sdpa" (fused, default) or "eager" (readable; chosen for a call that asks
            for attentions or gives a head mask). How to compute, not what: never written to JSON.
        pruned_heads: {distinct layer: [heads removed]}, filled in by `prune_heads`.

    Args: Outputs and tasks
        output_attentions, output_hidden_states, return_dict: what forward returns unless told otherwise.
        num_labels, id2label, label2id: classes of the task heads; ids are int here and str in JSON.
        problem_type: "regression", "single_label_classification" or "multi_label_classification".
        dtype (alias torch_dtype): type in which the weights were saved, such as "float32".
        architectures: class names the checkpoint was saved from.

    `AlbertConfig(**config.to_dict())` is the same config: with `model_type="albert"` the arguments are
    the content of a `config.json`, whose foreign keys are kept unless one is a known name misspelt.

    Raises:
        ConfigError: sizes that do not fit each other, values out of range, another `model_type`, or an
            unknown keyword (the message names the nearest known one).
    """

    model_type: ClassVar[str] = "albert"
    name_or_path: str = ""
    """What `from_pretrained` was given; not written to JSON."""
    pretrained_config_archive_map: ClassVar[dict[str, str]] = REPOSITORIES
    """Published checkpoint -> its name on the Hugging Face hub."""

    def __init__(
        self,
        *,
        vocab_size: int = 30000,
        embedding_size: int = 128,
        hidden_size: int = 4096,
        num_hidden_layers: int = 12,
        num_hidden_groups: int = 1,
        num_attention_heads: int = 64,
        intermediate_size: int = 16384,
        inner_group_num: int = 1,
        hidden_act: str | Callable[[Any], Any] = "gelu_new",
        hidden_dropout_prob: float = 0,
        attention_probs_dropout_prob: float = 0,
        max_position_embeddings: int = 512,
        type_vocab_size: int = 2,
        initializer_range: float = 0.02,
        layer_norm_eps: float = 1e-12,
        classifier_dropout_prob: float = 0.1,
        pad_token_id: int = 0,
        bos_token_id: int = 2,
        eos_token_id: int = 3,
        tie_word_embeddings: bool = True,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        return_dict: bool | None = None,
        use_return_dict: bool | None = None,
        num_labels: int | None = None,
        id2label: Mapping[int, str] | Mapping[str, str] | None = None,
        label2id: Mapping[str, int] | None = None,
        problem_type: str | None = None,
        dtype: Any = None,
        torch_dtype: Any = None,
        architectures: list[str] | None = None,
        attn_implementation: Literal["sdpa", "eager"] = "sdpa",
        pruned_heads: Mapping[int, list[int]] | Mapping[str, list[int]] | None = None,
        **foreign: Any,
    ) -> None:
        _check_foreign(foreign)
        misspelt = {name for name in foreign if name not in _OF_EVERY_FILE and _nearest(name, cutoff=0.9)}
        unknown = misspelt if "model_type" in foreign else foreign.keys() - _OF_EVERY_FILE
        if unknown:
            raise ConfigError(_unknown_message(unknown))
        self.vocab_size = vocab_size
        self.embedding_size = embedding_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_hidden_groups = num_hidden_groups
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.inner_group_num = inner_group_num
        self.hidden_act = hidden_act
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.initializer_range = initializer_range
        self.layer_norm_eps = layer_norm_eps
        self.classifier_dropout_prob = classifier_dropout_prob
        self.pad_token_id = pad_token_id
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self.tie_word_embeddings = tie_word_embeddings
        self.output_attentions = output_attentions
        self.output_hidden_states = output_hidden_states
        self.return_dict: bool = one_of(return_dict=return_dict, use_return_dict=use_return_dict) is not False
        self.problem_type = problem_type
        self.dtype: str | None = one_of(dtype=dtype, torch_dtype=torch_dtype)
        self.architectures = architectures
        self.attn_implementation = attn_implementation
        self.pruned_heads: dict[int, list[int]] = pruned_heads or {}  # type: ignore[assignment]  # converted
        self.extra: dict[str, Any] = copy.deepcopy(
            {key: value for key, value in foreign.items() if key not in ("model_type", "name_or_path")}
        )
        """Keys that mean nothing here, of a foreign JSON file or set as attributes; written to JSON."""
        if "name_or_path" in foreign:
            self.name_or_path = foreign["name_or_path"]
        self._set_labels(num_labels, id2label, label2id)
        self.validate()

    # --- published shapes -----------------------------------------------------------------------

    @classmethod
    def preset(
        cls,
        size: Literal["base", "large", "xlarge", "xxlarge"],
        *,
        version: Literal["v1", "v2"] = "v2",
        **overrides: Any,
    ) -> Self:
        """One of the four published shapes, with the dropout rates of that version.

        Raises:
            ConfigError: an unknown size or version.
        """
        if size not in SIZES:
            raise ConfigError(f"no preset {size!r}; choose one of {', '.join(SIZES)}")
        if version not in VERSIONS:
            raise ConfigError(f"no preset version {version!r}; choose one of {', '.join(VERSIONS)}")
        return cls(**{**CHECKPOINTS[f"albert-{size}-{version}"].config, **overrides})

    # --- derived values -------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Layers executed in one forward pass: `num_hidden_layers * inner_group_num`."""
        return self.num_hidden_layers * self.inner_group_num

    @property
    def num_labels(self) -> int:
        """Number of classes; setting it renames them LABEL_0, LABEL_1, ..."""
        return len(self.id2label)

    @num_labels.setter
    def num_labels(self, value: int) -> None:
        if value != self.num_labels:
            self._set_labels(value, None, None)

    @property
    def use_return_dict(self) -> bool:
        """The older name of `return_dict`."""
        return self.return_dict

    @property
    def torch_dtype(self) -> str | None:
        """The older name of `dtype`."""
        return self.dtype

    @torch_dtype.setter
    def torch_dtype(self, value: Any) -> None:
        self.dtype = value

    @property
    def _attn_implementation(self) -> str:
        """The name that `transformers` gives to `attn_implementation`."""
        return self.attn_implementation

    @_attn_implementation.setter
    def _attn_implementation(self, value: Literal["sdpa", "eager"]) -> None:
        self.attn_implementation = value

    @property
    def is_encoder_decoder(self) -> bool:
        """False: ALBERT is an encoder."""
        return False

    @is_encoder_decoder.setter
    def is_encoder_decoder(self, value: bool) -> None:
        _check_foreign({"is_encoder_decoder": value})

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> Self:  # noqa: ARG002
        """Return this config: ALBERT has no other than that of its text encoder."""
        return self

    def __getattr__(self, name: str) -> Any:
        # Reached only for names that are not attributes: keys of a foreign file stay readable.
        extra = self.__dict__.get("extra", {})
        if name in extra:
            return extra[name]
        raise AttributeError(f"AlbertConfig has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _CONVERTED:
            value = _CONVERTED[name](value)
        if name in PARAMETERS or name == "extra" or hasattr(type(self), name):
            super().__setattr__(name, value)
            return
        # Code for `transformers` sets keys of its own (use_cache, ...), and a file keeps them.
        if name not in self.extra and name not in _KEPT_KEYS and not name.startswith("_"):
            if _nearest(name, cutoff=0.9):
                raise ConfigError(_unknown_message([name]))
            warnings.warn(
                f"AlbertConfig has no argument {name!r}: it is kept and written to {CONFIG_FILE}, and "
                "changes nothing in the model",
                UserWarning,
                stacklevel=2,
            )
        self.extra[name] = value

    def _set_labels(
        self,
        num_labels: int | None,
        id2label: Mapping[int, str] | Mapping[str, str] | None,
        label2id: Mapping[str, int] | None,
    ) -> None:
        if label2id is not None and not isinstance(label2id, Mapping):
            raise ConfigError(f"label2id must map labels to ids, got {label2id!r}")
        if id2label is None and label2id is not None:
            id2label = {index: label for label, index in label2id.items()}
        if id2label is None:
            count = 2 if num_labels is None else num_labels
            # Every label gets a name, so a number out of a damaged file must not fill the memory.
            if not isinstance(count, int) or not 1 <= count <= _MOST_LABELS:
                raise ConfigError(
                    f"num_labels must be a whole number of at least 1, got {count!r} (most: {_MOST_LABELS:,})"
                )
            id2label = {index: f"LABEL_{index}" for index in range(count)}
        self.id2label: dict[int, str] = id2label  # type: ignore[assignment]  # converted
        self.label2id: dict[str, int] = (
            {label: index for index, label in self.id2label.items()} if label2id is None else dict(label2id)
        )
        if num_labels is not None and num_labels != len(self.id2label):
            raise ConfigError(
                f"num_labels is {num_labels} but id2label names {len(self.id2label)} labels; "
                "give one of the two, or make them agree"
            )

    # --- checks ---------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise ConfigError unless these values describe a possible model."""
        for name in _SIZES:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")
        for dividend, divisor in (
            ("hidden_size", "num_attention_heads"),
            ("num_hidden_layers", "num_hidden_groups"),
        ):
            if getattr(self, dividend) % getattr(self, divisor):
                raise ConfigError(
                    f"{dividend} ({getattr(self, dividend)}) must be a multiple of "
                    f"{divisor} ({getattr(self, divisor)})"
                )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < 1:
                raise ConfigError(f"{name} must be a number in [0, 1), got {value!r}")
        for name in ("initializer_range", "layer_norm_eps"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ConfigError(f"{name} must be a positive number, got {value!r}")
        if not isinstance(self.pad_token_id, int) or not 0 <= self.pad_token_id < self.vocab_size:
            raise ConfigError(
                f"pad_token_id ({self.pad_token_id!r}) must be an id below vocab_size ({self.vocab_size})"
            )
        if sorted(self.id2label) != list(range(len(self.id2label))) or not self.id2label:
            raise ConfigError(
                f"id2label has the ids {sorted(self.id2label)}, expected 0, 1, 2, ...: "
                "label k names the k-th score of a head"
            )
        if not callable(self.hidden_act) and self.hidden_act not in ACTIVATION_NAMES:
            raise ConfigError(_choice_message("hidden_act", self.hidden_act, ACTIVATION_NAMES))
        if self.attn_implementation not in ATTENTION_NAMES:
            raise ConfigError(
                _choice_message("attn_implementation", self.attn_implementation, ATTENTION_NAMES)
            )
        if self.problem_type is not None and self.problem_type not in PROBLEM_TYPES:
            raise ConfigError(_choice_message("problem_type", self.problem_type, PROBLEM_TYPES))

    # --- JSON -----------------------------------------------------------------------------------

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], **overrides: Any) -> Self:
        """A config from the content of a `config.json`; keys unknown here are kept and written back.

        Raises:
            ConfigError: the file is of another model type, or describes no possible model; an
                unknown name among the overrides.
        """
        _check_foreign(values)
        known = {key: value for key, value in values.items() if key in PARAMETERS and value is not None}
        if "id2label" in known:
            known.pop("num_labels", None)  # older files carry both, and the names are what counts
        config = cls(**known)
        config.extra = {
            key: copy.deepcopy(value)
            for key, value in values.items()
            if key not in PARAMETERS and key not in ("model_type", "name_or_path")
        }
        return config.replace(**overrides)

    def replace(self, **changes: Any) -> Self:
        """A copy with other values; another `num_labels` names the labels anew.

        Raises:
            ConfigError: an unknown name, or values that describe no possible model.
        """
        unknown = {name for name in changes if name not in PARAMETERS}
        if unknown:
            raise ConfigError(_unknown_message(unknown))
        config = copy.deepcopy(self)
        labels = {name: changes.pop(name, None) for name in ("num_labels", "id2label", "label2id")}
        if labels != {"num_labels": labels["num_labels"], "id2label": None, "label2id": None}:
            config._set_labels(**labels)
        elif labels["num_labels"] is not None:
            config.num_labels = labels["num_labels"]
        for new, old in (("dtype", "torch_dtype"), ("return_dict", "use_return_dict")):
            given = {name: changes.pop(name) for name in (new, old) if name in changes}
            if given:
                changes[new] = one_of(**given)
        for name, value in changes.items():
            setattr(config, name, value)
        config.validate()
        return config

    def update(self, config_dict: Mapping[str, Any]) -> None:
        """Change values in place; other keys than arguments are kept as attributes are.

        Raises:
            ConfigError: values that describe no possible ALBERT model; then nothing has changed.
        """
        _check_foreign(config_dict)
        changed = self.replace(**{name: value for name, value in config_dict.items() if name in PARAMETERS})
        for name, value in config_dict.items():
            if name not in PARAMETERS and name != "model_type":
                setattr(changed, name, value)
        self.__dict__.update(changed.__dict__)

    @classmethod
    def from_google_dict(cls, values: Mapping[str, Any], **overrides: Any) -> Self:
        """A config from the content of a Google `albert_config.json`, where "gelu" is the tanh form."""
        values = dict(values)
        if values.get("hidden_act", "gelu") == "gelu":
            values["hidden_act"] = "gelu_new"
        return cls.from_dict(values, **overrides)

    @classmethod
    def from_json_file(cls, path: str | Path, **overrides: Any) -> Self:
        """A config from a JSON file; one named `albert_config.json` is read as Google's.

        Raises:
            ModelNotFoundError: no such file.
            ConfigError: the file is not a JSON object, or describes no possible model.
        """
        path = Path(path)
        if not path.is_file():
            raise ModelNotFoundError(f"no config file {path}")
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path} is not valid JSON: {error}") from error
        if not isinstance(values, dict):
            raise ConfigError(f"{path} holds a JSON {type(values).__name__}, expected an object")
        read = cls.from_google_dict if path.name == GOOGLE_CONFIG_FILE else cls.from_dict
        return read(values, **overrides)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        token: str | bool | None = None,
        local_files_only: bool = False,
        subfolder: str = "",
        **overrides: Any,
    ) -> Self:
        """The config of a local folder, a config file, or a model on the hub; overrides win.

        Loading options of `transformers` are taken as `take_loading_options` says. Where the config found for
        a published name contradicts what is known of that model, a warning names each contradiction.

        Raises:
            ModelNotFoundError: no such folder, file or hub model, or no config in it.
            ConfigError: the config is of another model type or describes no possible model; a loading
                option that is not supported.
        """
        overrides = take_loading_options(overrides)
        if Path(pretrained_model_name_or_path).is_file():
            return cls.from_json_file(pretrained_model_name_or_path, **overrides)
        folder = resolve(
            pretrained_model_name_or_path,
            patterns=(CONFIG_FILE, GOOGLE_CONFIG_FILE),
            revision=revision,
            cache_dir=cache_dir,
            token=token,
            local_files_only=local_files_only,
            subfolder=subfolder,
        )
        for name in (CONFIG_FILE, GOOGLE_CONFIG_FILE):
            if (folder / name).is_file():
                found = cls.from_json_file(folder / name)
                warn_of_contradictions(pretrained_model_name_or_path, vars(found), settled=overrides.keys())
                found.name_or_path = str(pretrained_model_name_or_path)
                return found.replace(**overrides)
        raise ModelNotFoundError(f"{folder} holds neither {CONFIG_FILE} nor {GOOGLE_CONFIG_FILE}")

    @classmethod
    def get_config_dict(
        cls, pretrained_model_name_or_path: str | Path, **options: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a model's config as a dictionary, and the options that `from_pretrained` does not take.

        Raises:
            ModelNotFoundError, ConfigError: as for `from_pretrained`.
        """
        taken = inspect.signature(cls.from_pretrained).parameters
        unused = {name: value for name, value in options.items() if name not in taken}
        hub = {name: value for name, value in options.items() if name in taken}
        return cls.from_pretrained(pretrained_model_name_or_path, **hub).to_dict(), unused

    def to_dict(self) -> dict[str, Any]:
        """The content of `config.json`: all sizes, and other values where they differ from the default.

        Raises:
            ConfigError: `hidden_act` is a function, which JSON cannot hold.
        """
        if callable(self.hidden_act):
            name = getattr(self.hidden_act, "__name__", repr(self.hidden_act))
            raise ConfigError(
                f"hidden_act is the function {name}, which cannot be written to JSON; "
                f"use one of the names {', '.join(ACTIVATION_NAMES)}"
            )
        values: dict[str, Any] = {**copy.deepcopy(self.extra), "model_type": self.model_type}
        for name in _WRITTEN_ALWAYS:
            values[name] = getattr(self, name)
        for name in _WRITTEN_IF_CHANGED:
            if getattr(self, name) != _DEFAULTS[name]:
                values[name] = copy.deepcopy(getattr(self, name))
        if self.id2label != {index: f"LABEL_{index}" for index in range(2)}:
            values["id2label"] = dict(self.id2label)
            values["label2id"] = dict(self.label2id)
        return values

    def to_diff_dict(self) -> dict[str, Any]:
        """Return what of `to_dict` differs from the default config, and the `model_type`."""
        default = AlbertConfig().to_dict()
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
        """Write `config.json` into the folder, which is created where missing.

        Raises:
            ConfigError: `push_to_hub` is True.
        """
        refuse_push_to_hub(push_to_hub, save_directory)
        with made_folder(Path(save_directory)) as folder:
            self.to_json_file(folder / CONFIG_FILE)

    # --- value semantics ------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AlbertConfig) and self._values() == other._values()

    def _values(self) -> dict[str, Any]:
        """All values but the name that the config was loaded from."""
        return {name: value for name, value in vars(self).items() if name != "name_or_path"}

    __hash__ = None  # type: ignore[assignment]  # mutable, like a dict

    def __repr__(self) -> str:
        values = {**self.__dict__, **self.extra}
        values.pop("extra")
        return f"AlbertConfig({', '.join(f'{name}={value!r}' for name, value in values.items())})"


_MOST_LABELS = 1_000_000
_SIZES = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_hidden_groups",
    "inner_group_num",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
_WRITTEN_ALWAYS = (
    *_SIZES,
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout_prob",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
)
PARAMETERS = {
    name: parameter
    for name, parameter in inspect.signature(AlbertConfig.__init__).parameters.items()
    if name not in ("self", "foreign")
}
# Arguments that `to_dict`, here or in `transformers`, writes and that are no setting.
_OF_EVERY_FILE = {"model_type", "transformers_version", "name_or_path", "is_encoder_decoder"}
# Other keys that are set as attributes without a warning: tasks of albertkit read the first ones, and code
# for `transformers` sets the others on any config.
_KEPT_KEYS = {
    *("null_score_diff_threshold", "text_pairs", "sentence_pooling", "sentence_normalize", "early_exit"),
    "task_settings",
    *("transformers_version", "task_specific_params", "tokenizer_class", "finetuning_task", "sep_token_id"),
    *("use_cache", "is_decoder", "add_cross_attention", "chunk_size_feed_forward", "prefix"),
}
# Values as they stand after construction, where that differs from the signature's None.
_DEFAULTS: dict[str, Any] = {
    **{name: parameter.default for name, parameter in PARAMETERS.items()},
    "return_dict": True,
    "pruned_heads": {},
}
_WRITTEN_IF_CHANGED = (
    "tie_word_embeddings",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "problem_type",
    "dtype",
    "architectures",
    "pruned_heads",
)


def is_config_argument(name: str) -> bool:
    """Whether `AlbertConfig` has an argument of this name."""
    return name in PARAMETERS


def one_of(**alternatives: Any) -> Any:
    """The value of the one alternative that was given; None where none was."""
    given = {name: value for name, value in alternatives.items() if value is not None}
    if len({str(value) for value in given.values()}) > 1:
        raise ConfigError(f"{' and '.join(alternatives)} are one setting but differ: {given}")
    return next(iter(given.values()), None)


def _numbered(name: str, values: Any, read: Callable[[Any], Any]) -> dict[int, Any]:
    """A mapping whose keys are numbers, which JSON makes texts."""
    try:
        return {int(number): read(value) for number, value in values.items()}
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{name} must map whole numbers to values, got {values!r} ({error})") from error


def _heads(heads: Any) -> list[int]:
    return sorted(int(head) for head in heads)


def _architectures(names: Any) -> list[str] | None:
    """Return class names; raise ConfigError for anything else."""
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ConfigError(f"architectures must be a list of class names, got {names!r:.200}")
    return names


def _dtype_name(dtype: Any) -> str | None:
    """ "float32" for "float32", "torch.float32" or torch.float32."""
    return None if dtype is None else str(dtype).removeprefix("torch.")


# How an argument is brought into its form, whether it is set at construction or as an attribute.
_CONVERTED: dict[str, Callable[[Any], Any]] = {
    "architectures": _architectures,
    "dtype": _dtype_name,
    "id2label": partial(_numbered, "id2label", read=lambda label: label),
    "pruned_heads": partial(_numbered, "pruned_heads", read=_heads),
}


def _check_foreign(values: Mapping[str, Any]) -> None:
    """Raise ConfigError where a file's other keys say that its model is none of ours."""
    model_type = values.get("model_type", AlbertConfig.model_type)
    if model_type != AlbertConfig.model_type:
        raise ConfigError(
            f"this config has model_type {model_type!r}; albertkit runs ALBERT only (model_type 'albert')"
        )
    if values.get("is_encoder_decoder"):
        raise ConfigError("is_encoder_decoder is True; ALBERT is an encoder alone")
    if values.get("position_embedding_type", "absolute") != "absolute":
        raise ConfigError(
            f"position_embedding_type {values['position_embedding_type']!r} is not supported; "
            "ALBERT's positions are 'absolute'"
        )


def _nearest(name: str, *, cutoff: float) -> list[str]:
    return difflib.get_close_matches(name, PARAMETERS, n=1, cutoff=cutoff)


def _unknown_message(unknown: Iterable[str]) -> str:
    parts = []
    for name in sorted(unknown):
        parts.append(f"{name!r}{did_you_mean(name, PARAMETERS)}")
    return f"AlbertConfig has no argument {', '.join(parts)}. A key of your own is set as an attribute"


def _choice_message(name: str, value: object, choices: tuple[str, ...]) -> str:
    return f"{name} is {value!r}; choose one of {', '.join(choices)}"
