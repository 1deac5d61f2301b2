"""The folder of a run: locked for one process; folders inside it are complete or missing."""

import shutil
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from albertkit.errors import TrainingError
from albertkit.files import contents, flush_to_disk
from albertkit.training.progress import METRICS, TENSORBOARD, metrics_lines, step_of

LOCK = ".lock"
BEST = "best"


@contextmanager
def open_run(output: Path, *, is_new: bool) -> Iterator[None]:
    """Lock the folder of a run for this process.

    Args:
        output: folder of the run, created if missing.
        is_new: whether the folder has no checkpoint.

    Raises:
        TrainingError: another process trains in it, or a new run would overwrite its files.
    """
    if is_new:
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
