"""Pipelines for texts, tokens and sentence order: the same answers as transformers, options, and files."""

import re
import types
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
import transformers
from answers import assert_close
from json_lines import write_json_lines
from pipeline_answers import LIMIT, TEXT, WORDS, plain, random_texts, theirs

from albertkit.errors import ConfigError, DataError, TokenizerError
from albertkit.modeling.heads import AlbertForSequenceClassification, AlbertForTokenClassification
from albertkit.pipelines import pipeline
from albertkit.tokenization.tokenizer import AlbertTokenizer

pytestmark = pytest.mark.usefixtures("engine_of_pipelines")


class TestTextClassification:
    @pytest.mark.parametrize("options", [{}, {"top_k": None}, {"top_k": 1}, {"top_k": 2}])
    @pytest.mark.parametrize("function", [None, "softmax", "sigmoid", "none"])
    def test_equals_transformers(self, classes, options, function):
        if function:
            options = {**options, "function_to_apply": function}
        classify = pipeline("text-classification", classes)
        their = theirs("text-classification", "AlbertForSequenceClassification", classes)
        for given in (TEXT, [TEXT], [TEXT, "word"], {"text": TEXT}):
            assert_close(classify(given, **options), their(given, **options))

    def test_options_of_the_constructor_are_defaults(self, classes):
        for options in ({"top_k": None}, {"top_k": 2, "function_to_apply": "sigmoid"}):
            classify = pipeline("sentiment-analysis", classes, **options)
            their = theirs("text-classification", "AlbertForSequenceClassification", classes, **options)
            assert_close(classify(TEXT), their(TEXT))
            assert_close(classify([TEXT, "word"]), their([TEXT, "word"]))

    @pytest.mark.parametrize(
        "settings",
        [
            {"num_labels": 1},
            {"num_labels": 1, "problem_type": "regression"},
            {"num_labels": 3, "problem_type": "multi_label_classification"},
            {"num_labels": 3, "problem_type": "single_label_classification"},
        ],
    )
    def test_problem_types_as_in_transformers(self, save, settings):
        folder = save(AlbertForSequenceClassification, **settings)
        classify = pipeline("text-classification", folder)
        their = theirs("text-classification", "AlbertForSequenceClassification", folder)
        assert_close(classify([TEXT], top_k=None), their([TEXT], top_k=None))
        if settings.get("problem_type") != "multi_label_classification":
            assert_close(classify(TEXT), their(TEXT))

    def test_several_labels_are_decided_as_in_predict(self, save):
        folder = save(
            AlbertForSequenceClassification, num_labels=3, problem_type="multi_label_classification"
        )
        classify = pipeline("text-classification", folder)
        texts = random_texts(20)
        every = classify(texts, top_k=None)
        expected = [[one for one in some if one["score"] > 0.5] for some in every]
        assert len({len(one) for one in expected}) > 1
        assert classify(texts) == expected
        assert_close(classify(texts[0]), expected[0])
        assert_close(classify([{"text": texts[0]}]), expected[:1])
        assert [len(one) for one in classify(texts, top_k=1)] == [1] * 20

    def test_an_empty_answer_for_a_truncated_text_warns(self, save):
        kind = {"num_labels": 3, "problem_type": "multi_label_classification"}
        model = AlbertForSequenceClassification.from_pretrained(save(AlbertForSequenceClassification, **kind))
        with torch.no_grad():
            model.classifier.bias.copy_(torch.tensor([-9.0, -9, -9]))
        classify = pipeline("text-classification", model, save(AlbertForSequenceClassification, **kind))
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nothing was truncated, or the answer has `cut`
            assert classify("a word", truncation=True) == []
            every = classify("word " * 200, truncation=True, top_k=None)
        assert [one["cut"] for one in every] == [202 - LIMIT] * 3
        with pytest.warns(UserWarning, match=r"truncated, and no label .*With top_k=None"):
            assert classify(["a word", "word " * 200], truncation=True) == [[], []]

    def test_segments_of_a_pair_reach_the_model(self, classes, tokenizer):
        model = transformers.AlbertForSequenceClassification.from_pretrained(classes).eval()
        inputs = tokenizer(TEXT, "my sister", return_tensors="pt")
        assert inputs["token_type_ids"].sum() == len(tokenizer("my sister")["input_ids"]) - 1
        with torch.no_grad():
            probabilities = model(**inputs).logits.softmax(dim=-1)[0]
            blind = model(**{**inputs, "token_type_ids": None}).logits.softmax(dim=-1)[0]
        classify = pipeline("text-classification", classes, top_k=None)
        for given in ({"text": TEXT, "text_pair": "my sister"}, (TEXT, "my sister")):
            scores = {one["label"]: one["score"] for one in classify(given)}
            assert [scores[label] for label in ("bad", "fair", "good")] == pytest.approx(
                probabilities.tolist(), abs=1e-5
            )
        assert (probabilities - blind).abs().max() > 1e-3

    def test_text_over_the_limit_is_never_cut_unasked(self, classes):
        classify = pipeline("text-classification", classes)
        long = "word " * 100
        with pytest.raises(DataError, match=f"102 tokens .* maximum is {LIMIT}.*truncation=True"):
            classify([TEXT, long])
        (cut,) = classify(long, truncation=True)
        assert cut.pop("cut") == 102 - LIMIT
        assert_close([cut], classify("word " * (LIMIT - 2)))
        assert "cut" not in classify(TEXT, truncation=True)[0]
        assert classify(TEXT, truncation=True, max_length=5)[0]["cut"] > 0
        with pytest.raises(ConfigError, match=f"max_length is 100. Expected at most {LIMIT}"):
            classify(TEXT, max_length=100)

    @pytest.mark.parametrize(
        "options",
        [
            {"padding": True, "truncation": True, "max_length": 6},
            {"padding": "max_length", "truncation": "longest_first", "max_length": 6, "top_k": None},
            {"truncation": "only_first", "max_length": 7, "batch_size": 2},
            {"truncation": "do_not_truncate", "padding": "do_not_pad"},
        ],
    )
    def test_arguments_of_the_tokenizer_as_in_transformers(self, classes, options):
        their = theirs("text-classification", "AlbertForSequenceClassification", classes)
        texts = ["", "a", "\U0001f600 word", TEXT, "the word " * 10]
        classify = pipeline("text-classification", classes)
        plain_options = {name: value for name, value in options.items() if name != "batch_size"}
        expected = [their([text], **plain_options)[0] for text in texts]
        given = {
            name: value for name, value in options.items() if name in ("padding", "truncation", "max_length")
        }
        for answers in (
            classify(texts, **options),
            pipeline("text-classification", classes, **given)(
                texts, **{name: value for name, value in options.items() if name not in given}
            ),
        ):
            for one in (one for some in answers for one in (some if isinstance(some, list) else [some])):
                one.pop("cut", None)
            assert_close(answers, expected)

    def test_either_text_of_a_pair_can_be_cut(self, classes):
        classify = pipeline("text-classification", classes, max_length=9)
        long, short = "word " * 20, "word"
        for strategy, pair, cut in (
            ("only_first", (long, short), ("word " * 5, short)),
            ("only_second", (short, long), (short, "word " * 5)),
        ):
            found = classify(pair, truncation=strategy)
            assert found.pop("cut") == 15
            assert_close(found, classify(cut))
        with pytest.raises(DataError, match="24 tokens"):
            classify((long, short), truncation="do_not_truncate")
        with pytest.raises(TokenizerError, match="truncation='first': expected one of"):
            classify(long, truncation="first")
        with pytest.raises(TokenizerError, match="padding='left'"):
            classify(TEXT, padding="left")

    def test_generator_and_files(self, classes, tmp_path):
        classify = pipeline("text-classification", classes)
        expected = classify([TEXT, "word"])
        answers = classify(text for text in [TEXT, "word"])
        assert isinstance(answers, types.GeneratorType)
        assert_close(list(answers), expected)
        (tmp_path / "texts.txt").write_text(f"\ufeff{TEXT}\n\n word \n")
        assert_close(list(classify(tmp_path / "texts.txt")), expected)
        (tmp_path / "pairs.tsv").write_text(f"{TEXT}\tmy sister\nword\n")
        assert_close(list(classify(tmp_path / "pairs.tsv")), classify([(TEXT, "my sister"), "word"]))
        lines = [{"text": TEXT, "text_pair": "my sister"}, "word"]
        write_json_lines(tmp_path / "pairs.jsonl", lines)
        assert_close(list(classify(tmp_path / "pairs.jsonl")), classify([(TEXT, "my sister"), "word"]))

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("a\tb\tc\n", r"bad\.tsv, line 1: 3 columns. Expected text, text_pair"),
            ("\n\n", r"bad\.tsv has no text"),
        ],
    )
    def test_bad_files(self, classes, tmp_path, content, message):
        (tmp_path / "bad.tsv").write_text(content)
        with pytest.raises(DataError, match=message):
            list(pipeline("text-classification", classes)(tmp_path / "bad.tsv"))
        (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text"')
        with pytest.raises(DataError, match=r"bad\.jsonl, line 2: not JSON"):
            list(pipeline("text-classification", classes)(tmp_path / "bad.jsonl"))

    def test_bad_options(self, classes):
        classify = pipeline("text-classification", classes)
        with pytest.raises(ConfigError, match="top_k is 0"):
            classify(TEXT, top_k=0)
        for wrong in ("tanh", ["softmax"]):
            with pytest.raises(ConfigError, match=re.escape(f"function_to_apply is {wrong!r}")):
                classify(TEXT, function_to_apply=wrong)


class TestTokenClassification:
    def test_the_stride_is_the_calls_or_the_pipelines(self, tags):
        text = " ".join(random_texts(1, words=(90, 90)))
        tag = pipeline("ner", tags, ignore_labels=[])
        given = tag(text, stride=3)
        assert_close(given, pipeline("ner", tags, ignore_labels=[], stride=3)(text))
        assert [one["word"] for one in given] == [one["word"] for one in tag(text)]
        scores = [[one["score"] for one in answers] for answers in (given, tag(text))]
        assert scores[0] != pytest.approx(scores[1], abs=1e-5)  # other windows, other context

    @pytest.mark.parametrize("strategy", ["none", "simple", "first", "max", "average"])
    def test_equals_transformers(self, tags, strategy):
        """On texts without punctuation, and pieces that are more than the mark of a word's beginning."""
        tag = pipeline("ner", tags, aggregation_strategy=strategy)
        their = theirs("ner", "AlbertForTokenClassification", tags, aggregation_strategy=strategy)
        given = ["The captain carried  Lanimofe near the harbour", *random_texts(20, words=(1, 12))]
        texts = [
            " ".join(word for word in text.split(" ") if "\u2581" not in tag.tokenizer.tokenize(word))
            for text in given
        ]
        for ignored in (["O"], []):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of its own word heuristic
                expected = [plain(their(text, ignore_labels=ignored)) for text in texts]
            answers = tag(texts, ignore_labels=ignored)
            assert sum(map(len, answers)) > 20
            for one in (one for some in (*answers, *expected) for one in some):
                one["word"] = one["word"].replace(" ", "")  # theirs joins words without spaces
            assert_close(answers, expected)

    @pytest.mark.parametrize("strategy", ["simple", "first"])
    def test_labels_besides_a_scheme_as_in_transformers(self, save, strategy):
        """Some models also have a label for padding or special tokens."""
        names = ["X", "B-PER", "I-PER", "O", "LOC"]
        folder = save(AlbertForTokenClassification, id2label=dict(enumerate(names)))
        model = AlbertForTokenClassification.from_pretrained(folder)
        tokenizer = AlbertTokenizer.from_pretrained(folder)
        words = [word for word in WORDS if "\u2581" not in tokenizer.tokenize(word)]
        text = " ".join(words * 3)
        with torch.no_grad():  # center the scores, so that every label is predicted
            model.classifier.bias -= model(**tokenizer(text, return_tensors="pt")).logits.mean((0, 1))
        model.save_pretrained(folder)
        their = theirs("ner", "AlbertForTokenClassification", folder, aggregation_strategy=strategy)
        ours = pipeline("ner", folder, aggregation_strategy=strategy)
        answers, expected = ours(text, ignore_labels=[]), plain(their(text, ignore_labels=[]))
        assert {answer["entity_group"] for answer in answers} >= {"PER", "X"}
        for answer in (*answers, *expected):
            answer["word"] = answer["word"].replace(" ", "")
        assert_close(answers, expected)

    def test_words(self, tags):
        tag = pipeline("ner", tags, aggregation_strategy="first", ignore_labels=[])
        words = ["The", "captain", ",", "Lanimofe", "."]
        expected = tag("The captain , Lanimofe .")
        assert_close(tag(words, is_split_into_words=True), expected)
        for column in (np.array(words), pd.Series(words), pa.chunked_array([words])):
            assert_close(tag(column, is_split_into_words=True), expected)
        assert_close(tag([words], is_split_into_words=True), [expected])
        assert_close(list(tag(iter([words, words]), is_split_into_words=True)), [expected] * 2)
        assert tag([], is_split_into_words=True) == []

    def test_names_of_labels_can_change(self, tags):
        """As in transformers, the names are those of the config at the time of the call."""
        tag = pipeline("ner", tags, ignore_labels=[])
        tag.model.config.id2label = {number: f"new {number}" for number in tag.model.config.id2label}
        assert {answer["entity"] for answer in tag("the captain")} <= {*tag.model.config.id2label.values()}

    def test_punctuation_is_read_and_placed_apart_from_words(self, tags):
        tag = pipeline("ner", tags, aggregation_strategy="first", ignore_labels=[])
        text = 'He said:  "the Captain (Lanimofe) remembered\t12,000 words."'
        apart = 'He said : " the Captain ( Lanimofe ) remembered 12,000 words . "'
        ours, expected = tag(text), tag(apart)
        assert [one["score"] for one in ours] == pytest.approx([one["score"] for one in expected], abs=1e-5)
        for one, other in zip(ours, expected, strict=True):
            assert text[one["start"] : one["end"]].split() != []
            assert "".join(text[one["start"] : one["end"]].split()) == "".join(
                apart[other["start"] : other["end"]].split()
            )

    def test_any_length_in_windows(self, tags):
        tag = pipeline("token-classification", tags, ignore_labels=[])
        text = random_texts(1, words=(300, 300))[0]
        pieces = tag(text)
        assert [one["index"] for one in pieces] == list(range(1, len(pieces) + 1))
        assert [one["word"] for one in pieces] == tag.tokenizer.tokenize(text)
        assert text == " ".join(
            text[one["start"] : one["end"]] for one in tag(text, aggregation_strategy="first")
        )
        assert pieces[0]["start"] == 0
        assert pieces[-1]["end"] == len(text)

    def test_errors(self, tags):
        with pytest.raises(
            ConfigError, match=r"aggregation_strategy is 'mean'. Expected one of none, simple"
        ):
            pipeline("ner", tags, aggregation_strategy="mean")
        with pytest.raises(DataError, match="Expected a string, or a list of words"):
            pipeline("ner", tags)([3])


class TestSentenceOrder:
    def test_equals_the_logits_of_transformers(self, order, tokenizer):
        model = transformers.AlbertForPreTraining.from_pretrained(order).eval()
        with torch.no_grad():
            logits = model(**tokenizer(TEXT, "my sister", return_tensors="pt")).sop_logits[0]
        judge = pipeline("sentence-order", order)
        answer = judge((TEXT, "my sister"))
        assert answer == {
            "label": ("in order", "swapped")[int(logits.argmax())],
            "score": pytest.approx(float(logits.softmax(dim=-1).max()), abs=1e-5),
        }
        assert_close(judge({"text": TEXT, "text_pair": "my sister"}), answer)

    def test_errors(self, order):
        judge = pipeline("sentence-order", order)
        for bad in (TEXT, [TEXT], {"text": TEXT}):
            with pytest.raises(DataError, match="Expected a pair"):
                judge(bad)

    def test_bundled_model(self):
        judge = pipeline("sentence-order")
        answer = judge(("The ship left the harbour at dawn.", "By noon it was out of sight."))
        assert answer["label"] in ("in order", "swapped")
        assert 0.5 <= answer["score"] <= 1
