"""A pretraining run: shards in, a model folder out (Lan et al. 2019, sections 3.1 and 4.1)."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError
from albertkit.hub import resolve
from albertkit.modeling.loading import choose_device
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.pretraining.examples import ExampleStream, Position, PretrainingBatch, fixed_batches
from albertkit.pretraining.settings import PretrainingSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.pretraining.words import WordTable
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.loop import RunResult, StepOutput, train

PREDICTIONS_MULTIPLE = 64
IGNORED = -100  # label of a position that is not predicted


class PretrainingObjective:
    """Masked-word and sentence-order losses, the vocabulary projected at the masked positions only."""

    def __init__(self, order_weight: float) -> None:
        self.order_weight = order_weight

    def __call__(self, model: nn.Module, batch: PretrainingBatch) -> StepOutput:
        """Compute both losses of a batch; metrics are sums over masked words and over sequences."""
        device = next(model.parameters()).device
        words = len(batch.masked_labels)
        # Few different P: the CPU's matrix library keeps code and buffers for every shape it has seen.
        padding = (0, -words % PREDICTIONS_MULTIPLE)
        masked_positions = F.pad(torch.from_numpy(batch.masked_positions), padding).to(device)  # (P,)
        masked_labels = F.pad(torch.from_numpy(batch.masked_labels), padding, value=IGNORED).to(device)
        order_labels = torch.from_numpy(batch.sentence_order_labels).to(device)  # (B,)
        outputs = model(
            input_ids=torch.from_numpy(batch.input_ids).to(device),  # (B, T)
            attention_mask=torch.from_numpy(batch.attention_mask).to(device),
            token_type_ids=torch.from_numpy(batch.token_type_ids).to(device),
            masked_positions=masked_positions,
        )
        masked_loss = F.cross_entropy(
            outputs.prediction_logits.float(), masked_labels, ignore_index=IGNORED, reduction="sum"
        )
        order_loss = F.cross_entropy(outputs.sop_logits.float(), order_labels, reduction="sum")
        sequences = len(order_labels)
        sums: dict[str, tuple[Tensor, int]] = {}
        loss = masked_loss / max(words, 1)
        if words:
            right_words = (outputs.prediction_logits.detach().argmax(-1) == masked_labels).sum()
            sums |= {"masked_loss": (masked_loss, words), "masked_accuracy": (right_words, words)}
        if self.order_weight:
            right_orders = (outputs.sop_logits.detach().argmax(-1) == order_labels).sum()
            sums |= {"order_loss": (order_loss, sequences), "order_accuracy": (right_orders, sequences)}
            loss = loss + self.order_weight * order_loss / sequences
        return StepOutput(loss=loss, sums=sums, tokens=batch.num_tokens)


def pretrain(
    settings: PretrainingSettings,
    data: Path,
    tokenizer: str | Path,
    output: Path,
    *,
    device: str = "cpu",
    console: Console | None = None,
) -> RunResult:
    """Pretrain on the shards in `data`, or go on with the run in `output`.

    Args:
        settings: of the model, the examples and the training.
        data: folder that `prepare` wrote, with `train/` and perhaps `validation/`.
        tokenizer: folder or name of the tokenizer the shards were made with; it is saved with every
            checkpoint.
        output: folder of the run.
        device: where to train.
        console: where progress goes.

    Raises:
        DataError: shards missing, damaged or of another tokenizer.
        ConfigError: sequences longer than the model's positions, or an impossible shape.
        TrainingError: a resume with other settings or data, or a loss that is not a number.
    """
    train_shards = ShardSet(data / "train")
    vocabulary = resolve(tokenizer, patterns=("spiece.model",)) / "spiece.model"
    train_shards.check_tokenizer(vocabulary)
    pieces = AlbertTokenizer.from_pretrained(tokenizer)
    words = WordTable(vocabulary)
    config = AlbertConfig(vocab_size=train_shards.manifest.vocabulary_size, **settings.model)
    if settings.examples.max_seq_length > config.max_position_embeddings:
        raise ConfigError(
            f"max_seq_length {settings.examples.max_seq_length} exceeds the model's "
            f"{config.max_position_embeddings} positions (max_position_embeddings)"
        )
    torch.manual_seed(settings.training.seed)
    model = AlbertForPreTraining(config).to(choose_device(device))
    if settings.frequency_bias:
        start_at_frequencies(model, train_shards)
    if settings.sinusoidal_positions:
        start_at_sinusoids(model)
    objective = PretrainingObjective(settings.order_weight if settings.examples.sentence_order else 0.0)

    def batches(position: dict[str, int] | None) -> Iterator[tuple[PretrainingBatch, dict[str, int]]]:
        stream = ExampleStream(
            train_shards,
            words,
            settings.examples,
            settings.batch_size,
            seed=settings.training.seed,
            start=Position(**position) if position else None,
        )
        return ((batch, asdict(batch.position)) for batch in stream)

    def save_model(folder: Path) -> None:
        model.save_pretrained(folder)
        pieces.save_pretrained(folder)

    return train(
        model,
        objective,
        batches,
        settings.training,
        output,
        save_model=save_model,
        evaluate=_held_out_evaluation(settings, data / "validation", words, model, objective),
        fingerprint={
            "model": settings.model,
            "examples": asdict(settings.examples),
            "batch_size": settings.batch_size,
            "order_weight": settings.order_weight,
            "frequency_bias": settings.frequency_bias,
            "sinusoidal_positions": settings.sinusoidal_positions,
            "data": [shard.sha256 for shard in train_shards.manifest.shards],
        },
        console=console,
    )


def start_at_frequencies(model: AlbertForPreTraining, shards: ShardSet) -> None:
    """Set the output bias (V,) to the log frequencies of the pieces in `shards`.

    A bias that starts at 0 would take thousands of steps to get there. Until then the shared layer makes up
    for it with one large vector for all tokens, and repeated over the depth that wipes out what tells the
    tokens apart (docs/lab-notes.md has the figures).
    """
    frequencies = torch.from_numpy(shards.piece_frequencies())
    with torch.no_grad():
        model.predictions.bias.copy_(frequencies.log())


def start_at_sinusoids(model: AlbertForPreTraining) -> None:
    """Set the position embeddings (positions, E) to sinusoids (Vaswani et al. 2017, section 3.5).

    Their root mean square is `initializer_range`, that of the random embeddings they replace. A step to the
    next position is then one linear map for all positions, so attention to neighbours has one thing to learn
    where random embeddings give it one for each position. They are trained on like any other weights.
    """
    weight = model.albert.embeddings.position_embeddings.weight
    positions, size = weight.shape
    frequencies = torch.exp(torch.arange(0, size, 2) * (-math.log(10_000.0) / size))  # (E / 2,)
    angles = torch.arange(positions)[:, None] * frequencies  # (positions, E / 2)
    with torch.no_grad():
        weight.copy_(torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :size])
        weight.mul_(model.config.initializer_range * math.sqrt(2))


def _held_out_evaluation(
    settings: PretrainingSettings,
    folder: Path,
    words: WordTable,
    model: nn.Module,
    objective: PretrainingObjective,
) -> Callable[[], dict[str, float]] | None:
    """Return a function that measures on the shards in `folder`, or None where nothing was held out."""
    if not folder.is_dir():
        return None
    # Not of the run's seed: all runs on these shards are measured on the same masks.
    batches = fixed_batches(
        ShardSet(folder), words, settings.examples, settings.batch_size, limit=settings.evaluation_sequences
    )
    return lambda: evaluate_batches(model, objective, batches)


def evaluate_batches(
    model: nn.Module, objective: PretrainingObjective, batches: list[PretrainingBatch]
) -> dict[str, float]:
    """Return the metrics of `objective` over all batches."""
    totals: dict[str, list[float]] = {}
    for batch in batches:
        for name, (total, count) in objective(model, batch).sums.items():
            entry = totals.setdefault(name, [0.0, 0.0])
            entry[0] += float(total)
            entry[1] += count
    return {name: total / count if count else math.nan for name, (total, count) in totals.items()}
