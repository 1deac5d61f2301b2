"""Tests of the options of `from_pretrained`, the auto classes, and the arguments of transformers."""

import warnings
from pathlib import Path

import pytest
import torch
from modeling_twins import HEADS, TINY, batch, make, tiny
from torch import nn

from albertkit import devices
from albertkit.config import AlbertConfig, AutoConfig
from albertkit.errors import CheckpointError, ConfigError, ModelNotFoundError
from albertkit.modeling import auto
from albertkit.modeling.heads import AlbertForMaskedLM, AlbertForPreTraining
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretrained import AlbertPreTrainedModel


@pytest.fixture(autouse=True)
def no_unexpected_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


@pytest.mark.parametrize("given", [[torch.ones(1)], {"a": 1}, {1: torch.ones(1)}])
def test_a_state_dict_of_another_form_is_an_error(given, tmp_path: Path):
    make("AlbertModel").save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"not a state dict|a is int"):
        AlbertModel.from_pretrained(tmp_path, state_dict=given)


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
    with pytest.raises(ModelNotFoundError, match="has no folder"):
        AlbertModel.from_pretrained(tmp_path / "checkpoints" / "step-5", subfolder="../..")


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "weights.pth"])
def test_a_single_file_of_weights_with_a_config(tmp_path: Path, name: str):
    model = make("AlbertForMaskedLM")
    model.save_pretrained(tmp_path)
    (tmp_path / "config.json").rename(tmp_path / "tiny.json")
    if name != "model.safetensors":
        torch.save(model.state_dict(), tmp_path / name)
        (tmp_path / "model.safetensors").unlink()
    expected = model(**batch()).logits
    for config in (model.config, tmp_path / "tiny.json"):
        loaded = AlbertForMaskedLM.from_pretrained(str(tmp_path / name), config=config)
        assert torch.equal(loaded(**batch()).logits, expected)
    with pytest.raises(ModelNotFoundError, match=r"is a file\. Expected the folder of a model"):
        AlbertForMaskedLM.from_pretrained(tmp_path / name)
    if name != "model.safetensors":
        with pytest.raises(ConfigError, match="has no safetensors"):
            AlbertForMaskedLM.from_pretrained(tmp_path / name, config=model.config, use_safetensors=True)


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
    with pytest.raises(TypeError, match="num_labels"):
        auto.AutoModel.from_config(config, num_labels=3)
    with pytest.raises(ConfigError, match="received a config of type dict"):
        auto.AutoModel.from_config({})


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
    for name in ("int8", "float8_e4m3fn"):  # PyTorch stores float8, but cannot compute with it
        with pytest.raises(ConfigError, match=f"dtype is '{name}'. Use 'auto' or a floating-point type"):
            AlbertForMaskedLM.from_pretrained(tmp_path, dtype=name)


def test_devices(monkeypatch):
    assert devices.choose_device(None) == torch.device("cpu")
    assert devices.choose_device("cpu:0") == devices.choose_device({"": "cpu:0"}) == torch.device("cpu", 0)
    for cuda, mps, best in ((True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda mps=mps: mps)
        assert devices.choose_device("auto") == torch.device(best)
    with pytest.raises(ConfigError, match=r"Expected 'auto' .* or one of this machine's devices: cpu"):
        devices.choose_device("best")
    for nowhere in (
        "meta",
        "vulkan",
        "hpu",
        "fpga",
        "cuda:77",
    ):  # torch has these names, but cannot compute on the devices
        with pytest.raises(ConfigError, match=f"no device '{nowhere}' to compute on") as caught:
            devices.choose_device(nowhere)
        assert len(str(caught.value)) < 150
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="one device"):
        devices.choose_device({"encoder": "cuda:0", "pooler": "cuda:1"})


def test_config_and_state_dict_instead_of_files(tmp_path: Path):
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


def test_arguments_override_the_config(tmp_path: Path):
    make("AlbertForMaskedLM").save_pretrained(tmp_path)
    model = AlbertForMaskedLM.from_pretrained(tmp_path, attn_implementation="eager", output_attentions=True)
    assert model.config.attn_implementation == "eager"
    assert len(model(**batch()).attentions) == TINY["num_hidden_layers"]
    with pytest.raises(ConfigError, match=r"'output_atentions'.*'output_attentions'"):
        AlbertForMaskedLM.from_pretrained(tmp_path, output_atentions=True)


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


def test_ignored_loading_options(tmp_path: Path):
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
        ({"weights_only": False}, "weights_only=False: this loading option"),
        ({"use_safetensors": False}, "use_safetensors=False: this loading option"),
        *(
            ({name: value}, f"{name}: this loading option of transformers is not supported")
            for name, value in {
                "force_download": True,
                "proxies": {"http": "there"},
                "max_memory": {0: "1GB"},
                "offload_folder": "there",
                "key_mapping": {"a": "b"},
                "from_tf": True,
            }.items()
        ),
    ],
)
def test_unsupported_loading_options(options, message, tmp_path: Path):
    make("AlbertModel").save_pretrained(tmp_path)
    for load in (AlbertModel, auto.AutoModel, AlbertConfig):
        with pytest.raises(ConfigError, match=message):
            load.from_pretrained(tmp_path, **options)


class OwnHead(AlbertPreTrainedModel):
    """A model in the style of the documentation of `transformers`."""

    def __init__(self, config, scale=1.0):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.scale = scale
        self.albert = AlbertModel(config)
        self.scores = nn.Linear(config.hidden_size, self.num_labels)
        self.init_weights()

    def forward(self, **inputs):
        return self.scale * self.scores(self.albert(**inputs).pooler_output)


class WithKeywords(OwnHead):
    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)


def test_a_head_of_your_own(tmp_path: Path):
    model = OwnHead(tiny(num_labels=3)).eval()
    assert model.num_labels == AlbertModel(tiny(num_labels=3)).num_labels == 3
    assert model.scores.bias.abs().max() == 0
    assert 0.05 < model.scores.weight.std() < 0.3  # initializer_range is 0.2
    model.save_pretrained(tmp_path)
    for model_class in (OwnHead, WithKeywords):
        loaded = model_class.from_pretrained(tmp_path, scale=2.0, problem_type="regression")
        assert torch.equal(loaded(**batch()), 2 * model(**batch()))
        assert loaded.config.problem_type == "regression"


class OwnDecoder(AlbertPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.albert = AlbertModel(config)
        self.decoder = nn.Linear(config.embedding_size, config.vocab_size)
        self.post_init()

    def get_output_embeddings(self):
        return self.decoder


def test_a_tied_decoder_of_your_own_does_not_change_the_embeddings(tmp_path: Path):
    encoder = AlbertModel(tiny())
    encoder.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="newly initialized"):
        model = OwnDecoder.from_pretrained(tmp_path)
    assert model.decoder.weight is model.get_input_embeddings().weight
    assert torch.equal(model.decoder.weight, encoder.get_input_embeddings().weight)


class OwnConfig(AlbertConfig):
    def __init__(self, scale=1.0, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale


class WithOwnConfig(OwnHead):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config, scale=config.scale)


def test_a_config_class_of_your_own(tmp_path: Path):
    OwnHead(tiny(num_labels=3)).save_pretrained(tmp_path / "before")
    model = WithOwnConfig.from_pretrained(tmp_path / "before", scale=3.0)
    assert (model.scale, model.config.num_labels) == (3, 3)
    model.save_pretrained(tmp_path / "after")
    loaded = WithOwnConfig.from_pretrained(tmp_path / "after")
    assert isinstance(loaded.config, OwnConfig)
    assert torch.equal(loaded(**batch()), model(**batch()))


class OwnLayers(AlbertPreTrainedModel):
    """A model with layers, parameters and buffers that ALBERT does not have."""

    def __init__(self, config):
        super().__init__(config)
        self.albert = AlbertModel(config, add_pooling_layer=False)
        self.lstm = nn.LSTM(config.hidden_size, 8)
        self.norm = nn.BatchNorm1d(8)
        self.scores = nn.Linear(8, config.num_labels)
        self.temperature = nn.Parameter(torch.full((1,), 1.5))
        self.loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]))
        self.register_buffer("order", torch.arange(4), persistent=False)
        self.post_init()

    def _init_weights(self, module):
        super()._init_weights(module)
        if module is self.scores:
            module.weight.fill_(0.25)


def test_layers_of_your_own_keep_the_values_of_their_constructors(tmp_path: Path):
    AlbertModel(tiny()).save_pretrained(tmp_path / "encoder")
    with pytest.warns(UserWarning, match="newly initialized"):
        loaded = OwnLayers.from_pretrained(tmp_path / "encoder")
    for model in (OwnLayers(tiny()), loaded):
        assert model.temperature.item() == 1.5
        assert 0 < model.lstm.bias_ih_l0.abs().max() <= 8**-0.5  # PyTorch's own values
        assert model.scores.weight.unique().tolist() == [0.25]
        assert (model.loss.weight.tolist(), model.order.tolist()) == ([1, 3], [0, 1, 2, 3])
        assert model.norm.running_var.tolist() == [1] * 8
    with torch.no_grad():
        model.temperature.fill_(2.5)
        model.scores.weight.fill_(0.5)
        model.norm.running_var.fill_(3)
        model.norm.num_batches_tracked.fill_(7)
    model.save_pretrained(tmp_path / "complete")
    loaded = OwnLayers.from_pretrained(tmp_path / "complete")
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in loaded.state_dict().items())
    assert loaded.order.tolist() == [0, 1, 2, 3]
