"""Tests of changes after the construction: dropout, masked heads, checkpointing and the vocabulary."""

import copy

import numpy as np
import pytest
import torch
from modeling_twins import HEADS, TINY, batch, labels_for, largest_difference, make, make_twins, tiny
from torch import nn

from albertkit.errors import ConfigError
from albertkit.modeling.layers import AlbertAttention

TOLERANCE = 1e-5


# --- dropout ----------------------------------------------------------------------------------

LAYER = "albert.encoder.albert_layer_groups.0.albert_layers.0"
DROPOUTS = {
    "embeddings": "albert.embeddings.dropout",
    "attention probabilities": f"{LAYER}.attention.attention_dropout",
    "attention output": f"{LAYER}.attention.output_dropout",
    "feed-forward output": f"{LAYER}.dropout",
    "classifier": "dropout",
}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("part", DROPOUTS)
def test_each_part_really_drops(part, attention):
    model = make(
        "AlbertForSequenceClassification", classifier_dropout_prob=0.0, attn_implementation=attention
    )
    model.train()
    inputs = batch(mask=True)
    assert torch.equal(model(**inputs).logits, model(**inputs).logits)  # all rates are 0
    model.get_submodule(DROPOUTS[part]).p = 0.5
    assert not torch.equal(model(**inputs).logits, model(**inputs).logits)
    model.eval()
    assert torch.equal(model(**inputs).logits, model(**inputs).logits)


def test_dropout_rates_come_from_the_config():
    config = tiny(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.2, classifier_dropout_prob=0.3)
    for head in (
        "AlbertForSequenceClassification",
        "AlbertForTokenClassification",
        "AlbertForMultipleChoice",
    ):
        model = HEADS[head](config)
        rates = [model.get_submodule(path).p for path in DROPOUTS.values()]
        assert rates == [0.1, 0.2, 0.1, 0.1, 0.3], head


# --- heads of attention -----------------------------------------------------------------------


@pytest.mark.parametrize("head_mask", [torch.tensor([1, 0, 1, 0]), torch.tensor([[1, 0, 1, 0]] * 6)])
def test_masked_heads_have_no_effect(head_mask):
    model = make("AlbertModel", inner_group_num=2)
    inputs = batch(mask=True)
    with torch.no_grad():
        masked = model(**inputs, head_mask=head_mask).last_hidden_state
        everything = model(**inputs).last_hidden_state
        same = model(**inputs, head_mask=torch.ones(4)).last_hidden_state
        for name, weight in model.named_parameters():
            if "attention.value" in name:  # heads 1 and 3
                weight[8:16] = weight[24:32] = 0
        without = model(**inputs).last_hidden_state
        eager = model(**inputs, head_mask=head_mask, output_attentions=True)
    assert largest_difference(masked, everything) > 0.01
    assert largest_difference(same, everything) <= TOLERANCE
    assert largest_difference(masked, without) <= TOLERANCE
    assert largest_difference(eager.last_hidden_state, without) <= TOLERANCE
    assert eager.attentions[0].shape == (3, 4, 12, 12)


def test_head_mask_of_one_layer():
    model = make("AlbertModel")
    mask = torch.ones(3, 4)
    mask[2, 1] = 0
    inputs = batch()
    plain = model(**inputs, output_hidden_states=True).hidden_states
    masked = model(**inputs, output_hidden_states=True, head_mask=mask).hidden_states
    differences = [largest_difference(one, other) for one, other in zip(plain, masked, strict=True)]
    assert max(differences[:3]) <= TOLERANCE < differences[3]


# --- hooks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [1, 2])
def test_hooks_of_every_part_fire(inner):
    model = make("AlbertForSequenceClassification", inner_group_num=inner)
    unused = {"albert_layer_groups", "albert_layers", "attention_dropout"}
    calls = dict.fromkeys(name for name, _ in model.named_modules() if name.split(".")[-1] not in unused)
    for name in calls:
        model.get_submodule(name).register_forward_hook(lambda *_, name=name: calls.update({name: True}))
    model(**batch())
    assert all(calls.values()), calls


def test_a_hook_of_a_group_replaces_its_output():
    model = make("AlbertModel", num_hidden_layers=2, num_hidden_groups=2)
    expected = model(**batch(), output_hidden_states=True).hidden_states
    first, second = model.encoder.albert_layer_groups
    outputs = []
    second.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    assert torch.equal(model(**batch()).last_hidden_state, outputs[0])
    assert torch.equal(outputs[0], expected[2])
    first.register_forward_hook(lambda module, inputs, output: 0 * output)
    assert largest_difference(model(**batch()).last_hidden_state, expected[2]) > 0.1


@pytest.mark.parametrize("options", [{}, {"output_attentions": True}, {"output_hidden_states": True}])
def test_hooks_get_only_tensors(options):
    model = make("AlbertModel", inner_group_num=2)
    layer = model.encoder.albert_layer_groups[0].albert_layers[0]
    outputs = {"layer": [], "attention": []}
    layer.register_forward_hook(lambda _, __, output: outputs["layer"].append(output))
    layer.attention.register_forward_hook(lambda _, __, output: outputs["attention"].append(output))
    returned = model(**batch(), **options)
    for name, seen in outputs.items():
        assert len(seen) == model.config.num_hidden_layers
        assert all(isinstance(part, torch.Tensor) for output in seen for part in output), name
        if returned.attentions is not None:
            assert torch.equal(seen[0][1], returned.attentions[0])
    if returned.hidden_states is not None:
        assert torch.equal(outputs["layer"][0][0], returned.hidden_states[1])


def test_inputs_that_require_gradients():
    model = make("AlbertModel").requires_grad_(False)
    model.enable_input_require_grads()
    model.enable_input_require_grads()
    assert model(**batch()).last_hidden_state.requires_grad
    model.disable_input_require_grads()
    assert not model(**batch()).last_hidden_state.requires_grad


def test_attention_is_chosen():
    model = make("AlbertModel")
    assert model(**batch()).attentions is None
    model.set_attn_implementation("eager")
    assert model.config.attn_implementation == "eager"
    with pytest.raises(ConfigError, match="attn_implementation must be one of sdpa, eager, got 'flash'"):
        model.set_attn_implementation("flash")
    assert model.config.attn_implementation == "eager"


@pytest.mark.parametrize("layers", [2, 8])
def test_number_of_layers_follows_the_config(layers, tmp_path):
    ours, theirs = make_twins("AlbertForMaskedLM", num_hidden_layers=4, num_hidden_groups=2)
    for model in (ours, theirs):
        model.config.num_hidden_layers = layers
    output, expected = (model(**batch(mask=True), output_hidden_states=True) for model in (ours, theirs))
    assert len(output.hidden_states) == len(expected.hidden_states) == layers + 1
    assert largest_difference(output.logits, expected.logits) <= TOLERANCE
    ours.save_pretrained(tmp_path)
    loaded = type(ours).from_pretrained(tmp_path)
    assert torch.equal(loaded(**batch(mask=True)).logits, output.logits)


# --- memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradient_checkpointing_gives_equal_gradients(dropout):
    gradients = []
    for recompute in (False, True):
        model = make("AlbertForPreTraining", inner_group_num=2, hidden_dropout_prob=dropout).train()
        if recompute:
            model.gradient_checkpointing_enable()
        assert model.is_gradient_checkpointing is recompute
        torch.manual_seed(5)
        model(**batch(mask=True), **labels_for("AlbertForPreTraining")).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert largest_difference(one, other) <= 1e-6


def test_gradient_checkpointing_recomputes_every_layer(monkeypatch):
    model = make("AlbertModel").train()
    calls = []
    original = AlbertAttention.forward
    monkeypatch.setattr(
        AlbertAttention,
        "forward",
        lambda self, *args, **options: calls.append(1) or original(self, *args, **options),
    )
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model(**batch()).last_hidden_state.sum().backward()
    assert len(calls) == 6  # 3 layers, each once forward and once again backward
    model.gradient_checkpointing_disable()
    model(**batch()).last_hidden_state.sum().backward()
    assert len(calls) == 9
    model.activation_checkpointing_enable({"use_reentrant": False})
    assert model.is_activation_checkpointing
    assert model.is_gradient_checkpointing
    model.activation_checkpointing_disable()
    assert not model.is_activation_checkpointing


# --- embeddings -------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [70, 40])
def test_resizing_the_vocabulary(size, tied):
    model = make("AlbertForPreTraining", tie_word_embeddings=tied)
    before = copy.deepcopy(model)
    embeddings = model.resize_token_embeddings(size)
    kept = min(size, TINY["vocab_size"])
    decoder = model.get_output_embeddings()
    assert embeddings is model.get_input_embeddings()
    assert embeddings.weight.shape == decoder.weight.shape == (size, 16)
    assert embeddings.num_embeddings == decoder.out_features == model.config.vocab_size == size
    assert (embeddings.weight is decoder.weight) is tied
    assert decoder.bias is model.predictions.bias
    assert torch.equal(embeddings.weight[:kept], before.get_input_embeddings().weight[:kept])
    assert torch.equal(decoder.weight[:kept], before.get_output_embeddings().weight[:kept])
    assert torch.equal(decoder.bias[:kept], before.predictions.bias[:kept])
    ids = batch()["input_ids"] % kept
    logits = model(ids, labels=ids).prediction_logits
    assert logits.shape == (3, 12, size)
    assert largest_difference(logits[..., :kept], before(ids).prediction_logits[..., :kept]) <= TOLERANCE


@pytest.mark.parametrize("tied", [True, False])
def test_new_rows_are_those_of_transformers(tied):
    ours, theirs = make_twins("AlbertForMaskedLM", tie_word_embeddings=tied)
    mean = ours.get_input_embeddings().weight.mean(dim=0)
    for model in (ours, theirs):
        model.resize_token_embeddings(70)
    new = ours.get_input_embeddings().weight[60:]
    assert 0 < largest_difference(new, mean.expand(10, 16)) < 1e-3
    assert new.std(dim=0).max() > 1e-7
    for one, other in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        assert largest_difference(one, other) < 1e-3


def test_new_rows_as_at_initialization():
    model = make("AlbertForMaskedLM")
    embeddings = model.resize_token_embeddings(70, mean_resizing=False)
    assert 0.05 < embeddings.weight[60:].std() <= 2 * model.config.initializer_range
    assert model.predictions.bias[60:].abs().max() == 0


def test_resizing_to_the_same_size():
    model = make("AlbertModel")
    assert model.resize_token_embeddings() is model.get_input_embeddings()


@pytest.mark.parametrize(
    ("wanted", "multiple", "size"),
    [
        (70, 64, 128),
        (64, 64, 64),
        (None, 32, 64),
        (3, 2, 4),
        (np.int64(70), None, 70),
        (torch.tensor(70), 8, 72),
    ],
)
def test_resizing_to_a_multiple(wanted, multiple, size):
    ours, theirs = make_twins("AlbertForMaskedLM", vocab_size=60)
    theirs.resize_token_embeddings(wanted, pad_to_multiple_of=multiple, mean_resizing=False)
    resized = ours.resize_token_embeddings(wanted, pad_to_multiple_of=multiple, mean_resizing=False)
    assert resized.num_embeddings == ours.config.vocab_size == theirs.config.vocab_size == size
    kept = min(60, size)
    assert torch.equal(resized.weight[:kept], theirs.get_input_embeddings().weight[:kept])


def test_replacing_embeddings():
    model = make("AlbertForMaskedLM")
    new = nn.Embedding(TINY["vocab_size"], 16)
    model.set_input_embeddings(new)
    model.tie_weights()
    assert model.get_output_embeddings().weight is new.weight
    decoder = nn.Linear(16, TINY["vocab_size"])
    model.set_output_embeddings(decoder)
    assert model.predictions.bias is decoder.bias


def test_tied_weights_are_one_parameter():
    model = make("AlbertForMaskedLM")
    words = model.get_input_embeddings().weight
    assert model.predictions.decoder.weight.data_ptr() == words.data_ptr()
    assert model.num_parameters() == len(torch.cat([p.flatten() for p in model.parameters()]))
    assert model.to(torch.float64).predictions.decoder.weight is model.get_input_embeddings().weight
    clone = copy.deepcopy(model)
    assert clone.predictions.decoder.weight is clone.get_input_embeddings().weight
