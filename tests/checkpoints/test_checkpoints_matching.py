"""Tests of the table of tensor names, and of matching the tensors of a file with those of a model."""

from pathlib import Path

import pytest
import torch
import transformers
from checkpoint_models import HEADS, SHARED_HEADS, assert_same, reference, shapes
from torch_files import match, read_folder, write_folder

from albertkit import heads
from albertkit.checkpoints.names import TABLE, TIED, canonical, in_model, spec_of
from albertkit.errors import CheckpointError

EMBEDDINGS = "albert.embeddings.word_embeddings.weight"
DECODER = "predictions.decoder.weight"
SEVERAL_LABELS = [getattr(transformers, name) for name, head in SHARED_HEADS.items() if not head.has_choices]
"""All heads except multiple choice, whose classifier always has one output."""


# --- the table of names -------------------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_table_covers_every_tensor_of_transformers(head: type) -> None:
    assert {name for name in shapes(reference(head)) if spec_of(name) is None} == set()


def test_models_use_every_row_of_the_table() -> None:
    used = {spec_of(name) for head in HEADS for name in shapes(reference(head))}
    # transformers lacks some heads.
    extra = {row for name, head in heads.HEADS.items() if name not in SHARED_HEADS for row in head.tensors}
    assert used == {row for row in TABLE if row not in extra - used}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("albert.embeddings.LayerNorm.gamma", "albert.embeddings.LayerNorm.weight"),
        ("predictions.LayerNorm.beta", "predictions.LayerNorm.bias"),
        ("module.classifier.weight", "classifier.weight"),
        ("_orig_mod.module.albert.pooler.bias", "albert.pooler.bias"),
        ("predictions.bias", "predictions.bias"),
        ("gamma", "gamma"),
    ],
)
def test_canonical(name: str, expected: str) -> None:
    assert canonical(name) == expected


def test_in_model_adds_and_removes_the_prefix() -> None:
    assert in_model("pooler.weight", {"albert.pooler.weight"}) == "albert.pooler.weight"
    assert in_model("albert.pooler.weight", {"pooler.weight"}) == "pooler.weight"
    assert in_model("albert.pooler.weight", {"albert.pooler.weight"}) == "albert.pooler.weight"
    assert in_model("bert.pooler.weight", {"albert.pooler.weight"}) is None
    assert spec_of("bert.embeddings.word_embeddings.weight") is None
    assert spec_of("encoder.albert_layer_groups.0.albert_layers.x.ffn.weight") is None


# --- matching ------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_head", SEVERAL_LABELS, ids=lambda head: head.__name__)
@pytest.mark.parametrize("file_head", SEVERAL_LABELS, ids=lambda head: head.__name__)
def test_any_head_loads_from_any_head(file_head: type, model_head: type, tmp_path: Path) -> None:
    """Common tensors are loaded. Tensors that only the model has are missing. No tensor is unexpected."""
    source, target = reference(file_head, seed=1), reference(model_head, seed=2)
    write_folder(tmp_path, {}, source.state_dict())
    matched, report = match(read_folder(tmp_path)[1], shapes(target))

    ours, theirs = target.state_dict(), source.state_dict()
    bare = {name.removeprefix("albert."): tensor for name, tensor in theirs.items()}
    common = {name for name in ours if name.removeprefix("albert.") in bare}
    common |= {DECODER} & set(ours)  # tied to the embeddings, which every file has
    assert set(matched) == set(report.loaded) == common
    assert set(report.missing) == set(ours) - common
    assert report.unexpected == []
    target.load_state_dict(matched, strict=False)
    for name, tensor in target.state_dict().items():
        if name in common:
            expected = bare.get(name.removeprefix("albert."), bare["embeddings.word_embeddings.weight"])
            assert torch.equal(tensor, expected), name
        else:
            assert torch.equal(tensor, ours[name]), name
    assert report.ok == (common == set(ours))


def test_old_names_are_loaded_and_constants_ignored() -> None:
    model = reference(transformers.AlbertForMaskedLM)
    expected = model.state_dict()
    old = {
        "module."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
        for name, t in expected.items()
    }
    old["module.albert.embeddings.position_ids"] = torch.arange(16)[None]
    matched, report = match(old, shapes(model))
    assert_same(matched, dict(expected))
    assert report.ok
    assert report.loaded["albert.embeddings.LayerNorm.weight"] == "module.albert.embeddings.LayerNorm.gamma"
    assert "a constant that older versions stored" in report.ignored["module.albert.embeddings.position_ids"]


@pytest.mark.parametrize(("second", "first"), TIED.items())
def test_one_name_of_a_tied_tensor_is_enough(second: str, first: str) -> None:
    model = reference()
    tensors = dict(model.state_dict())
    for absent in (second, first):
        matched, report = match({k: v for k, v in tensors.items() if k != absent}, shapes(model))
        assert_same(matched, tensors)
        assert report.ok
        assert matched[first] is matched[second]


def test_tied_tensors_that_differ_in_the_file_are_reported() -> None:
    model = reference()
    tensors = dict(model.state_dict())
    tensors[DECODER] = tensors[DECODER] + 1
    matched, report = match(tensors, shapes(model))
    assert torch.equal(matched[DECODER], tensors[EMBEDDINGS])
    assert report.conflicting == {DECODER: EMBEDDINGS}
    assert not report.ok
    assert f"not used: {DECODER} differs from {EMBEDDINGS}" in str(report)

    matched, report = match(tensors, shapes(model), tied={})
    assert torch.equal(matched[DECODER], tensors[DECODER])
    assert report.ok


def test_the_encoder_must_be_complete_but_the_pooler_may_be_missing() -> None:
    model = reference()
    tensors = dict(model.state_dict())
    for name in tensors:
        rest = {key: value for key, value in tensors.items() if key != name}
        if name.startswith(("albert.embeddings.LayerNorm", "albert.embeddings.pos", "albert.encoder")):
            with pytest.raises(CheckpointError, match=f"lacks {name}, which every model needs"):
                match(rest, shapes(model))
        elif name.startswith("albert.pooler"):
            assert match(rest, shapes(model))[1].missing == [name]


def test_a_surplus_layer_is_unexpected() -> None:
    model = reference()
    surplus = "albert.encoder.albert_layer_groups.7.albert_layers.0.ffn.bias"
    report = match(dict(model.state_dict()) | {surplus: torch.zeros(20)}, shapes(model))[1]
    assert report.unexpected == [surplus]
    assert not report.ok


def test_two_tensors_for_one_name() -> None:
    tensors = dict(reference().state_dict())
    tensors["embeddings.LayerNorm.gamma"] = tensors["albert.embeddings.LayerNorm.weight"]
    with pytest.raises(CheckpointError, match=r"twice: 'albert.embeddings.LayerNorm.weight', 'embeddings"):
        match(tensors, shapes(reference()))


def test_another_shape_is_an_error_unless_ignored() -> None:
    model = reference(transformers.AlbertForSequenceClassification)
    tensors = dict(model.state_dict()) | {
        "classifier.weight": torch.zeros(5, 12),
        "classifier.bias": torch.zeros(5),
    }
    with pytest.raises(CheckpointError, match=r"classifier.weight is 5x12 in the file and 2x12 in the model"):
        match(tensors, shapes(model))
    matched, report = match(tensors, shapes(model), ignore_mismatched_sizes=True)
    assert report.reshaped == {"classifier.weight": ((5, 12), (2, 12)), "classifier.bias": ((5,), (2,))}
    assert set(matched) == set(tensors) - set(report.reshaped)
    assert report.missing == []
    assert not report.ok
