"""Tests of the network with arrays that were recorded from the original implementation (tests/golden)."""

import re

import numpy as np
import pytest
import torch
from modeling_twins import largest_difference
from places import GOLDEN

from albertkit.config import AlbertConfig
from albertkit.modeling.heads import AlbertForPreTraining

RECORDED = GOLDEN / "google_tf1_small"
TOLERANCE = 1e-5

# TensorFlow's name -> ours. Of the two LayerNorms of a layer the first follows attention.
NAMES = {
    r"bert/embeddings/(\w+_embeddings)": r"albert.embeddings.\1.weight",
    r"bert/embeddings/LayerNorm/(\w+)": r"albert.embeddings.LayerNorm.\1",
    r"bert/encoder/(embedding_hidden_mapping_in)/(\w+)": r"albert.encoder.\1.\2",
    r"bert/encoder/transformer/group_(\d+)/inner_group_(\d+)/(.+)": (
        r"albert.encoder.albert_layer_groups.\1.albert_layers.\2.\3"
    ),
    r"bert/pooler/dense/(\w+)": r"albert.pooler.\1",
    r"cls/predictions/output_bias": r"predictions.bias",
    r"cls/predictions/transform/dense/(\w+)": r"predictions.dense.\1",
    r"cls/predictions/transform/LayerNorm/(\w+)": r"predictions.LayerNorm.\1",
    r"cls/seq_relationship/output_weights": r"sop_classifier.classifier.weight",
    r"cls/seq_relationship/output_bias": r"sop_classifier.classifier.bias",
}
INSIDE_A_LAYER = {
    "attention_1/output/dense/": "attention.dense.",
    "attention_1/self/": "attention.",
    "ffn_1/intermediate/output/dense/": "ffn_output.",
    "ffn_1/intermediate/dense/": "ffn.",
    "LayerNorm_1/": "full_layer_layer_norm.",
    "LayerNorm/": "attention.LayerNorm.",
}


def our_name(name: str) -> str:
    for pattern, replacement in NAMES.items():
        if re.fullmatch(pattern, name):
            name = re.sub(pattern, replacement, name)
            break
    for old, new in INSIDE_A_LAYER.items():
        if old in name:
            name = name.replace(old, new)
            break
    for old, new in {"kernel": "weight", "gamma": "weight", "beta": "bias"}.items():
        name = re.sub(rf"[./]?\b{old}$", f".{new}", name)
    return name.replace("/", ".")


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    with np.load(RECORDED / "arrays.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def state_dict(arrays) -> dict[str, torch.Tensor]:
    tensors = {}
    for key, array in arrays.items():
        if key.startswith("weight:"):
            name = key.removeprefix("weight:")
            # Kernels are inputs x outputs there; the output matrix of the order head is not a kernel.
            tensors[our_name(name)] = torch.from_numpy(array.T.copy() if name.endswith("kernel") else array)
    return tensors


@pytest.fixture(scope="module", params=["sdpa", "eager"])
def model(request, state_dict) -> AlbertForPreTraining:
    config = AlbertConfig.from_pretrained(RECORDED, attn_implementation=request.param)
    assert config.hidden_act == "gelu_new"  # the original's "gelu" is the tanh form
    model, info = AlbertForPreTraining.from_pretrained(
        None, config=config, state_dict=state_dict, output_loading_info=True
    )
    assert info["report"].ok
    return model


def test_outputs_of_the_original(model, arrays):
    golden = {
        key.removeprefix("golden:"): torch.from_numpy(array)
        for key, array in arrays.items()
        if key.startswith("golden:")
    }
    length = golden["input_ids"].shape[1]
    rows = torch.arange(len(golden["input_ids"]))[:, None]
    with torch.no_grad():
        output = model(
            golden["input_ids"],
            golden["attention_mask"],
            golden["token_type_ids"],
            output_hidden_states=True,
            masked_positions=(rows * length + golden["masked_lm_positions"]).flatten(),
        )
        embedded = model.albert.embeddings(golden["input_ids"], golden["token_type_ids"])
        pooled = model.albert(
            golden["input_ids"], golden["attention_mask"], golden["token_type_ids"]
        ).pooler_output
    real = golden["attention_mask"].bool()
    assert largest_difference(embedded, golden["embedding_output"]) <= TOLERANCE
    for ours, original in zip(output.hidden_states[1:], golden["layers"], strict=True):
        assert largest_difference(ours[real], original[real]) <= TOLERANCE
    assert largest_difference(output.hidden_states[-1][real], golden["sequence_output"][real]) <= TOLERANCE
    assert largest_difference(pooled, golden["pooled_output"]) <= TOLERANCE
    assert largest_difference(output.prediction_logits, golden["mlm_logits"].flatten(0, 1)) <= TOLERANCE
    assert largest_difference(output.sop_logits, golden["sop_logits"]) <= TOLERANCE
