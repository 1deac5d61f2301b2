"""The published English checkpoints: the only table of their properties.

The sizes are from Lan et al. 2019 (arXiv:1909.11942), table 1; the numbers of heads are from the released
models. The dropout probabilities are those that the authors state (google-research/albert, issue 23): 0.1 in
version 1 except for xxlarge, 0 in xxlarge and in version 2. The activation is the tanh form of GELU, the only
one in the original code. All models are uncased and share one vocabulary. Only its hashes are stated in
public sources and can be checked.

Some public files contradict this table. Configs of version 1 on the hub say "gelu", which means the erf form
(huggingface/transformers, issue 2395). Older copies of version 2 have dropout 0.1 (issue 2337). A file of
xlarge has 32 heads (google-research/albert, issue 180). If you load a model by a published name, albertkit
compares it with this table.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertkit.errors import warn_caller

VERSIONS = ("v1", "v2")

_SIZE_NAMES = ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size")
_SHAPES = {
    "base": (768, 12, 12, 3072),
    "large": (1024, 16, 24, 4096),
    "xlarge": (2048, 16, 24, 8192),
    "xxlarge": (4096, 64, 12, 16384),
}
_SHARED = {
    "vocab_size": 30000,
    "embedding_size": 128,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_act": "gelu_new",
}
SIZES = tuple(_SHAPES)

NORMALIZATION = {"do_lower_case": True, "remove_space": True, "keep_accents": False}
"""The normalization rules of all published models."""

VOCABULARY_SHA256 = "fefb02b667a6c5c2fe27602d28e5fb3428f66ab89c7d6f388e7c8d44a02d0336"
"""Hash of the vocabulary that all published checkpoints share: `spiece.model`, or `30k-clean.model` in
Google's archives."""

VOCABULARY_HASH = "the SHA-256 of spiece.model"
"""The name of this hash in the values that `contradictions` compares."""

_SAME = {"gelu_pytorch_tanh": "gelu_new"}  # two names of one function
_SEEN_IN_TENSORS = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)


class ContradictionWarning(Warning):
    """A model with a published name differs from the published model.

    It is not a UserWarning, because code that expects a new head silences UserWarnings, but should show this
    one.
    """


@dataclass(frozen=True, slots=True)
class PublishedCheckpoint:
    """A released model, for example `albert-base-v2`, on the hub `albert/albert-base-v2`."""

    name: str
    """The short name."""
    size: str
    repository: str
    """The repository on the Hugging Face hub that contains the model today."""
    archive: str
    """The name of the archive in which Google released the model."""
    config: Mapping[str, Any]
    """The expected values of the config, by their names in `AlbertConfig`."""


def _checkpoint(size: str, version: str) -> PublishedCheckpoint:
    name, dropout = f"albert-{size}-{version}", 0.1 if version == "v1" and size != "xxlarge" else 0
    shape = dict(zip(_SIZE_NAMES, _SHAPES[size], strict=True))
    dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    archive = f"{name.replace('-', '_')}.tar.gz"
    return PublishedCheckpoint(name, size, f"albert/{name}", archive, {**_SHARED, **shape, **dropouts})


CHECKPOINTS = {
    checkpoint.name: checkpoint
    for checkpoint in (_checkpoint(size, version) for version in VERSIONS for size in SIZES)
}
"""All published checkpoints by short name."""

REPOSITORIES = {name: checkpoint.repository for name, checkpoint in CHECKPOINTS.items()}
"""The hub repository of each published checkpoint, by short name."""

_EXPECTED = {**NORMALIZATION, VOCABULARY_HASH: VOCABULARY_SHA256}
"""What all published models have in common, besides their configs."""


def find(name: str | Path) -> PublishedCheckpoint | None:
    """Return the checkpoint with a short name, hub name or archive name, or None for other models."""
    for checkpoint in CHECKPOINTS.values():
        if str(name) in (checkpoint.name, checkpoint.repository) or Path(name).name == checkpoint.archive:
            return checkpoint
    return None


def contradictions(name: str | Path, values: Mapping[str, Any], *, settled: Collection[str] = ()) -> str:
    """Describe how values differ from the published model with this name; "" if they do not differ.

    Args:
        name: The requested name. If it is not a published name, nothing is compared.
        values: Keys of a config, normalization rules of a tokenizer, or `VOCABULARY_HASH`.
        settled: Names of values that the caller has set on purpose, which are not compared.
    """
    checkpoint = find(name)
    expected = {**checkpoint.config, **_EXPECTED} if checkpoint else {}
    different = {
        key: value
        for key, value in expected.items()
        if key in values and key not in settled and _SAME.get(values[key], values[key]) != value
    }
    if not different:
        return ""
    parts = [
        f"{key} is {values[key]!r}, but the model was trained with {different[key]!r}" for key in different
    ]
    # Sizes follow from the tensors. The other values are arguments, and they change the results.
    arguments = [
        f"{key}={value!r}"
        for key, value in different.items()
        if key.isidentifier() and key not in _SEEN_IN_TENSORS
    ]
    fix = f". To use the published values, pass {', '.join(arguments)}" if arguments else ""
    return f"the files of {name} contradict the published model: {'; '.join(parts)}{fix}"


def warn_of_contradictions(
    name: str | Path, values: Mapping[str, Any], *, settled: Collection[str] = ()
) -> None:
    """Warn if values differ from the published model; for the arguments see `contradictions`."""
    if message := contradictions(name, values, settled=settled):
        warn_caller(message, ContradictionWarning)
