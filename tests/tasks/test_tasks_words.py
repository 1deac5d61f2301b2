"""Tests of token classification, words and entities."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from bound_tasks import bound
from hypothesis import given
from hypothesis import strategies as st
from training_losses import loss_of

from albertkit.datasets.examples import WordsExample
from albertkit.engines.torch import TorchEngine
from albertkit.modeling.heads import AlbertForTokenClassification
from albertkit.tasks.token_classification import Tagged, TokenClassification, entities, split_words


class TestTokenClassification:
    LABELS = ("O", "B-PER", "I-PER", "S-LOC")
    EXAMPLE = WordsExample(
        ("remembered", "Lanimofe", "harbour", "\u200b", "."), ("O", "B-PER", "S-LOC", "O", "O")
    )

    def pieces(self, tokenizer) -> list[int]:
        return [len(tokenizer.tokenize(word)) for word in self.EXAMPLE.words]

    def test_the_first_pieces_of_words_are_labeled(self, tokenizer, make):
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

    def test_all_pieces_of_words_are_labeled(self, tokenizer):
        task = bound(
            TokenClassification(), tokenizer, max_length=48, labels=self.LABELS, labeled_tokens="all"
        )
        example = WordsExample(("remembered", "Lanimofe", "remembered"), ("O", "B-PER", "S-LOC"))
        (row,) = task.features([example])
        first, second, third = (len(tokenizer.tokenize(word)) for word in example.words)
        expected = [0] * first + [1] + [2] * (second - 1) + [3] * third  # there is no I-LOC
        assert row.labels == [-100, *expected, -100]

    def test_ignored_words_have_no_training_label(self, tokenizer):
        for labeled in ("first", "all"):
            task = bound(TokenClassification(), tokenizer, labels=self.LABELS, labeled_tokens=labeled)
            example = WordsExample(("remembered", "Lanimofe"), ("-100", "B-PER"))
            (row,) = task.features([example])
            first, second = (len(tokenizer.tokenize(word)) for word in example.words)
            later = [-100 if labeled == "first" else 2] * (second - 1)
            assert row.labels == [-100, *[-100] * first, 1, *later, -100]
            logits = np.eye(4)[[0] * first + [1] * second]
            (tagged,) = task.predictions([example], [row], [logits])
            assert [one.is_right for one in task.decisions(example, tagged)] == [True]
            assert task.scores([example], [tagged])["accuracy"] == 1.0

    def test_labels_without_types(self, tokenizer):
        names = ("O", "B", "I")
        task = bound(TokenClassification(), tokenizer, labels=names, labeled_tokens="all")
        example = WordsExample(("Lanimofe", "\u0301", "harbour"), ("B", "I", "I"))
        (row,) = task.features([example])
        first, last = len(tokenizer.tokenize("Lanimofe")), len(tokenizer.tokenize("harbour"))
        assert row.labels == [-100, 1, *[2] * (first - 1 + last), -100]
        (tagged,) = task.predictions([example], [row], [np.eye(3)[[1] * first + [2] * last]])
        assert tagged.labels == ["B", "I", "I"]
        assert task.main_metric([example]) == "f1"
        assert task.scores([example], [tagged])["f1"] == 1.0
        found = task.find_labels([replace(example, labels=("B", "I", "O"))], None, None)
        assert found.names == ("O", "B", "I")

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

    def test_windows_label_every_piece_once(self, tokenizer, make):
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
        (tagged,) = task.predictions([example], rows, task.run(TorchEngine(model), rows))
        assert len(tagged.labels) == 60
        assert tagged.pieces == pieces
        assert tagged.scores.shape == (len(pieces), 4)

    def test_sentences_without_words(self, tokenizer, make):
        task = bound(TokenClassification(), tokenizer, max_length=32, labels=self.LABELS)
        examples = [WordsExample(()), WordsExample(("\u200b",))]
        rows = task.features(examples)
        found = task.predictions(
            examples,
            rows,
            task.run(TorchEngine(make(AlbertForTokenClassification, num_labels=4)), rows),
        )
        assert [one.labels for one in found] == [[], ["O"]]
        assert task.features([]) == []

    @pytest.mark.parametrize(
        ("labels", "expected"),  # "-" is a word without pieces
        [
            ("B-PER - I-PER", "B-PER I-PER I-PER"),
            ("B-PER - - E-PER", "B-PER I-PER I-PER E-PER"),
            ("- B-PER - B-PER - O -", "O B-PER O B-PER O O O"),
            ("O - I-PER - I-LOC", "O O I-PER O I-LOC"),
            ("E-PER - I-PER -", "E-PER O I-PER O"),
        ],
    )
    def test_a_word_without_pieces_does_not_split_an_entity(self, tokenizer, labels, expected):
        names = ("O", "B-PER", "I-PER", "E-PER", "I-LOC")
        task = bound(TokenClassification(), tokenizer, labels=names)
        example = WordsExample(tuple("\u0301" if one == "-" else "old" for one in labels.split()))
        (row,) = task.features([example])
        logits = np.eye(len(names))[[names.index(labels.split()[word]) for word in row.words]]
        (tagged,) = task.predictions([example], [row], [logits])
        assert tagged.labels == expected.split()


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
    def test_words_contain_all_characters_except_spaces(self, text):
        words = split_words(text)
        assert "".join(text[start:end] for start, end in words) == "".join(text.split())
        assert all(end <= start for (_, end), (start, _) in pairwise(words))


class TestEntities:
    """Entities from the labels of words of one piece each, or from the labels of pieces."""

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
        starts = [10 * word for word in range(max(words) + 1)]
        grouped = entities(tagged, starts, tokenizer=tokenizer, labels=names, aggregation=aggregation)
        return [(entity["entity_group"], entity["start"], entity["end"]) for entity in grouped]

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
            ("B I O I B", [("ENTITY", 0, 11), ("ENTITY", 30, 31), ("ENTITY", 40, 41)]),
            ("O S B E B", [("ENTITY", 10, 11), ("ENTITY", 20, 31), ("ENTITY", 40, 41)]),
            ("E-X Y Y E-X", [("E-X", 0, 1), ("Y", 10, 21), ("E-X", 30, 31)]),  # E-X is a name here
        ],
    )
    def test_schemes(self, tokenizer, labels, expected):
        assert self.group(tokenizer, labels) == expected

    def test_pieces_of_a_word_form_an_entity(self, tokenizer):
        assert self.group(tokenizer, "S-X I-X S-X", words=[0, 0, 1]) == [("X", 0, 2), ("X", 10, 11)]

    def test_aggregations_first_max_and_average(self, tokenizer):
        names = ["O", "X", "Y"]
        scores = np.array([[0.1, 0.5, 0.4], [0.05, 0.05, 0.9], [0.7, 0.3, 0.0]])
        for aggregation, kind, score in (("first", "X", 0.5), ("max", "Y", 0.9), ("average", "Y", 1.3 / 3)):
            tagged = Tagged([], [7, 7, 7], [0, 0, 0], [(0, 1), (1, 2), (2, 3)], scores)
            (one,) = entities(tagged, [5], tokenizer=tokenizer, labels=names, aggregation=aggregation)
            assert (one["entity_group"], one["start"], one["end"]) == (kind, 5, 8)
            assert one["score"] == pytest.approx(score, abs=1e-6)

    def test_a_piece_without_characters_is_skipped(self, tokenizer):
        tagged = Tagged([], [7, 7], [0, 1], [(0, 0), (0, 2)], np.array([[0.1, 0.9, 0], [0, 0.1, 0.9]]))
        names = ["O", "X", "Y"]
        (one,) = entities(tagged, [4, 4], tokenizer=tokenizer, labels=names, aggregation="simple")
        assert (one["entity_group"], one["start"], one["end"]) == ("Y", 4, 6)

    def test_ignored_labels(self, tokenizer):
        tagged = Tagged([], [7], [0], [(0, 1)], np.array([[0.1, 0.9]]))
        group = partial(entities, tagged, [0], tokenizer=tokenizer, labels=["O", "B-X"])
        assert group(aggregation="simple", ignored_labels=["X"]) == []
        assert group(ignored_labels=["B-X"]) == []
