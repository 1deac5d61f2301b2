"""The commands that answer texts: inputs from arguments, files and pipes, answers for people and as JSON."""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import tee
from pathlib import Path
from typing import Any

from albertkit.cli.parameters import Flag, of_dataclass
from albertkit.cli.printing import (
    as_fields,
    new_console,
    print_bars,
    print_cut,
    print_json,
    print_masks,
    print_numbers,
    print_spans,
    print_title,
    print_vectors,
    quote,
)
from albertkit.datasets.rows import (
    CHOICE_FIELDS,
    CHOICES_FIELD,
    PAIR_FIELDS,
    QUESTION_FIELDS,
    TABLES,
    InputFormat,
    NumberedInputs,
    format_of,
)
from albertkit.errors import ConfigError, DataError
from albertkit.hub import BUNDLED, BUNDLED_SENTENCES
from albertkit.options import OPTIONS

_EXTRA: Mapping[str, Sequence[Flag]] = {
    "classify": [Flag("pair", str, "Second text, to classify a pair of texts.", group="Input")],
    "tag": [
        Flag("words", bool, "Treat the texts as words separated by spaces.", default=False, group="Input")
    ],
    "answer": [
        Flag("context", str, "Text that contains the answers.", group="Input"),
        Flag("context_file", Path, "UTF-8 file with the context.", group="Input"),
    ],
    "choose": [
        Flag("context", str, "Text that the question is about.", group="Input"),
        Flag("question", str, "Question. If it contains '_', each choice replaces the '_'.", group="Input"),
    ],
    "embed": [
        Flag("output", Path, "Write the vectors to this .npy file, with one row per text.", group="Output"),
    ],
}
"""Command -> its flags besides the options of its task."""
TASKS: Mapping[str, Sequence[str]] = {
    "fill-mask": ["fill-mask"],
    "classify": ["text-classification", "zero-shot-classification"],
    "tag": ["token-classification"],
    "answer": ["question-answering"],
    "choose": ["multiple-choice"],
    "order": ["sentence-order"],
    "embed": ["feature-extraction"],
}
"""Command -> the tasks whose options are its flags."""
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "classify": {"top_k": None},  # all labels
    "tag": {"aggregation_strategy": "first"},
}
"""Command -> the options with another default than in Python."""
_POSITIONAL = {"answer": "question", "choose": "choice"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Computation:
    """The model of a command, its inputs, and how they are computed."""

    model: str = BUNDLED
    """Model folder, Hugging Face Hub name, or 'bundled'. The commands classify, tag, answer and choose need a
    fine-tuned model."""
    file: Path | None = None
    """Read the inputs from this UTF-8 file, one per line: plain text, .tsv (tab-separated columns without a
    header) or .jsonl; or from the rows of a .csv or .parquet table with a header. Blank lines are
    skipped."""
    format: InputFormat | None = None
    """Format of the inputs, if the file extension does not determine it (default: lines)."""
    device: str | None = None
    """Device: cpu, cuda, cuda:1, mps, ... (default: the best available device)."""
    batch_size: int | None = None
    """Maximum number of texts per batch (default: depends on the device). With 1, each line of piped input is
    answered as it arrives."""
    engine: str = "auto"
    """Inference engine: auto (depends on the model), onnx or onnx-int8 (ONNX Runtime on the CPU), torch
    (PyTorch without padding) or plain (the PyTorch model itself). ALBERTKIT_THREADS sets the number of
    threads."""
    json: bool = False
    """Print one JSON line per input."""

    def read(
        self,
        given: Sequence[Any] | None,
        *,
        fields: Sequence[str] = ("text",),
        rest: str | None = None,
        kind: str,
    ) -> NumberedInputs:
        """Return the inputs: from the arguments, from the file (a list), or from the pipe, one by one."""
        if given and self.file is not None:
            raise DataError("texts are passed twice, as arguments and with --file. Pass one of them.")
        if given:
            return NumberedInputs(list(given), "", range(1, len(given) + 1), kind)
        if self.file is None and sys.stdin.isatty():
            raise DataError("there is no text. Pass it as an argument, with --file, or through a pipe.")
        if self.file is None:
            lines, name, format = sys.stdin.buffer, "standard input", self.format or "lines"
            return NumberedInputs.read(lines, name, format=format, fields=fields, rest=rest)
        if self.file == Path("-") and not self.file.exists():
            raise DataError(
                "--file is '-', and there is no file of that name. To read standard input, omit --file."
            )
        if self.format is None and self.file.suffix.lower() in TABLES:
            from albertkit.pipelines.inputs import read_inputs

            return read_inputs(self.file, fields=fields, rest=rest)
        format = self.format or format_of(self.file)
        if self.file.is_file():
            return NumberedInputs.read_file(self.file, format=format, fields=fields, rest=rest)
        lines = self.file.open("rb")  # a pipe such as <(command)
        return NumberedInputs.read(lines, str(self.file), format=format, fields=fields, rest=rest)

    def pipeline(self, task: str, **options: Any) -> Any:
        """Return the pipeline of a task."""
        from albertkit.pipelines import pipeline

        computed = {"device": self.device, "batch_size": self.batch_size, "engine": self.engine}
        return pipeline(task, self.model, **computed, **options)


def flags(verb: str) -> list[Flag]:
    """Return the flags of a command."""
    name = _POSITIONAL.get(verb, "text")
    texts = Flag(
        "texts", list[str], f"{name.capitalize()}s (default: read from --file or standard input).",
        is_positional=True, metavar=name.upper(),
    )  # fmt: skip
    own = {flag.name: flag for task in TASKS[verb] for flag in of_dataclass(OPTIONS[task], group="Options")}
    for option, default in _DEFAULTS.get(verb, {}).items():
        own[option] = dataclasses.replace(own[option], default=default)
    computation = [
        dataclasses.replace(flag, group="Input" if flag.name in ("file", "format") else "Computation")
        for flag in of_dataclass(Computation)
    ]
    if verb == "embed":
        computation[0] = dataclasses.replace(computation[0], default=BUNDLED_SENTENCES)
    return [texts, *_EXTRA.get(verb, ()), *own.values(), *computation]


def run(verb: str, given: Mapping[str, Any]) -> None:
    """Run a command with the flags that were set."""
    values = {**_DEFAULTS.get(verb, {}), **given}
    texts = values.pop("texts", None)
    names = {field.name for field in dataclasses.fields(Computation)}
    shared = {name: values.pop(name) for name in names & values.keys()}
    if verb == "embed":
        shared.setdefault("model", BUNDLED_SENTENCES)
    VERBS[verb](texts, Computation(**shared), values)


def _answered(
    pipeline: Any, inputs: NumberedInputs, change: Callable[[Any], Any] | None = None, **options: Any
) -> Iterator[tuple[Any, Any]]:
    """Yield each input with its answer; `change` converts an input to the pipeline's form."""
    shown, asked = inputs, inputs
    if not inputs.is_list:
        shown, items = tee(inputs)
        asked = dataclasses.replace(inputs, items=items)
    if change is not None:
        asked = asked.map(change)
    return zip(shown, pipeline(asked, **options), strict=True)


def _fill_mask(texts: list[str] | None, computation: Computation, options: dict[str, Any]) -> None:
    inputs = computation.read(texts, kind="text")
    pipeline = computation.pipeline("fill-mask")
    console = new_console()
    for text, answer in _answered(pipeline, inputs, **options):
        if computation.json:
            print_json({"text": text, "predictions": answer})
        else:
            print_masks(
                console, text, answer if isinstance(answer[0], list) else [answer], pipeline.tokenizer
            )


def _classify(texts: list[str] | None, computation: Computation, options: dict[str, Any]) -> None:
    arguments: Any = texts
    kind, pair = "text", options.pop("pair", None)
    if pair is not None:
        if texts is None or len(texts) != 1:
            count = len(texts or [])
            raise DataError(f"--pair is the second text of one text, but there are {count}. Pass one text.")
        arguments, kind = [(texts[0], pair)], "pair"
    is_zero_shot = "candidate_labels" in options
    if not is_zero_shot and {"multi_label", "hypothesis_template"} & options.keys():
        raise ConfigError(
            "--multi-label and --hypothesis-template are for --candidate-labels. Pass them too."
        )
    if is_zero_shot and pair is not None:
        raise ConfigError("--candidate-labels are for single texts. Omit --pair.")
    inputs = computation.read(arguments, fields=("text",) if is_zero_shot else PAIR_FIELDS, kind=kind)
    top_k = options.pop("top_k")
    if is_zero_shot:
        pipeline = computation.pipeline("zero-shot-classification", **options)
    else:
        pipeline = computation.pipeline("text-classification", top_k=top_k, **options)
    is_regression = not is_zero_shot and pipeline.model.config.problem_type == "regression"
    console = new_console()
    for asked, answer in _answered(pipeline, inputs):
        labels = answer
        if is_zero_shot:
            cut = {"cut": answer["cut"]} if "cut" in answer else {}
            pairs = zip(answer["labels"], answer["scores"], strict=True)
            labels = [{"label": label, "score": score, **cut} for label, score in pairs][:top_k]
        if computation.json:
            print_json({**as_fields(asked), "predictions": labels})
            continue
        print_title(console, asked)
        print_cut(console, labels[0])
        if is_regression:
            print_numbers(console, labels)
        else:
            print_bars(console, [(one["label"], one["score"]) for one in labels])
        console.print()


def _tag(texts: list[str] | None, computation: Computation, options: dict[str, Any]) -> None:
    splits = options.pop("words", False)
    inputs = computation.read(texts, kind="text")
    pipeline = computation.pipeline("token-classification", **options)
    if splits:
        inputs = inputs.map(lambda text: " ".join(text.split()) if isinstance(text, str) else text)
    console = new_console()
    name = "entity" if options["aggregation_strategy"] == "none" else "entity_group"
    split = (lambda text: text.split(" ") if isinstance(text, str) else text) if splits else None
    for asked, entities in _answered(pipeline, inputs, split):
        text = asked if isinstance(asked, str) else " ".join(asked)  # the characters count in this text
        if computation.json:
            print_json({"text": text, "entities": entities})
            continue
        print_title(console, text)
        print_spans(console, [(one[name], text[one["start"] : one["end"]], one) for one in entities])


def _answer(questions: list[str] | None, computation: Computation, options: dict[str, Any]) -> None:
    context, context_file = options.pop("context", None), options.pop("context_file", None)
    if context is not None and context_file is not None:
        raise DataError("the context is passed twice, with --context and --context-file. Pass one of them.")
    if context_file is not None:
        from albertkit.text_files import read_text

        context = read_text(context_file)
    if questions and context is None:
        raise DataError("there is no context to answer from. Pass --context or --context-file.")
    fields = QUESTION_FIELDS if context is None else ("question",)
    inputs = computation.read(questions, fields=fields, kind="question")
    if context is not None:
        inputs = inputs.map(lambda question: {"question": question, "context": context})
    pipeline = computation.pipeline("question-answering", **options)
    console = new_console()
    for asked, answers in _answered(pipeline, inputs):
        answers = answers if isinstance(answers, list) else [answers]
        if computation.json:
            # A context that all questions share is not repeated.
            shown = asked if context is None else {"question": asked["question"]}
            print_json({**shown, "answers": answers})
            continue
        print_title(console, asked["question"])
        print_spans(console, [(quote(one, asked["context"]), "", one) for one in answers])


def _choose(choices: list[str] | None, computation: Computation, options: dict[str, Any]) -> None:
    context, question = options.pop("context", None), options.pop("question", None)
    if (not choices) != (context is None):
        raise DataError("received only one of CHOICE and --context. Pass both, or --file.")
    if question is not None and not choices:
        raise DataError("--question is for CHOICE, but lines have their own questions. Omit --question.")
    given = [{"context": context, "question": question, "choices": choices}] if choices else None
    inputs = computation.read(given, fields=CHOICE_FIELDS, rest=CHOICES_FIELD, kind="question")
    pipeline = computation.pipeline("multiple-choice", **options)
    console = new_console()
    for asked, chosen in _answered(pipeline, inputs):
        if computation.json:
            print_json({**asked, "predictions": [chosen]})
            continue
        print_title(console, asked)
        print_cut(console, chosen)
        print_bars(console, list(zip(asked["choices"], chosen["scores"], strict=True)))
        console.print()


def _order(texts: list[str] | None, computation: Computation, options: dict[str, Any]) -> None:
    if texts and len(texts) != 2:
        raise DataError(f"texts received: {len(texts)}. Expected two, or a file of pairs.")
    inputs = computation.read([tuple(texts)] if texts else None, fields=PAIR_FIELDS, kind="pair")
    pipeline = computation.pipeline("sentence-order", **options)
    console = new_console()
    for asked, prediction in _answered(pipeline, inputs):
        if computation.json:
            print_json({**as_fields(asked), "predictions": [prediction]})
            continue
        print_title(console, asked)
        print_cut(console, prediction)
        console.print(f"{prediction['label']}  {100 * prediction['score']:.3g}%\n")


def _embed(texts: list[str] | None, computation: Computation, options: dict[str, Any]) -> None:
    output = options.pop("output", None)
    inputs = computation.read(texts, kind="text")
    from albertkit.files import atomic_path, check_ending, check_new_file

    if output is not None:
        check_ending(output, ".npy")
        check_new_file(output)
    if options.get("pooling") == "none" and (output is not None or not computation.json):
        raise ConfigError("--pooling none returns a vector for each token, which only --json prints.")
    import numpy as np

    from albertkit.checkpoints.sentence_modules import sentence_modules

    pipeline = computation.pipeline("feature-extraction", **options)
    has_pooling = "pooling" in options or sentence_modules(pipeline.model.config) is not None
    rows, vectors, count, cut = list[str](), list[Any](), 0, list[int]()
    call = {"on_cut": cut.append, "pooling": None if has_pooling else "mean"}
    for text, vector in _answered(pipeline, inputs, **call):
        if computation.json:
            print_json({"text": text, "embedding": vector})
        if output is not None or not computation.json:
            rows.append(text)
            vectors.append(np.asarray(vector, dtype=np.float32))
        count += 1
    if output is not None:
        with atomic_path(output) as temporary, temporary.open("wb") as stream:
            np.save(stream, np.stack(vectors))
        if skipped := inputs.numbers[-1] - count:
            print(
                f"blank lines skipped: {skipped:,}. {output} has only rows for the others.", file=sys.stderr
            )
    if not computation.json:
        print_vectors(rows, np.stack(vectors), output)
    if cut:
        limit = pipeline.trained_length or pipeline.max_length
        print(
            f"{len(cut):,} of {count:,} texts exceed the maximum length of {limit:,} tokens: "
            f"{sum(cut):,} tokens were truncated, at most {max(cut):,} in one text",
            file=sys.stderr,
        )


VERBS: Mapping[str, Callable[[list[str] | None, Computation, dict[str, Any]], None]] = {
    "fill-mask": _fill_mask,
    "classify": _classify,
    "tag": _tag,
    "answer": _answer,
    "choose": _choose,
    "order": _order,
    "embed": _embed,
}
