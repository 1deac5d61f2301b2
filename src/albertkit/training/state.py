"""A run on disk: checkpoints that are complete model folders, and everything for an exact resume.

    OUTPUT/
      metrics.jsonl                    one line per logged or evaluated step
      curves.png
      checkpoints/step-0000500/        config.json, model.safetensors, tokenizer files: a normal model folder
        training_state.json            step, tokens, seconds, position in the data, fingerprint of the run
        training_state.safetensors     optimizer tensors
      best/                            the best model so far, if evaluations select the model
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
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from torch import Tensor, nn

from albertkit.checkpoints.arrays import to_tensors
from albertkit.checkpoints.folder import read_folder
from albertkit.errors import TrainingError, short
from albertkit.files import contents, finite, flush_to_disk, full_disk_named, read_json, write_json
from albertkit.recipe import build
from albertkit.training.distributed import World
from albertkit.training.progress import METRICS, TENSORBOARD, metrics_lines, step_of
from albertkit.training.run_state import RunState
from albertkit.training.settings import TrainingSettings
from albertkit.training.throughput import computes_in_bf16

LOCK = ".lock"
BEST = "best"
STATE_JSON = "training_state.json"
STATE_TENSORS = "training_state.safetensors"
_STEP = re.compile("step-[0-9]+")
_METRICS = ("metrics", "best_metrics")  # fields of the state that may be NaN, which is null in the file


@contextmanager
def open_run(output: Path) -> Iterator[None]:
    """Lock the folder of a run for this process. It is created if missing.

    Raises:
        TrainingError: another process trains in it, or a new run would overwrite its files.
    """
    if not checkpoints(output):
        # Left by a run that was killed before its first checkpoint.
        left = {METRICS, TENSORBOARD, LOCK, "curves.png", "checkpoints"}
        refuse_other_folders(output, left | ({BEST} if (output / METRICS).is_file() else set()))
        if any(line.endswith("\n") and step_of(line) != 0 for line in metrics_lines(output)):
            raise TrainingError(
                f"{output / METRICS} has metrics, but {output} has no checkpoint: a new run would overwrite "
                "the metrics. Restore the checkpoints, or choose another output folder."
            )
    output.mkdir(parents=True, exist_ok=True)
    lock = FileLock(output / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise TrainingError(
            f"{output} is in use by another run. Wait for it, stop it, or choose another folder."
        ) from None
    try:
        yield
    finally:
        lock.release()


def refuse_other_folders(output: Path, own: Set[str]) -> None:
    """Raise TrainingError if a folder has files that a new run would overwrite.

    Args:
        output: folder of the run; it may be missing.
        own: names of the files and folders that the run itself may have left in it.
    """
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
    """Return the folder of the checkpoint at `step`."""
    return output / "checkpoints" / f"step-{step:07d}"


def checkpoints(output: Path) -> list[Path]:
    """Return the finished checkpoints of a run, oldest first."""
    found = (output / "checkpoints").glob("step-*")
    # Steps with more than 7 digits have longer names, which do not sort as text.
    return sorted((folder for folder in found if _STEP.fullmatch(folder.name)), key=checkpoint_step)


def checkpoint_step(folder: Path) -> int:
    """Return the step of a checkpoint folder."""
    return int(folder.name.removeprefix("step-"))


def save_checkpoint(
    output: Path,
    state: RunState,
    *,
    optimizer: torch.optim.Optimizer,
    save_model: Callable[[Path], object],
    fingerprint: dict[str, Any],
    keep: int,
) -> Path:
    """Write a checkpoint, then remove all but the newest `keep`."""
    folder = checkpoint_folder(output, state.step)
    with written_folder(folder) as temporary:
        save_model(temporary)
        with full_disk_named(folder):
            (temporary / STATE_TENSORS).write_bytes(safetensors.torch.save(_optimizer_tensors(optimizer)))
        values = asdict(state) | {name: finite(getattr(state, name)) for name in _METRICS}
        write_json(temporary / STATE_JSON, values | {"fingerprint": fingerprint})
    for old in checkpoints(output)[:-keep]:
        shutil.rmtree(old)
    return folder


def check_schedule(folder: Path, state: RunState, settings: TrainingSettings) -> None:
    """Raise TrainingError if the settings give another learning rate than a checkpoint has."""
    factor = state.schedule_factor
    now = settings.learning_rate_factor(step=state.step, tokens=state.tokens)
    if state.step and not math.isclose(factor, now, abs_tol=1e-9):
        raise TrainingError(
            f"{folder} was written at {factor:.4f} of the peak learning rate, but with {settings.unit}="
            f"{settings.length} and decay_{settings.unit}={settings.decay} it would be {now:.4f} there, "
            "because the decay had begun. Use the saved settings or a new output folder."
        )


def load_checkpoint(
    folder: Path,
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    fingerprint: dict[str, Any],
) -> RunState:
    """Load a checkpoint's weights and optimizer, and return the state of the run.

    Args:
        folder: the checkpoint.
        model: receives the weights.
        optimizer: receives the tensors of the optimizer.
        fingerprint: the values that must equal those of the checkpoint.

    Raises:
        TrainingError: the checkpoint is damaged, or belongs to a run with other settings, which the message
            lists.
    """
    document = _read_document(folder)
    try:
        state_tensors = safetensors.torch.load_file(folder / STATE_TENSORS)
        _, arrays = read_folder(folder)
    except (OSError, ValueError, SafetensorError) as error:
        raise _damaged(folder, error) from error
    _require_same_run(folder, document.pop("fingerprint"), fingerprint)
    try:
        missing, unexpected = model.load_state_dict(to_tensors(arrays), strict=False)
    except RuntimeError as error:  # the shapes belong to another model
        raise _damaged(folder, error) from error
    tied = {name for name in missing if _is_tied(model, name)}
    if unexpected or set(missing) - tied:
        raise TrainingError(
            f"{folder} is not a checkpoint of this model: missing {sorted(set(missing) - tied)}, "
            f"unexpected {sorted(unexpected)}"
        )
    try:
        _restore_optimizer(optimizer, state_tensors)
        return build(RunState, document, where=STATE_JSON)
    except (LookupError, ValueError, TypeError) as error:
        raise _damaged(folder, error) from error


def choose_precision(settings: TrainingSettings, output: Path, world: World) -> str:
    """Return the precision of the run in `output`: "fp32" or "bf16".

    Raises:
        TrainingError: its newest checkpoint is damaged.
    """
    if settings.precision != "auto":
        return settings.precision
    for newest in checkpoints(output)[-1:]:
        precision = _read_document(newest)["fingerprint"].get("precision")
        if precision not in ("fp32", "bf16"):
            raise _damaged(newest, ValueError(f"{STATE_JSON}: precision is {short(precision)}"))
        return precision
    # In a new run, all processes use the same precision, whatever their machines are.
    return "fp32" if world.any(not computes_in_bf16(world.device)) else "bf16"


def _read_document(folder: Path) -> dict[str, Any]:
    """Return the content of a checkpoint's `training_state.json`."""
    try:
        document = read_json(folder / STATE_JSON, TrainingError)
        if not (isinstance(document["fingerprint"], dict) and isinstance(document["watch"], dict)):
            raise ValueError(f"{STATE_JSON} lacks the fingerprint or the losses of a run")
        if missing := {one.name for one in fields(RunState)} - document.keys():
            raise ValueError(f"{STATE_JSON} lacks {', '.join(sorted(missing))}")
        if not all(type(place) is int for place in dict(document["position"] or {}).values()):
            raise ValueError(f"{STATE_JSON}: the position has values that are not whole numbers")
        for name in _METRICS:
            found = dict(document[name])
            document[name] = {one: math.nan if value is None else value for one, value in found.items()}
            if not all(type(value) in (int, float) for value in document[name].values()):
                raise ValueError(f"{STATE_JSON}: {name} has values that are not numbers")
    except (TrainingError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from error
    return document


def _damaged(folder: Path, error: Exception) -> TrainingError:
    return TrainingError(f"{folder} is damaged ({error}). Delete it to resume from the previous checkpoint.")


def _require_same_run(folder: Path, saved: dict[str, Any], current: dict[str, Any]) -> None:
    # Convert through JSON, so that a tuple equals the list it was saved as.
    before, now = _flat(saved), _flat(json.loads(json.dumps(current)))
    differing = [
        f"{name}: saved {_short(before, name)}, now {_short(now, name)}"
        for name in sorted(before.keys() | now.keys())
        if name not in before or name not in now or before[name] != now[name]
    ]
    if differing:
        if len(differing) > _SHOWN:
            differing[_SHOWN:] = [f"and {len(differing) - _SHOWN} more"]
        raise TrainingError(
            f"{folder} cannot be resumed with these settings ({'; '.join(differing)}). Use the saved ones, "
            "or another output folder to start a new run."
        )


_SHOWN = 8  # maximum number of differences in a message


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Return the values in nested dicts and lists by their place, such as "task.max_length"."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {name: value}
    inner = (_flat(one, f"{name}.{key}" if name else str(key)) for key, one in value.items())
    return {place: one for group in inner for place, one in group.items()}


def _short(values: dict[str, Any], name: str) -> str:
    """Return a value for a message; a hash is shortened."""
    value = values.get(name)
    if isinstance(value, str) and len(value) == 64:
        return f"{value[:8]!r}..."
    return repr(value) if name in values else "nothing"


def _is_tied(model: nn.Module, name: str) -> bool:
    """Return whether a parameter is another one's second name, which a model folder stores once."""
    names = dict(model.named_parameters(remove_duplicate=False))
    return name in names and any(names[name] is value for other, value in names.items() if other != name)


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state as `optimizer.INDEX.KEY`, contiguous on the CPU."""
    return {
        f"optimizer.{index}.{key}": torch.as_tensor(value).detach().cpu().contiguous()
        for index, values in optimizer.state_dict()["state"].items()
        for key, value in values.items()
    }


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        _, index, key = name.split(".")
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
