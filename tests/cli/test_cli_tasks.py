"""Tests of the commands classify, tag, answer, choose and order: the answers of pipelines, and the output."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import openpyxl
import pytest
from command_line import assert_one_line_error

from albertkit.modeling.heads import (
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from albertkit.pipelines import pipeline

TEXT = "the captain opened the harbour"


@pytest.fixture(scope="module")
def folders(save_model: Callable[..., Path]) -> dict[str, Path]:
    """Return a folder with a random model for each head."""
    models = (
        ("classes", AlbertForSequenceClassification, {"id2label": {0: "bad", 1: "fair", 2: "good"}}),
        ("numbers", AlbertForSequenceClassification, {"num_labels": 1, "problem_type": "regression"}),
        ("tags", AlbertForTokenClassification, {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}}),
        ("questions", AlbertForQuestionAnswering, {}),
        ("choices", AlbertForMultipleChoice, {}),
        ("order", AlbertForPreTraining, {}),
    )
    return {name: save_model(model_class, **settings) for name, model_class, settings in models}


class TestClassify:
    def test_json(self, run, folders):
        result = run("classify", TEXT, "word", "--model", folders["classes"], "--json")
        answers = pipeline("text-classification", folders["classes"])([TEXT, "word"], top_k=None)
        assert result.json == [
            {"text": text, "predictions": answer}
            for text, answer in zip([TEXT, "word"], answers, strict=True)
        ]
        (one,) = run("classify", TEXT, "--model", folders["classes"], "--top-k", 1, "--json").json
        (best,) = one["predictions"]
        assert best == answers[0][0] | {"score": pytest.approx(answers[0][0]["score"], abs=1e-6)}

    def test_pairs(self, run, folders, tmp_path):
        call = ("classify", "--model", folders["classes"], "--json")
        (expected,) = run(*call, TEXT, "--pair", "my sister").json
        assert expected["text_pair"] == "my sister"
        assert expected["predictions"] == pipeline("text-classification", folders["classes"])(
            (TEXT, "my sister"), top_k=None
        )
        (tmp_path / "pairs.tsv").write_text(f"{TEXT}\tmy sister\n")
        assert run(*call, "--file", tmp_path / "pairs.tsv").json == [expected]
        line = json.dumps({"text": TEXT, "text_pair": "my sister"}).encode()
        assert run(*call, "--format", "jsonl", stdin=line).json == [expected]
        assert_one_line_error(run(*call, "a", "b", "--pair", "c"), "Pass one text")

    def test_table(self, run, folders):
        output = run("classify", TEXT, "--model", folders["classes"]).output
        labels = pipeline("text-classification", folders["classes"])(TEXT, top_k=None)
        lines = output.splitlines()
        assert lines[0] == TEXT
        assert [line.split()[:2] for line in lines[1:4]] == [
            [one["label"], f"{100 * one['score']:.3g}%"] for one in labels
        ]
        (value,) = pipeline("text-classification", folders["numbers"])(TEXT)
        assert (
            f"\nscore  {value['score']:.4g}\n" in run("classify", TEXT, "--model", folders["numbers"]).output
        )

    def test_long_text(self, run, folders):
        call = ("classify", "word " * 60, "--model", folders["classes"])
        assert_one_line_error(run(*call), "62 tokens", "--truncation")
        assert "truncated: the last 14 tokens" in run(*call, "--truncation").output


class TestTag:
    def test_json(self, run, folders):
        find = pipeline("ner", folders["tags"])
        for strategy in ("none", "first"):
            (line,) = run(
                "tag", TEXT, "--model", folders["tags"], "--aggregation-strategy", strategy, "--json"
            ).json
            assert line == {"text": TEXT, "entities": find(TEXT, aggregation_strategy=strategy)}

    def test_words(self, run, folders):
        text = "the captain , Lanimofe  ( opened )"
        (line,) = run("tag", text, "--model", folders["tags"], "--words", "--json").json
        find = pipeline("ner", folders["tags"], aggregation_strategy="first")
        assert line == {
            "text": " ".join(text.split()),
            "entities": find(text.split(), is_split_into_words=True),
        }

    def test_a_line_of_words(self, run, folders, tmp_path):
        file, words = tmp_path / "words.jsonl", TEXT.split()
        file.write_text(json.dumps(words))
        entities = pipeline("ner", folders["tags"], aggregation_strategy="first")([words])[0]
        for more in ((), ("--words",)):
            arguments = ("tag", "--file", file, "--model", folders["tags"], *more)
            assert run(*arguments, "--json").json == [{"text": TEXT, "entities": entities}]
            output = run(*arguments).output
            assert output.startswith(TEXT)
            for one in entities:
                assert TEXT[one["start"] : one["end"]] in output

    def test_table(self, run, folders):
        entities = pipeline("ner", folders["tags"], aggregation_strategy="first")(TEXT)
        output = run("tag", TEXT, "--model", folders["tags"]).output
        assert output.startswith(TEXT)
        for one in entities:
            assert f"{one['start']}:{one['end']}" in output
        lines = run("tag", "", TEXT, "--model", folders["tags"]).output.splitlines()
        assert "nothing found" in lines


class TestAnswer:
    CONTEXT = "The captain opened the harbour. My sister found 12,000 letters."

    def test_json(self, run, folders, tmp_path):
        call = ("answer", "--model", folders["questions"], "--json", "--top-k", 2)
        expected = pipeline("question-answering", folders["questions"])(
            question="who", context=self.CONTEXT, top_k=2
        )
        (tmp_path / "context.txt").write_text(self.CONTEXT)
        for options in (("--context", self.CONTEXT), ("--context-file", tmp_path / "context.txt")):
            result = run(*call, "who", "who", *options)
            assert result.json == [{"question": "who", "answers": expected}] * 2
        assert run(*call, "--context", self.CONTEXT, stdin=b"who\n").json == result.json[:1]
        (tmp_path / "questions.tsv").write_text(f"who\t{self.CONTEXT}\n")
        (line,) = run(*call, "--file", tmp_path / "questions.tsv").json
        assert line == {"question": "who", "context": self.CONTEXT, "answers": expected}

    def test_table(self, run, folders):
        output = run("answer", "who", "--context", self.CONTEXT, "--model", folders["questions"]).output
        best = pipeline("question-answering", folders["questions"])(question="who", context=self.CONTEXT)
        assert output.startswith("who\n")
        assert f"[{best['answer']}]" in output
        assert f"{best['start']}:{best['end']}" in output
        call = ("answer", "who", "--context", self.CONTEXT, "--model", folders["questions"], "--top-k", "500")
        assert "(no answer)" in run(*call, "--handle-impossible-answer").output
        assert "(no answer)" not in run(*call, "--no-handle-impossible-answer").output

    def test_errors(self, run, folders, tmp_path):
        call = ("answer", "who", "--model", folders["questions"])
        assert_one_line_error(run(*call), "Pass --context or --context-file")
        assert_one_line_error(run(*call, "--context", "a", "--context-file", tmp_path / "b"), "passed twice")
        assert_one_line_error(run(*call, "--context-file", tmp_path / "none.txt"), "none.txt")
        latin = tmp_path / "latin.txt"
        latin.write_bytes("Queen Anne\nopened the café.".encode("latin-1"))
        message = f"{latin}, line 2: not UTF-8 (byte 0xe9 at column 15)"
        assert_one_line_error(run(*call, "--context-file", latin), message)


class TestChoose:
    def test_json_and_table(self, run, folders, tmp_path):
        given = {"context": TEXT, "question": "who opened it", "choices": ["the captain", "my sister"]}
        call = ("choose", "--model", folders["choices"])
        arguments = (*given["choices"], "--context", TEXT, "--question", given["question"])
        expected = pipeline("multiple-choice", folders["choices"])(given)
        assert run(*call, *arguments, "--json").json == [{**given, "predictions": [expected]}]
        (tmp_path / "choices.tsv").write_text("\t".join([TEXT, given["question"], *given["choices"]]))
        assert run(*call, "--file", tmp_path / "choices.tsv", "--json").json == [
            {**given, "predictions": [expected]}
        ]
        lines = run(*call, *arguments).output.splitlines()
        assert lines[:2] == [TEXT, "who opened it"]
        for line, choice, score in zip(lines[2:4], given["choices"], expected["scores"], strict=True):
            assert line.startswith(choice)
            assert f"{100 * score:.3g}%" in line

    def test_errors(self, run, folders):
        call = ("choose", "--model", folders["choices"])
        assert_one_line_error(run(*call, "a", "b"), "received only one of CHOICE and --context")
        assert_one_line_error(run(*call, "--question", "who", stdin=b"a\tb\tc\td\n"), "Omit --question")
        assert_one_line_error(
            run(*call, "a", "--context", "b"), "question 1: ", "a single choice. Expected at least two"
        )
        assert_one_line_error(run(*call, stdin=b"a text\n"), "'a text'", 'Expected {"context"')


class TestOrder:
    def test_json_and_text(self, run, folders, tmp_path):
        call = ("order", "--model", folders["order"])
        expected = pipeline("sentence-order", folders["order"])((TEXT, "word"))
        line = {"text": TEXT, "text_pair": "word", "predictions": [expected]}
        assert run(*call, TEXT, "word", "--json").json == [line]
        (tmp_path / "pairs.tsv").write_text(f"{TEXT}\tword\n")
        assert run(*call, "--file", tmp_path / "pairs.tsv", "--json").json == [line]
        output = run(*call, TEXT, "word").output.splitlines()
        assert output[:3] == [TEXT, "word", f"{expected['label']}  {100 * expected['score']:.3g}%"]

    def test_bundled_model(self, run):
        result = run("order", "The ship left the harbour.", "By noon it was out of sight.", "--json")
        assert result.json[0]["predictions"][0]["label"] in ("in order", "swapped")

    def test_errors(self, run, folders):
        assert_one_line_error(
            run("order", "a", "--model", folders["order"]), "texts received: 1. Expected two"
        )


def test_names_of_emojis_are_text(run) -> None:
    """Rich would show the emojis."""
    assert run("order", "a :smile:", "b").output.startswith("a :smile:\n")
    assert_one_line_error(run("order", "--file", "a:100:b"), "a:100:b: no such file")


@pytest.mark.parametrize(
    "call",
    [
        ("classify", TEXT),
        ("tag", TEXT),
        ("answer", "who", "--context", TEXT),
        ("choose", "a", "b", "--context", TEXT),
    ],
)
def test_bundled_model_must_be_fine_tuned_first(run, call):
    assert_one_line_error(run(*call), "'bundled' was not trained for", "Fine-tune it")


class TestFiles:
    """Files of `--file`: all inputs are checked before the first answer."""

    VERBS: ClassVar = {
        "fill-mask": "order", "embed": "order", "classify": "classes", "tag": "tags", "answer": "questions",
        "choose": "choices", "order": "order",
    }  # fmt: skip

    def test_tables_with_a_header(self, run, folders, tmp_path):
        file = tmp_path / "a.csv"
        file.write_text('id,Text\n1,"the captain, again"\n2,a word\n')
        model = ("--model", folders["classes"], "--json")
        assert run("classify", "--file", file, *model).output == (
            run("classify", "the captain, again", "a word", *model).output
        )
        file.write_text("text_pair,text\nthe sea,the captain\n")
        (line,) = run("classify", "--file", file, *model).json
        assert (line["text"], line["text_pair"]) == ("the captain", "the sea")

    def test_workbooks(self, run, folders, tmp_path):
        book = openpyxl.Workbook()
        for row in (("id", "Text"), (1, "the captain, again"), (2, "a word")):
            book.active.append(row)
        book.save(tmp_path / "a.xlsx")
        model = ("--model", folders["classes"], "--json")
        assert run("classify", "--file", tmp_path / "a.xlsx", *model).output == (
            run("classify", "the captain, again", "a word", *model).output
        )

    @pytest.mark.parametrize("verb", VERBS)
    def test_other_formats_are_an_error(self, run, tmp_path, verb):
        for suffix in ("xls", "json", "jsonl.gz"):
            file = tmp_path / f"table.{suffix}"
            file.write_text("text,label\na,b\n")
            assert_one_line_error(run(verb, "--file", file), str(file), "cannot be read here")
        file = tmp_path / "table.tsv"
        file.write_text("text\tlabel\na\tb\n")
        assert_one_line_error(
            run(verb, "--file", file),
            "table.tsv, line 1: 'text', 'label' are column names",
            "write the table as .csv",
        )

    def test_a_format_overrides_the_name(self, run, folders, tmp_path):
        file = tmp_path / "table.csv"
        file.write_text(f"{TEXT}\n")
        call = ("classify", "--model", folders["classes"], "--json", "--file", file)
        (line,) = run(*call, "--format", "lines").json
        assert line["text"] == TEXT

    def test_inputs_that_cannot_be_answered_are_counted_first(self, run, folders, tmp_path):
        file = tmp_path / "texts.jsonl"
        long = json.dumps("word " * 600)
        file.write_text(f'"a"\n\nnull\n"b"\n{long}\n{{"text": NaN}}\n')
        for verb, more in (("classify", ()), ("tag", ("--words",)), ("embed", ())):
            result = run(verb, "--model", folders[self.VERBS[verb]], "--json", "--file", file, *more)
            lines = "3, 5, 6" if verb != "tag" else "3, 6"
            assert_one_line_error(
                result, f"{file}, ", f"of 5 inputs cannot be answered: lines {lines}. The first: "
            )
        file.write_text('"who"\n3\n')
        result = run("answer", "--model", folders["questions"], "--context", TEXT, "--file", file)
        assert_one_line_error(result, f"{file}, line 2: ", "3")
