"""Tests that calls of pipelines and tasks change nothing and can be repeated."""

import dataclasses
from copy import deepcopy
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from bound_tasks import bound
from hypothesis import strategies as st
from pipeline_inputs import LIMIT
from training_losses import loss_of

from albertkit.datasets.examples import ChoiceExample, PairExample, QuestionExample, TextExample, WordsExample
from albertkit.engines.torch import TorchEngine
from albertkit.finetuning.losses import training_inputs
from albertkit.modeling.model import AlbertModel
from albertkit.pipelines import Pipeline
from albertkit.tasks.multiple_choice import MultipleChoice
from albertkit.tasks.question_answering import QuestionAnswering
from albertkit.tasks.sentence_embedding import SentenceEmbedding
from albertkit.tasks.text_classification import TextClassification
from albertkit.tasks.token_classification import TokenClassification

CPU = torch.device("cpu")
WORDS = st.lists(st.sampled_from(["the", "harbour", "[SEP]", "a", "silver", "\U0001f600", ","]), max_size=9)
TEXT = WORDS.map(" ".join)
SHORT = st.lists(st.sampled_from(["the", "harbour", "[SEP]", "a", "silver"]), max_size=4).map(" ".join)
"""Texts that fit into the maximum length together with a text of TEXT, and into half of a short window."""
INPUTS: dict[str, st.SearchStrategy[Any]] = {
    "fill-mask": TEXT.map(lambda text: f"{text} [MASK]"),
    "feature-extraction": TEXT,
    "token-classification": TEXT | WORDS,
    "text-classification": TEXT
    | st.tuples(TEXT, TEXT)
    | st.fixed_dictionaries({"text": TEXT}, optional={"text_pair": TEXT})
    | st.tuples(TEXT, TEXT).map(lambda pair: [[*pair]]),
    "sentence-order": st.tuples(TEXT, TEXT) | st.fixed_dictionaries({"text": TEXT, "text_pair": TEXT}),
    "question-answering": st.fixed_dictionaries(
        {"question": SHORT.map("who {}".format), "context": TEXT.map("a {}".format)}
    ),
    "multiple-choice": st.fixed_dictionaries(
        {"context": TEXT, "choices": st.lists(SHORT, min_size=2, max_size=3)}, optional={"question": SHORT}
    ),
}
OPTIONS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "fill-mask": {
        "top_k": st.integers(1, 4),
        "targets": st.just(["word", "a"]),
        "tokenizer_kwargs": st.just({"padding": True, "max_length": 9}),
    },
    "feature-extraction": {
        "pooling": st.sampled_from(["mean", "cls", "none"]),
        "normalize": st.booleans(),
        "tokenize_kwargs": st.just({"truncation": True, "max_length": 5}),
    },
    "token-classification": {
        "aggregation_strategy": st.sampled_from(["none", "simple", "first", "max", "average"]),
        "ignore_labels": st.just(["LABEL_0"]),
        "stride": st.integers(0, 9),
    },
    "text-classification": {
        "top_k": st.none() | st.integers(1, 3),
        "function_to_apply": st.sampled_from(["softmax", "sigmoid", "none"]),
        "truncation": st.booleans(),
    },
    "sentence-order": {"truncation": st.booleans()},
    "question-answering": {
        "top_k": st.integers(1, 5),
        "handle_impossible_answer": st.none() | st.booleans(),
        "max_seq_len": st.integers(32, 48),  # half of it is for the question
    },
    "multiple-choice": {"truncation": st.booleans()},
}
SHARED = {"batch_size": st.none() | st.integers(1, 3), "num_workers": st.integers(0, 2)}


def state(one: Pipeline) -> Any:
    """Return the settings, config, tokenizer, mode and weights of a pipeline."""
    settings = {name: deepcopy(value) for name, value in vars(one).items() if _is_plain(value)}
    weights = {name: value.clone() for name, value in one.model.state_dict().items()}
    return settings, one.model.config.to_json_string(), repr(one.tokenizer), one.model.training, weights


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | list | tuple | dict | None)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal to the last bit. NaN equals NaN in arrays."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if dataclasses.is_dataclass(one):
        return type(one) is type(other) and all(
            same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one)
        )
    return one == other


class TestCallsArePure:
    """A call changes neither its arguments nor the pipeline, and the same call has the same answers."""

    @pytest.mark.filterwarnings("ignore::albertkit.errors.UnknownTokensWarning", "ignore:a text is empty")
    @pytest.mark.parametrize("task", INPUTS)
    @hypothesis.given(data=st.data())
    @hypothesis.settings(max_examples=12, phases=[hypothesis.Phase.generate])
    def test_pipelines(self, made, task, data):
        one = made[task]
        inputs = data.draw(st.lists(INPUTS[task], min_size=1, max_size=4), label="inputs")
        options = data.draw(st.fixed_dictionaries({}, optional=OPTIONS[task] | SHARED), label="options")
        if task == "token-classification":
            split = data.draw(st.booleans(), label="split")
            inputs = [given for given in inputs if isinstance(given, list) == split] or (
                [["a"]] if split else ["a"]
            )
            options["is_split_into_words"] = split
        method = data.draw(st.sampled_from(["__call__", "predict", "transform"]), label="method")
        if method != "__call__":
            options = {}
        given, asked, before = deepcopy(inputs), deepcopy(options), state(one)
        first = getattr(one, method)(inputs, **options)
        kept = deepcopy(first)
        assert same(getattr(one, method)(inputs, **options), kept)
        assert same(list(one(iter(inputs), **options)), kept)
        assert same(first, kept)  # the second call did not write into the first answer
        assert inputs == given
        assert options == asked
        assert same(state(one), before)

    @pytest.mark.parametrize("task", ["text", "words", "question", "choice", "embedding"])
    @hypothesis.given(data=st.data())
    @hypothesis.settings(max_examples=8, phases=[hypothesis.Phase.generate])
    def test_tasks(self, made, task, data):
        tokenizer = made["fill-mask"].tokenizer
        labels = ["LABEL_0", "LABEL_1", "LABEL_2"]
        text, words = TEXT.map("a {}".format), WORDS.map(lambda some: ("a", *some))
        label = st.sampled_from(labels)
        own, model, example = {
            "text": (
                bound(TextClassification(), tokenizer, max_length=LIMIT, labels=labels),
                made["text-classification"].model,
                st.builds(TextExample, text, st.none() | text, label),
            ),
            "words": (
                bound(TokenClassification(stride=2), tokenizer, max_length=8, labels=labels),
                made["token-classification"].model,
                words.map(lambda some: WordsExample(some, ("LABEL_1",) * len(some))),
            ),
            "question": (
                bound(QuestionAnswering(n_best=3), tokenizer, max_length=24, doc_stride=4, truncation=True),
                made["question-answering"].model,
                text.map(lambda one: QuestionExample("q", "who", one, (("a", 0),))),
            ),
            "choice": (
                bound(MultipleChoice(), tokenizer, max_length=LIMIT, truncation=True),
                made["multiple-choice"].model,
                st.builds(ChoiceExample, st.just("c"), text, text, st.tuples(text, text), st.integers(0, 1)),
            ),
            "embedding": (
                bound(SentenceEmbedding(), tokenizer, max_length=LIMIT),
                AlbertModel(made["sentence-order"].model.config).eval(),
                st.builds(PairExample, text, text),
            ),
        }[task]
        model.eval()  # dropout would make two losses differ
        examples = data.draw(st.lists(example, min_size=2, max_size=4))
        given, weights = deepcopy(examples), {name: one.clone() for name, one in model.state_dict().items()}

        def everything() -> list[Any]:
            rows = own.features(examples)
            before = deepcopy(rows)
            units = own.units(rows)
            outputs = own.run(TorchEngine(model), rows)
            computed = deepcopy(outputs)
            predictions = own.predictions(examples, rows, outputs)
            found = [
                rows, units, outputs, predictions, own.labels_of(rows),
                [own.read(row) for row in rows], own.padded_length(rows), loss_of(own, model, rows).detach(),
            ]  # fmt: skip
            if task != "embedding":
                found.append(training_inputs(own, rows, CPU))
            assert same(rows, before)
            assert same(outputs, computed)
            return found

        first = everything()
        kept = deepcopy(first)
        assert same(everything(), kept)
        assert same(first, kept)
        assert examples == given
        assert same(dict(model.state_dict()), weights)
