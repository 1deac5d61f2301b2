"""Tests that no command overwrites existing files: it prints an error of one line, or resumes a run.

All commands run in the process of the test. After an error, no file and no folder may be new or changed.
"""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from command_line import Result, Run
from json_lines import write_json_lines
from random_models import save_random_model

from albertkit.modeling.heads import AlbertForSequenceClassification
from albertkit.tokenization.tokenizer import AlbertTokenizer

SMALL: dict[str, Any] = {
    "embedding_size": 8,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
}
RECIPE = """
batch_size = 4
evaluation_sequences = 4
[examples]
max_seq_length = 32
[training]
steps = 1
warmup_steps = 1
precision = "fp32"
[model]
"""


@dataclass(frozen=True)
class Command:
    """A command line in which `IN` is the folder of the inputs and `OUT` the output."""

    name: str
    line: str
    ending: str = ""
    """The suffix of the output file, or an empty string if the output is a folder."""
    resumes: bool = False


DATA = "--train IN/train.csv --validation IN/train.csv --model IN/model --device cpu --precision fp32"
COMMANDS = [
    Command("train-tokenizer", "train-tokenizer IN/corpus.jsonl --vocab-size 200 --output OUT"),
    Command("prepare", "prepare IN/corpus.jsonl --tokenizer IN/model --workers 1 --output OUT"),
    Command("finetune", f"finetune text-classification {DATA} --steps 1 --output OUT", resumes=True),
    Command("seeds", f"finetune text-classification {DATA} --steps 1 --seeds 2 --output OUT", resumes=True),
    Command(
        "pretrain",
        "pretrain --data IN/shards --tokenizer IN/model --recipe IN/recipe.toml --device cpu --output OUT",
        resumes=True,
    ),
    Command("evaluate", "evaluate --model IN/model --data IN/train.csv --output OUT"),
    Command(
        "predict",
        "predict --model IN/model --input IN/train.csv --device cpu --output OUT",
        ".csv",
    ),
    Command("convert", "convert IN/model OUT"),
    Command("convert-tf1", "convert IN/model OUT --to tf1"),
    Command("convert-julia", "convert IN/model OUT", ".tfbson"),
    Command("export", "export onnx IN/model OUT"),
    Command("export-web", "export web IN/model OUT"),
    Command("export-file", "export onnx IN/model OUT", ".onnx"),
    Command("attention", "inspect attention text --model IN/model --html OUT", ".html"),
    Command("embed", "embed text --model IN/model --output OUT", ".npy"),
    Command("bench", "bench --model IN/model --minutes 0.001 --device cpu --plot OUT", ".png"),
]
BUNDLE = Command("bundle_model", "IN/run IN/shards --recipe IN/recipe.toml --output OUT")
PLACES = ["model", "another run", "shards", "file", "input", "under a file", "no permission"]


@pytest.fixture(scope="module")
def inputs(tiny_vocabulary: Path, tiny_texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the inputs of all commands."""
    from albertkit.modeling.heads import AlbertForMaskedLM
    from albertkit.pretraining.prepare import prepare

    folder = tmp_path_factory.mktemp("inputs")
    tokenizer = AlbertTokenizer(tiny_vocabulary)
    settings = SMALL | {"id2label": {0: "new", 1: "old"}}
    for name, head in (("model", AlbertForSequenceClassification), ("masked", AlbertForMaskedLM)):
        save_random_model(head, tokenizer, folder / name, **settings)
    write_json_lines(folder / "corpus.jsonl", ({"text": text} for text in tiny_texts))
    (folder / "train.csv").write_text("text,label\n" + "the river,new\nthe house,old\n" * 4)
    values = "".join(f"{name} = {value}\n" for name, value in SMALL.items())
    (folder / "recipe.toml").write_text(RECIPE + values)
    prepare([folder / "corpus.jsonl"], tiny_vocabulary, folder / "shards", workers=1, holdout_every=4)
    return folder


@pytest.fixture(autouse=True)
def pictures(
    request: pytest.FixtureRequest, blank_pictures: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draw pictures only for commands whose only output is a picture."""
    command = request.getfixturevalue("command") if "command" in request.fixturenames else BUNDLE
    if command.ending == ".png":
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", blank_pictures)


def call(run: Run, command: Command, inputs: Path, out: Path) -> Result:
    line = command.line.split()
    arguments = [*(part.replace("IN", str(inputs), 1) if part.startswith("IN/") else part for part in line)]
    arguments = [str(out) if part == "OUT" else part.replace(".and.", " and ") for part in arguments]
    return run(*arguments)


def snapshot(folder: Path) -> dict[str, tuple[int, str]]:
    """Return the mode and the hash of each file and folder in a folder."""
    return {
        str(path.relative_to(folder)): (
            stat.S_IMODE(path.stat().st_mode),
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(folder.rglob("*"))
    }


def place(kind: str, command: Command, inputs: Path, folder: Path) -> Path:
    """Create files at the output of a command, and return the path of the output."""
    out = folder / f"out{command.ending}"
    match kind:
        case "model":
            shutil.copytree(inputs / "model", out)
        case "another run":
            for name in (".lock", "checkpoints/step-0000007/config.json", "report.json", "metrics.jsonl"):
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                (out / name).write_text('{"step": 7}\n')
        case "shards":
            shutil.copytree(inputs / "shards", out)
        case "file":
            out.write_text("mine")
        case "input":
            source = {".csv": "train.csv", "": "model"}.get(command.ending, "corpus.jsonl")
            out = folder / "in" / source
            if command.ending and out.suffix != command.ending:  # the output needs another suffix
                out = out.with_suffix(command.ending)
                shutil.copy(folder / "in" / source, out)
        case "under a file":
            (folder / "file").write_text("mine")
            out = folder / "file" / out.name
    return out


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in which no file can be created, because of its mode or, for root, an attribute."""
    folder = tmp_path / "locked"
    folder.mkdir()
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if is_root:
        done = shutil.which("chattr") and subprocess.run(["chattr", "+i", folder], capture_output=True)
        if not done or done.returncode:
            pytest.skip("root may write anywhere, and chattr +i does not work here")
    folder.chmod(0o555) if not is_root else None
    yield folder
    if is_root:
        subprocess.run(["chattr", "-i", folder], check=True)
    folder.chmod(0o755)


def assert_refused(result: Result) -> None:
    assert result.status in (1, 2)
    assert "Traceback" not in result.errors
    errors = [line for line in result.errors.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, result.errors
    assert result.errors.splitlines()[-1] == errors[0]


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("command", COMMANDS, ids=[command.name for command in COMMANDS])
def test_existing_files_are_kept(
    command: Command, kind: str, inputs: Path, tmp_path: Path, run: Run, request: pytest.FixtureRequest
) -> None:
    if kind == "no permission":
        out = request.getfixturevalue("locked") / f"out{command.ending}"
    elif kind == "input":
        shutil.copytree(inputs, tmp_path / "in")
        inputs = tmp_path / "in"
        out = place(kind, command, inputs, tmp_path)
    else:
        out = place(kind, command, inputs, tmp_path)
    before, before_inputs = snapshot(tmp_path), snapshot(inputs)
    result = call(run, command, inputs, out)
    after = snapshot(tmp_path)
    if command.name == "export" and kind == "input":  # a graph may be added to a model folder
        assert result.status == 0
        del after["in/model/model.onnx"], before["in/model"], after["in/model"]
    else:
        assert_refused(result)
        assert snapshot(inputs) == before_inputs
    assert after == before


@pytest.mark.parametrize("command", COMMANDS, ids=[command.name for command in COMMANDS])
def test_a_repeated_command_fails_or_resumes(
    command: Command, inputs: Path, tmp_path: Path, run: Run
) -> None:
    """Check that the same command fails or resumes the run, and that other settings are an error."""
    if command.name == "bench":
        pytest.skip("measures for a second; the test above checks that the picture is not replaced")
    out = tmp_path / f"out{command.ending}"
    assert call(run, command, inputs, out).status == 0
    kept = {name: state for name, state in snapshot(tmp_path).items() if "tensorboard" not in name}
    result = call(run, command, inputs, out)
    if command.resumes:
        assert result.status == 0, result.errors
        weights = [name for name in kept if name.endswith(".safetensors")]
        assert weights
        after = snapshot(tmp_path)
        assert {name: after[name] for name in weights} == {name: kept[name] for name in weights}
        other = Command(command.name, f"{command.line} --learning-rate 0.125")
        assert_refused(call(run, other, inputs, out))
        assert snapshot(tmp_path) == after
    else:
        assert_refused(result)
        assert snapshot(tmp_path) == kept


# --- full disks ---------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Return a function that mounts a disk of a few bytes. Skip the test if that is not allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = []

    def mount(size: int) -> Path:
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if not shutil.which("mount") or subprocess.run(words, capture_output=True).returncode:
            pytest.skip("mounting a file system needs root with CAP_SYS_ADMIN")
        mounted.append(folder)
        return folder

    yield mount
    for mount_point in mounted:
        subprocess.run(["umount", str(mount_point)], check=True)


KEPT = {"finetune", "seeds", "pretrain", "predict"}
"""Commands that keep their run after the disk was full. Other tests check which files they keep."""


@pytest.mark.parametrize("command", COMMANDS, ids=[command.name for command in COMMANDS])
def test_a_full_disk(
    command: Command, inputs: Path, tmp_path: Path, run: Run, disk: Callable[[int], Path]
) -> None:
    """Check the error, that no temporary files remain, and that the same command succeeds later."""
    if command.name == "bench":
        pytest.skip("measures for a second; other pictures are written in the same way")
    folder = disk(4096)
    out = folder / "new" / f"out{command.ending}" if not command.ending else folder / f"out{command.ending}"
    if command.name == "embed":  # fill the disk, because the vector is small
        (folder / "filler").write_bytes(bytes(4096))
    result = call(run, command, inputs, out)
    (folder / "filler").unlink(missing_ok=True)
    assert_refused(result)
    message = result.errors.splitlines()[-1]
    assert "no space left" in message.lower()
    assert "same command" in message
    assert str(folder) in message
    left = list(folder.rglob("*"))
    assert not [path for path in left if path.name.endswith(".tmp")]
    if command.name not in KEPT:
        assert left == []
    subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
    assert call(run, command, inputs, out).status == 0


# --- the script of the bundled model ------------------------------------------------------------


@pytest.mark.parametrize("kind", ["model", "another run", "shards", "file", "under a file"])
def test_the_bundling_script_replaces_only_bundled_models(
    kind: str,
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: Callable[[str], ModuleType],
) -> None:
    out = place(kind, BUNDLE, inputs, tmp_path)
    before = snapshot(tmp_path)
    line = BUNDLE.line.replace("IN", str(inputs)).replace("OUT", str(out)).split()
    monkeypatch.setattr(sys, "argv", ["bundle_model.py", *line])
    with pytest.raises((SystemExit, OSError, ValueError, RuntimeError)) as error:
        script("bundle_model").main()
    assert str(error.value)
    assert snapshot(tmp_path) == before
