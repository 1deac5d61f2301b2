"""Tests of the structure, the initialization and the outputs of the network."""

import pickle

import pytest
import torch
import torch.nn.functional as F
from modeling_twins import HEADS, TINY, batch, labels_for, largest_difference, make, tiny

from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError
from albertkit.modeling import layers
from albertkit.modeling.heads import AlbertForMaskedLM, AlbertForPreTraining
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.outputs import MaskedLMOutput, SequenceClassifierOutput

TOLERANCE = 1e-5


@pytest.mark.parametrize(
    ("size", "millions"), [("base", 11.7), ("large", 17.7), ("xlarge", 58.7), ("xxlarge", 222.6)]
)
def test_parameter_counts_of_the_presets(size, millions):
    with torch.device("meta"):
        model = AlbertModel(AlbertConfig.preset(size))
    assert round(model.num_parameters() / 1e6, 1) == millions
    assert model.num_parameters() - model.num_parameters(exclude_embeddings=True) == 30514 * 128


def test_documented_attributes():
    model = make("AlbertForMaskedLM")
    assert model.config_class is AlbertConfig
    assert model.base_model_prefix == "albert"
    assert model.base_model is model.albert
    assert model.albert.base_model is model.albert
    assert model.dtype == torch.float32
    assert model.device == torch.device("cpu")
    assert model.get_output_embeddings() is model.predictions.decoder
    assert model.albert.get_output_embeddings() is None
    assert model(**model.dummy_inputs).logits.shape == (1, 4, TINY["vocab_size"])


def fresh(cls, seed, **values):
    torch.manual_seed(seed)
    return cls(tiny(**values))


def test_initialization_follows_the_seed():
    one, same, other = (fresh(AlbertForPreTraining, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["albert.pooler.weight"], other["albert.pooler.weight"])
    # The encoder is initialized first, so the head does not change its weights.
    encoder = fresh(AlbertModel, 3).state_dict()
    assert all(torch.equal(tensor, one[f"albert.{name}"]) for name, tensor in encoder.items())


def test_initialization_is_a_truncated_normal_distribution():
    torch.manual_seed(0)
    config = AlbertConfig(
        vocab_size=4000, hidden_size=256, num_attention_heads=4, intermediate_size=512, num_hidden_layers=2
    )
    model = AlbertForPreTraining(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert parameter.abs().max() == 0, name
        elif parameter.dim() == 1:
            assert (parameter == 1).all(), name
        else:
            assert parameter.abs().max() <= 0.04, name
    words = model.get_input_embeddings().weight
    # A normal distribution with deviation s, truncated at 2 s, has the deviation 0.8796 s.
    assert words.std().item() == pytest.approx(0.8796 * 0.02, rel=0.01)
    assert words.mean().item() == pytest.approx(0, abs=1e-4)


def test_the_model_checks_its_config():
    config = tiny()
    config.num_attention_heads = 5
    with pytest.raises(ConfigError, match=r"hidden_size \(32\).*num_attention_heads \(5\)"):
        AlbertModel(config)
    with pytest.raises(ConfigError, match=r"received a config of type dict"):
        AlbertModel({"hidden_size": 32})  # type: ignore[arg-type]


@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_bf16_training_equals_the_fused_kernel(monkeypatch, masked):
    """On a CPU, matrix products replace the fused kernel, whose backward pass is slow in bfloat16."""
    attention = make("AlbertModel").encoder.albert_layer_groups[0].albert_layers[0].attention
    torch.manual_seed(0)
    inputs = torch.randn(2, 24, attention.query.in_features)
    mask = torch.ones(2, 1, 1, 24, dtype=torch.bool)
    mask[1, :, :, 15:] = False
    kernels, fused = [], F.scaled_dot_product_attention

    def counted(*arguments, **options):
        kernels.append(arguments)
        return fused(*arguments, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)

    def step(limit: int, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, torch.Tensor]:
        monkeypatch.setattr(layers, "EAGER_TRAINING_LENGTH", limit)
        hidden_states = inputs.clone().requires_grad_()
        with torch.autocast("cpu", dtype, enabled=dtype is torch.bfloat16):
            (output,) = attention(hidden_states, attention_mask=mask if masked else None)
        output.float().square().sum().backward()
        return output.detach().float(), hidden_states.grad

    exact = step(0, torch.float32)
    step(24, torch.float32)
    assert len(kernels) == 2  # fp32 uses the kernel
    products, kernel = step(24), step(23)
    assert len(kernels) == 3
    for ours, theirs, right in zip(products, kernel, exact, strict=True):
        scale = right.abs().max()
        assert (ours - right).abs().max() <= 0.02 * scale
        assert (ours - right).abs().mean() <= 1.5 * (theirs - right).abs().mean()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        attention(inputs)
    assert len(kernels) == 4  # without gradients, the kernel computes


def test_outputs_read_like_a_tuple_and_a_mapping():
    loss, logits = torch.tensor(1.5), torch.ones(2, 3)
    output = SequenceClassifierOutput(loss=loss, logits=logits)
    assert output.loss is output["loss"] is output[0] is loss
    assert output[:2] == output.to_tuple() == (loss, logits)
    first, second = output
    assert (first, second) == (loss, logits)
    assert len(output) == 2
    assert output.keys() == ["loss", "logits"]
    assert "logits" in output
    assert "hidden_states" not in output
    assert output.hidden_states is output.get("hidden_states") is None
    assert dict(output) == {"loss": loss, "logits": logits} == dict(output.items())
    assert MaskedLMOutput(logits=logits)[0] is logits  # fields with the value None are skipped
    assert repr(output).startswith(
        "SequenceClassifierOutput(loss=tensor(1.5000), logits=tensor([[1., 1., 1.]"
    )
    assert pickle.loads(pickle.dumps(output)).loss == loss
    with pytest.raises(KeyError, match=r"attentions.*loss, logits"):
        output["attentions"]


@pytest.mark.parametrize("head", HEADS)
def test_tuples_on_request(head):
    model = make(head)
    inputs = {**batch(head), **labels_for(head)}
    output = model(**inputs, output_hidden_states=True)
    plain = model(**inputs, output_hidden_states=True, return_dict=False)
    assert isinstance(plain, tuple)
    assert len(plain) == len(output)
    assert torch.equal(plain[0], output[0])
    model.config.return_dict = False
    assert isinstance(model(**inputs), tuple)


def test_the_config_chooses_the_outputs():
    model = make("AlbertForQuestionAnswering", output_hidden_states=True, output_attentions=True)
    output = model(**batch())
    assert output.keys() == ["start_logits", "end_logits", "hidden_states", "attentions"]
    assert output.start_logits.is_contiguous()  # as `torch.distributed` requires
    start, end = model(**batch(), output_hidden_states=False, output_attentions=False)
    assert start.shape == end.shape == (3, 12)
    with pytest.raises(TypeError, match="output_attention"):
        model(**batch(), output_attention=True)


def test_function_as_activation():
    named, function = make("AlbertModel", hidden_act="relu"), make("AlbertModel", hidden_act=torch.relu)
    assert torch.equal(named(**batch()).last_hidden_state, function(**batch()).last_hidden_state)
    assert "FunctionActivation(relu)" in str(function)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("capture", ["trace", "export"])
def test_a_captured_graph_uses_its_mask(capture, attention):
    model = make("AlbertForMaskedLM", return_dict=False, attn_implementation=attention)
    inputs = batch(mask=True)
    example = (inputs["input_ids"], torch.ones_like(inputs["attention_mask"]))  # captured without padding
    if capture == "trace":
        graph = torch.jit.trace(model, example)
    else:
        graph = torch.export.export(model, example).module()
    logits = graph(inputs["input_ids"], inputs["attention_mask"])[0]  # called with padding
    assert largest_difference(logits, model(**inputs)[0]) <= TOLERANCE


def test_no_pooler_without_need():
    assert AlbertForMaskedLM(tiny(num_hidden_layers=1)).albert.pooler is None
