"""The output folder of `prepare`: finished shards, a note for each, and manifests at the end.

    OUTPUT/train/       a shard folder (see shards.py)
    OUTPUT/validation/  another, with the source documents held out
    OUTPUT/.progress/   a note for each finished unit, while the work is unfinished

Every file under its final name is complete: files are renamed when they are on the disk, a unit's note is
written after its shards, and the manifests after all notes. Only this module writes to the folder.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from albertkit.errors import DataError, DiskFullError
from albertkit.extras import optional
from albertkit.files import (
    atomic_path,
    check_new_folder,
    file_sha256,
    full_disk_named,
    made_folder,
    read_json,
    write_json,
)
from albertkit.pretraining.shards import MANIFEST, Manifest, ShardRecord
from albertkit.pretraining.units import SPLITS, Unit
from albertkit.recipe import build

filelock = optional("filelock", extra="train")

Records = dict[str, ShardRecord]  # of one unit, by split


@dataclass(frozen=True)
class PreparedFolder:
    """The output folder, with the finished units of an interrupted run."""

    path: Path

    @contextmanager
    def open(self) -> Iterator[None]:
        """Prepare the folder for the work of the block; if the block raises, remove empty folders."""
        if (self.path / "train" / MANIFEST).exists():
            raise DataError(
                f"{self.path}: the folder has finished shards. Delete them or choose another folder."
            )
        if not self._notes.is_dir():
            check_new_folder(self.path)
        with made_folder(self._notes), self._locked():
            with self._writing():
                for split in SPLITS:  # from a run that was interrupted between its manifests
                    (self.path / split / MANIFEST).unlink(missing_ok=True)
            yield

    def finished(self) -> dict[int, tuple[str, Records]]:
        """Return fingerprint and records of each finished unit with valid files, by its number."""
        units: dict[int, tuple[str, Records]] = {}
        for note in self._notes.glob("*.json"):
            with suppress(OSError, LookupError, TypeError, ValueError, AttributeError):  # repeat the unit
                values = read_json(note, DataError)
                records = {
                    split: build(ShardRecord, record, where=split)
                    for split, record in values["records"].items()
                }
                files = {self.path / split / record.file: record for split, record in records.items()}
                if all(file_sha256(file) == record.sha256 for file, record in files.items()):
                    units[int(note.stem)] = values["fingerprint"], records
        return units

    def keep(self, unit: Unit) -> Records:
        """Write the shards of a unit, then the note that it is finished."""
        assert unit.shards is not None
        records = {split: record for split, (record, _) in unit.shards.items()}
        note = {
            "fingerprint": unit.fingerprint,
            "records": {split: asdict(record) for split, record in records.items()},
        }
        try:
            with self._writing():
                for split, (record, content) in unit.shards.items():
                    file = self.path / split / record.file
                    with made_folder(file.parent), atomic_path(file) as path:
                        path.write_bytes(content)
                write_json(self._notes / f"{unit.number:05d}.json", note, indent=None)
        except BaseException:
            self._remove_shards(records)  # without a note they could not be resumed
            raise
        return records

    def _remove_shards(self, records: Records) -> None:
        for split, record in records.items():
            (self.path / split / record.file).unlink(missing_ok=True)
            with suppress(OSError):  # other shards are there
                (self.path / split).rmdir()

    def close(self, manifests: Mapping[str, Manifest]) -> None:
        """Write the manifests, and remove the notes and all shards that are not in the manifests."""
        with self._writing():
            self._remove_leftovers(manifests)
            for split in reversed(SPLITS):  # train/ last: if it is finished, everything is
                if split in manifests:
                    manifests[split].write(self.path / split)
            shutil.rmtree(self._notes)

    def _remove_leftovers(self, manifests: Mapping[str, Manifest]) -> None:
        """Remove the shards that are not in the manifests, partial shards, and empty folders of splits."""
        for split in SPLITS:
            folder = self.path / split
            manifest = manifests.get(split)
            listed = {record.file for record in manifest.shards} if manifest else set()
            for file in [*folder.glob("shard-*.arrow"), *folder.glob(".shard-*.tmp")]:
                if file.name not in listed:
                    file.unlink()
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the folder, because a second process could remove the shards of the first."""
        lock = filelock.FileLock(self._notes / ".lock")
        with self._writing():
            try:
                lock.acquire(timeout=0)
            except filelock.Timeout:
                raise DataError(
                    f"{self.path} is in use by another `prepare`. Wait for it, or choose another folder."
                ) from None
        try:
            yield
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()

    @property
    def _notes(self) -> Path:
        return self.path / ".progress"

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with full_disk_named(self.path):
                yield
        except DiskFullError:
            raise
        except OSError as error:
            raise DataError(
                f"{self.path}: cannot be written ({error.strerror or error}). Finished shards are kept. "
                "Correct the problem and run the same command again."
            ) from error
