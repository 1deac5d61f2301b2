"""from_pretrained and save_pretrained: our folders, those of `transformers`, and what does not fit."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import transformers
from modeling_twins import HEADS, TINY, batch, largest_difference, make, make_twins, tiny
from safetensors.torch import load_file, save_file
from torch import nn

from albertkit import devices
from albertkit.config import AlbertConfig, AutoConfig
from albertkit.errors import CheckpointError, ConfigError, ModelNotFoundError
from albertkit.modeling import auto
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.pretraining_heads import AlbertForMaskedLM, AlbertForPreTraining
from albertkit.modeling.task_heads import AlbertForQuestionAnswering, AlbertForSequenceClassification

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


def test_folder_of_ours(tmp_path: Path):
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


def test_untied_weights_stay_two(tmp_path: Path):
    model = make("AlbertForMaskedLM", tie_word_embeddings=False)
    model.save_pretrained(tmp_path)
    loaded = AlbertForMaskedLM.from_pretrained(tmp_path)
    assert loaded.get_output_embeddings().weight is not loaded.get_input_embeddings().weight
    assert torch.equal(loaded.get_output_embeddings().weight, model.get_output_embeddings().weight)
    assert torch.equal(model(**batch()).logits, loaded(**batch()).logits)


def test_untied_weights_in_both_directions_with_transformers(tmp_path: Path):
    """Without tying, the bias that `transformers` computes with is `predictions.decoder.bias` alone."""
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


def test_loaded_model_trains_and_leaves_the_file_alone(tmp_path: Path):
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


# --- from one head to another -----------------------------------------------------------------


def test_encoder_of_a_model_with_heads(tmp_path: Path):
    source = make("AlbertForPreTraining")
    source.save_pretrained(tmp_path)
    encoder, info = AlbertModel.from_pretrained(tmp_path, output_loading_info=True)
    assert info["report"].ok  # heads this model does not have are no loss
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


def test_new_masked_word_head_is_tied(tmp_path: Path):
    make("AlbertModel").save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="predictions"):
        model = AlbertForMaskedLM.from_pretrained(tmp_path)
    assert model.predictions.decoder.weight is model.get_input_embeddings().weight
    assert model.predictions.decoder.bias is model.predictions.bias
    assert (model.predictions.LayerNorm.weight == 1).all()
    source = load_file(tmp_path / "model.safetensors")
    assert torch.equal(model.get_input_embeddings().weight, source["embeddings.word_embeddings.weight"])


def test_other_number_of_labels(tmp_path: Path):
    make("AlbertForSequenceClassification", num_labels=3).save_pretrained(tmp_path)
    for kind in (CheckpointError, RuntimeError):  # ours, and what transformers raises
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


def test_order_outputs_follow_the_number_of_labels(tmp_path: Path):
    ours, theirs = make_twins("AlbertForPreTraining", num_labels=3)
    assert ours(**batch()).sop_logits.shape == (3, 3)
    ours.save_pretrained(tmp_path / "ours")
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = AlbertForPreTraining.from_pretrained(tmp_path / "theirs")
    assert_equal_answers(loaded, theirs, "AlbertForPreTraining")
    again = transformers.AlbertForPreTraining.from_pretrained(tmp_path / "ours")
    assert_equal_answers(ours, again.eval(), "AlbertForPreTraining")


def test_models_in_subfolders(tmp_path: Path):
    model = make("AlbertModel")
    model.save_pretrained(tmp_path / "checkpoints" / "step-5")
    for load in (AlbertModel, auto.AutoModel, AlbertConfig, AutoConfig):
        loaded = load.from_pretrained(tmp_path, subfolder="checkpoints/step-5")
        assert getattr(loaded, "config", loaded) == AlbertConfig.from_pretrained(
            tmp_path / "checkpoints" / "step-5"
        )
    with pytest.raises(ModelNotFoundError, match=r"has no folder 'step-5': .* holds checkpoints"):
        AlbertModel.from_pretrained(tmp_path, subfolder="step-5")
    with pytest.raises(ModelNotFoundError, match="leads out of"):
        AlbertModel.from_pretrained(tmp_path / "checkpoints" / "step-5", subfolder="../..")


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


def test_state_dict_can_be_written_by_others(tmp_path: Path):
    """As `transformers.Trainer` saves a model of another library: weights with all names, and no config."""
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


def test_auto_classes_from_config():
    config = tiny()
    model = auto.AutoModel.from_config(
        config, attn_implementation="eager", dtype="bfloat16", add_pooling_layer=False, trust_remote_code=True
    )
    assert type(model) is AlbertModel
    assert model.config.attn_implementation == "eager"
    assert config.attn_implementation == "sdpa"
    assert model.dtype == torch.bfloat16
    assert model.pooler is None
    assert auto.AutoModel.from_config(config, torch_dtype=torch.float16).dtype == torch.float16
    assert auto.AutoModelForMaskedLM.from_config(config).dtype == torch.float32
    with pytest.raises(ConfigError, match=r"AutoModel\.from_config has no argument 'num_labels'"):
        auto.AutoModel.from_config(config, num_labels=3)
    with pytest.raises(ConfigError, match="AutoModel needs an AlbertConfig, got dict"):
        auto.AutoModel.from_config({})


def test_missing_encoder_tensors_are_an_error(tmp_path: Path):
    make("AlbertModel").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["encoder.embedding_hidden_mapping_in.bias"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="embedding_hidden_mapping_in"):
        AlbertModel.from_pretrained(tmp_path)


def test_unexpected_tensors_are_told(tmp_path: Path):
    make("AlbertModel").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["adapter.weight"] = torch.ones(2)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.warns(UserWarning, match=r"adapter\.weight"):
        AlbertModel.from_pretrained(tmp_path)


def test_pruned_model_loads_with_its_shape(tmp_path: Path):
    model = make("AlbertForQuestionAnswering", num_hidden_groups=3)
    model.prune_heads({0: [1], 2: [0, 3]})
    model.save_pretrained(tmp_path)
    loaded = AlbertForQuestionAnswering.from_pretrained(tmp_path)
    assert loaded.config.pruned_heads == {0: [1], 2: [0, 3]}
    assert torch.equal(loaded(**batch()).start_logits, model(**batch()).start_logits)
    mask = torch.ones(4)
    assert (
        largest_difference(loaded(**batch(), head_mask=mask).start_logits, model(**batch()).start_logits)
        < 1e-5
    )


# --- types, devices, configs ------------------------------------------------------------------


def test_types(tmp_path: Path):
    make("AlbertForMaskedLM").half().save_pretrained(tmp_path)
    assert AlbertConfig.from_pretrained(tmp_path).dtype == "float16"
    for options, dtype in (
        ({}, torch.float32),
        ({"dtype": "auto"}, torch.float16),
        ({"torch_dtype": torch.bfloat16}, torch.bfloat16),
        ({"dtype": "float64"}, torch.float64),
    ):
        model = AlbertForMaskedLM.from_pretrained(tmp_path, **options)
        assert {parameter.dtype for parameter in model.parameters()} == {dtype}
        assert model.dtype == dtype
        assert model.config.dtype == str(dtype).removeprefix("torch.")
        assert model.predictions.decoder.weight is model.get_input_embeddings().weight
    with pytest.raises(ConfigError, match="'int8'"):
        AlbertForMaskedLM.from_pretrained(tmp_path, dtype="int8")


def test_devices(monkeypatch):
    assert devices.choose_device(None) == torch.device("cpu")
    assert devices.choose_device("cpu:0") == devices.choose_device({"": "cpu:0"}) == torch.device("cpu", 0)
    for cuda, mps, best in ((True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda mps=mps: mps)
        assert devices.choose_device("auto") == torch.device(best)
    with pytest.raises(ConfigError, match=r"Expected 'auto' .* or one of this machine's devices: cpu"):
        devices.choose_device("balanced")
    for nowhere in ("meta", "vulkan", "fpga", "cuda:77"):  # torch knows them, and can compute on none
        with pytest.raises(ConfigError, match=f"no device '{nowhere}' to compute on") as caught:
            devices.choose_device(nowhere)
        assert len(str(caught.value)) < 150
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="one device"):
        devices.choose_device({"encoder": "cuda:0", "pooler": "cuda:1"})


def test_config_and_tensors_in_place_of_files(tmp_path: Path):
    source = make("AlbertForMaskedLM")
    tensors = source.state_dict()
    model = AlbertForMaskedLM.from_pretrained(None, config=source.config, state_dict=tensors)
    with torch.no_grad():
        model.get_input_embeddings().weight.zero_()
    assert source.get_input_embeddings().weight.abs().max() > 0  # the given tensors were copied
    source.save_pretrained(tmp_path)
    again = AlbertForMaskedLM.from_pretrained(tmp_path, config=tmp_path, hidden_dropout_prob=0.4)
    assert again.albert.embeddings.dropout.p == 0.4
    assert source.config.hidden_dropout_prob == 0
    assert (
        AlbertForMaskedLM.from_pretrained(tmp_path, state_dict=tensors).num_parameters()
        == source.num_parameters()
    )
    with pytest.raises(ConfigError, match="config and state_dict"):
        AlbertForMaskedLM.from_pretrained(None, config=source.config)


def test_overrides_reach_the_config(tmp_path: Path):
    make("AlbertForMaskedLM").save_pretrained(tmp_path)
    model = AlbertForMaskedLM.from_pretrained(tmp_path, attn_implementation="eager", output_attentions=True)
    assert model.config.attn_implementation == "eager"
    assert len(model(**batch()).attentions) == TINY["num_hidden_layers"]
    with pytest.raises(ConfigError, match=r"'output_atentions'.*'output_attentions'"):
        AlbertForMaskedLM.from_pretrained(tmp_path, output_atentions=True)


def test_modeling_imports_nothing_heavier_than_torch(tmp_path: Path):
    """torch._dynamo takes longer to import than a base model takes to load and answer."""
    make("AlbertForMaskedLM").save_pretrained(tmp_path)
    code = (
        "import sys, torch; from albertkit.modeling.auto import AlbertForMaskedLM; "
        "heavy = {'transformers', 'huggingface_hub', 'tokenizers', 'sympy'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules); "
        f"model = AlbertForMaskedLM.from_pretrained({str(tmp_path)!r}); "
        "model(torch.ones(1, 4, dtype=torch.long)); sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nothing_there(tmp_path: Path):
    with pytest.raises((ModelNotFoundError, CheckpointError), match=r"nothing"):
        AlbertModel.from_pretrained(tmp_path / "nothing")


# --- auto classes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("AutoModel", "AlbertModel"),
        ("AutoModelForPreTraining", "AlbertForPreTraining"),
        ("AutoModelForMaskedLM", "AlbertForMaskedLM"),
        ("AutoModelForSequenceClassification", "AlbertForSequenceClassification"),
        ("AutoModelForTokenClassification", "AlbertForTokenClassification"),
        ("AutoModelForQuestionAnswering", "AlbertForQuestionAnswering"),
        ("AutoModelForMultipleChoice", "AlbertForMultipleChoice"),
    ],
)
def test_auto_classes(name, head, tmp_path: Path):
    make(head).save_pretrained(tmp_path)
    auto_class = getattr(auto, name)
    assert type(auto_class.from_pretrained(tmp_path)) is HEADS[head]
    assert type(auto_class.from_config(tiny())) is HEADS[head]
    assert AutoConfig.from_pretrained(tmp_path, num_labels=3).num_labels == 3
    with pytest.raises(TypeError, match="from_pretrained"):
        auto_class()


def test_auto_classes_refuse_other_models(tmp_path: Path):
    AlbertForPreTraining(tiny()).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "roberta"}))
    for load in (AutoConfig.from_pretrained, auto.AutoModel.from_pretrained):
        with pytest.raises(ConfigError, match="'roberta'"):
            load(tmp_path)


# --- the interface of transformers ------------------------------------------------------------


def test_arguments_have_the_names_of_transformers(tmp_path: Path):
    source = make("AlbertForMaskedLM")
    source.save_pretrained(save_directory=tmp_path)
    for load in (AlbertForMaskedLM, auto.AutoModelForMaskedLM):
        loaded = load.from_pretrained(pretrained_model_name_or_path=tmp_path)
        assert loaded.name_or_path == loaded.config.name_or_path == str(tmp_path)
        assert torch.equal(loaded(**batch()).logits, source(**batch()).logits)
    for load in (AlbertConfig, AutoConfig):
        config = load.from_pretrained(pretrained_model_name_or_path=tmp_path)
        assert config.hidden_size == TINY["hidden_size"]
    config.save_pretrained(save_directory=tmp_path / "config")
    assert AlbertConfig.from_pretrained(tmp_path / "config") == config


def test_arguments_of_the_constructor(tmp_path: Path):
    source = make("AlbertForMaskedLM")
    AlbertForPreTraining(source.config).save_pretrained(tmp_path)
    for load in (AlbertModel, auto.AutoModel):
        model = load.from_pretrained(tmp_path, add_pooling_layer=False, output_hidden_states=True)
        assert model.pooler is None
        assert model.config.output_hidden_states
        assert model(**batch()).pooler_output is None
        full = load.from_pretrained(tmp_path)
        assert torch.equal(model(**batch()).last_hidden_state, full(**batch()).last_hidden_state)
    with pytest.raises(ConfigError, match="no argument 'add_pooling_layer'"):
        AlbertForMaskedLM.from_pretrained(tmp_path, add_pooling_layer=False)


def test_loading_options_that_make_no_difference(tmp_path: Path):
    source = make("AlbertModel")
    source.save_pretrained(tmp_path)
    options = {"low_cpu_mem_usage": True, "trust_remote_code": True, "weights_only": True, "variant": None}
    loaded = AlbertModel.from_pretrained(tmp_path, **options, use_safetensors=True, force_download=False)
    assert torch.equal(loaded(**batch()).pooler_output, source(**batch()).pooler_output)
    assert loaded.config.extra == {}
    assert AlbertConfig.from_pretrained(tmp_path, trust_remote_code=True) == loaded.config
    (tmp_path / "model.safetensors").unlink()
    torch.save(source.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="has no safetensors"):
        AlbertModel.from_pretrained(tmp_path, use_safetensors=True)
    loaded = AlbertModel.from_pretrained(tmp_path, use_safetensors=None)
    assert torch.equal(loaded(**batch()).pooler_output, source(**batch()).pooler_output)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights_only": False}, "weights_only=False is not supported"),
        ({"use_safetensors": False}, "use_safetensors=False is not supported"),
        *(
            ({name: value}, f"{name}: this loading option of transformers is not supported")
            for name, value in {
                "force_download": True,
                "proxies": {"http": "there"},
                "variant": "fp16",
                "max_memory": {0: "1GB"},
                "offload_folder": "there",
                "key_mapping": {"a": "b"},
                "from_tf": True,
            }.items()
        ),
    ],
)
def test_loading_options_that_are_not_supported(options, message, tmp_path: Path):
    make("AlbertModel").save_pretrained(tmp_path)
    for load in (AlbertModel, auto.AutoModel, AlbertConfig):
        with pytest.raises(ConfigError, match=message):
            load.from_pretrained(tmp_path, **options)


class HeadOfOnesOwn(AlbertPreTrainedModel):
    """As the documents of `transformers` write one."""

    def __init__(self, config, scale=1.0):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.scale = scale
        self.albert = AlbertModel(config)
        self.scores = nn.Linear(config.hidden_size, self.num_labels)
        self.init_weights()

    def forward(self, **inputs):
        return self.scale * self.scores(self.albert(**inputs).pooler_output)


def test_a_head_of_ones_own(tmp_path: Path):
    model = HeadOfOnesOwn(tiny(num_labels=3)).eval()
    assert model.num_labels == AlbertModel(tiny(num_labels=3)).num_labels == 3
    assert model.scores.bias.abs().max() == 0
    assert 0.05 < model.scores.weight.std() < 0.3  # initializer_range is 0.2
    model.save_pretrained(tmp_path)
    loaded = HeadOfOnesOwn.from_pretrained(tmp_path, scale=2.0)
    assert torch.equal(loaded(**batch()), 2 * model(**batch()))


def test_two_names_of_one_argument_must_agree(tmp_path: Path):
    AlbertModel(tiny()).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="dtype and torch_dtype are one setting but have different values"):
        AlbertModel.from_pretrained(tmp_path, dtype="float32", torch_dtype="float16")
