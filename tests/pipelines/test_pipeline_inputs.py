"""Tests of the inputs of pipelines: datasets, tables, wrong inputs and texts of unknown tokens."""

import json
import re
import types
import warnings

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from pipeline_inputs import CHOICE, PAIRS, QUESTION, TEXTS
from transformers.pipelines.pt_utils import KeyDataset, KeyPairDataset

from albertkit.datasets.inputs import NumberedInputs
from albertkit.errors import ConfigError, DataError
from albertkit.pipelines import Pipeline, core, pipeline
from albertkit.pipelines.tasks import DEFINITIONS

ARABIC = "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645"


class TestDatasets:
    def test_map_style_datasets(self, made, classify):
        rows = [{"sentence": text, "label": 1} for text in TEXTS]
        expected = classify(TEXTS)
        for dataset in (
            KeyDataset(rows, "sentence"),
            KeyDataset(datasets.Dataset.from_list(rows), "sentence"),
        ):
            answers = classify(dataset, num_workers=2, batch_size=2)
            assert isinstance(answers, types.GeneratorType)  # a dataset may be larger than memory
            assert list(answers) == classify(TEXTS, batch_size=2)
            assert list(made["feature-extraction"](dataset)) == made["feature-extraction"](TEXTS)
        pairs = KeyPairDataset([{"a": a, "b": b} for a, b in PAIRS], "a", "b")
        assert list(classify(pairs)) == classify(PAIRS)
        assert list(classify(datasets.Dataset.from_dict({"text": TEXTS}))) == expected
        assert list(classify(datasets.Dataset.from_list(rows)["sentence"])) == expected
        assert list(made["question-answering"](datasets.Dataset.from_list([dict(QUESTION)] * 2))) == made[
            "question-answering"
        ]([dict(QUESTION)] * 2)

    def test_a_map_style_dataset_is_read_lazily(self, classify):
        class Counted(torch.utils.data.Dataset):
            def __len__(self):
                return 10**9

            def __getitem__(self, number):
                read.append(number)
                return "a word"

        read = []
        answers = classify(Counted(), batch_size=2)
        assert read == []
        next(answers)
        assert read == list(range(32))

    def test_columns(self, made, classify):
        expected = classify(TEXTS)
        frame = pd.DataFrame({"text": TEXTS})
        for column in (frame["text"], frame["text"][::-1][::-1], np.array(TEXTS), frame["text"].to_numpy()):
            assert classify(column) == expected
        assert classify(pa.table({"text": TEXTS})["text"]) == expected
        assert classify(frame.to_dict("records")) == expected
        assert classify([[["the harbour opened", "a word"]]]) == classify(PAIRS[:1])
        assert classify([[list(pair)] for pair in PAIRS]) == classify(PAIRS)
        with pytest.raises(DataError, match=r"\['a', 'b'\] \(list\) for a text\. .*\"text_pair\""):
            classify([["a", "b"]])  # as in transformers: these may be two texts

    def test_tables(self, made, classify, tmp_path):
        columns = {"Label": [1, 0, 1], "Text": TEXTS}
        frame = pd.DataFrame(columns)
        frame.to_csv(tmp_path / "texts.csv", index=False)
        for table in (frame, pa.table(columns), columns):
            assert classify(table) == classify(TEXTS)
            assert made["feature-extraction"](table) == made["feature-extraction"](TEXTS)
        assert list(classify(tmp_path / "texts.csv")) == classify(TEXTS)
        pairs = pd.DataFrame(PAIRS, columns=["text", "text_pair"])
        assert classify(pairs) == classify(PAIRS)
        assert made["sentence-order"](pairs) == made["sentence-order"](PAIRS)
        assert classify(pd.DataFrame({"anything": TEXTS})) == classify(TEXTS)
        questions = pd.DataFrame([QUESTION] * 2)
        assert made["question-answering"](questions) == made["question-answering"]([dict(QUESTION)] * 2)
        choices = pd.DataFrame([CHOICE])
        assert made["multiple-choice"](choices) == made["multiple-choice"]([dict(CHOICE)])
        with pytest.raises(DataError, match=r"the columns are a, b\. Expected text, text_pair"):
            classify(pd.DataFrame({"a": ["x"], "b": ["y"]}))
        with pytest.raises(DataError, match=r"row 2: received"):
            classify(pd.DataFrame({"text": ["x", None]}))


class TestWrongInputs:
    BAD = ("a word", None, "word " * 60, "the harbour", float("nan"))

    def test_all_wrong_inputs_are_counted_before_the_computation(self, classify, monkeypatch):
        monkeypatch.setattr(type(classify.engine), "run", lambda *_, **__: pytest.fail("computed"))
        for inputs in (list(self.BAD), pd.Series(self.BAD, dtype=object, index=range(7, 12)), self.BAD):
            with pytest.raises(
                DataError,
                match=r"3 of 5 inputs .* inputs 1, 2, 4 \(counted from 0\)\. .*first: received None",
            ):
                classify(inputs)
            with pytest.raises(DataError, match=r"^3 of 5 inputs"):
                classify(inputs, batch_size=1)
        monkeypatch.setattr(core, "INPUTS_AHEAD", 2)
        with pytest.raises(DataError, match=r"^13 of 25 .* 1, 2, 4, 6, 7, 9, 11, 12, 14, 16, \.\.\. \("):
            classify([*self.BAD * 4, *TEXTS, "a", None])
        with pytest.raises(DataError, match=r"^input 2 \(counted from 0\): the text .* has 62 tokens"):
            classify(["a", "b", "word " * 60])

    def test_a_generator_is_checked_lazily(self, classify, monkeypatch):
        monkeypatch.setattr(core, "INPUTS_AHEAD", 2)
        answers = classify(one for one in ["a", "b", "c", None, 3])
        assert [next(answers) for _ in range(2)] == classify(["a", "b"])
        with pytest.raises(DataError, match=r"^input 3 \(counted from 0\): received None"):
            next(answers)

    def test_lines_of_a_file(self, classify, tmp_path):
        file = tmp_path / "texts.jsonl"
        file.write_text("\n".join(["", '"a word"', "", "null", '{"text": "b"}', "3"]))
        with pytest.raises(DataError, match=r"texts\.jsonl, 2 of 4 inputs cannot be answered: lines 4, 6\. "):
            list(classify(file))
        file.write_text('"a"\n\nnull\n')
        with pytest.raises(DataError, match=r"texts\.jsonl, line 3: received None"):
            list(classify(file))

    @pytest.mark.parametrize(
        ("task", "good", "bad", "message"),
        [
            ("fill-mask", "a [MASK]", "a word", "there is no"),
            ("feature-extraction", "a word", "word " * 60, "62 tokens"),
            ("token-classification", "a word", 3, "Expected a string"),
            ("sentence-order", ("a", "b"), "a", "Expected a pair"),
            ("question-answering", dict(QUESTION), {**QUESTION, "question": "word " * 60}, "60 tokens"),
            ("multiple-choice", dict(CHOICE), {**CHOICE, "choices": ["a"]}, "a single choice"),
        ],
    )
    def test_the_inputs_of_every_task_are_checked(self, made, task, good, bad, message):
        with pytest.raises(
            DataError, match=rf"^2 of 4 inputs .*: inputs 1, 3 \(counted from 0\)\..*{message}"
        ):
            made[task]([good, bad, good, bad])

    def test_invalid_sizes_folders_and_swapped_arguments(self, classify, tmp_path):
        with pytest.raises(ConfigError, match=r"batch_size is '8'. Expected a whole number"):
            classify("a word", batch_size="8")
        with pytest.raises(ConfigError, match=r"max_length is 5\.5. Expected a whole number of at least 3"):
            classify("a word", max_length=5.5)
        with pytest.raises(ConfigError, match="there is no device '--1'"):
            pipeline("fill-mask", device="--1")
        for name in ("batch_size", "max_length", "top_k"):
            with pytest.raises(ConfigError, match=f"{name} is True. Expected a whole number of at least"):
                classify("a word", **{name: True})
        assert classify("a word", top_k=np.int64(1)) == classify("a word", top_k=1)
        with pytest.raises(DataError, match=r"is a folder. Expected a file"):
            classify(tmp_path)

    def test_questions_and_labels_of_a_wrong_type(self, made):
        with pytest.raises(DataError, match=r"Expected .\"question"):
            made["question-answering"](question=3, context="a word")
        tag = made["token-classification"]
        for labels in ("LABEL_0", 3, [["LABEL_0"]]):
            with pytest.raises(
                ConfigError, match=rf"ignore_labels is {re.escape(repr(labels))}\. Expected a "
            ):
                tag("a word", ignore_labels=labels)
        for argument in ("prompt", "prompt_name"):
            with pytest.raises(ConfigError, match=rf"{argument} is \['query'\]\. Expected a text"):
                made["feature-extraction"]("a word", **{argument: ["query"]})
        for targets in (3, ["word", 3]):
            with pytest.raises(DataError, match=r"the target is 3\. Expected a word"):
                made["fill-mask"]("a [MASK]", targets=targets)
        with pytest.raises(ConfigError, match=r"stride is 2\.5. Expected a whole number of at least 0"):
            tag("a word", stride=2.5)
        with pytest.raises(DataError, match=r"received a text.* Expected a list of words"):
            tag("a word", is_split_into_words=True)
        with pytest.raises(ConfigError, match=r"truncation is 'only_first'. Expected True or False"):
            made["multiple-choice"](dict(CHOICE), truncation="only_first")

    def test_a_misspelled_argument(self, made, monkeypatch):
        monkeypatch.setattr(core, "load_complete_model", lambda *_, **__: pytest.fail("a model was read"))
        fill = made["fill-mask"]
        for call in (
            lambda: fill("a [MASK]", topk=1),
            lambda: Pipeline(fill.model, fill.tokenizer, "fill-mask", topk=1),
            lambda: pipeline("fill-mask", fill.model, fill.tokenizer, topk=1),
            lambda: pipeline("fill-mask", topk=1),
        ):
            with pytest.raises(ConfigError, match=r"fill-mask: unknown argument 'topk'.*'top_k'"):
                call()
        for task, wrong, meant in (
            ("text-classification", "return_all_scores", "'top_k=None'"),
            ("ner", "grouped_entities", "\"aggregation_strategy='simple'\""),
            ("fill-mask", "local_file_only", "'local_files_only'"),
        ):
            with pytest.raises(ConfigError, match=rf"Did you mean {meant}"):
                pipeline(task, **{wrong: True})

    def test_other_fields_are_ignored_in_memory_and_in_files(self, made, classify, tmp_path):
        cases = (
            ("text-classification", [{"text": TEXTS[0]}, {"text": TEXTS[1], "text_pair": "a"}]),
            ("feature-extraction", [{"text": TEXTS[0]}, {"text": TEXTS[1]}]),
            ("token-classification", [{"text": TEXTS[0]}]),
            ("multiple-choice", [dict(CHOICE)]),
            ("question-answering", [dict(QUESTION)]),
        )
        for task, rows in cases:
            named = [{"id": 7, **row, "label": "good", "title": "x"} for row in rows]
            file = tmp_path / f"{task}.jsonl"
            file.write_text("".join(json.dumps(row) + "\n" for row in named))
            expected = made[task](rows)
            for inputs in (named, iter(named), file):
                assert list(made[task](inputs)) == expected
        assert classify({"text": TEXTS[0], "id": 7}) == classify([TEXTS[0]])[0]
        for given in ([{"text": "a", "text_piar": "b"}], {"text": "a", "text_piar": "b"}):
            with pytest.raises(DataError, match=r"field 'text_piar' \(did you mean 'text_pair'\?\)"):
                classify(given)

    def test_a_file_of_one_column_has_no_header(self, classify, tmp_path):
        file = tmp_path / "texts.tsv"
        for word in ("text", "Question", "label"):
            file.write_text(f"{word}\na word\n")
            assert list(classify(file)) == classify([word, "a word"])
        file.write_text("text\tlabel\na word\tgood\n")
        with pytest.raises(DataError, match="'text', 'label' are column names"):
            list(classify(file))

    def test_fields_by_name(self, made, classify):
        assert made["multiple-choice"](**CHOICE) == made["multiple-choice"](dict(CHOICE))
        with pytest.raises(ConfigError, match="passed twice"):
            made["multiple-choice"](dict(CHOICE), choices=["a", "b"])
        assert classify(PAIRS[0][0], text_pair=PAIRS[0][1]) == [classify(PAIRS[0])]
        with pytest.raises(ConfigError, match="inputs are passed twice"):
            classify(TEXTS, text_pair="a")


class TestUnknownTokens:
    @pytest.mark.parametrize("text", [ARABIC, "\U0001f600", "\U0001f600 \U0001f680!"])
    def test_one_warning_for_all_texts(self, classify, made, text):
        for inputs, count in (([text], "1 of 1"), ([*TEXTS, *[text] * 40], "40 of 43")):
            for given in (inputs, iter(inputs)):
                with pytest.warns(UserWarning, match="consist mostly of unknown tokens") as caught:
                    list(classify(given, batch_size=3))
                assert len(caught) == 1
            with pytest.warns(
                UserWarning, match=rf"^{count} texts consist mostly of unknown tokens \(\d+% of"
            ):
                classify(inputs)
        with pytest.warns(UserWarning, match="consist mostly of unknown tokens"):
            classify(text)
        with pytest.warns(UserWarning, match="consist mostly of unknown tokens"):
            made["fill-mask"](f"{text} {text} [MASK]")
        with pytest.warns(UserWarning, match=r"1 of 1 texts .* \(100% of their tokens\)"):
            made["token-classification"](ARABIC)

    @pytest.mark.parametrize("inputs", [ARABIC, [ARABIC], [ARABIC] * 600, iter([ARABIC])])
    def test_the_warning_names_the_line_of_the_caller(self, classify, inputs):
        with pytest.warns(UserWarning, match="unknown tokens") as caught:
            list(classify(inputs))
        assert [one.filename for one in caught] == [__file__]

    def test_no_warning_for_known_text(self, classify, made):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            classify([*TEXTS, "", "the word \U0001f600"])
            made["fill-mask"]("[MASK] [MASK]")


@pytest.mark.parametrize(
    ("fields", "line", "expected"),
    [
        (("text",), {"text": "a", "id": 7, "label": "good"}, "a"),
        (("text",), {"text": "a", "text_pair": "b"}, {"text": "a", "text_pair": "b"}),
        (("text",), {"txt": "a"}, {"txt": "a"}),
        (("text", "text_pair"), {"id": 7, "text": "a"}, {"text": "a"}),
        (("text", "text_pair"), {"id": 7, "text": "a", "text_pair": "b"}, {"text": "a", "text_pair": "b"}),
        (("context", "question"), {"context": "a", "choices": [], "id": 7}, {"context": "a", "choices": []}),
    ],
)
def test_other_fields_of_a_json_line_are_ignored(
    fields: tuple[str, ...], line: dict[str, object], expected: object
) -> None:
    lines = [json.dumps(line).encode()]
    assert list(NumberedInputs.read(lines, "x.jsonl", format="jsonl", fields=fields)) == [expected]
    assert list(NumberedInputs.read(lines, "x.jsonl", format="jsonl")) == [line]


def test_fields_of_every_pipeline_are_read_or_are_an_error() -> None:
    names = {name for one in DEFINITIONS.values() for name in (*one.fields, one.rest) if name is not None}
    assert {"text", "choices"} < names
    line = dict.fromkeys(names, "a") | {"id": "b"}
    (read,) = NumberedInputs.read([json.dumps(line).encode()], "x.jsonl", format="jsonl", fields=("text",))
    assert read == dict.fromkeys(names, "a")
    header = ["\t".join(sorted(names)).encode()]
    with pytest.raises(DataError, match="are column names"):
        list(NumberedInputs.read(header, "x.tsv", format="tsv", fields=("text",)))


@pytest.mark.parametrize("content", ['[{"text": "a"}, {"text": "b"}]', '[\n  {"text": "a"}\n]', "[" * 9_999])
def test_a_file_of_one_json_array(content: str) -> None:
    with pytest.raises(DataError, match=r"x\.jsonl, line 1: an array of objects begins.* jq"):
        list(NumberedInputs.read([line.encode() for line in content.splitlines()], "x.jsonl", format="jsonl"))


def test_a_list_of_strings_is_one_input() -> None:
    assert list(NumberedInputs.read([b'["a", "b"]'], "x.jsonl", format="jsonl")) == [["a", "b"]]
