"""The pipeline that classifies texts with labels that the model was not trained on.

Each label becomes a sentence, the hypothesis. A natural language inference model predicts whether the text
entails the hypothesis (Yin et al. 2019).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from albertkit.engines.engine import Row, by_example
from albertkit.engines.light_model import Model
from albertkit.errors import ConfigError, short
from albertkit.pipelines.interface import Batching, Pipeline
from albertkit.pipelines.limits import read_limits
from albertkit.reference import softmax
from albertkit.tasks.rows import text_rows
from albertkit.tokenization.base import TokenizerBase

TEMPLATE = "This example is {}."
"""The default hypothesis of a label."""
_TEMPLATE = re.compile(r"((?:[^{}]|\{\{|\}\})*)\{0?\}((?:[^{}]|\{\{|\}\})*)")


class ZeroShotClassificationPipeline(Pipeline):
    """Predicts labels of your choice for a text with a natural language inference model.

    `pipeline("zero-shot-classification")` creates one. The model needs a label that begins with "entail".
    """

    task = "zero-shot-classification"
    architecture = "AlbertForSequenceClassification"
    by_name = 'Pass several texts as a list, and the labels as candidate_labels=["...", "..."]'

    def __init__(self, model: Model, tokenizer: TokenizerBase, **options: Any) -> None:
        super().__init__(model, tokenizer, **options)
        self.entailment_id = _require_entailment(model.config.label2id)
        """The id of the label that means that the text entails the hypothesis."""

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
            truncation: True truncates a text that exceeds the maximum length, but never its hypothesis; False
                raises an error. "longest_first" and "only_second" can truncate the hypothesis too. The answer
                then has `cut`, the maximum number of tokens removed for a label. Default: True for a model
                with a maximum length of the fine-tuning, if you do not pass `max_length`; otherwise False.
            max_length: maximum number of tokens of a text with its hypothesis and special tokens. Default:
                the maximum length of the fine-tuning, or the model's maximum if its config has none.
            batching: `batch_size`, the maximum number of rows in a batch (each label of a text is a row);
                `num_workers`, which has no effect.

        Returns:
            {"sequence": the text, "labels": the labels, best first, "scores": their probabilities}. For
            several texts, a list or generator of these.

        Raises:
            DataError: an input is not a text, or is too long.
            ConfigError: there are no labels, or the template does not have exactly one `{}`.
        """
        labels = _read_labels(self._option("candidate_labels", candidate_labels))
        before, after = split_template(self._option("hypothesis_template", hypothesis_template, TEMPLATE))
        strategy, longest = read_limits(
            self._option("truncation", truncation),
            self._option("max_length", max_length),
            most=self.max_length,
            trained=self.trained_length,
            by_default="only_first",  # shortens the text, never its hypothesis
        )
        apart = len(labels) == 1 or self._option("multi_label", multi_label, False)

        def features(texts: list[str]) -> list[Row]:
            """Return a row for each text with each hypothesis."""
            pairs = [(text, f"{before}{label}{after}") for text in texts for label in labels]
            rows = text_rows(self.tokenizer, pairs, max_length=longest, truncation=strategy)
            return [replace(row, example=row.example // len(labels)) for row in rows]

        def answer(texts: list[str], rows: Sequence[Row], logits: list[np.ndarray]) -> list[dict[str, Any]]:
            answers = []
            for text, own in zip(texts, by_example(rows, logits, count=len(texts)), strict=True):
                scores = self._scores(np.stack([of_row for _, of_row in own]), apart)
                best = np.argsort(scores, kind="stable")[::-1]
                cut = max(row.cut for row, _ in own)
                found = {"labels": [labels[place] for place in best], "scores": scores[best].tolist()}
                answers.append({"sequence": text, **found, **({"cut": cut} if cut else {})})
            return answers

        run = partial(self.engine.run, then=lambda scores: scores[0])
        return self._run(sequences, others, features=features, run=run, answer=answer, **batching)

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
    found = _TEMPLATE.fullmatch(template) if isinstance(template, str) else None
    if found is None:
        raise ConfigError(
            f"hypothesis_template is {short(template)}. Expected a text with one {{}} for the label, such as "
            f"{TEMPLATE!r}."
        )
    before, after = (text.replace("{{", "{").replace("}}", "}") for text in found.groups())
    return before, after


def as_labels(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return an answer of the pipeline in the format of text classification: label and score, best first."""
    cut = {"cut": answer["cut"]} if "cut" in answer else {}
    pairs = zip(answer["labels"], answer["scores"], strict=True)
    return [{"label": label, "score": score, **cut} for label, score in pairs]
