"""How pipelines read the inputs of each task, compute them and write the answers.

`DEFINITIONS` has an entry for each task; its options are declared in `albertkit.options`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, make_dataclass, replace
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple, cast, get_args

import numpy as np

from albertkit.checkpoints.sentence_modules import sentence_modules
from albertkit.config import SETTINGS_KEY
from albertkit.datasets.examples import ChoiceExample, PairExample, QuestionExample, TextExample, WordsExample
from albertkit.datasets.inputs import CHOICE_FIELDS, CHOICES_FIELD, PAIR_FIELDS, QUESTION_FIELDS
from albertkit.engines.engine import Row, by_example, every_token
from albertkit.errors import ConfigError, DataError, check_arguments, short, warn_caller
from albertkit.extras import optional
from albertkit.metrics import unit
from albertkit.options import BEST, OPTIONS, TEMPLATE, check_size
from albertkit.recipe import build
from albertkit.reference import softmax
from albertkit.tasks.masked_lm import MaskedLM
from albertkit.tasks.multiple_choice import MultipleChoice
from albertkit.tasks.question_answering import THRESHOLD_KEY, QuestionAnswering
from albertkit.tasks.rows import text_rows, tokens_cut
from albertkit.tasks.sentence_embedding import SentenceEmbedding
from albertkit.tasks.settings import TaskSettings, saved_lengths
from albertkit.tasks.task import Task
from albertkit.tasks.text_classification import ORDER_LABELS, SentenceOrder, TextClassification
from albertkit.tasks.token_classification import Aggregation, TokenClassification, entities, split_words
from albertkit.tokenization.batch import read_choice

torch: Any = optional("torch", extra="torch")

Pipeline = Any  # `core.Pipeline`, which imports this module
_NO_OPTIONS = make_dataclass("NoOptions", ())
_MIN_LENGTH = 3  # [CLS], a token, [SEP]
_TEMPLATE = re.compile(r"((?:[^{}]|\{\{|\}\})*)\{0?\}((?:[^{}]|\{\{|\}\})*)")
_CUT_UNSEEN = (
    "a text was truncated, and no label exceeds its threshold, so its answer is an empty list without "
    "`cut`. With top_k=None, the answer has all labels, and each has `cut`."
)


class Plan(NamedTuple):
    """What a call computes: examples -> rows -> outputs -> answers."""

    features: Callable[[list[Any]], Sequence[Any]]
    run: Callable[..., list[Any]]
    answer: Callable[[list[Any], Sequence[Any], list[Any]], list[Any]]
    as_list: bool = False
    """Whether the answer for a single text is in a list, unless the call sets `top_k`."""


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A task of pipelines."""

    name: str
    architectures: tuple[str, ...]
    """The model class to load, and other classes that have its head."""
    plan: Callable[[Pipeline, Any], Plan]
    """Returns what a call with these options computes."""
    read: Callable[[Any], Any]
    """Returns an input as an example; raises DataError for anything else."""
    check: Callable[[Pipeline], object] = lambda pipeline: pipeline.plan()
    """Raises ConfigError if the model or the defaults do not fit the task."""
    fields: tuple[str, ...] = ("text",)
    """The names of the parts of an input: the keys of a mapping, or the columns of a table."""
    rest: str | None = None
    """The field that receives all further columns of a .tsv file."""

    def is_single(self, inputs: Any) -> bool:
        """Return whether inputs are a single input. One of a task of your own can be any object."""
        is_pair = self.fields == PAIR_FIELDS and _is_pair(inputs)
        is_object = not self.fields and not isinstance(inputs, Iterable)
        return isinstance(inputs, str | Mapping) or is_pair or is_object

    @property
    def options(self) -> type:
        """The class of the options."""
        return OPTIONS[self.name] if DEFINITIONS.get(self.name) is self else _NO_OPTIONS


def _planned(
    pipeline: Pipeline,
    task: Task,
    answer: Callable[[Any, Any, dict[str, int]], Any],
    *,
    as_list: bool = False,
) -> Plan:
    """Return the plan of a bound task.

    `answer` returns the answer for an example, its prediction, and {"cut": number of removed tokens}, or {}
    if the example was not truncated.
    """

    def answers(examples: list[Any], rows: Sequence[Row], outputs: list[Any]) -> list[Any]:
        predictions = task.predictions(examples, rows, outputs)
        cuts = tokens_cut(rows, examples=len(examples))
        return [
            answer(example, prediction, {"cut": cut} if cut else {})
            for example, prediction, cut in zip(examples, predictions, cuts, strict=True)
        ]

    return Plan(task.features, partial(task.run, pipeline.engine), answers, as_list)


def _limits(
    pipeline: Pipeline,
    truncation: Any,
    max_length: int | None,
    padding: Any = None,
    *,
    default: str = "longest_first",
) -> tuple[str, int]:
    """Return the strategy for texts that are too long, and the maximum length.

    A fine-tuned model gives the same answers as in `albertkit.predict`: the limit is the length of its
    fine-tuning, and longer texts are truncated unless the caller sets `truncation` or another limit.
    """
    limit, trained = pipeline.max_length, pipeline.trained_length
    if truncation is None:
        truncation = max_length is None and trained is not None
    strategy = read_choice("truncation", default if truncation is True else truncation)
    read_choice("padding", padding)  # raises if it is unknown
    if max_length is not None and max_length > limit:
        raise ConfigError(f"max_length is {max_length}. Expected at most {limit}, the model's maximum.")
    return strategy, max_length or trained or limit


def _merged(name: str, given: Mapping[str, Any] | None, **direct: Any) -> dict[str, Any]:
    """Return the arguments of a tokenizer, which may be passed in a dict or directly."""
    known = ("truncation", "max_length", "padding")
    if not isinstance(given, Mapping | None):
        raise ConfigError(f"{name} is {short(given)}. Expected a dict.")
    check_arguments(name, given or {}, known)
    direct = {argument: value for argument, value in direct.items() if value is not None}
    if twice := direct.keys() & (given or {}).keys():
        raise ConfigError(f"{', '.join(twice)} is passed twice, directly and in {name}. Pass it once.")
    merged = dict.fromkeys(known) | dict(given or {}) | direct
    check_size("max_length", merged["max_length"], minimum=_MIN_LENGTH)
    return merged


def _wrong(given: Any, expected: str, what: str = "an input") -> DataError:
    return DataError(f"received {short(given)} ({type(given).__name__}) for {what}. Expected {expected}.")


# --- texts


def _read_text(given: Any) -> str:
    if isinstance(given, Mapping) and given.keys() == {"text"}:
        given = given["text"]
    if not isinstance(given, str):
        raise _wrong(given, "a string", what="a text")
    return given


def _fill_mask(pipeline: Pipeline, options: Any) -> Plan:
    merged = _merged("tokenizer_kwargs", options.tokenizer_kwargs)
    task = MaskedLM(pipeline.tokenizer, max_length=_limits(pipeline, False, merged["max_length"])[1])
    targets = None if options.targets is None else task.target_ids(options.targets)
    then = partial(task.candidates, top_k=options.top_k, target_ids=targets)
    run = partial(pipeline.engine.run, read=attrgetter("mask_positions"), then=then)
    return Plan(task.features, run, task.predictions)


def _feature_extraction(pipeline: Pipeline, options: Any) -> Plan:
    config = pipeline.model.config
    merged = _merged(
        "tokenize_kwargs",
        options.tokenize_kwargs,
        truncation=options.truncation,
        max_length=options.max_length,
    )
    merged["truncation"] = merged["truncation"] or False  # vectors cannot say that a text was truncated
    strategy, longest = _limits(pipeline, **merged)
    by_token = options.pooling == "none" or (options.pooling is None and sentence_modules(config) is None)
    pooling: Any = None if by_token else options.pooling
    task = SentenceEmbedding(
        truncation=strategy,
        parse_special_tokens=options.parse_special_tokens,
        prompt_name=options.prompt_name,
        prompt=options.prompt,
    ).bind(
        pipeline.tokenizer,
        config,
        TaskSettings(max_length=longest, pooling=pooling, normalize=options.normalize),
    )
    kind = "pt" if options.return_tensors is True else options.return_tensors or "lists"
    if kind not in ("pt", "np", "lists"):
        raise ConfigError(f"return_tensors is {kind!r}. Expected True, False, 'pt' or 'np'.")

    def vectors_of_tokens(states: np.ndarray) -> np.ndarray:
        return unit(states[None]) if options.normalize else states[None]

    def answer(_: list[PairExample], rows: Sequence[Row], arrays: list[np.ndarray]) -> list[Any]:
        for row in rows:
            if row.cut and options.on_cut is not None:
                options.on_cut(row.cut)
        if kind == "np":
            return arrays
        return [torch.from_numpy(array) if kind == "pt" else array.tolist() for array in arrays]

    run = partial(task.run, pipeline.engine)
    if by_token:
        compute = partial(pipeline.engine.run, output="hidden_states")
        run = partial(compute, read=every_token, then=vectors_of_tokens)
    return Plan(task.features, run, answer)


# --- texts and pairs


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and _are_words(given)


def _read_text_or_pair(given: Any) -> TextExample:
    if isinstance(given, str):
        return TextExample(given)
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], list | tuple):
        given = tuple(given[0])  # [["a", "b"]]: a pair in an older form of `transformers`
    if _is_pair(given):
        return TextExample(*given)
    if isinstance(given, Mapping) and given.keys() <= {*PAIR_FIELDS}:
        text, text_pair = given.get("text"), given.get("text_pair")
        if isinstance(text, str) and isinstance(text_pair, str | None):
            return TextExample(text, text_pair)
    pair = 'a pair {"text": "...", "text_pair": "..."} or a tuple of two strings'
    raise _wrong(given, f"a string, or for {pair}", what="a text")


def _read_pair(given: Any) -> TextExample:
    example = _read_text_or_pair(given)
    if example.text_pair is None:
        raise _wrong(given, "a pair (text, text_pair) or {text, text_pair}", what="a pair")
    return example


def _text_classification(pipeline: Pipeline, options: Any) -> Plan:
    strategy, longest = _limits(pipeline, options.truncation, options.max_length, options.padding)
    task = TextClassification(truncation=strategy, function_to_apply=options.function_to_apply).bind(
        pipeline.tokenizer,
        pipeline.model.config,
        TaskSettings(max_length=longest, threshold=options.threshold),
    )
    top_k = options.top_k
    decides = top_k is BEST and pipeline.model.config.problem_type == "multi_label_classification"

    def answer(example: TextExample, predicted: Any, cut: dict[str, int]) -> Any:
        if other := task.other_kind([example]):
            warn_caller(other)
        scores = zip(task.labels.names, predicted.scores, strict=True)
        labels = [{"label": label, "score": score, **cut} for label, score in scores]
        ranked = sorted(labels, key=lambda label: label["score"], reverse=True)
        if decides:
            if cut and not predicted.label:
                warn_caller(_CUT_UNSEEN)
            return [label for label in ranked if label["label"] in predicted.label]
        if top_k is BEST and predicted.label is None:
            return {**ranked[0], "label": None}
        if task.labels.thresholds:
            names = predicted.label if isinstance(predicted.label, tuple) else (predicted.label,)
            if top_k is BEST:
                return next(label for label in ranked if label["label"] in names)
            ranked = [{**label, "predicted": label["label"] in names} for label in ranked]
        return ranked[0] if top_k is BEST else ranked[:top_k]

    return _planned(pipeline, task, answer, as_list=not decides)  # as in `transformers`


def _sentence_order(pipeline: Pipeline, options: Any) -> Plan:
    config, count = pipeline.model.config, len(ORDER_LABELS)
    if config.num_labels != count:
        raise ConfigError(f"sentence-order needs a model with num_labels={count}, got {config.num_labels}")
    settings = TaskSettings(truncation=options.truncation or False)
    task = SentenceOrder().bind(pipeline.tokenizer, config, settings)

    def answer(_: TextExample, predicted: Any, cut: dict[str, int]) -> dict[str, Any]:
        return {"label": predicted.label, "score": max(predicted.scores), **cut}

    return _planned(pipeline, task, answer)


def _zero_shot_classification(pipeline: Pipeline, options: Any) -> Plan:
    """Return the plan: a natural language inference model decides whether a text entails each hypothesis.

    Every label becomes a hypothesis (Yin et al. 2019).
    """
    entailment, labels = _entailment_of(pipeline), options.candidate_labels
    if isinstance(labels, str):  # as in `transformers`; labels in a list are not stripped
        labels = [label.strip() for label in labels.split(",") if label.strip()]
    if not _are_words(labels) or not labels or not all(map(str.strip, labels)):
        expected = "Expected labels, as a list or separated by commas."
        raise ConfigError(f"candidate_labels is {short(options.candidate_labels)}. {expected}")
    before, after = split_template(options.hypothesis_template)
    strategy, longest = _limits(pipeline, options.truncation, options.max_length, default="only_first")
    is_independent = len(labels) == 1 or options.multi_label
    # As in `transformers`, contradiction is the first class, or the last if the first is entailment.
    contradiction = -1 if entailment == 0 else 0

    def features(texts: list[str]) -> list[Row]:
        """Return a row for each text with each hypothesis."""
        pairs = [(text, f"{before}{label}{after}") for text in texts for label in labels]
        rows = text_rows(pipeline.tokenizer, pairs, max_length=longest, truncation=strategy)
        return [replace(row, example=row.example // len(labels)) for row in rows]

    def answer(texts: list[str], rows: Sequence[Row], logits: list[np.ndarray]) -> list[dict[str, Any]]:
        answers = []
        for text, own in zip(texts, by_example(rows, logits, count=len(texts)), strict=True):
            stacked = np.stack([of_row for _, of_row in own])  # (L, K)
            if is_independent:
                scores = softmax(stacked[:, [contradiction, entailment]])[:, 1]
            else:
                scores = softmax(stacked[:, entailment])
            best = np.argsort(scores, kind="stable")[::-1]
            ranked = {"labels": [labels[index] for index in best], "scores": scores[best].tolist()}
            cut = max(row.cut for row, _ in own)
            answers.append({"sequence": text, **ranked, **({"cut": cut} if cut else {})})
        return answers

    return Plan(features, partial(pipeline.engine.run, then=lambda scores: scores[0]), answer)


def find_entailment(label2id: Mapping[str, int]) -> int | None:
    """Return the id of the entailment label, found by its name as in `transformers`, or None."""
    names = (name for name in label2id if name.lower().startswith("entail") and len(label2id) > 1)
    return label2id.get(next(names, ""))


def _entailment_of(pipeline: Pipeline) -> int:
    label2id = pipeline.model.config.label2id
    number = find_entailment(label2id)
    if number is None:
        expected = 'Expected a label whose name begins with "entail", and others'
        raise ConfigError(
            f"the model has the labels {', '.join(label2id)}. {expected}. Choose a model for natural "
            "language inference, or name the labels in id2label of its config.json."
        )
    return number


def split_template(template: str) -> tuple[str, str]:
    """Return the text before and after the label; `{{` and `}}` are braces, as in `str.format`.

    Other features of `str.format` are not supported, because templates can come from untrusted users: a width
    could use any amount of memory, and an attribute could show parts of the program.
    """
    match = _TEMPLATE.fullmatch(template) if isinstance(template, str) else None
    if match is None:
        expected = f"Expected a text with one {{}} for the label, such as {TEMPLATE!r}."
        raise ConfigError(f"hypothesis_template is {short(template)}. {expected}")
    before, after = (text.replace("{{", "{").replace("}}", "}") for text in match.groups())
    return before, after


# --- words


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sentence(WordsExample):
    word_starts: list[int]  # for each word, the index of its first character in the text


def _are_words(given: Any) -> bool:
    return isinstance(given, list | tuple) and all(isinstance(word, str) for word in given)


def _read_words(given: Any) -> _Sentence:
    if isinstance(given, Mapping) and given.keys() == {"text"}:
        given = given["text"]
    if isinstance(given, str):
        spans = split_words(given)
        words = tuple(given[start:end] for start, end in spans)
        return _Sentence(words=words, word_starts=[start for start, _ in spans])
    if _are_words(given):
        lengths = [len(word) + 1 for word in given]  # with the space after the word
        return _Sentence(words=tuple(given), word_starts=[0, *accumulate(lengths)][: len(given)])
    raise _wrong(given, "a string, or a list of words", what="a text")


def _token_classification(pipeline: Pipeline, options: Any) -> Plan:
    """Return the plan. Texts are split like the training data of taggers, at spaces and punctuation."""
    aggregation, ignored = options.aggregation_strategy, options.ignore_labels
    if aggregation not in (known := get_args(Aggregation)):
        raise ConfigError(f"aggregation_strategy is {aggregation!r}. Expected one of {', '.join(known)}.")
    is_list = isinstance(ignored, Collection) and not isinstance(ignored, str)
    if not is_list or not all(isinstance(label, str) for label in ignored):
        raise ConfigError(f"ignore_labels is {short(ignored)}. Expected a list, such as ['O'].")
    task = TokenClassification(stride=options.stride).bind(
        pipeline.tokenizer, pipeline.model.config, TaskSettings(max_length=pipeline.trained_length)
    )
    group = partial(
        entities,
        tokenizer=pipeline.tokenizer,
        labels=task.labels.names,
        aggregation=aggregation,
        ignored_labels=ignored,
    )
    return _planned(pipeline, task, lambda sentence, tagged, _: group(tagged, sentence.word_starts))


# --- questions


def _read_question(given: Any) -> QuestionExample:
    fields: dict[str, Any] = {}
    if isinstance(given, Mapping):
        fields = {name: given.get(name) for name in QUESTION_FIELDS}
    if not fields or not _are_words([*fields.values()]):
        raise _wrong(given, '{"question": "...", "context": "..."}')
    for name, text in fields.items():
        if not text.strip():
            raise DataError(f"the {name} is empty. Expected a text.")
    return QuestionExample(str(given.get("id", "")), **fields)


def _question_answering(pipeline: Pipeline, options: Any) -> Plan:
    config = pipeline.model.config
    trained = {"doc_stride": 128, "max_length": 384, "max_answer_length": 30} | saved_lengths(config)
    settings = TaskSettings(
        max_length=options.max_seq_len or trained["max_length"],
        doc_stride=trained["doc_stride"] if options.doc_stride is None else options.doc_stride,
        max_question_length=options.max_question_len,
        max_answer_length=options.max_answer_len or trained["max_answer_length"],
        truncation=False,
    )
    count, threshold = options.top_k, getattr(config, THRESHOLD_KEY, None)
    task = QuestionAnswering(n_best=count).bind(pipeline.tokenizer, config, settings)
    if options.handle_impossible_answer is not None:
        threshold = (threshold or 0.0) if options.handle_impossible_answer else None

    def answer(_: QuestionExample, answered: Any, __: dict[str, int]) -> Any:
        ranked = [
            {"score": span.score, "start": span.start, "end": span.end, "answer": span.text}
            for span in answered.ranked(threshold)[:count]
        ]
        return ranked[0] if count == 1 else ranked

    return _planned(pipeline, task, answer)


def _read_choice(given: Any) -> ChoiceExample:
    if isinstance(given, Mapping) and given.keys() <= {*CHOICE_FIELDS, CHOICES_FIELD}:
        context, question, choices = (given.get(name) for name in (*CHOICE_FIELDS, CHOICES_FIELD))
        if isinstance(context, str) and isinstance(question, str | None) and _are_words(choices):
            return ChoiceExample(context[:40], context, question, tuple(cast(Any, choices)))
    expected = '{"context": "...", "question": "...", "choices": ["...", "..."]}'
    raise _wrong(given, f"{expected}, where the question is optional")


def _multiple_choice(pipeline: Pipeline, options: Any) -> Plan:
    trained = pipeline.trained_length
    truncation = trained is not None if options.truncation is None else options.truncation
    if not isinstance(truncation, bool):  # only the context can be truncated
        raise ConfigError(f"truncation is {truncation!r}. Expected True or False.")
    task = MultipleChoice().bind(
        pipeline.tokenizer, pipeline.model.config, TaskSettings(max_length=trained, truncation=truncation)
    )

    def answer(example: ChoiceExample, logits: np.ndarray, cut: dict[str, int]) -> dict[str, Any]:
        index, scores = int(logits.argmax()), softmax(logits).tolist()
        best = {"choice": example.choices[index], "index": index, "score": scores[index]}
        return best | {"scores": scores, **cut}

    return _planned(pipeline, task, answer)


# --- tasks of your own


def definition_of(task: Task) -> Definition:
    """Return the definition of a task of your own, whose records are the answers."""

    def read(given: Any) -> Any:
        if isinstance(given, str):
            given = {"text": given}
        if not isinstance(given, Mapping):
            return given
        try:
            return task.example(given)
        except DataError as error:
            raise DataError(f"the task {task.name} cannot read {short(given)}: {error}") from error

    def plan(pipeline: Pipeline, _: Any) -> Plan:
        config = pipeline.model.config
        settings = build(TaskSettings, {**saved_lengths(config)}, where=f"{SETTINGS_KEY} in the config")
        bound = task.bind(pipeline.tokenizer, config, settings)
        return _planned(pipeline, bound, lambda example, value, cut: bound.record(example, value) | cut)

    return Definition(
        name=task.name,
        architectures=(task.architecture,),
        plan=plan,
        read=read,
        fields=(),
    )


DEFINITIONS: Mapping[str, Definition] = {
    definition.name: definition
    for definition in (
        Definition(
            name="fill-mask",
            architectures=("AlbertForMaskedLM", "AlbertForPreTraining"),
            plan=_fill_mask,
            read=_read_text,
        ),
        Definition(
            name="feature-extraction",
            architectures=("AlbertModel", "AlbertPreTrainedModel"),
            plan=_feature_extraction,
            read=lambda given: PairExample(_read_text(given)),
        ),
        Definition(
            name="text-classification",
            architectures=("AlbertForSequenceClassification",),
            plan=_text_classification,
            read=_read_text_or_pair,
            fields=PAIR_FIELDS,
        ),
        Definition(
            name="token-classification",
            architectures=("AlbertForTokenClassification",),
            plan=_token_classification,
            read=_read_words,
        ),
        Definition(
            name="question-answering",
            architectures=("AlbertForQuestionAnswering",),
            plan=_question_answering,
            read=_read_question,
            fields=QUESTION_FIELDS,
        ),
        Definition(
            name="multiple-choice",
            architectures=("AlbertForMultipleChoice",),
            plan=_multiple_choice,
            read=_read_choice,
            fields=CHOICE_FIELDS,
            rest=CHOICES_FIELD,
        ),
        Definition(
            name="sentence-order",
            architectures=("AlbertForPreTraining",),
            plan=_sentence_order,
            read=_read_pair,
            fields=PAIR_FIELDS,
        ),
        Definition(
            name="zero-shot-classification",
            architectures=("AlbertForSequenceClassification",),
            plan=_zero_shot_classification,
            read=_read_text,
            check=_entailment_of,
        ),
    )
}
ALIASES = {"sentiment-analysis": "text-classification", "ner": "token-classification"}
