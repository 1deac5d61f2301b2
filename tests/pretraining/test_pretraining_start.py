"""Tests of the weights at the start of pretraining: their initialization, and continued pretraining."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pretraining_runs import SETTINGS, SIZES, run
from quick_runs import quick_runs  # noqa: F401  # a fixture

from albertkit.checkpoints.sentence_modules import SentenceModules, attach, sentence_modules
from albertkit.config import IGNORED_LABEL, AlbertConfig
from albertkit.errors import ConfigError
from albertkit.modeling.heads import AlbertForPreTraining, AlbertForSequenceClassification
from albertkit.modeling.model import AlbertModel
from albertkit.pretraining.batches import ExampleStream
from albertkit.pretraining.initialization import (
    continued_model,
    initialize,
    start_at_frequencies,
    start_at_sinusoids,
    start_at_unit_mapping,
)
from albertkit.pretraining.loss import PretrainingObjective
from albertkit.pretraining.masking import WordTable
from albertkit.pretraining.settings import PretrainingSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.tokenization.vocabulary import train_vocabulary
from albertkit.training.progress import read_metrics


def test_frequency_bias_starts_at_the_unigram_model(data: Path) -> None:
    shards = ShardSet(data / "shards/train")
    counts = np.ones(500)
    for index in range(len(shards)):
        np.add.at(counts, shards.tokens(index)[0], 1)
    assert shards.piece_frequencies() == pytest.approx(counts / counts.sum())
    model = AlbertForPreTraining(AlbertConfig(vocab_size=500, **SIZES))
    start_at_frequencies(model, shards)
    assert model.predictions.decoder.bias.exp().sum().item() == pytest.approx(1.0)
    words = WordTable(data / "tokenizer/spiece.model")
    batch = next(iter(ExampleStream(shards, words, SETTINGS.examples, 64)))
    with torch.no_grad():
        started = PretrainingObjective(SETTINGS).evaluate(model.eval(), [batch])["masked_loss"]
    masked = batch.masked_labels
    unigram = -np.log(shards.piece_frequencies()[masked[masked != IGNORED_LABEL]]).mean()
    assert started == pytest.approx(unigram, abs=0.1)
    assert unigram < np.log(500) - 0.3


def test_a_new_model_has_the_positions_that_the_run_trains(data: Path) -> None:
    shards, examples = ShardSet(data / "shards/train"), replace(SETTINGS.examples, max_seq_length=48)
    shape = {name: value for name, value in SIZES.items() if name != "max_position_embeddings"}
    settings = replace(SETTINGS, examples=examples, model=shape)
    assert initialize(settings, shards).config.max_position_embeddings == 48
    assert settings.warnings() == []
    more = replace(settings, model=SIZES)
    assert initialize(more, shards).config.max_position_embeddings == 64
    (warning,) = more.warnings()
    assert warning.startswith("max_position_embeddings is 64, but max_seq_length is 48")
    assert replace(more, frequency_bias=False, init_from="bundled").warnings() == []


def test_sinusoidal_positions() -> None:
    torch.manual_seed(0)
    model = AlbertForPreTraining(AlbertConfig(vocab_size=500, initializer_range=0.05, **SIZES))
    start_at_sinusoids(model)
    weight = model.albert.embeddings.position_embeddings.weight.detach().double()
    assert weight.shape == (64, 16)
    assert weight.square().mean().sqrt().item() == pytest.approx(0.05)
    assert weight[3, 0].item() == pytest.approx(0.05 * np.sqrt(2) * np.sin(3))
    assert weight[3, 5].item() == pytest.approx(0.05 * np.sqrt(2) * np.cos(3 / 10_000 ** (4 / 16)), abs=1e-6)
    # One linear map turns every position into the next.
    shift = torch.linalg.lstsq(weight[:-1], weight[1:]).solution
    assert torch.allclose(weight[:-1] @ shift, weight[1:], atol=1e-4)


def test_unit_mapping_gives_hidden_states_a_variance_of_one() -> None:
    torch.manual_seed(0)
    shape = SIZES | {"embedding_size": 64, "hidden_size": 256}
    model = AlbertForPreTraining(AlbertConfig(vocab_size=500, **shape))
    ids = torch.randint(0, 500, (4, 32))
    before = model(input_ids=ids, output_hidden_states=True).hidden_states[0].var().item()
    start_at_unit_mapping(model)
    after = model(input_ids=ids, output_hidden_states=True).hidden_states[0].var().item()
    assert before < 64 * 0.02**2 < 0.03
    assert after == pytest.approx(1.0, rel=0.15)


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


def test_more_layer_groups_start_with_the_same_outputs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = AlbertConfig(
        vocab_size=50, **SIZES | {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2}
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
    weights = [group.albert_layers[0].ffn.weight for group in deeper.albert.encoder.albert_layer_groups]
    assert all(torch.equal(one, weights[0]) for one in weights[:4])
    assert not torch.equal(weights[3], weights[4])
    with pytest.raises(
        ConfigError, match=r"\[model\] has max_position_embeddings, but the weights of .* other"
    ):
        continued_model(str(tmp_path), {"max_position_embeddings": 4096})
    with pytest.raises(ConfigError, match=r"num_hidden_groups is 3\. Expected a multiple of the 2"):
        continued_model(str(tmp_path), {"num_hidden_layers": 6, "num_hidden_groups": 3})


@pytest.mark.parametrize("labels", [1, 3])
def test_continued_pretraining_of_a_classifier_has_two_orders(tmp_path: Path, labels: int) -> None:
    AlbertForSequenceClassification(AlbertConfig(vocab_size=50, num_labels=labels, **SIZES)).save_pretrained(
        tmp_path
    )
    with pytest.warns(UserWarning, match=r"newly initialized.* sop_classifier\.classifier\.weight"):
        model = continued_model(str(tmp_path), {})
    assert model.sop_classifier.classifier.weight.shape == (2, 32)
    assert model.config.num_labels == 2


@pytest.mark.filterwarnings("ignore:AlbertForPreTraining from")
@pytest.mark.parametrize("overrides", [{}, {"num_hidden_groups": 2}])
@pytest.mark.parametrize("task", ["text-classification", "a task of the user"])
def test_continued_pretraining_forgets_the_task(tmp_path: Path, task: str, overrides: dict) -> None:
    """Otherwise pipelines would truncate texts to the maximum length of the fine-tuning."""
    config = AlbertConfig(
        vocab_size=50, **SIZES, id2label={0: "bad", 1: "good"}, problem_type="multi_label_classification"
    )
    config.extra |= {"finetuning_task": task, "task_settings": {"max_length": 16}, "text_pairs": True}
    config.extra |= {"sentence_pooling": "mean", "sentence_normalize": True}  # of an earlier fine-tuning
    AlbertForSequenceClassification(config).save_pretrained(tmp_path)
    found = continued_model(str(tmp_path), overrides).config
    assert (found.id2label, found.problem_type) == ({0: "LABEL_0", 1: "LABEL_1"}, None)
    assert found.extra == {"text_pairs": True}
    assert sentence_modules(found) is None


@pytest.mark.filterwarnings("ignore:AlbertForPreTraining from")
@pytest.mark.parametrize("overrides", [{}, {"num_hidden_groups": 2}])
def test_continued_pretraining_keeps_the_modules_of_sentence_embedding(
    tmp_path: Path, overrides: dict
) -> None:
    config = AlbertConfig(vocab_size=50, **SIZES)
    attach(config, SentenceModules(pooling="max", normalize=True, max_length=16, prompts={"query": "q: "}))
    AlbertModel(config).save_pretrained(tmp_path)
    found = sentence_modules(continued_model(str(tmp_path), overrides).config)
    assert found is not None
    assert (found.pooling, found.normalize, found.max_length) == ("max", True, 16)
    assert found.prompts == {"query": "q: "}


def test_continued_pretraining_needs_the_vocabulary_of_the_model(data: Path, tmp_path: Path) -> None:
    AlbertForPreTraining(AlbertConfig(vocab_size=400, **SIZES)).save_pretrained(tmp_path / "other")
    settings = replace(SETTINGS, init_from=str(tmp_path / "other"), model={}, frequency_bias=False)
    with pytest.raises(ConfigError, match="has 400 pieces, but the tokenizer of the shards has 500"):
        run(data, tmp_path / "run", settings)


def test_continued_pretraining_needs_the_pieces_of_the_model(
    data: Path, tmp_path: Path, tiny_texts: list[str]
) -> None:
    """Another vocabulary of the same size would give each piece the weights of another one."""
    other = tmp_path / "other"
    train_vocabulary([text[::-1] for text in tiny_texts], other, vocab_size=500, num_threads=1)
    AlbertForPreTraining(AlbertConfig(vocab_size=500, **SIZES)).save_pretrained(other)
    settings = replace(SETTINGS, init_from=str(other), model={}, frequency_bias=False)
    expected = r"piece \d+ of .*other is '.+', but in the shards it is '.+'\. Prepare"
    with pytest.raises(ConfigError, match=expected):
        run(data, tmp_path / "run", settings)
