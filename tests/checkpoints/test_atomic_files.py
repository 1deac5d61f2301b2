"""Tests of atomic writing: a file is replaced when its new content is complete."""

from pathlib import Path

import pytest
from checkpoint_models import names_in

from albertkit.files import atomic_path


def test_the_file_is_replaced_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "file.bin"
    target.write_text("old")
    with atomic_path(target) as new:
        new.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert names_in(tmp_path) == ["file.bin"]


def test_an_error_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file.bin"
    target.write_text("old")

    def fail() -> None:
        with atomic_path(target) as new:
            new.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert target.read_text() == "old"
    assert names_in(tmp_path) == ["file.bin"]


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
