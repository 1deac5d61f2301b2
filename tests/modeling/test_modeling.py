"""What the network does besides agreeing with the references: masks, dropout, pruning, memory, outputs."""

import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from modeling_twins import HEADS, TINY, batch, labels_for, largest_difference, make, tiny

from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError, DataError
from albertkit.modeling import layers
from albertkit.modeling.layers import AlbertTransformer
from albertkit.modeling.model import AlbertModel, expand_attention_mask
from albertkit.modeling.outputs import MaskedLMOutput, SequenceClassifierOutput
from albertkit.modeling.pretraining_heads import AlbertForMaskedLM, AlbertForPreTraining

TOLERANCE = 1e-5


# --- shape and names --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "millions"), [("base", 11.7), ("large", 17.7), ("xlarge", 58.7), ("xxlarge", 222.6)]
)
def test_parameter_counts_of_the_presets(size, millions):
    with torch.device("meta"):
        model = AlbertModel(AlbertConfig.preset(size))
    assert round(model.num_parameters() / 1e6, 1) == millions
    assert model.num_parameters() - model.num_parameters(exclude_embeddings=True) == 30514 * 128


def test_names_that_checkpoints_rely_on():
    names = set(make("AlbertForPreTraining", num_hidden_groups=3, inner_group_num=2).state_dict())
    layer = "albert.encoder.albert_layer_groups.2.albert_layers.1."
    assert {
        "albert.embeddings.word_embeddings.weight",
        "albert.embeddings.LayerNorm.bias",
        "albert.encoder.embedding_hidden_mapping_in.weight",
        layer + "full_layer_layer_norm.weight",
        layer + "attention.query.weight",
        layer + "attention.dense.bias",
        layer + "attention.LayerNorm.weight",
        layer + "ffn.weight",
        layer + "ffn_output.bias",
        "albert.pooler.weight",
        "predictions.bias",
        "predictions.LayerNorm.weight",
        "predictions.dense.weight",
        "predictions.decoder.weight",
        "predictions.decoder.bias",
        "sop_classifier.classifier.weight",
    } <= names
    assert not any("position_ids" in name for name in names)


def test_printed_structure():
    """The lines of `print(model)` that define the module names; newer torch adds `bias=True` to some."""
    with torch.device("meta"):
        printed = str(AlbertModel(AlbertConfig.preset("base"))).replace(", bias=True)", ")").splitlines()
    assert (
        printed[:22]
        == """AlbertModel(
  (embeddings): AlbertEmbeddings(
    (word_embeddings): Embedding(30000, 128, padding_idx=0)
    (position_embeddings): Embedding(512, 128)
    (token_type_embeddings): Embedding(2, 128)
    (LayerNorm): LayerNorm((128,), eps=1e-12, elementwise_affine=True)
    (dropout): Dropout(p=0, inplace=False)
  )
  (encoder): AlbertTransformer(
    (embedding_hidden_mapping_in): Linear(in_features=128, out_features=768)
    (albert_layer_groups): ModuleList(
      (0): AlbertLayerGroup(
        (albert_layers): ModuleList(
          (0): AlbertLayer(
            (full_layer_layer_norm): LayerNorm((768,), eps=1e-12, elementwise_affine=True)
            (attention): AlbertAttention(
              (query): Linear(in_features=768, out_features=768)
              (key): Linear(in_features=768, out_features=768)
              (value): Linear(in_features=768, out_features=768)
              (attention_dropout): Dropout(p=0, inplace=False)
              (output_dropout): Dropout(p=0, inplace=False)
              (dense): Linear(in_features=768, out_features=768)""".splitlines()
    )
    children = [line.strip().split(")")[0].strip("(") for line in printed]
    for name in ("ffn", "ffn_output", "activation", "dropout", "pooler", "pooler_activation"):
        assert name in children


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


def test_group_of_each_layer():
    encoder = make("AlbertModel", num_hidden_layers=6, num_hidden_groups=3, inner_group_num=2).encoder
    order = [(i // 2, inner) for i in range(6) for inner in range(2)]
    expected = [encoder.albert_layer_groups[group].albert_layers[inner] for group, inner in order]
    assert [id(layer) for layer in encoder.executed_layers()] == [id(layer) for layer in expected]


# --- initialization ---------------------------------------------------------------------------


def fresh(cls, seed, **values):
    torch.manual_seed(seed)
    return cls(tiny(**values))


def test_initialisation_follows_the_seed():
    one, same, other = (fresh(AlbertForPreTraining, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["albert.pooler.weight"], other["albert.pooler.weight"])
    # The encoder is drawn first: the head above it does not change it.
    encoder = fresh(AlbertModel, 3).state_dict()
    assert all(torch.equal(tensor, one[f"albert.{name}"]) for name, tensor in encoder.items())


def test_initialisation_is_a_truncated_normal():
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
    # A normal of deviation s cut at 2 s keeps 0.8796 s.
    assert words.std().item() == pytest.approx(0.8796 * 0.02, rel=0.01)
    assert words.mean().item() == pytest.approx(0, abs=1e-4)


def test_config_is_checked_again_when_building():
    config = tiny()
    config.num_attention_heads = 5
    with pytest.raises(ConfigError, match=r"hidden_size \(32\).*num_attention_heads \(5\)"):
        AlbertModel(config)
    with pytest.raises(ConfigError, match=r"AlbertConfig.*dict"):
        AlbertModel({"hidden_size": 32})  # type: ignore[arg-type]


# --- masks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_padding_changes_no_real_position(attention):
    model = make("AlbertModel", attn_implementation=attention)
    ids = batch()["input_ids"][:1, :5]
    padded = torch.cat([ids, torch.zeros(1, 9, dtype=torch.long)], dim=1)
    mask = (torch.arange(14) < 5).long()[None]
    with torch.no_grad():
        alone = model(ids)
        beside = model(padded.expand(4, -1), mask.expand(4, -1))
    for row in range(4):
        assert largest_difference(alone.last_hidden_state[0], beside.last_hidden_state[row, :5]) <= TOLERANCE
        assert largest_difference(alone.pooler_output[0], beside.pooler_output[row]) <= TOLERANCE


@pytest.mark.parametrize("masked", [False, True])
def test_bf16_training_attends_as_the_fused_kernel(monkeypatch, masked):
    """On a CPU, products take the place of the kernel, whose backward pass is slow in bfloat16."""
    attention = make("AlbertModel").encoder.albert_layer_groups[0].albert_layers[0].attention
    torch.manual_seed(0)
    inputs = torch.randn(2, 24, attention.query.in_features)
    mask = torch.ones(2, 1, 1, 24, dtype=torch.bool)
    mask[1, :, :, 15:] = False
    kernels, fused = [], F.scaled_dot_product_attention

    def counted(*arguments):
        kernels.append(arguments)
        return fused(*arguments)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)

    def step(limit: int, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, torch.Tensor]:
        monkeypatch.setattr(layers, "EAGER_TRAINING_LENGTH", limit)
        hidden_states = inputs.clone().requires_grad_()
        with torch.autocast("cpu", dtype, enabled=dtype is torch.bfloat16):
            output, probabilities = attention(hidden_states, attention_mask=mask if masked else None)
        assert probabilities is None
        output.float().square().sum().backward()
        return output.detach().float(), hidden_states.grad

    exact = step(0, torch.float32)
    step(24, torch.float32)
    assert len(kernels) == 2  # fp32 is the kernel's
    products, kernel = step(24), step(23)
    assert len(kernels) == 3
    for ours, theirs, right in zip(products, kernel, exact, strict=True):
        scale = right.abs().max()
        assert (ours - right).abs().max() <= 0.02 * scale
        assert (ours - right).abs().mean() <= 1.5 * (theirs - right).abs().mean()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        attention(inputs)
    assert len(kernels) == 4  # nothing goes backward


def test_a_step_without_labels_has_the_loss_0():
    """transformers.Trainer counts the labels of a step: here 0, by which nothing can be divided."""
    ids = batch()["input_ids"]
    output = make("AlbertForTokenClassification")(
        ids, labels=torch.full_like(ids, -100), num_items_in_batch=torch.tensor(0)
    )
    assert output.loss == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_row_without_a_token_gives_no_nan(attention, dtype):
    model = make("AlbertForPreTraining", attn_implementation=attention).to(dtype)
    ids = batch()["input_ids"]
    mask = torch.ones_like(ids)
    mask[1] = 0
    output = model(ids, mask, labels=torch.full_like(ids, -100))
    assert output.prediction_logits.isfinite().all()
    assert output.sop_logits.isfinite().all()
    assert output.loss == 0  # nothing to predict costs nothing
    output.prediction_logits.float().square().mean().backward()
    assert all(
        parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None
    )
    # As in the original: equal (very low) scores everywhere are the same as no mask.
    with torch.no_grad():
        unmasked = model(ids[1:2]).sop_logits
    assert largest_difference(unmasked[0], output.sop_logits[1]) <= (
        TOLERANCE if dtype == torch.float32 else 0.05
    )


def test_mask_is_boolean_and_only_where_there_is_padding():
    assert expand_attention_mask(None, batch=2, length=3) is None
    assert expand_attention_mask(torch.ones(2, 3), batch=2, length=3) is None
    mask = expand_attention_mask(torch.tensor([[1, 1, 0], [0, 0, 0]]), batch=2, length=3)
    assert mask is not None
    assert mask.dtype == torch.bool
    assert mask[:, 0, 0].tolist() == [[True, True, False], [True, True, True]]
    with pytest.raises(ValueError, match=r"\(2, 3\).*got \(2, 4\)"):
        expand_attention_mask(torch.ones(2, 4), batch=2, length=3)


@pytest.mark.parametrize("lowest", [-10000.0, -math.inf, -10000])
def test_mask_to_be_added_to_the_scores_is_refused(lowest):
    """Taken for 0 and 1, it would hide the text and show the padding."""
    added = torch.tensor([[0, 0, lowest]])
    with pytest.raises(ValueError, match="attention_mask == 0"):
        expand_attention_mask(added, batch=1, length=3)


@pytest.mark.parametrize("strange", [0.5, 2.0, math.nan])
def test_mask_of_other_numbers_than_0_and_1_is_refused(strange):
    mask = torch.tensor([[1.0, strange, 0]])
    with pytest.raises(ValueError, match=rf"attention_mask contains {strange}. Expected 1"):
        expand_attention_mask(mask, batch=1, length=3)
    assert expand_attention_mask(mask.fill_(1), batch=1, length=3) is None


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_batch_without_rows(attention):
    model = make("AlbertForPreTraining", attn_implementation=attention)
    output = model(torch.empty(0, 5, dtype=torch.long), torch.empty(0, 5))
    assert output.prediction_logits.shape == (0, 5, TINY["vocab_size"])
    assert output.sop_logits.shape == (0, 2)


def test_sequences_packed_into_one_row():
    """A block-diagonal (B, T, T) mask and restarting positions keep packed sequences apart."""
    model = make("AlbertModel")
    ids = batch()["input_ids"]
    block = torch.block_diag(torch.ones(12, 12), torch.ones(8, 8))[None]
    packed = torch.cat([ids[0], ids[1, :8]])[None]
    positions = torch.cat([torch.arange(12), torch.arange(8)])[None]
    with torch.no_grad():
        output = model(packed, block, position_ids=positions).last_hidden_state[0]
        again = model(packed, block[:, None], position_ids=positions).last_hidden_state[0]
        assert largest_difference(output[:12], model(ids[:1]).last_hidden_state[0]) <= TOLERANCE
        assert largest_difference(output[12:], model(ids[1:2, :8]).last_hidden_state[0]) <= TOLERANCE
    assert torch.equal(output, again)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "exactly one"),
        ({"input_ids": torch.ones(1, 2).long(), "inputs_embeds": torch.ones(1, 2, 16)}, "exactly one"),
        ({"input_ids": torch.ones(2).long()}, r"\(B, T\), got \(2,\)"),
        ({"inputs_embeds": torch.ones(1, 2, 32)}, r"\(B, T, 16\), got \(1, 2, 32\)"),
        ({"input_ids": torch.ones(1, 25).long()}, r"25 tokens.*max_position_embeddings \(24\)"),
        (
            {"input_ids": torch.ones(1, 2).long(), "head_mask": torch.ones(3)},
            r"\(4,\) or \(3, 4\), got \(3,\)",
        ),
        (
            {"input_ids": torch.ones(2, 3).long(), "position_ids": torch.zeros(2, 1).long()},
            r"position_ids .*\(2, 3\) or \(1, 3\), got \(2, 1\)",
        ),
        (
            {"input_ids": torch.ones(2, 3).long(), "token_type_ids": torch.zeros(2, 2).long()},
            r"token_type_ids .*\(2, 3\) or \(1, 3\), got \(2, 2\)",
        ),
    ],
)
def test_wrong_inputs_are_named(inputs, message):
    with pytest.raises(ValueError, match=message):
        make("AlbertModel")(**inputs)


@pytest.mark.parametrize("head", HEADS)
def test_arguments_that_are_no_tensors_or_of_another_type_are_named(head):
    model, inputs = make(head), batch(head)
    ids = inputs.pop("input_ids")
    for name, value, got in (
        ("input_ids", [2, 20, 3], "list"),
        ("input_ids", ids.numpy(), "ndarray"),
        ("input_ids", ids.float(), "torch.float32"),
        ("attention_mask", ids.tolist(), "list"),
        ("token_type_ids", ids.bool(), "torch.bool"),
        ("position_ids", ids.double(), "torch.float64"),
        ("head_mask", [1, 0, 1, 1], "list"),
    ):
        with pytest.raises(DataError, match=rf"^{name} must be .*, got {got}.* Use "):
            model(**{"input_ids": ids, **inputs, name: value})
    with pytest.raises(DataError, match=r"at least one token .*, got \(\d, 0\)"):
        model(ids[..., :0])


@pytest.mark.parametrize("head", [head for head in HEADS if head != "AlbertModel"])
def test_labels_that_are_no_whole_numbers_are_named(head):
    model, inputs, labels = (
        make(head, problem_type="single_label_classification"),
        batch(head),
        labels_for(head),
    )
    for name, value in labels.items():
        for wrong, got in (
            (value.tolist(), "list"),
            (value.float(), "torch.float32"),
            (value.int(), "torch.int32"),
        ):
            with pytest.raises(DataError, match=rf"^{name} must be .*, got {got}"):
                model(**inputs, **{**labels, name: wrong})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": torch.tensor([[5, 60]])}, "input_ids has values from 5 to 60, but vocab_size is 60"),
        (
            {"input_ids": torch.tensor([[5, 6]]), "token_type_ids": torch.tensor([[0, 2]])},
            "token_type_ids has values from 0 to 2, but type_vocab_size is 2. Expected 0 to 1",
        ),
        (
            {"input_ids": torch.tensor([[5, 6]]), "position_ids": torch.tensor([[23, 24]])},
            "position_ids has values from 23 to 24, but max_position_embeddings is 24",
        ),
    ],
)
def test_numbers_without_an_embedding_are_named(inputs, message):
    with pytest.raises(IndexError, match=message):
        make("AlbertModel")(**inputs)


# --- losses -----------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [head for head in HEADS if head != "AlbertModel"])
def test_losses_are_computed_in_fp32(head):
    loss = make(head).to(torch.bfloat16)(**batch(head), **labels_for(head)).loss
    assert loss.dtype == torch.float32


def test_each_objective_alone():
    model = make("AlbertForPreTraining")
    inputs, labels = batch(), labels_for("AlbertForPreTraining")
    both = model(**inputs, **labels).loss
    words = model(**inputs, labels=labels["labels"]).loss
    order = model(**inputs, sentence_order_label=labels["sentence_order_label"]).loss
    assert model(**inputs).loss is None
    assert largest_difference(both, words + order) <= 1e-6


@pytest.mark.parametrize("head", ["AlbertForPreTraining", "AlbertForMaskedLM"])
def test_masked_positions_equal_the_full_projection(head):
    model = make(head)
    inputs, labels = batch(mask=True), labels_for(head)["labels"]
    positions = (labels.flatten() != -100).nonzero().flatten()
    full = model(**inputs, labels=labels)
    picked = model(**inputs, labels=labels.flatten()[positions], masked_positions=positions)
    assert picked[1].shape == (len(positions), TINY["vocab_size"])
    assert largest_difference(full[1].flatten(0, 1)[positions], picked[1]) <= TOLERANCE
    assert largest_difference(full.loss, picked.loss) <= TOLERANCE
    full.loss.backward()
    gradients = {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    model.zero_grad()
    picked.loss.backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert largest_difference(gradients[name], parameter.grad) <= TOLERANCE, name


@pytest.mark.parametrize("head", ["AlbertForPreTraining", "AlbertForMaskedLM"])
def test_older_name_of_labels(head):
    model = make(head)
    inputs = batch()
    with pytest.warns(FutureWarning, match="labels") as caught:
        outputs = model(**inputs, masked_lm_labels=inputs["input_ids"])
    assert caught[0].filename == __file__
    loss, scores = outputs[:2]
    assert loss == model(**inputs, labels=inputs["input_ids"]).loss
    assert scores.shape == (3, 12, TINY["vocab_size"])
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="only labels"):
        model(**inputs, labels=inputs["input_ids"], masked_lm_labels=inputs["input_ids"])


def test_spans_need_both_ends():
    with pytest.raises(ValueError, match="needed together"):
        make("AlbertForQuestionAnswering")(**batch(), start_positions=torch.tensor([1, 2, 3]))


def test_multiple_choice_needs_choices():
    with pytest.raises(ValueError, match=r"\(B, C, T\).*\(3, 12\)"):
        make("AlbertForMultipleChoice")(**batch())


# --- outputs ----------------------------------------------------------------------------------


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
    assert MaskedLMOutput(logits=logits)[0] is logits  # fields that are None are not counted
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


def test_config_decides_what_is_returned():
    model = make("AlbertForQuestionAnswering", output_hidden_states=True, output_attentions=True)
    output = model(**batch())
    assert output.keys() == ["start_logits", "end_logits", "hidden_states", "attentions"]
    start, end = model(**batch(), output_hidden_states=False, output_attentions=False)
    assert start.shape == end.shape == (3, 12)
    with pytest.raises(TypeError, match="output_attention"):
        model(**batch(), output_attention=True)


def test_function_as_activation():
    named, function = make("AlbertModel", hidden_act="relu"), make("AlbertModel", hidden_act=torch.relu)
    assert torch.equal(named(**batch()).last_hidden_state, function(**batch()).last_hidden_state)
    assert "FunctionActivation(relu)" in str(function)


# --- running elsewhere ------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("capture", ["trace", "export"])
def test_captured_graph_keeps_its_mask(capture, attention):
    model = make("AlbertForMaskedLM", return_dict=False, attn_implementation=attention)
    inputs = batch(mask=True)
    example = (inputs["input_ids"], torch.ones_like(inputs["attention_mask"]))  # captured without padding ...
    if capture == "trace":
        graph = torch.jit.trace(model, example)
    else:
        graph = torch.export.export(model, example).module()
    logits = graph(inputs["input_ids"], inputs["attention_mask"])[0]  # ... and used with it
    assert largest_difference(logits, model(**inputs)[0]) <= TOLERANCE


def test_bricks_need_no_config():
    encoder = AlbertTransformer([], embedding_size=8, hidden_size=16, num_hidden_layers=0)
    assert encoder.embedding_hidden_mapping_in(torch.ones(1, 2, 8)).shape == (1, 2, 16)
    assert AlbertForMaskedLM(tiny(num_hidden_layers=1)).albert.pooler is None


@pytest.mark.parametrize(
    ("label", "head"), [(99, "AlbertForSequenceClassification"), (-1, "AlbertForMaskedLM")]
)
def test_labels_out_of_range_are_named(label, head):
    inputs, labels = batch(head), labels_for(head)
    labels["labels"].view(-1)[0] = label
    wrong = {**labels, "labels": labels["labels"][1:]}
    with pytest.raises(ValueError, match=r"labels|needs"):
        make(head)(**inputs, **wrong)
    with pytest.raises(DataError, match=r"labels contain (99|-1), but there are \d+ classes. Expected 0 to"):
        make(head)(**inputs, **labels)
