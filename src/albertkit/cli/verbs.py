"""The commands: their help, and the functions whose arguments are their flags."""

import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from albertkit.cli import printing
from albertkit.cli.parameters import Flag, of_dataclass, of_function
from albertkit.errors import ConfigError, suggestion
from albertkit.extras import require
from albertkit.hub import BUNDLED_SENTENCES
from albertkit.options import OPTIONS
from albertkit.serving.settings import KEY_VARIABLE, PREFIX

logger = logging.getLogger(__name__)

_DATA = "albertkit.datasets.options:DataOptions"
_TASK = {"albertkit.tasks.settings:TaskSettings": "Training", _DATA: "Data"}
_DATA_COLUMNS = (
    *("text_column", "pair_column", "label_column", "words_column", "question_column", "context_column"),
    *("answers_column", "choice_columns"),
)
_COMMON = (
    *("epochs", "steps", "batch_size", "batch_tokens", "learning_rate", "max_length", "max_minutes"),
    *("precision", "seed", "early_stopping", "class_weights", "truncation", "init_from", "optimizer"),
    *("warmup_steps", "decay_steps", "problem_type", "max_seq_length"),
    *("text_column", "pair_column", "label_column", "encoding", "delimiter", "merge_labels", "threshold"),
)
"""The settings of runs that `--help` shows; `--help-all` shows all."""
_DTYPE = Literal["float32", "float16", "bfloat16"]
_JSON_REPORT, _JSON_METRICS = "Print the report as one JSON line.", "Print the metrics as one JSON line."
_JSON_LABELS = "Print the metrics, and the scores and confusions of each label, as one JSON line."


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Command:
    """A command that runs a public function, or a group of commands."""

    panel: str
    """The heading of the command in the list of commands."""
    help: str
    example: str
    function: str | None = None
    """The function, "package.module:name"; None for a group of commands."""
    run_with: Callable[..., Any] | None = None
    """A function that runs instead, with further flags."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The dataclasses whose fields are keyword arguments of the function, as "package.module:name" or as the
    task with these options -> the heading of their flags."""
    positional: Sequence[str] = ()
    kinds: Mapping[str, Any] = field(default_factory=dict)
    """Types of flags that differ from those of the signature."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults that differ from those of the function."""
    only: Sequence[str] = ()
    """The flags of the command; empty for all arguments and settings."""
    extra: Sequence[Flag] = ()
    """Further flags."""
    json: str | None = None
    """The help text of `--json`; None if the function prints its results itself."""
    show: Callable[[Any, Mapping[str, Any]], object] = lambda result, _: print(result)
    """Prints the result, if it is not printed as JSON."""
    common: Iterable[str] | None = None
    """The settings that `--help` shows; None for all that are not declared as rare."""
    default: str | None = None
    """The default of the settings in words, for the help."""
    rare: Sequence[str] = ()
    """The arguments that only `--help-all` shows."""
    prefix: str | None = None
    """The prefix of the environment variables that set the flags; None for none."""

    def flags(self) -> list[Flag]:
        if self.function is None:
            return []
        flags = of_function(self.function, positional=self.positional, kinds=self.kinds, rare=self.rare)
        for path, heading in self.settings.items():
            default = None if path == _DATA else self.default
            flags += of_dataclass(_resolve(path), heading, common=self.common, default=default)
        flags += self.extra
        if self.json is not None:
            flags.append(Flag(name="json", kind=bool, help=self.json, default=False, group="Output"))
        flags = [
            replace(
                flag,
                default=self.defaults.get(flag.name, flag.default),
                variable=self.prefix and self.prefix + flag.name.upper(),
            )
            for flag in flags
            if not self.only or flag.name in self.only
        ]
        return list({flag.name: flag for flag in flags}.values())

    def run(self, given: dict[str, Any]) -> None:
        """Run the function with the flags that were set, and print its result."""
        assert self.function is not None
        given = {**self.defaults, **given}
        function = self.run_with or _resolve(self.function)
        if self.run_with is not None or self.json is None:  # it prints its results
            function(**given)
            return
        as_json = given.pop("json", False)
        result = function(**given)
        if as_json:
            values = result.to_json() if hasattr(result, "to_json") else result
            for value in values if isinstance(values, list) else [values]:
                printing.print_json(value)
        else:
            self.show(result, given)


def _resolve(path: str) -> Any:
    if path in OPTIONS:
        return OPTIONS[path]
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError:  # training modules import torch at their top
        require("torch", extra="train")
        raise


# --- commands that do more than one function


def _pretrain(**given: Any) -> None:
    _exit_with(_resolve("albertkit.pretraining.run:pretrain")(**given))


def _finetune(*, json: bool = False, **given: Any) -> None:
    run = _resolve("albertkit.finetuning.finetune:finetune")(**given)
    if getattr(run, "report", None):
        logger.info("best model at step %d; model and report are in %s", run.report["step"], given["output"])
        printing.print_metrics(run.report, json)
    elif getattr(run, "is_main", False):
        resume = "The same command resumes the run, and writes the report when the run has finished."
        logger.info("stopped at step %d. %s", run.step, resume)
    _exit_with(run)


def _convert(*, verbose: bool = False, json: bool = False, **given: Any) -> None:
    report = _resolve("albertkit.conversion:convert")(**given)
    if json:
        printing.print_json(report.to_json())
    else:
        print(report.text(verbose=verbose))


def _exit_with(run: Any) -> None:
    if run.signal is not None:
        sys.exit(128 + run.signal)  # the shell's convention, so that scripts see the interruption


def _evaluate(*, suite: str | None = None, json: bool = False, **given: Any) -> None:
    """Evaluate a model, or one model for each task of a suite."""
    if suite is None:
        from albertkit.finetuning.evaluate import evaluate

        printing.print_metrics(evaluate(**given).report, json, labels=True)
        if given.get("output") is None:
            logger.info("to write a report with the wrong predictions, add --output FOLDER")
        return
    from albertkit.finetuning.suites import evaluate_suite, results_page

    omit = [flag.name for flag in of_dataclass(_resolve(_DATA), "Data") if flag.name in given]
    omit += ["task"] * ("task" in given)
    if omit:
        raise ConfigError(f"a suite has its own tasks, in files with known columns. Omit {', '.join(omit)}.")
    data, model = given.pop("data"), given.pop("model")
    reports = evaluate_suite(suite, data, model, **given)
    if json:
        printing.print_json({name: report.get("metrics") for name, report in reports.items()})
    else:
        print(results_page(suite, model, reports))


def _serve(*, browser: bool | None = None, **given: Any) -> None:
    """Serve until a signal ends the process; `browser` is None for `serve`."""
    from albertkit.serving.request_log import lines_logged
    from albertkit.serving.server import serve

    if browser is None:
        flags = COMMANDS["serve"].flags()
        known = {flag.variable: flag.option for flag in flags if flag.variable} | {KEY_VARIABLE: "the key"}
        with lines_logged(given.get("log_format", "text")):
            for name in sorted(os.environ):
                if name.startswith(PREFIX) and name not in known:
                    logger.warning("%s is not a setting of serve. %s", name, suggestion(name, known))

    def announce(address: str, names: list[str]) -> None:
        page = f"{address}/playground"
        if browser is not None:
            print(f"{', '.join(names)} in the playground at {page}", flush=True)
        else:
            print(f"serving {', '.join(names)} on {address}", flush=True)
            if given.get("playground"):
                print(f"the playground is at {page}", flush=True)
        if browser:
            import threading

            # In a thread: the call lasts as long as a browser of the terminal.
            threading.Thread(target=_open_browser, args=(page,), daemon=True).start()

    # Everything that a server with a JSON log prints is JSON.
    serve(**given, ready=None if given.get("log_format") == "json" else announce)


def _open_browser(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        print("no browser could be opened. Copy the address into your browser.", file=sys.stderr)


# --- the table


def _text_command(function: str, *tasks: str, positional: str | None = "text", **options: Any) -> Command:
    """Return a command of `cli/text.py`, with the options of its tasks.

    Without a positional argument, the function reads its own files.
    """
    settings = dict.fromkeys(tasks, "Options")
    settings |= {"albertkit.cli.text:Source": "Input"} if positional else {}
    settings["albertkit.cli.text:Computation"] = "Computation"
    return Command(
        panel="Use a model on text",
        function=f"albertkit.cli.text:{function}",
        settings=settings,
        positional=(positional,) if positional else (),
        **options,
    )


_SERVED: Mapping[str, Any] = {
    "panel": "Use a model on text",
    "function": "albertkit.serving.server:serve",
    "run_with": _serve,
    "settings": {"albertkit.serving.settings:ServingSettings": "Settings"},
    "kinds": {"model": list[str], "task": list[str]},
}
_RAW: Mapping[str, Any] = {
    "panel": "Train a model from raw text",
    "positional": ("inputs",),
    "kinds": {"inputs": list[str]},
    "json": _JSON_REPORT,
}
_LABELED = "Fine-tune and evaluate on labeled data"
_FILES: Mapping[str, Any] = {
    "panel": "Convert, export and inspect models",
    "positional": ("source", "target"),
    "json": _JSON_REPORT,
}

COMMANDS: Mapping[str, Command] = {
    "fill-mask": _text_command(
        "fill_mask",
        "fill-mask",
        help="Predict the word at each [MASK] of a text.",
        example='fill-mask "The nurse opened the [MASK]." --top-k 3',
    ),
    "classify": _text_command(
        "classify",
        "text-classification",
        "zero-shot-classification",
        help="Classify texts or pairs of texts. In a .tsv file, the second column has the second texts.",
        example='classify "A wonderful film." --model my-model',
        defaults={"top_k": None},  # all labels
    ),
    "tag": _text_command(
        "tag",
        "token-classification",
        help="Find entities, chunks or parts of speech in texts of any length.",
        example='tag "Anna Schmidt works for a bank in Berlin." --model my-model',
        defaults={"aggregation_strategy": "first"},
    ),
    "answer": _text_command(
        "answer",
        "question-answering",
        positional="question",
        help="Answer questions with spans of a context of any length. In a .tsv file, the first column has "
        "the questions and the second the contexts.",
        example='answer "Where does she work?" --context "Anna works in Berlin." --model my-model',
    ),
    "choose": _text_command(
        "choose",
        "multiple-choice",
        positional="choice",
        help="Choose the best of several answers to a question. In a .tsv file, the first column has the "
        "context, the second the question, and each further column a choice.",
        example='choose tea shoes --context "The kettle is on." --question "What is it for?" --model M',
    ),
    "order": _text_command(
        "order",
        "sentence-order",
        help="Predict whether two texts are in order or swapped. In a .tsv file, each line has two columns.",
        example='order "She got up early." "After breakfast, she took the bus to work."',
    ),
    "embed": _text_command(
        "embed",
        "feature-extraction",
        help="Compute the vectors (embeddings) of texts. For several texts, show their cosine similarities.",
        example='embed "A dog barks." "The cat sleeps." --output vectors.npy',
        defaults={"model": BUNDLED_SENTENCES},
    ),
    "search": _text_command(
        "search",
        "feature-extraction",
        positional=None,
        help="Find the texts of a file that are most similar to a query. With --index, the vectors are "
        "computed once and saved.",
        example='search --texts faq.csv --query "How long does shipping take?"',
        defaults={"model": None},
    ),
    "serve": Command(
        **_SERVED,
        help="Serve models over HTTP with a JSON API, until SIGTERM or Ctrl-C. The server describes its API "
        "at /openapi.json.",
        example="serve --model bundled --model reviews=runs/reviews --port 8080",
        prefix=PREFIX,
    ),
    "playground": Command(
        **_SERVED,
        help="Serve a page for trying models in your browser, to this machine only, until Ctrl-C.",
        example="playground --model bundled --model reviews=runs/reviews",
        only=("model", "task", "port", "device", "browser"),
        extra=(Flag(name="browser", kind=bool, help="Open the page in your browser.", can_negate=True),),
        defaults={"port": 0, "browser": True, "playground": True},
    ),
    "train-tokenizer": Command(
        **_RAW,
        help="Train a SentencePiece tokenizer with ALBERT's settings.",
        example="train-tokenizer books --vocab-size 8192 --output tokenizer",
        function="albertkit.pretraining.train_tokenizer:train_tokenizer",
        settings={"albertkit.pretraining.settings:TokenizerSettings": "Settings"},
    ),
    "prepare": Command(
        **_RAW,
        help="Tokenize raw text and write it as shards, for pretraining.",
        example="prepare books --tokenizer tokenizer --holdout-every 40 --output shards",
        function="albertkit.pretraining.prepare:prepare",
        settings={"albertkit.pretraining.settings:PreparationSettings": "Settings"},
    ),
    "pretrain": Command(
        panel=_RAW["panel"],
        help="Pretrain a model on masked language modeling and sentence order, or resume a run. To use "
        "several processes or machines: torchrun --nproc-per-node 8 -m albertkit pretrain ...",
        example="pretrain --recipe mini --data shards --tokenizer tokenizer --output run",
        function="albertkit.pretraining.run:pretrain",
        run_with=_pretrain,
        settings={"albertkit.pretraining.settings:PretrainingSettings": "Training"},
        common=_COMMON,
    ),
    "finetune": Command(
        panel=_LABELED,
        help="Fine-tune a model on labeled data and report its metrics.",
        example="finetune text-classification --train train.csv --validation dev.csv --output run",
        function="albertkit.finetuning.finetune:finetune",
        run_with=_finetune,
        settings={"albertkit.finetuning.settings:FinetuningSettings": "Training", _DATA: "Data"},
        positional=("task",),
        json=_JSON_METRICS,
        common=_COMMON,
    ),
    "evaluate": Command(
        panel=_LABELED,
        help="Evaluate a fine-tuned model on labeled data, or one model for each task of a benchmark suite.",
        example="evaluate --model run --data test.csv --output run/test",
        function="albertkit.finetuning.evaluate:evaluate",
        run_with=_evaluate,
        settings=_TASK,
        extra=(
            Flag(
                name="suite",
                kind=str,
                help="Benchmark suite to evaluate and compare with published results: glue, squad, race or "
                "all. --data is then the folder of its files, and --model a folder of models.",
                group="Data",
            ),
        ),
        json=_JSON_LABELS,
        common=(*_COMMON, *_DATA_COLUMNS),
        default="as the model was fine-tuned",
    ),
    "predict": Command(
        panel=_LABELED,
        help="Write a prediction for each example of a file of any size. To resume after an interruption, "
        "run the same command again.",
        example="predict --model run --input new.jsonl --output answers.jsonl",
        function="albertkit.finetuning.predict:predict",
        settings=_TASK,
        common=(*_COMMON, *_DATA_COLUMNS),
        default="as the model was fine-tuned",
    ),
    "compare": Command(
        panel=_LABELED,
        help="Compare runs of finetune and pretrain: their metrics, the settings that differ, and their "
        "curves in one picture.",
        example="compare runs/a runs/b --output compare.png",
        function="albertkit.training.compare:compare",
        positional=("runs",),
        kinds={"runs": list[str]},
        json="Print a JSON line for each run.",
        show=lambda comparison, _: printing.print_comparison(comparison),
    ),
    "convert": Command(
        **_FILES,
        help="Convert a checkpoint to another format.",
        example="convert albert_base_v2.tar.gz albert-base-v2 --verify",
        function="albertkit.conversion:convert",
        run_with=_convert,
        extra=(
            Flag(
                name="verbose",
                kind=bool,
                help="Print every tensor, and the SHA-256 of every file.",
                default=False,
                group="Output",
            ),
        ),
        kinds={"to": Literal["hf", "tf1", "julia"], "dtype": _DTYPE, "max_shard_size": str},
    ),
    "export": Command(
        panel=_FILES["panel"],
        help="Export a model for other runtimes.",
        example="export onnx bundled bundled.onnx",
    ),
    "export onnx": Command(
        **_FILES,
        help="Export a model to ONNX, and compare its outputs with the NumPy reference. If they differ, the "
        "command fails and writes no file. With --int8, it fails if the accuracy drop exceeds --max-drop.",
        example="export onnx my-model my-model.onnx",
        function="albertkit.export.onnx:export_onnx",
        settings={_DATA: "Data"},
        kinds={"dtype": _DTYPE, "compute": Literal["float32", "float16"]},
        common=(),
    ),
    "export web": Command(
        **_FILES,
        help="Export a model for transformers.js, in browsers and in Node.js. The new folder has "
        "onnx/model.onnx, onnx/model_quantized.onnx (int8), config.json and the tokenizer files.",
        example="export web my-model my-model-web",
        function="albertkit.web.export:export_web",
        settings={_DATA: "Data"},
        kinds={"dtype": _DTYPE},
        common=(),
    ),
    "inspect": Command(
        panel=_FILES["panel"],
        help="Inspect a model: its size and cost, or its attention. `albertkit inspect MODEL` is short for "
        "`albertkit inspect model MODEL`.",
        example="inspect bundled",
    ),
    "inspect model": Command(
        panel=_FILES["panel"],
        help="Show a model's dimensions, parameters, memory, operations and tokenizer.",
        example="inspect model bundled",
        function="albertkit.inspection.model:inspect_model",
        positional=("model",),
        json=_JSON_REPORT,
        show=lambda report, _: printing.print_model(report),
    ),
    "inspect attention": Command(
        panel=_FILES["panel"],
        help="Show the attention of each token by layer and head, and how the hidden states change by "
        "layer. The command prints a table of the layers. For the attention itself, use --html or --json.",
        example='inspect attention "She opened the door." --html attention.html',
        function="albertkit.inspection.attention:inspect_attention",
        positional=("text",),
        json="Print one JSON object.",
        show=lambda report, given: printing.print_attention(report, given.get("html")),
        rare=("tokenizer",),
    ),
    "bench": Command(
        panel=_FILES["panel"],
        help="Measure a model's speed by engine, text length and batch size, also as a share of the speed of "
        "a large matrix product on this machine.",
        example="bench --plot bench.png",
        function="albertkit.bench:bench",
        json="Print a JSON line for the machine and the model, then one per measurement.",
        show=lambda report, given: printing.print_bench(report, given.get("plot")),
    ),
}
"""The name of a command as it is typed -> the command. `export` and `inspect` have commands of their own."""
