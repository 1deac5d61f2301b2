"""A vocabulary from each of its files, which give the same."""

from pathlib import Path

from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.tokenizer import AlbertTokenizer, AlbertTokenizerFast

FILES = ("spiece.model", "tokenizer.json")


def load(file: str, vocabulary: Path, folder: Path, **rules: bool) -> TokenizerBase:
    """Load a vocabulary from its model, or from the tokenizer.json that is saved with it in the folder."""
    if file == "spiece.model":
        return AlbertTokenizer(vocabulary, **rules)
    if not (folder / file).exists():
        AlbertTokenizer(vocabulary).save_pretrained(folder)
    return AlbertTokenizerFast(tokenizer_file=folder / file, **rules)
