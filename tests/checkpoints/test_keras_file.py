"""Tests of the errors for `tf_model.h5` and ONNX files that refer to other files or declare wrong sizes."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import onnx
import pytest
import torch
from onnx.external_data_helper import set_external_data

from albertkit.checkpoints.folder import PRODUCER, read_h5, read_onnx
from albertkit.errors import CheckpointError

NAME = "model/kernel:0"
Put = Callable[[h5py.Group, Path], object]


def keras_file(folder: Path, put: Put) -> Path:
    """Write a file with one layer. `put` adds its tensor."""
    path = folder / "tf_model.h5"
    (folder / "secret").write_bytes(np.arange(6, dtype="f4").tobytes())
    with h5py.File(folder / "other.h5", "w") as file:
        file[NAME] = np.arange(6.0)
    with h5py.File(path, "w") as file:
        group = file.create_group("layer")
        group.create_group("model")
        put(group, folder)
    return path


def external(group: h5py.Group, folder: Path) -> None:
    group.create_dataset(NAME, (6,), "f4", external=[(str(folder / "secret"), 0, 24)])


def external_link(group: h5py.Group, folder: Path) -> None:
    group[NAME] = h5py.ExternalLink(str(folder / "other.h5"), NAME)


def soft_link(group: h5py.Group, folder: Path) -> None:
    group[NAME] = h5py.SoftLink("/elsewhere")


def cycle(group: h5py.Group, folder: Path) -> None:
    group[NAME] = h5py.SoftLink(f"/layer/{NAME}")


def group_link(group: h5py.Group, folder: Path) -> None:
    del group["model"]
    group["model"] = h5py.SoftLink("/elsewhere")


def virtual(group: h5py.Group, folder: Path) -> None:
    layout = h5py.VirtualLayout((6,), "f8")
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), NAME, shape=(6,))
    group.create_virtual_dataset(NAME, layout)


def huge(group: h5py.Group, folder: Path) -> None:
    group.create_dataset(NAME, (1 << 40,), "f4", chunks=(1024,))


def never_written(group: h5py.Group, folder: Path) -> None:
    group["padding"] = np.zeros(1000)
    group.create_dataset(NAME, (500,), "f4", chunks=(10,))


def compressed(group: h5py.Group, folder: Path) -> None:
    group.create_dataset(NAME, data=np.zeros(1 << 20, "f4"), compression="gzip")


def texts(group: h5py.Group, folder: Path) -> None:
    group[NAME] = ["a", "b"]


@pytest.mark.parametrize(
    ("put", "message"),
    [
        (external, "is virtual, external or compressed"),
        (virtual, "is virtual, external or compressed"),
        (huge, "is not an array of numbers, or claims more"),
        (never_written, "is not an array of numbers, or claims more"),
        (compressed, "is virtual, external or compressed"),
        (texts, "is not an array of numbers"),
    ],
)
def test_data_outside_the_file_is_an_error(tmp_path: Path, put: Put, message: str) -> None:
    with pytest.raises(CheckpointError, match=rf"tf_model\.h5 is damaged.*{NAME} {message}"):
        read_h5(keras_file(tmp_path, put))


@pytest.mark.parametrize("put", [external_link, soft_link, cycle, group_link])
def test_links_are_not_followed(tmp_path: Path, put: Put) -> None:
    with pytest.raises(CheckpointError, match="has no weights of Keras layers"):
        read_h5(keras_file(tmp_path, put))


def plain(group: h5py.Group, folder: Path) -> None:
    group[NAME] = np.arange(6.0)


@pytest.mark.parametrize("differs", [False, True])
def test_layers_that_share_a_tensor(tmp_path: Path, differs: bool) -> None:
    def shared(group: h5py.Group, folder: Path) -> None:
        plain(group, folder)
        group.file[f"other/{NAME}"] = np.arange(6.0) + differs

    path = keras_file(tmp_path, shared)
    if differs:
        with pytest.raises(CheckpointError, match=f"{NAME} is stored twice, with different values"):
            read_h5(path)
    else:
        (tensor,) = read_h5(path).values()
        assert tensor.tolist() == [0, 1, 2, 3, 4, 5]


def test_big_endian_numbers_are_converted(tmp_path: Path) -> None:
    def swapped(group: h5py.Group, folder: Path) -> None:
        group[NAME] = np.arange(6, dtype=">f4")

    (tensor,) = read_h5(keras_file(tmp_path, swapped)).values()
    assert tensor.dtype == np.float32  # not equal to a type of the other byte order
    assert tensor.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_heap_that_hdf5_would_read_forever_is_not_read(tmp_path: Path) -> None:
    path = keras_file(tmp_path, plain)
    with h5py.File(path, "r+") as file:
        file["layer"].attrs.create("weight_names", [NAME], dtype=h5py.string_dtype())
    content = bytearray(path.read_bytes())
    heap = content.index(b"GCOL\x01")
    free = heap + 16  # the first object with the number 0 is free space
    while content[free : free + 2] != b"\0\0":
        free += 16 + -(-int.from_bytes(content[free + 8 : free + 16], "little") // 8) * 8
    content[free + 8 : free + 16] = bytes(8)
    path.write_bytes(content)
    (tensor,) = read_h5(path).values()
    assert tensor.tolist() == [0, 1, 2, 3, 4, 5]


def test_data_outside_an_onnx_file_is_an_error(tmp_path: Path) -> None:
    """As in HDF5, a tensor can refer to any other file."""
    (tmp_path / "secret").write_bytes(np.arange(6, dtype="f4").tobytes())
    tensor = onnx.numpy_helper.from_array(np.arange(6, dtype="f4"), "output_bias")
    set_external_data(tensor, location="secret", length=24)
    tensor.ClearField("raw_data")
    graph = onnx.helper.make_graph([], "graph", [], [], [tensor])
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.helper.make_model(graph, producer_name=PRODUCER).SerializeToString())
    with pytest.raises(CheckpointError, match="keeps output_bias in another file"):
        read_onnx(path)


def test_a_damaged_tensor_of_an_onnx_file_is_an_error(tmp_path: Path) -> None:
    tensor = onnx.numpy_helper.from_array(torch.arange(6.0).numpy(), "output_bias")
    tensor.dims[0] = 1 << 40
    graph = onnx.helper.make_graph([], "graph", [], [], [tensor])
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.helper.make_model(graph, producer_name=PRODUCER).SerializeToString())
    with pytest.raises(CheckpointError, match="is damaged or incomplete"):
        read_onnx(path)
