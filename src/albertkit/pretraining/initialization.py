"""The initial model of a run: random weights with better initial values, or those of another model.

A new model has as many positions as the run trains, unless the recipe sets `max_position_embeddings`.
"""

import math
import re
from contextlib import suppress
from typing import Any

import torch

from albertkit.checkpoints.sentence_modules import NORMALIZE_KEY, POOLING_KEY, sentence_modules
from albertkit.config import SETTINGS_KEY, TASK_KEY, AlbertConfig
from albertkit.errors import ConfigError, ModelNotFoundError, ShapeMismatchError, TokenizerError
from albertkit.modeling.heads import AlbertForPreTraining
from albertkit.pretraining.masking import WordTable
from albertkit.pretraining.settings import PretrainingSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.tokenization.folder import locate_model_file


def initialize(settings: PretrainingSettings, shards: ShardSet) -> AlbertForPreTraining:
    """Return the initial model of a run on `shards`."""
    torch.manual_seed(settings.training.seed)
    if settings.init_from is not None:
        model = continued_model(settings.init_from, settings.model)
    else:
        positions = settings.examples.max_seq_length
        shape: dict[str, Any] = {"max_position_embeddings": positions} | settings.model
        config = AlbertConfig(vocab_size=shards.manifest.vocabulary_size, **shape)
        model = AlbertForPreTraining(config)
        if settings.frequency_bias:
            start_at_frequencies(model, shards)
        if settings.sinusoidal_positions:
            start_at_sinusoids(model)
        if settings.unit_mapping:
            start_at_unit_mapping(model)
    config = model.config
    if config.vocab_size != shards.manifest.vocabulary_size:
        raise ConfigError(
            f"{settings.init_from} has {config.vocab_size} pieces, but the tokenizer of the shards has "
            f"{shards.manifest.vocabulary_size}. Prepare the text with the model's own tokenizer."
        )
    if settings.examples.max_seq_length > config.max_position_embeddings:
        positions = config.max_position_embeddings
        length = settings.examples.max_seq_length
        raise ConfigError(f"max_seq_length is {length}, but the model has only {positions} positions.")
    return model


def check_vocabulary(name: str, words: WordTable) -> None:
    """Raise ConfigError if the tokenizer of the model called `name` has other pieces than `words`.

    A checkpoint without a tokenizer is not checked.
    """
    with suppress(ModelNotFoundError, TokenizerError):
        own = WordTable(locate_model_file(name)).pieces
        for index, (piece, expected) in enumerate(zip(own, words.pieces, strict=False)):
            if piece != expected:
                raise ConfigError(
                    f"piece {index} of {name} is {piece!r}, but in the shards it is {expected!r}. "
                    "Prepare the text with the model's own tokenizer."
                )


def continued_model(name: str, overrides: dict[str, Any]) -> AlbertForPreTraining:
    """Return the model called `name` with some arguments of its config replaced.

    More layers apply the same weights more often. With more groups, layers that shared their weights get
    separate ones: each new group starts as a copy of the group that did its work, so the function is the
    same.
    """
    groups = overrides.get("num_hidden_groups")
    # A fine-tuned model has the number of its own labels, but the order head predicts two.
    kept: dict[str, Any] = {"num_labels": 2} | overrides
    kept.pop("num_hidden_groups", None)
    try:
        model = AlbertForPreTraining.from_pretrained(name, **kept)
    except ShapeMismatchError:
        if not overrides:
            raise
        raise ConfigError(
            f"[model] has {', '.join(overrides)}, but the weights of {name} have other shapes. Omit these "
            "settings."
        ) from None
    # Forget the task of a fine-tuned model and its labels. The settings and modules of sentence embedding
    # remain, because they describe how the encoder is used.
    model.config.problem_type = None
    if model.config.num_labels == (new := AlbertConfig()).num_labels:
        model.config.id2label = new.id2label
    if sentence_modules(model.config) is None:
        for key in (TASK_KEY, SETTINGS_KEY, POOLING_KEY, NORMALIZE_KEY):
            model.config.extra.pop(key, None)
    if groups in (None, had := model.config.num_hidden_groups):
        return model
    config = model.config.replace(num_hidden_groups=groups)
    if groups % had:  # otherwise a new group would do the work of two
        raise ConfigError(f"num_hidden_groups is {groups}. Expected a multiple of the {had} of {name}.")
    grown = AlbertForPreTraining(config)
    copies = groups // had  # of each group
    weights, group = model.state_dict(), re.compile(r"(?<=albert_layer_groups\.)\d+")
    sources = {name: group.sub(lambda part: str(int(part[0]) // copies), name) for name in grown.state_dict()}
    grown.load_state_dict({name: weights[source] for name, source in sources.items()})
    return grown


def start_at_frequencies(model: AlbertForPreTraining, shards: ShardSet) -> None:
    """Set the output bias (V,) to the log frequencies of the pieces in `shards`.

    A bias that starts at 0 would take thousands of steps to get there. Until then, the shared layer makes up
    for it with one large vector for all tokens, which over the layers erases the differences between tokens
    (the lab notes have the figures).
    """
    frequencies = torch.from_numpy(shards.piece_frequencies())
    with torch.no_grad():
        model.predictions.bias.copy_(frequencies.log())


def start_at_sinusoids(model: AlbertForPreTraining) -> None:
    """Set the position embeddings (positions, E) to sinusoids (Vaswani et al. 2017, section 3.5).

    Their root mean square is `initializer_range`, that of the random embeddings they replace. A step to the
    next position is then the same linear map for all positions, so attention to neighbors has one thing to
    learn instead of one for each position. The embeddings are trained like all other weights.
    """
    weight = model.albert.embeddings.position_embeddings.weight
    positions, size = weight.shape
    frequencies = torch.exp(torch.arange(0, size, 2) * (-math.log(10_000.0) / size))  # (E / 2,)
    angles = torch.arange(positions)[:, None] * frequencies  # (positions, E / 2)
    with torch.no_grad():
        weight.copy_(torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :size])
        weight.mul_(model.config.initializer_range * math.sqrt(2))


def start_at_unit_mapping(model: AlbertForPreTraining) -> None:
    """Scale the mapping (H, E) so that hidden states (B, T, H) enter the first layer with variance 1.

    All other layers, which share its weights, get states like this. With the usual initializer range, states
    start small, and attention in the first layer, which sees words and positions before they are mixed,
    stays uniform for long (the lab notes have the figures).
    """
    with torch.no_grad():
        model.albert.encoder.embedding_hidden_mapping_in.weight.normal_(0, model.config.embedding_size**-0.5)
