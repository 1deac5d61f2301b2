"""Tests of model folders that albertkit and `transformers` exchange."""

from pathlib import Path

import pytest
import torch
from checkpoint_models import HEADS, TINY, assert_same, reference, shapes
from torch_files import match, read_folder, write_folder

from albertkit import heads


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


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_transformers_reads_folders_of_albertkit(head: type, tmp_path: Path) -> None:
    theirs = reference(head)
    write_folder(tmp_path, theirs.config.to_dict(), theirs.state_dict())
    loaded, info = head.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    assert_same(dict(loaded.state_dict()), dict(theirs.state_dict()))
    if hasattr(loaded, "predictions"):
        assert loaded.predictions.decoder.weight is loaded.albert.embeddings.word_embeddings.weight
    ids = (
        torch.tensor([[2, 9, 8, 3]])
        if not heads.HEADS[head.__name__].has_choices
        else torch.ones(1, 2, 4).long()
    )
    with torch.no_grad():
        assert torch.allclose(loaded.eval()(input_ids=ids)[0], theirs(input_ids=ids)[0], atol=1e-6)


def test_both_libraries_store_the_same_tensors(tmp_path: Path) -> None:
    theirs = reference()
    theirs.save_pretrained(tmp_path / "theirs")
    write_folder(tmp_path / "ours", theirs.config.to_dict(), theirs.state_dict())
    assert_same(read_folder(tmp_path / "ours")[1], read_folder(tmp_path / "theirs")[1])
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("ours", "theirs")]
    assert sizes[0] <= sizes[1] + 64
