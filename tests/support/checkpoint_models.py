"""Tiny models of `transformers` and their tensors, for the tests of model folders."""

import json
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

from albertkit import heads

Tensors = dict[str, torch.Tensor]

TINY = {
    "vocab_size": 40,
    "embedding_size": 8,
    "hidden_size": 12,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "num_hidden_layers": 4,
    "num_hidden_groups": 2,
    "inner_group_num": 2,
    "max_position_embeddings": 16,
}
SHARED_HEADS = {name: head for name, head in heads.HEADS.items() if hasattr(transformers, name)}
"""The heads that `transformers` has, too."""
HEADS: list[type] = [getattr(transformers, name) for name in SHARED_HEADS]


def reference(head: type = transformers.AlbertForPreTraining, seed: int = 0) -> transformers.PreTrainedModel:
    """Return a tiny model of `transformers` in which all weights are random, including biases and norms."""
    torch.manual_seed(seed)
    model = head(transformers.AlbertConfig.from_dict(TINY)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


def shapes(model: torch.nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


def assert_same(actual: Tensors, expected: Tensors) -> None:
    assert set(actual) == set(expected)
    for name, tensor in expected.items():
        assert actual[name].dtype == tensor.dtype, name
        assert torch.equal(actual[name], tensor), name


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def tensors_of_each_type() -> Tensors:
    """Return tensors with different shapes and types."""
    generator = torch.Generator().manual_seed(0)
    return {
        "a.weight": torch.randn(5, 3, generator=generator),
        "a.bias": torch.randn(5, generator=generator),
        "half": torch.randn(4, generator=generator).half(),
        "brain": torch.randn(4, generator=generator).bfloat16(),
        "count": torch.tensor(7),
        "nothing": torch.empty(0, 3),
    }


def write_shards(folder: Path, tensors: Tensors, kind: str = "safetensors") -> dict[str, str]:
    """Write tensors into two shards; return the file of each tensor."""
    stem, save = ("model", save_file) if kind == "safetensors" else ("pytorch_model", torch.save)
    names = list(tensors)
    parts = {f"{stem}-1-of-2.{kind}": names[:2], f"{stem}-2-of-2.{kind}": names[2:]}
    for file, part in parts.items():
        save({name: tensors[name] for name in part}, folder / file)
    weight_map = {name: file for file, part in parts.items() for name in part}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / f"{stem}.{kind}.index.json").write_text(json.dumps(index))
    return weight_map
