"""The tokenizer files of a model folder, in the layout of `transformers`, and their settings.

    spiece.model              the SentencePiece model, byte for byte as received; or
    vocab.txt                 the word list of a WordPiece vocabulary
    tokenizer.json            the same vocabulary and rules for the Rust library
    tokenizer_config.json     normalization rules, special tokens, lengths
    special_tokens_map.json   the special tokens again, for older readers

An `added_tokens.json` (in older folders) is also read.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any, TypedDict, Unpack

from albertkit import hub
from albertkit.errors import ModelNotFoundError, TokenizerError, reading, short
from albertkit.files import atomic_path, contents, made_folder
from albertkit.files import read_json as read_object
from albertkit.hub import HubOptions, take_loading_options
from albertkit.tokenization.batch import NO_LIMIT, Side, read_choice
from albertkit.tokenization.normalization import BertNormalization, Normalization
from albertkit.tokenization.special_tokens import DEFAULT_ROLES, token_text, token_texts
from albertkit.tokenization.tokenizer_json import listed_tokens

MODEL_FILE = "spiece.model"
WORD_LIST_FILE = "vocab.txt"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"
ADDED_TOKENS_FILE = "added_tokens.json"
INPUT_NAMES_KEY = "model_input_names"

PATTERNS = (
    "*.model",
    "*.spm",
    WORD_LIST_FILE,
    TOKENIZER_FILE,
    TOKENIZER_CONFIG_FILE,
    SPECIAL_TOKENS_FILE,
    ADDED_TOKENS_FILE,
)

DEFAULTS: dict[str, Any] = {
    "model_max_length": 512,
    "padding_side": "right",
    "truncation_side": "right",
    "parse_special_tokens": True,
    "clean_up_tokenization_spaces": False,
}
"""The attributes other than special tokens and normalization rules, each with its default."""

# Options of `transformers` tokenizers, with the only value that ALBERT supports.
_FIXED: dict[str, Any] = {
    "add_prefix_space": True,
    "trim_offsets": True,
    "sp_model_kwargs": {},
    "tokenizer_type": "albert",
}


# --- files --------------------------------------------------------------------------------------


def locate(name_or_path: str | Path, *, also: Sequence[str] = (), **options: Unpack[HubOptions]) -> Path:
    """Return a tokenizer's folder, downloaded with the files `also`, or the path itself if it is a file."""
    path = hub.as_path(name_or_path)
    return (
        path if path and path.is_file() else hub.resolve(name_or_path, patterns=(*PATTERNS, *also), **options)
    )


def find(path: Path, name: str) -> Path | None:
    """Return the file with this name in a folder (or the path itself if it is such a file), or None.

    A SentencePiece model may have another name than `MODEL_FILE`.
    """
    if path.is_file():
        endings = {Path(file).suffix for file in (TOKENIZER_FILE, WORD_LIST_FILE)}
        is_such = path.suffix not in endings if name == MODEL_FILE else path.suffix == Path(name).suffix
        return path if is_such else None
    if name != MODEL_FILE:
        return path / name if (path / name).is_file() else None
    models = [file for file in (path / MODEL_FILE, path / "30k-clean.model") if file.is_file()][:1]
    models = models or sorted([*path.glob("*.model"), *path.glob("*.spm")])
    if len(models) > 1:
        names = ", ".join(file.name for file in models)
        raise TokenizerError(f"{path} has several SentencePiece models ({names}). Pass the path of one.")
    return models[0] if models else None


def locate_model_file(name_or_path: str | Path) -> Path:
    """Return the SentencePiece model of a tokenizer by the tokenizer's name, as `locate` does."""
    path = locate(name_or_path)
    file = find(path, MODEL_FILE)
    if file is None:
        raise missing(path, MODEL_FILE)
    return file


def missing(path: Path, expected: str) -> ModelNotFoundError:
    kind = "is a file of another kind" if path.is_file() else "does not exist"
    holds = contents(path) if path.is_dir() else kind
    hint = "; AutoTokenizer opens its vocab.txt" if find(path, WORD_LIST_FILE) else ""
    return ModelNotFoundError(f"{path} {holds}. Expected {expected}{hint}")


def read_json(file: Path) -> dict[str, Any]:
    return read_object(file, TokenizerError) if file.is_file() else {}


def write(folder: str | Path, files: Mapping[str, bytes], *, prefix: str | None = None) -> tuple[str, ...]:
    """Write all files into a folder, or none if one fails, and return their paths."""
    folder = Path(folder)
    models = sorted([*folder.glob("*.model"), *folder.glob("*.spm")])
    if not prefix and MODEL_FILE not in files and models:
        raise TokenizerError(f"{models[0]} is the vocabulary of another tokenizer. Choose another folder.")
    paths = [folder / (f"{prefix}-{name}" if prefix else name) for name in files]
    with made_folder(folder), ExitStack() as stack:
        for path, content in zip(paths, files.values(), strict=True):
            stack.enter_context(atomic_path(path)).write_bytes(content)
    return tuple(map(str, paths))


# --- settings -----------------------------------------------------------------------------------


class TokenizerSettings(TypedDict, total=False):
    """Keyword arguments of every tokenizer, in addition to the files and the normalization rules.

    A token that is not in the vocabulary gets an id after it. Set a role to None if it has no token.
    `additional_special_tokens` is an older name for `extra_special_tokens`. If both name tokens, the latter
    takes precedence, as in `transformers`. `parse_special_tokens` is the opposite of `split_special_tokens`.
    """

    bos_token: str | None
    eos_token: str | None
    unk_token: str | None
    sep_token: str | None
    pad_token: str | None
    cls_token: str | None
    mask_token: str | None
    additional_special_tokens: Iterable[str] | Mapping[str, str] | None
    extra_special_tokens: Iterable[str] | Mapping[str, str] | None
    added_tokens: Mapping[str, int]
    model_max_length: int | None
    padding_side: Side
    truncation_side: Side
    parse_special_tokens: bool
    split_special_tokens: bool
    clean_up_tokenization_spaces: bool


def read_settings(
    path: Path,
    *,
    normalization: type[Normalization | BertNormalization] = Normalization,
    default_roles: Mapping[str, str] = DEFAULT_ROLES,
) -> dict[str, Any]:
    folder = path if path.is_dir() else path.parent
    with reading(folder / TOKENIZER_CONFIG_FILE, TokenizerError):
        config = read_json(folder / TOKENIZER_CONFIG_FILE)
        roles = read_json(folder / SPECIAL_TOKENS_FILE)
        roles |= {name: value for name, value in config.items() if value is not None or name not in roles}
        rules = tuple(field.name for field in fields(normalization))
        names = (*rules, *DEFAULTS, "split_special_tokens")
        settings = {name: config[name] for name in names if config.get(name) is not None}
        normalization(**{name: settings[name] for name in rules if name in settings})  # checks the values
        for name in DEFAULTS:
            read_setting(name, settings.get(name))
        if read_setting("model_max_length", settings.get("model_max_length")) > NO_LIMIT:
            del settings["model_max_length"]
        for role in DEFAULT_ROLES:
            if role in roles:
                settings[role] = None if roles[role] is None else token_text(roles[role])
        known = {settings.get(role, default) for role, default in default_roles.items()}
        tokens = _read_tokens(folder, config, roles, known)
        # Settings that are missing here may be in the tokenizer.json.
        return take_settings(settings | {name: value for name, value in tokens.items() if value})


def _read_tokens(
    folder: Path, config: Mapping[str, Any], roles: Mapping[str, Any], known: set[str | None]
) -> dict[str, Any]:
    """Return the added tokens and the special tokens without a role; `known` has the tokens with a role."""
    # An older program may have written one name, and a newer program the other.
    names = ("additional_special_tokens", "extra_special_tokens")
    additional = [token for name in names for token in token_texts(roles.get(name) or ())]
    decoder = (config.get("added_tokens_decoder") or {}).items()
    added = {token_text(token): int(number) for number, token in decoder}
    additional += [token_text(token) for _, token in decoder if token.get("special")]
    if not added or "extra_special_tokens" in config:  # other programs list the tokens in other files
        with reading(folder / TOKENIZER_FILE, TokenizerError):
            in_json = listed_tokens(read_json(folder / TOKENIZER_FILE))
        added = added or read_json(folder / ADDED_TOKENS_FILE) | in_json.added
        additional += [token for token in in_json.special if token in in_json.added]
        if "extra_special_tokens" in config:
            known = known | in_json.symbols
            added = {token: number for token, number in added.items() if token not in in_json.symbols}
    additional = [token for token in dict.fromkeys(additional) if token not in known]
    return {"added_tokens": added, "extra_special_tokens": additional}


def read_setting(name: str, value: Any) -> Any:
    """Return an attribute in `DEFAULTS`, by default for None; raise TokenizerError if it is not valid."""
    if value is None:
        return DEFAULTS.get(name)
    if name.endswith("_side"):
        return read_choice(name, value)
    if name == "model_max_length":
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < math.inf:
            raise TokenizerError(f"{name}={short(value)}: expected a whole number of at least 1")
        return int(value)
    if not isinstance(value, bool):
        raise TokenizerError(f"{name}={short(value)}: expected True or False")
    return value


def take_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tokenizer's arguments without the arguments of `transformers` that have no effect here.

    These are loading options (see `take_loading_options`), `use_fast`, `verbose`, `config`, and options for
    which ALBERT's tokenizers support only one value. Where a setting has two names, the result uses
    `extra_special_tokens` and `parse_special_tokens`.
    """
    taken = take_loading_options(settings)
    for name in ("use_fast", "verbose", "config"):
        taken.pop(name, None)
    for name, allowed in _FIXED.items():
        if name in taken and taken.pop(name) not in (None, allowed):
            raise TokenizerError(f"{name}={short(settings[name])} is not supported. Omit it.")
    if "additional_special_tokens" in taken:
        tokens = taken.pop("additional_special_tokens")
        taken["extra_special_tokens"] = taken.get("extra_special_tokens") or tokens
    if "split_special_tokens" in taken:
        parse = not read_setting("split_special_tokens", taken.pop("split_special_tokens"))
        taken.setdefault("parse_special_tokens", parse)
    return taken
