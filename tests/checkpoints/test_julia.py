"""Tests of the files of BSON.jl, a Julia package: files that it wrote, files of albertkit, and errors."""

import struct
from pathlib import Path

import bson
import numpy as np
import pytest

from albertkit.checkpoints import julia
from albertkit.checkpoints.formats import read
from albertkit.checkpoints.julia import load, save
from albertkit.conversion import convert
from albertkit.errors import CheckpointError


def write(path: Path, **variables: object) -> Path:
    """Write documents without interpreting their tags."""
    path.write_bytes(bson.encode(variables))
    return path


def datatype(*name: str, params: list | None = None) -> dict:
    return {"tag": "datatype", "params": params or [], "name": list(name)}


def array(kind: str, size: list[int], data: object) -> dict:
    return {"tag": "array", "type": datatype("Core", kind), "size": size, "data": data}


def struct_of(kind: str, data: object) -> dict:
    return {"tag": "struct", "type": datatype("Main", kind), "data": data}


BACKREF = {"tag": "backref", "ref": 1}
UNION_ALL = {"tag": "unionall", "body": BACKREF}  # as the first back reference, it contains itself


def test_files_written_by_julia(shared: Path) -> None:
    folder = shared / "fixtures" / "julia-bson"
    ones = load(folder / "test_MultiDimsArray_from_64bit.bson")["a"]
    assert ones.dtype == np.float32
    assert np.array_equal(ones, np.ones((2, 2)))
    complex_numbers = load(folder / "test.bson")
    assert complex_numbers["b"] == "Hello, World!"
    assert complex_numbers["a"]["size"] == [2]
    assert bytes(load(folder / "test_41_from_64bit.bson")["obj"]["name"]) == b"\x01\x02"


def test_written_bytes_equal_those_of_bson_jl(shared: Path, tmp_path: Path) -> None:
    fixture = shared / "fixtures" / "google-tf1-small" / "albert_small.tfbson"
    save(tmp_path / "again.tfbson", load(fixture))
    assert (tmp_path / "again.tfbson").read_bytes() == fixture.read_bytes()


def test_round_trip(tmp_path: Path) -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    variables = {
        "text": "né",
        "numbers": [1, -(1 << 40), 0.5, True, None],
        "nested": {"a": {"b": []}},
        "weights": {
            "matrix": matrix,
            "cube": np.arange(24, dtype=np.float64).reshape(2, 3, 4),
            "half": np.ones((1, 3), dtype=np.float16),
            "scalar": np.array(7, dtype=np.int64),
            "empty": np.empty((0, 3), dtype=np.float32),
        },
    }
    save(tmp_path / "x.bson", variables)
    loaded = load(tmp_path / "x.bson")
    arrays, expected = loaded.pop("weights"), variables.pop("weights")
    assert loaded == variables
    for name, array in expected.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert np.array_equal(arrays[name], array)


def test_arrays_are_column_major(tmp_path: Path) -> None:
    """In memory, the matrix [1 2 3; 4 5 6] of Julia is 1 4 2 5 3 6."""
    values = struct.pack("<6f", 1, 4, 2, 5, 3, 6)
    path = write(
        tmp_path / "x.bson",
        a={"tag": "array", "type": datatype("Core", "Float32"), "size": [2, 3], "data": values},
    )
    assert load(path)["a"].tolist() == [[1, 2, 3], [4, 5, 6]]


def test_julia_values_of_all_kinds(tmp_path: Path) -> None:
    layer = {"tag": "struct", "type": datatype("Main", "Flux", "Dense"), "data": [1, [2, 3]]}
    any_array = {"tag": "unionall", "body": {"tag": "unionall", "body": datatype("Core", "Array")}}
    path = write(
        tmp_path / "x.bson",
        symbol={"tag": "symbol", "name": "gelu"},
        tuple={"tag": "tuple", "data": [1, {"tag": "tuple", "data": [2]}]},
        number=struct_of("Float32", struct.pack("<f", 2.5)),
        layer=layer,
        dict={"tag": "struct", "type": datatype("Main", "Base", "Dict"), "data": [["k"], [1]]},
        texts={"tag": "array", "type": datatype("Core", "String"), "size": [1, 2], "data": ["a", "b"]},
        arrays={"tag": "array", "type": any_array, "size": [1], "data": [[]]},
        first={"tag": "backref", "ref": 1},
        second={"tag": "backref", "ref": 1},
        third={"tag": "array", "type": {"tag": "backref", "ref": 2}, "size": [1], "data": b"7"},
        _backrefs=[["shared"], datatype("Main", "Core", "UInt8")],
    )
    loaded = load(path)
    assert loaded["symbol"] == "gelu"
    assert loaded["tuple"] == (1, (2,))
    assert loaded["number"] == 2.5
    assert loaded["layer"] == layer
    assert loaded["dict"] == {"k": 1}
    assert loaded["texts"].tolist() == [["a", "b"]]
    assert loaded["arrays"].tolist() == [[]]
    assert loaded["first"] == ["shared"]
    assert loaded["first"] is loaded["second"]
    assert loaded["third"].tolist() == [ord("7")]
    assert "_backrefs" not in loaded


def test_functions_and_types_in_a_file_are_only_data(tmp_path: Path) -> None:
    """The reader runs neither functions and constructors nor the code of anonymous functions."""
    values = {
        "function": {"tag": "ref", "path": ["Main", "Base", "run"]},
        "command": {"tag": "struct", "type": datatype("Main", "Base", "Cmd"), "data": [["touch", "x"]]},
        "anonymous": {"tag": "jl_anonymous", "type": "method", "data": ["code"]},
    }
    assert load(write(tmp_path / "x.bson", **values)) == values


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"a": array("Any", [2], [1])}, "cannot reshape array of size 1"),
        ({"a": array("Float32", [2], b"1234")}, "cannot reshape array"),
        ({"a": struct_of("Dict", [["k"], []])}, "shorter than argument"),
        ({"a": struct_of("Dict", [[1], [1]])}, "keys other than texts"),
        ({"a": {"tag": "symbol"}}, "KeyError: 'name'"),
        ({"a": {"tag": "struct", "type": BACKREF}, "_backrefs": [UNION_ALL]}, "RecursionError"),
    ],
)
def test_invalid_values(tmp_path: Path, variables: dict, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(write(tmp_path / "x.bson", **variables))


def test_files_of_other_kinds(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no file"):
        load(tmp_path / "none.bson")
    (tmp_path / "empty.bson").touch()
    with pytest.raises(CheckpointError, match="is damaged"):
        load(tmp_path / "empty.bson")
    with pytest.raises(CheckpointError, match=r"has the variables model. Expected Dicts 'config'"):
        read(write(tmp_path / "x.bson", model=1))
    for value in ("text", array("Complex", [1], bytes(8))):
        with pytest.raises(CheckpointError, match=r"weights\['a'\] is not an array of numbers"):
            read(write(tmp_path / "y.bson", config={}, weights={"a": value}))
    with pytest.raises(CheckpointError, match="not support complex64"):
        save(tmp_path / "z.bson", {"a": np.zeros(1, dtype=np.complex64)})


def test_a_document_over_two_gigabytes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(julia, "_LARGEST_FILE", 1000)
    with pytest.raises(CheckpointError, match="at most 1,000 bytes"):
        convert("bundled", tmp_path / "x.bson")
