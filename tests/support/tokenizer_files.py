"""The two files of a SentencePiece vocabulary, which give the same encodings."""

from pathlib import Path

from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.tokenizer import AlbertTokenizer, AlbertTokenizerFast

FILES = ("spiece.model", "tokenizer.json")
LONG = "The captain opened a silver key near the harbour without a word"
SHORT = "An old fox found the river"


def load(file: str, vocabulary: Path, folder: Path, **rules: bool) -> TokenizerBase:
    """Load a vocabulary from its model, or from the tokenizer.json in the folder.

    If the folder has no tokenizer.json, write it first.
    """
    if file == "spiece.model":
        return AlbertTokenizer(vocabulary, **rules)
    if not (folder / file).exists():
        AlbertTokenizer(vocabulary).save_pretrained(folder)
    return AlbertTokenizerFast(tokenizer_file=folder / file, **rules)
