"""Writing files so that a crash, a full disk or a second process never leaves half of one.

Used by everything that saves: tokenizers, checkpoints, token shards, training state. Needs only the
standard library.
"""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from albertkit.errors import ConfigError, DataError

PICTURES = (".png", ".svg", ".pdf")


@contextmanager
def atomic_path(target: str | Path) -> Iterator[Path]:
    """Yield the path of a new empty file beside `target`, which becomes `target` when the block ends well.

    The file is flushed to the disk before it takes the name, so whoever opens `target` sees the old content
    or the new one, and whoever has the old one mapped into memory keeps it. When the block raises, the new
    file is removed and `target` is untouched. Files that belong together are renamed only after all of them
    are complete:

        with atomic_path(a) as new_a, atomic_path(b) as new_b:
            ...

    The yielded name ends in `.tmp`: a writer that adds or guesses an ending (`numpy.savez`) must be given an
    open file instead of the name.

    Raises:
        OSError: `target` cannot be written (missing folder, permission, full disk).
    """
    target = Path(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    # Not tempfile.mkstemp: its 0600 would make a shared model readable by its writer alone.
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    permissions = os.fstat(descriptor).st_mode & 0o777
    os.close(descriptor)
    try:
        yield temporary
        # A writer may have put its own file in place of ours, with other permissions.
        temporary.chmod(permissions)
        _flush_to_disk(temporary, os.O_RDWR)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":  # elsewhere a folder cannot be opened
        _flush_to_disk(target.parent, os.O_RDONLY)


def check_picture(target: Path) -> None:
    """Raise ConfigError unless the name ends as that of a picture, DataError where its folder is missing."""
    if target.suffix.lower() not in PICTURES:
        raise ConfigError(f"cannot draw {target}: expected a name that ends in {', '.join(PICTURES)}")
    if not target.parent.is_dir():
        raise DataError(f"cannot write {target}: there is no folder {target.parent}; make it first")


def contents(folder: Path, *, limit: int = 12) -> str:
    """What `folder` holds, in words for an error message: names, sub-folders with a trailing slash."""
    names = sorted(
        (child.name + ("/" if child.is_dir() else "") for child in folder.iterdir()), key=by_number
    )
    if not names:
        return "is empty"
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return "holds " + ", ".join(names[:limit]) + more


def model_folders(folder: Path) -> list[str]:
    """Names of the sub-folders of `folder` that look like models themselves (they have a config.json)."""
    names = (child.name for child in folder.iterdir() if (child / "config.json").is_file())
    return sorted(names, key=by_number)


def by_number(path: str | Path) -> list[str | int]:
    """Return a sort key that compares the numbers in names as numbers: step-20 comes before step-100."""
    return [int(part) if part.isdecimal() else part for part in re.split("([0-9]+)", str(path))]


def _flush_to_disk(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
