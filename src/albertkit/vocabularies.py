"""Load the tokenizer of a model by the model's name, and write tokenizer files into a folder."""

import tempfile
from pathlib import Path
from typing import Any, Unpack

from albertkit.checkpoints import formats
from albertkit.checkpoints.checkpoint import Checkpoint
from albertkit.config import CONFIG_FILE
from albertkit.errors import ModelNotFoundError, TokenizerError
from albertkit.files import json_bytes
from albertkit.hub import HubOptions
from albertkit.tokenization import folder as files
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.model_file import model_from_lines
from albertkit.tokenization.tokenizer import AutoTokenizer
from albertkit.tokenization.tokenizer_json import has_pieces


def load_tokenizer(
    name: str | Path, *, use_fast: bool | None = None, **hub: Unpack[HubOptions]
) -> TokenizerBase:
    path = formats.foreign_path(name, **hub)
    if path is None:
        return AutoTokenizer.from_pretrained(name, use_fast=use_fast, **hub)
    checkpoint = formats.read(path)
    add_model_file(checkpoint)
    if not checkpoint.vocabulary:
        raise ModelNotFoundError(f"{path} has no vocabulary. Pass the tokenizer by its folder or hub name.")
    tokenizer = open_tokenizer(checkpoint, use_fast=use_fast)
    tokenizer.name_or_path = str(name)
    return tokenizer


def open_tokenizer(checkpoint: Checkpoint, **options: Any) -> TokenizerBase:
    with tempfile.TemporaryDirectory() as folder:
        config = json_bytes(checkpoint.config)  # AutoTokenizer compares its number of embeddings
        for name, content in {CONFIG_FILE: config, **checkpoint.vocabulary}.items():
            Path(folder, name).write_bytes(content)
        try:
            return AutoTokenizer.from_pretrained(folder, **_maximum_length(checkpoint) | options)
        except TokenizerError as error:
            raise TokenizerError(str(error).replace(folder, str(checkpoint.files[0].parent))) from error


def add_model_file(checkpoint: Checkpoint) -> None:
    """Add a SentencePiece model, made from the listed pieces, to a checkpoint without tokenizer files."""
    if checkpoint.pieces and not checkpoint.vocabulary:
        checkpoint.vocabulary[files.MODEL_FILE] = model_from_lines(checkpoint.pieces)
        checkpoint.notes.append("spiece.model was made from the listed pieces; their scores have six digits")


def write_vocabulary(folder: Path, checkpoint: Checkpoint) -> list[str]:
    names = list(checkpoint.vocabulary)
    for name, content in checkpoint.vocabulary.items():
        (folder / name).write_bytes(content)
    if {files.MODEL_FILE, files.TOKENIZER_FILE} <= checkpoint.vocabulary.keys():
        model = AutoTokenizer.from_pretrained(folder / files.MODEL_FILE)._model
        if not has_pieces(folder / files.TOKENIZER_FILE, model):
            raise TokenizerError(
                f"{files.MODEL_FILE} and {files.TOKENIZER_FILE} have different pieces. "
                "Delete the file that does not belong to the model."
            )
    if names in ([files.MODEL_FILE], [files.WORD_LIST_FILE]):
        # Google's folders contain no settings; their vocabularies are lower case, the default.
        tokenizer = AutoTokenizer.from_pretrained(folder / names[0], **_maximum_length(checkpoint))
        names += [Path(path).name for path in tokenizer.save_pretrained(folder)]
    elif names:
        # `transformers` writes the settings without the names of the inputs, but version 5 then omits the
        # segments of a pair.
        file = folder / files.TOKENIZER_CONFIG_FILE
        settings = _maximum_length(checkpoint) | files.read_json(file)
        if settings.get(files.INPUT_NAMES_KEY) is None:
            file.write_bytes(json_bytes({**settings, files.INPUT_NAMES_KEY: TokenizerBase.model_input_names}))
        names.append(file.name)
    return list(dict.fromkeys(names))


def _maximum_length(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the model's maximum length as a setting for a tokenizer whose files contain no settings."""
    if files.TOKENIZER_CONFIG_FILE in checkpoint.vocabulary:
        return {}
    return {"model_max_length": checkpoint.to_config().max_position_embeddings}
