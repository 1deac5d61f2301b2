"""Tests of question answering, and of the windows of long texts."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from bound_tasks import bound
from hypothesis import given
from hypothesis import strategies as st
from training_losses import CPU, loss_of

from albertkit.datasets.examples import QuestionExample
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.losses import training_inputs
from albertkit.modeling.heads import AlbertForQuestionAnswering
from albertkit.tasks.question_answering import QuestionAnswering, whole_words
from albertkit.tasks.rows import owned


class TestWindows:
    @given(st.integers(1, 200), st.integers(2, 40), st.integers(0, 20))
    def test_each_token_belongs_to_the_window_with_most_context(self, length, size, stride):
        stride = min(stride, size // 2)
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


class TestQuestionAnswering:
    CONTEXT = "The captain, Lanimofe, found 12,000 letters. " * 6 + "My sister opened the harbour."

    def test_every_window_with_the_answer_is_labeled(self, tokenizer):
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

    def test_an_answer_longer_than_a_window_has_no_label(self, tokenizer):
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

    def test_a_row_needs_room_for_question_and_context(self, tokenizer):
        example = QuestionExample("q", "harbour " * 30, "a word")
        (row, *_) = bound(QuestionAnswering(), tokenizer, max_length=7, truncation=True).features([example])
        assert len(row.input_ids) == 7
        for length in (4, 6):
            with pytest.raises(ConfigError, match=f"max_length is {length}. Expected at least 7"):
                bound(QuestionAnswering(), tokenizer, max_length=length)

    def test_loss_is_the_loss_of_the_model(self, tokenizer, make):
        task = bound(QuestionAnswering(), tokenizer, max_length=48, doc_stride=16)
        example = QuestionExample("q", "who", self.CONTEXT, (("The captain", 0),))
        rows = task.features([example, QuestionExample("r", "who", "a word", is_impossible=True)])
        assert rows[-1].labels == (0, 0)
        model = make(AlbertForQuestionAnswering)
        for row in rows:  # each row alone, because padding changes the loss of this head
            output = model(torch.tensor([row.input_ids]), token_type_ids=torch.tensor([row.token_type_ids]))
            start, end = (torch.tensor([place]) for place in row.labels)
            expected = F.cross_entropy(output.start_logits, start) + F.cross_entropy(output.end_logits, end)
            assert loss_of(task, model, [row]).item() == pytest.approx(expected.item() / 2, abs=1e-5)
        assert training_inputs(task, rows, CPU)["start_positions"].tolist() == [row.labels[0] for row in rows]

    def test_the_best_answer_of_all_windows(self, tokenizer):
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
        assert found.no_answer.logit == 6  # the minimum of the windows
        assert found.no_answer_difference == -3
        for threshold in (None, 0.0, -3.0):
            assert found.ranked(threshold)[0] == best
        assert found.ranked(-3.5)[0].text == ""
        both = [output[:, [0, *row.context]] for row, output in zip(rows, outputs, strict=True)]
        starts, ends = np.concatenate(both, axis=1)
        expected = np.exp(5 - np.logaddexp.reduce(starts) + 4 - np.logaddexp.reduce(ends))
        assert best.score == pytest.approx(expected, rel=1e-4)

    def test_answers_have_no_spaces_at_their_ends(self, tokenizer):
        context = "The captain (old) found it"
        task = bound(QuestionAnswering(), tokenizer)
        (row,) = rows = task.features([QuestionExample("q", "who", context, ())])
        mark = row.offsets.index((12, 12))  # a word-start mark before the bracket
        words = [place for place, (start, end) in enumerate(row.offsets) if 4 <= start < end <= 11]
        output = np.zeros((2, len(row.input_ids)), np.float32)
        output[0, row.context.start + words[0]] = output[1, row.context.start + mark] = 5
        (found,) = task.predictions([QuestionExample("q", "who", context, ())], rows, [output])
        assert (found.answers[0].text, found.answers[0].start, found.answers[0].end) == ("captain", 4, 11)

    @pytest.mark.parametrize(
        ("place", "expected"),
        [
            ((5, 8), "captain"),
            ((4, 11), "captain"),
            ((3, 11), "captain"),
            ((4, 13), "captain,"),
            ((12, 13), ""),
            ((13, 16), "Lanimofe"),
            ((28, 31), "12"),
        ],
    )
    def test_whole_words(self, place, expected):
        start, end = whole_words("The captain, Lanimofe, found 12,000", *place)
        assert "The captain, Lanimofe, found 12,000"[start:end] == expected
