"""Tests of writing files: strict JSON, permissions, full disks, and paths that already exist."""

import copy
import errno
import math
import os
import resource
import stat
import types
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from albertkit import files
from albertkit.checkpoints.folder import write_folder
from albertkit.config import AlbertConfig
from albertkit.datasets.examples import TextExample
from albertkit.errors import DataError, DiskFullError
from albertkit.files import (
    atomic_path,
    by_number,
    check_new_file,
    check_new_folder,
    complete_files,
    finite,
    json_text,
    made_folder,
    values_sha256,
    write_json,
)

pytestmark = pytest.mark.light

posix = pytest.mark.skipif(os.name != "posix", reason="tests POSIX permissions")


# --- JSON ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, np.float64("nan")])
def test_nan_and_infinity_are_not_written_to_json(number: float, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="JSON cannot represent"):
        write_json(tmp_path / "x.json", {"step": 3, "metrics": {"loss": [0.5, number]}})
    assert not any(tmp_path.iterdir())
    with pytest.raises(DataError, match="JSON cannot represent"):
        json_text(number)


def test_finite_replaces_nan_and_infinity_by_null() -> None:
    value = {"loss": math.nan, "by_length": [(1, math.inf)], "name": "x", "count": 3}
    assert finite(value) == {"loss": None, "by_length": [[1, None]], "name": "x", "count": 3}
    assert finite([np.array([[1.5, np.nan]]), np.float32("inf"), np.int64(3)]) == [[[1.5, None]], None, 3]
    assert finite(np.datetime64("2026-11-25", "ns")) == np.datetime64("2026-11-25")


# --- atomic writing -----------------------------------------------------------------------------


def test_the_file_is_replaced_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "file.bin"
    target.write_text("old")
    with atomic_path(target) as new:
        new.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]


def test_two_files_are_renamed_when_both_are_complete(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with atomic_path(first) as new_first, atomic_path(second) as new_second:
        new_first.write_text("1")
        new_second.write_text("2")
        assert not first.exists()
        assert not second.exists()
    assert (first.read_text(), second.read_text()) == ("1", "2")


def test_a_link_is_replaced_but_not_its_target(tmp_path: Path) -> None:
    """Snapshots in the hub's cache are links to shared blobs, which must not change."""
    blob = tmp_path / "blob"
    blob.write_text("shared")
    link = tmp_path / "link"
    link.symlink_to(blob)
    with atomic_path(link) as new:
        new.write_text("mine")
    assert (blob.read_text(), link.read_text(), link.is_symlink()) == ("shared", "mine", False)


# --- permissions --------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    write_folder(tmp_path, {}, {"x": np.zeros(2)})
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).chmod(mode)
    write_folder(tmp_path, {}, {"x": np.ones(2)})
    for name in ("config.json", "model.safetensors"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode


def test_a_disk_that_is_full_when_files_are_flushed(tmp_path: Path, monkeypatch) -> None:
    def fail(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "flush_to_disk", fail)
    with pytest.raises(DiskFullError, match="no space left on the disk"), complete_files(tmp_path) as folder:
        (folder / "file").write_text("new")
    assert not any(tmp_path.iterdir())


@posix
@pytest.mark.parametrize("mask", [0o077, 0o002])
def test_a_new_file_follows_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_json(tmp_path / "x.json", {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x.json").stat().st_mode) == 0o666 & ~mask


# --- existing files and folders -----------------------------------------------------------------


def test_a_folder_and_a_device_are_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is a folder. Expected the name of a file"), atomic_path(tmp_path):
        raise AssertionError
    with pytest.raises(DataError, match="is a device"), atomic_path(os.devnull):
        raise AssertionError
    assert not Path(os.devnull).is_file()


def test_a_new_file_must_not_exist_and_its_folder_must_exist(tmp_path: Path) -> None:
    check_new_file(tmp_path / "new")
    (tmp_path / "file").write_text("mine")
    for target, message in {
        "file": "exists. Choose another name",
        "": "exists",
        "file/inner": "there is no folder",
    }.items():
        with pytest.raises(DataError, match=message):
            check_new_file(tmp_path / target)


def test_a_new_folder_must_be_missing_or_empty(tmp_path: Path) -> None:
    check_new_folder(tmp_path / "new")
    check_new_folder(tmp_path)
    (tmp_path / ".file.12ab34cd.tmp").touch()
    check_new_folder(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"holds .*file. Choose another folder"):
        check_new_folder(tmp_path)
    with pytest.raises(DataError, match=r"is a file. Expected a folder"):
        check_new_folder(tmp_path / "file")


def test_writing_to_a_file_as_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "inner"):
        with pytest.raises(DataError, match=r"/file is a file. Expected a folder"), made_folder(folder):
            raise AssertionError
    with pytest.raises(DataError, match=r"is a file. Expected a folder"):
        AlbertConfig().save_pretrained(tmp_path / "file")


def test_names_sort_by_their_numbers() -> None:
    names = ["step-20", "step-100", "step-3", "\N{ARABIC-INDIC DIGIT THREE}", "a", "7", "\N{SUPERSCRIPT TWO}"]
    assert sorted(names, key=by_number)[:4] == ["7", "a", "step-3", "step-20"]


def test_created_folders_are_removed_after_an_error(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with pytest.raises(KeyError), made_folder(tmp_path / "old" / "a" / "b"):
        raise KeyError
    assert [*tmp_path.rglob("*")] == [tmp_path / "old"]


# --- full disks ---------------------------------------------------------------------------------


@contextmanager
def limited_files(size: int) -> Iterator[None]:
    """Limit the size of files that this process writes, in bytes, to simulate a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@posix
@pytest.mark.parametrize(
    "write",
    [
        lambda folder: write_json(folder / "file", "x" * 100_000),
        lambda folder: write_folder(folder, {}, {"x": np.zeros(100_000)}),
        lambda folder: write_array(folder / "file"),
    ],
    ids=["text", "safetensors", "array"],
)
def test_a_full_disk_is_an_error_and_keeps_the_old_files(tmp_path: Path, write) -> None:
    for name in ("file", "model.safetensors", "config.json"):
        (tmp_path / name).write_text("old")
    with (
        pytest.raises(DiskFullError, match=r"(file|safetensors): no space left on the disk.* same command"),
        limited_files(50_000),
    ):
        write(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(
        ("file", "model.safetensors", "config.json"), "old"
    )


def write_array(path: Path) -> None:
    with atomic_path(path) as new, new.open("wb") as stream:
        np.save(stream, np.zeros(100_000))


def test_the_hash_of_values_has_all_of_their_content() -> None:
    class Item:
        def __init__(self, value: Any) -> None:
            self.value = value

    large = np.arange(5000)
    other = large.copy()
    other[2500] = 0
    different = [
        {"a": large}, {"a": other}, {"a": Item(1)}, {"a": Item(2)}, {"a": Item(other)}, {"a": "1"}, {"a": 1},
        {"a": 1.5}, {"a": None}, {"a": [1, 2]}, {"a": {"b": 1}}, {"a": {"b": 2}}, {"b": 1}, {}, {"a": {1, 2}},
        {"a": TextExample("x")}, {"a": TextExample("y")}, {"a": date(2020, 1, 2)}, {"a": date(2020, 1, 3)},
        {"a": b"x"}, {"a": Decimal("1.5")}, {"a": {(1, 2): "x"}},
    ]  # fmt: skip
    hashes = [values_sha256([one]) for one in different]
    assert len({*hashes}) == len(different)
    assert hashes == [values_sha256([copy.deepcopy(one)]) for one in different]
    assert values_sha256([1, 2]) != values_sha256([12])
    assert values_sha256([{"a": large}]) == values_sha256([{"a": large.tolist()}])
    assert values_sha256([object()]) == values_sha256([object()])  # has no content
    assert values_sha256([types.MappingProxyType({"a": 1})]) == values_sha256([{"a": 1}])
