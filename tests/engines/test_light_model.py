"""Tests of light models, which need PyTorch only if a caller uses a PyTorch module."""

import copy
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_rows import OUTPUTS, WHOLE_TEXT, assert_equal, rows_of
from modeling_twins import HEADS, make

from albertkit.checkpoints.arrays import place_in_file
from albertkit.engines import light_model, onnx
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import every_token, first_token
from albertkit.engines.light_model import LightModel, class_names
from albertkit.errors import ConfigError
from albertkit.modeling import auto
from albertkit.pipelines import pipeline
from albertkit.tokenization.tokenizer import AlbertTokenizer

MASKED = "AlbertForMaskedLM"
WIDE = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}  # weights over 4 kB


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each head."""
    root = tmp_path_factory.mktemp("models")
    for head in HEADS:
        make(head, **WIDE).save_pretrained(root / head)
    return {head: root / head for head in HEADS}


def full_disk() -> Any:
    raise OSError("No space left on device")


def load(folder: Path, head: str, **options) -> LightModel:
    return LightModel.from_pretrained(folder, head, **options)


class TestAnswers:
    @pytest.mark.parametrize("packed", [True, False])
    @pytest.mark.parametrize("head", HEADS)
    def test_are_those_of_the_module(self, folders, head, packed, monkeypatch):
        if not packed:
            monkeypatch.setattr(onnx, "_MAX_PREPACKED", 0)
        options = {"output": OUTPUTS[head], "read": first_token if head in WHOLE_TEXT else every_token}
        model = auto.model_class(head).from_pretrained(folders[head])
        light = load(folders[head], head)
        assert_equal(model, rows_of([24, 5, 1, 13]), engine=make_engine(light), atol=1e-5, **options)
        assert light.module is None

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_of_weights_in_half_precision(self, folders, tmp_path, dtype):
        half = auto.AlbertForMaskedLM.from_pretrained(folders[MASKED], dtype=dtype)
        half.save_pretrained(tmp_path)
        for wanted in (None, "auto", getattr(torch, dtype)):
            light = load(tmp_path, MASKED, dtype=wanted)
            assert light.dtype == (torch.float32 if wanted is None else getattr(torch, dtype))
            assert_equal(half.float(), rows_of([7]), engine=make_engine(light), atol=1e-5, read=every_token)

    def test_of_weights_in_several_files_and_behind_links(self, folders, tmp_path):
        model = auto.AlbertForMaskedLM.from_pretrained(folders[MASKED])
        model.save_pretrained(tmp_path / "shards", max_shard_size=20_000)
        assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 2
        shutil.copytree(folders[MASKED], tmp_path / "blobs")
        (tmp_path / "snapshot").mkdir()
        for path in (tmp_path / "blobs").iterdir():  # as in the hub's cache
            path.rename(path.with_name(f"{path.name}.blob"))
            (tmp_path / "snapshot" / path.name).symlink_to(f"../blobs/{path.name}.blob")
        for name in ("shards", "snapshot"):
            engine = make_engine(load(tmp_path / name, MASKED))
            assert_equal(model, rows_of([9, 4]), engine=engine, atol=1e-5, read=every_token)

    def test_of_transposed_matrices(self, folders, tmp_path):
        """As `transformers` wrote pytorch_model.bin from a TensorFlow checkpoint."""
        model = auto.AlbertForMaskedLM.from_pretrained(folders[MASKED])
        matrices = {name: one.mT.contiguous().mT for name, one in model.state_dict().items() if one.ndim == 2}
        torch.save(model.state_dict() | matrices, tmp_path / "pytorch_model.bin")
        shutil.copy(folders[MASKED] / "config.json", tmp_path)
        light = load(tmp_path, MASKED)
        assert not light.weights["predictions.dense.weight"].flags.c_contiguous
        assert_equal(model, rows_of([9, 4]), engine=make_engine(light), atol=1e-5, read=every_token)
        light.save_pretrained(tmp_path / "saved")
        assert_equal(model, rows_of([9]), engine=make_engine(load(tmp_path / "saved", MASKED)), atol=1e-5)


class TestWeights:
    def test_are_left_in_the_file(self, folders, monkeypatch):
        light = load(folders[MASKED], MASKED)
        given = {}
        monkeypatch.setattr(
            onnx,
            "_leave_in_file",
            lambda graph, external, options: given.update(external) or leave(graph, external, options),
        )
        make_engine(light).run(rows_of([3]))
        assert len(given) > 6
        content = (folders[MASKED] / "model.safetensors").read_bytes()
        for name, array in given.items():
            path, offset = place_in_file(array)
            assert path == folders[MASKED] / "model.safetensors"
            assert content[offset : offset + array.nbytes] == array.tobytes(), name

    @pytest.mark.parametrize("room", ["on disk", "in memory"])
    @pytest.mark.parametrize("name", ["auto", "onnx-int8", "torch"])
    def test_that_are_owned_do_not_depend_on_their_file(self, folders, tmp_path, name, room, monkeypatch):
        shutil.copytree(folders[MASKED], tmp_path / "model")
        rows = rows_of([3, 9])
        expected = make_engine(load(folders[MASKED], MASKED), name).run(rows)
        if room == "in memory":
            monkeypatch.setattr(light_model, "TemporaryFile", full_disk)
        light = load(tmp_path / "model", MASKED)
        light.own_weights()
        with (tmp_path / "model" / "model.safetensors").open("r+b") as file:  # no other file: the mapped one
            file.truncate(9)
        for count in range(2):
            answers = make_engine(light, name).run(rows)  # from a session of its own
            for found, one in zip(answers, expected, strict=True):
                np.testing.assert_allclose(found, one, rtol=1e-5, atol=1e-6, err_msg=f"run {count}")
            light.release_memory()
        again = pickle.loads(pickle.dumps(light))
        for key, array in light.weights.items():
            np.testing.assert_array_equal(again.weights[key], array)
        word, decoder = "albert.embeddings.word_embeddings.weight", "predictions.decoder.weight"
        assert decoder not in light.weights or light.weights[word] is light.weights[decoder]

    def test_a_head_that_is_made_later_has_the_weights_that_were_loaded(self, folders, tmp_path):
        head = "AlbertForPreTraining"
        shutil.copytree(folders[head], tmp_path / "model")
        engine, rows = make_engine(load(tmp_path / "model", head)), rows_of([9])
        engine.run(rows)
        other = auto.AlbertForPreTraining.from_pretrained(folders[head])
        with torch.no_grad():
            other.albert.pooler.weight.neg_()
        other.save_pretrained(tmp_path / "model")
        expected = make_engine(load(folders[head], head)).run(rows, output="order")
        np.testing.assert_array_equal(engine.run(rows, output="order"), expected)

    @pytest.mark.parametrize("change", ["deleted", "replaced"])
    def test_a_changed_file_does_not_change_the_weights(self, folders, tmp_path, change):
        """The engine creates its session for the first rows."""
        shutil.copytree(folders[MASKED], tmp_path / "model")
        light = load(tmp_path / "model", MASKED)
        file = tmp_path / "model" / "model.safetensors"
        content = file.read_bytes()
        file.unlink()
        if change == "replaced":
            file.write_bytes(content[:-4000] + bytes(4000))
        (found,) = make_engine(light).run(rows_of([9]), read=every_token)
        (expected,) = make_engine(load(folders[MASKED], MASKED)).run(rows_of([9]), read=every_token)
        np.testing.assert_array_equal(found, expected)

    def test_facts(self, folders):
        light = load(folders[MASKED], MASKED)
        model = auto.AlbertForMaskedLM.from_pretrained(folders[MASKED])
        assert light.num_parameters() == model.num_parameters()
        assert light.get_memory_footprint() == model.get_memory_footprint()
        assert light.device == torch.device("cpu")
        assert light.name_or_path == str(folders[MASKED])
        assert class_names(light) == {MASKED, "AlbertPreTrainedModel"}
        assert repr(light) == f"LightModel({MASKED}, {model.num_parameters():,} parameters)"
        assert light.module is None

    def test_saves_the_files_of_a_module(self, folders, tmp_path):
        load(folders[MASKED], MASKED).save_pretrained(tmp_path)
        for name in ("model.safetensors", "config.json"):
            assert (tmp_path / name).read_bytes() == (folders[MASKED] / name).read_bytes()

    def test_unknown_types_and_misfits(self, folders):
        with pytest.raises(ConfigError, match=r"dtype is 'float8'\. Expected one of auto, float32"):
            load(folders[MASKED], MASKED, dtype="float8")
        assert "classifier.weight" in load(folders[MASKED], "AlbertForTokenClassification").report.missing


leave = onnx._leave_in_file


class TestBecomingAModule:
    @pytest.fixture
    def fill(self, folders, tiny_vocabulary):
        model = make(MASKED, vocab_size=500, **WIDE)
        tokenizer = AlbertTokenizer(tiny_vocabulary)
        folder = folders[MASKED].with_name("filling")
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return pipeline("fill-mask", folder, device="cpu")

    def test_its_answers_stay(self, fill):
        before = fill("the [MASK]")
        assert isinstance(fill.model, LightModel)
        assert next(fill.model.parameters()).requires_grad
        assert isinstance(fill.model, auto.AlbertForMaskedLM)
        assert not fill.model.training
        after = fill("the [MASK]")
        assert [one["token"] for one in after] == [one["token"] for one in before]
        np.testing.assert_allclose(
            [one["score"] for one in after], [one["score"] for one in before], atol=1e-5
        )

    def test_hooks_and_changed_weights_count(self, fill):
        before = fill("the [MASK]")
        hook = fill.model.predictions.register_forward_hook(lambda *given: -given[-1])
        assert fill("the [MASK]")[0]["token"] != before[0]["token"]
        hook.remove()
        assert fill("the [MASK]")[0]["token"] == before[0]["token"]
        with torch.no_grad():
            fill.model.predictions.bias[7] += 100
        assert fill("the [MASK]")[0]["token"] == 7

    def test_called_as_a_model(self, fill):
        inputs = fill.tokenizer("the [MASK]", return_tensors="pt")
        assert fill.model(**inputs).logits.shape == (1, len(inputs["input_ids"][0]), 500)

    @pytest.mark.parametrize("engine", ["torch", "plain"])
    def test_at_once_where_the_engine_is_torch(self, fill, engine):
        asked = pipeline("fill-mask", fill.model.name_or_path, engine=engine)
        assert isinstance(asked.model, auto.AlbertForMaskedLM)
        assert asked("the [MASK]")[0]["token"] == fill("the [MASK]")[0]["token"]

    def test_at_once_with_a_function_as_activation(self, fill):
        folder = fill.model.name_or_path
        config = fill.model.config.replace(hidden_act=torch.tanh)
        expected = auto.AlbertForMaskedLM.from_pretrained(folder, config=config)
        row = fill.tokenizer("the [MASK]", return_tensors="pt")
        position = row["input_ids"][0].tolist().index(fill.tokenizer.mask_token_id)
        with torch.no_grad():
            scores = expected(**row).logits[0, position].softmax(-1)
        best = pipeline("fill-mask", folder, config=config, device="cpu")("the [MASK]", top_k=1)[0]
        assert best["score"] == pytest.approx(scores[best["token"]].item(), abs=1e-5)

    def test_special_methods_are_no_reason(self, fill):
        with pytest.raises(AttributeError):
            _ = fill.model.__len__
        assert not hasattr(fill.model, "_repr_html_")  # a notebook asks for it
        assert isinstance(copy.deepcopy(fill.model), LightModel)
        assert fill.model.module is None
