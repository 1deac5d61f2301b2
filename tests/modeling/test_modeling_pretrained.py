"""Tests of `from_pretrained` and `save_pretrained` with folders of albertkit and of transformers."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import transformers
from modeling_twins import HEADS, batch, largest_difference, make, make_twins
from safetensors.torch import load_file, save_file

from albertkit.errors import CheckpointError, ConfigError
from albertkit.modeling.auto import AutoModelForSequenceClassification
from albertkit.modeling.heads import AlbertForMaskedLM, AlbertForPreTraining, AlbertForSequenceClassification
from albertkit.modeling.model import AlbertModel

TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def no_unexpected_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def assert_equal_answers(one, other, head):
    inputs = batch(head, mask=True, segments=True)
    with torch.no_grad():
        for tensor, expected in zip(one(**inputs), other(**inputs).to_tuple(), strict=True):
            assert largest_difference(tensor, expected) <= TOLERANCE


@pytest.mark.parametrize("head", HEADS)
def test_both_directions_with_transformers(head, tmp_path: Path):
    values = {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2}
    ours, theirs = make_twins(head, **values)
    ours.save_pretrained(tmp_path / "ours")
    theirs_loaded, info = getattr(transformers, head).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert_equal_answers(ours, theirs_loaded.eval(), head)
    theirs.save_pretrained(tmp_path / "theirs")
    ours_loaded = HEADS[head].from_pretrained(tmp_path / "theirs")
    assert type(ours_loaded) is HEADS[head]
    assert not ours_loaded.training
    assert_equal_answers(ours_loaded, theirs, head)
    assert set(load_file(tmp_path / "ours" / "model.safetensors")) == set(
        load_file(tmp_path / "theirs" / "model.safetensors")
    )


def test_a_folder_of_albertkit(tmp_path: Path):
    model = make("AlbertForMaskedLM")
    model.save_pretrained(tmp_path / "deep" / "folder")
    config = json.loads((tmp_path / "deep" / "folder" / "config.json").read_text())
    assert config["architectures"] == ["AlbertForMaskedLM"]
    assert config["dtype"] == "float32"
    stored = load_file(tmp_path / "deep" / "folder" / "model.safetensors")
    assert "predictions.decoder.weight" not in stored  # tied weights are stored once
    assert "predictions.decoder.bias" not in stored
    loaded, info = AlbertForMaskedLM.from_pretrained(tmp_path / "deep" / "folder", output_loading_info=True)
    assert info["report"].ok
    assert info["missing_keys"] == info["unexpected_keys"] == info["mismatched_keys"] == set()
    assert loaded.predictions.decoder.weight.data_ptr() == loaded.get_input_embeddings().weight.data_ptr()
    assert loaded.predictions.decoder.weight is loaded.get_input_embeddings().weight
    assert loaded.predictions.decoder.bias is loaded.predictions.bias
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name
    with pytest.raises(ConfigError, match="safetensors"):
        model.save_pretrained(tmp_path, safe_serialization=False)


def test_untied_weights_in_both_directions_with_transformers(tmp_path: Path):
    """Without tied weights, `transformers` computes with the bias `predictions.decoder.bias` only."""
    ours, theirs = make_twins("AlbertForMaskedLM", tie_word_embeddings=False)
    ours.save_pretrained(tmp_path / "ours")
    assert_equal_answers(
        ours, transformers.AlbertForMaskedLM.from_pretrained(tmp_path / "ours").eval(), "AlbertForMaskedLM"
    )
    with torch.no_grad():
        theirs.predictions.decoder.bias.normal_()
    theirs.save_pretrained(tmp_path / "theirs")
    with pytest.warns(UserWarning, match=r"predictions\.bias differs from predictions\.decoder\.bias"):
        loaded = AlbertForMaskedLM.from_pretrained(tmp_path / "theirs")
    assert loaded.predictions.bias is loaded.predictions.decoder.bias
    assert_equal_answers(loaded, theirs, "AlbertForMaskedLM")


def test_training_a_loaded_model_does_not_change_the_file(tmp_path: Path):
    make("AlbertForMaskedLM").save_pretrained(tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    model = AlbertForMaskedLM.from_pretrained(tmp_path).train()
    assert all(parameter.requires_grad for parameter in model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(**batch(), labels=batch()["input_ids"]).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    model.save_pretrained(tmp_path / "next")
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_an_encoder_from_a_model_with_heads(tmp_path: Path):
    source = make("AlbertForPreTraining")
    source.save_pretrained(tmp_path)
    encoder, info = AlbertModel.from_pretrained(tmp_path, output_loading_info=True)
    assert info["report"].ok  # the report ignores heads that the model does not have
    assert torch.equal(encoder(**batch()).pooler_output, source.albert(**batch()).pooler_output)


def test_new_head_on_an_encoder(tmp_path: Path):
    source = make("AlbertModel")
    source.save_pretrained(tmp_path)
    torch.manual_seed(0)
    with pytest.warns(
        UserWarning, match=r"AlbertForSequenceClassification[\s\S]*classifier\.weight"
    ) as caught:
        model = AlbertForSequenceClassification.from_pretrained(tmp_path, num_labels=5)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="newly initialized") as caught:
        AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=5)
    assert caught[0].filename == __file__
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match="newly initialized"):
        again, info = AlbertForSequenceClassification.from_pretrained(
            tmp_path, num_labels=5, output_loading_info=True
        )
    assert info["missing_keys"] == {"classifier.weight", "classifier.bias"}
    assert model.classifier.weight.shape == (5, 32)
    assert torch.equal(model.classifier.weight, again.classifier.weight)
    assert 0.05 < model.classifier.weight.std() < 0.3  # initializer_range is 0.2
    assert model.classifier.bias.abs().max() == 0
    assert torch.equal(model.albert.pooler.weight, source.pooler.weight)


def test_a_new_masked_lm_head_is_tied(tmp_path: Path):
    make("AlbertModel").save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="predictions"):
        model = AlbertForMaskedLM.from_pretrained(tmp_path)
    assert model.predictions.decoder.weight is model.get_input_embeddings().weight
    assert model.predictions.decoder.bias is model.predictions.bias
    assert (model.predictions.LayerNorm.weight == 1).all()
    source = load_file(tmp_path / "model.safetensors")
    assert torch.equal(model.get_input_embeddings().weight, source["embeddings.word_embeddings.weight"])


def test_another_number_of_labels(tmp_path: Path):
    make("AlbertForSequenceClassification", num_labels=3).save_pretrained(tmp_path)
    for kind in (
        CheckpointError,
        RuntimeError,
    ):  # the class of albertkit, and the class that transformers raises
        with pytest.raises(kind, match=r"classifier\.weight is 3x32 in the file and 5x32"):
            AlbertForSequenceClassification.from_pretrained(tmp_path, num_labels=5)
    with pytest.warns(UserWarning, match=r"classifier\.weight"):
        model, info = AlbertForSequenceClassification.from_pretrained(
            tmp_path, num_labels=5, ignore_mismatched_sizes=True, output_loading_info=True
        )
    assert info["mismatched_keys"] == {
        ("classifier.weight", (3, 32), (5, 32)),
        ("classifier.bias", (3,), (5,)),
    }
    assert model(**batch()).logits.shape == (3, 5)
    assert model.config.id2label[4] == "LABEL_4"


def test_the_order_head_has_the_number_of_labels(tmp_path: Path):
    ours, theirs = make_twins("AlbertForPreTraining", num_labels=3)
    assert ours(**batch()).sop_logits.shape == (3, 3)
    ours.save_pretrained(tmp_path / "ours")
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = AlbertForPreTraining.from_pretrained(tmp_path / "theirs")
    assert_equal_answers(loaded, theirs, "AlbertForPreTraining")
    again = transformers.AlbertForPreTraining.from_pretrained(tmp_path / "ours")
    assert_equal_answers(ours, again.eval(), "AlbertForPreTraining")


def test_options_of_saving(tmp_path: Path):
    model = make("AlbertForMaskedLM")
    model.save_pretrained(tmp_path / "other", is_main_process=False)
    assert not (tmp_path / "other").exists()
    with pytest.raises(ConfigError, match=r"push_to_hub=True is not supported.*hf upload"):
        model.save_pretrained(tmp_path / "other", push_to_hub=True)
    model.save_pretrained(tmp_path / "one", save_function=torch.save, push_to_hub=False)
    model.save_pretrained(tmp_path / "two", state_dict=model.state_dict(), max_shard_size="50GB")
    weights = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("one", "two")]
    assert weights[0] == weights[1]


def test_weights_without_a_config_need_the_config(tmp_path: Path):
    """`transformers.Trainer` saves a model of another library in this way, without a config."""
    model = make("AlbertForMaskedLM")
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=r"no config\.json: .* Pass config=\.\.\., or write the file with"
    ):
        AlbertForMaskedLM.from_pretrained(tmp_path)
    loaded = AlbertForMaskedLM.from_pretrained(tmp_path, config=model.config)
    assert torch.equal(loaded(**batch()).logits, model(**batch()).logits)
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
    kept = model.state_dict(keep_vars=True)
    assert kept["predictions.decoder.weight"] is model.get_input_embeddings().weight


def test_modeling_does_not_import_slow_libraries(tmp_path: Path):
    """Importing torch._dynamo takes longer than loading and running a base model."""
    make("AlbertForMaskedLM").save_pretrained(tmp_path)
    code = (
        "import sys, torch; from albertkit.modeling.auto import AlbertForMaskedLM; "
        "heavy = {'transformers', 'huggingface_hub', 'tokenizers', 'sympy'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules); "
        f"model = AlbertForMaskedLM.from_pretrained({str(tmp_path)!r}); "
        "model(torch.ones(1, 4, dtype=torch.long)); sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
