"""The folder of a run: checkpoints that are complete model folders, and everything for an exact resume.

    OUTPUT/
      metrics.jsonl                    one line per logged or evaluated step
      run.json                         the settings, and the best metrics so far
      curves.png
      checkpoints/step-0000500/        config.json, model.safetensors, tokenizer files: a normal model folder
        training_state.json            the state of the run, and its fingerprint
        training_state.safetensors     optimizer tensors; removed at the end of fine-tuning
      best/                            the best model so far, if evaluations select it; removed likewise
      config.json, model.safetensors   the model when the run has ended

A checkpoint folder is written under a temporary name, flushed and renamed. A folder with its final name is
complete. Nothing is pickled.
"""

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn

from albertkit.checkpoints.arrays import to_tensors
from albertkit.checkpoints.folder import read_folder
from albertkit.errors import TrainingError, short
from albertkit.files import contents, finite, flush_to_disk, full_disk_named, write_json
from albertkit.recipe import build
from albertkit.training.distributed import World
from albertkit.training.progress import BEST, CURVES, METRICS, RUN_JSON, TENSORBOARD, metrics_lines
from albertkit.training.settings import TrainingSettings, flat_values
from albertkit.training.state import RunState
from albertkit.training.throughput import computes_in_bf16

LOCK = ".lock"
STATE_JSON, STATE_TENSORS = "training_state.json", "training_state.safetensors"
_STEP = re.compile("step-[0-9]+")
_METRICS = ("metrics", "best_metrics")  # fields of the state that may be NaN, which is null in the file


@contextmanager
def open_run(output: Path) -> Iterator[None]:
    """Lock the folder of a run for this process. It is created if missing."""
    if not checkpoints(output):
        # Left by a run that was killed before its first checkpoint.
        left = {METRICS, RUN_JSON, TENSORBOARD, LOCK, CURVES, "checkpoints"}
        refuse_other_folders(output, left | ({BEST} if (output / METRICS).is_file() else set()))
        if any(step for step, _ in metrics_lines(output)):
            raise TrainingError(
                f"{output / METRICS} has metrics, but {output} has no checkpoint. Choose another folder."
            )
    output.mkdir(parents=True, exist_ok=True)
    lock = FileLock(output / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise TrainingError(f"{output} is in use by another run. Wait for it, or stop it.") from None
    try:
        yield
    finally:
        lock.release()


def refuse_other_folders(output: Path, own: Set[str]) -> None:
    """Raise TrainingError if a folder has files besides `own` that a new run would overwrite."""
    for folder in (output, *output.parents):
        if folder.exists() and not folder.is_dir():
            raise TrainingError(f"{folder} is a file. Choose another output folder.")
    others = {file.name for file in output.iterdir()} - own if output.exists() else set()
    if any(not name.endswith(".tmp") for name in others):
        raise TrainingError(
            f"{output} {contents(output)}: a new run would overwrite it. Choose another output folder."
        )


@contextmanager
def written_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, which replaces `folder` when it is complete and on the disk.

    If the block raises, the temporary folder is removed and `folder` is unchanged.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # left by a killed run
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.rglob("*"):
            flush_to_disk(file)
        flush_to_disk(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    replaced = folder.with_name(f".{folder.name}.replaced.tmp")
    shutil.rmtree(replaced, ignore_errors=True)  # left by a killed run
    if folder.exists():
        folder.rename(replaced)
    temporary.rename(folder)
    flush_to_disk(folder.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def checkpoint_folder(output: Path, step: int) -> Path:
    return output / "checkpoints" / f"step-{step:07d}"


def checkpoints(output: Path) -> list[Path]:
    """Return the finished checkpoints of a run, oldest first."""
    folders = (output / "checkpoints").glob("step-*")
    # Steps with more than 7 digits have longer names, which do not sort as text.
    return sorted((folder for folder in folders if _STEP.fullmatch(folder.name)), key=checkpoint_step)


def checkpoint_step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def save_checkpoint(
    state: RunState,
    *,
    optimizer: torch.optim.Optimizer,
    save_model: Callable[[Path], object],
    fingerprint: dict[str, Any],
    keep: int,
) -> None:
    """Write a checkpoint, then remove all but the newest `keep`."""
    folder = checkpoint_folder(state.output, state.step)
    tensors = {
        f"optimizer.{index}.{key}": torch.as_tensor(value).detach().cpu().contiguous()
        for index, values in optimizer.state_dict()["state"].items()
        for key, value in values.items()
    }
    document = state.saved() | {"fingerprint": fingerprint}
    document |= {name: finite(document[name]) for name in _METRICS}
    with written_folder(folder) as temporary:
        save_model(temporary)
        with full_disk_named(folder):
            (temporary / STATE_TENSORS).write_bytes(safetensors.torch.save(tensors))
        write_json(temporary / STATE_JSON, document)
    for old in checkpoints(state.output)[:-keep]:
        shutil.rmtree(old)


def load_checkpoint(
    folder: Path,
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    fingerprint: dict[str, Any],
) -> RunState:
    """Load a checkpoint's weights and optimizer, unless it has none, and return its state."""
    with _reading(folder):
        document = json.loads((folder / STATE_JSON).read_bytes())
        _require_same_run(folder, document.pop("fingerprint"), fingerprint)
        if document.keys() != RunState(output=folder).saved().keys():
            raise ValueError(f"{STATE_JSON} has missing or unexpected fields")
        for name in _METRICS:
            values = document[name].items()
            document[name] = {key: math.nan if value is None else value for key, value in values}
        state = build(RunState, document | {"output": folder}, where=STATE_JSON)
        _, arrays = read_folder(folder)
        missing, unexpected = model.load_state_dict(to_tensors(arrays), strict=False)
        # A model folder stores a tied parameter once, under one of its names.
        names = dict(model.named_parameters(remove_duplicate=False))
        loaded = {id(value) for name, value in names.items() if name not in missing}
        if unexpected or any(id(names.get(name)) not in loaded for name in missing):
            raise ValueError(f"it belongs to another model: missing {missing}, unexpected {unexpected}")
        moments: dict[int, dict[str, Tensor]] = {}
        states = folder / STATE_TENSORS
        for name, value in (safetensors.torch.load_file(states) if states.is_file() else {}).items():
            _, index, key = name.split(".")
            moments.setdefault(int(index), {})[key] = value
        optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    return state


def remove_training_files(output: Path) -> None:
    """Remove what only an unfinished run needs: states of the optimizer, and the copy of the best model."""
    for checkpoint in checkpoints(output):
        (checkpoint / STATE_TENSORS).unlink(missing_ok=True)
    shutil.rmtree(output / BEST, ignore_errors=True)


def choose_precision(settings: TrainingSettings, output: Path, world: World) -> str:
    """Return "fp32" or "bf16". The precision that "auto" chose at the start of a run belongs to the run."""
    if settings.precision != "auto":
        return settings.precision
    for newest in checkpoints(output)[-1:]:
        with _reading(newest):
            return json.loads((newest / STATE_JSON).read_bytes())["fingerprint"]["precision"]
    # In a new run, all processes use the same precision, whatever their machines are.
    return "fp32" if world.any(not computes_in_bf16(world.device)) else "bf16"


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Turn any error within the block into a TrainingError that names the checkpoint."""
    try:
        yield
    except TrainingError:
        raise
    except Exception as error:
        raise TrainingError(
            f"{folder} is damaged ({error}). Delete it to resume from the previous checkpoint."
        ) from error


def _require_same_run(folder: Path, saved: dict[str, Any], current: dict[str, Any]) -> None:
    # Convert through JSON, so that a tuple equals the list it was saved as.
    before, now = flat_values(saved), flat_values(json.loads(json.dumps(current)))
    differences = []
    for name in sorted(before | now):
        old, new = before.get(name), now.get(name)
        if isinstance(old, list) and isinstance(new, list):
            at = next(
                (i for i, pair in enumerate(zip_longest(old, new, fillvalue=...)) if pair[0] != pair[1]), 0
            )
            name, old, new = f"{name}[{at}]", old[at : at + 1], new[at : at + 1]
        if old != new:
            differences.append(f"{name}: saved {short(old)}, now {short(new)}")
    if differences:
        raise TrainingError(
            f"{folder} cannot be resumed with these settings ({'; '.join(differences)}). Use the saved "
            "settings, or choose another output folder to start a new run."
        )
