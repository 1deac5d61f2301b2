"""The commands that run a public function: its flags, and how its result is printed."""

import importlib
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from albertkit.cli.parameters import Flag, of_dataclass, of_function
from albertkit.cli.printing import (
    print_attention,
    print_bench,
    print_json,
    print_metrics,
    print_model,
    print_result,
)
from albertkit.errors import ConfigError
from albertkit.extras import require

logger = logging.getLogger(__name__)

_LABELED = "albertkit.datasets.options:DataOptions"
_TASK = "albertkit.tasks.settings:TaskSettings"
_DATA = (
    *("text_column", "pair_column", "label_column", "words_column", "question_column", "context_column"),
    *("answers_column", "choice_columns"),
)
_COMMON = {
    *("epochs", "steps", "batch_size", "batch_tokens", "learning_rate", "max_length", "max_minutes"),
    *("precision", "seed", "early_stopping", "class_weights", "truncation", "init_from", "optimizer"),
    *("warmup_steps", "decay_steps", "problem_type", "max_seq_length"),
    *("text_column", "pair_column", "label_column"),
}
"""The settings of runs that `--help` shows; `--help-all` shows all."""
_DTYPE = Literal["float32", "float16", "bfloat16"]


def _print_run(run: Any, as_json: bool, given: Mapping[str, Any]) -> None:
    if getattr(run, "report", None):
        logger.info("best model at step %d; model and report are in %s", run.report["step"], given["output"])
        print_metrics(run.report, as_json)
    elif getattr(run, "is_main", False):
        logger.info("stopped at step %d; the same command resumes the run", run.step)
    _exit_with(run)


def _exit_with(run: Any, *_: Any) -> None:
    if run.signal is not None:
        sys.exit(128 + run.signal)  # the shell's convention, so that scripts see the interruption


def _print_attention(report: Any, as_json: bool, given: Mapping[str, Any]) -> None:
    if as_json:
        print_json(report.to_json())
    else:
        html = given.get("html")
        print_attention(report, None if html is None else Path(html))


def _print_result(result: Any, as_json: bool, *_: Any) -> None:
    print_result(result, as_json)


def _print_evaluation(evaluation: Any, as_json: bool, *_: Any) -> None:
    print_metrics(evaluation.report, as_json)


def _print_model(report: Any, as_json: bool, *_: Any) -> None:
    (print_json if as_json else print_model)(report)


def _print_bench(report: Any, as_json: bool, given: Mapping[str, Any]) -> None:
    if as_json:
        for one in report.to_json():
            print_json(one)
    else:
        print_bench(report, given.get("plot"))


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command that runs a public function."""

    function: str
    """The function, "package.module:name"."""
    settings: Sequence[str] = ()
    """The dataclasses whose fields are keyword arguments of the function."""
    positional: Sequence[str] = ()
    kinds: Mapping[str, Any] = field(default_factory=dict)
    """Types of flags that differ from those of the signature."""
    help: Mapping[str, str] = field(default_factory=dict)
    """Help texts of flags that differ from the docstring."""
    json: str | None = None
    """The help text of `--json`; None if there is no such flag."""
    show: Callable[[Any, bool, Mapping[str, Any]], None] = _print_result
    """Prints the result."""
    common: Iterable[str] | None = None
    """The settings that `--help` shows; None for all."""
    default: str | None = None
    """The default of the settings, for the help."""
    rare: Iterable[str] = ()

    def flags(self) -> list[Flag]:
        """Return the flags of the command."""
        groups: dict[str, str] = dict.fromkeys(
            ("train", "validation", "data", "input", "inputs", "calibrate"), "Data"
        )
        groups |= dict.fromkeys(("output", "json", "html", "plot", "target"), "Output")
        own = of_function(
            self.function, positional=self.positional, groups=groups, kinds=self.kinds, rare=self.rare
        )
        for path in self.settings:
            is_data = path == _LABELED
            own += of_dataclass(
                _resolve(path),
                group="Data" if is_data else "Training" if self.common else "Settings",
                common=self.common,
                default=None if is_data else self.default,
                overrides=not is_data,
            )
        if self.json is not None:
            own.append(Flag("json", bool, self.json, default=False, group="Output"))
        changed = [
            replace(flag, help=self.help[flag.name]) if flag.name in self.help else flag for flag in own
        ]
        return list({flag.name: flag for flag in changed}.values())

    def run(self, given: dict[str, Any]) -> None:
        """Run the function with the flags that were set, and print its result."""
        as_json = given.pop("json", False)
        self.show(_resolve(self.function)(**given), as_json, given)


def _resolve(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError:  # training modules import torch at their top
        require("torch", extra="train")
        raise


_CORPUS = (
    "Text files, folders or glob patterns: .txt, .jsonl or .parquet, optionally compressed (.gz, .zst or "
    ".bz2)."
)
_SOURCE = (
    "Model folder, TensorFlow checkpoint (folder, prefix or .tar.gz), Julia .tfbson file, or Hugging Face "
    "Hub name."
)
_TASKS = (
    "Task: text-classification, token-classification, question-answering, multiple-choice or "
    "sentence-embedding."
)
_JSON_REPORT, _JSON_METRICS = "Print the report as one JSON line.", "Print the metrics as one JSON line."
_INFERENCE = {
    "model": "Model folder or Hugging Face Hub name.",
    "task": f"{_TASKS} Default: the task that the model was fine-tuned for.",
    "device": "Device: auto (the best available device), cpu, cuda, cuda:1, mps, ...",
}


class _Evaluate(Command):
    """`evaluate`, for a model or for one model for each task of a benchmark suite."""

    def flags(self) -> list[Flag]:
        """Add `--suite`."""
        text = (
            "Benchmark suite to evaluate and compare with published results: glue, squad, race or all. "
            "--data is then the folder of its files, and --model a folder of models."
        )
        return [*super().flags(), Flag("suite", str, text, group="Data")]

    def run(self, given: dict[str, Any]) -> None:
        """Evaluate a model, or a suite."""
        suite = given.pop("suite", None)
        if suite is None:
            super().run(given)
            return
        from albertkit.finetuning.suites import evaluate_suite, results_page, write_results

        columns = [flag.name for flag in of_dataclass(_resolve(_LABELED)) if flag.name in given]
        if columns or "task" in given:
            omit = ", ".join([*columns, *["task"] * ("task" in given)])
            raise ConfigError(f"a suite has its own tasks, in files with known columns. Omit {omit}.")
        as_json, data, model = given.pop("json", False), given.pop("data"), given.pop("model")
        reports = evaluate_suite(suite, data, model, **given)
        if given.get("output") is not None:
            write_results(suite, model, reports, Path(given["output"]))
        if as_json:
            print_json({name: report.get("metrics") for name, report in reports.items()})
        else:
            print(results_page(suite, model, reports))


class _Serve(Command):
    """`serve` and `playground`."""

    def run(self, given: dict[str, Any]) -> None:
        """Serve until a signal ends the process."""
        from albertkit.serving.server import serve

        opens = given.pop("browser", None)

        def announce(address: str, names: list[str]) -> None:
            page = f"{address}/playground"
            if opens is None:
                print(f"serving {', '.join(names)} on {address}", flush=True)
                if given.get("playground"):
                    print(f"the playground is at {page}", flush=True)
                return
            print(f"{', '.join(names)} in the playground at {page}", flush=True)
            if opens:
                import threading

                # In a thread: the call lasts as long as a browser of the terminal.
                threading.Thread(target=_open_browser, args=(page,), daemon=True).start()

        serve(**given, ready=announce)


class _Playground(_Serve):
    """`playground`: `serve` with the page, for this machine only."""

    def flags(self) -> list[Flag]:
        """Return a few of the flags of `serve`."""
        known = {flag.name: flag for flag in super().flags()}
        port = Flag("port", int, "Port to listen on; 0 for any free port.", default=0)
        browser = Flag("browser", bool, "Open the page in your browser.", default=True, can_negate=True)
        return [known["model"], known["task"], port, known["device"], browser]

    def run(self, given: dict[str, Any]) -> None:
        """Serve the page."""
        super().run({"port": 0, "browser": True, "playground": True, **given})


def _open_browser(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        print("no browser could be opened. Copy the address into your browser.", file=sys.stderr)


_SERVED = {
    "function": "albertkit.serving.server:serve",
    "settings": ("albertkit.serving.settings:ServingSettings",),
    "kinds": {"model": list[str], "task": list[str]},
    "help": {
        "model": "Model folder, Hugging Face Hub name, or 'bundled'. Requests refer to the model by NAME in "
        "NAME=MODEL (default: the last part of MODEL). Can be repeated.",
        "task": "Pipeline task of a model as NAME=TASK, if its head does not determine it. Can be repeated.",
    },
}
COMMANDS: Mapping[str, Command] = {
    "serve": _Serve(**_SERVED),
    "playground": _Playground(**_SERVED),
    "train-tokenizer": Command(
        function="albertkit.pretraining.train_tokenizer:train_tokenizer",
        settings=("albertkit.pretraining.settings:TokenizerSettings",),
        positional=("inputs",),
        kinds={"inputs": list[str]},
        help={"inputs": _CORPUS},
        json=_JSON_REPORT,
    ),
    "prepare": Command(
        function="albertkit.pretraining.prepare:prepare",
        settings=("albertkit.pretraining.settings:PreparationSettings",),
        positional=("inputs",),
        kinds={"inputs": list[str]},
        help={"inputs": _CORPUS, "tokenizer": "Folder or Hugging Face Hub name of the tokenizer."},
        json=_JSON_REPORT,
    ),
    "pretrain": Command(
        function="albertkit.pretraining.pretrain:pretrain",
        settings=("albertkit.pretraining.settings:PretrainingSettings",),
        kinds={"recipe": Path},
        help={
            "data": "Folder with the shards that albertkit prepare wrote.",
            "output": "Folder of the run. An existing run is resumed.",
            "recipe": "TOML file with settings. Flags override it.",
        },
        show=_exit_with,
        common=_COMMON,
    ),
    "finetune": Command(
        function="albertkit.finetuning.finetune:finetune",
        settings=("albertkit.finetuning.settings:FinetuningSettings", _LABELED),
        positional=("task",),
        kinds={"task": str, "train": str, "validation": str, "recipe": Path},
        help={
            "task": _TASKS,
            "train": "Labeled training data: a file or a folder.",
            "validation": "Labeled data that selects the best model: a file or a folder. Default: a tenth of "
            "--train, held out.",
            "output": "Folder of the run. An existing run is resumed.",
            "recipe": "TOML file with settings. Flags override it.",
            "device": _INFERENCE["device"],
            "model": "Model to start from: folder, Hugging Face Hub name, or 'bundled'.",
        },
        json=_JSON_METRICS,
        show=_print_run,
        common=_COMMON,
    ),
    "evaluate": _Evaluate(
        function="albertkit.finetuning.evaluate:evaluate",
        settings=(_TASK, _LABELED),
        kinds={"data": str, "task": str, "output": Path},
        help=_INFERENCE | {"data": "Labeled data: a file or a folder."},
        json=_JSON_METRICS,
        show=_print_evaluation,
        common=_COMMON | {*_DATA},
        default="as the model was fine-tuned",
    ),
    "predict": Command(
        function="albertkit.finetuning.predict:predict",
        settings=(_TASK, _LABELED),
        kinds={"input": str, "task": str},
        help=_INFERENCE
        | {
            "input": "File or folder of examples. Labels are ignored.",
            "output": "File to write the predictions to: .jsonl, .csv, .tsv or .parquet.",
        },
        show=lambda *_: None,
        common=_COMMON | {*_DATA},
        default="as the model was fine-tuned",
    ),
    "convert": Command(
        function="albertkit.conversion:convert",
        positional=("source", "target"),
        kinds={"to": Literal["hf", "tf1", "julia"], "dtype": _DTYPE, "max_shard_size": str},
        help={
            "source": _SOURCE,
            "target": "Folder to write, or for Julia a .tfbson or .bson file.",
            "to": "Format to write: hf (Hugging Face folder), tf1 (Google's TensorFlow 1) or julia (BSON). "
            "Default: julia for a .tfbson or .bson file, else hf.",
        },
        json=_JSON_REPORT,
    ),
    "export onnx": Command(
        function="albertkit.export.onnx:export_onnx",
        settings=(_LABELED,),
        positional=("source", "target"),
        kinds={"texts": Path, "dtype": _DTYPE, "compute": Literal["float32", "float16"]},
        help={"source": _SOURCE},
        json=_JSON_REPORT,
        common=(),
    ),
    "export web": Command(
        function="albertkit.web.export:export_web",
        settings=(_LABELED,),
        positional=("source", "target"),
        kinds={"texts": Path, "dtype": _DTYPE},
        help={"source": _SOURCE},
        json=_JSON_REPORT,
        common=(),
    ),
    "inspect model": Command(
        function="albertkit.inspection.model:inspect_model",
        positional=("model",),
        json=_JSON_REPORT,
        show=_print_model,
    ),
    "inspect attention": Command(
        function="albertkit.inspection.attention:inspect_attention",
        positional=("text",),
        kinds={"html": Path},
        help={"html": "Write a page with the attention of every layer and head to this HTML file."},
        json="Print one JSON object.",
        show=_print_attention,
        rare=("tokenizer",),
    ),
    "bench": Command(
        function="albertkit.bench:bench",
        kinds={"plot": Path, "texts": Path},
        json="Print a JSON line for the machine and the model, then one per measurement.",
        show=_print_bench,
    ),
}
"""Command -> its function and flags."""
