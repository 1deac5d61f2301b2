"""Tests of pretraining objectives: their labels in batches, and a new objective, which needs only a class."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pretraining_rows import PLAIN, make_shards
from pretraining_runs import SIZES
from safetensors.torch import load_file

from albertkit.pretraining import objectives
from albertkit.pretraining.batches import ExampleStream
from albertkit.pretraining.objectives import IGNORED, OBJECTIVES, Objective, Row, Stream
from albertkit.pretraining.run import run_pretraining
from albertkit.pretraining.settings import ExampleSettings, PretrainingSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.pretraining.words import WordTable
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.settings import TrainingSettings

SETTINGS = PretrainingSettings(
    batch_size=8,
    evaluation_sequences=16,
    model=SIZES,
    examples=ExampleSettings(max_seq_length=64),
    training=TrainingSettings(
        steps=6, warmup_steps=2, save_every=3, evaluate_every=6, log_every=1, precision="fp32"
    ),
)


class MovedTokens(Objective):
    """Predict which tokens changed places with their neighbor: the score of the token against all others."""

    name, setting = "moved", "masked_lm"

    def weight(self, settings: PretrainingSettings) -> float:
        return 0.5

    def draw(self, row: Row, words: WordTable, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
        free = ~words.is_special[row.ids]
        free[row.labels["masked"] != IGNORED] = False
        pairs = np.flatnonzero(free[:-1] & free[1:])[::2]
        pairs = pairs[np.diff(pairs, prepend=-2) > 1]
        chosen = pairs[stream(5).random(len(pairs)) < 0.3]
        ids = row.ids.copy()
        ids[chosen], ids[chosen + 1] = row.ids[chosen + 1], row.ids[chosen]
        return ids, np.where(free, ids != row.ids, IGNORED)

    def loss(self, logits: Any, labels: Any, ids: Any) -> tuple[Any, Any]:
        own = logits.float().log_softmax(-1).gather(1, ids[:, None]).squeeze(1)
        known = (labels != IGNORED).float()
        total = F.binary_cross_entropy_with_logits(-own, labels.float(), weight=known, reduction="sum")
        return total, (((own < -1) == (labels == 1)) * known).sum()


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objectives, "OBJECTIVES", (*OBJECTIVES, MovedTokens))


@pytest.fixture(scope="module")
def shards(
    tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str], tiny_vocabulary: Path
) -> ShardSet:
    folder = tmp_path_factory.mktemp("shards")
    AlbertTokenizer(tiny_vocabulary).save_pretrained(folder / "tokenizer")
    made = make_shards(folder, tiny_texts, tiny_vocabulary)
    (folder / "out/validation").symlink_to(folder / "out/train")
    return made


@pytest.mark.usefixtures("third")
def test_the_labels_of_a_batch_are_those_of_its_parts(shards: ShardSet, tiny_vocabulary: Path) -> None:
    settings = replace(PLAIN, masked_lm=True, short_sequence_probability=0.5)
    words = WordTable(tiny_vocabulary)
    batch = next(iter(ExampleStream(shards, words, settings, 10)))
    without = next(iter(ExampleStream(shards, words, replace(settings, masked_lm=False), 10)))
    original = without.input_ids.reshape(-1)
    assert batch.labels.keys() == {"masked", "order", "moved"}
    moved, masked = (batch.labels[name].reshape(-1) for name in ("moved", "masked"))
    is_masked, is_moved = masked != IGNORED, moved != IGNORED
    assert np.array_equal(original[is_masked], masked[is_masked])
    seen = batch.input_ids.reshape(-1)
    assert np.array_equal((seen != original)[is_moved], moved[is_moved] == 1)
    assert 0 < moved[is_moved].mean() < 1
    for name, whole in batch.labels.items():
        parts = [(part.input_ids, part.labels[name]) for part in batch.split(3)]
        assert np.array_equal(
            np.concatenate([labels[labels != IGNORED] for _, labels in parts]), whole[whole != IGNORED]
        )
        assert np.array_equal(
            np.concatenate([ids[labels != IGNORED] for ids, labels in parts]),
            batch.input_ids[whole != IGNORED],
        )


@pytest.mark.usefixtures("third")
def test_a_new_objective_is_trained_evaluated_and_resumed(shards: ShardSet, tmp_path: Path) -> None:
    data = shards.folder.parent

    def run(name: str, settings: PretrainingSettings) -> Any:
        return run_pretraining(settings, data, data.parent / "tokenizer", tmp_path / name)

    def weights(name: str) -> dict[str, torch.Tensor]:
        return load_file(tmp_path / name / "model.safetensors")

    metrics = run("whole", SETTINGS).metrics
    assert [*metrics] == [
        *("masked_loss", "masked_accuracy", "order_loss", "order_accuracy"),
        *("moved_loss", "moved_accuracy", "output_spread"),
    ]
    stopped = replace(SETTINGS, training=replace(SETTINGS.training, max_minutes=1e-9))
    assert not run("pieces", stopped).finished
    assert run("pieces", SETTINGS).metrics == metrics
    run("parts", replace(SETTINGS, training=replace(SETTINGS.training, accumulation=3)))
    whole, pieces, parts = weights("whole"), weights("pieces"), weights("parts")
    assert all(torch.equal(whole[name], pieces[name]) for name in whole)
    assert max((whole[name] - parts[name]).abs().max().item() for name in whole) < 1e-5


def test_objectives_have_different_names() -> None:
    assert len({one.name for one in OBJECTIVES}) == len(OBJECTIVES)
