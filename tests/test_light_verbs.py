"""Tests that the verbs of the command line give the answers of their pipelines, without PyTorch."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run
from json_lines import read_json_lines
from light_models import (  # make_fixture is a fixture
    CHOICES,
    MASKED,
    PAIR,
    QUESTION,
    TEXT,
    Make,
    close,
    make_fixture,  # noqa: F401
    same,
)

from albertkit import pipeline
from albertkit.checkpoints import formats
from albertkit.checkpoints.names import TIED
from albertkit.heads import HEADS

pytestmark = pytest.mark.light


def predicted(run: Run, model: Path, source: Path, *flags: str) -> list[dict[str, Any]]:
    """Run `predict` on a file and return its records."""
    output = source.with_name("predictions.jsonl")
    result = run("predict", "--model", model, "--input", source, "--output", output, *flags)
    assert result.status == 0, result.errors
    return read_json_lines(output)


class TestVerbs:
    """Verbs, compared with their pipelines."""

    def test_fill_mask(self, run: Run, make: Make) -> None:
        folder = make("AlbertForMaskedLM").folder
        result = run("fill-mask", MASKED, "--model", folder, "--json")
        same(result.json, [{"text": MASKED, "predictions": pipeline("fill-mask", folder)(MASKED)}])
        assert "opened the" in run("fill-mask", MASKED, "--model", folder).output

    def test_embed(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder = make("AlbertModel").folder
        result = run("embed", TEXT, PAIR, "--model", folder, "--output", tmp_path / "vectors.npy", "--json")
        expected = pipeline("feature-extraction", folder, pooling="mean")([TEXT, PAIR])
        same([row["embedding"] for row in result.json], expected)
        close(np.load(tmp_path / "vectors.npy"), expected)

    def test_classify(self, run: Run, make: Make) -> None:
        folder = make("AlbertForSequenceClassification").folder
        result = run("classify", TEXT, "--model", folder, "--json")
        same(result.json[0]["predictions"], pipeline(None, folder)(TEXT, top_k=None))

    def test_tag(self, run: Run, make: Make) -> None:
        folder = make("AlbertForTokenClassification").folder
        result = run("tag", TEXT, "--model", folder, "--aggregation-strategy", "none", "--json")
        same(result.json[0]["entities"], pipeline(None, folder)(TEXT))

    def test_answer(self, run: Run, make: Make) -> None:
        folder = make("AlbertForQuestionAnswering").folder
        result = run("answer", QUESTION, "--context", PAIR, "--model", folder, "--json")
        same(result.json[0]["answers"], [pipeline(None, folder)(question=QUESTION, context=PAIR)])

    def test_choose(self, run: Run, make: Make) -> None:
        folder = make("AlbertForMultipleChoice").folder
        given = {"context": PAIR, "question": QUESTION}
        flags = [part for name, text in given.items() for part in (f"--{name}", text)]
        result = run("choose", *CHOICES, *flags, "--model", folder, "--json")
        same(result.json[0]["predictions"], [pipeline(None, folder)(**given, choices=CHOICES)])

    def test_order(self, run: Run, make: Make) -> None:
        folder = make("AlbertForPreTraining").folder
        result = run("order", TEXT, PAIR, "--model", folder, "--json")
        same(result.json[0]["predictions"], [pipeline("sentence-order", folder)((TEXT, PAIR))])

    def test_predict_texts(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder = make("AlbertForSequenceClassification").folder
        (tmp_path / "texts.csv").write_text(f"text\n{TEXT}\n")
        (record,) = predicted(run, folder, tmp_path / "texts.csv")
        answers = pipeline(None, folder)(TEXT, top_k=None)
        same(record["scores"], {answer["label"]: answer["score"] for answer in answers})
        assert record["label"] == answers[0]["label"]

    def test_predict_words(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder, words = make("AlbertForTokenClassification").folder, TEXT[:-1].split()
        (tmp_path / "words.conll").write_text("\n".join(words) + "\n")
        (record,) = predicted(run, folder, tmp_path / "words.conll")
        entities = pipeline(None, folder)(words, is_split_into_words=True, ignore_labels=())
        firsts = {entity["start"]: entity["entity"] for entity in reversed(entities)}
        assert record["tokens"] == words
        assert record["labels"] == [firsts[TEXT.index(word)] for word in words]

    def test_predict_questions(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder = make("AlbertForQuestionAnswering").folder
        (tmp_path / "questions.jsonl").write_text(json.dumps({"question": QUESTION, "context": PAIR}))
        (record,) = predicted(run, folder, tmp_path / "questions.jsonl")
        answer = pipeline(None, folder)(question=QUESTION, context=PAIR)
        same({name: record[name] for name in answer}, answer)

    def test_predict_choices(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder = make("AlbertForMultipleChoice").folder
        row = {"sent1": PAIR, "sent2": QUESTION} | {f"ending{n}": text for n, text in enumerate(CHOICES)}
        (tmp_path / "choices.tsv").write_text("\t".join(row) + "\n" + "\t".join(row.values()) + "\n")
        columns = ("--choice-columns", "ending0,ending1,ending2")
        (record,) = predicted(run, folder, tmp_path / "choices.tsv", *columns)
        answer = pipeline(None, folder)(context=PAIR, question=QUESTION, choices=CHOICES)
        same(record["scores"], answer["scores"])

    def test_predict_pairs(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder = make("AlbertModel").folder
        (tmp_path / "texts.jsonl").write_text(json.dumps({"text": TEXT}))
        (record,) = predicted(run, folder, tmp_path / "texts.jsonl", "--task", "sentence-embedding")
        same(record["vector"], pipeline("feature-extraction", folder, pooling="mean")(TEXT))

    def test_the_bundled_model(self, run: Run) -> None:
        result = run("fill-mask", "She opened the [MASK] and went into the room.", "--json")
        assert result.json[0]["predictions"][0]["token_str"] == "door"

    def test_inspect(self, run: Run, make: Make) -> None:
        model = make("AlbertForMaskedLM")
        report = run("inspect", model.folder, "--json").json[0]
        stored = {name: array for name, array in model.weights.items() if name not in TIED}
        assert report["weights"] == {
            "dtype": "float32",
            "bytes": sum(array.nbytes for array in stored.values()),
            "tensors": len(stored),
        }

    def test_inspect_attention(self, run: Run, make: Make, tmp_path: Path) -> None:
        model = make("AlbertForMaskedLM")
        result = run("inspect", "attention", TEXT, "--model", model.folder, "--html", tmp_path / "page.html")
        assert result.status == 0, result.errors
        report = run("inspect", "attention", TEXT, "--model", model.folder, "--json").json[0]
        close([layer["attention"] for layer in report["layers"]], model.outputs(TEXT)["attentions"][:, 0])

    def test_bench(self, run: Run, make: Make) -> None:
        sizes = ("--lengths", "8", "--batches", "2", "--minutes", "0.05", "--rounds", "1")
        result = run("bench", "--model", make("AlbertForMaskedLM").folder, *sizes, "--json")
        assert result.status == 0, result.errors
        timings = {(row["engine"], row["batch"], row["length"]) for row in result.json[1:]}
        assert {("onnx", 2, 8), ("onnx-int8", 2, 8)} <= timings
        assert all(row["texts_per_second"] > 0 for row in result.json[1:])

    def test_convert(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder = make("AlbertForMaskedLM", "groups").folder
        result = run("convert", folder, tmp_path / "copy", "--verify", "--json", "--max-shard-size", "100KB")
        assert result.status == 0, result.errors
        assert len(list((tmp_path / "copy").glob("*.safetensors"))) > 1
        same(pipeline("fill-mask", tmp_path / "copy")(MASKED), pipeline("fill-mask", folder)(MASKED))

    @pytest.mark.parametrize("architecture", HEADS)
    def test_export_onnx(self, run: Run, make: Make, architecture: str, tmp_path: Path) -> None:
        model = make(architecture)
        result = run("export", "onnx", model.folder, tmp_path / "exported")
        assert result.status == 0, result.errors
        read = formats.load(tmp_path / "exported")[1]
        assert {name: array.tolist() for name, array in read.items()} == {
            name: array.tolist() for name, array in model.weights.items() if name not in TIED
        }

    def test_export_int8(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder = make("AlbertForSequenceClassification").folder
        result = run("export", "onnx", folder, tmp_path / "int8", "--int8", "--max-drop", "100")
        assert result.status == 0, result.errors
        float32, int8 = (pipeline(None, model)(TEXT, top_k=None) for model in (folder, tmp_path / "int8"))
        assert float32 != int8
        np.testing.assert_allclose(
            [answer["score"] for answer in float32], [answer["score"] for answer in int8], atol=0.05
        )
