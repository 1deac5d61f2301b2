"""Tests of sentence embedding: from files of pairs to a model, its report and its vectors."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Run
from json_lines import read_json_lines, write_json_lines
from safetensors.torch import load_file
from sentence_pairs import text_pairs
from two_processes import in_two_processes

from albertkit.datasets.examples import PairExample
from albertkit.datasets.official import glue
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import ReadingReport
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.finetune import FinetuningRun, finetune
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.hub import BUNDLED_SENTENCES
from albertkit.metrics import pearson, retrieval_scores, spearman
from albertkit.modeling.model import AlbertModel
from albertkit.pipelines import pipeline
from albertkit.tasks.sentence_embedding import SentenceEmbedding
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.progress import read_metrics

pytestmark = pytest.mark.usefixtures("blank_pictures")
FAST = FinetuningSettings(
    epochs=4, batch_size=8, learning_rate=3e-3, dropout=0.0, precision="fp32", evaluate_every=24, log_every=1
)


def read(reader: Any) -> tuple[list[PairExample], ReadingReport]:
    report = ReadingReport(reader.source)
    return [one for _, one in reader.read(report)], report


def test_columns_of_pairs() -> None:
    rows = [
        {"anchor": "a", "positive": "b", "negative": "c"},
        {"anchor": "a", "positive": "", "negative": "c"},
    ]
    found, report = read(PairExample.read(rows))
    assert [(one.text, one.pair, one.negative, one.score) for one in found] == [("a", "b", "c", None)]
    assert report.problems["empty"].count == 1
    found, _ = read(PairExample.read(rows, labeled=False))
    assert [(one.text, one.pair, one.negative) for one in found] == [("a", "b", None), ("a", "", None)]
    graded = [
        {"x": "a", "y": "b", "z": "3.5"},
        {"x": "a", "y": "b", "z": "same"},
        {"x": "a", "y": "b", "z": ""},
    ]
    found, report = read(
        PairExample.read(graded, DataOptions(text_column="x", pair_column="y", label_column="z"))
    )
    assert [one.score for one in found] == [3.5]
    assert {name: one.count for name, one in report.problems.items()} == {"invalid label": 1, "unlabeled": 1}
    found, _ = read(
        PairExample.read([{"sentence1": "a", "sentence2": "b"}], DataOptions(text_column="sentence2"))
    )
    assert (found[0].text, found[0].pair) == ("b", None)  # not a pair of the text with itself
    found, _ = read(PairExample.read([{"text": "a", "label": "news"}]))
    assert (found[0].text, found[0].pair, found[0].score) == ("a", None, None)
    with pytest.raises(DataError, match=r"no column 'text'. The columns are x, y, z"):
        PairExample.read(graded)
    with pytest.raises(DataError, match="Remove or rename one"):
        PairExample.read([rows[0] | {"score": 1.0}])
    for option in ("negative_column", "label_column"):
        with pytest.raises(DataError, match=r"'x' needs a column of second texts.*--pair-column"):
            PairExample.read([{"text": "a", "x": 1.0}], DataOptions(**{option: "x"}))


def test_sts_b(tmp_path: Path) -> None:
    folder = tmp_path / "STS-B"
    folder.mkdir()
    head = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
    line = 'news\tMSRpar\t2012\t1\ta\tb\tA "plane\tAn air plane'
    (folder / "train.tsv").write_text(f"{head}\tscore\n0\t{line}\t4.750\n1\t{line}\t0.000\n")
    (folder / "test.tsv").write_text(f"{head}\n0\t{line}\n")
    found, _ = read(SentenceEmbedding().reader(str(tmp_path / "train"), DataOptions(glue="stsb")))
    assert [(one.text, one.pair, one.score, one.id) for one in found] == [
        ('A "plane', "An air plane", 4.75, "0"),
        ('A "plane', "An air plane", 0.0, "1"),
    ]
    found, _ = read(glue(tmp_path, "stsb", "test", example_class=PairExample))
    assert found[0].score is None
    with pytest.raises(ConfigError, match="Expected one of stsb, mrpc, qqp"):
        glue(tmp_path, "rte", "train", example_class=PairExample)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    for name, count, seed in (("train", 96, 0), ("validation", 40, 1)):
        pairs = text_pairs(count, seed)
        write_json_lines(
            folder / f"{name}.jsonl", [{"anchor": one.text, "positive": one.pair} for one in pairs]
        )
        write_json_lines(folder / f"{name}-alone.jsonl", [{"text": one.text} for one in pairs])
        pairs = text_pairs(count, seed, words=2)
        scored = []
        for number, one in enumerate(pairs):
            second = pairs[number - number % 3].pair or ""
            shared = {*one.text.split()} & {*second.split()}
            scored.append({"sentence1": one.text, "sentence2": second, "score": len(shared)})
        write_json_lines(folder / f"{name}-scored.jsonl", scored)
    return folder


def tune(
    settings: FinetuningSettings, encoder: Path, data: Path, output: Path, kind: str = ""
) -> FinetuningRun:
    return finetune(
        "sentence-embedding",
        recipe=settings,
        model=encoder,
        train=data / f"train{kind}.jsonl",
        validation=data / f"validation{kind.replace('-alone', '')}.jsonl",
        output=output,
        device="cpu",
    )


def test_a_run_starts_from_the_bundled_sentence_vectors(data: Path, tmp_path: Path) -> None:
    recipe = replace(FAST, epochs=None, steps=1, evaluate_every=None)
    train, validation = data / "train.jsonl", data / "validation.jsonl"
    run = finetune(
        "sentence-embedding", recipe=recipe, train=train, validation=validation, output=tmp_path / "run"
    )
    assert run.report is not None
    assert run.report["model"] == BUNDLED_SENTENCES


@pytest.fixture(scope="module")
def trained(encoder: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("run") / "pairs"
    settings = replace(FAST, task=replace(FAST.task, pooling="cls", normalize=True))
    report = tune(settings, encoder, data, output).report
    assert report is not None
    assert report["main_metric"] == "mrr"
    first = next(line["eval/mrr"] for line in read_metrics(output) if "eval/mrr" in line)
    assert report["metrics"]["mrr"] > first + 0.2
    return output


def test_training_on_pairs(trained: Path, encoder: Path) -> None:
    for name in ("report.md", "ranks.png", "by_length.png"):
        assert (trained / name).stat().st_size > 0
    lines = read_json_lines(trained / "predictions.jsonl")
    metrics = json.loads((trained / "report.json").read_text())["metrics"]
    assert retrieval_scores([line["rank"] for line in lines]) == metrics
    old, new = (load_file(folder / "model.safetensors") for folder in (encoder, trained))
    assert old.keys() == new.keys()
    assert {name for name in old if torch.equal(old[name], new[name])} == {"pooler.weight", "pooler.bias"}


def test_the_pooling_is_saved(trained: Path, run: Run) -> None:
    """The pipeline and the verbs use the pooling of the training."""
    network = AlbertModel.from_pretrained(trained)
    tokenizer = AlbertTokenizer.from_pretrained(trained)
    vector = network(**tokenizer("the river", return_tensors="pt")).last_hidden_state[0, 0].detach()
    expected = vector / vector.norm()
    encode = pipeline("feature-extraction", trained)
    np.testing.assert_allclose(encode("the river"), expected, atol=1e-5)
    assert np.shape(encode("the river", pooling="none"))[0] == 1
    mean = encode("the river", pooling="mean", normalize=False, return_tensors=True)
    tokens = encode("the river", pooling="none", return_tensors=True)[0]
    torch.testing.assert_close(mean, tokens.mean(dim=0), atol=1e-5, rtol=0)
    result = run("embed", "the river", "--model", trained, "--json", "--device", "cpu")
    assert result.status == 0, result.errors
    np.testing.assert_allclose(result.json[0]["embedding"], expected, atol=1e-5)
    result = run(
        "embed",
        "the river",
        "--model",
        trained,
        "--json",
        "--pooling",
        "mean",
        "--no-normalize",
        "--device",
        "cpu",
    )
    np.testing.assert_allclose(result.json[0]["embedding"], mean, atol=1e-5)


def test_training_on_scores(encoder: Path, data: Path, tmp_path: Path) -> None:
    report = tune(FAST, encoder, data, tmp_path, "-scored").report
    assert report is not None
    assert report["main_metric"] == "spearman"
    first = next(line["eval/spearman"] for line in read_metrics(tmp_path) if "eval/spearman" in line)
    assert report["metrics"]["spearman"] > max(first + 0.1, 0.7)
    lines = read_json_lines(tmp_path / "predictions.jsonl")
    cosines = [line["similarity"] for line in lines]
    true = [json.loads(line)["score"] for line in (data / "validation-scored.jsonl").read_text().splitlines()]
    assert report["metrics"] == {"spearman": spearman(true, cosines), "pearson": pearson(true, cosines)}
    assert (tmp_path / "numbers.png").is_file()


def test_training_on_single_texts(encoder: Path, data: Path, tmp_path: Path) -> None:
    """Single texts need dropout, because each is its own positive."""
    report = tune(replace(FAST, steps=8, dropout=0.1), encoder, data, tmp_path / "run", "-alone").report
    assert report is not None
    losses = [line["train/loss"] for line in read_metrics(tmp_path / "run") if "train/loss" in line]
    assert losses[-1] < losses[0]
    with pytest.raises(ConfigError, match="Set dropout to 0"):
        tune(FAST, encoder, data, tmp_path / "none", "-alone")


def test_unusable_training_data_is_an_error(encoder: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch_size is 1"):
        tune(replace(FAST, batch_size=1), encoder, data, tmp_path / "run")
    write_json_lines(tmp_path / "train.jsonl", [{"text": "a", "text_pair": "b", "score": 2}] * 3)
    write_json_lines(tmp_path / "validation.jsonl", [{"text": "a", "text_pair": "b", "score": 2}] * 3)
    with pytest.raises(DataError, match="every pair has the score 2"):
        tune(FAST, encoder, tmp_path, tmp_path / "run")
    write_json_lines(tmp_path / "validation.jsonl", [{"text": "a"}])
    write_json_lines(tmp_path / "train.jsonl", [{"text": "a", "text_pair": "b"}] * 3)
    with pytest.raises(DataError, match="sentence embeddings are evaluated on pairs"):
        tune(FAST, encoder, tmp_path, tmp_path / "run")


def test_predict_and_evaluate(trained: Path, data: Path, tmp_path: Path, run: Run) -> None:
    arguments = ("--model", trained, "--device", "cpu")
    alone = data / "validation-alone.jsonl"
    result = run("predict", "--input", alone, "--output", tmp_path / "a.jsonl", *arguments)
    assert result.status == 0, result.errors
    vectors = [json.loads(line)["vector"] for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    texts = [json.loads(line)["text"] for line in alone.read_text().splitlines()]
    np.testing.assert_allclose(
        vectors, pipeline("feature-extraction", trained, device="cpu")(texts), atol=1e-5
    )
    from pyarrow import parquet

    assert run("predict", "--input", alone, "--output", tmp_path / "a.parquet", *arguments).status == 0
    group = parquet.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    columns = map(group.column, range(group.num_columns))
    (vector,) = (one for one in columns if one.path_in_schema.startswith("vector"))
    assert not vector.has_dictionary_page  # it would make the file larger
    pairs = data / "validation.jsonl"
    result = run("predict", "--input", pairs, "--output", tmp_path / "p.parquet", *arguments)
    assert result.status == 0, result.errors
    found = parquet.read_table(tmp_path / "p.parquet").to_pylist()
    said = read_json_lines(trained / "predictions.jsonl")
    np.testing.assert_allclose(
        [one["similarity"] for one in found], [one["similarity"] for one in said], atol=1e-5
    )
    assert set(found[0]) == {"row", "similarity", "cut"}
    result = run("evaluate", "--data", pairs, "--json", *arguments)
    assert result.json[0] == json.loads((trained / "report.json").read_text())["metrics"]
    result = run("evaluate", "--data", alone, *arguments)
    assert result.status == 1
    assert "sentence embeddings are evaluated on pairs" in result.errors.splitlines()[-1]


def test_two_processes_have_the_losses_of_one(
    encoder: Path, data: Path, tmp_path: Path, warm_shell: dict[str, str]
) -> None:
    """Batches of 7 pairs give processes and parts different numbers of pairs."""
    settings = replace(FAST, steps=4, batch_size=7, learning_rate=1e-3)
    tune(settings, encoder, data, tmp_path / "run1")
    in_two_processes(
        [
            "albertkit", "finetune", "sentence-embedding", "--model", encoder,
            "--train", data / "train.jsonl", "--validation", data / "validation.jsonl", "--output",
            tmp_path / "run2", "--device", "cpu", "--precision", "fp32", "--steps", 4, "--batch-size", 7,
            "--log-every", 1, "--learning-rate", 1e-3, "--dropout", 0, "--accumulation", 2,
        ],
        warm_shell,
    )  # fmt: skip
    one, two = (
        [line["train/loss"] for line in read_metrics(tmp_path / f"run{processes}") if "train/loss" in line]
        for processes in (1, 2)
    )
    assert len(one) == 4
    assert two == pytest.approx(one, abs=1e-4)
    one, two = (load_file(tmp_path / f"run{processes}" / "model.safetensors") for processes in (1, 2))
    assert all(torch.allclose(one[name], two[name], atol=1e-4) for name in one)
