"""The options of each task, declared once.

A field of these classes is a keyword argument of a pipeline's constructor and calls, a flag of the command
(`top_k` is `--top-k`), and a field of requests to the server. Its docstring is the help text of the flag and
the description in the reference and in OpenAPI. Options with `only="python"` are keyword arguments only.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal

from albertkit.errors import ConfigError

BEST: Any = ""
"""The default of `top_k` in text classification, where None stands for all labels."""
TEMPLATE = "This example is {}."
"""The default hypothesis of a label."""
ENGINES = ("auto", "onnx", "onnx-int8", "torch", "plain")
"""`onnx` computes without padding in ONNX Runtime; `onnx-int8` does so with the layers' matrices in int8.
`torch` calls the PyTorch model without padding; `plain` pads the rows. `auto` means `torch` for a PyTorch
model (`plain` on devices other than CPU and CUDA), `onnx-int8` for a model that was exported in int8, and
`onnx` for other models."""
Truncation = bool | Literal["longest_first", "only_first", "only_second", "do_not_truncate"] | None


def option(
    default: Any = None,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    only: Literal["python"] | None = None,
    request_maximum: int | None = None,
    rare: bool = False,
) -> Any:
    """Declare an option.

    Args:
        default: the default value.
        minimum: the smallest value: 1 for a whole number, 0.0 for any number.
        maximum: the largest value of any number.
        only: the only interface that has the option; None for all.
        request_maximum: the largest value in a request to the server.
        rare: whether the command shows the flag only with `--help-all`.
    """
    metadata = {"minimum": minimum, "maximum": maximum, "request_maximum": request_maximum}
    return dataclasses.field(default=default, metadata=metadata | {"only": only, "rare": rare})


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FillMaskOptions:
    """Options of `fill-mask`."""

    top_k: int = option(5, minimum=1, request_maximum=100)
    """Number of words for each [MASK]."""
    targets: str | Sequence[str] | None = None
    """Words to choose from, instead of the whole vocabulary. Each must be a single piece. "man" stands for
    the piece that begins a word, which the vocabulary writes as "▁man"."""
    tokenizer_kwargs: Mapping[str, Any] | None = option(only="python")
    """A dict with `max_length`, the maximum length of a row. `truncation` and `padding` are accepted but have
    no effect, because texts can have any length."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FeatureExtractionOptions:
    """Options of `feature-extraction`."""

    pooling: Literal["mean", "cls", "max", "none"] | None = None
    """How to combine the vectors of the tokens into one vector: "mean" (of all tokens, including [CLS] and
    [SEP]), "cls" or "max"; "none" for one vector per token (default: the model's pooling; if it has
    none: "none" for a call of the pipeline, otherwise "mean"). The Dense modules of a sentence-transformers
    model are applied only with the pooling of the model."""
    normalize: bool | None = None
    """Scale the vectors to length 1 (default: the model's setting, which applies only to one vector per
    text)."""
    prompt_name: str | None = None
    """Name of the model's prompt to prepend to each text (default: the model's default prompt, if any)."""
    prompt: str | None = option(rare=True)
    """Text to prepend to each text, instead of a prompt of the model; "" for none."""
    truncation: Truncation = None
    """Truncate texts that exceed the maximum length, instead of raising an error."""
    max_length: int | None = option(minimum=3, rare=True)
    """Maximum number of tokens of a text, including [CLS] and [SEP] (default: the maximum length of the
    fine-tuning, or the model's maximum if its config has none)."""
    tokenize_kwargs: Mapping[str, Any] | None = option(only="python")
    """A dict with `truncation` and `max_length`, if not passed directly, and `padding`, which does not change
    the vectors."""
    return_tensors: bool | str | None = option(only="python")
    """True or "pt" for PyTorch tensors on the CPU, "np" for NumPy arrays, False for lists."""
    parse_special_tokens: bool | None = option(only="python")
    """Whether `[SEP]` and other special tokens in a text are parsed; None for the tokenizer's setting."""
    on_cut: Callable[[int], object] | None = option(only="python")  # noqa: RUF009
    """Function that is called for each truncated text, with the number of removed tokens."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TextClassificationOptions:
    """Options of `text-classification`."""

    top_k: int | None = option(BEST, minimum=1, request_maximum=100)
    """Number of labels to return; None for all. By default, the pipeline returns the best label; for a model
    with `problem_type="multi_label_classification"`, all labels above their threshold."""
    threshold: float | Mapping[str, float] | None = option(minimum=0.0, maximum=1.0)
    """Probability that a label must exceed to be predicted: one number for all labels, or a number for each
    label by name (as a flag: LABEL=NUMBER, several times). If no label exceeds its threshold, the answer is
    empty (default: the thresholds in the model's config; without these, none, and 0.5 for several labels)."""
    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = option(rare=True)
    """Function that converts logits to scores (default: the function of the config's `problem_type`: softmax;
    sigmoid for multi-label or a single label; none for regression)."""
    truncation: Truncation = None
    """Truncate a text that exceeds the maximum length, or the longer text of a pair, and report the number of
    removed tokens as `cut`. "only_first" and "only_second" truncate that text of a pair. Otherwise, a text
    that is too long is an error (default: yes for a model with a maximum length of the fine-tuning, if you do
    not set `max_length`)."""
    max_length: int | None = option(minimum=3, rare=True)
    """Maximum number of tokens of an input, including [CLS] and [SEP] (default: the maximum length of the
    fine-tuning, or the model's maximum if its config has none)."""
    padding: bool | str | None = option(only="python")
    """Accepted as for a tokenizer, but does not change the answers."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ZeroShotClassificationOptions:
    """Options of `zero-shot-classification`."""

    candidate_labels: str | Sequence[str] | None = None
    """Labels to choose from, as a list or separated by commas. Needs a model for natural language
    inference."""
    hypothesis_template: str = TEMPLATE
    """Hypothesis to test for each candidate label. The label replaces {}."""
    multi_label: bool = False
    """Score each candidate label independently, against contradiction, so that several can apply. Otherwise,
    the scores of all labels sum to 1. A single label is always independent."""
    truncation: Truncation = None
    """Truncate a text that exceeds the maximum length, but never its hypothesis, and report the maximum
    number of tokens removed for a label as `cut`. "longest_first" and "only_second" can truncate the
    hypothesis too. Otherwise, a text that is too long is an error (default: yes for a model with a maximum
    length of the fine-tuning, if you do not set `max_length`)."""
    max_length: int | None = option(minimum=3, rare=True)
    """Maximum number of tokens of a text with its hypothesis and special tokens (default: the maximum length
    of the fine-tuning, or the model's maximum if its config has none)."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TokenClassificationOptions:
    """Options of `token-classification`."""

    aggregation_strategy: Literal["none", "simple", "first", "max", "average"] = "none"
    """How to group tokens into entities: "none" (every token alone), "simple" (neighboring tokens of the same
    type), or by word with the scores of its first token ("first"), of its most certain token ("max") or of
    all its tokens ("average")."""
    ignore_labels: Sequence[str] = ("O",)
    """Labels, or entity types, to omit."""
    stride: int = option(64, minimum=0, rare=True)
    """Overlap of the windows of a long text, in tokens."""
    is_split_into_words: bool = option(False, only="python")
    """Whether the input is a list or array of words, or an iterable of lists of words. Offsets then refer to
    the words joined with spaces."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class QuestionAnsweringOptions:
    """Options of `question-answering`."""

    top_k: int = option(1, minimum=1, request_maximum=100)
    """Maximum number of answers. The answers do not overlap: of several overlapping answers, only the best is
    returned."""
    handle_impossible_answer: bool | None = None
    """Allow "no answer" (an empty answer) as a result (default: only if the model's config has a threshold
    for it)."""
    doc_stride: int | None = option(minimum=0, rare=True)
    """Overlap of the windows of a long context, in tokens (default: the value of the fine-tuning, or 128)."""
    max_seq_len: int | None = option(minimum=1, rare=True)
    """Maximum number of tokens of a window, up to the model's maximum (default: the value of the fine-tuning,
    or 384)."""
    max_question_len: int | None = option(minimum=1, rare=True)
    """Maximum number of tokens of a question; a longer question is an error (default: half of a window)."""
    max_answer_len: int | None = option(minimum=1, rare=True)
    """Maximum number of tokens of an answer (default: the value of the fine-tuning, or 30)."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MultipleChoiceOptions:
    """Options of `multiple-choice`."""

    truncation: bool | None = None
    """Truncate a context at its end if the input exceeds the maximum length of the fine-tuning, or the
    model's maximum if the config has none. `cut` is the maximum number of tokens removed for a choice.
    Otherwise, such an input is an error (default: yes for a model with a maximum length of the
    fine-tuning)."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SentenceOrderOptions:
    """Options of `sentence-order`."""

    truncation: bool | None = None
    """Truncate the longer text of a pair that exceeds the model's maximum length, instead of raising an
    error, and report the number of removed tokens as `cut`."""


OPTIONS: Mapping[str, type] = {
    "fill-mask": FillMaskOptions,
    "feature-extraction": FeatureExtractionOptions,
    "text-classification": TextClassificationOptions,
    "token-classification": TokenClassificationOptions,
    "question-answering": QuestionAnsweringOptions,
    "multiple-choice": MultipleChoiceOptions,
    "sentence-order": SentenceOrderOptions,
    "zero-shot-classification": ZeroShotClassificationOptions,
}
"""Name of a pipeline's task -> its options. A task of your own has none."""


def read_options(kind: type, *given: Mapping[str, Any]) -> Any:
    """Return options from values by name, of which later ones override earlier ones.

    None stands for the earlier value, except where it has a meaning of its own (`BEST`).

    Raises:
        ConfigError: a number is outside of its limits, or has another type.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for options in given:
        for name, value in options.items():
            if value is not None or fields[name].default is BEST:
                values[name] = value
    for name, value in values.items():
        minimum, maximum = (fields[name].metadata.get(limit) for limit in ("minimum", "maximum"))
        if value is BEST or value is None or minimum is None:
            continue
        if isinstance(value, Mapping) and "Mapping" in str(fields[name].type):
            continue  # numbers by label, which need the labels of a model
        if isinstance(minimum, int):
            check_size(name, value, minimum=minimum)
        elif not (isinstance(value, Real) and minimum <= value <= maximum):
            raise ConfigError(f"{name} is {value!r}. Expected a number from {minimum:g} to {maximum:g}.")
    return kind(**values)


def check_size(name: str, value: Any, *, minimum: int = 1) -> Any:
    """Return an argument that must be a whole number or None; raise ConfigError for anything else."""
    if value is not None and (not isinstance(value, Integral) or isinstance(value, bool) or value < minimum):
        raise ConfigError(f"{name} is {value!r}. Expected a whole number of at least {minimum}.")
    return value
