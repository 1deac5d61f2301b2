"""Tests of pretraining runs on real shards: their losses, their errors and their resumption."""

import itertools
import multiprocessing
import os
import pickle
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pretraining_rows import rows_of
from pretraining_runs import SETTINGS, SIZES, run
from quick_runs import quick_runs  # noqa: F401  # a fixture
from safetensors.torch import load_file

from albertkit.config import IGNORED_LABEL, AlbertConfig
from albertkit.errors import ConfigError, DataError, ModelNotFoundError, TrainingError
from albertkit.modeling.heads import AlbertForPreTraining
from albertkit.pretraining.batches import ExampleStream, fixed_batches
from albertkit.pretraining.loss import PretrainingObjective
from albertkit.pretraining.masking import WordTable
from albertkit.pretraining.prepare import prepare
from albertkit.pretraining.run import _in_background, run_pretraining
from albertkit.pretraining.shards import ShardSet
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.progress import read_metrics


def test_losses_equal_the_losses_of_the_model(data: Path) -> None:
    torch.manual_seed(0)
    model = AlbertForPreTraining(AlbertConfig(vocab_size=500, **SIZES)).eval()
    words = WordTable(data / "tokenizer/spiece.model")
    stream = ExampleStream(ShardSet(data / "shards/train"), words, SETTINGS.examples, 8)
    batch = next(iter(stream))
    objective = PretrainingObjective(replace(SETTINGS, order_weight=0.5))
    counts = objective.counts(batch)
    result = objective(model, batch, counts)
    labels = batch.masked_labels
    whole = model(
        input_ids=torch.from_numpy(batch.input_ids),
        attention_mask=torch.from_numpy(batch.attention_mask),
        token_type_ids=torch.from_numpy(batch.token_type_ids),
        labels=torch.from_numpy(labels).long(),
    )
    orders = torch.from_numpy(batch.order_labels).long()
    order_loss = torch.nn.functional.cross_entropy(whole.sop_logits, orders)
    assert result.loss.item() == pytest.approx(whole.loss.item() + 0.5 * order_loss.item(), abs=1e-5)
    masked_loss, masked = result.sums["masked_loss"]
    assert masked_loss.item() / masked == pytest.approx(whole.loss.item(), abs=1e-5)
    right = (whole.prediction_logits.argmax(-1).numpy() == labels).sum()
    assert result.sums["masked_accuracy"] == (torch.tensor(right), (labels != IGNORED_LABEL).sum())
    assert counts["tokens"] == int(batch.attention_mask.sum())


def test_a_vocabulary_with_another_name(data: Path, tmp_path: Path) -> None:
    tokenizer = shutil.copytree(data / "tokenizer", tmp_path / "tokenizer")
    file = (tokenizer / "spiece.model").rename(tokenizer / "words.model")
    settings = replace(SETTINGS, training=replace(SETTINGS.training, steps=1, warmup_steps=0))
    run_pretraining(settings, data / "shards", tokenizer, tmp_path / "run")
    assert (tmp_path / "run" / "spiece.model").read_bytes() == file.read_bytes()
    file.unlink()
    with pytest.raises(ModelNotFoundError, match=r"tokenizer .*Expected spiece\.model"):
        run_pretraining(settings, data / "shards", tokenizer, tmp_path / "run")


def test_the_saved_tokenizer_has_the_maximum_length_of_the_model(data: Path, tmp_path: Path) -> None:
    assert AlbertTokenizer.from_pretrained(data / "tokenizer").model_max_length != 64
    run(data, tmp_path, replace(SETTINGS, training=replace(SETTINGS.training, steps=1, warmup_steps=0)))
    assert AlbertTokenizer.from_pretrained(tmp_path).model_max_length == 64


def test_without_sentence_order_there_is_no_order_loss(data: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, examples=replace(SETTINGS.examples, sentence_order=False))
    metrics = run(data, tmp_path, replace(settings, training=replace(SETTINGS.training, steps=2))).metrics
    assert metrics.keys() == {"masked_loss", "masked_accuracy", "output_spread"}


def test_an_interrupted_run_has_the_weights_of_an_uninterrupted_run(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path / "whole")
    piece = replace(SETTINGS, training=replace(SETTINGS.training, max_minutes=1e-9))
    for _ in range(3):
        assert not run(data, tmp_path / "pieces", piece).finished
    assert run(data, tmp_path / "pieces").finished
    whole, pieces = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "pieces"))
    assert whole.keys() == pieces.keys()
    assert all(torch.equal(whole[name], pieces[name]) for name in whole)
    losses = [
        [line["train/masked_loss"] for line in read_metrics(tmp_path / name) if "train/masked_loss" in line]
        for name in ("whole", "pieces")
    ]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 9


def test_learning_lowers_the_held_out_loss(data: Path, tmp_path: Path) -> None:
    training = replace(SETTINGS.training, steps=80, evaluate_every=80, optimizer="adamw", learning_rate=1e-3)
    result = run(data, tmp_path, replace(SETTINGS, frequency_bias=False, training=training))
    assert result.metrics["masked_loss"] < np.log(500) - 1


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        (
            {"model": SIZES | {"max_position_embeddings": 32}},
            ConfigError,
            r"max_seq_length is \d+, but the model has only 32 positions",
        ),
        ({"model": SIZES | {"hidden_sise": 32}}, ConfigError, "hidden_size"),
        ({"batch_size": 4}, TrainingError, "batch_size: saved 8, now 4"),
        (
            {"examples": replace(SETTINGS.examples, masked_lm=False), "order_weight": 0.0},
            ConfigError,
            "so there is no loss",
        ),
        ({"model": SIZES}, TrainingError, "model.hidden_dropout_prob: saved 0.1, now None"),
    ],
)
def test_invalid_and_changed_settings_are_an_error(
    data: Path, tmp_path: Path, changed: dict, error: type[Exception], message: str
) -> None:
    piece = replace(SETTINGS, training=replace(SETTINGS.training, max_minutes=1e-9))
    run(data, tmp_path, piece)
    with pytest.raises(error, match=message):
        run(data, tmp_path, replace(piece, **changed))


def test_a_run_cannot_be_resumed_with_other_shards(data: Path, tmp_path: Path) -> None:
    piece = replace(SETTINGS, training=replace(SETTINGS.training, max_minutes=1e-9))
    run(data, tmp_path / "run", piece)
    prepare([data / "corpus.jsonl"], data / "tokenizer", tmp_path / "other", workers=1, holdout_every=9)
    with pytest.raises(TrainingError, match=r"\(shards of data\[0\]: saved \['\w{64}'\], now \['\w{64}'\]\)"):
        run_pretraining(piece, tmp_path / "other", data / "tokenizer", tmp_path / "run")
    with pytest.raises(DataError, match="not a finished shard folder"):
        run_pretraining(piece, tmp_path / "nothing", data / "tokenizer", tmp_path / "run")


def test_overfit_one_batch_fails_if_the_batch_is_not_learned(data: Path, tmp_path: Path) -> None:
    training = replace(SETTINGS.training, steps=100, optimizer="adamw", learning_rate=4e-3, log_every=100)
    settings = replace(SETTINGS, overfit_one_batch=True, unit_mapping=True, training=training)
    settings = replace(settings, model=SIZES | {"initializer_range": 0.1})
    result = run(data, tmp_path / "learnt", settings)
    assert result.tokens % result.step == 0  # the same batch, every time
    first, *_, last = [line for line in read_metrics(tmp_path / "learnt") if "train/masked_loss" in line]
    assert last["train/masked_loss"] < 0.1 * first["train/masked_loss"]
    slow = replace(settings, training=replace(training, steps=5, learning_rate=1e-5))
    with pytest.raises(
        TrainingError, match=r"the run did not learn the batch \(train/masked_loss 4\.\d+ -> 4\.\d+"
    ):
        run(data, tmp_path / "slow", slow)


def test_a_resumed_run_on_one_batch_has_the_same_batch(data: Path, tmp_path: Path) -> None:
    training = replace(SETTINGS.training, steps=3, save_every=1)
    settings = replace(SETTINGS, overfit_one_batch=True, training=training)
    stopped = replace(settings, training=replace(training, max_minutes=1e-9))
    counts = [run(data, tmp_path, stopped).tokens for _ in range(2)]
    assert counts[1] == 2 * counts[0]
    with pytest.raises(TrainingError, match="did not learn the batch"):
        run(data, tmp_path, settings)
    assert read_metrics(tmp_path)[-1]["tokens"] == 3 * counts[0]


def test_output_spread_uses_only_masked_positions(data: Path) -> None:
    """The padding to a multiple of 64 positions must not count."""
    shards, words = ShardSet(data / "shards" / "validation"), WordTable(data / "tokenizer" / "spiece.model")
    batches = fixed_batches(shards, words, SETTINGS.examples, 8, limit=8)
    torch.manual_seed(0)
    model = AlbertForPreTraining(AlbertConfig(vocab_size=words.size, **SIZES, initializer_range=0.5)).eval()
    objective = PretrainingObjective(SETTINGS)
    with torch.no_grad():
        found = objective.evaluate(model, batches)["output_spread"]
        batch = batches[0]
        inputs = [batch.input_ids, batch.attention_mask, batch.token_type_ids]
        logits = model(*map(torch.from_numpy, inputs)).prediction_logits.flatten(0, 1)
    labels = batch.masked_labels
    positions = np.flatnonzero(labels != IGNORED_LABEL)
    assert len(positions) % 64
    scores = logits[torch.from_numpy(positions)].double()
    assert found == pytest.approx(float(scores.std(dim=0).mean() / scores.mean(dim=0).std()), rel=1e-4)
    # One masked position has no spread.
    few = np.where(np.arange(labels.size).reshape(labels.shape) == positions[0], labels, IGNORED_LABEL)
    nothing = replace(batch, masked_labels=few)
    with torch.no_grad():
        assert "output_spread" not in objective.evaluate(model, [nothing])


def test_examples_are_drawn_in_a_process_of_its_own(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not forked, because threads can then make it hang, and signals to all processes do not end it."""
    shards, words = ShardSet(data / "shards" / "train"), WordTable(data / "tokenizer" / "spiece.model")
    streams = [ExampleStream(shards, words, SETTINGS.examples, 8, seed=3) for _ in range(2)]
    expected = list(itertools.islice(streams[0], 3))
    # If the process cannot start, Python hangs while it sends more than a pipe holds.
    assert len(pickle.dumps(streams[1])) < 4_000

    def fork() -> None:
        raise AssertionError("forked")

    monkeypatch.setattr(os, "fork", fork)
    drawn = _in_background(streams[1])
    for one, batch in zip(expected, drawn, strict=False):
        assert (rows_of(one), one.position) == (rows_of(batch), batch.position)
        assert (one.num_tokens, one.input_ids.shape) == (batch.num_tokens, batch.input_ids.shape)
    worker = multiprocessing.active_children()[0]
    assert worker.pid
    os.kill(worker.pid, signal.SIGTERM)
    os.kill(worker.pid, signal.SIGINT)
    worker.join(timeout=0.2)
    assert worker.is_alive()


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_damaged_shard_is_an_error_at_the_start_and_at_the_resumption(
    data: Path, tmp_path: Path, split: str
) -> None:
    damaged = shutil.copytree(data / "shards", tmp_path / "shards")
    settings = replace(SETTINGS, training=replace(SETTINGS.training, steps=1, warmup_steps=0))
    run_pretraining(settings, damaged, data / "tokenizer", tmp_path / "run")
    shard = next((damaged / split).glob("*.arrow"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    for output in ("run", "new"):
        with pytest.raises(DataError, match=rf"{split}/shard-0.*\.arrow has changed since"):
            run_pretraining(settings, damaged, data / "tokenizer", tmp_path / output)


@pytest.mark.parametrize(("losses", "warned"), [((5.0, 5.5), True), ((5.0, 4.5), False), ((5.0, 5.0), False)])
def test_a_run_that_ends_with_a_higher_loss_warns(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    losses: tuple[float, float],
    warned: bool,
) -> None:
    values = iter(losses)
    monkeypatch.setattr(
        PretrainingObjective, "evaluate", lambda *_: {"masked_loss": next(values), "order_loss": 1.0}
    )
    training = replace(SETTINGS.training, steps=1, warmup_steps=0)
    run(data, tmp_path, replace(SETTINGS, training=training))
    assert ("the held-out masked_loss rose from 5 before training to 5.5" in caplog.text) is warned
