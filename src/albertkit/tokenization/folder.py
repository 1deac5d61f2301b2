"""The tokenizer's files in a model folder, as `transformers` lays them out.

    spiece.model              the SentencePiece model, byte for byte as it was given; or
    vocab.txt                 the word list of a WordPiece vocabulary
    tokenizer.json            the same vocabulary and rules for the Rust library
    tokenizer_config.json     rules of normalisation, special tokens, lengths
    special_tokens_map.json   special tokens again, for older readers

Also read where present: `added_tokens.json` (older folders).
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

from albertkit import hub
from albertkit.errors import ModelNotFoundError, TokenizerError
from albertkit.files import atomic_path, contents, json_text
from albertkit.tokenization.normalization import BertNormalization, Normalization
from albertkit.tokenization.special_tokens import DEFAULT_ROLES, SpecialTokens, token_text

MODEL_FILE = "spiece.model"
WORD_LIST_FILE = "vocab.txt"
RUST_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"
ADDED_TOKENS_FILE = "added_tokens.json"

PATTERNS = (
    "*.model",
    "*.spm",
    WORD_LIST_FILE,
    RUST_FILE,
    CONFIG_FILE,
    SPECIAL_TOKENS_FILE,
    ADDED_TOKENS_FILE,
)

_SETTINGS = (
    "model_max_length",
    "padding_side",
    "truncation_side",
    "parse_special_tokens",
    "clean_up_tokenization_spaces",
)
# `transformers` writes a huge number where it knows no limit.
_NO_LIMIT = 10**9


def locate(name_or_path: str | Path, **hub_options: Any) -> Path:
    """Return a tokenizer's folder, or the very file where a file was named.

    Raises ModelNotFoundError as `hub.resolve` does.
    """
    path = Path(name_or_path).expanduser()
    return path if path.is_file() else hub.resolve(name_or_path, patterns=PATTERNS, **hub_options)


def find_model_file(path: Path) -> Path | None:
    """Return the SentencePiece model in a folder (or the file itself), None where there is none.

    Raises TokenizerError where a folder holds several and none has a usual name.
    """
    if path.is_file():
        return None if path.suffix in (".json", ".txt") else path
    for name in (MODEL_FILE, "30k-clean.model"):
        if (path / name).is_file():
            return path / name
    found = sorted([*path.glob("*.model"), *path.glob("*.spm")])
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise TokenizerError(
            f"{path} holds several SentencePiece models ({names}); pass the path of the one meant"
        )
    return found[0] if found else None


def find_rust_file(path: Path) -> Path | None:
    """Return the tokenizer.json in a folder (or the file itself), None where there is none."""
    file = path if path.is_file() else path / RUST_FILE
    return file if file.suffix == ".json" and file.is_file() else None


def find_word_list(path: Path) -> Path | None:
    """Return the vocab.txt in a folder (or the file itself), None where there is none."""
    file = path if path.is_file() else path / WORD_LIST_FILE
    return file if file.suffix == ".txt" and file.is_file() else None


def missing(path: Path, expected: str) -> ModelNotFoundError:
    """Return the error for a folder without the file expected."""
    holds = contents(path) if path.is_dir() else "is a file of another kind"
    hint = "; AutoTokenizer opens its vocab.txt" if find_word_list(path) else ""
    return ModelNotFoundError(f"{path} {holds}; expected {expected}{hint}")


def read_settings(
    path: Path,
    *,
    normalization: type[Normalization | BertNormalization] = Normalization,
    default_roles: Mapping[str, str] = DEFAULT_ROLES,
) -> dict[str, Any]:
    """Return what the folder says of the tokenizer, as arguments of its class.

    Args:
        path: the folder, or a file in it.
        normalization: the rules that the class has.
        default_roles: its token of each role.

    Raises TokenizerError for a file that is no JSON object, or a token that is none.
    """
    folder = path if path.is_dir() else path.parent
    config = read_json(folder / CONFIG_FILE)
    roles = {**read_json(folder / SPECIAL_TOKENS_FILE), **config}
    names = [*(field.name for field in fields(normalization)), *_SETTINGS]
    settings = {name: config[name] for name in names if config.get(name) is not None}
    if settings.get("model_max_length", 0) > _NO_LIMIT:
        del settings["model_max_length"]
    if "split_special_tokens" in config and "parse_special_tokens" not in config:
        settings["parse_special_tokens"] = not config["split_special_tokens"]
    settings |= {role: token_text(roles[role]) for role in DEFAULT_ROLES if roles.get(role) is not None}

    added = {str(token): int(number) for token, number in read_json(folder / ADDED_TOKENS_FILE).items()}
    additional = _additional(
        roles.get("additional_special_tokens") or roles.get("extra_special_tokens") or ()
    )
    for number, token in config.get("added_tokens_decoder", {}).items():
        added[token_text(token)] = int(number)
        if token.get("special"):
            additional.append(token_text(token))
    known = {settings.get(role, default) for role, default in default_roles.items()}
    if "extra_special_tokens" in config:
        symbols = _user_defined(folder / RUST_FILE)
        known |= symbols
        added = {token: number for token, number in added.items() if token not in symbols}
    additional = [token for token in dict.fromkeys(additional) if token not in known]
    # Of what is not said here, the tokenizer.json may know.
    lists = {"added_tokens": added, "additional_special_tokens": additional}
    return settings | {name: value for name, value in lists.items() if value}


def read_json(file: Path) -> dict[str, Any]:
    """Return a JSON object, an empty one where there is no such file."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(
            f"{file}: expected JSON ({error}); the file is damaged or of another kind"
        ) from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{file}: expected a JSON object, received a {type(value).__name__}")
    return value


def write(folder: str | Path, files: Mapping[str, bytes], *, prefix: str | None = None) -> tuple[str, ...]:
    """Write files into a folder, all or none; return their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / (f"{prefix}-{name}" if prefix else name) for name in files]
    with ExitStack() as stack:
        for path, content in zip(paths, files.values(), strict=True):
            stack.enter_context(atomic_path(path)).write_bytes(content)
    return tuple(map(str, paths))


def describe(special_tokens: SpecialTokens) -> dict[str, Any]:
    """Return every token that stands for itself in the form of `tokenizer_config.json`."""
    special = set(special_tokens.special)
    ids = sorted((number, token) for token, number in special_tokens.ids.items())
    return {
        str(number): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": token in special,
        }
        for number, token in ids
    }


def as_json(value: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file."""
    return (json_text(value, indent=2, ensure_ascii=False) + "\n").encode()


def _user_defined(rust_file: Path) -> set[str]:
    """Return the vocabulary's user-defined symbols in a tokenizer.json of `transformers` 5.

    It lists them as added tokens and the settings beside it call them special, brackets and the full stop
    included; the original does not cut a text at them. They are pieces with SentencePiece's score of 0.
    """
    content = read_json(rust_file)
    vocabulary = (content.get("model") or {}).get("vocab") or ()
    return {
        token["content"]
        for token in content.get("added_tokens", ())
        if not token["special"] and [token["content"], 0] in vocabulary[token["id"] : token["id"] + 1]
    }


def _additional(value: Mapping[str, Any] | Iterable[Any]) -> list[str]:
    return [token_text(token) for token in (value.values() if isinstance(value, Mapping) else value)]
