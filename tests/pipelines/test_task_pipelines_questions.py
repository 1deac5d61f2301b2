"""Pipelines for questions and multiple choice: answers of the models of transformers, files, and errors."""

import json
import types
from pathlib import Path

import pytest
import torch
import transformers
from answers import assert_close
from pipeline_answers import random_texts

from albertkit.errors import ConfigError, DataError
from albertkit.modeling.heads import AlbertForQuestionAnswering
from albertkit.pipelines import pipeline
from albertkit.tokenization.tokenizer import AlbertTokenizer

pytestmark = pytest.mark.usefixtures("engine_of_pipelines")


class TestQuestionAnswering:
    CONTEXT = "The captain, Lanimofe, opened the harbour in the morning of 1,847. My sister remembered it."
    QUESTION = "who opened the harbour"

    def reference(
        self, folder: Path, question: str, context: str, *, max_answer_len: int
    ) -> tuple[list[tuple[float, int, int]], float]:
        """Return every span (score, start, end) of a context in one window, and the score of no answer.

        By the formula of transformers 4 (5 has no such pipeline), slowly and on the model of transformers.
        """
        tokenizer = AlbertTokenizer.from_pretrained(folder)
        inputs = tokenizer(question, context, return_tensors="pt")
        offsets, sequence = inputs[0].offsets, inputs[0].sequence_ids
        model = transformers.AlbertForQuestionAnswering.from_pretrained(folder).eval()
        with torch.no_grad():
            output = model(**inputs)
        allowed = torch.tensor([position == 0 or which == 1 for position, which in enumerate(sequence)])
        starts, ends = (
            logits[0].masked_fill(~allowed, float("-inf")).softmax(dim=-1)
            for logits in (output.start_logits, output.end_logits)
        )
        found: dict[tuple[int, int], float] = {}
        inside = [position for position, which in enumerate(sequence) if which == 1]
        for first in inside:
            for last in inside:
                if first <= last < first + max_answer_len:
                    start, end = offsets[first][0], offsets[last][1]
                    while start < end and context[end - 1].isspace():  # the last token is only a mark
                        end -= 1
                    while start < end and start and context[start - 1 : start + 1].isalnum():
                        start -= 1
                    while start < end < len(context) and context[end - 1 : end + 1].isalnum():
                        end += 1
                    if start < end:
                        score = float(starts[first] * ends[last])
                        found[start, end] = max(score, found.get((start, end), 0))
        null = float(starts[0] * ends[0])
        return sorted(((score, *place) for place, score in found.items()), reverse=True), null

    @pytest.mark.parametrize("max_answer_len", [1, 4, 30])
    def test_equals_every_span_tried(self, questions, max_answer_len):
        answer = pipeline("question-answering", questions)
        given = {"question": self.QUESTION, "context": self.CONTEXT, "max_answer_len": max_answer_len}
        expected, null = self.reference(questions, self.QUESTION, self.CONTEXT, max_answer_len=max_answer_len)
        apart: list[tuple[float, int, int]] = []
        for score, start, end in expected:
            if all(end <= other[1] or other[2] <= start for other in apart):
                apart.append((score, start, end))
        answers = answer(**given, top_k=10)
        expected = apart
        assert list(answers[0]) == ["score", "start", "end", "answer"]
        assert [one["score"] for one in answers] == pytest.approx(
            [score for score, _, _ in expected[:10]], abs=1e-5
        )
        for one in answers:
            assert one["answer"] == self.CONTEXT[one["start"] : one["end"]]
            assert one["score"] == pytest.approx(
                next(score for score, *place in expected if place == [one["start"], one["end"]]), abs=1e-5
            )
        assert len(answer(**given, top_k=1_000)) == len(expected)
        possible = answer(**given, top_k=1_000, handle_impossible_answer=True)
        (nothing,) = (one for one in possible if not one["answer"])
        assert nothing == {"score": pytest.approx(null, abs=1e-5), "start": 0, "end": 0, "answer": ""}
        scores = [one["score"] for one in possible]
        assert scores == sorted(scores, reverse=True)

    def test_shapes(self, questions):
        answer = pipeline("question-answering", questions)
        given = {"question": self.QUESTION, "context": self.CONTEXT}
        single = answer(given)
        assert isinstance(single, dict)
        assert_close(answer(**given), single)
        assert_close(answer([given, given]), [single, single])
        assert_close(answer(question=[self.QUESTION] * 2, context=self.CONTEXT), [single, single])
        assert_close(list(answer(iter([given]))), [single])
        assert_close(answer(given, top_k=3)[0], single)
        assert len(answer(given, top_k=3)) == 3

    def test_files(self, questions, tmp_path):
        answer = pipeline("question-answering", questions)
        given = {"question": self.QUESTION, "context": self.CONTEXT}
        (tmp_path / "q.tsv").write_text(f"{self.QUESTION}\t{self.CONTEXT}\n")
        (tmp_path / "q.jsonl").write_text(json.dumps({"id": 7, **given}))
        for name in ("q.tsv", "q.jsonl"):
            assert_close(list(answer(tmp_path / name)), [answer(given)])

    def test_windows_and_batches(self, questions):
        answer = pipeline("question-answering", questions, top_k=5, doc_stride=16)
        given = [
            {"question": "the " + text, "context": context}
            for text, context in zip(
                random_texts(12, words=(1, 5)), random_texts(12, words=(1, 150), seed=3), strict=True
            )
        ]
        single = [answer(one) for one in given]
        for batch_size in (1, 5, None):
            assert_close(answer(given, batch_size=batch_size), single)
        for one, answers in zip(given, single, strict=True):
            for found in answers:
                assert one["context"][found["start"] : found["end"]] == found["answer"] != ""
                assert 0 < found["score"] < 1
        # somewhere an answer is found far behind the first window
        assert max(found["start"] for answers in single for found in answers) > 300

    def test_no_answer_by_the_threshold_of_the_config(self, questions, tokenizer, tmp_path):
        model = AlbertForQuestionAnswering.from_pretrained(questions)
        given = {"question": self.QUESTION, "context": self.CONTEXT}
        best = pipeline("question-answering", model, tokenizer)(given)
        assert best["answer"]
        for threshold, empty in ((-1e6, True), (1e6, False)):
            model.config.null_score_diff_threshold = threshold
            model.save_pretrained(tmp_path)
            tokenizer.save_pretrained(tmp_path)
            answer = pipeline("question-answering", tmp_path)
            assert (answer(given)["answer"] == "") is empty
            assert_close(answer(given, handle_impossible_answer=False), best)

    def test_errors(self, questions):
        answer = pipeline("question-answering", questions)
        for empty in ("", " \n"):
            with pytest.raises(DataError, match=r"the context is empty. Expected a text"):
                answer(question="who", context=empty)
            with pytest.raises(DataError, match=r"the question is empty. Expected a text"):
                answer(question=empty, context="a word")
        with pytest.raises(DataError, match=r'Expected \{"question'):
            answer()
        with pytest.raises(
            DataError,
            match=r"the question .* has \d+ tokens. Expected at most 48",
        ):
            answer(question="word " * 60, context=self.CONTEXT)
        with pytest.raises(DataError, match=r'Expected \{"question'):
            answer(question="who")
        with pytest.raises(DataError, match="2 questions and 3 contexts"):
            answer(question=["who"] * 2, context=["a"] * 3)
        with pytest.raises(DataError, match=r'Expected \{"question"'):
            answer(["who"])
        with pytest.raises(ConfigError, match="max_answer_len is 0"):
            answer(question="who", context="a", max_answer_len=0)


class TestMultipleChoice:
    GIVEN = types.MappingProxyType(
        {
            "context": "The captain opened the harbour",
            "question": "who opened it",
            "choices": ["the captain", "my sister", "a silver fox in the morning"],
        }
    )

    def test_equals_the_logits_of_transformers(self, choices, tokenizer):
        model = transformers.AlbertForMultipleChoice.from_pretrained(choices).eval()
        context, question, options = self.GIVEN.values()
        inputs = tokenizer(
            [context] * 3, [f"{question} {option}" for option in options], padding=True, return_tensors="pt"
        )
        assert inputs["token_type_ids"].any()
        with torch.no_grad():
            logits = model(**{name: value[None] for name, value in inputs.items()}).logits
        answer = pipeline("multiple-choice", choices)(self.GIVEN)
        assert answer["scores"] == pytest.approx(logits.softmax(dim=-1)[0].tolist(), abs=1e-5)
        assert answer["index"] == int(logits.argmax())
        assert answer["choice"] == options[answer["index"]]
        assert answer["score"] == max(answer["scores"])

    def test_gap_is_filled(self, choices):
        choose = pipeline("multiple-choice", choices)
        gap = choose({**self.GIVEN, "question": "_ opened it"})
        filled = [f"{choice} opened it" for choice in self.GIVEN["choices"]]
        assert_close(gap["scores"], choose({**self.GIVEN, "question": None, "choices": filled})["scores"])

    def test_long_context(self, choices):
        choose = pipeline("multiple-choice", choices)
        long = {**self.GIVEN, "context": "word " * 100}
        with pytest.raises(DataError, match="truncation=True"):
            choose(long)
        answer = choose(long, truncation=True)
        assert answer["cut"] > 20
        with pytest.raises(DataError, match="leaves no room for the first"):
            choose({**long, "choices": ["word " * 100, "a"]}, truncation=True)

    @pytest.mark.parametrize(
        "bad", [{"context": "a"}, {"context": "a", "choices": "bc"}, {"choices": ["a", "b"]}]
    )
    def test_errors(self, choices, bad):
        choose = pipeline("multiple-choice", choices)
        with pytest.raises(DataError, match=r'Expected \{"context"'):
            choose(bad)
        with pytest.raises(DataError, match=r"has a single choice. Expected at least two"):
            choose({"context": "a", "choices": ["b"]})
