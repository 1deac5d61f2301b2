"""Merge labels that differ only in case or spaces (the data option `merge_labels`)."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from albertkit.datasets.examples import TextExample, WordsExample
from albertkit.metrics import SCHEME_LABEL

Spell = Callable[[str], str]
"""Returns the spelling of a label to use."""


def spelling_key(label: str) -> str:
    """Return the text that is equal for labels that differ only in case or spaces."""
    return "".join(label.split()).casefold()


def spelling(names: Iterable[str], *, exact: bool) -> Spell:
    """Return the function that replaces labels by the most frequent spelling in `names`.

    Args:
        names: labels; a label may occur many times.
        exact: whether a label that is in `names` is not replaced, because the names are those of a model.
    """
    counts, spellings = Counter(names), dict[str, str]()
    for name, _ in counts.most_common():
        spellings.setdefault(spelling_key(name), name)
    return lambda label: label if exact and label in counts else spellings.get(spelling_key(label), label)


def labels_in(example: Any) -> list[str]:
    """Return the labels of an example; of a tagging scheme without prefixes, because types are merged."""
    labels: list[str] = []
    respelled(example, lambda label: labels.append(label) or label)
    return labels


def respelled(example: Any, spell: Spell) -> Any:
    """Return an example with the spelling of each of its labels replaced."""
    match example:
        case TextExample(label=str() as label):
            return replace(example, label=spell(label))
        case TextExample(label=tuple() as labels):
            return replace(example, label=tuple(dict.fromkeys(map(spell, labels))))
        case WordsExample(labels=tuple() as labels):
            return replace(example, labels=tuple(respelled_tag(label, spell) for label in labels))
    return example


def respelled_tag(tag: str, spell: Spell) -> str:
    """Return the label of a word, with its prefix in a tagging scheme unchanged."""
    match = SCHEME_LABEL.fullmatch(tag)
    return f"{match[1]}-{spell(match[2])}" if match else spell(tag)
