"""A pretraining run on real shards: its losses, its start, its resume."""

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pretraining_rows import rows_of
from quick_runs import quick_runs  # noqa: F401  # a fixture
from safetensors.torch import load_file

from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError, DataError, TrainingError
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.modeling.task_heads import AlbertForSequenceClassification
from albertkit.pretraining.batches import ExampleStream, fixed_batches
from albertkit.pretraining.initialization import (
    continued_model,
    start_at_frequencies,
    start_at_matching,
    start_at_sinusoids,
    start_at_unit_mapping,
)
from albertkit.pretraining.loss import PretrainingObjective
from albertkit.pretraining.prepare import prepare
from albertkit.pretraining.rows import Labels
from albertkit.pretraining.run import _in_background, run_pretraining
from albertkit.pretraining.settings import ExampleSettings, PretrainingSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.pretraining.words import WordTable
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.curves import read_metrics
from albertkit.training.objective import StepOutput
from albertkit.training.settings import TrainingSettings

SHAPE = {
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
SETTINGS = PretrainingSettings(
    batch_size=8,
    evaluation_sequences=32,
    frequency_bias=True,
    model=SHAPE | {"hidden_dropout_prob": 0.1},
    examples=ExampleSettings(max_seq_length=64),
    training=TrainingSettings(
        steps=9, warmup_steps=2, save_every=3, evaluate_every=9, log_every=1, seed=3, precision="fp32"
    ),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str], tiny_vocabulary: Path) -> Path:
    """Shards in `shards/`, their tokenizer in `tokenizer/`."""
    folder = tmp_path_factory.mktemp("run")
    AlbertTokenizer(tiny_vocabulary).save_pretrained(folder / "tokenizer")
    file = folder / "corpus.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in tiny_texts), encoding="utf-8")
    prepare([file], folder / "tokenizer", folder / "shards", workers=1, holdout_every=10)
    return folder


def run(data: Path, output: Path, settings: PretrainingSettings = SETTINGS):
    return run_pretraining(settings, data / "shards", data / "tokenizer", output)


def test_the_model_is_the_mean_of_the_last_checkpoints(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = tmp_path / "run"
    training = replace(SETTINGS.training, optimizer="adamw", learning_rate=1e-2)
    alone = replace(SETTINGS, training=training)
    settings = replace(alone, average_checkpoints=2)
    with caplog.at_level("INFO"):
        result = run(data, output, settings)
    kept = [load_file(output / "checkpoints" / f"step-{step:07}" / "model.safetensors") for step in (6, 9)]
    mean = load_file(output / "model.safetensors")
    assert mean.keys() == kept[0].keys()
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (kept[0][name] + kept[1][name]) / 2)
    # What is reported was measured with the mean, and a run that goes on does so from its checkpoints.
    batches = fixed_batches(
        ShardSet(data / "shards/validation"),
        WordTable(data / "tokenizer/spiece.model"),
        SETTINGS.examples,
        8,
        limit=32,
    )
    model = AlbertForPreTraining.from_pretrained(output).eval()
    with torch.no_grad():
        expected = PretrainingObjective(SETTINGS).evaluate(model, batches)
    assert result.metrics == pytest.approx(expected, rel=1e-5)
    last = read_metrics(output)[-1]["eval/masked_loss"]
    assert abs(result.metrics["masked_loss"] - last) > 1e-3
    assert f"checkpoints at steps 6, 9  masked_loss {expected['masked_loss']:.4g}  " in caplog.text
    again = run(data, output, settings)
    assert again.metrics == pytest.approx(expected, rel=1e-5)
    one = run(data, output, alone)  # from the same checkpoints, without a mean
    assert one.metrics["masked_loss"] == pytest.approx(last, rel=1e-6)


def test_the_mean_leaves_out_the_untrained_model(data: Path, tmp_path: Path) -> None:
    training = replace(SETTINGS.training, steps=4, optimizer="adamw", learning_rate=1e-2)
    run(data, tmp_path, replace(SETTINGS, average_checkpoints=3, training=training))
    kept = [load_file(tmp_path / "checkpoints" / f"step-{step:07}" / "model.safetensors") for step in (3, 4)]
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        torch.testing.assert_close(tensor, (kept[0][name] + kept[1][name]) / 2)


def test_a_mean_of_checkpoints_that_are_not_kept_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"average_checkpoints is 4.* keep_checkpoints is 3"):
        replace(SETTINGS, average_checkpoints=4)
    training = replace(SETTINGS.training, early_stopping=1)
    with pytest.raises(ConfigError, match=r"average_checkpoints is 2.* early_stopping keeps the best"):
        replace(SETTINGS, average_checkpoints=2, training=training)
    with pytest.raises(ConfigError, match="average_checkpoints must be 1 or more, not 0"):
        replace(SETTINGS, average_checkpoints=0)


def test_losses_are_those_of_the_model_with_all_positions_projected(data: Path) -> None:
    torch.manual_seed(0)
    model = AlbertForPreTraining(AlbertConfig(vocab_size=500, **SHAPE)).eval()
    words = WordTable(data / "tokenizer/spiece.model")
    stream = ExampleStream(ShardSet(data / "shards/train"), words, SETTINGS.examples, 8)
    batch = next(stream)
    objective = PretrainingObjective(replace(SETTINGS, order_weight=0.5))
    counts = objective.counts(batch)
    result = objective(model, batch, counts)
    labels = np.full(batch.input_ids.shape, -100)
    labels.reshape(-1)[batch.labels["masked"].positions] = batch.labels["masked"].values
    whole = model(
        input_ids=torch.from_numpy(batch.input_ids),
        attention_mask=torch.from_numpy(batch.attention_mask),
        token_type_ids=torch.from_numpy(batch.token_type_ids),
        labels=torch.from_numpy(labels),
    )
    orders = torch.from_numpy(batch.labels["order"].values)
    order_loss = torch.nn.functional.cross_entropy(whole.sop_logits, orders)
    assert result.loss.item() == pytest.approx(whole.loss.item() + 0.5 * order_loss.item(), abs=1e-5)
    masked_loss, masked = result.sums["masked_loss"]
    assert masked_loss.item() / masked == pytest.approx(whole.loss.item(), abs=1e-5)
    right = (whole.prediction_logits.argmax(-1).numpy() == labels).sum()
    assert result.sums["masked_accuracy"] == (torch.tensor(right), len(batch.labels["masked"].values))
    assert counts["tokens"] == int(batch.attention_mask.sum())


def test_without_sentence_order_there_is_no_order_loss(data: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, examples=replace(SETTINGS.examples, sentence_order=False))
    metrics = run(data, tmp_path, replace(settings, training=replace(SETTINGS.training, steps=2))).metrics
    assert metrics.keys() == {"masked_loss", "masked_accuracy", "output_spread"}


def test_frequency_bias_starts_at_the_unigram_model(data: Path) -> None:
    shards = ShardSet(data / "shards/train")
    counts = np.ones(500)
    for index in range(len(shards)):
        np.add.at(counts, shards.tokens(index)[0], 1)
    assert shards.piece_frequencies() == pytest.approx(counts / counts.sum())
    model = AlbertForPreTraining(AlbertConfig(vocab_size=500, **SHAPE))
    start_at_frequencies(model, shards)
    assert model.predictions.decoder.bias.exp().sum().item() == pytest.approx(1.0)
    words = WordTable(data / "tokenizer/spiece.model")
    batch = next(ExampleStream(shards, words, SETTINGS.examples, 64))
    with torch.no_grad():
        started = PretrainingObjective(SETTINGS).evaluate(model.eval(), [batch])["masked_loss"]
    unigram = -np.log(shards.piece_frequencies()[batch.labels["masked"].values]).mean()
    assert started == pytest.approx(unigram, abs=0.1)
    assert unigram < np.log(500) - 0.3


def test_interrupted_run_is_bitwise_the_uninterrupted_one(data: Path, tmp_path: Path) -> None:
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


def test_a_checkpoint_from_before_some_settings_resumes_with_their_defaults(
    data: Path, tmp_path: Path
) -> None:
    stopped = replace(SETTINGS, training=replace(SETTINGS.training, max_minutes=1e-9))
    assert not run(data, tmp_path, stopped).finished
    file = next(tmp_path.glob("checkpoints/*/training_state.json"))
    state = json.loads(file.read_text())
    for name in ("excerpt_probability", "masked_lm"):
        del state["fingerprint"]["examples"][name]
    for name in ("unit_mapping", "spike"):
        del state["fingerprint"][name]
    file.write_text(json.dumps(state))
    changed = replace(SETTINGS, unit_mapping=True)
    with pytest.raises(TrainingError, match="unit_mapping: saved False, now True"):
        run(data, tmp_path, changed)
    assert run(data, tmp_path).finished


def test_a_run_ends_early_with_the_model_of_the_lowest_held_out_loss(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([5.0, 4.0, 3.0, 3.5, 3.6])
    monkeypatch.setattr(
        PretrainingObjective, "evaluate", lambda *_: {"masked_loss": next(losses), "order_loss": 1.0}
    )
    training = replace(SETTINGS.training, steps=20, evaluate_every=2, save_every=2, keep_checkpoints=9)
    settings = replace(SETTINGS, training=replace(training, early_stopping=2))
    result = run(data, tmp_path, settings)
    assert (result.finished, result.state.step, result.state.best_step) == (True, 8, 4)
    assert result.metrics == {"masked_loss": 3.0, "order_loss": 1.0}
    assert run(data, tmp_path, settings).metrics == result.metrics  # nothing is left to do
    state = tmp_path / "checkpoints/step-0000008/training_state.json"
    document = json.loads(state.read_text())
    older = {name: value for name, value in document.items() if name not in ("metrics", "best_metrics")}
    for content, metrics in ((older, result.metrics), (document, result.metrics), (older, {})):
        state.write_text(json.dumps(content))
        assert run(data, tmp_path, settings).metrics == metrics
        (tmp_path / "metrics.jsonl").unlink(missing_ok=True)
    final, best = (
        load_file(tmp_path / name / "model.safetensors") for name in ("", "checkpoints/step-0000004")
    )
    assert all(torch.equal(final[name], best[name]) for name in best)


def test_the_metrics_are_those_of_the_best_model_also_if_a_rollback_repeats_its_step(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([5.0, 4.0, 3.5, 3.0, 3.6, 3.7])
    monkeypatch.setattr(PretrainingObjective, "evaluate", lambda *_: {"masked_loss": next(losses)})
    calls, call = iter(range(1, 99)), PretrainingObjective.__call__

    def bad_at_step_7(*arguments: Any) -> StepOutput:
        output = call(*arguments)
        return replace(output, loss=output.loss * np.nan) if next(calls) == 7 else output

    monkeypatch.setattr(PretrainingObjective, "__call__", bad_at_step_7)
    training = replace(SETTINGS.training, evaluate_every=2, save_every=4, early_stopping=2)
    result = run(data, tmp_path, replace(SETTINGS, training=training))
    assert (result.finished, result.state.step, result.state.best_step) == (True, 8, 6)
    assert result.metrics == {"masked_loss": 3.0}


@pytest.mark.parametrize(
    ("losses", "best_step", "expected"), [([3.0, 4.0, 5.0], 0, 3.0), ([np.nan] * 3, 0, np.nan)]
)
def test_the_metrics_of_a_run_without_improvement(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    losses: list[float],
    best_step: int,
    expected: float,
) -> None:
    """Without any value, the last model is kept."""
    values = iter(losses)
    monkeypatch.setattr(
        PretrainingObjective, "evaluate", lambda *_: {"masked_loss": next(values), "order_loss": next(steps)}
    )
    steps = iter([0.0, 2.0, 4.0])
    training = replace(SETTINGS.training, steps=4, evaluate_every=2, early_stopping=3)
    result = run(data, tmp_path, replace(SETTINGS, training=training))
    assert result.state.best_step == best_step
    assert result.metrics == {
        "masked_loss": pytest.approx(expected, nan_ok=True),
        "order_loss": 4.0 if np.isnan(expected) else 0.0,
    }


def test_an_early_end_needs_held_out_text(data: Path, tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards/train").symlink_to(data / "shards/train")
    settings = replace(SETTINGS, training=replace(SETTINGS.training, early_stopping=2))
    with pytest.raises(ConfigError, match="early_stopping is 2, but the run keeps no best model"):
        run_pretraining(settings, tmp_path / "shards", data / "tokenizer", tmp_path / "run")


def test_learning_lowers_the_held_out_loss(data: Path, tmp_path: Path) -> None:
    training = replace(SETTINGS.training, steps=40, optimizer="adamw", learning_rate=3e-3)
    result = run(data, tmp_path, replace(SETTINGS, frequency_bias=False, training=training))
    assert result.metrics["masked_loss"] < np.log(500) - 1


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        (
            {"model": SHAPE | {"max_position_embeddings": 32}},
            ConfigError,
            "max_seq_length 64 exceeds the model's 32",
        ),
        ({"model": SHAPE | {"hidden_sise": 32}}, ConfigError, "hidden_size"),
        ({"batch_size": 4}, TrainingError, "batch_size: saved 8, now 4"),
        (
            {"examples": replace(SETTINGS.examples, masked_lm=False), "order_weight": 0.0},
            ConfigError,
            r"the weight of every objective \(order\) is 0",
        ),
        ({"model": SHAPE}, TrainingError, "model.hidden_dropout_prob: saved 0.1, now nothing"),
    ],
)
def test_refusals(data: Path, tmp_path: Path, changed: dict, error: type[Exception], message: str) -> None:
    piece = replace(SETTINGS, training=replace(SETTINGS.training, max_minutes=1e-9))
    run(data, tmp_path, piece)
    with pytest.raises(error, match=message):
        run(data, tmp_path, replace(piece, **changed))


def test_other_shards_are_refused(data: Path, tmp_path: Path) -> None:
    piece = replace(SETTINGS, training=replace(SETTINGS.training, max_minutes=1e-9))
    run(data, tmp_path / "run", piece)
    prepare([data / "corpus.jsonl"], data / "tokenizer", tmp_path / "other", workers=1, holdout_every=9)
    with pytest.raises(TrainingError, match="data: saved"):
        run_pretraining(piece, tmp_path / "other", data / "tokenizer", tmp_path / "run")
    with pytest.raises(DataError, match="not a finished shard folder"):
        run_pretraining(piece, tmp_path / "nothing", data / "tokenizer", tmp_path / "run")


def test_sinusoidal_start_makes_neighbours_alike() -> None:
    torch.manual_seed(0)
    model = AlbertForPreTraining(AlbertConfig(vocab_size=500, initializer_range=0.05, **SHAPE))
    start_at_sinusoids(model)
    weight = model.albert.embeddings.position_embeddings.weight.detach().double()
    assert weight.shape == (64, 16)
    assert weight.square().mean().sqrt().item() == pytest.approx(0.05)
    assert weight[3, 0].item() == pytest.approx(0.05 * np.sqrt(2) * np.sin(3))
    assert weight[3, 5].item() == pytest.approx(0.05 * np.sqrt(2) * np.cos(3 / 10_000 ** (4 / 16)), abs=1e-6)
    # One linear map takes every position to the next.
    shift = torch.linalg.lstsq(weight[:-1], weight[1:]).solution
    assert torch.allclose(weight[:-1] @ shift, weight[1:], atol=1e-4)


def test_unit_mapping_lets_hidden_states_enter_with_variance_one() -> None:
    torch.manual_seed(0)
    shape = SHAPE | {"embedding_size": 64, "hidden_size": 256}
    model = AlbertForPreTraining(AlbertConfig(vocab_size=500, **shape))
    ids = torch.randint(0, 500, (4, 32))
    before = model(input_ids=ids, output_hidden_states=True).hidden_states[0].var().item()
    start_at_unit_mapping(model)
    after = model(input_ids=ids, output_hidden_states=True).hidden_states[0].var().item()
    assert before < 64 * 0.02**2 < 0.03
    assert after == pytest.approx(1.0, rel=0.15)


def test_a_matching_head_looks_for_the_same_piece() -> None:
    torch.manual_seed(0)
    shape = SHAPE | {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4}
    model = AlbertForPreTraining(AlbertConfig(vocab_size=500, **shape)).eval()
    for start in (start_at_sinusoids, start_at_unit_mapping, start_at_matching):
        start(model)
    ids = torch.stack([torch.randperm(500)[:40] for _ in range(8)])
    ids[:, 30:] = ids[:, :10]  # the second segment repeats ten pieces of the first
    types = (torch.arange(40) >= 25).long().expand(8, -1)
    outputs = model(input_ids=ids, token_type_ids=types, output_attentions=True, output_hidden_states=True)
    attention = outputs.attentions[0].detach()  # (B, N, T, T)
    found = attention[:, :, torch.arange(30, 40), torch.arange(10)].mean((0, 2))  # (N,)
    head = int(found.argmax())
    assert found[head] > 0.2
    assert found.sum() - found[head] < 0.1  # the others look anywhere
    own = attention[:, head, torch.arange(10, 30), torch.arange(10, 30)]
    assert own.mean() > 0.5  # what has no match keeps to itself
    # A line through the states that leave the layer tells what was found in the other segment.
    weight = model.albert.encoder.executed_layers()[0].attention.dense.weight.detach()
    size = 256 // 4
    along = weight[:, head * size]
    states = outputs.hidden_states[1].detach() @ along / along.norm()
    assert states[:, 25:30].mean() > states[:, 30:].mean() + states[:, 25:].std()


def test_one_batch_is_learnt_or_the_check_fails(data: Path, tmp_path: Path) -> None:
    training = replace(SETTINGS.training, steps=100, optimizer="adamw", learning_rate=4e-3, log_every=10)
    settings = replace(SETTINGS, overfit_one_batch=True, unit_mapping=True, training=training)
    settings = replace(settings, model=SHAPE | {"initializer_range": 0.1})
    result = run(data, tmp_path / "learnt", settings)
    assert result.state.tokens % result.state.step == 0  # the same batch, every time
    first, *_, last = [line for line in read_metrics(tmp_path / "learnt") if "train/masked_loss" in line]
    assert last["train/masked_loss"] < 0.1 * first["train/masked_loss"]
    slow = replace(settings, training=replace(training, steps=5, learning_rate=1e-5, log_every=1))
    with pytest.raises(
        TrainingError, match=r"the run did not learn the batch \(train/masked_loss 4\.\d+ -> 4\.\d+"
    ):
        run(data, tmp_path / "slow", slow)


def test_a_resumed_run_on_one_batch_has_the_same_batch(data: Path, tmp_path: Path) -> None:
    training = replace(SETTINGS.training, steps=3, save_every=1)
    settings = replace(SETTINGS, overfit_one_batch=True, training=training)
    stopped = replace(settings, training=replace(training, max_minutes=1e-9))
    counts = [run(data, tmp_path, stopped).state.tokens for _ in range(2)]
    assert counts[1] == 2 * counts[0]
    with pytest.raises(TrainingError, match="did not learn the batch"):
        run(data, tmp_path, settings)
    assert read_metrics(tmp_path)[-1]["tokens"] == 3 * counts[0]


def test_continued_pretraining_starts_from_the_weights(data: Path, tmp_path: Path) -> None:
    training = replace(SETTINGS.training, steps=30, optimizer="adamw", learning_rate=3e-3)
    first = run(data, tmp_path / "first", replace(SETTINGS, training=training))
    more = PretrainingSettings(
        batch_tokens=1024,
        evaluation_sequences=32,
        init_from=str(tmp_path / "first"),
        model={"num_hidden_layers": 3},
        examples=SETTINGS.examples,
        training=replace(training, steps=5, learning_rate=1e-4, warmup_steps=2),
    )
    same_depth = replace(more, model={})
    second = run(data, tmp_path / "second", same_depth)
    before = next(line for line in read_metrics(tmp_path / "second") if "eval/masked_loss" in line)
    assert before["step"] == 0
    assert before["eval/masked_loss"] == pytest.approx(first.metrics["masked_loss"], abs=1e-4)
    assert second.metrics["masked_loss"] < before["eval/masked_loss"] + 0.05
    assert AlbertForPreTraining.from_pretrained(tmp_path / "second").config.hidden_dropout_prob == 0.1
    run(data, tmp_path / "deeper", more)  # the same layer, applied once more
    assert AlbertForPreTraining.from_pretrained(tmp_path / "deeper").config.num_hidden_layers == 3


def test_layers_that_shared_their_weights_part_from_the_same_function(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = AlbertConfig(
        vocab_size=50, **SHAPE | {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2}
    )
    model = AlbertForPreTraining(config).eval()
    model.save_pretrained(tmp_path)
    grown = continued_model(str(tmp_path), {"num_hidden_groups": 4}).eval()
    assert grown.config.num_hidden_groups == 4
    assert len(grown.albert.encoder.albert_layer_groups) == 4
    ids = torch.randint(5, 50, (2, 9))
    with torch.no_grad():
        ours, theirs = grown(ids), model(ids)
    torch.testing.assert_close(ours.prediction_logits, theirs.prediction_logits, rtol=0, atol=1e-6)
    torch.testing.assert_close(ours.sop_logits, theirs.sop_logits, rtol=0, atol=1e-6)
    deeper = continued_model(str(tmp_path), {"num_hidden_layers": 8, "num_hidden_groups": 8})
    weights = [layer.ffn.weight for layer in deeper.albert.encoder.executed_layers()[::2]]
    assert all(torch.equal(one, weights[0]) for one in weights[:4])
    assert not torch.equal(weights[3], weights[4])
    with pytest.raises(
        ConfigError, match="has 2 groups of layers with different weights, but num_hidden_groups is 1"
    ):
        continued_model(str(tmp_path), {"num_hidden_groups": 1})
    with pytest.raises(ConfigError, match=r"but num_hidden_groups is 3\. Expected a multiple of 2"):
        continued_model(str(tmp_path), {"num_hidden_layers": 6, "num_hidden_groups": 3})
    with pytest.raises(ConfigError, match="num_hidden_groups must be a whole number"):
        continued_model(str(tmp_path), {"num_hidden_groups": "4"})


@pytest.mark.parametrize("labels", [1, 3])
def test_continued_pretraining_of_a_classifier_has_two_orders(tmp_path: Path, labels: int) -> None:
    AlbertForSequenceClassification(AlbertConfig(vocab_size=50, num_labels=labels, **SHAPE)).save_pretrained(
        tmp_path
    )
    with pytest.warns(UserWarning, match=r"newly initialized.* sop_classifier\.classifier\.weight"):
        model = continued_model(str(tmp_path), {})
    assert model.sop_classifier.classifier.weight.shape == (2, 32)
    assert model.config.num_labels == 2


def test_continued_pretraining_needs_the_models_vocabulary(data: Path, tmp_path: Path) -> None:
    AlbertForPreTraining(AlbertConfig(vocab_size=400, **SHAPE)).save_pretrained(tmp_path / "other")
    settings = replace(SETTINGS, init_from=str(tmp_path / "other"), model={}, frequency_bias=False)
    with pytest.raises(ConfigError, match="has 400 pieces, but the tokenizer of the shards has 500"):
        run(data, tmp_path / "run", settings)


@pytest.mark.parametrize(
    ("optimizer", "batch", "expected"),
    [
        ("lamb", {"batch_size": 4096}, 1.76e-3),
        ("lamb", {"batch_size": 1024}, 0.88e-3),
        ("lamb", {"batch_tokens": 4096 * 128}, 0.88e-3),
        ("adamw", {"batch_size": 256}, 1e-4),
        ("adamw-corrected", {"batch_size": 1024}, 2e-4),
    ],
)
def test_the_published_rate_is_scaled_by_the_root_of_the_batch(
    optimizer: str, batch: dict, expected: float
) -> None:
    settings = PretrainingSettings(
        **batch,
        model=SHAPE,
        examples=ExampleSettings(max_seq_length=512),
        training=TrainingSettings(steps=1, optimizer=optimizer),  # type: ignore[arg-type]
    )
    assert settings.with_learning_rate().training.learning_rate == pytest.approx(expected)
    given = replace(settings, training=replace(settings.training, learning_rate=5e-4))
    assert given.with_learning_rate() is given


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"optimizer": "lamb", "learning_rate": 1e-2}, "too high for LAMB"),
        ({"optimizer": "adamw", "learning_rate": 1e-3}, "high for AdamW with initializer_range 0.02"),
        ({"optimizer": "adamw", "learning_rate": 4e-4}, None),
        ({"optimizer": "adamw", "learning_rate": 4e-4, "warmup_steps": 0}, "there is no warm-up"),
    ],
)
def test_known_bad_pairs_are_warned_of(changes: dict, warning: str | None) -> None:
    settings = replace(SETTINGS, training=replace(SETTINGS.training, **changes))
    found = settings.warnings()
    assert len(found) == (warning is not None)
    assert warning is None or warning in found[0]


@pytest.mark.parametrize(
    ("changes", "is_warned"),
    [
        ({"masked_lm_probability": 0.3}, True),
        ({"masked_lm_probability": 0.3, "max_predictions": 39}, False),
        ({"masked_lm_probability": 0.3, "max_predictions": 20}, False),
        ({"masked_lm_probability": 0.15}, False),
        ({"masked_lm_probability": 0.3, "masked_lm": False}, False),
    ],
)
def test_a_share_of_masked_tokens_above_their_maximum_is_warned_of(changes: dict, is_warned: bool) -> None:
    settings = replace(SETTINGS, examples=ExampleSettings(max_seq_length=128, **changes))
    warning = "masked_lm_probability is 0.3, but max_predictions limits it to 20 of 128 tokens"
    assert [one.startswith(warning) for one in settings.warnings()] == [True] * is_warned


def test_the_output_spread_is_that_of_the_masked_positions(data: Path) -> None:
    """Not of the padding, which makes their number a multiple of 64."""
    shards, words = ShardSet(data / "shards" / "validation"), WordTable(data / "tokenizer" / "spiece.model")
    batches = fixed_batches(shards, words, SETTINGS.examples, 8, limit=8)
    torch.manual_seed(0)
    model = AlbertForPreTraining(AlbertConfig(vocab_size=words.size, **SHAPE, initializer_range=0.5)).eval()
    objective = PretrainingObjective(SETTINGS)
    with torch.no_grad():
        found = objective.evaluate(model, batches)["output_spread"]
        batch = batches[0]
        inputs = [batch.input_ids, batch.attention_mask, batch.token_type_ids]
        logits = model(*map(torch.from_numpy, inputs)).prediction_logits.flatten(0, 1)
    assert len(batch.labels["masked"].positions) % 64
    scores = logits[torch.from_numpy(batch.labels["masked"].positions)].double()
    assert found == pytest.approx(float(scores.std(dim=0).mean() / scores.mean(dim=0).std()), rel=1e-4)
    # One masked position has no spread, and none has no scores: nothing is said of either.
    masked = batch.labels["masked"]
    few = Labels(masked.positions[:1], masked.values[:1])
    nothing = replace(batch, labels=batch.labels | {"masked": few})
    with torch.no_grad():
        assert "output_spread" not in objective.evaluate(model, [nothing])


def test_examples_are_drawn_in_a_process_that_is_not_forked(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork beside the threads of torch and TensorBoard can hang."""
    shards, words = ShardSet(data / "shards" / "train"), WordTable(data / "tokenizer" / "spiece.model")
    streams = [ExampleStream(shards, words, SETTINGS.examples, 8, seed=3) for _ in range(2)]
    expected = [next(streams[0]) for _ in range(3)]
    assert any(chunk is not None for chunk in shards._chunks)
    assert len(pickle.dumps(shards)) < 10_000  # without the shards that are mapped

    def fork() -> None:
        raise AssertionError("forked")

    monkeypatch.setattr(os, "fork", fork)
    drawn = _in_background(streams[1])
    for one, batch in zip(expected, drawn, strict=False):
        assert (rows_of(one), one.position) == (rows_of(batch), batch.position)
        assert (one.num_tokens, one.input_ids.shape) == (batch.num_tokens, batch.input_ids.shape)
