"""What pipelines are given and how they are made: datasets, tables, wrong inputs, calls of transformers."""

import dataclasses
import json
import types
import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import datasets
import hypothesis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
import transformers
from bound_tasks import bound
from hypothesis import strategies as st
from training_losses import loss_of
from transformers.pipelines.pt_utils import KeyDataset, KeyPairDataset

import albertkit
from albertkit import pipelines
from albertkit.config import AlbertConfig
from albertkit.datasets.examples import (
    ChoiceExample,
    PairExample,
    QuestionExample,
    TextExample,
    WordsExample,
)
from albertkit.engines.plain import PlainEngine
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.objectives import training_batch, training_inputs
from albertkit.inputs import read_inputs
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.modeling.task_heads import (
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from albertkit.pipelines import Pipeline, interface, pipeline
from albertkit.tasks.multiple_choice import MultipleChoice
from albertkit.tasks.question_answering import QuestionAnswering
from albertkit.tasks.sentence_embedding import SentenceEmbedding
from albertkit.tasks.sentence_order import SentenceOrder
from albertkit.tasks.text_classification import TextClassification
from albertkit.tasks.token_classification import TokenClassification
from albertkit.tokenization.tokenizer import AlbertTokenizer

CPU = torch.device("cpu")
LIMIT = 48
TEXTS = ["the harbour opened", "my sister found the silver word", "a word"]
PAIRS = [("the harbour opened", "a word"), ("my sister", "the silver code")]
QUESTION = types.MappingProxyType({"question": "who opened it", "context": "the captain opened the harbour"})
CHOICE = types.MappingProxyType(
    {"context": "the captain", "question": "who", "choices": ["a word", "my sister"]}
)
ARABIC = "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645"


@pytest.fixture(scope="module")
def made(tiny_vocabulary: Path) -> dict[str, Pipeline]:
    """A pipeline for each task, of random models."""
    tokenizer = AlbertTokenizer(tiny_vocabulary)
    config = AlbertConfig(
        vocab_size=len(tokenizer),
        embedding_size=16,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=64,
        num_hidden_layers=2,
        max_position_embeddings=LIMIT,
        initializer_range=0.3,
        num_labels=3,
    )
    torch.manual_seed(0)
    pretrained = AlbertForPreTraining(config.replace(num_labels=2))
    models = {
        "fill-mask": pretrained,
        "feature-extraction": pretrained,
        "sentence-order": pretrained,
        "text-classification": AlbertForSequenceClassification(config),
        "token-classification": AlbertForTokenClassification(config),
        "question-answering": AlbertForQuestionAnswering(config),
        "multiple-choice": AlbertForMultipleChoice(config),
    }
    return {task: pipeline(task, model, tokenizer, device="cpu") for task, model in models.items()}


@pytest.fixture(scope="module")
def classify(made) -> Pipeline:
    return made["text-classification"]


class TestDatasets:
    def test_map_style_as_in_transformers(self, made, classify):
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
        assert (
            list(made["question-answering"](datasets.Dataset.from_list([dict(QUESTION)] * 2)))
            == [made["question-answering"](dict(QUESTION))] * 2
        )

    def test_a_map_style_dataset_is_read_as_answers_are_asked_for(self, classify):
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

    @pytest.mark.parametrize(
        ("task", "todo"),
        [
            ("fill-mask", r'Pass one column, such as df\["text"\], where'),
            ("feature-extraction", r'Pass one column, such as df\["text"\], where'),
            ("token-classification", r'Pass one column, such as df\["text"\], where'),
            (
                "text-classification",
                r'such as df\["text"\] or its rows, such as df\[\["text", "text_pair"\]\]',
            ),
            ("sentence-order", r'Pass its rows, such as df\[\["text", "text_pair"\]\]'),
            ("question-answering", r'Pass its rows, such as df\[\["question", "context"\]\]\.to_dict'),
            ("multiple-choice", r'Pass its rows, such as df\[\["context", "question", "choices"\]\]'),
        ],
    )
    def test_a_table_is_refused(self, made, task, todo):
        columns = {"label": [0, 1], "text": ["a [MASK]", "b"]}
        for table in (pd.DataFrame(columns), pa.table(columns), columns, {"train": pd.DataFrame(columns)}):
            with pytest.raises(
                DataError, match=r"received a table .* with the columns '(label', 'text|train)'"
            ):
                made[task](table)
        with pytest.raises(DataError, match=todo):
            made[task](pd.DataFrame(columns))
        with pytest.raises(DataError, match=r'such as df\["note"\]'):
            made["fill-mask"](pd.DataFrame({"note": ["a"]}))


class TestWrongInputs:
    BAD = ("a word", None, "word " * 60, "the harbour", float("nan"))

    def test_all_are_counted_before_anything_is_computed(self, classify, monkeypatch):
        monkeypatch.setattr(type(classify.engine), "run", lambda *_, **__: pytest.fail("computed"))
        for inputs in (list(self.BAD), pd.Series(self.BAD, dtype=object, index=range(7, 12)), self.BAD):
            with pytest.raises(
                DataError,
                match=r"3 of 5 inputs .* inputs 1, 2, 4 \(counted from 0\)\. .*first: received None",
            ):
                classify(inputs)
            with pytest.raises(DataError, match=r"^3 of 5 inputs"):
                classify(inputs, batch_size=1)
        monkeypatch.setattr(interface, "_INPUTS_AHEAD", 2)
        with pytest.raises(DataError, match=r"^13 of 25 .* 1, 2, 4, 6, 7, 9, 11, 12, 14, 16, \.\.\. \("):
            classify([*self.BAD * 4, *TEXTS, "a", None])
        with pytest.raises(DataError, match=r"^input 2 \(counted from 0\): the text .* has 62 tokens"):
            classify(["a", "b", "word " * 60])

    def test_a_generator_is_checked_as_it_is_read(self, classify, monkeypatch):
        monkeypatch.setattr(interface, "_INPUTS_AHEAD", 2)
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
            ("multiple-choice", dict(CHOICE), {**CHOICE, "choices": ["a"]}, "1 choices"),
        ],
    )
    def test_every_task(self, made, task, good, bad, message):
        with pytest.raises(
            DataError, match=rf"^2 of 4 inputs .*: inputs 1, 3 \(counted from 0\)\..*{message}"
        ):
            made[task]([good, bad, good, bad])

    def test_sizes_folders_and_swapped_arguments(self, classify, tmp_path):
        with pytest.raises(ConfigError, match=r"batch_size is '8'. Expected a whole number"):
            classify("a word", batch_size="8")
        with pytest.raises(ConfigError, match=r"max_length is 5\.5. Expected a whole number of at least 3"):
            classify("a word", max_length=5.5)
        with pytest.raises(ConfigError, match="device '--1' cannot be used"):
            pipeline("fill-mask", device="--1")
        assert classify("a word", top_k=np.int64(1)) == classify("a word", top_k=1)
        with pytest.raises(DataError, match=r"is a folder. Expected a file"):
            classify(tmp_path)
        with pytest.raises(ConfigError, match=r"swapped\. .* pipeline\('fill-mask', 'bundled'\)"):
            pipeline("bundled", "fill-mask")

    @pytest.mark.parametrize(
        "name", ["top_k", "doc_stride", "max_seq_len", "max_question_len", "max_answer_len"]
    )
    def test_sizes_of_question_answering(self, made, name):
        for value in ("3", 38.5):
            with pytest.raises(ConfigError, match=f"{name} is {value!r}. Expected a whole number"):
                made["question-answering"](dict(QUESTION), **{name: value})

    def test_questions_and_labels_of_a_wrong_type(self, made):
        with pytest.raises(DataError, match=r"the question is 3. Expected a text or a list of texts"):
            made["question-answering"](question=3, context="a word")
        tag = made["token-classification"]
        with pytest.raises(ConfigError, match=r"ignore_labels is 'LABEL_0'. Expected a list, \['LABEL_0'\]"):
            tag("a word", ignore_labels="LABEL_0")
        with pytest.raises(ConfigError, match=r"stride is 2\.5. Expected a whole number of at least 0"):
            tag("a word", stride=2.5)

    def test_arguments_without_a_name(self, made):
        for task, advice in (
            ("fill-mask", "Pass several texts as a list"),
            ("text-classification", r'as text_pair="\.\.\."'),
            ("sentence-order", r"\(text, text_pair\)"),
            ("question-answering", r'question="\.\.\." and context="\.\.\." by name'),
            ("multiple-choice", r'context="\.\.\.", question="\.\.\." and choices='),
        ):
            with pytest.raises(ConfigError, match=rf"received 2 positional arguments.*{advice}"):
                made[task]("a word", "another")

    def test_a_misspelled_argument(self, made, monkeypatch):
        """Of a call, of the constructor, and of `pipeline`, which reads no model for it."""
        monkeypatch.setattr(
            pipelines, "load_complete_model", lambda *_, **__: pytest.fail("a model was read")
        )
        for task, wrong, meant in (
            ("fill-mask", "topk", "top_k"),
            ("feature-extraction", "poling", "pooling"),
            ("text-classification", "topk", "top_k"),
            ("token-classification", "agregation_strategy", "aggregation_strategy"),
            ("question-answering", "topk", "top_k"),
            ("multiple-choice", "trunc", "truncation"),
            ("sentence-order", "trunctation", "truncation"),
        ):
            given = dict(QUESTION if task == "question-answering" else CHOICE)
            inputs = given if task in ("question-answering", "multiple-choice") else "a word[MASK]"
            said = rf"the pipeline for {task}: unknown argument '{wrong}'\. Did you mean '{meant}'\?"
            with pytest.raises(ConfigError, match=rf"{said} .*\b{meant}\b.*, batch_size, num_workers\.$"):
                made[task](PAIRS[0] if task == "sentence-order" else inputs, **{wrong: 1})
            for model in (made[task].model, None):
                with pytest.raises(ConfigError, match=rf"{said} .*\b{meant}\b.*, device, "):
                    pipeline(task, model, made[task].tokenizer, **{wrong: 1})
            with pytest.raises(ConfigError, match=said):
                type(made[task])(made[task].model, made[task].tokenizer, **{wrong: 1})
        with pytest.raises(ConfigError, match=r"'local_file_only'\. Did you mean 'local_files_only'"):
            pipeline("fill-mask", local_file_only=True)

    def test_arguments_of_a_derived_class(self, made):
        class Short(type(made["fill-mask"])):
            def __call__(self, inputs, *, limit=5, **options):
                return super().__call__(inputs[:limit], **options)

        own = Short(made["fill-mask"].model, made["fill-mask"].tokenizer)
        with pytest.raises(
            ConfigError, match=r"'topk'\. Did you mean 'top_k'\? Expected some of limit, top_k, "
        ):
            own("[MASK] a word", limit=6, topk=1)
        assert len(own("[MASK] a word", limit=6, top_k=1)) == 1

    def test_fields_by_name(self, made, classify):
        assert made["multiple-choice"](**CHOICE) == made["multiple-choice"](dict(CHOICE))
        with pytest.raises(ConfigError, match="passed twice"):
            made["multiple-choice"](dict(CHOICE), choices=["a", "b"])
        assert classify(PAIRS[0][0], text_pair=PAIRS[0][1]) == [classify(PAIRS[0])]
        with pytest.raises(ConfigError, match="text_pair is the second text of a single text"):
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


class TestAsInTransformers:
    def test_attributes_and_methods(self, made, classify, tmp_path):
        assert classify.predict(TEXTS) == classify.transform(TEXTS) == classify(TEXTS)
        assert classify.dtype == classify.torch_dtype == torch.float32
        assert classify.device == torch.device("cpu")
        for task, one in made.items():
            assert one.task == task
            assert one.model.config.vocab_size == len(one.tokenizer)
        classify.save_pretrained(tmp_path)
        again = pipeline("text-classification", tmp_path)(TEXTS)
        assert [one["label"] for one in again] == [one["label"] for one in classify(TEXTS)]
        assert [one["score"] for one in again] == pytest.approx([one["score"] for one in classify(TEXTS)])
        assert transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).num_labels == 3

    def test_classes_are_importable_and_made_by_name(self, made):
        for name in pipelines.__all__:
            assert getattr(albertkit, name) is getattr(pipelines, name)
        for task, one in made.items():
            again = type(one)(
                model=one.model, tokenizer=one.tokenizer, task=task, device="cpu", num_workers=0, batch_size=4
            )
            assert (again.task, again.batch_size) == (task, 4)
        one = made["fill-mask"]
        assert albertkit.FillMaskPipeline(model=one.model, tokenizer=one.tokenizer, top_k=2)(
            "a [MASK]"
        ) == one("a [MASK]", top_k=2)
        with pytest.raises(ConfigError, match=r"the task is 'ner'. Expected 'fill-mask'"):
            albertkit.FillMaskPipeline(one.model, one.tokenizer, task="ner")
        with pytest.raises(
            ConfigError, match=r"got builtins\.str\. .*pipeline\(\"fill-mask\", model=\.\.\.\)"
        ):
            albertkit.FillMaskPipeline("bundled", one.tokenizer)
        with pytest.raises(ConfigError, match=r"num_workers is -1. Expected a whole number of at least 0"):
            one("a [MASK]", num_workers=-1)

    def test_return_tensors(self, made):
        encode = made["feature-extraction"]
        lists = encode(TEXTS)
        for kind, kind_of in ((True, torch.Tensor), ("pt", torch.Tensor), ("np", np.ndarray)):
            found = encode(TEXTS, return_tensors=kind)
            assert all(isinstance(one, kind_of) for one in found)
            assert [one.tolist() for one in found] == lists
            assert type(encode(TEXTS[0], pooling="mean", return_tensors=kind)) is kind_of
        one = albertkit.FeatureExtractionPipeline(encode.model, encode.tokenizer, return_tensors="np")
        assert isinstance(one(TEXTS[0]), np.ndarray)
        assert one(TEXTS[0], return_tensors=False) == encode(TEXTS[0])
        with pytest.raises(ConfigError, match=r"return_tensors is 'tf'. Expected True, False, 'pt' or 'np'"):
            encode(TEXTS, return_tensors="tf")

    def test_objects_of_transformers_are_named_as_such(self, made, tmp_path):
        made["text-classification"].save_pretrained(tmp_path)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
        with pytest.raises(ConfigError, match=r"got transformers\.AlbertForSequenceClassification"):
            pipeline("text-classification", model, made["fill-mask"].tokenizer)
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
        with pytest.raises(
            ConfigError, match=r"tokenizer is a transformers\.\w+\. Expected a tokenizer of albertkit"
        ):
            pipeline("fill-mask", made["fill-mask"].model, tokenizer)

    def test_arguments_of_the_factory(self, made, classify, tmp_path):
        classify.save_pretrained(tmp_path)
        kwargs = {"dtype": "bfloat16", "device_map": "cpu", "attention_probs_dropout_prob": 0.25}
        one = pipeline(
            "text-classification", tmp_path, model_kwargs=kwargs, trust_remote_code=True, num_workers=1
        )
        assert one.dtype == torch.bfloat16
        assert one.model.config.attention_probs_dropout_prob == 0.25
        assert len(kwargs) == 3  # they are the caller's
        with pytest.raises(ConfigError, match="dtype is passed twice, directly and in model_kwargs"):
            pipeline("text-classification", tmp_path, dtype="float32", model_kwargs=kwargs)
        with pytest.raises(ConfigError, match="model_kwargs are for loading a model"):
            pipeline("text-classification", classify.model, classify.tokenizer, model_kwargs={"x": 1})
        with pytest.raises(ConfigError, match=r"the third argument is the tokenizer.*config=\.\.\."):
            pipeline("text-classification", tmp_path, classify.model.config)

        class Mine(albertkit.TextClassificationPipeline):
            pass

        assert isinstance(pipeline(model=tmp_path, pipeline_class=Mine), Mine)


def test_answers_are_plain_json(made):
    for task, given in (("question-answering", dict(QUESTION)), ("multiple-choice", dict(CHOICE))):
        json.dumps(made[task]([given]), allow_nan=False)


WORDS = st.lists(st.sampled_from(["the", "harbour", "[SEP]", "a", "silver", "\U0001f600", ","]), max_size=9)
TEXT = WORDS.map(" ".join)
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
        {"question": TEXT.map("who {}".format), "context": TEXT.map("a {}".format)}
    ),
    "multiple-choice": st.fixed_dictionaries(
        {"context": TEXT, "choices": st.lists(TEXT, min_size=2, max_size=3)}, optional={"question": TEXT}
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
        "max_seq_len": st.integers(24, 48),
    },
    "multiple-choice": {"truncation": st.booleans()},
}
SHARED = {"batch_size": st.none() | st.integers(1, 3), "num_workers": st.integers(0, 2)}


def state(one: Pipeline) -> Any:
    """What a call must leave as it is: settings, config, tokenizer, weights, mode."""
    settings = {name: deepcopy(value) for name, value in vars(one).items() if _is_plain(value)}
    weights = {name: value.clone() for name, value in one.model.state_dict().items()}
    return settings, one.model.config.to_json_string(), repr(one.tokenizer), one.model.training, weights


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | list | tuple | dict | None)


def same(one: Any, other: Any) -> bool:
    """Equality to the last bit, also of tensors and of numbers that are none."""
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
    """No call changes what it is given, nor the pipeline; the same call twice gives the same."""

    @pytest.mark.filterwarnings("ignore::albertkit.errors.UnknownTokensWarning")
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

    @pytest.mark.parametrize("task", ["text", "words", "question", "choice", "order", "embedding"])
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
            "order": (
                bound(SentenceOrder(), tokenizer, max_length=LIMIT),
                made["sentence-order"].model,
                st.builds(TextExample, text, text, st.sampled_from(["in order", "swapped"])),
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
            outputs = own.run(PlainEngine(model), rows)
            computed = deepcopy(outputs)
            predictions = own.predictions(examples, rows, outputs)
            found = [
                rows, units, outputs, predictions, training_batch(own, rows, CPU), own.labels_of(rows),
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


@pytest.mark.parametrize("content", ['[{"text": "a"}, {"text": "b"}]', '[\n  {"text": "a"}\n]', "[" * 9_999])
def test_a_file_of_one_json_array(content: str) -> None:
    with pytest.raises(DataError, match=r"x\.jsonl, line 1: an array of objects begins.* jq"):
        list(read_inputs([line.encode() for line in content.splitlines()], "x.jsonl", format="jsonl"))


def test_a_list_of_strings_is_one_input() -> None:
    assert list(read_inputs([b'["a", "b"]'], "x.jsonl", format="jsonl")) == [["a", "b"]]
