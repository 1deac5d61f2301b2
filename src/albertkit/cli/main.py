"""The `albertkit` command: its subcommands, and errors as one line."""

import codecs
import inspect
import io
import logging
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from albertkit import __version__
from albertkit.errors import AlbertKitError, TooLongError, nearest
from albertkit.logs import lines_shown


class Verb(NamedTuple):
    """A subcommand in the help."""

    panel: str
    help: str
    example: str


_TEXT, _RAW = "Use a model on text", "Train a model from raw text"
_LABELED, _FILES = "Fine-tune and evaluate on labeled data", "Convert, export and inspect models"
VERBS: Mapping[str, Verb] = {
    "fill-mask": Verb(
        _TEXT,
        "Predict the word at each [MASK] of a text.",
        'fill-mask "The captain opened the [MASK]." --top-k 3',
    ),
    "classify": Verb(
        _TEXT,
        "Classify texts or pairs of texts. In a .tsv file, the second column has the second texts.",
        'classify "A wonderful film." --model my-model',
    ),
    "tag": Verb(
        _TEXT,
        "Find entities, chunks or parts of speech in texts of any length.",
        'tag "Queen Anne opened the harbor of Leith." --model my-model',
    ),
    "answer": Verb(
        _TEXT,
        "Answer questions with spans of a context of any length. In a .tsv file, the first column has the "
        "questions and the second the contexts.",
        'answer "Who opened it?" --context "Queen Anne opened the harbor." --model my-model',
    ),
    "choose": Verb(
        _TEXT,
        "Choose the best of several answers to a question. In a .tsv file, the first column has the context, "
        "the second the question, and each further column a choice.",
        'choose fox ship --context "It left the harbor." --question "What was it?" --model M',
    ),
    "order": Verb(
        _TEXT,
        "Predict whether two texts are in order or swapped. In a .tsv file, each line has two columns.",
        'order "There was once a king." "He had three daughters."',
    ),
    "embed": Verb(
        _TEXT,
        "Compute the vectors (embeddings) of texts. For several texts, show their cosine similarities.",
        'embed "A dog barks." "The cat sleeps." --output vectors.npy',
    ),
    "serve": Verb(
        _TEXT,
        "Serve models over HTTP with a JSON API, until SIGTERM or Ctrl-C. The server describes its API at "
        "/openapi.json.",
        "serve --model bundled --model reviews=runs/reviews --port 8080",
    ),
    "playground": Verb(
        _TEXT,
        "Serve a page for trying models in your browser, to this machine only, until Ctrl-C.",
        "playground --model bundled --model reviews=runs/reviews",
    ),
    "train-tokenizer": Verb(
        _RAW,
        "Train a SentencePiece tokenizer with ALBERT's settings.",
        "train-tokenizer books/*.txt --vocab-size 8192 --output tokenizer",
    ),
    "prepare": Verb(
        _RAW,
        "Tokenize raw text and write it as shards, for pretraining.",
        "prepare books/*.txt --tokenizer tokenizer --holdout-every 40 --output shards",
    ),
    "pretrain": Verb(
        _RAW,
        "Pretrain a model on masked language modeling and sentence order, or resume a run. To use several "
        "processes or machines: torchrun --nproc-per-node 8 -m albertkit pretrain ...",
        "pretrain --recipe recipes/mini.toml --data shards --tokenizer tokenizer --output run",
    ),
    "finetune": Verb(
        _LABELED,
        "Fine-tune a model on labeled data and report its metrics.",
        "finetune text-classification --train train.csv --validation dev.csv --output run",
    ),
    "evaluate": Verb(
        _LABELED,
        "Evaluate a fine-tuned model on labeled data, or one model for each task of a benchmark suite.",
        "evaluate --model run --data test.csv --output run/test",
    ),
    "predict": Verb(
        _LABELED,
        "Write a prediction for each example of a file of any size. To resume after an interruption, run the "
        "same command again.",
        "predict --model run --input new.jsonl --output answers.jsonl",
    ),
    "convert": Verb(
        _FILES,
        "Convert a checkpoint to another format, and report every tensor.",
        "convert albert_base_v2.tar.gz albert-base-v2 --verify",
    ),
    "export": Verb(_FILES, "Export a model for other runtimes.", "export onnx bundled bundled.onnx"),
    "export onnx": Verb(
        _FILES,
        "Export a model to ONNX, and compare its outputs with the NumPy reference. If they differ, the "
        "command fails and writes no file. With --int8, it fails if the accuracy drop exceeds --max-drop.",
        "export onnx my-model my-model.onnx",
    ),
    "export web": Verb(
        _FILES,
        "Export a model for transformers.js, in browsers and in Node.js. The new folder has onnx/model.onnx, "
        "onnx/model_quantized.onnx (int8), config.json and the tokenizer files.",
        "export web my-model my-model-web",
    ),
    "inspect": Verb(
        _FILES,
        "Inspect a model: its size and cost, or its attention. `albertkit inspect MODEL` is short for "
        "`albertkit inspect model MODEL`.",
        "inspect bundled",
    ),
    "inspect model": Verb(
        _FILES,
        "Show a model's dimensions, parameters, memory, operations and tokenizer.",
        "inspect model bundled",
    ),
    "inspect attention": Verb(
        _FILES,
        "Show the attention of each token by layer and head, and how the hidden states change by layer. The "
        "command prints a table of the layers. For the attention itself, use --html or --json.",
        'inspect attention "The captain opened the door." --html attention.html',
    ),
    "bench": Verb(
        _FILES,
        "Measure a model's speed by engine, text length and batch size, also as a share of the speed of a "
        "large matrix product on this machine.",
        "bench --plot bench.png",
    ),
}
"""Subcommand -> its help. `export` and `inspect` have subcommands of their own."""
GROUPS = ("export", "inspect")


def flags_of(verb: str) -> list[Any]:
    """Return the flags of a subcommand."""
    from albertkit.cli import text

    if verb in text.TASKS:
        return text.flags(verb)
    from albertkit.cli import verbs

    return verbs.COMMANDS[verb].flags()


def make_app(verbs: Iterable[str] = VERBS, *, show_all: bool = False) -> Any:
    """Return the command line with the flags of some subcommands, and only the help of the others."""
    from cyclopts import App, Group

    from albertkit.cli.parameters import group

    panels = {panel: Group(panel, sort_key=number) for number, panel in enumerate(dict.fromkeys(
        verb.panel for verb in VERBS.values()))}  # fmt: skip
    common: dict[str, Any] = {"help_format": "plaintext", "help_flags": ["--help", "-h"], "version_flags": []}
    root = App(
        name="albertkit",
        help="Pretrain, fine-tune, run and serve ALBERT models. Without --model, commands use a bundled "
        'model, which needs no download.\n\nExample: albertkit fill-mask "She opened the [MASK] and went '
        'into the room."',
        version=__version__,
        version_flags=["--version"],
        help_format="plaintext",
        help_flags=["--help", "-h"],
    )
    apps = {"": root}
    wanted = {*verbs}
    for name, verb in VERBS.items():
        parent, _, last = name.rpartition(" ")
        is_short = name not in wanted  # then only the root's help shows it
        help = verb.help.partition(". ")[0].removesuffix(".") + "."
        if not is_short:
            rest = "" if name in GROUPS or show_all else "\n\n--help-all shows further options and details."
            help = f"{verb.help}\n\nExample: albertkit {verb.example}{rest}"
        panel = panels[verb.panel] if not parent else "Commands"
        app = App(
            name=last,
            help=help,
            group=panel,
            sort_key=len(apps),
            group_arguments=group("Arguments"),
            **common,
        )
        app["--help"].show = False
        if not is_short and name not in GROUPS:
            app.default(_command(name, show_all=show_all))
        apps[parent].command(app)
        apps[name] = app
    return root


def _command(verb: str, *, show_all: bool) -> Any:
    """Return the function of a subcommand, with the signature that cyclopts reads."""
    flags = flags_of(verb)
    ordered = sorted(flags, key=lambda flag: not flag.is_positional)
    signature = inspect.Signature([flag.parameter(show_all=show_all) for flag in ordered])
    splits = {flag.name: flag.splits for flag in flags if flag.splits}

    def call(*args: Any, **kwargs: Any) -> None:
        given = {
            name: _split(name, value, splits[name]) if name in splits else value
            for name, value in signature.bind(*args, **kwargs).arguments.items()
            if value is not None
        }
        from albertkit.cli import text

        if verb in text.TASKS:
            text.run(verb, given)
        else:
            from albertkit.cli import verbs

            verbs.COMMANDS[verb].run(given)

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _split(name: str, value: str, kind: type) -> list[Any]:
    """Return the parts of a value between commas."""
    parts = [part.strip() for part in value.split(",") if part.strip()]
    try:
        return [kind(part) for part in parts]
    except ValueError as error:
        from albertkit.errors import ConfigError

        raise ConfigError(
            f"--{name.replace('_', '-')} is {value!r}. Expected whole numbers separated by commas."
        ) from error


def run() -> None:
    """Run the command line. Expected errors are one line on stderr with exit status 1, wrong usage 2."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(__version__)
        sys.exit(0)
    warnings.showwarning = _print_warning
    _set_encoding()
    show_all = "--help-all" in arguments
    arguments = ["--help" if argument == "--help-all" else argument for argument in arguments]
    for index in range(len(arguments) - 1, 0, -1):  # cyclopts takes a hyphen alone for an option
        if arguments[index] == "-" and arguments[index - 1].startswith("--"):
            arguments[index - 1 : index + 1] = [f"{arguments[index - 1]}=-"]
    verb, arguments = _find_verb(arguments)
    try:
        with lines_shown(always=True):
            _run(verb, arguments, show_all=show_all)
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    except (AlbertKitError, OSError) as error:
        _print_error(_in_words(error))
        sys.exit(1)


def _find_verb(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the subcommand that arguments name, or "", and the arguments with `model` after `inspect`."""
    first, second = (*arguments, "", "")[:2]
    if first == "inspect" and second and f"inspect {second}" not in VERBS and second not in ("--help", "-h"):
        arguments, second = [first, "model", *arguments[1:]], "model"
    verb = f"{first} {second}" if f"{first} {second}" in VERBS else first
    return (verb if verb in VERBS else ""), arguments


def _run(verb: str, arguments: list[str], *, show_all: bool) -> None:
    from cyclopts.exceptions import CycloptsError

    if arguments[:1] in (["--show-completion"], ["--install-completion"], ["__complete"]):
        app = make_app(show_all=True)
        shell: Any = arguments[1] if len(arguments) > 1 else None
        if arguments[0] == "--show-completion":
            print(app.generate_completion(shell=shell))
        elif arguments[0] == "--install-completion":
            print(f"completion installed in {app.install_completion(shell=shell)}")
        else:
            app(arguments)
        return
    app = make_app([verb], show_all=show_all)
    if not arguments or (verb in GROUPS and len(arguments) == 1):
        app.help_print(arguments)
        sys.exit(2 if arguments else 0)
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        _print_error(_usage_error(error, verb))
        sys.exit(2)


def _set_encoding() -> None:
    """Write files and pipes in UTF-8. In a terminal, replace characters that its encoding does not have."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):  # none, or a stream in memory
            continue
        if stream.isatty():
            if stream.errors == "strict":
                stream.reconfigure(errors="replace")
        elif codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(encoding="utf-8", errors=stream.errors)


def _print_warning(message: Warning | str, *_: object) -> None:
    logging.getLogger("albertkit").warning("%s", message)


def _print_error(message: str) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    console.print(f"[red]error:[/] {escape(message)}")


def _in_words(error: Exception) -> str:
    """Return the message of an error with the flag that helps; for errors of files, the file first."""
    if isinstance(error, TooLongError):
        return f"{error.reason} Split it into shorter texts, or pass --truncation."
    if type(error).__module__ == "builtins" and isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        if isinstance(error, FileNotFoundError) and str(error.filename) == "-":
            message += ". Pass the name of a file: '-' does not mean standard input here."
        return message
    return str(error)


def _usage_error(error: Any, verb: str) -> str:
    """Return a usage error as one line: the mistake, the nearest flag, and how to get help."""
    token = getattr(error, "token", None)
    if type(error).__name__ == "UnknownOptionError" and token is not None:
        message = f"Unknown option: {token.keyword or token.value}."
        flags = flags_of(verb) if verb in VERBS and verb not in GROUPS else []
        options = {flag.name: flag.option for flag in flags if not flag.is_positional}
        meant = nearest((token.keyword or token.value).lstrip("-").replace("-", "_"), options)
        message += f" Did you mean {options[meant]}?" if meant else ""
    else:
        message = " ".join(str(error).split())
    return f"{message} See albertkit {verb or ''}".rstrip() + " --help"
