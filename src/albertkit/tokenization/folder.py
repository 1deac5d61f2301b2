"""Read and write the tokenizer files of a model folder, in the layout of `transformers`.

    spiece.model              the SentencePiece model, byte for byte as received; or
    vocab.txt                 the word list of a WordPiece vocabulary
    tokenizer.json            the same vocabulary and rules for the Rust library
    tokenizer_config.json     normalization rules, special tokens, lengths
    special_tokens_map.json   the special tokens again, for older readers

An `added_tokens.json` (in older folders) is also read.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from albertkit import hub
from albertkit.errors import ModelNotFoundError, TokenizerError, reading
from albertkit.files import atomic_path, contents, made_folder
from albertkit.files import read_json as read_object
from albertkit.hub import HubOptions
from albertkit.tokenization.batch import NO_LIMIT
from albertkit.tokenization.normalization import BertNormalization, Normalization
from albertkit.tokenization.settings import DEFAULTS, read_setting, take_settings
from albertkit.tokenization.special_tokens import DEFAULT_ROLES, token_text, token_texts
from albertkit.tokenization.subword import SubwordModel

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


def locate(name_or_path: str | Path, *, also: tuple[str, ...] = (), **options: Unpack[HubOptions]) -> Path:
    """Return a tokenizer's folder, downloaded if necessary, or the path itself if it is a file."""
    path = hub.as_path(name_or_path)
    return (
        path if path and path.is_file() else hub.resolve(name_or_path, patterns=(*PATTERNS, *also), **options)
    )


def find_model_file(path: Path) -> Path | None:
    """Return the SentencePiece model of a folder (or the path itself if it is one), or None."""
    if path.is_file():
        return None if path.suffix in (".json", ".txt") else path
    for name in (MODEL_FILE, "30k-clean.model"):
        if (path / name).is_file():
            return path / name
    models = sorted([*path.glob("*.model"), *path.glob("*.spm")])
    if len(models) > 1:
        names = ", ".join(file.name for file in models)
        raise TokenizerError(
            f"{path} has several SentencePiece models ({names}). Pass the path of one of them."
        )
    return models[0] if models else None


def locate_model_file(name_or_path: str | Path) -> Path:
    """Return the SentencePiece model of a tokenizer by the tokenizer's name, as `locate` does."""
    path = locate(name_or_path)
    file = find_model_file(path)
    if file is None:
        raise missing(path, MODEL_FILE)
    return file


def find(path: Path, name: str) -> Path | None:
    """Return the file with this name in a folder (or the path itself if it is that file), or None.

    A SentencePiece model may have another name; see `find_model_file`.
    """
    if name == MODEL_FILE:
        return find_model_file(path)
    file = path if path.is_file() else path / name
    return file if file.suffix == Path(name).suffix and file.is_file() else None


def find_files(path: Path, vocabulary_file: str) -> dict[str, Path]:
    """Return the vocabulary files of a folder as arguments of a tokenizer class."""
    names = {"vocab_file": vocabulary_file, "tokenizer_file": TOKENIZER_FILE}
    files = {argument: file for argument, name in names.items() if (file := find(path, name))}
    if not files:
        raise missing(path, f"{vocabulary_file}, or {TOKENIZER_FILE} in its place")
    return files


def missing(path: Path, expected: str) -> ModelNotFoundError:
    kind = "is a file of another kind" if path.is_file() else "does not exist"
    holds = contents(path) if path.is_dir() else kind
    hint = "; AutoTokenizer opens its vocab.txt" if find(path, WORD_LIST_FILE) else ""
    return ModelNotFoundError(f"{path} {holds}. Expected {expected}{hint}")


def read_settings(
    path: Path,
    *,
    normalization: type[Normalization | BertNormalization] = Normalization,
    default_roles: Mapping[str, str] = DEFAULT_ROLES,
) -> dict[str, Any]:
    """Return the settings of a folder as arguments of the tokenizer class."""
    folder = path if path.is_dir() else path.parent
    file = folder / TOKENIZER_CONFIG_FILE
    with reading(file, TokenizerError):
        try:
            return _read_settings(folder, normalization, default_roles)
        except TokenizerError as error:
            raise TokenizerError(str(error) if str(folder) in str(error) else f"{file}: {error}") from error


def _read_settings(
    folder: Path, normalization: type[Normalization | BertNormalization], default_roles: Mapping[str, str]
) -> dict[str, Any]:
    config = read_json(folder / TOKENIZER_CONFIG_FILE)
    roles = read_json(folder / SPECIAL_TOKENS_FILE)
    roles |= {name: value for name, value in config.items() if value is not None or name not in roles}
    rules = {field.name: config.get(field.name) for field in fields(normalization)}
    settings = {name: value for name, value in rules.items() if value is not None}
    normalization(**settings)  # raises if a value is invalid
    for name in DEFAULTS:
        if config.get(name) is not None:
            settings[name] = read_setting(name, config[name])
    if config.get("split_special_tokens") is not None:
        settings["split_special_tokens"] = config["split_special_tokens"]
    if settings.get("model_max_length", 0) > NO_LIMIT:
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


def read_json(file: Path) -> dict[str, Any]:
    return read_object(file, TokenizerError) if file.is_file() else {}


def has_wordpiece_vocabulary(file: Path) -> bool:
    if b'"WordPiece"' not in file.read_bytes():  # faster than parsing a large file first
        return False
    model = read_json(file).get("model")
    return isinstance(model, dict) and model.get("type") == "WordPiece"


def write(folder: str | Path, files: Mapping[str, bytes], *, prefix: str | None = None) -> tuple[str, ...]:
    """Write all files into a folder, or none if one fails, and return their paths."""
    folder = Path(folder)
    models = sorted([*folder.glob("*.model"), *folder.glob("*.spm")])
    if not prefix and MODEL_FILE not in files and models:
        raise TokenizerError(
            f"{models[0]} is the vocabulary of another tokenizer, and would be loaded in place of the files "
            "to save. Delete it, or choose another folder."
        )
    paths = [folder / (f"{prefix}-{name}" if prefix else name) for name in files]
    with made_folder(folder), ExitStack() as stack:
        for path, content in zip(paths, files.values(), strict=True):
            stack.enter_context(atomic_path(path)).write_bytes(content)
    return tuple(map(str, paths))


def difference_of_pieces(
    vocabulary: Path, tokenizer_file: Path, model: SubwordModel, *, sampled: bool = False
) -> str | None:
    """Return a message if a tokenizer.json has other pieces than the vocabulary file."""
    try:
        with reading(tokenizer_file, TokenizerError):
            listed: Any = (read_json(tokenizer_file).get("model") or {}).get("vocab") or {}
            ids = listed if isinstance(listed, dict) else {piece: id for id, (piece, _) in enumerate(listed)}
    except TokenizerError as error:
        return f"{error} albertkit uses {vocabulary.name}, but other libraries use this file."
    size = max(ids.values(), default=-1) + 1
    # Two vocabularies usually differ in most pieces.
    sample = list(ids)[:: max(1, len(ids) // 100)] if sampled else ids
    if size == model.size and all(model.token_to_id(piece) == ids[piece] for piece in sample):
        return None
    return (
        f"{vocabulary}: its {model.size:,} pieces differ from the {size:,} pieces of {tokenizer_file.name}. "
        f"albertkit uses {vocabulary.name}, and other libraries use {tokenizer_file.name}. Delete the file "
        "that does not belong to the model."
    )


class ListedTokens(NamedTuple):
    """The tokens that a tokenizer.json lists in addition to its pieces."""

    added: dict[str, int]
    """The tokens that are not in the vocabulary, with their ids."""
    special: list[str]
    """The special tokens, in or after the vocabulary."""
    symbols: set[str]
    """The user-defined symbols of the vocabulary."""


def listed_tokens(content: Mapping[str, Any]) -> ListedTokens:
    """Return the added and special tokens in the content of a tokenizer.json.

    `transformers` 5 writes added tokens only into this file, even if the folder has a spiece.model. It also
    lists the user-defined symbols of the vocabulary as added tokens, and the folder's settings list them as
    special tokens, including brackets and the full stop. The original does not split texts at them. They
    are the added tokens that are pieces with SentencePiece's score 0.
    """
    vocabulary = (content.get("model") or {}).get("vocab") or ()
    is_unigram = not isinstance(vocabulary, dict)
    pieces = {piece for piece, _ in vocabulary} if is_unigram else set(vocabulary)
    tokens = {token_text(token): token for token in content.get("added_tokens") or ()}
    symbols = {
        text
        for text, token in tokens.items()
        if is_unigram and not token["special"] and [text, 0] in vocabulary[token["id"] : token["id"] + 1]
    }
    return ListedTokens(
        added={text: token["id"] for text, token in tokens.items() if text not in pieces},
        special=[text for text, token in tokens.items() if token["special"]],
        symbols=symbols,
    )
