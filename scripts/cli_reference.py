"""Write docs/reference/cli.md, the reference of the command line.

    python scripts/cli_reference.py           # after a change of a command or an option
    python scripts/cli_reference.py --check   # prints the differences, and fails if there are any

Descriptions of commands and options come from `--help`. The tables at the end of the page are in this file.
"""

import argparse
import difflib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from albertkit import cores
from albertkit.cli.main import make_app
from albertkit.files import atomic_path
from albertkit.serving.settings import KEY_VARIABLE

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"

HEAD = """\
# Command line

This page lists every command and option of `albertkit`, as `albertkit COMMAND --help` prints them. For
examples with their output, read the [how-to guides](../how-to/use-a-model.md).
"""

STATUSES = {
    "0": "Success. This includes a run that `--max-minutes` ended and a server that SIGTERM ended.",
    "1": "An input is wrong or missing. One line, `error: ...`, tells you what albertkit received, what it "
    "expected, and what to do. No incomplete file remains.",
    "2": "The command or option does not exist, or a value has the wrong type.",
    "130": "Ctrl-C (SIGINT). `pretrain` and `finetune` finish their step and write a checkpoint. `predict` "
    "keeps its finished parts. To resume, run the same command again.",
    "143": "SIGTERM ended `pretrain` or `finetune`, after the command wrote a checkpoint. To resume the run, "
    "run the same command again.",
}
FILES = {
    "`MODEL/config.json`, `model.safetensors`, `spiece.model`, ...": "A model folder in the Hugging Face "
    "format. For other formats, read [convert checkpoints](../how-to/convert.md).",
    "`RUN/checkpoints/`, `metrics.jsonl`, `curves.png`, `tensorboard/`": "State and metrics of a run, "
    "written by `pretrain` and `finetune` to the folder of the model ([pretraining](../how-to/pretrain.md)).",
    "`RUN/report.json`, `report.md`, `predictions.jsonl`, plots": "Report, written by `finetune` and "
    "`evaluate --output` ([fine-tuning](../how-to/fine-tune.md)).",
    "`SHARDS/train/`, `SHARDS/validation/`": "Shards, written by `prepare`. Each folder has `manifest.json`, "
    "which is written last ([corpora](../how-to/corpora.md)).",
    "`.NAME.parts`": "Finished parts of `predict`, next to the output file, until that file is complete.",
    "`~/.cache/huggingface/hub`": "Models downloaded from the Hugging Face Hub.",
}
ENVIRONMENT = {
    cores.VARIABLE: "Number of threads. Default: the number of cores that the CPU affinity and the container "
    "allow.",
    "OMP_NUM_THREADS, MKL_NUM_THREADS": f"Number of PyTorch threads, if `{cores.VARIABLE}` is not set.",
    KEY_VARIABLE: "Key that requests to `serve` must send, unless `--key-file` is set.",
    "HF_HUB_OFFLINE": "Set it to 1 to use only models that are already downloaded.",
    "ORT_DISABLE_TELEMETRY": "albertkit sets it to 1, so that ONNX Runtime sends no usage data and writes no "
    "identifier. Set it to 0 to allow both.",
    "HF_HOME, HF_TOKEN, HF_ENDPOINT": "Read by huggingface_hub: the folder for downloads, the token for "
    "private models, and the address of another hub.",
    "WORLD_SIZE, LOCAL_RANK": "Set by `torchrun`: the number of processes in a run of `pretrain` or "
    "`finetune`, and the index of this process on its machine.",
    "RAY_ADDRESS": "Address of the cluster for `--runner ray`. Default: Ray starts a cluster on this "
    "machine.",
    "KERAS_BACKEND": "Backend of `albertkit.keras`: tensorflow, jax or torch.",
    "PROMETHEUS_MULTIPROC_DIR": "Set by `serve --workers` for its processes. Do not set it.",
    "NO_COLOR, COLUMNS": "Set NO_COLOR to print without colors. COLUMNS is the width of the output outside a "
    "terminal.",
    "_ALBERTKIT_COMPLETE": "Set by the shell when it asks for completions.",
}


def page() -> str:
    """Return the page."""
    root: Any = typer.main.get_command(make_app())
    context = typer.Context(root, info_name="albertkit")
    parts = [HEAD, *_contents(root), "## albertkit\n", *_command(root, context)]
    for path, command, command_context in _verbs(root, context):
        parts += [f"## {path}\n", *_command(command, command_context)]
    tables = (
        ("Exit status", "status", STATUSES),
        ("Files", "file", FILES),
        (
            "Environment",
            "variable",
            {f"`{name.replace(', ', '`, `')}`": text for name, text in ENVIRONMENT.items()},
        ),
    )
    for title, head, rows in tables:
        lines = "".join(f"| {name} | {text} |\n" for name, text in rows.items())
        parts.append(f"## {title}\n\n| {head} | |\n|---|---|\n{lines}")
    return "\n".join(parts)


def _verbs(group: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield every command below a group, with its full name and its context. A group comes first."""
    for name, command in group.commands.items():
        command_context = typer.Context(command, info_name=name, parent=context)
        yield _typed(command_context), command, command_context
        if hasattr(command, "commands"):
            yield from _verbs(command, command_context)


def _typed(context: Any) -> str:
    """Return the full name of a command. Click's `command_path` also has the arguments of groups."""
    return f"{_typed(context.parent)} {context.info_name}" if context.parent else context.info_name


def _contents(root: Any) -> Iterator[str]:
    """Yield the lists of commands, with the titles of the help's panels."""
    panels: dict[str, list[Any]] = {}
    for command in root.commands.values():
        panels.setdefault(command.rich_help_panel, []).append(command)
    for title, commands in panels.items():
        verbs = ", ".join(f"[{command.name}](#albertkit-{command.name})" for command in commands)
        yield f"* {title}: {verbs}"
    yield "* All commands: [exit status](#exit-status), [files](#files), [environment](#environment)\n"


def _command(command: Any, context: Any) -> Iterator[str]:
    """Yield the parts of a command: description, synopsis, arguments, options, example."""
    text, _, example = command.help.partition("\n\nExample: ")
    yield f"{text}\n"
    parameters = [(parameter, *_record(parameter, context)) for parameter in command.params]
    required = [
        term if parameter.param_type_name == "option" else _called(parameter)
        for parameter, term, _ in parameters
        if parameter.required
    ]
    optional = [
        f"[{_called(parameter)}]"
        for parameter, *_ in parameters
        if parameter.param_type_name == "argument" and not parameter.required
    ]
    verb = [command.subcommand_metavar] if hasattr(command, "commands") else []
    yield f"```text\n{' '.join([_typed(context), *required, *optional, '[OPTIONS]', *verb])}\n```\n"
    panels: dict[str, list[str]] = {}
    for parameter, term, meaning in parameters:
        is_argument = parameter.param_type_name == "argument"
        title = "Arguments" if is_argument else parameter.rich_help_panel or "Options"
        panels.setdefault(title, []).append(f"* `{term}`: {meaning}")
    for title, lines in panels.items():
        yield f"{title}:\n\n" + "\n".join(lines) + "\n"
    yield f"Example:\n\n```bash\n{example}\n```\n"


def _called(argument: Any) -> str:
    """Return the name of an argument in the synopsis."""
    return (argument.metavar or argument.name).upper() + ("..." if argument.nargs == -1 else "")


def _record(parameter: Any, context: Any) -> tuple[str, str]:
    """Return a parameter as the user types it, and its description with its default."""
    term, meaning = parameter.get_help_record(context)
    if parameter.param_type_name == "argument":
        term = _called(parameter)
    else:
        term = term.replace("<int range>", "<int>").replace("<float range>", "<float>")
        term = ", ".join([*(name for name in parameter.opts if name not in term), term])
    match = re.fullmatch(r"(.*?)(?:  \[(.*)\])?", meaning, flags=re.DOTALL)
    assert match is not None
    meaning, notes = match[1].strip(), (match[2] or "").split("; ") if match[2] else []
    for note in notes:
        name, colon, value = note.partition(": ")
        if name == "default" and colon:
            value = value[1:-1] if value.startswith("(") and value.endswith(")") else value
            meaning += f" Default: {value.removesuffix('.')}."
        elif bound := re.fullmatch(r"x>=(\S+)", note):
            meaning += f" At least {bound[1]}."
        elif bound := re.fullmatch(r"(\S+)<=x<=(\S+)", note):
            meaning += f" From {bound[1]} to {bound[2]}."
        else:
            meaning += f" {note.capitalize()}."
    return term, meaning


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare the page with the commands")
    check = parser.parse_args().check
    new = page()
    if not check:
        with atomic_path(PAGE) as temporary:
            temporary.write_text(new, encoding="utf-8")
        return
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    lines = list(
        difflib.unified_diff(old.splitlines(), new.splitlines(), str(PAGE), "the command line", lineterm="")
    )
    if lines:
        print("\n".join(lines))
        sys.exit("docs/reference/cli.md differs from the command line. Run python scripts/cli_reference.py.")


if __name__ == "__main__":
    main()
