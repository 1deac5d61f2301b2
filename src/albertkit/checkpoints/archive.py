"""Unpack the `.tar.gz` files in which checkpoints were released: only needed files, with a size limit."""

import gzip
import re
import shutil
import tarfile
import zlib
from pathlib import Path
from typing import IO

from albertkit.checkpoints.checkpoint import VOCABULARY_FILES
from albertkit.errors import CheckpointError

ENDINGS = (".tar.gz", ".tgz", ".tar")

_LARGEST_GAIN = 1_100
"""Maximum number of bytes that one byte of an archive can expand to: gzip ends at 1,032, sparse files have no
limit."""
_WANTED = re.compile(
    r".+\.index|.+\.data-\d{5}-of-\d{5}|checkpoint|.*config.*\.json|.+\.(model|spm)|"
    + "|".join(map(re.escape, VOCABULARY_FILES))
)
_LARGEST_READ_WHOLE = 64 << 20
"""Index, config and vocabulary are read completely; only the data shards are mapped."""
_LONGEST_READ = 1 << 20
"""Headers and parts of files are kilobytes; a header that claims more is damaged."""


class _Stream:
    """The decompressed content of an archive, for a reader that trusts every length it finds."""

    def __init__(self, file: IO[bytes], archive: Path) -> None:
        self._file = file
        self._archive = archive
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _LONGEST_READ:
            raise CheckpointError(f"{self._archive} is damaged: it has a header of {size:,} bytes.")
        return self._file.read(size)


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write a file below `folder`. `TarFile.extract` has its `filter` only since Python 3.11.4."""
    place = Path(member.name)
    if place.is_absolute() or ".." in place.parts:
        raise tarfile.TarError(f"{member.name!r} leads out of the archive")
    content = tar.extractfile(member)
    assert content is not None  # because it is a regular file
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    with content, (folder / place).open("wb") as file:
        shutil.copyfileobj(content, file, _LONGEST_READ)


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack only the files of a TensorFlow checkpoint and return their folder.

    Raises:
        CheckpointError: the archive is damaged, expands to more than its size allows, or has no checkpoint or
            several.
    """
    room = _LARGEST_GAIN * archive.stat().st_size
    try:
        with (
            archive.open("rb") if archive.suffix == ".tar" else gzip.open(archive) as file,
            tarfile.open(fileobj=_Stream(file, archive), mode="r:") as tar,  # type: ignore[call-overload]
        ):
            for member in tar:
                if member.isfile() and _WANTED.fullmatch(Path(member.name).name):
                    room -= member.size
                    is_data = ".data-" in member.name
                    if room < 0 or (member.size > _LARGEST_READ_WHOLE and not is_data):
                        raise CheckpointError(
                            f"{archive} is not a plausible archive: its files are too large for its size. "
                            "Copy it again."
                        )
                    _extract(tar, member, folder)
    except CheckpointError:
        raise
    except (tarfile.TarError, OSError, EOFError, OverflowError, ValueError, zlib.error) as error:
        raise CheckpointError(f"{archive} is damaged or not an archive ({error}). Copy it again.") from error
    places = sorted({path.parent for path in folder.rglob("*.index")})
    places = [place.parent if place.name == "variables" else place for place in places]
    if len(places) != 1:
        names = ", ".join(str(place.relative_to(folder)) for place in places)
        raise CheckpointError(
            f"{archive} has {len(places)} checkpoints{': ' + names if names else ''}. Expected one. "
            "Unpack it and pass the folder."
        )
    return places[0]
