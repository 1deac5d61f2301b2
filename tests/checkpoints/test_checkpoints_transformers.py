"""Tests of model folders that albertkit and `transformers` exchange."""

from pathlib import Path

import pytest
from checkpoint_models import HEADS, TINY, assert_same, reference, shapes
from torch_files import match, read_folder


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
@pytest.mark.parametrize("shard_size", ["5GB", "4KB"], ids=["whole", "shards"])
def test_albertkit_reads_folders_of_transformers(head: type, shard_size: str, tmp_path: Path) -> None:
    theirs = reference(head)
    theirs.save_pretrained(tmp_path, max_shard_size=shard_size)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard_size == "4KB")
    config, tensors = read_folder(tmp_path)
    assert {key: config[key] for key in TINY} == TINY
    matched, report = match(tensors, shapes(theirs))
    assert_same(matched, dict(theirs.state_dict()))
    assert report.ok
