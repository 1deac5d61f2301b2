"""Sentence embedding: compute one vector per text, and the similarity of two texts.

There are three kinds of training data:

* Pairs of texts that belong together: the model learns to find the second text of each first text among all
  texts of the batch (contrastive learning with in-batch negatives; Henderson et al. 2017; Gao et al. 2021,
  section 4).
* Single texts: each text is its own second text, computed with another dropout (Gao et al. 2021, section 3).
* Pairs with similarity scores: the model learns the order of the scores.

Shapes: B examples, T tokens, R tokens read, H hidden size, D dimensions of a vector.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from albertkit.checkpoints.sentence_modules import (
    NORMALIZE_KEY,
    POOLING_KEY,
    TASK,
    Dense,
    Pooling,
    SentenceModules,
    check_pooling,
    sentence_modules,
)
from albertkit.config import AlbertConfig
from albertkit.datasets.examples import PairExample
from albertkit.engines.engine import Row, every_token, first_token, runs_of_examples
from albertkit.errors import ConfigError, DataError, did_you_mean, short, warn_caller
from albertkit.metrics import pearson, retrieval_scores, retrieve, spearman, unit
from albertkit.reference import ACTIVATIONS
from albertkit.tasks.rows import text_rows
from albertkit.tasks.task import Decision, Task, directions
from albertkit.tokenization.special_tokens import Parsing

CONSTANT = 0.01  # root mean square distance of unit vectors from their mean, below which they count as equal
_KINDS = {
    "alone": "single texts: the model learns to recognize each text under a different dropout mask",
    "scored": "pairs with scores: the model learns a higher cosine similarity for a pair with a higher score",
    "together": "pairs: the model learns to find the second text of each pair among other texts",
}


def text_vectors(
    config: AlbertConfig, *, pooling: Pooling | None = None, normalize: bool | None = None
) -> SentenceModules:
    """Return the modules that compute the vector of a text."""
    modules = sentence_modules(config) or SentenceModules()
    if pooling is not None and (chosen := check_pooling(pooling)) != modules.pooling:
        modules = replace(modules, pooling=chosen, steps=())
    return modules if normalize is None else replace(modules, normalize=normalize)


@dataclass(frozen=True, slots=True)
class Embedded:
    """The prediction for one example."""

    vectors: list[np.ndarray]
    """The vector (D,) of each text of the example."""
    similarity: float | None
    """The cosine similarity of the first two texts; None for a single text."""
    rank: int | None = None
    """The rank of the second text among all candidates, by similarity to the first text; None if there are no
    candidates."""
    nearest: str | None = None
    """The nearest candidate; None if there are no candidates."""


class SentenceEmbedding(Task[PairExample, Row, Embedded]):
    """Computes the vector of a text. Examples are matching pairs, pairs with scores, or single texts.

    Args:
        truncation: how to truncate long texts, see `text_rows`; None for the setting.
        parse_special_tokens: see `text_rows`.
        prompt_name: the name of a prompt of the model; None for its default prompt, if it has one.
        prompt: a text that is added before every text, instead of a prompt of the model.
    """

    name = TASK
    architecture = "AlbertModel"
    example_class = PairExample
    answer = "similarity"
    metrics = directions("mrr", "accuracy_at_1", "accuracy_at_10", "spearman", "pearson")
    objective = "embedding"
    output = "hidden_states"
    unused = ("pooler.",)
    minimum_length = 3

    def __init__(
        self,
        *,
        truncation: bool | str | None = None,
        parse_special_tokens: Parsing | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> None:
        self.truncation = truncation
        self.parse_special_tokens: Parsing | None = parse_special_tokens
        self.prompt_name, self.prompt = prompt_name, prompt

    def use_config(self, config: AlbertConfig) -> None:
        super().use_config(config)
        settings = self.settings
        self.modules = text_vectors(config, pooling=settings.pooling, normalize=settings.normalize)
        if settings.max_length is None and self.modules.max_length is not None:
            self.max_length = min(self.max_length, self.modules.max_length)
        self._before = _choose_prompt(self.modules, self.prompt_name, self.prompt)
        if self._before:
            count = len(self.tokenizer(self._with_prompt([""]), verbose=False)["input_ids"][0]) - 1
            if count >= self.max_length - 1:
                raise ConfigError(
                    f"the prompt {short(self._before)} has {count} tokens with [CLS], which leaves no room "
                    f"for a text: the maximum length is {self.max_length} tokens with [SEP]."
                )

    def _with_prompt(self, texts: Sequence[str]) -> list[str]:
        texts = [self._before + text for text in texts]
        # Tokenizers that lowercase texts do so at another position among their normalization steps.
        if self.modules.lower_case and not self.tokenizer.normalization.get("do_lower_case"):
            # Character by character: a Greek sigma then has no special form at the ends of words.
            return ["".join(map(str.lower, text)) for text in texts]
        return texts

    def saved(self, examples: Sequence[PairExample]) -> dict[str, Any]:
        entries = {POOLING_KEY: self.modules.pooling, NORMALIZE_KEY: self.modules.normalize}
        return super().saved(examples) | entries

    def check(
        self, training: Sequence[PairExample], validation: Sequence[PairExample], batch_size: int
    ) -> str:
        """Return a note on what is trained: it depends on the kind of examples."""
        kind, config = _kind(training), self.config
        if self.modules.steps:
            after = ", ".join(type(step).__name__ for step in self.modules.steps)
            what = f"the pooling {self.modules.pooling} of the model is followed by {after}"
            raise ConfigError(f"{what}, which cannot be trained. Choose another pooling (--pooling).")
        if batch_size < 2:
            raise ConfigError("batch_size is 1, but training compares the texts of a batch. Use at least 2.")
        if kind == "alone" and not (config.hidden_dropout_prob or config.attention_probs_dropout_prob):
            expected = "Set dropout to 0.1, or add second texts (--pair-column)."
            raise ConfigError(f"training on single texts needs dropout, but the model has none. {expected}")
        if kind == "scored" and len({example.score for example in training}) == 1:
            raise DataError(f"every pair has the score {training[0].score}. Expected at least two scores.")
        _kind(validation, alone=False)
        return _KINDS[kind]

    def features(self, examples: Sequence[PairExample]) -> list[Row]:
        """Return a row for each text of each example. Warn if a text is empty."""
        owners, texts = [], []
        for number, example in enumerate(examples):
            given = [text for text in (example.text, example.pair, example.negative) if text is not None]
            owners += [number] * len(given)
            texts += given
        if not all(map(str.strip, texts)):
            warn_caller("a text is empty, so its vector is computed from special tokens alone")
        rows = text_rows(
            self.tokenizer,
            self._with_prompt(texts),
            max_length=self.max_length,
            truncation=self.settings.truncation if self.truncation is None else self.truncation,
            parse_special_tokens=self.parse_special_tokens,
        )
        return [
            replace(row, example=owner, labels=examples[owner].score)
            for row, owner in zip(rows, owners, strict=True)
        ]

    def units(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Return the rows of each example together, a single text twice: dropout makes its vectors differ."""
        return [group * 2 if len(group) == 1 else group for group in runs_of_examples(rows)]

    def labels_of(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """Return no labels, because the encoder does not compute a loss."""
        return {}

    def read(self, row: Row) -> Sequence[int]:
        """Return the positions of the tokens that are pooled, or of [CLS] alone if it suffices."""
        return first_token(row) if self.modules.pooling == "cls" else every_token(row)

    def keep(self, scores: np.ndarray) -> np.ndarray:
        """Return the vector (D,) of a text from the hidden states of the read tokens, (T, H) or (1, H).

        If `stacks`, the hidden states can be those (B, T, H) of several texts; the result is then (B, D).
        """
        modules = self.modules
        if modules.pooling == "cls":
            vector = scores[..., 0, :]
        else:
            vector = scores.mean(axis=-2) if modules.pooling == "mean" else scores.max(axis=-2)
        for step in modules.steps:
            vector = _dense(vector, step) if isinstance(step, Dense) else unit(vector)
        # As in sentence-transformers, a shortened vector is not scaled again.
        return (unit(vector) if modules.normalize else vector)[..., : modules.dimensions]

    @property
    def stacks(self) -> bool:
        return not self.modules.steps

    def decode(self, example: PairExample, rows: list[tuple[Row, np.ndarray]]) -> Embedded:
        vectors = [vector for _, vector in rows]
        similarity = float(unit(vectors[0]) @ unit(vectors[1])) if len(vectors) > 1 else None
        return Embedded(vectors, similarity)

    def compared(self, examples: Sequence[PairExample], predictions: list[Embedded]) -> list[Embedded]:
        """Return the predictions with the rank of the second text and the nearest candidate.

        The candidates are the second texts and the negatives of all examples, without duplicates and without
        the first text itself. Predictions for pairs with scores are returned unchanged.
        """
        if _kind(examples, alone=False) == "scored":
            return predictions
        candidates: dict[str, np.ndarray] = {}
        matches: dict[str, set[str]] = {}
        for example, prediction in zip(examples, predictions, strict=True):
            # An example may have no negative.
            for text, vector in zip((example.pair, example.negative), prediction.vectors[1:], strict=False):
                candidates.setdefault(text or "", vector)
            matches.setdefault(example.text, set()).add(example.pair or "")
        numbers = {text: number for number, text in enumerate(candidates)}
        right = [{numbers[text] for text in matches[example.text]} for example in examples]
        itself = [{numbers[example.text]} if example.text in numbers else set[int]() for example in examples]
        ranks, nearest = retrieve(
            np.stack([prediction.vectors[0] for prediction in predictions]),
            np.stack(list(candidates.values())),
            right,
            left_out=[text - others for text, others in zip(itself, right, strict=True)],
        )
        texts = list(candidates)
        return [
            replace(prediction, rank=rank, nearest=texts[number])
            for prediction, rank, number in zip(predictions, ranks, nearest, strict=True)
        ]

    def record(self, example: PairExample, prediction: Embedded) -> dict[str, Any]:
        if prediction.similarity is None:
            return {"vector": prediction.vectors[0]}
        rank = {} if prediction.rank is None else {"rank": prediction.rank, "nearest": prediction.nearest}
        return {"similarity": prediction.similarity, **rank}

    def truth(self, example: PairExample) -> str | float:
        """Return the score, or else the matching text: a single text matches itself."""
        if example.score is not None:
            return example.score
        return example.text if example.pair is None else example.pair

    def scores(self, examples: Sequence[PairExample], predictions: Sequence[Embedded]) -> dict[str, float]:
        if _kind(examples, alone=False) == "scored":
            true = [example.score or 0.0 for example in examples]
            cosines = [prediction.similarity or 0.0 for prediction in predictions]
            scores = {"spearman": spearman(true, cosines), "pearson": pearson(true, cosines)}
            return {name: 0.0 if math.isnan(value) else value for name, value in scores.items()}
        return retrieval_scores(
            [prediction.rank for prediction in predictions if prediction.rank is not None]
        )

    def main_metric(self, examples: Sequence[PairExample]) -> str:
        return "spearman" if _kind(examples, alone=False) == "scored" else "mrr"

    def decisions(self, example: PairExample, prediction: Embedded) -> list[Decision]:
        if example.score is not None:
            return [Decision(example.score, prediction.similarity, example.score == prediction.similarity)]
        rank = prediction.rank or 0
        details = {"rank": rank, "similarity": prediction.similarity}
        return [Decision(example.pair, prediction.nearest, rank == 1, severity=rank, details=details)]

    def errors(self, example: PairExample, prediction: Embedded) -> list[Decision]:
        """Return the wrong match of a pair. Scores have only an order, so no single cosine is wrong."""
        return [] if example.score is not None else super().errors(example, prediction)

    def constant_answer(self, examples: Sequence[PairExample], predictions: Sequence[Embedded]) -> str | None:
        """Return "one vector" if the vectors of different texts are almost equal, else None."""
        own = {
            example.text: prediction.vectors[0]
            for example, prediction in zip(examples, predictions, strict=True)
        }
        mean = unit(np.stack(list(own.values()))).mean(axis=0)
        if len(own) > 1 and 1 - float(mean @ mean) < CONSTANT**2:
            return "one vector"
        return None


def _dense(vector: np.ndarray, step: Dense) -> np.ndarray:
    outputs = step.weight @ vector  # (D, C) @ (C,)
    if step.bias is not None:
        outputs = outputs + step.bias
    outputs = ACTIVATIONS[step.activation](outputs)
    if not step.is_residual:
        return outputs
    return outputs + (vector if step.residual is None else step.residual @ vector)


def _choose_prompt(modules: SentenceModules, name: str | None, text: str | None) -> str:
    for argument, value in (("prompt_name", name), ("prompt", text)):
        if not isinstance(value, str | None):
            raise ConfigError(f"{argument} is {short(value)}. Expected a text.")
    if name is not None and text is not None:
        raise ConfigError(f"prompt_name is {name!r} and prompt is {short(text)}. Expected only one of them.")
    chosen = modules.default_prompt_name if name is None else name
    if text is not None or chosen is None:
        return text or ""
    if chosen not in modules.prompts:
        known = ", ".join(map(repr, modules.prompts)) or "none"
        raise ConfigError(
            f"prompt_name is {chosen!r}{did_you_mean(chosen, modules.prompts)}. Expected a prompt of the "
            f"model: {known}."
        )
    return modules.prompts[chosen]


def _kind(examples: Sequence[PairExample], *, alone: bool = True) -> str:
    """Return the kind of all examples, a key of `_KINDS`. Unless `alone`, single texts are an error."""
    if examples[0].pair is None:
        if not alone:
            what = f"{examples[0].id} has one text, but sentence embeddings are evaluated on pairs"
            raise DataError(f"{what}. Add second texts (--pair-column), with scores or without.")
        return "alone"
    return "together" if examples[0].score is None else "scored"
