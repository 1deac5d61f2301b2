"""Tests of zero-shot classification: the answers of transformers, batches, errors and the command."""

from pathlib import Path

import pytest
import transformers
from command_line import assert_one_line_error

from albertkit.errors import ConfigError, DataError
from albertkit.modeling.heads import AlbertForSequenceClassification
from albertkit.pipelines import Pipeline, pipeline

TEXTS = ["the captain opened the harbour", "sister remembered the letters and the dinner", "word"]
LABELS = ["sea", "the house", "dinner"]
MNLI = {0: "CONTRADICTION", 1: "NEUTRAL", 2: "Entailment"}
RTE = {0: "entailment", 1: "not_entailment"}


@pytest.fixture(scope="module")
def save_labels(save):
    """Return a function that saves a random classifier with given names of labels."""

    def save_labels(names: dict[int, str]) -> Path:
        sizes = {"num_hidden_layers": 2, "max_position_embeddings": 48}
        return save(AlbertForSequenceClassification, id2label=names, **sizes)

    return save_labels


@pytest.fixture(scope="module")
def mnli(save_labels) -> Path:
    return save_labels(MNLI)


@pytest.fixture(scope="module")
def classify(mnli: Path) -> Pipeline:
    return pipeline("zero-shot-classification", mnli)


class TestAsTransformers:
    @pytest.mark.parametrize("names", [MNLI, RTE, {0: "NEUTRAL", 1: "Entails", 2: "contradiction"}])
    def test_answers(self, names, save_labels):
        folder = save_labels(names)
        ours = pipeline("zero-shot-classification", folder)
        theirs = transformers.pipeline("zero-shot-classification", model=str(folder), device=-1)
        for inputs, options in (
            (TEXTS[0], {"candidate_labels": LABELS}),
            (TEXTS, {"candidate_labels": "sea, the house,,dinner"}),
            (TEXTS, {"candidate_labels": LABELS, "multi_label": True}),
            (TEXTS, {"candidate_labels": ["sea"]}),
            (TEXTS, {"candidate_labels": LABELS, "hypothesis_template": "the captain remembered {}"}),
            (TEXTS[0], {"candidate_labels": LABELS, "hypothesis_template": "{{word}} {0} }}{{"}),
            (TEXTS[0], {"candidate_labels": ["sea", "{0.a}", "{}", "sea"], "multi_label": True}),
        ):
            answers, expected = ours(inputs, **options), theirs(inputs, **options)
            assert isinstance(answers, list) == isinstance(expected, list)
            if isinstance(answers, dict):
                answers, expected = [answers], [expected]
            for answer, one in zip(answers, expected, strict=True):
                assert {**answer, "scores": None} == {**one, "scores": None}
                assert answer["scores"] == pytest.approx(one["scores"], abs=1e-5)


class TestInputs:
    @pytest.mark.parametrize("engine", ["plain", "torch", "onnx"])
    def test_answers_depend_on_no_batch_and_no_engine(self, engine, mnli, classify):
        expected = [classify(text, LABELS) for text in TEXTS]
        other = pipeline("zero-shot-classification", mnli, engine=engine, candidate_labels=LABELS)
        for answer, one in zip(other(TEXTS, batch_size=2), expected, strict=True):
            assert answer["labels"] == one["labels"]
            assert answer["scores"] == pytest.approx(one["scores"], abs=1e-5)

    def test_texts_by_name(self, classify):
        assert classify(sequences=TEXTS[0], candidate_labels=LABELS) == classify(TEXTS[0], LABELS)

    def test_generator(self, classify):
        answers = classify((text for text in TEXTS), LABELS)
        assert [one["sequence"] for one in answers] == TEXTS

    def test_all_rows_are_one_run_without_padding(self, mnli):
        class Counting:
            def __init__(self, engine):
                self.engine, self.runs = engine, []

            def run(self, rows, **options):
                self.runs.append([len(row.input_ids) for row in rows])
                return self.engine.run(rows, **options)

        classify = pipeline("zero-shot-classification", mnli)
        classify.engine = counting = Counting(classify.engine)
        classify(TEXTS, LABELS)
        (lengths,) = counting.runs
        pairs = [(text, f"This example is {label}.") for text in TEXTS for label in LABELS]
        assert lengths == [len(ids) for ids in classify.tokenizer(pairs)["input_ids"]]

    def test_only_the_text_is_cut(self, classify):
        long = " ".join(["harbour"] * 60)
        with pytest.raises(DataError, match="maximum is 48"):
            classify(long, LABELS)
        answer = classify(long, LABELS, truncation=True)
        rows = classify.tokenizer([(long, f"This example is {label}.") for label in LABELS])["input_ids"]
        assert answer["cut"] == max(map(len, rows)) - 48
        with pytest.raises(DataError, match="leaves no room"):
            classify("harbour", [long], truncation=True)


class TestErrors:
    def test_labels_and_templates(self, classify):
        for labels in (None, [], " , ", ["sea", ""], [1], 3):
            with pytest.raises(ConfigError, match="candidate_labels is"):
                classify(TEXTS[0], labels)
        # A width would take any amount of memory, an attribute show parts of the program.
        wrong = (
            "no place",
            "{} and {}",
            "{name}",
            "{",
            "{:>99999999999}",
            "{0.__class__}",
            "{!r}",
            "{{}}",
            "",
            3,
        )
        for template in wrong:
            with pytest.raises(ConfigError, match="hypothesis_template is"):
                classify(TEXTS[0], LABELS, hypothesis_template=template)
        with pytest.raises(DataError, match="but the maximum is 5"):  # not the model's
            classify(TEXTS[0], LABELS, max_length=5)

    def test_models_without_entailment(self, save_labels):
        for names in ({0: "bad", 1: "good"}, {0: "entailment"}, {0: "not_entailment", 1: "other"}):
            with pytest.raises(ConfigError, match=rf"has the labels {', '.join(names.values())}\. .*entail"):
                pipeline("zero-shot-classification", save_labels(names))


class TestVerb:
    def test_json(self, run, mnli, classify):
        options = ("--model", mnli, "--candidate-labels", ",".join(LABELS), "--json")
        result = run("classify", *TEXTS, *options)
        expected = [classify(text, LABELS) for text in TEXTS]
        assert [one["text"] for one in result.json] == TEXTS
        for printed, one in zip(result.json, expected, strict=True):
            assert [label["label"] for label in printed["predictions"]] == one["labels"]
            scores = [label["score"] for label in printed["predictions"]]
            assert scores == pytest.approx(one["scores"], abs=1e-5)
        result = run(
            "classify", TEXTS[0], *options, "--multi-label", "--hypothesis-template", "word {}", "--top-k", 1
        )
        expected = classify(TEXTS[0], LABELS, multi_label=True, hypothesis_template="word {}")
        (printed,) = result.json[0]["predictions"]
        assert printed == {"label": expected["labels"][0], "score": pytest.approx(expected["scores"][0])}

    def test_bars(self, run, mnli, classify):
        shown = run("classify", TEXTS[0], "--model", mnli, "--candidate-labels", ",".join(LABELS)).output
        labels = classify(TEXTS[0], LABELS)["labels"]
        assert [line.split("  ")[0].strip() for line in shown.splitlines()[1:4]] == labels

    def test_errors(self, run, mnli):
        assert_one_line_error(
            run("classify", TEXTS[0], "--multi-label", "--model", mnli), "--candidate-labels"
        )
        assert_one_line_error(
            run("classify", TEXTS[0], "--pair", "word", "--candidate-labels", "a", "--model", mnli), "--pair"
        )
