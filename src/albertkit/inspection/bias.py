"""Find the words that a model prefers for one group of people over another, as in ALBERT's model card.

A template such as "The [X] worked as a [MASK]." is filled with each group's word, and the predictions for the
mask are compared. One template shows one association of one model; it does not measure bias in general.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.errors import ConfigError, DataError, short
from albertkit.extras import optional
from albertkit.files import check_picture, write_picture
from albertkit.pipelines import FillMaskPipeline
from albertkit.tasks.scores import log_sum_exp

matplotlib_figure = optional("matplotlib.figure", extra="train")

SLOT = "[X]"
"""The placeholder for the group's word in a template."""
MOST_PLOTTED = 500
"""Maximum number of words in a plot."""


@dataclass(frozen=True)
class ComparedWord:
    """A word that is among the best predictions for at least one group."""

    token: int
    piece: str
    """The piece as the vocabulary writes it."""
    token_str: str
    """The word as text; empty for a lone word-start mark."""
    scores: dict[str, float]
    """The probability of the word for each group."""
    log2_ratios: dict[str, float]
    """For each group except the first: log2 of the ratio of its probability to the first group's."""

    @property
    def name(self) -> str:
        """The name of the word in a table."""
        return self.token_str.strip() or self.piece


@dataclass(frozen=True, repr=False)
class GroupComparison:
    """The words that a model prefers for each of several groups in one template."""

    template: str
    predictions: dict[str, list[dict[str, Any]]]
    """The best words for each group, in the format of `pipeline("fill-mask")`."""
    words: list[ComparedWord]
    """All words; those that the last group prefers most over the first come last."""
    model: str
    """Name of the model."""

    @property
    def groups(self) -> list[str]:
        """The words of the groups, in order."""
        return list(self.predictions)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        return {
            "model": self.model,
            "template": self.template,
            "groups": self.groups,
            "predictions": self.predictions,
            "words": [vars(word) for word in self.words],
        }

    def plot(self, target: str | Path) -> None:
        """Draw the probability of every word for every group, and the ratios, to a .png, .svg or .pdf file.

        Raises:
            ConfigError: the file has another ending, or there are too many words for a picture.
            MissingExtraError: Matplotlib is not installed.
        """
        target = Path(target)
        check_picture(target)
        words, groups = self.words, self.groups
        if len(words) > MOST_PLOTTED:
            raise ConfigError(
                f"the plot would have {len(words):,} words. Expected at most {MOST_PLOTTED}. Reduce top_k "
                "(--top-k)."
            )
        places = range(len(words))
        figure = matplotlib_figure.Figure(figsize=(9, 1.7 + 0.32 * len(words)), layout="constrained")
        shares, ratios = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        for place, word in zip(places, words, strict=True):
            ends = [min(word.scores.values()), max(word.scores.values())]
            shares.plot(ends, [place, place], color="0.75", zorder=1)
        for number, group in enumerate(groups):
            shares.plot(
                [word.scores[group] for word in words], places, "o", color=f"C{number}", label=_plain(group)
            )
        shares.set_yticks(places, [_plain(word.name) for word in words])
        shares.set(xscale="log", xlabel="probability", title=_plain(self.template))
        shares.legend()
        height = 0.8 / (len(groups) - 1)
        for number, group in enumerate(groups[1:]):
            middles = [place + (number + 0.5) * height - 0.4 for place in places]
            values = [word.log2_ratios[group] for word in words]
            ratios.barh(middles, values, height=height, color=f"C{number + 1}")
        ratios.axvline(0, color="0.3", linewidth=0.8)
        ratios.set(xlabel=_plain(f"log2 of the ratio to {groups[0]!r} (+1: twice)"))
        for panel in (shares, ratios):
            panel.grid(axis="x", alpha=0.3)
        write_picture(figure, target, dpi=150)

    def __repr__(self) -> str:
        return "\n".join([self.template, *("  ".join(row) for row in self._table())])

    def _repr_html_(self) -> str:
        rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self._table())
        table = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<p>{escape(self.template)}</p><table>{table}</table>"

    def _table(self) -> list[list[str]]:
        rows = [[word.name, *(f"{score:.2%}" for score in word.scores.values())] for word in self.words]
        cells = [["word", *self.groups], *rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cells]


def compare_words(
    fill: FillMaskPipeline, template: str, groups: Iterable[str], *, top_k: int, model: str
) -> GroupComparison:
    """Return the comparison of `compare_groups`, for a pipeline and the name of its model."""
    tokenizer, task = fill.tokenizer, fill.masked_lm
    if not isinstance(template, str) or SLOT not in template:
        raise DataError(
            f"there is no {SLOT} in the template {short(template)}. Write {SLOT} in place of the group's "
            f"word, as in 'The {SLOT} worked as a {tokenizer.mask_token}.'"
        )
    groups = [groups] if isinstance(groups, str) else list(groups)
    are_words = all(isinstance(group, str) and group.strip() for group in groups)
    if not are_words or len(groups) < 2 or len(set(groups)) < len(groups):
        raise DataError(
            f"the groups are {', '.join(map(repr, groups)) or 'none'}. Expected at least two different words."
        )
    texts = [template.replace(SLOT, group) for group in groups]
    rows = task.features(texts)
    for text, row in zip(texts, rows, strict=False):  # several masks may be several rows
        if (count := len(row.text.mask_positions)) != 1:
            raise DataError(f"there are {count} {tokenizer.mask_token} in {short(text)}. Expected one.")
        if row.text.windows is not None:
            raise DataError(
                f"{short(text)} has {len(row.text.input_ids)} tokens, but the model's maximum is "
                f"{task.max_length}. Shorten the template."
            )
    scores = fill.engine.run(rows, read=attrgetter("mask_positions"))  # of (1, V)
    # In float64 and as logarithms, so that very small probabilities do not become 0.
    logits = np.concatenate(scores).astype(np.float64)  # (groups, V)
    best = task.candidates(logits, top_k=top_k)
    union = list(dict.fromkeys(token_id for one in best for token_id in one.ids))
    logarithms = (logits - log_sum_exp(logits)[:, None])[:, union].T.tolist()  # a row for each word
    words = [
        ComparedWord(
            token=token_id,
            piece=tokenizer.convert_ids_to_tokens(token_id),
            token_str=tokenizer.decode([token_id]),
            scores={group: math.exp(one) for group, one in zip(groups, row, strict=True)},
            log2_ratios={
                group: (one - row[0]) / math.log(2) for group, one in zip(groups[1:], row[1:], strict=True)
            },
        )
        for token_id, row in zip(union, logarithms, strict=True)
    ]
    return GroupComparison(
        template=template,
        predictions=dict(zip(groups, task.predictions(texts, rows, [[one] for one in best]), strict=True)),
        words=sorted(words, key=lambda word: word.log2_ratios[groups[-1]]),
        model=model,
    )


def _plain(text: str) -> str:
    """Return text that Matplotlib draws unchanged: "$" alone would begin a formula."""
    return text.replace("$", r"\$")
