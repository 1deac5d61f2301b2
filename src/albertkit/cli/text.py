"""The commands that answer texts: inputs from arguments, files and pipes, answers for people and as JSON.

The signature and the docstring of each function are the flags of its command, with the fields of `Source` and
`Computation`, and the options of its tasks (`albertkit.options`).
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import tee
from pathlib import Path
from typing import Any, cast

from albertkit.cli import printing
from albertkit.cli.printing import as_fields, new_console, print_json, print_title
from albertkit.datasets.inputs import (
    CHOICE_FIELDS,
    CHOICES_FIELD,
    PAIR_FIELDS,
    QUESTION_FIELDS,
    InputFormat,
    NumberedInputs,
    read_inputs,
)
from albertkit.errors import ConfigError, DataError
from albertkit.extras import require
from albertkit.hub import BUNDLED, BUNDLED_SENTENCES
from albertkit.logs import ProgressBar


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """The file with the inputs of a command."""

    file: Path | None = None
    """Read the inputs from this UTF-8 file, one per line: plain text, .tsv (tab-separated columns without a
    header) or .jsonl; or from the rows of a .csv, .xlsx or .parquet table with a header. Blank lines
    are skipped."""
    format: InputFormat | None = None
    """Format of the inputs, if the file extension does not determine it (default: lines)."""

    def read(
        self,
        given: Sequence[Any] | None,
        fields: Sequence[str] = ("text",),
        *,
        rest: str | None = None,
        kind: str = "text",
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
            raise DataError("--file is '-', but no file has this name. To read standard input, omit --file.")
        inputs = read_inputs(self.file, fields=fields, rest=rest, format=self.format)
        # All inputs of a file are checked before the first answer, but not those of a pipe (<(command)).
        return dataclasses.replace(inputs, items=list(inputs)) if self.file.is_file() else inputs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Computation:
    """The model of a command, how it is computed, and how its answers are printed."""

    model: str = BUNDLED
    """Model folder, Hugging Face Hub name, or 'bundled'. The commands classify, tag, answer and choose need a
    fine-tuned model."""
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

    def pipeline(self, task: str, **options: Any) -> Any:
        from albertkit.pipelines.core import pipeline

        computed = {"device": self.device, "batch_size": self.batch_size, "engine": self.engine}
        return pipeline(task, self.model, **computed, **options)


def _split(given: Mapping[str, Any]) -> tuple[Source, Computation, dict[str, Any]]:
    """Return the source, the computation, and the options of the task."""
    options = dict(given)

    def take(kind: Any) -> Any:
        return kind(**{name: options.pop(name) for name in kind.__annotations__ if name in options})

    return take(Source), take(Computation), options


def _answered(
    pipeline: Any,
    inputs: NumberedInputs,
    change: Callable[[Any], Any] | None = None,
    *,
    prints: bool = True,
    **options: Any,
) -> Iterator[tuple[Any, Any]]:
    """Yield each input with its answer; `change` converts an input to the pipeline's form.

    Unless answers appear in the terminal, which `prints` says, a progress bar does.
    """
    shown, items = (inputs.items, inputs.items) if inputs.is_list else tee(inputs)
    asked = dataclasses.replace(inputs, items=items)
    if change is not None:
        asked = asked.map(change)
    total = len(cast(Any, items)) if inputs.is_list else None
    answered = zip(shown, pipeline(asked, **options), strict=True)
    if prints and sys.stdout.isatty():
        yield from answered
        return
    with ProgressBar(lines=False) as bar:
        for number, pair in enumerate(answered, start=1):
            yield pair
            bar.update_count(number, total, "texts")


def fill_mask(text: list[str] | None = None, **given: Any) -> None:
    """Print the candidates for each mask.

    Args:
        text: Texts (default: read from --file or standard input).
    """
    source, computation, options = _split(given)
    inputs = source.read(text)
    pipeline = computation.pipeline("fill-mask")
    console = new_console()
    for asked, answer in _answered(pipeline, inputs, **options):
        if computation.json:
            print_json({"text": asked, "predictions": answer})
        else:
            masks = answer if isinstance(answer[0], list) else [answer]
            printing.print_masks(console, asked, masks, pipeline.tokenizer)


def classify(text: list[str] | None = None, *, pair: str | None = None, **given: Any) -> None:
    """Print the labels of each text.

    Args:
        text: Texts (default: read from --file or standard input).
        pair: Second text, to classify a pair of texts.
    """
    source, computation, options = _split(given)
    if pair is not None and len(text or []) != 1:
        count = len(text or [])
        raise DataError(f"--pair is the second text of one text, but there are {count}. Pass one text.")
    is_zero_shot, top_k = "candidate_labels" in options, options.pop("top_k")
    if not is_zero_shot and {"multi_label", "hypothesis_template"} & options.keys():
        raise ConfigError("--multi-label and --hypothesis-template also need --candidate-labels.")
    if is_zero_shot and "threshold" in options:
        raise ConfigError("--threshold is for fine-tuned classifiers. Omit it or --candidate-labels.")
    if is_zero_shot and pair is not None:
        raise ConfigError("--candidate-labels are for single texts. Omit --pair.")
    texts: Any = text if pair is None else [((text or [""])[0], pair)]
    inputs = source.read(
        texts, ("text",) if is_zero_shot else PAIR_FIELDS, kind="text" if pair is None else "pair"
    )
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
        print_title(console, asked, cut=labels[0].get("cut", 0))
        if is_regression:
            for label in labels:
                is_unnamed = len(labels) == 1 and label["label"] == "LABEL_0"
                console.print(f"{'score' if is_unnamed else label['label']}  {label['score']:.4g}")
        else:
            printing.print_bars(console, [(label["label"], label["score"]) for label in labels])
        if any("predicted" in label for label in labels):
            predicted = ", ".join(label["label"] for label in labels if label["predicted"])
            console.print(f"predicted: {predicted or 'none (no label exceeds its threshold)'}")
        console.print()


def tag(text: list[str] | None = None, *, words: bool = False, **given: Any) -> None:
    """Print the entities of each text.

    Args:
        text: Texts (default: read from --file or standard input).
        words: Treat the texts as words separated by spaces.
    """
    source, computation, options = _split(given)
    inputs = source.read(text)
    pipeline = computation.pipeline("token-classification", **options)
    if words:
        inputs = inputs.map(lambda text: " ".join(text.split()) if isinstance(text, str) else text)
    console = new_console()
    name = "entity" if options["aggregation_strategy"] == "none" else "entity_group"
    split = (lambda text: text.split(" ") if isinstance(text, str) else text) if words else None
    for asked, entities in _answered(pipeline, inputs, split):
        shown = asked if isinstance(asked, str) else " ".join(asked)  # the characters count in this text
        if computation.json:
            print_json({"text": shown, "entities": entities})
            continue
        print_title(console, shown)
        spans = [(entity[name], shown[entity["start"] : entity["end"]], entity) for entity in entities]
        printing.print_spans(console, spans)


def answer(
    question: list[str] | None = None,
    *,
    context: str | None = None,
    context_file: Path | None = None,
    **given: Any,
) -> None:
    """Print the answers to each question.

    Args:
        question: Questions (default: read from --file or standard input).
        context: Text that contains the answers.
        context_file: UTF-8 file with the context.
    """
    source, computation, options = _split(given)
    if context is not None and context_file is not None:
        raise DataError("the context is passed twice, with --context and --context-file. Pass one of them.")
    if context_file is not None:
        from albertkit.text_files import read_text

        context = read_text(context_file)
    if question and context is None:
        raise DataError("there is no context to answer from. Pass --context or --context-file.")
    inputs = source.read(question, QUESTION_FIELDS if context is None else ("question",), kind="question")
    if context is not None:
        inputs = inputs.map(lambda asked: {"question": asked, "context": context})
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
        spans = [(printing.quote(each, asked["context"]), "", each) for each in answers]
        printing.print_spans(console, spans)


def choose(
    choice: list[str] | None = None,
    *,
    context: str | None = None,
    question: str | None = None,
    **given: Any,
) -> None:
    """Print the probability of each choice.

    Args:
        choice: Choices (default: read from --file or standard input).
        context: Text that the question is about.
        question: Question. If it contains '_', each choice replaces the '_'.
    """
    source, computation, options = _split(given)
    if (not choice) != (context is None):
        raise DataError("received only one of CHOICE and --context. Pass both, or --file.")
    if question is not None and not choice:
        raise DataError("--question is for CHOICE, but lines have their own questions. Omit --question.")
    items = [{"context": context, "question": question, "choices": choice}] if choice else None
    inputs = source.read(items, CHOICE_FIELDS, rest=CHOICES_FIELD, kind="question")
    pipeline = computation.pipeline("multiple-choice", **options)
    console = new_console()
    for asked, chosen in _answered(pipeline, inputs):
        if computation.json:
            print_json({**asked, "predictions": [chosen]})
            continue
        print_title(console, asked, cut=chosen.get("cut", 0))
        printing.print_bars(console, list(zip(asked["choices"], chosen["scores"], strict=True)))
        console.print()


def order(text: list[str] | None = None, **given: Any) -> None:
    """Print the predicted order of each pair.

    Args:
        text: Texts (default: read from --file or standard input).
    """
    source, computation, options = _split(given)
    if text and len(text) != 2:
        raise DataError(f"texts received: {len(text)}. Expected two, or a file of pairs.")
    inputs = source.read([tuple(text)] if text else None, PAIR_FIELDS, kind="pair")
    pipeline = computation.pipeline("sentence-order", **options)
    console = new_console()
    for asked, prediction in _answered(pipeline, inputs):
        if computation.json:
            print_json({**as_fields(asked), "predictions": [prediction]})
            continue
        print_title(console, asked, cut=prediction.get("cut", 0))
        console.print(f"{prediction['label']}  {100 * prediction['score']:.3g}%\n")


def embed(text: list[str] | None = None, *, output: Path | None = None, **given: Any) -> None:
    """Print or write the vector of each text.

    Args:
        text: Texts (default: read from --file or standard input).
        output: Write the vectors to this .npy or .parquet file, with one row per text.
    """
    source, computation, options = _split(given)
    inputs = source.read(text)
    from albertkit.files import check_ending, check_new_file

    if output is not None:
        check_ending(output, ".npy", ".parquet")
        if output.suffix.lower() == ".parquet":
            require("pyarrow", extra="arrow")
        check_new_file(output)
    if options.get("pooling") == "none" and (output is not None or not computation.json):
        raise ConfigError("--pooling none returns a vector for each token, which only --json prints.")
    import numpy as np

    from albertkit.checkpoints.sentence_modules import sentence_modules

    pipeline = computation.pipeline("feature-extraction", **options)
    has_pooling = "pooling" in options or sentence_modules(pipeline.model.config) is not None
    rows, vectors, count, cut = list[str](), list[Any](), 0, list[int]()
    call = {"on_cut": cut.append, "pooling": None if has_pooling else "mean", "return_tensors": "np"}
    for asked, vector in _answered(pipeline, inputs, prints=computation.json, **call):
        if computation.json:
            print_json({"text": asked, "embedding": vector})
        if output is not None or not computation.json:
            rows.append(asked)
            vectors.append(vector)
        count += 1
    matrix = np.stack(vectors) if vectors else None
    if output is not None:
        _write_vectors(output, rows, matrix)
        if skipped := inputs.numbers[-1] - count:
            note = f"blank lines skipped: {skipped:,}. {output} has only rows for the others."
            print(note, file=sys.stderr)
    if not computation.json:
        assert matrix is not None
        printing.print_vectors(rows, matrix, output)
    if cut:
        from albertkit.pipelines.core import cut_note

        print(cut_note(pipeline, cut, count), file=sys.stderr)


def _write_vectors(output: Path, texts: list[str], matrix: Any) -> None:
    import numpy as np

    from albertkit.files import atomic_path

    with atomic_path(output) as temporary:
        if output.suffix.lower() == ".npy":
            with temporary.open("wb") as stream:
                np.save(stream, matrix)
        else:
            import pyarrow as pa
            from pyarrow.parquet import write_table

            vectors = pa.FixedSizeListArray.from_arrays(matrix.reshape(-1), matrix.shape[1])
            write_table(pa.table({"text": texts, "vector": vectors}), temporary)


def search(
    query: list[str] | None = None,
    *,
    queries: Path | None = None,
    texts: Path | None = None,
    index: Path | None = None,
    add: bool = False,
    remove: list[str] | None = None,
    top_k: int = 5,
    text_column: str | None = None,
    id_column: str | None = None,
    **given: Any,
) -> None:
    """Print the texts that are most similar to each query.

    Args:
        query: Query. Repeat the flag for several.
        queries: File of queries: one per line, or .jsonl, .csv or .parquet with a column `text`.
        texts: File of texts to search: one per line (.txt), or a table (.csv, .tsv, .jsonl, .xlsx, .parquet).
        index: Folder of an index of texts, to build with --texts, or to search. If the index has these texts,
            it is not built again.
        add: Add --texts to the index in the folder. A text replaces the text with the same id.
        remove: Id of a text to remove from the index. Repeat the flag for several.
        top_k: Number of texts for each query.
        text_column: Column of the texts in a table (default: that of the index, text, another usual name, or
            the texts that are clearly the longest).
        id_column: Column of the ids in a table (default: that of the index, id, or the number of the row).
    """
    _, computation, options = _split(given)
    if texts is None and index is None:
        raise DataError("there is nothing to search. Pass --texts FILE, --index FOLDER, or both.")
    if add and texts is None:
        raise DataError("there are no texts to add. Pass --texts FILE.")
    asked = [*(query or []), *(Source(file=queries).read(None) if queries else [])]
    if not asked and not remove and (texts is None or index is None):
        raise DataError("there is no query. Pass --query, or --texts and --index to build an index.")
    from albertkit.options import check_size
    from albertkit.pipelines.search import INDEX, Index

    check_size("top_k", top_k)
    columns = {"text_column": text_column, "id_column": id_column}
    saved = Index.load(index) if index is not None and (index / INDEX).is_file() else None
    if saved is None and texts is None:
        raise DataError(f"{index} has no index. Pass --texts FILE to build one.")
    if saved is None and remove:
        raise DataError("there is no index to remove texts from. Pass its folder with --index.")
    is_known = saved is not None and (texts is None or saved.has_file(texts, **columns))
    if saved is not None and not is_known and not add:
        raise DataError(
            f"{index} has other texts than {texts}. Omit --texts to search them, pass --add to add the "
            "file, or choose another folder."
        )
    if saved is not None:
        for name in {"pooling", "normalize"} & options.keys():
            if options[name] != saved.options.get(name):
                raise DataError(
                    f"the index has vectors with {name} {saved.options.get(name, 'as in the model')}. Omit "
                    f"--{name}, or build another index."
                )
    change = ""
    model = computation.model or (saved and saved.model) or BUNDLED_SENTENCES
    pipeline = dataclasses.replace(computation, model=model).pipeline("feature-extraction")
    if saved is None:
        if index is not None:
            from albertkit.files import check_new_folder

            check_new_folder(index)  # before the vectors are computed
        saved = Index.build(texts, pipeline, **columns, **options)
    else:
        saved.model = pipeline
        if not is_known:
            before, added = len(saved), saved.add(texts, **columns, **options)
            replaced = before + added - len(saved)
            change = f"; new: {added - replaced:,}, replaced: {replaced:,}"
        if remove:
            change += f"; removed: {saved.remove(remove):,}"
    if index is not None and (change or not is_known):
        saved.save(index)
        note = f"{len(saved):,} texts of {saved.dimensions} dimensions, written to {index}{change}"
        print(note, file=sys.stderr if asked else sys.stdout)
    elif texts is not None and not asked:
        print(f"{index} already has the texts of {texts}")
    console = new_console()
    for question, matches in zip(asked, saved.search(asked, top_k, **options), strict=True):
        if computation.json:
            print_json({"query": question, "matches": matches})
        else:
            print_title(console, question)
            printing.print_matches(console, matches)
