"""The pipeline that classifies texts with labels that the model was not trained on.

Each label becomes a sentence, the hypothesis. A natural language inference model predicts whether the text
entails the hypothesis (Yin et al. 2019).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import Formatter
from typing import Any, Unpack

import numpy as np

from albertkit.engines.engine import Row
from albertkit.engines.light_model import Model
from albertkit.errors import ConfigError, short
from albertkit.pipelines.interface import Batching, Pipeline, Shared
from albertkit.pipelines.limits import read_limits
from albertkit.tasks.rows import text_rows
from albertkit.tasks.scores import softmax
from albertkit.tokenization.base import TokenizerBase

TEMPLATE = "This example is {}."
"""The default hypothesis of a label."""


class ZeroShotClassificationPipeline(Pipeline):
    """Predicts labels of your choice for a text with a natural language inference model.

    `pipeline("zero-shot-classification")` creates one. The model needs a label that begins with "entail".
    """

    task = "zero-shot-classification"
    architecture = "AlbertForSequenceClassification"
    by_name = 'Pass several texts as a list, and the labels as candidate_labels=["...", "..."]'

    def __init__(
        self,
        model: Model,
        tokenizer: TokenizerBase,
        *,
        candidate_labels: str | Sequence[str] | None = None,
        hypothesis_template: str = TEMPLATE,
        multi_label: bool = False,
        truncation: bool | str = False,
        max_length: int | None = None,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(model, tokenizer, **shared)
        self.entailment_id = _require_entailment(model.config.label2id)
        """The id of the label that means that the text entails the hypothesis."""
        self.candidate_labels = candidate_labels
        self.hypothesis_template = hypothesis_template
        self.multi_label = multi_label
        self._limits = {"truncation": _of_text(truncation), "max_length": max_length}

    def __call__(
        self,
        sequences: str | Iterable[str] | Path,
        candidate_labels: str | Sequence[str] | None = None,
        *others: Any,
        hypothesis_template: str | None = None,
        multi_label: bool | None = None,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        **batching: Unpack[Batching],
    ) -> Any:
        """Score the candidate labels of texts.

        Args:
            sequences: a text, a list of texts, an iterable of texts, or a file of texts.
            candidate_labels: the labels, as a list or separated by commas.
            others: not supported; a third positional argument raises an error.
            hypothesis_template: the hypothesis to test for each label. The label replaces `{}`. Default:
                "This example is {}."
            multi_label: whether to score each label independently, against contradiction, so that several
                can apply. Otherwise, the scores of all labels sum to 1. A single label is always independent.
            truncation: True truncates a text that exceeds the maximum length instead of raising an error, but
                never its hypothesis. "longest_first" and "only_second" can truncate the hypothesis too. The
                answer then has `cut`, the maximum number of tokens removed for a label.
            max_length: maximum number of tokens of a text with its hypothesis and special tokens. Default:
                with truncation the maximum length of the fine-tuning, otherwise the model's maximum.
            batching: `batch_size`, the maximum number of rows in a batch (each label of a text is a row);
                `num_workers`, which has no effect.

        Returns:
            {"sequence": the text, "labels": the labels, best first, "scores": their probabilities}. For
            several texts, a list or generator of these.

        Raises:
            DataError: an input is not a text, or is too long.
            ConfigError: there are no labels, or the template does not have exactly one `{}`.
        """
        labels = _read_labels(self.candidate_labels if candidate_labels is None else candidate_labels)
        before, after = split_template(
            self.hypothesis_template if hypothesis_template is None else hypothesis_template
        )
        strategy, longest = read_limits(
            self._limits,
            {"truncation": _of_text(truncation), "max_length": max_length},
            most=self.max_length,
            trained=self.trained_length,
        )
        apart = len(labels) == 1 or (self.multi_label if multi_label is None else multi_label)

        def features(texts: list[str]) -> list[Row]:
            """Return a row for each text with each hypothesis."""
            pairs = [(text, f"{before}{label}{after}") for text in texts for label in labels]
            rows = text_rows(self.tokenizer, pairs, max_length=longest, truncation=strategy)
            return [replace(row, example=row.example // len(labels)) for row in rows]

        def answer(texts: list[str], rows: list[Row], *, batch_size: int | None) -> list[dict[str, Any]]:
            logits = self.engine.run(
                rows, then=lambda scores: scores[0], batch_tokens=self.batch_tokens, batch_size=batch_size
            )
            answers = []
            for number, text in enumerate(texts):
                own = slice(number * len(labels), (number + 1) * len(labels))
                scores = self._scores(np.stack(logits[own]), apart)
                best = np.argsort(scores, kind="stable")[::-1]
                cut = max(row.cut for row in rows[own])
                answers.append(
                    {
                        "sequence": text,
                        "labels": [labels[place] for place in best],
                        "scores": scores[best].tolist(),
                        **({"cut": cut} if cut else {}),
                    }
                )
            return answers

        return self._run(sequences, others, features=features, answer=answer, **batching)

    def _scores(self, logits: np.ndarray, apart: bool) -> np.ndarray:
        """Return the probability of each of L labels (L,), from their logits (L, K)."""
        if not apart:
            return softmax(logits[:, self.entailment_id])
        # As in `transformers`, contradiction is the first class, or the last if the first is entailment.
        contradiction = -1 if self.entailment_id == 0 else 0
        return softmax(logits[:, [contradiction, self.entailment_id]])[:, 1]


def find_entailment(label2id: Mapping[str, int]) -> int | None:
    """Return the id of the entailment label, found by its name as in `transformers`, or None."""
    for name, number in label2id.items():
        if name.lower().startswith("entail") and len(label2id) > 1:
            return number
    return None


def _require_entailment(label2id: Mapping[str, int]) -> int:
    number = find_entailment(label2id)
    if number is None:
        raise ConfigError(
            f"the model has the labels {', '.join(label2id)}. Zero-shot classification needs a label whose "
            'name begins with "entail" and at least one other label. Choose a model for natural language '
            "inference (MNLI, RTE), or name the labels in id2label of its config.json."
        )
    return number


def _of_text(truncation: bool | str | None) -> bool | str | None:
    """Return the truncation that shortens the text and never its hypothesis."""
    return "only_first" if truncation is True else truncation


def _read_labels(given: str | Sequence[str] | None) -> list[str]:
    labels = given.split(",") if isinstance(given, str) else given
    if not isinstance(labels, list | tuple) or not all(isinstance(label, str) for label in labels):
        raise ConfigError(
            f"candidate_labels is {short(given)}. Expected a list of labels, or labels separated by commas."
        )
    if isinstance(given, str):  # as in `transformers`; labels in a list are not stripped
        labels = [label.strip() for label in labels if label.strip()]
    if not labels or not all(label.strip() for label in labels):
        raise ConfigError(
            f"candidate_labels is {short(given)}. Expected at least one label, and no empty label."
        )
    return [*labels]


def split_template(template: str) -> tuple[str, str]:
    """Return the text before and after the label; `{{` and `}}` are braces, as in `str.format`.

    Other features of `str.format` are not supported, because templates can come from untrusted users: a width
    could use any amount of memory, and an attribute could show parts of the program.

    Raises:
        ConfigError: the template does not have exactly one placeholder for the label.
    """
    problem = ConfigError(
        f"hypothesis_template is {short(template)}. Expected a text with one {{}} for the label, "
        f"such as {TEMPLATE!r}."
    )
    texts, places = [""], 0
    try:
        for text, *place in Formatter().parse(template):
            texts[-1] += text
            if place != [None, None, None]:
                if place not in (["", "", None], ["0", "", None]):
                    raise problem
                places += 1
                texts.append("")
    except (TypeError, ValueError) as error:
        raise problem from error
    if places != 1:
        raise problem
    before, after = texts
    return before, after


def as_labels(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return an answer of the pipeline in the format of text classification: label and score, best first."""
    cut = {"cut": answer["cut"]} if "cut" in answer else {}
    pairs = zip(answer["labels"], answer["scores"], strict=True)
    return [{"label": label, "score": score, **cut} for label, score in pairs]
