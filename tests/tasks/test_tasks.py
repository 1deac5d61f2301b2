"""Tasks: rows and labels by value, losses of the model's own, windows, words, entities."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from bound_tasks import bound
from hypothesis import given
from hypothesis import strategies as st
from training_losses import CPU, embedding_loss_of, loss_of

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import ChoiceExample, PairExample, QuestionExample, TextExample, WordsExample
from albertkit.engines.plain import PlainEngine
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.objectives import training_batch, training_inputs
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.modeling.task_heads import (
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from albertkit.tasks.entities import Entities
from albertkit.tasks.multiple_choice import MultipleChoice
from albertkit.tasks.question_answering import QuestionAnswering, whole_words
from albertkit.tasks.rows import overlap, owned
from albertkit.tasks.sentence_embedding import SentenceEmbedding
from albertkit.tasks.sentence_order import SentenceOrder
from albertkit.tasks.text_classification import TextClassification
from albertkit.tasks.token_classification import Tagged, TokenClassification
from albertkit.tasks.words import split_words
from albertkit.tokenization.tokenizer import AlbertTokenizer


@pytest.fixture(scope="module")
def tokenizer(tiny_vocabulary: Path) -> AlbertTokenizer:
    return AlbertTokenizer(tiny_vocabulary)


@pytest.fixture(scope="module")
def make(tokenizer):
    """Make a random model of a class, without dropout."""

    def make(model_class, **settings):
        torch.manual_seed(0)
        return model_class(
            AlbertConfig(
                vocab_size=len(tokenizer),
                embedding_size=16,
                hidden_size=32,
                num_attention_heads=4,
                intermediate_size=64,
                num_hidden_layers=2,
                max_position_embeddings=64,
                initializer_range=0.3,
                **settings,
            )
        ).eval()

    return make


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

    def test_loss_is_the_models(self, tokenizer, make):
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
        with pytest.raises(DataError, match="example 2 has no labels"):
            loss_of(task, model, task.features(self.EXAMPLES))

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
        (logits, _) = task.run(PlainEngine(model), rows)
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
        outputs = task.run(PlainEngine(model), rows)
        (one,) = task.predictions(examples, rows, outputs)
        assert one.label == one.scores[0] == pytest.approx(outputs[0].item())
        assert loss_of(task, model, rows).item() == pytest.approx((one.scores[0] - 2.5) ** 2, abs=1e-4)

    @pytest.mark.parametrize(
        ("problem_type", "label", "message"),
        [
            (
                "single_label_classification",
                "fine",
                "example 0 .*the label 'fine'. Expected one of bad, good",
            ),
            ("single_label_classification", ("bad", "good"), "Expected one, or problem_type='multi_label"),
            ("single_label_classification", 1.0, "label 1.0"),
            ("multi_label_classification", ("bad", "fine"), "'fine'"),
            ("regression", "bad", "Expected a number"),
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
        # the shorter text stays whole
        assert sum(second.token_type_ids) == len(tokenizer("sister")["input_ids"]) - 1

    def test_bad_settings(self, tokenizer):
        with pytest.raises(ConfigError, match="the labels are"):
            bound(TextClassification(), tokenizer, max_length=10, labels=["a", "a"])
        with pytest.raises(ConfigError, match="problem_type must be one of"):
            bound(TextClassification(), tokenizer, max_length=10, labels=["a"], problem_type="multi")
        with pytest.raises(ConfigError, match="max_length is 3"):
            bound(TextClassification(), tokenizer, max_length=3, labels=["a"])


class TestTrainingBatches:
    """They are padded to a multiple of eight tokens, and nothing is learnt from padding."""

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
    def test_wider_batches_teach_the_same(self, tokenizer, make, name, model_class, monkeypatch):
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

    def test_never_wider_than_the_limit(self, tokenizer):
        task = bound(TextClassification(), tokenizer, max_length=13, labels=["a"])
        (row,) = task.features([TextExample("word " * 7, label="a")])
        assert task.padded_length([row]) == 13
        assert training_batch(task, [row], CPU)["input_ids"].shape == (1, 13)

    def test_questions_are_not_widened(self, tokenizer):
        """The loss of that head counts padding as a place to answer."""
        task = bound(QuestionAnswering(), tokenizer, max_length=48)
        for count in (3, 4):
            (row,) = task.features([QuestionExample("q", "who", "word " * count, is_impossible=True)])
            assert task.padded_length([row]) == len(row.input_ids)


class TestSentenceOrder:
    def test_loss_is_that_of_pretraining(self, tokenizer, make):
        task = bound(SentenceOrder(), tokenizer, max_length=32)
        model = make(AlbertForPreTraining)
        examples = [
            TextExample("the harbour", "my sister", "swapped"),
            TextExample("a word", "the letters in", "in order"),
        ]
        rows = task.features(examples)
        assert [row.labels for row in rows] == [1, 0]
        inputs = tokenizer([(one.text, one.text_pair) for one in examples], padding=True, return_tensors="pt")
        logits = model(**inputs).sop_logits
        expected = F.cross_entropy(logits, torch.tensor([1, 0]))
        assert loss_of(task, model, rows).item() == pytest.approx(expected.item(), abs=1e-5)
        labels = [one.label for one in task.predictions(examples, rows, task.run(PlainEngine(model), rows))]
        assert labels == [("in order", "swapped")[number] for number in logits.argmax(dim=-1)]

    def test_one_text_has_no_order(self, tokenizer):
        with pytest.raises(DataError, match="no second text for 'word'"):
            bound(SentenceOrder(), tokenizer, max_length=32).features([TextExample("word")])


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
        outputs = task.run(PlainEngine(model), rows)
        logits = torch.tensor(np.array(outputs)).view(2, 3)
        expected = F.cross_entropy(logits, torch.tensor([2, 0]))
        assert loss_of(task, model, rows).item() == pytest.approx(expected.item(), abs=1e-5)
        found = task.predictions(self.EXAMPLES, rows, outputs)
        assert [one.choice for one in found] == logits.argmax(dim=-1).tolist()

    def test_examples_of_different_numbers_of_choices(self, tokenizer):
        task = bound(MultipleChoice(), tokenizer, max_length=48)
        two = ChoiceExample("3", "a", None, ("b", "c"), 1)
        rows = task.features([self.EXAMPLES[0], two])
        with pytest.raises(DataError, match="the examples of a batch have 2, 3 choices"):
            training_inputs(task, rows, CPU)
        assert rows[3].input_ids == tokenizer("a", "b")["input_ids"]

    def test_context_is_cut_and_counted(self, tokenizer):
        task = bound(MultipleChoice(), tokenizer, max_length=24, truncation=True)
        example = ChoiceExample("1", "word " * 40, None, ("my sister", "a"), 1)
        whole = [len(tokenizer(example.context, choice)["input_ids"]) for choice in example.choices]
        rows = task.features([example])
        assert [row.cut for row in rows] == [length - 24 for length in whole]
        for row, choice in zip(rows, example.choices, strict=True):
            assert sum(row.token_type_ids) == len(tokenizer(choice)["input_ids"]) - 1

    def test_wrong_labels(self, tokenizer):
        task = bound(MultipleChoice(), tokenizer, max_length=24)
        with pytest.raises(DataError, match="example '7' has the label 2"):
            task.features([ChoiceExample("7", "a", None, ("b", "c"), 2)])


class TestTokenClassification:
    LABELS = ("O", "B-PER", "I-PER", "S-LOC")
    EXAMPLE = WordsExample(
        ("remembered", "Lanimofe", "harbour", "\u200b", "."), ("O", "B-PER", "S-LOC", "O", "O")
    )

    def pieces(self, tokenizer) -> list[int]:
        return [len(tokenizer.tokenize(word)) for word in self.EXAMPLE.words]

    def test_first_pieces_learn(self, tokenizer, make):
        task = bound(TokenClassification(), tokenizer, max_length=48, labels=self.LABELS)
        (row,) = task.features([self.EXAMPLE])
        counts = self.pieces(tokenizer)
        assert counts[1] > 1
        assert counts[3] == 0
        expected = [
            label
            for label, count in zip((0, 1, 3, 0, 0), counts, strict=True)
            for label in [label, *[-100] * (count - 1)][:count]
        ]
        assert row.labels == [-100, *expected, -100]
        assert row.input_ids == [
            2,
            *(
                one
                for word in self.EXAMPLE.words
                for one in tokenizer(word, add_special_tokens=False)["input_ids"]
            ),
            3,
        ]
        model = make(AlbertForTokenClassification, num_labels=4)
        logits = model(torch.tensor([row.input_ids])).logits[0]
        assert loss_of(task, model, [row]).item() == pytest.approx(
            F.cross_entropy(logits, torch.tensor(row.labels)).item(), abs=1e-5
        )

    def test_all_pieces_learn(self, tokenizer):
        task = bound(
            TokenClassification(), tokenizer, max_length=48, labels=self.LABELS, labeled_tokens="all"
        )
        example = WordsExample(("remembered", "Lanimofe", "remembered"), ("O", "B-PER", "S-LOC"))
        (row,) = task.features([example])
        first, second, third = (len(tokenizer.tokenize(word)) for word in example.words)
        expected = [0] * first + [1] + [2] * (second - 1) + [3] * third  # there is no I-LOC
        assert row.labels == [-100, *expected, -100]

    def test_labels_of_words(self, tokenizer):
        task = bound(TokenClassification(), tokenizer, max_length=48, labels=self.LABELS)
        (row,) = task.features([self.EXAMPLE])
        counts = self.pieces(tokenizer)
        firsts = [sum(counts[:number]) for number in range(5)]
        logits = np.zeros((sum(counts), 4), np.float32)
        logits[:, 2] = 1  # every piece says I-PER, and the first of a word more clearly something else
        for word, label in ((0, 3), (1, 1), (2, 0), (4, 3)):
            logits[firsts[word], label] = 2
        (tagged,) = task.predictions([self.EXAMPLE], [row], [logits])
        assert tagged.labels == ["S-LOC", "B-PER", "O", "O", "S-LOC"]
        assert tagged.words == [word for word, count in enumerate(counts) for _ in range(count)]

    def test_windows_show_every_piece_and_label_it_once(self, tokenizer, make):
        words = ("Lanimofe", "harbour", "the", "word", "remembered") * 12
        example = WordsExample(words, ("B-PER", "S-LOC", "O", "O", "O") * 12)
        task = bound(TokenClassification(stride=10), tokenizer, max_length=32, labels=self.LABELS)
        rows = task.features([WordsExample(("a",)), example])
        pieces = [one for word in words for one in tokenizer(word, add_special_tokens=False)["input_ids"]]
        rows = rows[1:]
        assert len(rows) > 3
        assert {row.example for row in rows} == {1}
        assert [row.input_ids[place] for row in rows for place in row.positions] == pieces
        counted = [label for row in rows for label in row.labels if label != -100]
        assert counted == [1, 3, 0, 0, 0] * 12
        for row in rows:
            assert len(row.input_ids) <= 32
            others = set(range(len(row.labels))) - set(row.positions)
            assert {row.labels[place] for place in others} == {-100}
        # every piece but those at the ends of the text has context on both sides
        for row in rows[1:]:
            assert row.positions.start >= 1 + 5
        model = make(AlbertForTokenClassification, num_labels=4)
        rows = [replace(row, example=0) for row in rows]
        (tagged,) = task.predictions([example], rows, task.run(PlainEngine(model), rows))
        assert len(tagged.labels) == 60
        assert tagged.pieces == pieces
        assert tagged.scores.shape == (len(pieces), 4)

    def test_sentences_without_words(self, tokenizer, make):
        task = bound(TokenClassification(), tokenizer, max_length=32, labels=self.LABELS)
        examples = [WordsExample(()), WordsExample(("\u200b",))]
        rows = task.features(examples)
        found = task.predictions(
            examples, rows, task.run(PlainEngine(make(AlbertForTokenClassification, num_labels=4)), rows)
        )
        assert [one.labels for one in found] == [[], ["O"]]
        assert task.features([]) == []

    @pytest.mark.parametrize(
        ("labels", "message"),
        [(("O",), "5 words and 1 labels"), (("O",) * 4 + ("B-ORG",), "'B-ORG'. Expected one of O")],
    )
    def test_wrong_labels(self, tokenizer, labels, message):
        task = bound(TokenClassification(), tokenizer, max_length=32, labels=self.LABELS)
        with pytest.raises(DataError, match=message):
            task.features([WordsExample(self.EXAMPLE.words, labels)])


class TestWords:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", []),
            (" \n", []),
            ("Anne opened it.", ["Anne", "opened", "it", "."]),
            ('He said:  "Don\'t!"', ["He", "said", ":", '"', "Don't", "!", '"']),
            ("a well-kept (12,000) ...", ["a", "well-kept", "(", "12,000", ")", "..."]),
            ("cost $5.50, no?!", ["cost", "$", "5.50", ",", "no", "?", "!"]),
            ("\u5317\u4eac is 2\u6708.", ["\u5317", "\u4eac", "is", "2", "\u6708", "."]),
        ],
    )
    def test_words(self, text, words):
        assert [text[start:end] for start, end in split_words(text)] == words

    @given(st.text(max_size=60))
    def test_words_are_all_but_the_spaces_in_order(self, text):
        words = split_words(text)
        assert "".join(text[start:end] for start, end in words) == "".join(text.split())
        assert all(one.end <= two.start for one, two in pairwise(words))


class TestWindows:
    @given(st.integers(1, 200), st.integers(2, 40), st.integers(0, 20))
    def test_every_token_once_where_it_has_most_context(self, length, size, stride):
        stride = overlap(stride, room=size)
        starts = [0]
        while starts[-1] + size < length:
            starts.append(starts[-1] + size - stride)
        windows = [range(start, min(start + size, length)) for start in starts]
        parts = owned(windows)
        assert [token for part in parts for token in part] == list(range(length))
        for window, part in zip(windows, parts, strict=True):
            for token in part:
                assert token in window
                context = min(token - window.start, window.stop - 1 - token)
                others = [
                    min(token - other.start, other.stop - 1 - token) for other in windows if token in other
                ]
                assert context >= max(others) or len(others) > 2


class TestEntities:
    """Groups by labels, given for the words "a b c d" of one piece each, or for pieces of words."""

    def group(self, tokenizer, labels: str, *, names=None, words=None, aggregation="simple", scores=None):
        labels = labels.split()
        names = names or sorted({"O", *labels})
        if scores is None:
            scores = np.full((len(labels), len(names)), 0.1)
            for number, label in enumerate(labels):
                scores[number, names.index(label)] = 0.9
        words = words or list(range(len(labels)))
        tagged = Tagged(
            labels=[],
            pieces=[7] * len(labels),
            words=words,
            offsets=[
                (sum(w == word for w in words[:place]), sum(w == word for w in words[: place + 1]))
                for place, word in enumerate(words)
            ],
            scores=scores,
        )
        entities = Entities(tokenizer, names, aggregation=aggregation)
        starts = [10 * word for word in range(max(words) + 1)]
        return [(one["entity_group"], one["start"], one["end"]) for one in entities(tagged, starts)]

    @pytest.mark.parametrize(
        ("labels", "expected"),
        [
            ("B-X I-X O B-X", [("X", 0, 11), ("X", 30, 31)]),
            ("B-X B-X I-X", [("X", 0, 1), ("X", 10, 21)]),
            ("I-X I-X B-X I-Y", [("X", 0, 11), ("X", 20, 21), ("Y", 30, 31)]),
            ("B-X I-X E-X I-X", [("X", 0, 21), ("X", 30, 31)]),
            ("S-X S-X B-X E-X", [("X", 0, 1), ("X", 10, 11), ("X", 20, 31)]),
            ("B-X L-X U-X U-Y", [("X", 0, 11), ("X", 20, 21), ("Y", 30, 31)]),
            ("PER PER O LOC", [("PER", 0, 11), ("LOC", 30, 31)]),
            ("E-X Y Y E-X", [("E-X", 0, 1), ("Y", 10, 21), ("E-X", 30, 31)]),  # E-X is a name here
        ],
    )
    def test_schemes(self, tokenizer, labels, expected):
        assert self.group(tokenizer, labels) == expected

    def test_pieces_of_one_word_stay_together(self, tokenizer):
        assert self.group(tokenizer, "S-X I-X S-X", words=[0, 0, 1]) == [("X", 0, 2), ("X", 10, 11)]

    def test_words_by_first_max_and_average(self, tokenizer):
        names = ["O", "X", "Y"]
        scores = np.array([[0.1, 0.5, 0.4], [0.05, 0.05, 0.9], [0.7, 0.3, 0.0]])
        for aggregation, kind, score in (("first", "X", 0.5), ("max", "Y", 0.9), ("average", "Y", 1.3 / 3)):
            tagged = Tagged([], [7, 7, 7], [0, 0, 0], [(0, 1), (1, 2), (2, 3)], scores)
            (one,) = Entities(tokenizer, names, aggregation=aggregation)(tagged, [5])
            assert (one["entity_group"], one["start"], one["end"]) == (kind, 5, 8)
            assert one["score"] == pytest.approx(score, abs=1e-6)

    def test_a_piece_without_characters_is_no_entity(self, tokenizer):
        tagged = Tagged([], [7, 7], [0, 1], [(0, 0), (0, 2)], np.array([[0.1, 0.9, 0], [0, 0.1, 0.9]]))
        (one,) = Entities(tokenizer, ["O", "X", "Y"], aggregation="simple")(tagged, [4, 4])
        assert (one["entity_group"], one["start"], one["end"]) == ("Y", 4, 6)

    def test_ignored(self, tokenizer):
        tagged = Tagged([], [7], [0], [(0, 1)], np.array([[0.1, 0.9]]))
        assert (
            Entities(tokenizer, ["O", "B-X"], aggregation="simple", ignored_labels=["X"])(tagged, [0]) == []
        )
        assert Entities(tokenizer, ["O", "B-X"], ignored_labels=["B-X"])(tagged, [0]) == []


class TestQuestionAnswering:
    CONTEXT = "The captain, Lanimofe, found 12,000 letters. " * 6 + "My sister opened the harbour."

    def test_labels_point_to_the_answer_in_every_window_that_shows_it(self, tokenizer):
        task = bound(QuestionAnswering(), tokenizer, max_length=48, doc_stride=16)
        start = self.CONTEXT.index("My sister")
        example = QuestionExample(
            "q", "who opened it", self.CONTEXT, (("My sister", start), ("sister", start + 3))
        )
        rows = task.features([example])
        assert len(rows) > 3
        found = [row for row in rows if row.labels != (0, 0)]
        assert 1 <= len(found) < len(rows)
        assert rows[-1].labels != (0, 0)
        for row in found:
            first, last = row.labels
            assert tokenizer.decode(row.input_ids[first : last + 1]) == "my sister"
            assert row.offsets[first - row.context.start][0] == start
            assert row.offsets[last - row.context.start][1] == start + len("My sister")
        for row in rows:
            assert len(row.input_ids) <= 48
            assert row.token_type_ids[row.context.start - 1 : row.context.start + 1] == [0, 1]
            assert row.token_type_ids[-1] == 1
        starts = [row.offsets[place - row.context.start] for row in rows for place in row.owned]
        assert starts == list(tokenizer(self.CONTEXT)[0].offsets)[1:-1]

    def test_answer_of_one_piece_at_the_beginning(self, tokenizer):
        task = bound(QuestionAnswering(), tokenizer, max_length=48)
        (row,) = task.features([QuestionExample("q", "who", "harbour master", (("harbour", 0),))])
        assert row.labels == (row.context.start, row.context.start)

    def test_an_answer_that_no_window_shows_whole_is_no_label(self, tokenizer):
        task = bound(QuestionAnswering(), tokenizer, max_length=24, doc_stride=4)
        text = "word " * 40
        shown, long = text[:20].strip(), text[: 5 * 30].strip()
        rows = task.features(
            [
                QuestionExample("q", "who", text, ((long, 0),)),
                QuestionExample("r", "who", text, ((shown, 0),)),
            ]
        )
        assert {row.labels for row in rows if row.example == 0} == {None}
        labels = [row.labels for row in rows if row.example == 1]
        assert labels[0] == (rows[0].context.start, rows[0].context.start + 3)
        assert set(labels[1:]) == {(0, 0)}

    def test_unlabeled_and_impossible(self, tokenizer):
        task = bound(QuestionAnswering(), tokenizer, max_length=48)
        rows = task.features(
            [
                QuestionExample("q", "who", "a word"),
                QuestionExample("r", "who", "a word", is_impossible=True),
                QuestionExample("s", "who", "a word", (("word", 2),), is_impossible=True),
            ]
        )
        assert [row.labels for row in rows] == [None, (0, 0), (0, 0)]

    def test_long_questions_are_an_error_or_counted(self, tokenizer):
        question = "harbour " * 30
        with pytest.raises(DataError, match=r"has 30 tokens. Expected at most 12"):
            bound(QuestionAnswering(), tokenizer, max_length=24).features(
                [QuestionExample("q", question, "a")]
            )
        task = bound(QuestionAnswering(), tokenizer, max_length=24, max_question_length=5, truncation=True)
        (row,) = task.features([QuestionExample("q", question, "a word")])
        assert row.cut == 25
        assert row.input_ids == tokenizer("harbour " * 5, "a word")["input_ids"]

    def test_loss_is_the_models(self, tokenizer, make):
        task = bound(QuestionAnswering(), tokenizer, max_length=48, doc_stride=16)
        example = QuestionExample("q", "who", self.CONTEXT, (("The captain", 0),))
        rows = task.features([example, QuestionExample("r", "who", "a word", is_impossible=True)])
        assert rows[-1].labels == (0, 0)
        model = make(AlbertForQuestionAnswering)
        for row in rows:  # each alone: the loss of this head counts padding as a place to answer
            output = model(torch.tensor([row.input_ids]), token_type_ids=torch.tensor([row.token_type_ids]))
            start, end = (torch.tensor([place]) for place in row.labels)
            expected = F.cross_entropy(output.start_logits, start) + F.cross_entropy(output.end_logits, end)
            assert loss_of(task, model, [row]).item() == pytest.approx(expected.item() / 2, abs=1e-5)
        assert training_inputs(task, rows, CPU)["start_positions"].tolist() == [row.labels[0] for row in rows]

    def test_best_of_all_windows(self, tokenizer):
        task = bound(QuestionAnswering(n_best=3), tokenizer, max_length=48, doc_stride=16)
        example = QuestionExample("q", "who", self.CONTEXT)
        rows = task.features([example])
        assert {row.labels for row in rows} == {None}
        outputs = [np.zeros((2, len(row.input_ids)), np.float32) for row in rows]
        target = rows[2].owned[4]
        outputs[2][0, target] = 5
        outputs[2][1, target + 1] = 4
        outputs[0][:, 0] = 3
        outputs[1][:, 0] = 4.25
        for output in outputs[2:]:
            output[:, 0] = 6
        (found,) = task.predictions([example], rows, outputs)
        first, last = (rows[2].offsets[place - rows[2].context.start] for place in (target, target + 1))
        best = found.answers[0]
        assert (best.start, best.end) == whole_words(self.CONTEXT, first[0], last[1])
        assert best.text == self.CONTEXT[best.start : best.end]
        assert best.logit == 9
        assert len(found.answers) == 3
        assert found.no_answer.logit == 6  # the least over the windows
        assert found.no_answer_difference == -3
        assert found.best(None) == found.best(0.0) == found.best(-3.0) == best
        assert found.best(-3.5).text == ""
        both = [output[:, [0, *row.context]] for row, output in zip(rows, outputs, strict=True)]
        starts, ends = np.concatenate(both, axis=1)
        expected = np.exp(5 - np.logaddexp.reduce(starts) + 4 - np.logaddexp.reduce(ends))
        assert best.score == pytest.approx(expected, rel=1e-4)

    def test_answer_that_is_not_in_the_text(self, tokenizer):
        task = bound(QuestionAnswering(), tokenizer, max_length=48)
        with pytest.raises(DataError, match="question 'q': the context has ' captai' at character 3"):
            task.features([QuestionExample("q", "who", self.CONTEXT, (("captain", 3),))])

    @pytest.mark.parametrize(
        ("place", "expected"),
        [((5, 8), "captain"), ((4, 11), "captain"), ((13, 16), "Lanimofe"), ((28, 31), "12")],
    )
    def test_whole_words(self, place, expected):
        start, end = whole_words("The captain, Lanimofe, found 12,000", *place)
        assert "The captain, Lanimofe, found 12,000"[start:end].strip() == expected


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
        found = task.predictions(self.EXAMPLES, rows, task.run(PlainEngine(model), rows))
        for number, one in enumerate(found):
            np.testing.assert_allclose(one.vectors, vectors[2 * number :][:2], atol=1e-5)
            expected = F.cosine_similarity(*vectors[2 * number :][:2], dim=0).item()
            assert one.similarity == pytest.approx(expected, abs=1e-5)
        cosines = F.cosine_similarity(vectors[::2, None], vectors[None, 1::2], dim=-1)
        expected = F.cross_entropy(cosines / 0.1, torch.tensor([0, 1])).item()
        assert embedding_loss_of(task, model, rows, temperature=0.1).item() == pytest.approx(
            expected, abs=1e-4
        )

    def test_vectors_of_length_one_and_of_cls(self, tokenizer, make):
        model = make(AlbertModel)
        task = bound(SentenceEmbedding(), tokenizer, max_length=32, pooling="cls", normalize=True)
        rows = task.features(self.EXAMPLES)
        (vector, *_) = task.run(PlainEngine(model), rows)
        expected = model(**tokenizer("the harbour", return_tensors="pt")).last_hidden_state[0, 0].detach()
        np.testing.assert_allclose(vector, expected / expected.norm(), atol=1e-5)

    def test_single_texts(self, tokenizer, make):
        """A text alone is its own second text: without dropout the loss is that of copies."""
        task = bound(SentenceEmbedding(), tokenizer, max_length=32)
        model = make(AlbertModel)
        rows = task.features([PairExample("word"), PairExample("sister")])
        (one, _) = task.predictions([PairExample("word")] * 2, rows, task.run(PlainEngine(model), rows))
        assert one.similarity is None
        assert [len(unit) for unit in task.units(rows)] == [2, 2]
        vectors = self.expected_vectors(model, tokenizer, ["word", "sister"])
        cosines = F.cosine_similarity(vectors[:, None], vectors[None], dim=-1)
        expected = F.cross_entropy(cosines / 0.05, torch.tensor([0, 1])).item()
        assert loss_of(task, model, rows).item() == pytest.approx(expected, abs=1e-4)
