"""The heads of ALBERT: the tensors of each model class, the tokens that it reads, and how it computes scores.

Each head is defined here once, independent of array libraries. ONNX graphs, the NumPy reference, engines and
checkpoint readers use `HEADS`. The PyTorch and Keras classes with the same names compute the same scores;
tests compare all of them.

Shapes: H hidden, E embedding, V vocabulary, K labels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError, did_you_mean

ENCODER = "AlbertModel"
BASE_PREFIX = "albert."
"""The prefix of the encoder's tensors in a model with a head."""

Output = Literal["logits", "order", "hidden_states"]
"""What an engine computes: the logits of the model's head (for a pretraining model, of masked words), the
logits of sentence order, or the last hidden states."""

DIMENSIONS = {
    "V": "vocab_size",
    "P": "max_position_embeddings",
    "S": "type_vocab_size",
    "E": "embedding_size",
    "H": "hidden_size",
    "I": "intermediate_size",
    "K": "num_labels",
}
"""The name in the config of each dimension's letter. A digit is a size itself."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of the network: its name, its shape, and its names in other formats."""

    ours: str
    """Name, with the placeholders {group} and {layer} for repeated parts of the network."""
    part: str
    """Part of the network, as shown in reports."""
    shape: str
    """Dimensions by their letters in `DIMENSIONS`, in PyTorch's order."""
    google: str | None = None
    """Name in checkpoints of the original code and of Julia; None if they do not contain the tensor."""
    older: str | None = None
    """Name in the first Chinese checkpoints (brightmart/albert_zh), which have one layer, "shared"."""
    garden: str | None = None
    """Name in TensorFlow's model garden (official/nlp), whose encoder also has only one layer."""

    @property
    def transposed(self) -> bool:
        """Whether TensorFlow stores the matrix as inputs x outputs and PyTorch as outputs x inputs."""
        return self.google is not None and self.google.endswith("/kernel")

    @property
    def is_vector(self) -> bool:
        """Whether the tensor has one dimension."""
        return " " not in self.shape


def _pair(
    endings: tuple[str, str], ours: str, part: str, shape: str, *others: str | None
) -> list[TensorSpec]:
    """Return the specs of a weight and its bias, for names without endings; `endings` are TensorFlow's."""
    return [
        TensorSpec(f"{ours}.{ending}", part, sizes, *(other and f"{other}/{theirs}" for other in others))
        for ending, theirs, sizes in (("weight", endings[0], shape), ("bias", endings[1], shape.split()[0]))
    ]


linear_pair = partial(_pair, ("kernel", "bias"))
norm_pair = partial(_pair, ("gamma", "beta"))


class Network(Protocol):
    """The operations that heads use. Values are arrays, or names of values in a graph."""

    config: AlbertConfig

    def linear(self, values: Any, name: str) -> Any:
        """Apply the linear map with this name: (..., inputs) -> (..., outputs)."""

    def pool(self, states: Any) -> Any:
        """Apply the pooler and tanh: (..., H) -> (..., H)."""

    def activate(self, values: Any, name: str) -> Any:
        """Apply the activation function of the config, which is a PyTorch module of this name."""

    def layer_norm(self, values: Any, name: str) -> Any:
        """Normalize the last dimension."""

    def multiply_by_words(self, values: Any, bias: str) -> Any:
        """Multiply by the word embeddings and add a bias: (..., E) -> (..., V)."""


@dataclass(frozen=True, slots=True)
class Scores:
    """An output that a head computes from the last hidden states."""

    names: tuple[str, ...]
    """Names of the outputs in the model class. Several names are the columns of one array."""
    compute: Callable[[Any, Any], Any]
    """Function from a `Network` and hidden states (..., H) to scores (..., size)."""
    width: str
    """The last dimension of the scores: a letter of `DIMENSIONS`, or a digit."""
    reads_first: bool = False
    """Whether the scores are for the whole text, computed from [CLS] alone."""
    needs: str = ""
    """A tensor that the output needs. A model class without this tensor does not have the output."""


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """The part of a model class after the encoder."""

    task: str
    """The purpose of the head. Two heads with the same tensors may have different tasks."""
    tensors: Sequence[TensorSpec]
    """The tensors, in the order of PyTorch's state dict."""
    scores: Mapping[str, Scores]
    """The scores by `Output`; the model's main output is first."""
    has_choices: bool = False
    """Whether inputs are (B, C, T), with one score for each choice."""

    @property
    def parts(self) -> set[str]:
        """The parts of the network that belong only to the head (not the pooler)."""
        return {spec.part for spec in self.tensors} - {"pooler"}

    @property
    def reads_first(self) -> bool:
        """Whether the head reads only [CLS]."""
        return all(scores.reads_first for scores in self.scores.values())

    @property
    def has_labels(self) -> bool:
        """Whether the head has a score for each label of the config."""
        return not self.has_choices and any("K" in spec.shape.split() for spec in self.tensors)

    @property
    def scores_tokens(self) -> bool:
        """Whether the logits are one set of scores for each token, so that labels are (B, T) or (B, T, K)."""
        logits = self.scores.get("logits")
        return logits is not None and len(logits.names) == 1 and not logits.reads_first

    @property
    def compares_tokens(self) -> bool:
        """Whether the loss compares the tokens of a row, including padding: a start and an end are chosen."""
        logits = self.scores.get("logits")
        return logits is not None and len(logits.names) > 1

    def size(self, dimension: str, config: AlbertConfig) -> int:
        """Return the size of a dimension, given as a letter or digit."""
        if dimension == "K" and self.has_choices:
            return 1
        return getattr(config, DIMENSIONS[dimension]) if dimension in DIMENSIONS else int(dimension)

    def is_mistaken_for(self, other: "Head") -> bool:
        """Return whether this head's weights would load into the other head, although the tasks differ."""
        return self.task != other.task and bool(self.parts & other.parts)


def head_of(architecture: str) -> Head:
    """Return the head of a model class."""
    if architecture not in HEADS:
        raise ConfigError(
            f"{architecture!r} is not a model class{did_you_mean(architecture, HEADS)}. "
            f"Expected one of {', '.join(HEADS)}."
        )
    return HEADS[architecture]


def scores_of(architecture: str, output: str) -> Scores | None:
    """Return an output of a model class, or None if the class does not have the output."""
    return HIDDEN_STATES if output == "hidden_states" else head_of(architecture).scores.get(output)


def base_prefix(architecture: str) -> str:
    """Return the prefix of the encoder's tensors in a model class."""
    return "" if architecture == ENCODER else BASE_PREFIX


# --- the heads ----------------------------------------------------------------------------------

_POOLER = linear_pair("pooler", "pooler", "H H", "bert/pooler/dense", None, "pooler_transform")
_CLASSIFIER = (
    TensorSpec("classifier.weight", "classifier", "K H", "output_weights"),
    TensorSpec("classifier.bias", "classifier", "K", "output_bias"),
)
_ANSWERS = (
    TensorSpec("qa_outputs.weight", "answer span head", "2 H", "cls/squad/output_weights"),
    TensorSpec("qa_outputs.bias", "answer span head", "2", "cls/squad/output_bias"),
)
_WORDS = "masked-word head"
_MASKED_WORDS = (
    TensorSpec("predictions.bias", _WORDS, "V", "cls/predictions/output_bias",
        garden="cls/predictions/output_bias/bias"),
    *norm_pair("predictions.LayerNorm", _WORDS, "E", "cls/predictions/transform/LayerNorm"),
    *linear_pair("predictions.dense", _WORDS, "E H", "cls/predictions/transform/dense"),
    *linear_pair("predictions.decoder", _WORDS, "V E"),
)  # fmt: skip
_ORDER = (
    TensorSpec("sop_classifier.classifier.weight", "sentence-order head", "K H",
        "cls/seq_relationship/output_weights"),
    TensorSpec("sop_classifier.classifier.bias", "sentence-order head", "K",
        "cls/seq_relationship/output_bias"),
)  # fmt: skip


def _linear(name: str, *, of_pooled: bool = False) -> Callable[[Network, Any], Any]:
    """Return the function that applies a linear map to hidden states, or to the pooled vectors."""
    return lambda network, states: network.linear(network.pool(states) if of_pooled else states, name)


def _score_words(network: Network, states: Any) -> Any:
    narrow = network.activate(network.linear(states, "predictions.dense"), "predictions.activation")
    narrow = network.layer_norm(narrow, "predictions.LayerNorm")
    if not network.config.tie_word_embeddings:
        return network.linear(narrow, "predictions.decoder")
    return network.multiply_by_words(narrow, "predictions.bias")


HIDDEN_STATES = Scores(("last_hidden_state",), lambda _, states: states, "H")
_OF_TEXT = Scores(("logits",), _linear("classifier", of_pooled=True), "K", reads_first=True)

HEADS: dict[str, Head] = {
    ENCODER: Head(
        "feature-extraction",
        _POOLER,
        {
            "hidden_states": HIDDEN_STATES,
            "pooler_output": Scores(
                ("pooler_output",), lambda network, states: network.pool(states), "H", True, "pooler.weight"
            ),
        },
    ),
    "AlbertForSequenceClassification": Head(
        "text-classification", (*_POOLER, *_CLASSIFIER), {"logits": _OF_TEXT}
    ),
    "AlbertForTokenClassification": Head(
        "token-classification", _CLASSIFIER, {"logits": Scores(("logits",), _linear("classifier"), "K")}
    ),
    "AlbertForQuestionAnswering": Head(
        "question-answering",
        _ANSWERS,
        {"logits": Scores(("start_logits", "end_logits"), _linear("qa_outputs"), "2")},
    ),
    "AlbertForMultipleChoice": Head(
        "multiple-choice", (*_POOLER, *_CLASSIFIER), {"logits": _OF_TEXT}, has_choices=True
    ),
    "AlbertForMaskedLM": Head("fill-mask", _MASKED_WORDS, {"logits": Scores(("logits",), _score_words, "V")}),
    "AlbertForPreTraining": Head(
        "fill-mask",
        (*_POOLER, *_MASKED_WORDS, *_ORDER),
        {
            "logits": Scores(("prediction_logits",), _score_words, "V"),
            "order": Scores(
                ("sop_logits",), _linear("sop_classifier.classifier", of_pooled=True), "K", reads_first=True
            ),
        },
    ),
}
"""The head of each model class, by the name of the class."""
