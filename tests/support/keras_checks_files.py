"""Checks of the files that Keras models load."""

from pathlib import Path
from typing import Any

import keras
import pytest
import torch
from keras_models import DEEP, SHALLOW, on_tensorflow_alone
from modeling_twins import batch, make

import albertkit
import albertkit.hub_upload
import albertkit.keras
from albertkit import AlbertModel
from albertkit.checkpoints.arrays import to_torch
from albertkit.conversion import convert
from albertkit.errors import CheckpointError, ConfigError
from albertkit.keras.pretrained import tensors_of


@on_tensorflow_alone
def test_every_format_loads(tmp_path: Path) -> None:
    ours = make("AlbertForPreTraining", **DEEP)
    ours.save_pretrained(tmp_path / "hf")
    convert(tmp_path / "hf", tmp_path / "tf1", to="tf1")
    (tmp_path / "bin").mkdir()
    ours.config.save_pretrained(tmp_path / "bin")
    torch.save(ours.bfloat16().state_dict(), tmp_path / "bin/pytorch_model.bin")
    for folder, exact in (("tf1", True), ("bin", False)):
        model, info = albertkit.keras.TFAlbertForPreTraining.from_pretrained(
            tmp_path / folder, output_loading_info=True
        )
        assert info["report"].ok
        expected = AlbertModel.from_pretrained(tmp_path / ("hf" if exact else "bin")).state_dict()
        tensors = tensors_of(model)
        for name, tensor in expected.items():
            assert torch.equal(to_torch(tensors[f"albert.{name}"]), tensor), name


@on_tensorflow_alone
def test_options_of_saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = albertkit.keras.TFAlbertModel(make("AlbertModel", **SHALLOW).config, dtype="float64")
    model.save_pretrained(tmp_path, push_to_hub=False, max_shard_size="10KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    again = tensors_of(albertkit.keras.TFAlbertModel.from_pretrained(tmp_path, dtype="float64"))
    assert all((again[name] == tensor).all() for name, tensor in tensors_of(model).items())
    with pytest.raises(ConfigError, match=r"Call push_to_hub\('ORGANIZATION/NAME'\)"):
        model.save_pretrained(tmp_path, push_to_hub=True)
    monkeypatch.setattr(albertkit.hub_upload, "upload", lambda files, repo_id, **_: (repo_id, [*files]))
    assert model.push_to_hub("my/model") == ("my/model", ["config.json", "model.safetensors"])


@on_tensorflow_alone
def test_loading_returns_a_checked_report(tmp_path: Path) -> None:
    make("AlbertModel", **SHALLOW).save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=r"newly initialized, not in the file: classifier\.weight"):
        model, info = albertkit.keras.TFAlbertForSequenceClassification.from_pretrained(
            tmp_path, num_labels=5, output_loading_info=True
        )
    assert info["missing_keys"] == {"classifier.weight", "classifier.bias"}
    drawn = keras.ops.convert_to_numpy(model.classifier.kernel.value)
    assert 0.1 < drawn.std() < 0.25  # 0.2, truncated at two standard deviations
    assert tuple(model(batch()["input_ids"].numpy()).logits.shape) == (3, 5)
    model.save_pretrained(tmp_path / "five")
    with pytest.raises(CheckpointError, match=r"classifier\.weight is 5x32 in the file and 2x32"):
        albertkit.keras.TFAlbertForSequenceClassification.from_pretrained(tmp_path / "five", num_labels=2)
    lacking = make("AlbertModel", **SHALLOW).state_dict()
    del lacking["encoder.embedding_hidden_mapping_in.weight"]
    (tmp_path / "model.safetensors").unlink()
    torch.save(lacking, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"lacks encoder\.embedding_hidden_mapping_in\.weight"):
        albertkit.keras.TFAlbertModel.from_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="no argument 'num_lables'"):
        albertkit.keras.TFAlbertModel.from_pretrained("bundled", num_lables=2)


@on_tensorflow_alone
@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_functional_models_load_again(ending: str, tmp_path: Path) -> None:
    config = make("AlbertModel", **SHALLOW).config
    ids = batch()["input_ids"].numpy()
    mask = (ids % 3 > 0).astype("int32")
    calls: list[Any] = [
        lambda encoder, tokens, mask: encoder(tokens, attention_mask=mask),
        lambda encoder, tokens, mask: encoder([tokens, mask]),
        lambda encoder, tokens, mask: encoder({"input_ids": tokens, "attention_mask": mask}),
    ]
    for call in calls if ending == "keras" else calls[:1]:
        tokens, seen = (keras.Input((None,), dtype=kind) for kind in ("int32", "int64"))
        pooled = call(albertkit.keras.TFAlbertModel(config), tokens, seen)[1]
        model = keras.Model([tokens, seen], keras.layers.Dense(2)(pooled))
        model.save(tmp_path / f"model.{ending}")
        again = keras.models.load_model(tmp_path / f"model.{ending}")
        outputs, expected = (keras.ops.convert_to_numpy(each([ids, mask])) for each in (again, model))
        assert (outputs == expected).all()


@on_tensorflow_alone
def test_configs_of_transformers() -> None:
    class Theirs:  # importing transformers takes seconds
        model_type = "albert"

        def to_dict(self) -> dict:
            return {**make("AlbertModel", **SHALLOW).config.to_dict(), "hidden_act": "quick_gelu"}

    model = albertkit.keras.TFAlbertForMaskedLM(Theirs())
    assert model.config.hidden_act == "quick_gelu"
