"""ONNX files: every head against torch, inputs left out, what is stored, the report, the verb, errors."""

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
from command_line import assert_one_line_error
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from modeling_twins import HEADS, batch, make
from places import GOLDEN
from torch_files import write_bundle, write_folder
from torchless import run_without_torch

import albertkit
from albertkit import __version__, reference
from albertkit.checkpoints.arrays import to_arrays
from albertkit.checkpoints.folder import WEIGHTS_FILE
from albertkit.config import AlbertConfig
from albertkit.config_fields import ACTIVATION_NAMES
from albertkit.early_exit import Exits
from albertkit.errors import CheckpointError, ConfigError, DataError
from albertkit.export.check import compare, open_session
from albertkit.export.onnx import export_onnx
from albertkit.files import file_sha256
from albertkit.modeling import auto
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.pipelines import pipeline
from albertkit.tokenization.auto import AutoTokenizer
from albertkit.tokenization.tokenizer import AlbertTokenizer

TOLERANCE = 1e-4
FLOAT16 = onnx.TensorProto.FLOAT16

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Save a random model without a tokenizer."""

    def saved(head: str, name: str = "model", **values: Any) -> Path:
        make(head, **values).save_pretrained(tmp_path / name)
        return tmp_path / name

    return saved


@pytest.fixture(scope="module")
def labeled(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a classifier with a tokenizer and names of labels."""
    folder = tmp_path_factory.mktemp("labeled")
    labels = {0: "bad", 1: "so-so", 2: "très bien"}
    make("AlbertForSequenceClassification", vocab_size=500, id2label=labels).save_pretrained(folder)
    AlbertTokenizer(tiny_vocabulary, model_max_length=24).save_pretrained(folder)
    return folder


def open_plainly(file: Path) -> Any:
    """With nothing but onnxruntime."""
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


# --- what is computed ---------------------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS)
def test_every_head_at_any_batch_and_length(head: str, save: Save, tmp_path: Path) -> None:
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
        "pruned_heads": {0: [0]} if heads > 1 and data.draw(st.booleans()) else {},
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


def test_rows_without_any_token_see_all_as_in_torch(save: Save, tmp_path: Path) -> None:
    export_onnx(save("AlbertModel"), tmp_path / "model.onnx")
    inputs = batch()
    inputs["attention_mask"] = torch.zeros_like(inputs["input_ids"])
    assert_equal_outputs(make("AlbertModel"), open_plainly(tmp_path / "model.onnx"), inputs)


def test_an_input_may_be_none_or_left_out_and_is_listed(save: Save, tmp_path: Path) -> None:
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
        None,
        {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)},
    )[0]
    assert (left_out == given_none).all()
    assert (left_out == in_full).all()


def test_all_inputs_for_runtimes_without_optional_ones(save: Save, tmp_path: Path) -> None:
    report = export_onnx(save("AlbertModel"), tmp_path / "model.onnx", all_inputs=True)
    assert not [kind for kind in report.inputs.values() if "left out" in kind]
    inputs = batch(mask=True, segments=True)
    assert_equal_outputs(make("AlbertModel"), open_plainly(tmp_path / "model.onnx"), inputs)
    model = onnx.load(tmp_path / "model.onnx")
    assert not {"If", "OptionalHasElement"} & {node.op_type for node in model.graph.node}
    with pytest.raises(ValueError, match="token_type_ids"):
        open_session(tmp_path / "model.onnx").run(None, {"input_ids": inputs["input_ids"].numpy()})


def test_a_text_that_is_too_long_is_an_error(save: Save, tmp_path: Path) -> None:
    export_onnx(save("AlbertModel"), tmp_path / "model.onnx")
    with pytest.raises(Exception, match="broadcast"):
        open_plainly(tmp_path / "model.onnx").run(None, {"input_ids": np.ones((1, 25), np.int64)})


# --- what is stored -----------------------------------------------------------------------------


@pytest.mark.parametrize(("opset", "version"), [(17, 8), (20, 9), (23, 11)])
def test_standard_operators_of_the_opset_asked_for(
    opset: int, version: int, save: Save, tmp_path: Path
) -> None:
    report = export_onnx(save("AlbertForMaskedLM"), tmp_path / "model.onnx", opset=opset)
    model = onnx.load(tmp_path / "model.onnx")
    assert [(one.domain, one.version) for one in model.opset_import] == [("", opset)]
    assert (report.opset, report.ir_version, model.ir_version) == (opset, version, version)
    assert {node.domain for node in model.graph.node} == {""}
    assert ("Gelu" in {node.op_type for node in model.graph.node}) == (opset >= 20)


def test_shared_weights_are_stored_once_whatever_the_depth(save: Save, tmp_path: Path) -> None:
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
    assert report.dtype == "float16"  # as in the source; computed in float32
    assert report.largest_difference <= TOLERANCE
    assert AlbertConfig.from_pretrained(tmp_path / "out").architectures == ["AlbertForPreTraining"]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    inputs = tokenizer(["The captain of the [MASK] looked at the sea."], return_tensors="pt")
    model = auto.AlbertForPreTraining.from_pretrained("bundled")
    assert_equal_outputs(model, open_plainly(tmp_path / "out" / "model.onnx"), dict(inputs))


def test_into_the_folder_of_the_model_itself(save: Save) -> None:
    folder = save("AlbertModel")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    export_onnx(folder, folder)
    assert {path.name for path in folder.iterdir()} == {*before, "model.onnx"}
    assert all((folder / name).read_bytes() == content for name, content in before.items())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_in_half_the_bytes(dtype: str, save: Save, tmp_path: Path) -> None:
    report = export_onnx(save("AlbertForPreTraining"), tmp_path / "model.onnx", dtype=dtype)
    assert report.largest_difference <= TOLERANCE  # from the reference with the same rounded weights
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


# --- which model --------------------------------------------------------------------------------


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


def test_the_config_decides_where_weights_fit_several_classes(save: Save, tmp_path: Path) -> None:
    folder = save("AlbertForTokenClassification")
    assert export_onnx(folder, tmp_path / "1.onnx").architecture == "AlbertForTokenClassification"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["AlbertForPreTraining"]}))
    with pytest.raises(CheckpointError, match=r"lacks .*predictions.*Choose another architecture"):
        export_onnx(folder, tmp_path / "2.onnx", architecture="AlbertForPreTraining")


def test_a_folder_claims_no_exit_classifiers(labeled: Path, tmp_path: Path) -> None:
    """The graph lacks them, so a model that is loaded from the folder must not expect them."""
    config = AlbertConfig.from_pretrained(labeled)
    Exits().note(config)
    with pytest.warns(UserWarning, match="newly initialized"):
        auto.AlbertForSequenceClassification.from_pretrained(labeled, config=config).save_pretrained(
            tmp_path / "exits"
        )
    AutoTokenizer.from_pretrained(labeled).save_pretrained(tmp_path / "exits")
    report = export_onnx(tmp_path / "exits", tmp_path / "out")
    assert "left out: the classifiers of the first 2 layers. The file computes all layers" in report.notes
    assert "early_exit" not in json.loads(report.metadata["config"])
    assert pipeline("text-classification", tmp_path / "out")("yes") == pipeline(
        "text-classification", tmp_path / "exits"
    )("yes")
    with pytest.raises(ConfigError, match="no classifiers to exit at"):
        auto.AlbertForSequenceClassification.from_pretrained(tmp_path / "out").set_patience(1)


# --- the check ----------------------------------------------------------------------------------


def test_a_wrong_graph_leaves_no_file(labeled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from albertkit.onnx import padded

    monkeypatch.setattr(padded, "UNSEEN", 0.0)  # the padding is seen
    with pytest.raises(CheckpointError, match=r"output logits differs .* Nothing was written"):
        export_onnx(labeled, tmp_path / "out" / "model.onnx")
    assert not (tmp_path / "out").exists()


def test_rounding_of_the_reference_is_told_from_a_difference(
    labeled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_onnx(labeled, tmp_path / "model.onnx")
    network = auto.AlbertForSequenceClassification.from_pretrained(labeled)
    model = ("AlbertForSequenceClassification", network.config, to_arrays(network.state_dict()))
    noise = {np.float32: 1e-3, np.float64: 0.0}
    forward = reference.forward

    def noisy(*inputs: Any, dtype: type, **options: Any) -> dict[str, Any]:
        return {name: one + noise[dtype] for name, one in forward(*inputs, dtype=dtype, **options).items()}

    monkeypatch.setattr(reference, "forward", noisy)
    options: dict[str, Any] = {"optional_inputs": True, "tolerance": TOLERANCE, "relative": False}
    tokenizer = AutoTokenizer.from_pretrained(labeled)
    largest, _ = compare(tmp_path / "model.onnx", model, tokenizer, ["the river"], **options)
    assert 0 < largest <= TOLERANCE
    noise[np.float64] = 1e-3
    with pytest.raises(CheckpointError, match=r"by 1.0e-03"):
        compare(tmp_path / "model.onnx", model, tokenizer, ["the river"], **options)


def test_numbers_that_are_none_fail_the_check(save: Save, tmp_path: Path) -> None:
    model = make("AlbertModel")
    with torch.no_grad():
        model.pooler.bias[0] = torch.nan
    model.save_pretrained(tmp_path / "nan")
    with pytest.raises(CheckpointError, match=r"pooler_output.* nan"):
        export_onnx(tmp_path / "nan", tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_batches_differ_in_shape_and_inputs(labeled: Path, tmp_path: Path) -> None:
    report = export_onnx(labeled, tmp_path / "model.onnx", texts=["a key", "the river", "an empty house"])
    assert [shape[0] for shape in report.batches] == [1, 3, 3, 1]
    assert len({shape[1] for shape in report.batches}) == 4
    assert report.batches[-1][1] == 24


# --- errors and the verb ------------------------------------------------------------------------


def test_arguments_that_cannot_be(save: Save, tmp_path: Path) -> None:
    folder, target = save("AlbertModel"), tmp_path / "model.onnx"
    for wrong, message in (
        ({"opset": 16}, "opset is 16. Expected 17 to"),
        ({"architecture": "AlbertForMaskedML"}, "Did you mean 'AlbertForMaskedLM'"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"compute": "bfloat16"}, "compute is 'bfloat16'"),
    ):
        with pytest.raises(ConfigError, match=message):
            export_onnx(folder, target, **wrong)
    with pytest.raises(DataError, match="no texts"):
        export_onnx(folder, target, texts=[])


def test_nothing_is_replaced(save: Save, tmp_path: Path) -> None:
    folder = save("AlbertModel")
    (tmp_path / "model.onnx").write_text("mine")
    with pytest.raises(DataError, match=r"model.onnx exists. Choose another name"):
        export_onnx(folder, tmp_path / "model.onnx")
    other = save("AlbertModel", "other")
    with pytest.raises(DataError, match=r"holds config.json, model.safetensors"):
        export_onnx(folder, other)
    assert (tmp_path / "model.onnx").read_text() == "mine"


@pytest.mark.parametrize("name", ["a.txt", "a.safetensors", "a.onx", "a.ONNX"])
def test_a_target_named_like_another_file_is_refused(name: str, save: Save, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"{name} ends in .*. Expected a file named .onnx.* a.onnx\.$"):
        export_onnx(save("AlbertModel"), tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_folder_may_have_a_dot_in_its_name(save: Save, tmp_path: Path) -> None:
    export_onnx(save("AlbertModel"), tmp_path / "albert-v2.1")
    assert (tmp_path / "albert-v2.1/model.onnx").is_file()


def test_a_damaged_source(save: Save, tmp_path: Path) -> None:
    folder = save("AlbertModel")
    weights = folder / WEIGHTS_FILE
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="damaged or incomplete"):
        export_onnx(folder, tmp_path / "model.onnx")


def test_what_is_left_out_is_noted_and_double_precision_refused(tmp_path: Path) -> None:
    model = make("AlbertForMaskedLM")
    weights = {name: one for name, one in model.state_dict().items() if "decoder" not in name}
    foreign = {"albert.something": torch.ones(2), "predictions.decoder.bias": torch.ones(60)}
    write_folder(tmp_path / "1", model.config.to_dict(), weights | foreign)
    report = export_onnx(tmp_path / "1", tmp_path / "1.onnx")
    assert report.notes[:2] == [
        "unexpected, left out: albert.something",
        "left out: predictions.decoder.bias differs from predictions.bias",
    ]
    write_folder(
        tmp_path / "2", model.config.to_dict(), {name: one.double() for name, one in weights.items()}
    )
    with pytest.raises(CheckpointError, match=r"is in float64. Choose the dtype 'float32'"):
        export_onnx(tmp_path / "2", tmp_path / "2.onnx")
    assert export_onnx(tmp_path / "2", tmp_path / "2.onnx", dtype="float32").dtype == "float32"


def test_a_model_too_large_for_one_file(save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("albertkit.export.writing._MOST_BYTES", 1_000)
    with pytest.raises(CheckpointError, match="Choose the dtype 'float16'"):
        export_onnx(save("AlbertModel"), tmp_path / "model.onnx")


def test_the_verb(run, labeled: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("the river\nan empty house\n")
    result = run("export", "onnx", labeled, tmp_path / "a.onnx", "--texts", tmp_path / "texts.txt", "--json")
    assert result.status == 0, result.errors
    (report,) = result.json
    assert report["size_ratio"] == report["file_bytes"] / report["weight_bytes"]
    assert report["checksums"] == {str(tmp_path / "a.onnx"): file_sha256(tmp_path / "a.onnx")}
    result = run("export", "onnx", labeled, tmp_path / "b.onnx", "--all-inputs", "--opset", 17)
    assert result.status == 0, result.errors
    for part in (
        "opset 17",
        "in   token_type_ids  int64 (batch, sequence)\n",
        "differs from the reference by at most",
    ):
        assert part in result.output
    result = run("export", "onnx", labeled, tmp_path / "a.onnx")
    assert_one_line_error(result, "a.onnx exists. Choose another name")


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


# --- without torch ------------------------------------------------------------------------------

EXPORTS: list[dict[str, Any]] = [
    {},
    {"dtype": "bfloat16", "all_inputs": True},
    {"compute": "float16", "architecture": "AlbertModel"},
    {"int8": True, "calibrate": "texts.txt", "max_drop": 100},
    {"int8": True, "calibrate": "labels.csv", "max_drop": 100},
]
EXPORT = """
import json
from albertkit.export.onnx import export_onnx

for number, options in enumerate(json.loads(sys.argv[1])):
    print(json.dumps(export_onnx("source", str(number), **options).to_json()))
"""


def test_without_torch_reports_and_files_are_the_same(
    labeled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    light, full = tmp_path / "light", tmp_path / "full"
    for folder in (light, full):
        shutil.copytree(labeled, folder / "source")
        (folder / "texts.txt").write_text("the river\nan empty house\n")
        (folder / "labels.csv").write_text("text,label\nthe river,bad\nan empty house,so-so\n")
    output = run_without_torch(EXPORT, json.dumps(EXPORTS), cwd=light)
    monkeypatch.chdir(full)
    for number, (options, line) in enumerate(zip(EXPORTS, output.splitlines(), strict=True)):
        report = export_onnx("source", str(number), **options)
        assert json.loads(line) == json.loads(json.dumps(report.to_json()))
        assert (light / f"{number}/model.onnx").read_bytes() == (full / f"{number}/model.onnx").read_bytes()
    assert report.loss is not None
    assert (report.loss.metric, report.loss.examples) == ("accuracy", 2)  # of the last one
