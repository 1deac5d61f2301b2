"""Functions that write a model in the formats of other programs, for tests of the readers."""

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import torch
from torch_files import Bundle, write_bundle

from albertkit.checkpoints.tensor_bundle import masked_checksum, read_table, varint, write_table
from albertkit.checkpoints.tensorflow import GRAPH
from albertkit.conversion import convert
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.protobuf import message_class

Tensors = dict[str, torch.Tensor]

# --- TensorFlow 2 -------------------------------------------------------------------------------


def graph_of(names: dict[str, str]) -> bytes:
    """Return an object graph of TensorFlow with a node for each variable. `names` maps keys to names."""
    graph = message_class("ObjectGraph")()
    graph.nodes.add()  # the root
    for key, name in names.items():
        graph.nodes.add().attributes.add(name="VARIABLE_VALUE", full_name=name, checkpoint_key=key)
    return graph.SerializeToString()


def write_objects(prefix: Path, tensors: dict[str, torch.Tensor], graph: bytes) -> None:
    """Write tensors by key, and the graph as a string tensor, as TensorFlow does."""
    index, data = write_bundle(prefix, tensors)
    length, offset = varint(len(graph)), data.stat().st_size
    plain_length = len(graph).to_bytes(4, "little")
    length_checksum = masked_checksum(plain_length).to_bytes(4, "little")
    content = length + length_checksum + graph
    with data.open("ab") as file:
        file.write(content)
    checksum = masked_checksum(plain_length, length_checksum, graph)
    entry = message_class("BundleEntry")(
        dtype=7, offset=offset, size=len(content), crc32c=checksum
    )  # a string
    entry.shape.SetInParent()
    entries = dict(read_table(index.read_bytes())) | {GRAPH.encode(): entry.SerializeToString()}
    index.unlink()
    write_table(index, dict(sorted(entries.items())))


# --- Keras --------------------------------------------------------------------------------------


def keras_tensors(model: torch.nn.Module) -> Tensors:
    """Return the weights with the names and the transposed matrices of TensorFlow in `transformers`."""
    tensors = {}
    for ours, tensor in model.state_dict().items():
        if ours == "predictions.decoder.weight":
            continue
        *levels, end = ours.split(".")
        is_norm = "norm" in levels[-1].lower()
        if end == "weight":
            kinds = {"word_embeddings": "weight"}
            kinds |= dict.fromkeys(("position_embeddings", "token_type_embeddings"), "embeddings")
            end = kinds.get(levels[-1], "gamma" if is_norm else "kernel")
        elif is_norm:
            end = "beta"
        if model.base_model is model:
            levels = ["albert", *levels]
        path = "/".join(levels).replace("groups/", "groups_._").replace("layers/", "layers_._")
        tensors[f"tf_model/{path}/{end}:0"] = tensor.T.contiguous() if end == "kernel" else tensor
    return tensors


def write_h5(path: Path, model: torch.nn.Module) -> None:
    """Write the file of these classes, as Keras 2 does: it splits a long list of names into parts."""
    groups: dict[str, Tensors] = {}
    for name, tensor in keras_tensors(model).items():
        groups.setdefault(name.split("/")[1], {})[name] = tensor
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [group.encode() for group in groups] + [b"dropout"]
        file.create_group("dropout").attrs["weight_names"] = np.array([], dtype="S1")
        for group, tensors in groups.items():
            layer = file.create_group(group)
            names = [name.encode() for name in tensors]
            layer.attrs["weight_names0"], layer.attrs["weight_names1"] = names[:2], names[2:]
            for name, tensor in tensors.items():
                layer[name] = tensor.numpy()


# --- every format -------------------------------------------------------------------------------


def pytorch_bin(folder: Path, model: AlbertPreTrainedModel, *, sharded: bool = False) -> Path:
    """Write a PyTorch file with the older names gamma and beta, or two files with an index."""
    model.config.replace(architectures=[type(model).__name__]).save_pretrained(folder)
    state = {
        name.replace("orm.weight", "orm.gamma").replace("orm.bias", "orm.beta"): tensor
        for name, tensor in model.state_dict().items()
    }
    if not sharded:
        torch.save(state, folder / "pytorch_model.bin")
        return folder
    files = {name: f"pytorch_model-0000{number % 2 + 1}-of-00002.bin" for number, name in enumerate(state)}
    for file in set(files.values()):
        torch.save({name: state[name] for name in state if files[name] == file}, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": files}))
    return folder


def keras_h5(folder: Path, model: AlbertPreTrainedModel) -> Path:
    model.config.replace(architectures=[type(model).__name__]).save_pretrained(folder)
    write_h5(folder / "tf_model.h5", model)
    return folder


def keras_weights(folder: Path, model: AlbertPreTrainedModel) -> Path:
    """Write the checkpoint of `model.save_weights("weights")`."""
    model.config.replace(architectures=[type(model).__name__]).save_pretrained(folder)
    tensors = keras_tensors(model)
    keys = {f"variables/{at}/.ATTRIBUTES/VARIABLE_VALUE": name for at, name in enumerate(tensors)}
    graph = graph_of({key: name.removesuffix(":0") for key, name in keys.items()})
    write_objects(folder / "weights", {key: tensors[name] for key, name in keys.items()}, graph)
    return folder


def google_scoped(folder: Path, model: AlbertPreTrainedModel) -> Path:
    """Write a module of TensorFlow Hub, with a scope before the names of the encoder, in an archive."""
    model.save_pretrained(folder / "ours")
    convert(folder / "ours", folder / "tf1", to="tf1")
    bundle = Bundle(folder / "tf1" / "model.ckpt-best")
    scoped = {f"module/{name}" if "/" in name else name: bundle.read(name) for name in bundle.entries}
    (folder / "module" / "variables").mkdir(parents=True)
    write_bundle(folder / "module" / "variables" / "variables", scoped)
    shutil.copy(folder / "tf1" / "albert_config.json", folder / "module")
    with tarfile.open(folder / "module.tar.gz", "w:gz") as tar:
        tar.add(folder / "module", "module")
    return folder / "module.tar.gz"


def converted(name: str, to: str, **options: int) -> Callable[[Path, AlbertPreTrainedModel], Path]:
    def make(folder: Path, model: AlbertPreTrainedModel) -> Path:
        model.save_pretrained(folder / "ours")
        convert(folder / "ours", folder / name, to=to, **options)  # type: ignore[arg-type]
        return folder / name

    return make


SOURCES: dict[str, Callable[[Path, AlbertPreTrainedModel], Path]] = {
    "safetensors": converted("hf", "hf"),
    "safetensors in shards": converted("shards", "hf", max_shard_size=1000),
    "pytorch_model.bin": pytorch_bin,
    "pytorch_model.bin in shards": lambda folder, model: pytorch_bin(folder, model, sharded=True),
    "tf_model.h5": keras_h5,
    "weights of Keras": keras_weights,
    "TensorFlow 1": converted("tf1", "tf1"),
    "TensorFlow Hub": google_scoped,
    "Julia": converted("model.tfbson", "julia"),
}
"""Format -> the function that writes a model in this format, and returns its path."""
