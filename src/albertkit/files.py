"""Write files so that a crash, a full disk or a second process never leaves a partial file."""

import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from albertkit.errors import AlbertKitError, ConfigError, DataError, DiskFullError, reading


@contextmanager
def atomic_path(target: str | Path) -> Iterator[Path]:
    """Yield the path of a new empty file, which replaces `target` if the block ends without an error.

    The new file is flushed to the disk before it is renamed, so opening `target` gives either the old or the
    new content. A process that has mapped the old file into memory keeps it. If the block raises, the new
    file is removed and `target` is unchanged. Files that belong together are renamed only when all of them
    are complete:

        with atomic_path(a) as new_a, atomic_path(b) as new_b:
            ...

    The name of the new file ends in `.tmp`. Pass an open file to functions that add or guess an ending
    (`numpy.savez`). A replaced file keeps its permission bits; a new file follows the umask.
    """
    target = Path(target)
    if target.exists() and not target.is_file():
        kind = "folder" if target.is_dir() else "device"
        raise DataError(f"{target} is a {kind}. Expected the name of a file to write.")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with full_disk_named(target):
            # Not tempfile.mkstemp, whose mode 0600 would let only the owner read a shared model.
            descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            permissions = os.fstat(descriptor).st_mode & 0o777
            os.close(descriptor)
            if target.exists() and not target.is_symlink():
                permissions = target.stat().st_mode & 0o777
            yield temporary
            # Set the permissions after the flush, which may be unable to open a protected file, and last,
            # because a writer may have replaced our file with a file that has other permissions.
            flush_to_disk(temporary)
            temporary.chmod(permissions)
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    flush_to_disk(target.parent)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, and create its folder. The target has its old content until the copy is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)


@contextmanager
def full_disk_named(target: Path) -> Iterator[None]:
    """Convert a library's error about missing disk space to DiskFullError, which names the file."""
    try:
        yield
    except DiskFullError:
        raise
    except Exception as error:
        text = str(error)
        if getattr(error, "errno", None) in _NO_SPACE or _NO_SPACE_TEXT.search(text):
            raise DiskFullError(
                f"{target}: no space left on the disk. Complete files were kept. Free some space and run the "
                "same command again."
            ) from error
        raise


# The last number is the error for a limit on file size.
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Messages of libraries that give no error number: safetensors and Arrow, then NumPy.
_NO_SPACE_TEXT = re.compile(r"No space left|Disk quota exceeded|File too large|\d+ requested and \d+ written")


@contextmanager
def made_folder(folder: Path) -> Iterator[Path]:
    """Create a folder if it does not exist. If the block raises, remove the created empty folders."""
    created = []
    for parent in (folder, *folder.parents):
        if parent.is_file():
            raise DataError(f"{parent} is a file. Expected a folder to write to.")
        if not parent.exists():
            created.append(parent)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    except BaseException:
        for parent in created:
            with suppress(OSError):
                parent.rmdir()
        raise


@contextmanager
def complete_files(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder. If the block ends without an error, all of its files move to `folder`."""
    with made_folder(folder):
        staged = folder / f".{secrets.token_hex(4)}.tmp"
        staged.mkdir()
        try:
            with full_disk_named(folder):
                yield staged
                for file in staged.rglob("*"):
                    flush_to_disk(file)
            for file in sorted(staged.iterdir()):
                with suppress(FileNotFoundError):
                    file.chmod((folder / file.name).stat().st_mode & 0o777)
                file.replace(folder / file.name)
            flush_to_disk(folder)
        finally:
            shutil.rmtree(staged)


def check_new_file(target: Path) -> None:
    """Check that a new file can be written, before its content is computed."""
    if target.exists():
        raise DataError(f"{target} exists. Choose another name, or delete it first.")
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise DataError(f"cannot write {target}: there is no folder {target.parent} that you may write to.")


def check_new_folder(folder: Path) -> None:
    """Check that a folder is missing or empty except for partial files, before its content is computed."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file. Expected a folder to write to.")
    if folder.is_dir() and any(not child.name.endswith(".tmp") for child in folder.iterdir()):
        raise DataError(f"{folder} {contents(folder)}. Choose another folder, or delete this one first.")


def json_text(value: Any, **options: Any) -> str:
    """Return a value as strict JSON; raise DataError for numbers that are infinite or NaN."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError as error:
        raise DataError(f"JSON cannot represent the value ({error}). Expected finite numbers.") from error


def json_bytes(value: Any, *, indent: int = 2, ensure_ascii: bool = False, **options: Any) -> bytes:
    """Return a value as the content of a strict JSON file: indented, in UTF-8, with a final newline."""
    return (json_text(value, indent=indent, ensure_ascii=ensure_ascii, **options) + "\n").encode()


def write_json(target: Path, value: Any, *, indent: int | None = 2, **options: Any) -> None:
    text = json_text(value, indent=indent, **options) + "\n"
    with atomic_path(target) as file:
        file.write_text(text, encoding="utf-8")


def read_json(file: Path, error: type[AlbertKitError]) -> dict[str, Any]:
    """Return the object that a JSON file contains; raise `error` if the file is missing or damaged."""
    with reading(file, error):
        value = json.loads(file.read_bytes())
        if not isinstance(value, dict):
            raise ValueError(f"expected a JSON object, not a {type(value).__name__}")
        return value


def finite(value: Any) -> Any:
    """Return a value with None in place of every infinite number and NaN, and NumPy's arrays as lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    dtype = getattr(value, "dtype", None)
    if dtype is None or getattr(dtype, "kind", "") in ("M", "m"):  # `tolist` returns numbers for some times
        return value
    plain = value.tolist()
    return finite(plain) if isinstance(plain, float | list) else plain


def check_ending(target: Path, *endings: str, verb: str = "write") -> None:
    if target.suffix.lower() not in endings:
        raise ConfigError(f"cannot {verb} {target}: expected a name that ends in {', '.join(endings)}.")


def contents(folder: Path, *, limit: int = 12) -> str:
    """Describe the content of a folder for an error message. Names of subfolders end in a slash."""
    names = sorted(
        (child.name + ("/" if child.is_dir() else "") for child in folder.iterdir()), key=by_number
    )
    if not names:
        return "is empty"
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return "holds " + ", ".join(names[:limit]) + more


def model_folders(folder: Path) -> list[str]:
    names = (child.name for child in folder.iterdir() if (child / "config.json").is_file())
    return sorted(names, key=by_number)


def hint_of_models(folder: Path) -> str:
    """Return a sentence for an error message that lists the models in subfolders; "" if there are none."""
    models, run = model_folders(folder), folder / "checkpoints"
    models += [f"checkpoints/{model}" for model in (model_folders(run) if run.is_dir() else ())]
    return f" It has models in sub-folders. Pass one of them: {', '.join(models)}." if models else ""


def by_number(path: str | Path) -> list[str | int]:
    """Return a sort key that compares numbers in names by value: step-20 comes before step-100."""
    parts = re.split("([0-9]+)", str(path))  # every second part is a number
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]


def values_sha256(values: Iterable[Any]) -> str:
    """Return a hash of values. Equal values have equal hashes, also in other processes."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(repr(_plain(value)).encode() + b"\n")
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """Return a value whose `repr` has all of its content, and no addresses of objects."""
    if hasattr(value, "tolist"):  # the `repr` of a large array is abbreviated
        value = value.tolist()
    if isinstance(value, str | bytes | int | float | None):
        return value
    if isinstance(value, Mapping):
        return [(_plain(name), _plain(item)) for name, item in value.items()]
    if isinstance(value, Set):
        return sorted(repr(_plain(item)) for item in value)
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    state = value.__getstate__()
    if state is None and type(value).__repr__ is not object.__repr__:  # such as a date
        state = repr(value)
    return type(value).__qualname__, _plain(state)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush_to_disk(path: Path) -> None:
    is_posix = os.name == "posix"
    if not is_posix and path.is_dir():
        return  # Windows cannot open a folder, and can only flush a file that is open for writing
    descriptor = os.open(path, os.O_RDONLY if is_posix else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
