"""Tests of exported ONNX files: their outputs, weights, metadata and classes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hub_server import Hub
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from modeling_twins import HEADS, batch, make
from places import GOLDEN
from torch_files import write_bundle

import albertkit
from albertkit import __version__
from albertkit.checkpoints.folder import WEIGHTS_FILE
from albertkit.config import ACTIVATION_NAMES, AlbertConfig
from albertkit.errors import CheckpointError
from albertkit.export.check import open_session
from albertkit.export.onnx import export_onnx
from albertkit.files import file_sha256
from albertkit.modeling import auto
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tokenization.tokenizer import AutoTokenizer

TOLERANCE = 1e-4
FLOAT16 = onnx.TensorProto.FLOAT16
Save = Callable[..., Path]


def open_plainly(file: Path) -> Any:
    """Open a file with onnxruntime alone."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def assert_equal_outputs(
    model: AlbertPreTrainedModel, session: Any, *batches: dict[str, torch.Tensor]
) -> None:
    names = [output.name for output in session.get_outputs()]
    for inputs in batches:
        with torch.no_grad():
            expected = dict(model(**inputs).items())
        assert list(expected) == names
        found = session.run(None, {name: ids.numpy() for name, ids in inputs.items()})
        for name, values in zip(names, found, strict=True):
            np.testing.assert_allclose(values, expected[name].numpy(), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("head", HEADS)
def test_every_head_with_any_batch_and_length(head: str, save: Save, tmp_path: Path) -> None:
    folder = save(head, num_labels=3, num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2)
    report = export_onnx(folder, tmp_path / "model.onnx")
    assert report.architecture == head
    assert report.largest_difference <= TOLERANCE
    model, session = HEADS[head].from_pretrained(folder), open_plainly(tmp_path / "model.onnx")
    for length in (1, 12, 24):
        for which in ({}, {"mask": True}, {"segments": True}, {"mask": True, "segments": True}):
            inputs = batch(head, length=length, **which)
            assert_equal_outputs(model, session, inputs, {name: ids[:1] for name, ids in inputs.items()})


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_shape_of_network(data: st.DataObject, tmp_path: Path) -> None:
    groups, heads = data.draw(st.sampled_from([1, 2, 3])), data.draw(st.sampled_from([1, 2, 4]))
    values = {
        "num_hidden_groups": groups,
        "num_hidden_layers": groups * data.draw(st.integers(1, 2)),
        "inner_group_num": data.draw(st.integers(1, 2)),
        "num_attention_heads": heads,
        "hidden_size": heads * data.draw(st.sampled_from([3, 8])),
        "embedding_size": data.draw(st.sampled_from([5, 16])),
        "intermediate_size": data.draw(st.sampled_from([7, 48])),
        "type_vocab_size": data.draw(st.integers(1, 2)),
        "hidden_act": data.draw(st.sampled_from(ACTIVATION_NAMES)),
        "tie_word_embeddings": data.draw(st.booleans()),
    }
    head = data.draw(st.sampled_from(list(HEADS)))
    folder = tmp_path / "any"
    shutil.rmtree(folder, ignore_errors=True)
    model = make(head, seed=data.draw(st.integers(0, 9)), **values)
    model.save_pretrained(folder)
    report = export_onnx(folder, folder / "any.onnx", opset=data.draw(st.sampled_from([17, 20, 23])))
    assert report.largest_difference <= TOLERANCE
    inputs = batch(head, length=data.draw(st.integers(2, 24)), mask=data.draw(st.booleans()))
    if values["type_vocab_size"] > 1:
        inputs |= batch(head, length=inputs["input_ids"].shape[-1], segments=True)
    assert_equal_outputs(model, open_plainly(folder / "any.onnx"), inputs)


def test_completely_masked_rows_attend_as_in_torch(save: Save, tmp_path: Path) -> None:
    export_onnx(save("AlbertModel"), tmp_path / "model.onnx")
    inputs = batch()
    inputs["attention_mask"] = torch.zeros_like(inputs["input_ids"])
    assert_equal_outputs(make("AlbertModel"), open_plainly(tmp_path / "model.onnx"), inputs)


def test_optional_inputs(save: Save, tmp_path: Path) -> None:
    export_onnx(save("AlbertModel"), tmp_path / "model.onnx")
    session = open_session(tmp_path / "model.onnx")
    assert [(one.name, one.type) for one in session.get_inputs()] == [
        ("input_ids", "tensor(int64)"),
        ("attention_mask", "optional(tensor(int64))"),
        ("token_type_ids", "optional(tensor(int64))"),
    ]
    ids = batch()["input_ids"].numpy()
    left_out = session.run(None, {"input_ids": ids})[0]
    given_none = session.run(None, {"input_ids": ids, "attention_mask": None, "token_type_ids": None})[0]
    in_full = session.run(
        None, {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    )[0]
    assert (left_out == given_none).all()
    assert (left_out == in_full).all()


def test_all_inputs_for_runtimes_without_optional_inputs(save: Save, tmp_path: Path) -> None:
    report = export_onnx(save("AlbertModel"), tmp_path / "model.onnx", all_inputs=True)
    assert not [kind for kind in report.inputs.values() if "left out" in kind]
    inputs = batch(mask=True, segments=True)
    assert_equal_outputs(make("AlbertModel"), open_plainly(tmp_path / "model.onnx"), inputs)
    model = onnx.load(tmp_path / "model.onnx")
    assert not {"If", "OptionalHasElement"} & {node.op_type for node in model.graph.node}
    with pytest.raises(ValueError, match="token_type_ids"):
        open_session(tmp_path / "model.onnx").run(None, {"input_ids": inputs["input_ids"].numpy()})


def test_a_long_text_is_an_error(save: Save, tmp_path: Path) -> None:
    export_onnx(save("AlbertModel"), tmp_path / "model.onnx")
    with pytest.raises(Exception, match="broadcast"):
        open_plainly(tmp_path / "model.onnx").run(None, {"input_ids": np.ones((1, 25), np.int64)})


@pytest.mark.parametrize(("opset", "version"), [(17, 8), (20, 9), (23, 11)])
def test_the_graph_has_standard_operators_of_its_opset(
    opset: int, version: int, save: Save, tmp_path: Path
) -> None:
    report = export_onnx(save("AlbertForMaskedLM"), tmp_path / "model.onnx", opset=opset)
    model = onnx.load(tmp_path / "model.onnx")
    assert [(one.domain, one.version) for one in model.opset_import] == [("", opset)]
    assert (report.opset, report.ir_version, model.ir_version) == (opset, version, version)
    assert {node.domain for node in model.graph.node} == {""}
    assert ("Gelu" in {node.op_type for node in model.graph.node}) == (opset >= 20)


def test_shared_weights_are_stored_once_at_any_depth(save: Save, tmp_path: Path) -> None:
    sizes = []
    for layers in (2, 12):
        export_onnx(
            save("AlbertForMaskedLM", f"{layers}", num_hidden_layers=layers), tmp_path / f"{layers}.onnx"
        )
        model = onnx.load(tmp_path / f"{layers}.onnx")
        stored = [one.name for one in model.graph.initializer]
        assert len(stored) == len(set(stored))
        assert sum("word_embeddings" in name or "decoder" in name for name in stored) == 1
        uses = [name for node in model.graph.node for name in node.input if name.endswith("ffn.weight")]
        assert len(uses) == layers
        sizes.append(sum(len(one.raw_data) for one in model.graph.initializer))
    assert sizes[0] == sizes[1]


def test_the_bundled_model_as_a_folder(tmp_path: Path) -> None:
    report = export_onnx("bundled", tmp_path / "out")
    bundled = Path(albertkit.__file__).parent / "assets" / "bundled"
    assert report.file_bytes <= 1.1 * (bundled / WEIGHTS_FILE).stat().st_size
    assert report.dtype == "float16"  # as in the source, but the graph computes in float32
    assert report.largest_difference <= TOLERANCE
    assert AlbertConfig.from_pretrained(tmp_path / "out").architectures == ["AlbertForPreTraining"]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    inputs = tokenizer(["The captain of the [MASK] looked at the sea."], return_tensors="pt")
    model = auto.AlbertForPreTraining.from_pretrained("bundled")
    assert_equal_outputs(model, open_plainly(tmp_path / "out" / "model.onnx"), dict(inputs))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_in_half_precision(dtype: str, save: Save, tmp_path: Path) -> None:
    report = export_onnx(save("AlbertForPreTraining"), tmp_path / "model.onnx", dtype=dtype)
    assert report.largest_difference <= TOLERANCE  # compared with the reference with the rounded weights
    assert f"rounded to {dtype}" in report.notes[-2] + report.notes[-1]
    stored = {one.name: one.data_type for one in onnx.load(tmp_path / "model.onnx").graph.initializer}
    assert stored["predictions.dense.weight"] == getattr(onnx.TensorProto, dtype.upper())


def test_computing_in_half_precision(save: Save, tmp_path: Path) -> None:
    folder = save("AlbertForSequenceClassification")
    report = export_onnx(folder, tmp_path / "model.onnx", dtype="float16", compute="float16")
    assert TOLERANCE / 100 < report.largest_difference <= report.tolerance == 2e-2
    model = onnx.load(tmp_path / "model.onnx")
    assert not [one.name for one in model.graph.initializer if one.data_type == onnx.TensorProto.FLOAT]
    assert {one.data_type for one in model.graph.initializer} == {FLOAT16, onnx.TensorProto.INT64}
    assert report.outputs == {"logits": "float (batch, 2)"}


def test_a_vocabulary_with_another_name_is_downloaded(hub: Hub, labeled: Path, tmp_path: Path) -> None:
    files = {file.name: file.read_bytes() for file in labeled.iterdir()}
    del files["tokenizer.json"]
    files["words.model"] = files.pop("spiece.model")
    hub.repositories["org/albert"] = {"main": files}
    report = export_onnx("org/albert", tmp_path / "out")
    assert report.metadata["tokenizer_sha256"] == file_sha256(labeled / "spiece.model")
    assert file_sha256(tmp_path / "out" / "spiece.model") == file_sha256(labeled / "spiece.model")


def test_metadata(labeled: Path, tmp_path: Path) -> None:
    report = export_onnx(labeled, tmp_path / "model.onnx")
    held = open_session(tmp_path / "model.onnx").get_modelmeta().custom_metadata_map
    assert held == report.metadata
    assert json.loads(held["id2label"]) == {"0": "bad", "1": "so-so", "2": "très bien"}
    assert held["tokenizer_file"] == "spiece.model"
    assert held["tokenizer_sha256"] == file_sha256(labeled / "spiece.model")
    assert (held["do_lower_case"], held["max_length"]) == ("true", "24")
    assert (held["architecture"], held["albertkit_version"]) == (
        "AlbertForSequenceClassification",
        __version__,
    )
    assert AlbertConfig.from_dict(json.loads(held["config"])).hidden_size == 32


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("texts.tsv", "It rains.\t1\nIt snows.\t0\n"),
        ("texts.jsonl", '{"text": "It rains.", "label": 1}\n{"text": "It snows."}\n'),
    ],
)
def test_texts_beside_other_columns(labeled: Path, tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    report = export_onnx(labeled, tmp_path / "model.onnx", texts=tmp_path / name)
    assert 2 in {shape[0] for shape in report.batches}


def test_another_architecture_of_the_same_weights(save: Save, tmp_path: Path) -> None:
    folder = save("AlbertForPreTraining")
    for head in ("AlbertModel", "AlbertForMaskedLM"):
        report = export_onnx(folder, tmp_path / f"{head}.onnx", architecture=head)
        assert report.architecture == head
        assert_equal_outputs(
            HEADS[head].from_pretrained(folder), open_plainly(tmp_path / f"{head}.onnx"), batch()
        )


def test_an_encoder_without_its_pooler(save: Save, tmp_path: Path) -> None:
    report = export_onnx(save("AlbertForMaskedLM"), tmp_path / "model.onnx", architecture="AlbertModel")
    assert list(report.outputs) == ["last_hidden_state"]


def test_the_config_names_the_class_of_the_weights(save: Save, tmp_path: Path) -> None:
    folder = save("AlbertForTokenClassification")
    assert export_onnx(folder, tmp_path / "1.onnx").architecture == "AlbertForTokenClassification"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["AlbertForPreTraining"]}))
    with pytest.raises(CheckpointError, match=r"lacks .*predictions.*Choose another architecture"):
        export_onnx(folder, tmp_path / "2.onnx", architecture="AlbertForPreTraining")


def test_outputs_of_the_original_code(tmp_path: Path) -> None:
    golden_folder = GOLDEN / "google_tf1_small"
    with np.load(golden_folder / "arrays.npz") as file:
        weights = {key[7:]: torch.from_numpy(file[key]) for key in file if key.startswith("weight:")}
        golden = {key[7:]: file[key] for key in file if key.startswith("golden:")}
    write_bundle(tmp_path / "model.ckpt-best", weights)
    shutil.copy(golden_folder / "albert_config.json", tmp_path)
    report = export_onnx(tmp_path, tmp_path / "model.onnx")
    assert report.architecture == "AlbertForPreTraining"
    assert (
        report.notes[-1]
        == "the source has no vocabulary: the outputs were compared on random ids instead of texts"
    )
    inputs = {
        name: golden[name].astype(np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")
    }
    words, order = open_plainly(tmp_path / "model.onnx").run(["prediction_logits", "sop_logits"], inputs)
    masked = np.take_along_axis(words, golden["masked_lm_positions"][..., None].astype(np.int64), axis=1)
    np.testing.assert_allclose(masked, golden["mlm_logits"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(order, golden["sop_logits"], rtol=0, atol=1e-5)
