"""ConfigBase: everything in a config besides its fields (other keys, copies, dictionaries, files)."""

import copy
import functools
import inspect
from collections.abc import Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from albertkit.config_fields import (
    ACTIVATION_NAMES,
    LABEL_ARGUMENTS,
    OTHER_NAMES,
    TASK_KEY,
    check_other_keys,
    ids_of_labels,
    is_misspelled,
    settle_labels,
    under_one_name,
    unknown_arguments,
)
from albertkit.errors import ConfigError, ModelNotFoundError, did_you_mean, warn_caller
from albertkit.files import atomic_path, json_text, made_folder, read_json
from albertkit.hub import as_path, refuse_push_to_hub, resolve, split_hub_options, take_loading_options
from albertkit.hub_upload import PushToHub
from albertkit.published import warn_of_contradictions

CONFIG_FILE = "config.json"
GOOGLE_CONFIG_FILE = "albert_config.json"

# Other keys that can be passed or set without a warning. Tasks of albertkit use the first keys; code
# written for `transformers` sets the others on any config.
_KEPT_KEYS = {
    *("null_score_diff_threshold", "text_pairs", "sentence_pooling", "sentence_normalize"),
    *("task_settings", "transformers_version", "task_specific_params", "tokenizer_class", "finetuning_task"),
    *("sep_token_id", "use_cache", "is_encoder_decoder", "is_decoder", "add_cross_attention"),
    *("chunk_size_feed_forward", "prefix"),
}

_Config = TypeVar("_Config", bound="ConfigBase")


def takes_other_names(config_class: type[_Config]) -> type[_Config]:
    """Make the constructor accept `num_labels`, older names of fields, and other keys of files."""
    construct = config_class.__init__
    config_class._settings = {declared.name: declared for declared in fields(config_class)}  # type: ignore[arg-type]
    config_class._arguments = (*config_class._settings, "num_labels", "torch_dtype", "use_return_dict")

    @functools.wraps(construct)
    def initialize(self: Any, **arguments: Any) -> None:
        other = {name: arguments.pop(name) for name in [*arguments] if name not in config_class._arguments}
        check_other_keys(other)
        is_file = bool(other.pop("model_type", None))
        if misspelled := {name for name in other if is_misspelled(name, config_class._arguments)}:
            raise unknown_arguments(misspelled, config_class._arguments)
        self.__dict__.setdefault("extra", {})  # a subclass may have set attributes
        for name, value in other.items():
            self._set_other_key(name, copy.deepcopy(value), warns=not is_file)
        construct(self, **settle_labels(under_one_name(arguments)))

    config_class.__init__ = initialize
    config_class._default = config_class()
    return config_class


class ConfigBase(PushToHub):
    """Base class of `AlbertConfig`, which declares the fields."""

    model_type: ClassVar[str]
    # Attributes that code written for `transformers` reads.
    attribute_map: ClassVar[dict[str, str]] = {}
    base_config_key: ClassVar[str] = ""
    keys_to_ignore_at_inference: ClassVar[list[str]] = []
    sub_configs: ClassVar[dict[str, Any]] = {}
    _settings: ClassVar[dict[str, Field]]
    _arguments: ClassVar[tuple[str, ...]] = ()
    _more_arguments: ClassVar[tuple[str, ...]] = ()
    """Arguments that only a subclass of `AlbertConfig` has. Their values are in `extra`."""
    _default: ClassVar[Any]
    sentence_modules: Any = None
    """The modules of a sentence-embedding model, if `extra` cannot describe them; see
    `checkpoints/sentence_modules.py`. Not written to JSON."""
    extra: dict[str, Any]
    """Keys that albertkit does not use, from a file or set as attributes; written to JSON."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        parameters = [*inspect.signature(cls.__init__).parameters.values()][1:]  # without self
        names = [parameter.name for parameter in parameters if parameter.kind in kinds]
        cls._more_arguments += tuple(name for name in names if name not in cls._arguments)

    # --- attributes -------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        # Called only for names that are not attributes.
        if name in OTHER_NAMES:
            return getattr(self, OTHER_NAMES[name])
        extra = self.__dict__.get("extra", {})
        if name in extra:
            return extra[name]
        raise AttributeError(f"AlbertConfig has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        name = OTHER_NAMES.get(name, name)
        if name in self._settings:
            convert = self._settings[name].metadata["convert"]
            super().__setattr__(name, convert(value) if convert else value)
            if name == "id2label":
                self.label2id = ids_of_labels(self.id2label)
        elif name in ("model_type", "is_encoder_decoder"):  # these cannot change
            check_other_keys({name: value})
        elif name == "extra" or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            self._set_other_key(name, value)

    def _set_other_key(self, name: str, value: Any, *, warns: bool = True) -> None:
        """Keep a key that is not a field. Code for `transformers` sets such keys, and files contain them."""
        check_other_keys({name: value})
        extra = self.__dict__.setdefault("extra", {})
        known = name in extra or name in _KEPT_KEYS or name in self._more_arguments
        if warns and not known and not name.startswith("_"):
            if is_misspelled(name, self._arguments):
                raise unknown_arguments([name], self._arguments)
            warn_caller(
                f"AlbertConfig has no argument {name!r}{did_you_mean(name, self._arguments)}. It is kept and "
                f"written to {CONFIG_FILE}, but does not change the model."
            )
        extra[name] = value

    def replace(self, **changes: Any) -> Self:
        """Return a copy with changed values. Changing `num_labels` renames the labels.

        Raises:
            ConfigError: A name is unknown, or a value is not valid.
        """
        known = (*self._arguments, *self._more_arguments, TASK_KEY)
        if unknown := {name for name in changes if name not in known}:
            raise unknown_arguments(unknown, known)
        changes = under_one_name(changes)
        if changes.get("num_labels") == self.num_labels:
            changes.pop("num_labels")
        values = {name: copy.deepcopy(getattr(self, name)) for name in self._settings}
        if any(changes.get(name) is not None for name in LABEL_ARGUMENTS):
            del values["id2label"], values["label2id"]
        more = {name: value for name, value in self.extra.items() if name in self._more_arguments}
        config = type(self)(**{**values, **copy.deepcopy(more), **changes})
        others = {name: value for name, value in self.extra.items() if name not in more | changes}
        config.extra |= copy.deepcopy(others)
        config.sentence_modules = self.sentence_modules
        return config

    def update(self, config_dict: Mapping[str, Any]) -> None:
        """Change values in place. Keys that are not arguments are kept in `extra`.

        Raises:
            ConfigError: A value is not valid. The config is then unchanged.
        """
        check_other_keys(config_dict)
        given = {name: value for name, value in config_dict.items() if name in self._arguments}
        changed = self.replace(**given)
        for name, value in config_dict.items():
            if name not in given:
                setattr(changed, name, value)
        self.__dict__.update(changed.__dict__)

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> Self:  # noqa: ARG002
        """Return this config, because ALBERT has only a text encoder."""
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigBase) and self._values() == other._values()

    def _values(self) -> dict[str, Any]:
        """Return the values that `==` compares: all except `name_or_path` and the sentence modules."""
        left_out = {"name_or_path", "sentence_modules"}
        return {name: value for name, value in vars(self).items() if name not in left_out}

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
        if values.get("model_type") == cls.model_type:  # a subclass may have another type
            values = {name: value for name, value in values.items() if name != "model_type"}
        check_other_keys(values)
        names = (*cls._arguments, *cls._more_arguments)
        given = {name: value for name, value in values.items() if name in names}
        known = {name: value for name, value in given.items() if value is not None and name != "name_or_path"}
        if "id2label" in known:
            known.pop("num_labels", None)  # older files contain both; the label names take precedence
        config = cls(**known)
        other = {name: value for name, value in values.items() if name not in given and name != "model_type"}
        config.extra |= copy.deepcopy(other)
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
        if path and _is_json(path):
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
        """Return a model's config as a dictionary, and the keyword arguments that are not hub options.

        Raises:
            ModelNotFoundError, ConfigError: See `from_pretrained`.
        """
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
        for name, declared in self._settings.items():
            written, value = declared.metadata["written"], getattr(self, name)
            if written == "always" or (written == "if changed" and value != getattr(self._default, name)):
                values[name] = value
        if self.id2label != self._default.id2label:
            values |= {"id2label": self.id2label, "label2id": self.label2id}
        return copy.deepcopy(values)

    def to_diff_dict(self) -> dict[str, Any]:
        """Return the entries of `to_dict` that differ from the default config, and `model_type`."""
        default = self._default.to_dict()
        return {
            name: value
            for name, value in self.to_dict().items()
            if name == "model_type" or name not in default or default[name] != value
        }

    def to_json_string(self, use_diff: bool = False) -> str:
        """Return `to_dict` (or `to_diff_dict`) as indented JSON with sorted keys and a final newline."""
        values = self.to_diff_dict() if use_diff else self.to_dict()
        return json_text(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

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


def _is_json(path: Path) -> bool:
    """Return whether a path is a JSON file, judged by its ending or its first byte."""
    if not path.is_file() or path.suffix == ".json":
        return path.is_file()
    with path.open("rb") as file:
        return file.read(1) == b"{"
