"""Tests of the rows, the losses and the predictions of the tasks that score texts."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from bound_tasks import bound, unread
from training_losses import CPU, embedding_loss_of, loss_of

from albertkit.datasets.examples import ChoiceExample, PairExample, QuestionExample, TextExample, WordsExample
from albertkit.datasets.options import DataOptions
from albertkit.engines.engine import Row
from albertkit.engines.torch import TorchEngine
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.losses import training_inputs
from albertkit.modeling.heads import (
    AlbertForMultipleChoice,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from albertkit.modeling.model import AlbertModel
from albertkit.tasks.loading import load_splits, open_reader
from albertkit.tasks.multiple_choice import MultipleChoice
from albertkit.tasks.question_answering import QuestionAnswering
from albertkit.tasks.sentence_embedding import SentenceEmbedding
from albertkit.tasks.text_classification import TextClassification
from albertkit.tasks.token_classification import TokenClassification


class TestTextClassification:
    EXAMPLES = (
        TextExample("the harbour", label="good"),
        TextExample("the harbour", "my sister", label="bad"),
        TextExample("a word"),
    )

    def test_rows(self, tokenizer):
        task = bound(TextClassification(), tokenizer, max_length=32, labels=["bad", "good"])
        rows = task.features(self.EXAMPLES)
        assert [row.labels for row in rows] == [1, 0, None]
        assert [row.example for row in rows] == [0, 1, 2]
        assert [row.cut for row in rows] == [0, 0, 0]
        pair = tokenizer("the harbour", "my sister")
        assert rows[1].input_ids == pair["input_ids"]
        assert rows[1].token_type_ids == pair["token_type_ids"]
        assert 1 in rows[1].token_type_ids
        assert task.features([]) == []

    def test_loss_is_the_loss_of_the_model(self, tokenizer, make):
        task = bound(TextClassification(), tokenizer, max_length=32, labels=["bad", "good"])
        model = make(AlbertForSequenceClassification)
        rows = task.features(self.EXAMPLES[:2])
        logits = torch.cat(
            [
                model(**tokenizer("the harbour", return_tensors="pt")).logits,
                model(**tokenizer("the harbour", "my sister", return_tensors="pt")).logits,
            ]
        )
        expected = F.cross_entropy(logits, torch.tensor([1, 0]))
        assert loss_of(task, model, rows).item() == pytest.approx(expected.item(), abs=1e-5)

    def test_predictions(self, tokenizer):
        task = bound(TextClassification(), tokenizer, max_length=32, labels=["bad", "good"])
        rows = task.features(self.EXAMPLES[:1])
        (one,) = task.predictions(self.EXAMPLES[:1], rows, [np.array([0.0, 1.0], np.float32)])
        assert one.label == "good"
        assert one.scores == pytest.approx([0.268941, 0.731059], abs=1e-5)

    def test_multi_label(self, tokenizer, make):
        task = bound(
            TextClassification(),
            tokenizer,
            max_length=32,
            labels=["a", "b", "c"],
            problem_type="multi_label_classification",
        )
        examples = [TextExample("word", label=("c", "a")), TextExample("word", label=())]
        rows = task.features(examples)
        assert [row.labels for row in rows] == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
        found = task.predictions(examples, rows, list(np.array([[2.0, -1, 0.1], [-1, -1, -1]], np.float32)))
        assert [one.label for one in found] == [("a", "c"), ()]
        model = make(AlbertForSequenceClassification, num_labels=3, problem_type="multi_label_classification")
        (logits, _) = task.run(TorchEngine(model), rows)
        expected = F.binary_cross_entropy_with_logits(
            torch.tensor(logits).expand(2, 3), torch.tensor([[1.0, 0, 1], [0, 0, 0]])
        )
        assert loss_of(task, model, rows).item() == pytest.approx(expected.item(), abs=1e-5)

    def test_regression(self, tokenizer, make):
        task = bound(
            TextClassification(), tokenizer, max_length=32, labels=["similarity"], problem_type="regression"
        )
        examples = [TextExample("word", "letters", label=2.5)]
        rows = task.features(examples)
        assert rows[0].labels == 2.5
        model = make(AlbertForSequenceClassification, num_labels=1, problem_type="regression")
        outputs = task.run(TorchEngine(model), rows)
        (one,) = task.predictions(examples, rows, outputs)
        assert one.label == one.scores[0] == pytest.approx(outputs[0].item())
        assert loss_of(task, model, rows).item() == pytest.approx((one.scores[0] - 2.5) ** 2, abs=1e-4)

    @pytest.mark.parametrize(
        ("problem_type", "label", "message"),
        [
            ("single_label_classification", "fine", "example 0 .*the label 'fine' is unknown"),
            ("single_label_classification", ("bad", "good"), "Expected exactly one"),
            ("multi_label_classification", ("bad", "fine"), "'fine'"),
            ("regression", "bad", "example 0 .*the label 'bad' is not a number"),
        ],
    )
    def test_wrong_labels(self, tokenizer, problem_type, label, message):
        task = bound(
            TextClassification(), tokenizer, max_length=32, labels=["bad", "good"], problem_type=problem_type
        )
        with pytest.raises(DataError, match=message):
            task.features([TextExample("word", label=label)])

    def test_long_texts_are_an_error_or_counted(self, tokenizer):
        task = bound(TextClassification(), tokenizer, max_length=10, labels=["a", "b"])
        long = TextExample("harbour " * 12, "sister", label="a")
        length = len(tokenizer(long.text, long.text_pair)["input_ids"])
        with pytest.raises(DataError, match=f"the pair 'harbour .* has {length} tokens"):
            task.features([TextExample("word"), long])
        task = bound(TextClassification(), tokenizer, max_length=10, labels=["a", "b"], truncation=True)
        first, second = task.features([TextExample("word"), long])
        assert (first.cut, second.cut) == (0, length - 10)
        assert len(second.input_ids) == len(second.token_type_ids) == 10
        # the shorter text is not truncated
        assert sum(second.token_type_ids) == len(tokenizer("sister")["input_ids"]) - 1

    def test_bad_settings(self, tokenizer):
        with pytest.raises(ConfigError, match="the labels are"):
            bound(TextClassification(), tokenizer, max_length=10, labels=["a", "a"])
        with pytest.raises(ConfigError, match="problem_type must be one of"):
            bound(TextClassification(), tokenizer, max_length=10, labels=["a"], problem_type="multi")
        with pytest.raises(ConfigError, match="max_length is 3"):
            bound(TextClassification(), tokenizer, max_length=3, labels=["a"])


class TestTrainingBatches:
    """Training batches are padded to a multiple of eight tokens, and padding does not change the loss."""

    def rows_of(self, name, tokenizer):
        if name == "texts":
            task = bound(TextClassification(), tokenizer, max_length=30, labels=["a", "b"])
            return task, task.features([TextExample("word", label="a"), TextExample("word " * 9, label="b")])
        if name == "words":
            task = bound(TokenClassification(), tokenizer, max_length=30, labels=["O", "B-X"])
            return task, task.features(
                [WordsExample(("word",), ("O",)), WordsExample(("word",) * 9, ("B-X",) * 9)]
            )
        task = bound(MultipleChoice(), tokenizer, max_length=30)
        return task, task.features([ChoiceExample("c", "word", None, ("word", "word " * 8), 1)])

    @pytest.mark.parametrize(
        ("name", "model_class"),
        [
            ("texts", AlbertForSequenceClassification),
            ("words", AlbertForTokenClassification),
            ("choices", AlbertForMultipleChoice),
        ],
    )
    def test_padding_does_not_change_loss_and_gradients(
        self, tokenizer, make, name, model_class, monkeypatch
    ):
        task, rows = self.rows_of(name, tokenizer)
        longest = max(len(row.input_ids) for row in rows)
        found = {}
        for multiple in (1, 8):
            monkeypatch.setattr(type(task), "training_multiple", multiple)
            inputs = training_inputs(task, rows, CPU)
            width = -(-longest // multiple) * multiple
            assert inputs["input_ids"].shape[-1] == inputs["attention_mask"].shape[-1] == width
            model = make(model_class)
            loss = loss_of(task, model, rows)
            loss.backward()
            gradients = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
            found[multiple] = loss.item(), gradients
        assert longest % 8
        assert found[8][0] == pytest.approx(found[1][0], abs=1e-6)
        assert found[8][1].keys() == found[1][1].keys()
        for name, one in found[1][1].items():
            torch.testing.assert_close(found[8][1][name], one, atol=1e-6, rtol=1e-5)

    def test_padding_stops_at_the_maximum_length(self, tokenizer):
        task = bound(TextClassification(), tokenizer, max_length=13, labels=["a"])
        (row,) = task.features([TextExample("word " * 7, label="a")])
        assert task.padded_length([row]) == 13
        assert training_inputs(task, [row], CPU)["input_ids"].shape == (1, 13)

    def test_questions_are_not_padded_further(self, tokenizer):
        """Padding would change the loss of this head, which scores every position."""
        task = bound(QuestionAnswering(), tokenizer, max_length=48)
        for count in (3, 4):
            (row,) = task.features([QuestionExample("q", "who", "word " * count, is_impossible=True)])
            assert task.padded_length([row]) == len(row.input_ids)


class TestMultipleChoice:
    EXAMPLES = (
        ChoiceExample("1", "the harbour", "who opened it", ("my sister", "a word", "the letters"), 2),
        ChoiceExample("2", "the captain found a word", "he found _ again", ("my sister", "it", "a"), 0),
    )

    def test_rows_and_loss(self, tokenizer, make):
        task = bound(MultipleChoice(), tokenizer, max_length=48)
        rows = task.features(self.EXAMPLES)
        assert [(row.example, row.labels) for row in rows] == [(0, 2)] * 3 + [(1, 0)] * 3
        assert rows[1].input_ids == tokenizer("the harbour", "who opened it a word")["input_ids"]
        assert rows[4].input_ids == tokenizer(self.EXAMPLES[1].context, "he found it again")["input_ids"]
        assert [len(unit) for unit in task.units(rows)] == [3, 3]
        model = make(AlbertForMultipleChoice)
        inputs = training_inputs(task, rows, CPU)
        assert inputs["input_ids"].shape[:2] == (2, 3)
        assert inputs["labels"].tolist() == [2, 0]
        outputs = task.run(TorchEngine(model), rows)
        logits = torch.tensor(np.array(outputs)).view(2, 3)
        expected = F.cross_entropy(logits, torch.tensor([2, 0]))
        assert loss_of(task, model, rows).item() == pytest.approx(expected.item(), abs=1e-5)
        predictions = task.predictions(self.EXAMPLES, rows, outputs)
        records = map(task.record, self.EXAMPLES, predictions)
        assert [record["choice"] for record in records] == logits.argmax(dim=-1).tolist()

    def test_long_contexts_are_truncated_and_counted(self, tokenizer):
        task = bound(MultipleChoice(), tokenizer, max_length=24, truncation=True)
        example = ChoiceExample("1", "word " * 40, None, ("my sister", "a"), 1)
        whole = [len(tokenizer(example.context, choice)["input_ids"]) for choice in example.choices]
        rows = task.features([example])
        assert [row.cut for row in rows] == [length - 24 for length in whole]
        for row, choice in zip(rows, example.choices, strict=True):
            assert sum(row.token_type_ids) == len(tokenizer(choice)["input_ids"]) - 1


class TestSentenceEmbedding:
    EXAMPLES = (PairExample("the harbour", "my sister"), PairExample("a word", "the letters in the morning"))

    def expected_vectors(self, model, tokenizer, texts):
        outputs = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0] for text in texts]
        return torch.stack([output.mean(dim=0) for output in outputs]).detach()

    def test_similarity_and_loss(self, tokenizer, make):
        task = bound(SentenceEmbedding(), tokenizer, max_length=32)
        model = make(AlbertModel)
        rows = task.features(self.EXAMPLES)
        assert [row.example for row in rows] == [0, 0, 1, 1]
        texts = [text for one in self.EXAMPLES for text in (one.text, one.pair)]
        vectors = self.expected_vectors(model, tokenizer, texts)
        found = task.predictions(self.EXAMPLES, rows, task.run(TorchEngine(model), rows))
        for number, one in enumerate(found):
            np.testing.assert_allclose(one.vectors, vectors[2 * number :][:2], atol=1e-5)
            expected = F.cosine_similarity(*vectors[2 * number :][:2], dim=0).item()
            assert one.similarity == pytest.approx(expected, abs=1e-5)
        cosines = F.cosine_similarity(vectors[::2, None], vectors[None, 1::2], dim=-1)
        expected = F.cross_entropy(cosines / 0.1, torch.tensor([0, 1])).item()
        assert embedding_loss_of(task, model, rows, temperature=0.1).item() == pytest.approx(
            expected, abs=1e-4
        )

    def test_cls_pooling_and_normalization(self, tokenizer, make):
        model = make(AlbertModel)
        task = bound(SentenceEmbedding(), tokenizer, max_length=32, pooling="cls", normalize=True)
        rows = task.features(self.EXAMPLES)
        (vector, *_) = task.run(TorchEngine(model), rows)
        expected = model(**tokenizer("the harbour", return_tensors="pt")).last_hidden_state[0, 0].detach()
        np.testing.assert_allclose(vector, expected / expected.norm(), atol=1e-5)

    def test_single_texts(self, tokenizer, make):
        """A single text is its own second text, so without dropout the loss is the loss of equal pairs."""
        task = bound(SentenceEmbedding(), tokenizer, max_length=32)
        model = make(AlbertModel)
        rows = task.features([PairExample("word"), PairExample("sister")])
        (one, _) = task.predictions([PairExample("word")] * 2, rows, task.run(TorchEngine(model), rows))
        assert one.similarity is None
        assert [len(unit) for unit in task.units(rows)] == [2, 2]
        vectors = self.expected_vectors(model, tokenizer, ["word", "sister"])
        cosines = F.cosine_similarity(vectors[:, None], vectors[None], dim=-1)
        expected = F.cross_entropy(cosines / 0.05, torch.tensor([0, 1])).item()
        assert loss_of(task, model, rows).item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("names", [["LABEL_0"], ["joy", "anger"]])
def test_the_record_of_a_regression_has_all_numbers(names: list[str]) -> None:
    """A model of `transformers` can predict several numbers."""
    task = unread("text-classification", id2label=dict(enumerate(names)), problem_type="regression")
    example = TextExample("a")
    numbers = [0.5, -2.0][: len(names)]
    rows = [Row(input_ids=[2, 3], token_type_ids=[0, 0], example=0)]
    (prediction,) = task.predictions([example], rows, [np.array(numbers, np.float32)])
    several = {} if len(names) == 1 else {"scores": dict(zip(names, numbers, strict=True))}
    assert task.record(example, prediction) == {"label": 0.5, **several}


def test_several_numbers_have_no_metrics() -> None:
    numbers = {"id2label": {0: "joy", 1: "anger"}, "problem_type": "regression"}
    task = unread("text-classification", **numbers)
    with pytest.raises(ConfigError, match=r"predicts 2 numbers for a text.* Use `predict`"):
        load_splits(
            task,
            {"data": open_reader(task, [{"text": "a", "label": 1.5}], DataOptions(), name="data")},
            labels=task.labels,
        )
