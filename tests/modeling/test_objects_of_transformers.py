"""Tests that code written for transformers can pass its objects and options, with equal results."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from modeling_twins import HEADS, TINY, batch, largest_difference, make, make_twins, tiny

import albertkit
from albertkit.errors import CheckpointError, ConfigError

VALUES: dict[str, Any] = {
    "hidden_act": "relu",
    "hidden_dropout_prob": 0.1,
    "num_hidden_groups": 3,
    "name_of_a_project": "inn",
}


@pytest.mark.parametrize("head", HEADS)
def test_a_model_of_a_config_of_transformers(head: str) -> None:
    config: Any = transformers.AutoConfig.for_model("albert", **TINY, **VALUES)
    model = HEADS[head](config)
    assert isinstance(model.config, albertkit.AlbertConfig)
    expected = getattr(transformers, head)(config)
    assert {name: tensor.shape for name, tensor in model.state_dict().items()} == {
        name: tensor.shape for name, tensor in expected.state_dict().items()
    }
    model.load_state_dict(expected.state_dict())
    ours, theirs = model.eval()(**batch(head)), expected.eval()(**batch(head))
    assert largest_difference(ours.to_tuple()[0], theirs.to_tuple()[0]) < 1e-5


def test_values_of_a_config_of_transformers() -> None:
    theirs = transformers.AlbertConfig(
        **TINY,
        **VALUES,
        num_labels=3,
        attn_implementation="eager",
        problem_type="regression",
        tie_word_embeddings=False,
    )
    config = albertkit.AutoModelForMaskedLM.from_config(theirs).config
    for name in (*TINY, *VALUES, "problem_type", "tie_word_embeddings", "id2label", "label2id"):
        assert getattr(config, name) == getattr(theirs, name), name
    assert config.attn_implementation == "eager"
    assert "_name_or_path" not in config.to_dict()
    assert config.to_dict()["name_of_a_project"] == "inn"


def test_weights_with_a_config_of_transformers(tmp_path: Path) -> None:
    model = make("AlbertForMaskedLM")
    model.save_pretrained(tmp_path)
    theirs: Any = transformers.AutoConfig.from_pretrained(tmp_path)
    theirs.output_hidden_states = True
    loaded = albertkit.AlbertForMaskedLM.from_pretrained(tmp_path, config=theirs, num_hidden_layers=2)
    assert len(loaded(**batch()).hidden_states) == 3


def test_a_pipeline_with_a_config_of_transformers(tmp_path: Path) -> None:
    albertkit.AutoConfig.from_pretrained("bundled").save_pretrained(tmp_path)
    theirs: Any = transformers.AutoConfig.from_pretrained(tmp_path, num_hidden_layers=2)
    text = "She opened the [MASK]."
    answers = albertkit.pipeline("fill-mask", "bundled", config=theirs)(text)
    model = albertkit.AlbertForMaskedLM.from_pretrained("bundled", num_hidden_layers=2)
    expected = albertkit.pipeline("fill-mask", model, tokenizer="bundled")(text)
    assert [answer["token"] for answer in answers] == [answer["token"] for answer in expected]


@pytest.mark.parametrize("config", [{}, None, 3, transformers.BertConfig(), transformers.T5Config()])
def test_other_configs_are_an_error(config: Any) -> None:
    with pytest.raises(ConfigError, match="config"):
        albertkit.AlbertModel(config)


# --- options and inputs -----------------------------------------------------------------------


class Weighted(albertkit.AlbertForSequenceClassification):
    def __init__(self, config: albertkit.AlbertConfig, factor: float = 1.0, *, offset: float = 0.0) -> None:
        super().__init__(config)
        self.factor, self.offset = factor, offset


def test_positional_arguments_of_a_subclass(tmp_path: Path) -> None:
    make("AlbertForSequenceClassification").save_pretrained(tmp_path)
    assert Weighted.from_pretrained(tmp_path).factor == 1
    model = Weighted.from_pretrained(tmp_path, 0.5, offset=2.0)
    assert (model.factor, model.offset) == (0.5, 2.0)
    assert albertkit.AutoModel.from_pretrained(tmp_path, False).pooler is None


@pytest.mark.parametrize("others", [{"epoch": 3}, {"epoch": 3, "optimizer": {"lr": 0.1}, "note": None}])
def test_weights_beside_other_values(others: dict[str, Any], tmp_path: Path) -> None:
    model = make("AlbertForMaskedLM")
    model.config.save_pretrained(tmp_path)
    torch.save({**model.state_dict(), **others}, tmp_path / "pytorch_model.bin")
    with pytest.warns(UserWarning, match="epoch"):
        loaded = albertkit.AlbertForMaskedLM.from_pretrained(tmp_path)
    assert largest_difference(loaded(**batch()).logits, model(**batch()).logits) == 0


@pytest.mark.parametrize("size", ["1GB", "20KB"])
def test_weights_of_a_variant(size: str, tmp_path: Path) -> None:
    ours, theirs = make_twins("AlbertForMaskedLM")
    make("AlbertForMaskedLM", seed=1).save_pretrained(tmp_path)  # the default weights, which differ
    theirs.half().save_pretrained(tmp_path, variant="fp16", max_shard_size=size)
    loaded = albertkit.AlbertForMaskedLM.from_pretrained(tmp_path, variant="fp16")
    assert loaded.dtype == torch.float32
    assert torch.equal(loaded.predictions.dense.weight, ours.half().predictions.dense.weight.float())
    with pytest.raises(CheckpointError, match=r"variant 'bf16'"):
        albertkit.AlbertForMaskedLM.from_pretrained(tmp_path, variant="bf16")
    assert albertkit.AutoConfig.from_pretrained(tmp_path, variant="fp16").vocab_size == TINY["vocab_size"]


@pytest.mark.parametrize("strategy", ["auto", "balanced", "balanced_low_0", "sequential"])
def test_strategies_of_device_map(strategy: str, tmp_path: Path) -> None:
    make("AlbertModel").save_pretrained(tmp_path)
    best = albertkit.AlbertModel.from_pretrained(tmp_path, device_map="auto").device
    assert albertkit.AlbertModel.from_pretrained(tmp_path, device_map=strategy).device == best


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_one_attention_mask_for_all_rows(head: str, attention: str) -> None:
    model, inputs = make(head, attn_implementation=attention), batch(head)
    ids = inputs["input_ids"]
    mask = torch.ones_like(ids)
    mask[..., -4:] = 0
    expected = model(**inputs, attention_mask=mask).to_tuple()
    one = mask.reshape(-1, mask.shape[-1])[:1].reshape(*(1,) * (mask.dim() - 1), -1)
    for values, wanted in zip(model(**inputs, attention_mask=one).to_tuple(), expected, strict=True):
        assert torch.equal(values, wanted)


def test_gradients_of_checkpointing_with_use_reentrant() -> None:
    gradients = []
    for options in (None, {"use_reentrant": False}, {"use_reentrant": True}):
        model = make("AlbertForSequenceClassification").train()
        if options:
            model.gradient_checkpointing_enable(options)
        model(**batch(), labels=torch.tensor([0, 1, 1])).loss.backward()
        gradients.append(model.albert.embeddings.word_embeddings.weight.grad)
    assert torch.equal(gradients[0], gradients[1])
    assert torch.equal(gradients[0], gradients[2])


DIFFERENT = {
    "_can_record_outputs",  # layers return their attentions
    "_no_split_modules",
    "_supports_attention_backend",
    "_supports_context_parallel",
    "_supports_flash_attn",
    "_supports_flex_attn",
    "supports_gradient_checkpointing",
}


@pytest.mark.parametrize("head", HEADS)
def test_class_attributes_that_libraries_read(head: str) -> None:
    ours, theirs = HEADS[head], getattr(transformers, head)
    names = [name for name in dir(theirs) if name.startswith(("_supports", "_keys_to", "_keep_in", "_tied"))]
    names += ["_no_split_modules", "_skip_keys_device_placement", "_is_stateful", "_auto_class"]
    names += ["base_model_prefix", "main_input_name", "input_modalities", "supports_gradient_checkpointing"]
    for name in names:
        value, expected = getattr(ours, name), getattr(theirs, name)
        if name not in DIFFERENT and not name.startswith("_keys_to_ignore_on_save"):
            assert (value or None) == (expected or None), name
    assert len(ours._keep_in_fp32_modules) == len(ours._keep_in_fp32_modules_strict) == 0
    assert ours._can_set_attn_implementation() is theirs._can_set_attn_implementation() is True
    assert ours._can_set_experts_implementation() is theirs._can_set_experts_implementation() is False
    classes = {type(part).__name__ for part in make(head).modules()}
    assert set(ours._no_split_modules) <= classes
    for name in ("sub_configs", "attribute_map", "base_config_key", "keys_to_ignore_at_inference"):
        assert getattr(albertkit.AlbertConfig, name) == getattr(transformers.AlbertConfig, name, []), name


# --- models and pipelines of transformers -----------------------------------------------------


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_becomes_one_of_transformers(head: str, tied: bool) -> None:
    model = make(head, num_labels=3, tie_word_embeddings=tied, num_hidden_groups=3)
    theirs = model.to_transformers()
    assert isinstance(theirs, getattr(transformers, head))
    assert not theirs.training
    ours = dict(model.named_parameters())
    assert [*ours] == [name for name, _ in theirs.named_parameters()]
    assert all(parameter is ours[name] for name, parameter in theirs.named_parameters())
    inputs = batch(head, mask=True)
    for _ in range(2):
        expected = model(**inputs).to_tuple()
        for values, wanted in zip(theirs(**inputs).to_tuple(), expected, strict=True):
            assert largest_difference(values, wanted) < 1e-5
        with torch.no_grad():
            theirs.get_input_embeddings().weight.mul_(0.5)  # changes both


def test_other_models_become_models_of_transformers(tmp_path: Path) -> None:
    model = make("AlbertModel")
    without = albertkit.AlbertModel(tiny(), add_pooling_layer=False).eval()
    assert without.to_transformers().pooler is None
    assert isinstance(Weighted(tiny()).to_transformers(), transformers.AlbertForSequenceClassification)
    assert model.half().to_transformers().dtype == torch.float16
    model.train()
    assert model.to_transformers().training
    eager = make("AlbertModel", attn_implementation="eager").to_transformers()
    assert eager(**batch(), output_attentions=True).attentions is not None
    model = make("AlbertForMaskedLM")
    model.to_transformers().save_pretrained(tmp_path)
    loaded = albertkit.AlbertForMaskedLM.from_pretrained(tmp_path)
    assert torch.equal(loaded(**batch()).logits, model(**batch()).logits)


def test_pipelines_become_pipelines_of_transformers() -> None:
    ours = albertkit.pipeline("fill-mask", "bundled")
    text = "She opened the [MASK]."
    answers = ours(text)
    theirs = ours.to_transformers()
    assert isinstance(theirs, transformers.FillMaskPipeline)
    for one, other in zip(theirs(text), answers, strict=True):
        assert one["token"] == other["token"]
        assert one["score"] == pytest.approx(other["score"], abs=1e-5)
    assert ours.model.predictions.bias is theirs.model.predictions.bias
    vectors = albertkit.pipeline("feature-extraction", "bundled")
    expected = torch.tensor(vectors("She slept."))
    assert largest_difference(torch.tensor(vectors.to_transformers()("She slept.")), expected) < 1e-5
    with pytest.raises(ConfigError, match="sentence-order"):
        albertkit.pipeline("sentence-order", "bundled").to_transformers()
