"""Tests of the commands fill-mask, embed and inspect: their output, inputs and errors."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import assert_one_line_error
from modeling_twins import HEADS, make
from random_models import save_random_model
from torchless import run_without_torch

from albertkit.config import AlbertConfig
from albertkit.footprint import measure
from albertkit.modeling.heads import AlbertForMaskedLM, AlbertForPreTraining
from albertkit.modeling.model import AlbertModel
from albertkit.pipelines import pipeline
from albertkit.tokenization.tokenizer import AlbertTokenizer


@pytest.fixture(scope="module")
def model(tokenizer: AlbertTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a random model."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return save_random_model(AlbertForPreTraining, tokenizer, folder, max_position_embeddings=24)


class TestFillMask:
    def test_json_lines_are_the_answers_of_the_pipeline(self, run, model):
        texts = ["the [MASK] in the morning", "[MASK] word [MASK]"]
        result = run("fill-mask", *texts, "--model", model, "--top-k", 3, "--json", "--device", "cpu")
        assert result.status == 0
        answers = pipeline("fill-mask", model, device="cpu")(texts, top_k=3)
        assert [line["text"] for line in result.json] == texts
        for line, answer in zip(result.json, answers, strict=True):
            assert line["predictions"] == answer

    def test_table_shows_words_and_bars(self, run, model):
        result = run("fill-mask", "the [MASK]", "--model", model, "--top-k", "4")
        words = pipeline("fill-mask", model)("the [MASK]", top_k=4)
        lines = result.output.splitlines()
        assert lines[0] == "the [MASK]"
        assert [line.split()[0] for line in lines[1:5]] == [word["token_str"] for word in words]
        assert lines[1].count("█") == 30  # the best word has the whole width
        assert lines[4].count("█") <= 30 * words[3]["score"] / words[0]["score"] + 1
        assert f"{100 * words[0]['score']:.3g}%" in lines[1]

    def test_tokens_of_the_same_text_have_different_names(self, run, model):
        answers = pipeline("fill-mask", model)("the [MASK]", top_k=400)
        assert len({answer["token_str"] for answer in answers}) < 400
        _, *lines = run("fill-mask", "the [MASK]", "--model", model, "--top-k", "400").output.splitlines()
        assert len({line.split()[0] for line in lines if line}) == 400

    def test_output_of_several_masks_and_windows(self, run, model):
        result = run("fill-mask", "[MASK] " + "word " * 50 + "[MASK]", "--model", model, "--top-k", "1")
        assert "mask 1" in result.output
        assert "mask 2" in result.output
        assert "read: characters 0 to " in result.output

    def test_the_mark_of_a_word_is_shown(self, run, model):
        """As text it would be an empty row."""
        result = run("fill-mask", "the [MASK]", "--model", model, "--targets", "\u2581,word")
        names = {line.split()[0] for line in result.output.splitlines()[1:] if line}
        assert names == {"\u2581", "word"}

    def test_targets(self, run, model):
        result = run("fill-mask", "the [MASK]", "--model", model, "--targets", "word, harbour,", "--json")
        assert {word["token_str"] for word in result.json[0]["predictions"]} == {"word", "harbour"}
        assert_one_line_error(
            run("fill-mask", "the [MASK]", "--model", model, "--targets", "photosynthesis"),
            "'photosynthesis' is not a single piece",
        )
        assert_one_line_error(
            run("fill-mask", "the [MASK]", "--model", model, "--targets", ""), "targets is empty"
        )

    def test_file_and_pipe(self, run, model, tmp_path):
        lines = "\ufeffthe [MASK]\r\n\n  café [MASK]  \n"
        file = tmp_path / "texts.txt"
        file.write_text(lines, encoding="utf-8", newline="")
        from_file = run("fill-mask", "--file", file, "--model", model, "--json")
        assert [line["text"] for line in from_file.json] == ["the [MASK]", "café [MASK]"]
        assert run("fill-mask", "--model", model, "--json", stdin=lines.encode()).json == from_file.json

    def test_inputs_that_cannot_be_read(self, run, model, tmp_path):
        file = tmp_path / "latin1.txt"
        file.write_bytes("a [MASK]\ncaf\u00e9 [MASK]\n".encode("latin-1"))
        (tmp_path / "empty.txt").write_text("\n\n")
        call = ("fill-mask", "--model", model)
        assert_one_line_error(run(*call), "there is no text", "--file")
        assert_one_line_error(run(*call, stdin=b""), "standard input has no text")
        assert_one_line_error(
            run(*call, stdin=b"a [MASK]\n\nno mask\n"), "standard input, line 3: ", "[MASK]"
        )
        order = ("order", "--model", model, "--format", "tsv")
        assert_one_line_error(run(*order, stdin=b"a\tb\n\nalone\n"), "standard input, line 3: ")
        assert_one_line_error(run(*call, "--file", tmp_path / "empty.txt"), "has no text", "empty.txt")
        assert_one_line_error(run(*call, "--file", tmp_path / "none.txt"), "none.txt")
        assert_one_line_error(run(*call, "--file", file), "latin1.txt, line 2: not UTF-8")
        assert_one_line_error(
            run(*call, stdin=b"a [MASK]\rb [MASK]\r"), "standard input: the lines end in CR"
        )
        assert_one_line_error(run(*call, "a [MASK]", "--file", file), "passed twice")

    def test_errors_have_one_line(self, run, model, tmp_path):
        call = ("fill-mask", "--model", model)
        assert_one_line_error(run(*call, "no mask"), "text 1: there is no [MASK] in the text")
        assert_one_line_error(
            run(*call, "no", "[MASK]", "none"), "2 of 3 inputs cannot be answered: texts 1, 3. The first"
        )
        assert_one_line_error(run("fill-mask", "[MASK]", "--model", model, "--device", "gpu"), "device 'gpu'")
        assert_one_line_error(run("fill-mask", "[MASK]", "--model", model, "--top-k", "0"), "top_k is 0")
        nowhere = tmp_path / "none" / "vectors.npy"
        assert_one_line_error(run("embed", "a", "--model", model, "--output", nowhere), "there is no folder")
        text = tmp_path / "vectors.txt"
        assert_one_line_error(
            run("embed", "a", "--model", model, "--output", text), "xpected a name that ends in .npy"
        )
        assert not text.exists()
        assert_one_line_error(run("fill-mask", "[MASK]", "--model", model.parent), "sub-folders", "tiny")
        assert_one_line_error(run("fill-mask", "[MASK]", "--model", tmp_path / "none"), "no folder")
        assert_one_line_error(run("fill-mask", "[MASK]", "--model", "albert-bse-v2"), "albert-base-v2")
        # the suite is offline (tests/conftest.py)
        assert_one_line_error(
            run("fill-mask", "[MASK]", "--model", "nobody/nothing"), "nobody/nothing", "HF_HUB_OFFLINE"
        )


class TestEmbed:
    TEXTS = ("the harbour", "a word before dinner", "the harbour")

    def test_json_and_npy_are_the_vectors_of_the_pipeline(self, run, model, tmp_path):
        output = tmp_path / "vectors.npy"
        result = run("embed", *self.TEXTS, "--model", model, "--json", "--output", output)
        expected = pipeline("feature-extraction", model)(list(self.TEXTS), pooling="mean")
        assert [line["text"] for line in result.json] == list(self.TEXTS)
        np.testing.assert_allclose([line["embedding"] for line in result.json], expected, atol=1e-6)
        vectors = np.load(output)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
        assert [file.name for file in tmp_path.iterdir()] == ["vectors.npy"]

    def test_blank_lines_that_shift_the_rows_are_counted(self, run, model, tmp_path):
        call = ("embed", "--model", model, "--json", "--output")
        result = run(*call, tmp_path / "a.npy", stdin=b"the harbour\n\n \na word\n")
        assert "blank lines skipped: 2. " in result.errors
        assert run(*call, tmp_path / "b.npy", stdin=b"the harbour\na word\n\n").errors == ""
        assert np.array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))

    def test_pooling(self, run, model):
        (line,) = run("embed", "the harbour", "--model", model, "--pooling", "cls", "--json").json
        expected = pipeline("feature-extraction", model)("the harbour")[0][0]
        np.testing.assert_allclose(line["embedding"], expected, atol=1e-6)

    def test_table_of_similarities(self, run, model):
        result = run("embed", *self.TEXTS, "--model", model)
        rows = [line.split() for line in result.output.splitlines() if line[:1].isdigit()]
        first, second, _ = np.array(pipeline("feature-extraction", model)(list(self.TEXTS), pooling="mean"))
        cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
        assert rows[0] == ["3", "vectors", "of", "32", "dimensions"]
        assert rows[1][-3:] == ["1.00", f"{cosine:.2f}", "1.00"]

    def test_an_empty_text_has_a_vector(self, run):
        """The bundled model for sentences is used, in which the vectors of [CLS] and [SEP] are short."""
        result = run("embed", "", "a quiet night")
        warning = "a text is empty, so its vector is computed from special tokens alone"
        assert result.errors == f"warning: {warning}\n"
        assert result.output.startswith("2 vectors of 384 dimensions")
        rows = [line.split()[-2:] for line in result.output.splitlines()[-2:]]
        assert rows[0][0] == rows[1][1] == "1.00"
        assert rows[0][1] == rows[1][0]
        assert abs(float(rows[0][1])) < 0.2

    def test_a_vector_of_zeros_is_similar_to_nothing(self, run, model, tmp_path):
        zeros = AlbertModel.from_pretrained(model)
        layer = zeros.encoder.albert_layer_groups[0].albert_layers[0]
        with torch.no_grad():
            layer.full_layer_layer_norm.weight.zero_()
            layer.full_layer_layer_norm.bias.zero_()
        zeros.save_pretrained(tmp_path)
        AlbertTokenizer.from_pretrained(model).save_pretrained(tmp_path)
        result = run("embed", "the harbour", "the sea", "--model", tmp_path)
        assert result.errors == ""
        assert [line.split()[-2:] for line in result.output.splitlines()[-2:]] == [["0.00", "0.00"]] * 2

    def test_one_text(self, run, model):
        result = run("embed", "the harbour", "--model", model)
        vector = pipeline("feature-extraction", model)("the harbour", pooling="mean")
        assert result.output.startswith(f"32 dimensions, norm {np.linalg.norm(vector):.2f}")
        assert f"{vector[0]:+.3f}" in result.output

    def test_long_text(self, run, model):
        long = "word " * 50
        assert_one_line_error(
            run("embed", long, "--model", model), "52 tokens", "maximum is 24", "--truncation"
        )
        cut = run("embed", long, long[:15], long + long, "--model", model, "--truncation", "--json")
        assert cut.status == 0
        assert "2 of 3 texts exceed the maximum length of 24 tokens: 106 tokens were" in cut.errors
        assert "at most 78 in one text" in cut.errors
        assert run("embed", long[:15], "--model", model, "--truncation", "--json").errors == ""

    def test_long_text_for_a_model_trained_with_less(self, run, model, tmp_path):
        short = tmp_path / "short"
        shutil.copytree(model, short)
        config = json.loads((short / "config.json").read_text())
        (short / "config.json").write_text(json.dumps(config | {"task_settings": {"max_length": 16}}))
        cut = run("embed", "word " * 50, "--model", short, "--truncation", "--json")
        assert "1 of 1 texts exceed the maximum length of 16 tokens: 36 tokens were" in cut.errors


class TestInspect:
    @pytest.mark.parametrize(
        ("name", "encoder", "layers", "mflop"),
        [("base-v2", 11.68, 12, 169.9), ("large", 17.68, 24, 604.0), ("xxlarge-v1", 222.6, 12, 4831.8)],
    )
    def test_published_shapes(self, run, name, encoder, layers, mflop):
        (report,) = run("inspect", name, "--json").json
        parameters = report["parameters"]
        heads = ("masked-word head", "sentence-order head")
        assert (
            parameters["total"]["distinct"] - sum(parameters[head]["distinct"] for head in heads)
        ) / 1e6 == (pytest.approx(encoder, rel=1e-3))
        assert parameters["layers"]["executed"] == layers * parameters["layers"]["distinct"]
        # 2 * (4 H^2 + 2 H I) for each layer, attention 4 T H; the mapping E -> H comes on top
        hidden = report["shape"]["hidden_size"]
        flops = report["flops"]
        assert (flops["per_token"] - 2 * 128 * hidden) / 1e6 == pytest.approx(mflop, rel=1e-3)
        assert flops["per_token_at_512"] - flops["per_token_at_128"] == 4 * (512 - 128) * hidden * layers
        assert report["memory"]["weights_fp32"] == 4 * parameters["total"]["distinct"]

    @pytest.mark.parametrize(("positions", "lengths"), [(512, [128, 512]), (511, [128]), (64, [64])])
    def test_operations_at_lengths_that_the_model_has(self, run, tmp_path, positions, lengths):
        make("AlbertForMaskedLM", max_position_embeddings=positions).save_pretrained(tmp_path)
        (report,) = run("inspect", tmp_path, "--json").json
        counted = [f"per_token_at_{length}" for length in lengths]
        assert list(report["flops"]) == ["per_token", *counted, "per_masked_word"]
        shown = run("inspect", tmp_path).output
        assert [int(length) for length in re.findall(r" at (\d+) tokens", shown)] == lengths

    def test_a_folder(self, run, model):
        (report,) = run("inspect", model, "--json").json
        stored = AlbertForPreTraining.from_pretrained(model)
        assert report["class"] == "AlbertForPreTraining"
        assert report["parameters"]["total"]["distinct"] == sum(one.numel() for one in stored.parameters())
        assert report["weights"]["dtype"] == "float32"
        assert report["weights"]["bytes"] == report["memory"]["weights_fp32"]
        assert report["tokenizer"]["pieces"] == 500
        assert report["tokenizer"]["special_tokens"]["[MASK]"] == 4

    def test_half_precision_without_tokenizer(self, run, model, tmp_path):
        AlbertForMaskedLM.from_pretrained(model, dtype="float16").save_pretrained(tmp_path)
        (report,) = run("inspect", tmp_path, "--json").json
        assert report["class"] == "AlbertForMaskedLM"
        assert report["weights"]["dtype"] == "float16"
        assert report["weights"]["bytes"] == report["memory"]["weights_fp16"]
        assert report["tokenizer"] is None
        assert "pooler" not in report["parameters"]

    def test_for_people(self, run, model):
        output = run("inspect", "base-v2").output
        assert "12 executed, 1 stored, 12 heads" in output
        assert "7,087,872" in output
        assert "85,054,464" in output
        assert "500 pieces, lower case, accents removed" in run("inspect", model).output

    def test_without_torch(self, run, model):
        verb = "from albertkit.cli.main import run; run()"
        for one in ("xxlarge-v1", model):
            printed = run_without_torch(verb, "inspect", one, "--json")
            assert [json.loads(printed)] == run("inspect", one, "--json").json

    def test_errors(self, run, model):
        assert_one_line_error(run("inspect", model.parent), "tiny")
        assert_one_line_error(run("inspect", "base-v3"), "base-v3")


class TestFootprint:
    def config(self, **changes) -> AlbertConfig:
        values = {"vocab_size": 60, "embedding_size": 8, "hidden_size": 32, "num_attention_heads": 4}
        return AlbertConfig(**{**values, "intermediate_size": 96, "num_hidden_layers": 4, **changes})

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"intermediate_size": 40, "hidden_size": 64},
            {"num_hidden_groups": 2, "inner_group_num": 2},
        ],
    )
    def test_training_floats_are_those_torch_keeps(self, changes):
        tokens = 16
        kept = {}
        model = AlbertModel(self.config(**changes)).train()
        weights = {one.untyped_storage().data_ptr() for one in model.parameters()}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                kept[storage.data_ptr()] = (storage.nbytes() // 4, tensor)
            return tensor

        embedded = torch.randn(1, tokens, 8, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model.encoder(embedded)
        outside = tokens * (8 + 32)  # what went into the mapping, and what came out of the last layer
        found = sum(count for count, _ in kept.values())
        assert found == pytest.approx(
            measure("AlbertModel", model.config).training_floats * tokens, abs=outside
        )

    def test_flops_count_every_matrix_as_often_as_it_is_applied(self):
        from torch.utils.flop_counter import FlopCounterMode

        tokens = 16
        model = AlbertForMaskedLM(
            self.config(num_hidden_groups=2, inner_group_num=2, attn_implementation="eager")
        )
        footprint = measure("AlbertForMaskedLM", model.config)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(torch.full((1, tokens), 7), masked_positions=torch.tensor([3, 5]))
        assert counter.get_total_flops() == footprint.flops(tokens) * tokens + 2 * footprint.head_flops

    @pytest.mark.parametrize("head", HEADS)
    @pytest.mark.parametrize("changes", [{"tie_word_embeddings": False}, {"num_hidden_groups": 2}])
    def test_stored_parameters_are_those_of_the_module(self, head, changes):
        config = self.config(**changes)
        sizes = [one.numel() for one in HEADS[head](config).parameters()]
        assert measure(head, config).total.distinct == sum(sizes)

    def test_shared_parameters_count_once(self):
        footprint = measure("AlbertForPreTraining", self.config())
        decoder = 60 * 8
        head = footprint.parameters["masked-word head"]
        assert head.executed - head.distinct == decoder
        layers = footprint.parameters["layers"]
        assert layers.executed == 4 * layers.distinct
