"""Write docs/reference/cli.md, the reference of the command line.

    python scripts/cli_reference.py           # after a change of a command or an option
    python scripts/cli_reference.py --check   # prints the differences, and fails if there are any

Descriptions of commands and options come from `--help`. The tables at the end of the page are in this file.
"""

import argparse
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

from albertkit import cores
from albertkit.cli.parameters import Flag, group
from albertkit.cli.verbs import COMMANDS, Command
from albertkit.files import atomic_path
from albertkit.options import BEST
from albertkit.serving.settings import KEY_VARIABLE, PREFIX

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"

HEAD = """\
# Command line

This page lists every command and option of `albertkit`, as `albertkit COMMAND --help-all` prints them.
`--help` shows the usual options. The [how-to guides](../how-to/use-a-model.md) have examples.
"""
_HELP = """\
`albertkit --version` prints the version. `albertkit --install-completion` installs completion for the current
shell, and `albertkit --show-completion` prints it.
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
    "`RUN/checkpoints/`, `run.json`, `metrics.jsonl`, `curves.png`, `tensorboard/`": "State and metrics of a "
    "run, written by `pretrain` and `finetune` to the folder of the model "
    "([pretraining](../how-to/pretrain.md)).",
    "`RUN/report.json`, `report.md`, `errors.csv`, `predictions.jsonl`, plots": "Report, written by "
    "`finetune` and `evaluate --output` ([fine-tuning](../how-to/fine-tune.md)).",
    "`SHARDS/train/`, `SHARDS/validation/`": "Shards, written by `prepare`. Each folder has `manifest.json`, "
    "which is written last ([corpora](../how-to/corpora.md)).",
    "`NAME.partial`": "Finished predictions of `predict`, next to the output file, until that file is "
    "complete.",
    "`~/.cache/huggingface/hub`": "Models downloaded from the Hugging Face Hub.",
}
ENVIRONMENT = {
    cores.VARIABLE: "Number of threads. Default: the number of cores that the CPU affinity and the container "
    "allow.",
    "OMP_NUM_THREADS, MKL_NUM_THREADS": f"Number of PyTorch threads, if `{cores.VARIABLE}` is not set.",
    f"{PREFIX}PORT, ...": "Each option of `serve`, here `--port`. Flags override variables "
    "([serve](../how-to/serve.md#environment-variables)).",
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
}


def page() -> str:
    """Return the page."""
    parts = [HEAD, *_contents(), _HELP]
    for name in COMMANDS:
        parts += [f"## albertkit {name}\n", *_command(name, COMMANDS[name])]
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


def _contents() -> Iterator[str]:
    """Yield the lists of commands, with the titles of the help's panels."""
    panels: dict[str, list[str]] = {}
    for name, command in COMMANDS.items():
        if " " not in name:
            panels.setdefault(command.panel, []).append(name)
    for title, names in panels.items():
        yield f"* {title}: {', '.join(f'[{name}](#albertkit-{name})' for name in names)}"
    yield "* All commands: [exit status](#exit-status), [files](#files), [environment](#environment)\n"


def _command(name: str, command: Command) -> Iterator[str]:
    """Yield the parts of a command: description, synopsis, arguments, options, example."""
    yield f"{command.help}\n"
    flags = command.flags()
    words = [flag.option if flag.is_required else f"[{flag.option}]" for flag in flags if flag.is_positional]
    words += [f"{flag.option} {_kind(flag)}" for flag in flags if flag.is_required and not flag.is_positional]
    words.append("COMMAND" if command.function is None else "[OPTIONS]")
    yield f"```text\nalbertkit {' '.join([name, *words])}\n```\n"
    groups: dict[str, list[str]] = {}
    for flag in flags:
        default = (
            "" if flag.default in (None, False, BEST) or flag.is_required else f" Default: {flag.default}."
        )
        title = "Arguments" if flag.is_positional else flag.group
        groups.setdefault(title, []).append(f"* `{_typed(flag)}`: {flag.help}{default}")
    for title in sorted(groups, key=lambda title: group(title).sort_key):
        yield f"{title}:\n\n" + "\n".join(groups[title]) + "\n"
    yield f"Example:\n\n```bash\nalbertkit {command.example}\n```\n"


def _typed(flag: Flag) -> str:
    """Return a flag as the user types it, with the type of its value."""
    if flag.is_positional:
        return flag.option + ("..." if flag.kind == list[str] else "")
    if flag.kind is bool:
        return f"{flag.option}, --no-{flag.option[2:]}" if flag.can_negate else flag.option
    return f"{flag.option} {_kind(flag)}"


def _kind(flag: Flag) -> str:
    if get_origin(flag.kind) is Literal:
        return f"<{'|'.join(get_args(flag.kind))}>"
    if flag.kind == str | bool:
        return "[<str>]"
    return "<str>" if flag.kind == list[str] else f"<{flag.kind.__name__.lower()}>"


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
