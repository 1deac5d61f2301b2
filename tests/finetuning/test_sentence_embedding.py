"""Sentence embedding: losses by hand, batches across parts and processes, retrieval, files to vectors."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bound_tasks import bound
from command_line import Run
from safetensors.torch import load_file
from training_losses import embedding_loss_of
from two_processes import in_two_processes

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import PairExample
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import ReadingReport
from albertkit.datasets.sentence_embedding import GluePairs, PairTable
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.batches import UnitBatch
from albertkit.finetuning.objectives import EmbeddingObjective, contrastive_loss, embedding_loss, ranking_loss
from albertkit.finetuning.run import FinetuningRun
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.finetuning.train import finetune
from albertkit.metrics.classification import pearson, spearman
from albertkit.metrics.sentence_embedding import find, retrieval_scores
from albertkit.modeling.model import AlbertModel
from albertkit.pipelines import pipeline
from albertkit.tasks.sentence_embedding import Embedded, SentenceEmbedding
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.curves import read_metrics
from albertkit.training.distributed import World

pytestmark = pytest.mark.usefixtures("blank_pictures")

CPU = torch.device("cpu")
FAST = FinetuningSettings(
    epochs=4, batch_size=8, learning_rate=3e-3, dropout=0.0, precision="fp32", evaluate_every=24, log_every=1
)
WORDS = ["river", "house", "letters", "key", "secret", "harbour", "dinner", "morning", "painted", "lost"]


# --- Losses --------------------------------------------------------------------------------------


def unit_vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    vectors = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return vectors / vectors.norm(dim=-1, keepdim=True)


def by_hand(vectors: torch.Tensor, candidates: list[list[tuple[int, int]]], temperature: float) -> float:
    """The loss where candidate (example, place) are listed for each first text, the right one first."""
    losses = []
    for number, listed in enumerate(candidates):
        terms = [math.exp(float(vectors[number, 0] @ vectors[one]) / temperature) for one in listed]
        losses.append(-math.log(terms[0] / sum(terms)))
    return sum(losses) / len(losses)


def test_contrastive_loss_by_hand() -> None:
    vectors = unit_vectors(3, 3, 8)
    texts = torch.arange(9).reshape(3, 3)
    everything = [(number, place) for number in range(3) for place in (1, 2)]
    listed = [[(own, 1), *(one for one in everything if one != (own, 1))] for own in range(3)]
    assert float(contrastive_loss(vectors, texts, temperature=0.3)) == pytest.approx(
        by_hand(vectors, listed, 0.3), abs=1e-5
    )


def test_what_is_right_is_no_negative() -> None:
    """Examples: (a, p), (a, q), (b, p), (c, a). For a both p and q are right."""
    a, b, c, p, q = range(5)
    vectors = unit_vectors(4, 2, 8)
    listed = [
        [(0, 1)],  # q belongs to a, the other p too, and a is the text itself
        [(1, 1)],
        [(2, 1), (1, 1), (3, 1)],  # the p of a is that of b
        [(3, 1), (0, 1), (1, 1), (2, 1)],
    ]
    texts = torch.tensor([[a, p], [a, q], [b, p], [c, a]])
    assert float(contrastive_loss(vectors, texts, temperature=0.2)) == pytest.approx(
        by_hand(vectors, listed, 0.2), abs=1e-5
    )


def test_ranking_loss_by_hand() -> None:
    cosines, scores = torch.tensor([0.9, 0.1, 0.4, 0.2]), torch.tensor([1.0, 2.0, 3.5, 2.0])
    below = [(0, 1), (0, 2), (0, 3), (1, 2), (3, 2)]
    expected = math.log(1 + sum(math.exp(float(cosines[i] - cosines[j]) / 0.05) for i, j in below))
    assert float(ranking_loss(cosines, scores, temperature=0.05)) == pytest.approx(expected, rel=1e-5)
    assert float(ranking_loss(cosines, torch.ones(4), temperature=0.05)) == 0.0


def test_vectors_of_any_length_and_half_precision() -> None:
    """The cosine counts, in fp32 inside of autocast."""
    vectors, scores = unit_vectors(6, 2, 16), torch.tensor([0.0, 1, 2, 3, 4, 5])
    texts = torch.arange(12).reshape(6, 2)
    for given in (scores, torch.full_like(scores, math.nan)):
        plain = embedding_loss(vectors, texts, given, temperature=0.05)
        with torch.autocast("cpu", torch.bfloat16):
            scaled = embedding_loss(vectors * 7, texts, given, temperature=0.05)
        assert float(scaled) == pytest.approx(float(plain), rel=1e-5)


# --- The whole batch -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a random encoder."""
    tokenizer = AlbertTokenizer(tiny_vocabulary)
    config = AlbertConfig(
        vocab_size=len(tokenizer),
        embedding_size=16,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        num_hidden_layers=2,
        max_position_embeddings=48,
        initializer_range=0.2,
        hidden_dropout_prob=0.1,
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    AlbertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def examples(count: int, seed: int, words: int = 3) -> list[PairExample]:
    """Pairs of texts with the same words in another order."""
    draw = random.Random(seed)
    drawn = [draw.sample(WORDS, words) for _ in range(count)]
    return [PairExample(" ".join(one), " the ".join(reversed(one))) for one in drawn]


@pytest.mark.parametrize("kind", ["together", "scored", "alone", "negatives"])
@pytest.mark.parametrize("bf16", [False, True])
def test_parts_have_the_loss_and_gradients_of_the_whole(model: Path, kind: str, bf16: bool) -> None:
    """In bf16 too, where autocast keeps the weights that it cast the first time, without gradients."""
    task = bound(SentenceEmbedding(), AlbertTokenizer.from_pretrained(model), max_length=32)
    given = examples(7, 0)
    if kind == "scored":
        given = [replace(one, score=float(number % 3)) for number, one in enumerate(given)]
    if kind == "alone":
        given = [PairExample(one.text) for one in given]
    if kind == "negatives":
        given = [replace(one, negative=f"lost {number}") for number, one in enumerate(given)]
    batch = UnitBatch(task.units(task.features(given)))
    network = AlbertModel.from_pretrained(model, hidden_dropout_prob=0.0).train()
    plain = embedding_loss_of(task, network, batch.rows[:: 2 if kind == "alone" else 1])
    results = {}
    for parts in (1, 3):
        objective = EmbeddingObjective(task, World(CPU), temperature=0.05)
        network.zero_grad()
        pieces = batch.split(parts)
        counts = {"items": 7, "tokens": 1}
        assert sum(objective.counts(one)["items"] for one in pieces) == 7
        outputs = []
        for piece in pieces:
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                outputs.append(objective(network, piece, counts))
            outputs[-1].loss.backward()
        gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
        loss = sum(float(one.loss.detach()) for one in outputs)
        assert sum(float(one.sums["loss"][0]) for one in outputs) / 7 == pytest.approx(loss, rel=1e-5)
        results[parts] = loss, torch.cat([one.flatten() for one in gradients])
    assert results[1][0] == pytest.approx(float(plain.detach()), abs=0.3 if bf16 else 1e-5)
    assert results[3][0] == pytest.approx(results[1][0], abs=0.05 if bf16 else 1e-5)
    difference = (results[3][1] - results[1][1]).norm() / results[1][1].norm()
    assert difference < (0.1 if bf16 else 1e-4)


def test_what_is_computed_twice_has_the_same_dropout(model: Path) -> None:
    task = bound(SentenceEmbedding(), AlbertTokenizer.from_pretrained(model), max_length=32)
    network = AlbertModel.from_pretrained(model).train()
    seen: list[torch.Tensor] = []
    original = EmbeddingObjective._vectors

    class Watched(EmbeddingObjective):
        def _vectors(self, model: Any, batch: UnitBatch) -> torch.Tensor:
            seen.append(original(self, model, batch))
            return seen[-1]

    objective = Watched(task, World(CPU), temperature=0.05)
    for part in UnitBatch(task.units(task.features(examples(4, 0)))).split(2):
        objective(network, part, {"items": 4, "tokens": 1})
    first, second, first_again, second_again = seen
    assert torch.equal(first, first_again)
    assert torch.equal(second, second_again)


# --- Retrieval -----------------------------------------------------------------------------------


def test_ranks_by_hand() -> None:
    angles = np.radians([0, 10, 30, 90])
    candidates = 3 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    queries = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    found = find(queries, candidates, [{0}, {2, 3}, {0}, {2}], left_out=[set(), set(), set(), {0}])
    assert [(one.rank, one.nearest) for one in found] == [(1, 0), (3, 0), (4, 3), (2, 1)]
    ranks = [one.rank for one in found]
    assert retrieval_scores(ranks) == {
        "accuracy_at_1": 0.25, "accuracy_at_10": 1.0, "mrr": pytest.approx((1 + 1 / 3 + 1 / 4 + 1 / 2) / 4),
    }  # fmt: skip


def test_one_vector_for_everything_finds_nothing() -> None:
    same = np.random.default_rng(0).normal(size=(1, 64)).repeat(30, axis=0)
    found = find(same, same * 2, [{number} for number in range(30)])
    assert {one.rank for one in found} == {30}


def test_equal_texts_are_one_candidate() -> None:
    """(a, p), (b, p), (p, a), with a negative n."""
    x = [torch.tensor([math.cos(angle), math.sin(angle)]) for angle in (0.0, 0.2, 0.5, 0.9)]
    a, p, b, n = x
    given = [PairExample("a", "p", "n"), PairExample("b", "p"), PairExample("p", "a")]
    predictions = [Embedded([a, p, n], 0.0), Embedded([b, p], 0.0), Embedded([p, a], 0.0)]
    found = SentenceEmbedding().compared(given, predictions)
    # Candidates are p, n, a; of b the nearest is p; a is none for a.
    assert [(one.rank, one.nearest) for one in found] == [(1, "p"), (1, "p"), (1, "a")]
    moved = [Embedded([a, n, p], 0.0), Embedded([b, n], 0.0), Embedded([p, a], 0.0)]
    assert [one.rank for one in SentenceEmbedding().compared(given, moved)] == [2, 2, 2]


def test_collapse_is_one_vector_for_all_texts() -> None:
    """Not cosines that are high for every pair: so they are where all pairs belong together."""
    labeled, given = SentenceEmbedding(), examples(20, 0)
    vectors = unit_vectors(20, 16)
    fine = [Embedded([one, one], 1.0) for one in vectors]
    assert labeled.constant_answer(given, fine) is None
    same = [Embedded([vectors[0] + 1e-4 * one] * 2, 1.0) for one in vectors]
    assert labeled.constant_answer(given, same) == "one vector"


# --- Files ---------------------------------------------------------------------------------------


def read(reader: Any) -> tuple[list[PairExample], ReadingReport]:
    report = ReadingReport(reader.source)
    return [one for _, one in reader.read(report)], report


def test_columns_are_found_by_their_names() -> None:
    rows = [
        {"anchor": "a", "positive": "b", "negative": "c"},
        {"anchor": "a", "positive": "", "negative": "c"},
    ]
    found, report = read(PairTable(rows))
    assert [(one.text, one.pair, one.negative, one.score) for one in found] == [("a", "b", "c", None)]
    assert report.problems["empty"].count == 1
    found, _ = read(PairTable(rows, labeled=False))
    assert [(one.text, one.pair, one.negative) for one in found] == [("a", "b", None), ("a", "", None)]
    graded = [
        {"x": "a", "y": "b", "z": "3.5"},
        {"x": "a", "y": "b", "z": "same"},
        {"x": "a", "y": "b", "z": ""},
    ]
    found, report = read(PairTable(graded, DataOptions(text_column="x", pair_column="y", label_column="z")))
    assert [one.score for one in found] == [3.5]
    assert {name: one.count for name, one in report.problems.items()} == {"mislabeled": 1, "unlabeled": 1}
    found, _ = read(PairTable([{"text": "a", "label": "news"}]))
    assert (found[0].text, found[0].pair, found[0].score) == ("a", None, None)
    with pytest.raises(DataError, match=r"no column 'text'. The columns are x, y, z"):
        PairTable(graded)
    with pytest.raises(DataError, match="Remove or rename the other"):
        PairTable([rows[0] | {"score": 1.0}])


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
    found, _ = read(GluePairs(tmp_path, "stsb", "test"))
    assert found[0].score is None
    with pytest.raises(ConfigError, match="Expected one of stsb, mrpc, qqp"):
        GluePairs(tmp_path, "rte", "train")


# --- Runs ----------------------------------------------------------------------------------------


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    for name, count, seed in (("train", 96, 0), ("validation", 40, 1)):
        pairs = examples(count, seed)
        write(folder / f"{name}.jsonl", [{"anchor": one.text, "positive": one.pair} for one in pairs])
        write(folder / f"{name}-alone.jsonl", [{"text": one.text} for one in pairs])
        pairs = examples(count, seed, words=2)
        scored = []
        for number, one in enumerate(pairs):
            second = pairs[number - number % 3].pair or ""
            shared = {*one.text.split()} & {*second.split()}
            scored.append({"sentence1": one.text, "sentence2": second, "score": len(shared)})
        write(folder / f"{name}-scored.jsonl", scored)
    return folder


def tune(
    settings: FinetuningSettings, model: Path, data: Path, output: Path, kind: str = ""
) -> FinetuningRun:
    return finetune(
        "sentence-embedding",
        recipe=settings,
        model=model,
        train=data / f"train{kind}.jsonl",
        validation=data / f"validation{kind.replace('-alone', '')}.jsonl",
        output=output,
        device="cpu",
    )


@pytest.fixture(scope="module")
def trained(model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("run") / "pairs"
    settings = replace(FAST, task=replace(FAST.task, pooling="cls", normalize=True))
    report = tune(settings, model, data, output).report
    assert report is not None
    assert report["main_metric"] == "mrr"
    first = next(line["eval/mrr"] for line in read_metrics(output) if "eval/mrr" in line)
    assert report["metrics"]["mrr"] > first + 0.2
    return output


def test_pairs_are_learnt(trained: Path, model: Path) -> None:
    for name in ("report.md", "ranks.png", "by_length.png"):
        assert (trained / name).stat().st_size > 0
    lines = [json.loads(line) for line in (trained / "predictions.jsonl").read_text().splitlines()]
    metrics = json.loads((trained / "report.json").read_text())["metrics"]
    assert retrieval_scores([line["rank"] for line in lines]) == metrics
    old, new = (load_file(folder / "model.safetensors") for folder in (model, trained))
    assert old.keys() == new.keys()
    assert {name for name in old if torch.equal(old[name], new[name])} == {"pooler.weight", "pooler.bias"}


def test_the_pooling_is_saved(trained: Path, run: Run) -> None:
    """What was trained is what the pipeline and the verbs give."""
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


def test_scores_are_learnt(model: Path, data: Path, tmp_path: Path) -> None:
    report = tune(FAST, model, data, tmp_path, "-scored").report
    assert report is not None
    assert report["main_metric"] == "spearman"
    first = next(line["eval/spearman"] for line in read_metrics(tmp_path) if "eval/spearman" in line)
    assert report["metrics"]["spearman"] > max(first + 0.1, 0.7)
    lines = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    cosines = [line["similarity"] for line in lines]
    true = [json.loads(line)["score"] for line in (data / "validation-scored.jsonl").read_text().splitlines()]
    assert report["metrics"] == {"spearman": spearman(true, cosines), "pearson": pearson(true, cosines)}
    assert (tmp_path / "numbers.png").is_file()


def test_texts_alone_are_learnt(model: Path, data: Path, tmp_path: Path) -> None:
    """They need dropout."""
    report = tune(replace(FAST, steps=8, dropout=0.1), model, data, tmp_path / "run", "-alone").report
    assert report is not None
    losses = [line["train/loss"] for line in read_metrics(tmp_path / "run") if "train/loss" in line]
    assert losses[-1] < losses[0]
    with pytest.raises(ConfigError, match="Set dropout to 0"):
        tune(FAST, model, data, tmp_path / "none", "-alone")


def test_what_cannot_be_learnt(model: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch_size is 1"):
        tune(replace(FAST, batch_size=1), model, data, tmp_path / "run")
    write(tmp_path / "train.jsonl", [{"text": "a", "text_pair": "b", "score": 2}] * 3)
    write(tmp_path / "validation.jsonl", [{"text": "a", "text_pair": "b", "score": 2}] * 3)
    with pytest.raises(DataError, match="every pair has the score 2"):
        tune(FAST, model, tmp_path, tmp_path / "run")
    write(tmp_path / "validation.jsonl", [{"text": "a"}])
    write(tmp_path / "train.jsonl", [{"text": "a", "text_pair": "b"}] * 3)
    with pytest.raises(DataError, match="sentence embeddings are evaluated on pairs"):
        tune(FAST, model, tmp_path, tmp_path / "run")


def test_vectors_and_cosines_for_files(trained: Path, data: Path, tmp_path: Path, run: Run) -> None:
    arguments = ("--model", trained, "--device", "cpu")
    alone = data / "validation-alone.jsonl"
    result = run(
        "predict", "sentence-embedding", "--input", alone, "--output", tmp_path / "a.jsonl", *arguments
    )
    assert result.status == 0, result.errors
    vectors = [json.loads(line)["vector"] for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    texts = [json.loads(line)["text"] for line in alone.read_text().splitlines()]
    np.testing.assert_allclose(
        vectors, pipeline("feature-extraction", trained, device="cpu")(texts), atol=1e-5
    )
    pairs = data / "validation.jsonl"
    result = run(
        "predict", "sentence-embedding", "--input", pairs, "--output", tmp_path / "p.parquet", *arguments
    )
    assert result.status == 0, result.errors
    from pyarrow import parquet

    found = parquet.read_table(tmp_path / "p.parquet").to_pylist()
    said = [json.loads(line) for line in (trained / "predictions.jsonl").read_text().splitlines()]
    np.testing.assert_allclose(
        [one["similarity"] for one in found], [one["similarity"] for one in said], atol=1e-5
    )
    assert set(found[0]) == {"row", "similarity", "cut"}
    result = run("evaluate", "sentence-embedding", "--data", pairs, "--json", *arguments)
    assert result.json[0] == json.loads((trained / "report.json").read_text())["metrics"]
    result = run("evaluate", "sentence-embedding", "--data", alone, *arguments)
    assert result.status == 1
    assert "sentence embeddings are evaluated on pairs" in result.errors.splitlines()[-1]


def test_two_processes_and_parts_are_one(
    model: Path, data: Path, tmp_path: Path, warm_shell: dict[str, str]
) -> None:
    """Batches of 7, so that neither processes nor parts have equally many pairs."""
    settings = replace(FAST, steps=4, batch_size=7, learning_rate=1e-3)
    tune(settings, model, data, tmp_path / "run1")
    in_two_processes(
        [
            "albertkit", "finetune", "sentence-embedding", "--model", model,
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
