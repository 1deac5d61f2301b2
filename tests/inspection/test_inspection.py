"""What inspection shows: the model's own attention and vectors, in a page for browsers; words compared."""

import base64
import json
import math
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from chromium import Watch
from command_line import assert_one_line_error
from engine_rows import SHAPES, rows_of
from modeling_twins import make
from places import ROOT
from torchless import run_without_torch

from albertkit.checkpoints.arrays import to_arrays
from albertkit.config import AlbertConfig
from albertkit.engines.light_model import LightModel
from albertkit.errors import ConfigError, DataError
from albertkit.inspection import attention as attention_module
from albertkit.inspection.attention import AttentionReport, InsideEngine, compute_attention, most_tokens
from albertkit.inspection.bias import GroupComparison, compare_words, plot_groups
from albertkit.inspection.page import SCALE, attention_page
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.pipelines import FillMaskPipeline, pipeline
from albertkit.tokenization.tokenizer import AlbertTokenizer

TEXT = "The captain carried a silver key before dinner."
SECOND = "My sister found the river!"
HOSTILE = '</script><script>document.title = "taken"</script><!-- <b>&amp;'


@pytest.fixture(scope="module")
def tokenizer(tiny_vocabulary: Path) -> AlbertTokenizer:
    return AlbertTokenizer(tiny_vocabulary)


@pytest.fixture(scope="module")
def folder(tokenizer: AlbertTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of two groups; large weights, so that its heads differ."""
    config = AlbertConfig(
        vocab_size=len(tokenizer),
        embedding_size=16,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=64,
        num_hidden_layers=4,
        num_hidden_groups=2,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    AlbertForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> AlbertModel:
    return AlbertModel.from_pretrained(folder)


@pytest.fixture(scope="module")
def report(model: AlbertModel, tokenizer: AlbertTokenizer) -> AttentionReport:
    return compute_attention(model, tokenizer, TEXT, SECOND)


def outputs(model: AlbertModel, tokenizer: AlbertTokenizer, *texts: str):
    with torch.no_grad():
        return model(
            **tokenizer(*texts, return_tensors="pt"), output_attentions=True, output_hidden_states=True
        )


def figures(page: str) -> dict:
    """What the page's script reads."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found)


class TestAttention:
    def test_figures_are_those_of_the_model(self, model, tokenizer, report):
        output = outputs(model, tokenizer, TEXT, SECOND)
        assert len(report.layers) == 4
        for layer, expected in zip(report.layers, output.attentions, strict=True):
            np.testing.assert_array_equal(layer.probabilities, expected[0].numpy())
        hidden = np.stack([one[0].numpy() for one in output.hidden_states]).astype(
            np.float64
        )  # (L + 1, T, H)
        unit = hidden / np.linalg.norm(hidden, axis=-1, keepdims=True)
        np.testing.assert_allclose(report.cosine_to_previous, (unit[1:] * unit[:-1]).sum(-1), atol=1e-6)
        np.testing.assert_allclose(report.cosine_to_last, (unit * unit[-1]).sum(-1), atol=1e-6)

    def test_pieces_and_layers_are_named(self, tokenizer, report):
        encoded = tokenizer(TEXT, SECOND)
        assert report.tokens == tokenizer.convert_ids_to_tokens(encoded["input_ids"])
        assert report.segments == encoded["token_type_ids"]
        assert [place for place, special in enumerate(report.special) if special] == [
            place for place, token in enumerate(report.tokens) if token in ("[CLS]", "[SEP]")
        ]
        assert [layer.stored for layer in report.layers] == [1, 1, 2, 2]

    def test_pruned_heads_are_missing(self, folder, tokenizer):
        model = AlbertModel.from_pretrained(folder)
        model.prune_heads({0: [1, 2]})
        layers = compute_attention(model, tokenizer, TEXT).layers
        assert [layer.heads for layer in layers] == [[1, 4], [1, 4], [1, 2, 3, 4], [1, 2, 3, 4]]
        assert [len(layer.probabilities) for layer in layers] == [2, 2, 4, 4]

    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("head", ["AlbertModel", "AlbertForSequenceClassification"])
    def test_without_torch_the_same_as_the_module(self, head, shape):
        module = make(head, **shape)
        light = LightModel(head, module.config, to_arrays(module.state_dict()))
        rows = rows_of([1, 7, 24])
        found = InsideEngine(light).run(rows)
        for one, expected in zip(found, InsideEngine(module).run(rows), strict=True):
            np.testing.assert_allclose(one, expected, atol=1e-5)
        assert light.module is None
        wrong = replace(rows[0], input_ids=[60])
        with pytest.raises(DataError, match="Expected 0 to 59"):
            InsideEngine(light).run([wrong])

    def test_a_light_model_that_became_a_module_shows_the_module(self):
        module = make("AlbertModel")
        light = LightModel("AlbertModel", module.config, to_arrays(module.state_dict()))
        engine, rows = InsideEngine(light), rows_of([9])
        (before,) = engine.run(rows)
        light.to_module().embeddings.word_embeddings.register_forward_hook(lambda *values: -values[-1])
        (after,) = engine.run(rows)
        assert np.abs(after - before).max() > 0.1

    def test_a_model_with_a_head_in_training_shows_its_encoder(self, folder, tokenizer, model):
        whole = AlbertForPreTraining.from_pretrained(folder).train()
        one, other = (compute_attention(each, tokenizer, TEXT) for each in (whole, model))
        np.testing.assert_array_equal(one.layers[-1].probabilities, other.layers[-1].probabilities)
        assert whole.training

    def test_limits(self, model, tokenizer, monkeypatch):
        with pytest.raises(DataError, match=r"302 tokens.* maximum is 64"):
            compute_attention(model, tokenizer, "word " * 300)
        assert len(compute_attention(model, tokenizer, "word " * 300, truncation=True).tokens) == 64
        monkeypatch.setattr(attention_module, "MOST_PROBABILITIES", 4 * 4 * 20 * 20 + 1)
        assert most_tokens(model.config) == 20
        with pytest.raises(DataError, match=r"32 tokens.*at most 20 can be shown"):
            compute_attention(model, tokenizer, "word " * 30)
        report = compute_attention(model, tokenizer, "word " * 30, truncation=True)
        assert (len(report.tokens), report.cut) == (20, 12)
        with pytest.raises(DataError, match="at least one word"):
            compute_attention(model, tokenizer, " ")


class TestPage:
    def test_page_holds_the_models_attention(self, model, tokenizer, report):
        data = figures(attention_page(report, model="tiny"))
        output = outputs(model, tokenizer, TEXT, SECOND)
        count = len(data["tokens"])
        for layer, expected in zip(data["layers"], output.attentions, strict=True):
            packed = np.frombuffer(base64.b64decode(layer["attention"]), dtype="<u2")
            shares = packed.reshape(4, count, count) / data["scale"]
            np.testing.assert_allclose(shares, expected[0], atol=0.51 / SCALE)
        np.testing.assert_allclose(data["cosine_to_last"], report.cosine_to_last, atol=1e-5)
        assert data["tokens"] == report.tokens

    def test_what_the_user_wrote_is_data(self, model, tokenizer):
        page = attention_page(compute_attention(model, tokenizer, HOSTILE, "{{script}}"), model="<i>{{data}}")
        assert page.count("</script>") == 2  # of the data and of the script
        assert HOSTILE not in page
        assert "<i>" not in page
        data = figures(page)
        assert (data["text"], data["text_pair"], data["model"]) == (HOSTILE, "{{script}}", "<i>{{data}}")

    def test_wheel_has_the_files_of_the_pages(self, tmp_path):
        root = ROOT
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, root]
        subprocess.run(build, check=True, capture_output=True)
        (wheel,) = tmp_path.glob("*.whl")
        held = {name for name in zipfile.ZipFile(wheel).namelist() if "/html/" in name}
        source = root / "src"
        pages = source.glob("albertkit/*/html/*")
        assert held == {file.relative_to(source).as_posix() for file in pages}
        names = {Path(name).name for name in held}
        assert {"attention.html", "playground.html", "shared.js", "worker.js"} <= names


class TestInABrowser:
    @pytest.fixture
    def opened(self, browser, tmp_path, model, tokenizer):
        """Open the page of texts; complaints of the browser and requests of the page fail the test."""
        watch = Watch()

        def open_page(*texts: str, **options):
            file = tmp_path / "page.html"
            report = compute_attention(model, tokenizer, *texts)
            file.write_text(attention_page(report, model="tiny"), encoding="utf-8")
            page = watch.over(browser.new_page(**options))
            page.goto(file.as_uri())
            return page, report

        yield open_page
        assert watch.complaints == []
        assert [url for url in watch.requests if not url.startswith(("file:", "data:"))] == []
        assert len([url for url in watch.requests if url.startswith("file:")]) == 1

    @staticmethod
    def shares(page) -> list[float]:
        """The shares written under the pieces."""
        written = page.locator("#pieces label:visible small").all_inner_texts()
        return [float(one.removesuffix("%")) / 100 for one in written]

    def test_values_shown_are_the_models(self, opened, model, tokenizer):
        page, report = opened(TEXT, SECOND)
        attentions = [one[0].numpy() for one in outputs(model, tokenizer, TEXT, SECOND).attentions]
        assert page.title() == f"Attention: {TEXT} / {SECOND}"
        # A piece is chosen by its place: the fifth, in the first layer and the mean of the heads.
        page.locator("#pieces input").nth(4).check()
        np.testing.assert_allclose(self.shares(page), attentions[0].mean(0)[4], atol=6e-4)
        page.get_by_label("layer 2,").check()
        for head in (1, 3):
            page.get_by_label(f"head {head}", exact=True).check()
            np.testing.assert_allclose(self.shares(page), attentions[1][head - 1][4], atol=6e-4)
        page.get_by_label("is attended to by").check()
        np.testing.assert_allclose(self.shares(page), attentions[1][2][:, 4], atol=6e-4)
        best = int(attentions[1][2][:, 4].argmax())
        assert page.locator("#strongest tbody th").first.inner_text() == f"{report.tokens[best]}{best + 1}"
        page.get_by_label("Show [CLS] and [SEP]").uncheck()
        kept = [place for place, special in enumerate(report.special) if not special]
        np.testing.assert_allclose(self.shares(page), attentions[1][2][kept, 4], atol=6e-4)

    def test_cosines_shown_are_the_models(self, opened):
        page, report = opened(TEXT)

        def cells() -> np.ndarray:
            cells = page.locator("#cosines tbody td").all_inner_texts()
            return np.array(cells, float).reshape(1 + len(report.tokens), -1)

        expected = report.cosine_to_previous.T
        np.testing.assert_allclose(cells(), [expected.mean(0), *expected], atol=6e-4)
        page.get_by_label("the one after the last layer").check()
        expected = report.cosine_to_last.T
        np.testing.assert_allclose(cells(), [expected.mean(0), *expected], atol=6e-4)
        assert "weights of 2 stored" in page.locator("#sharing").inner_text()

    def test_keyboard_alone(self, opened, model, tokenizer):
        page, report = opened(TEXT)
        mean = outputs(model, tokenizer, TEXT).attentions[0][0].mean(0)
        page.locator("#pieces input:checked").focus()
        page.keyboard.press("ArrowRight")  # from the first piece of the text to the second
        np.testing.assert_allclose(self.shares(page), mean[2], atol=6e-4)
        page.locator("#heat").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        readout = page.locator("#readout").inner_text()
        assert f"{report.tokens[3]}4 attends to {report.tokens[3]}4, {100 * mean[3, 3]:.1f}%" in readout

    def test_mouse_on_the_heat_map(self, opened, model, tokenizer):
        page, report = opened(TEXT)
        mean = outputs(model, tokenizer, TEXT).attentions[0][0].mean(0)
        margin, cell = page.evaluate("[map.margin, map.cell]")
        page.locator("#heat").hover(position={"x": margin + 5.5 * cell, "y": margin + 2.5 * cell})
        readout = page.locator("#readout").inner_text()
        assert f"{report.tokens[2]}3 attends to {report.tokens[5]}6, {100 * mean[2, 5]:.1f}%" in readout

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_phone(self, opened, scheme):
        page, _ = opened(TEXT, SECOND, viewport={"width": 360, "height": 740}, color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        bright = sum(map(int, re.findall(r"\d+", background)[:3])) > 380
        assert bright == (scheme == "light")

    def test_markup_of_the_user_is_text(self, opened):
        page, _ = opened(HOSTILE)
        assert page.title().startswith("Attention: </script>")
        assert page.locator("#texts p").inner_text() == HOSTILE


TEMPLATE = "The [X] found the [MASK] before dinner."


@pytest.fixture(scope="module")
def fill(folder: Path) -> FillMaskPipeline:
    return pipeline("fill-mask", folder, device="cpu")


@pytest.fixture(scope="module")
def compared(fill: FillMaskPipeline) -> GroupComparison:
    groups = ["doctor", "old fox", "queen"]
    return compare_words(fill.model, fill.tokenizer, template=TEMPLATE, groups=groups, top_k=4)


class TestBias:
    def test_words_are_those_of_the_pipeline(self, fill, compared):
        for group in ("doctor", "old fox", "queen"):
            expected = fill(TEMPLATE.replace("[X]", group), top_k=4)
            assert [one["token"] for one in compared.predictions[group]] == [one["token"] for one in expected]
            for one, other in zip(compared.predictions[group], expected, strict=True):
                assert one["sequence"] == other["sequence"]
                assert one["score"] == pytest.approx(other["score"], rel=1e-5)

    def test_ratios_are_over_the_union_of_answers(self, fill, compared):
        best = {one["token"] for answers in compared.predictions.values() for one in answers}
        assert len(compared.words) == len(best)
        assert {word.token for word in compared.words} == best
        every = {}
        for group in compared.groups:
            encoded = fill.tokenizer(TEMPLATE.replace("[X]", group), return_tensors="pt")
            mask = encoded["input_ids"][0].tolist().index(fill.tokenizer.mask_token_id)
            with torch.no_grad():
                every[group] = fill.model(**encoded).logits[0, mask].double().log_softmax(dim=-1).numpy()
        for word in compared.words:
            for group in compared.groups:
                assert word.scores[group] == pytest.approx(np.exp(every[group][word.token]), rel=1e-4)
            assert list(word.log2_ratios) == ["old fox", "queen"]
            for group, ratio in word.log2_ratios.items():
                expected = (every[group] - every["doctor"])[word.token] / math.log(2)
                assert ratio == pytest.approx(expected, abs=1e-4)
        ratios = [word.log2_ratios["queen"] for word in compared.words]
        assert ratios == sorted(ratios)

    def test_errors(self, fill, tmp_path):
        def compare(template: str, groups: list[str], **options):
            compare_words(fill.model, fill.tokenizer, template=template, groups=groups, **options)

        for template, groups, message in (
            ("A [MASK].", ["man", "woman"], r"no \[X\] in the template 'A \[MASK\]\.'"),
            ("The [X].", ["man", "woman"], r"no \[MASK\] in the text"),
            ("[X] [MASK] [MASK]", ["man", "woman"], r"2 \[MASK\]"),
            ("[X] [MASK]", ["man", "[MASK]"], r"2 \[MASK\]"),
            ("[X] [MASK]", ["man"], "'man'. Expected at least two"),
            ("[X] [MASK]", ["man", "man"], "at least two different"),
            ("[X] [MASK]", [], "are none"),
            ("[X] [MASK]" + " word" * 80, ["man", "woman"], "maximum is 64"),
        ):
            with pytest.raises(DataError, match=message):
                compare(template, groups)
        with pytest.raises(ConfigError, match="top_k is 0"):
            compare("[X] [MASK]", ["man", "woman"], top_k=0)
        other = AlbertForPreTraining(fill.model.config)
        with pytest.raises(ConfigError, match="got AlbertForPreTraining"):
            compare_words(other, fill.tokenizer, template="[X] [MASK]", groups=["a", "b"])

    @pytest.mark.parametrize(("name", "begin"), [("a.svg", b"<?xml"), ("a.PDF", b"%PDF")])
    def test_plot(self, fill, tmp_path, name, begin):
        groups = ["$x_", r"\frac$"]  # no formulas
        report = compare_words(fill.model, fill.tokenizer, template="[X] $ [MASK]", groups=groups, top_k=4)
        plot_groups(report, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begin)
        assert [file.name for file in tmp_path.iterdir()] == [name]


class TestCommands:
    def test_attention(self, run, folder, tmp_path, report):
        page = tmp_path / "a.html"
        call = ("inspect", "attention", TEXT, "--pair", SECOND, "--model", folder, "--device", "cpu")
        output = run(*call, "--html", page).output
        assert output.splitlines()[:2] == [TEXT, SECOND]
        assert f"{report.cosine_to_previous[1].mean():.3f}" in output
        assert f"{len(report.tokens)} tokens, written to {page}" in output
        assert figures(page.read_text(encoding="utf-8"))["tokens"] == report.tokens
        (printed,) = run(*call, "--json").json
        assert printed["text_pair"] == SECOND
        for layer, expected in zip(printed["layers"], report.layers, strict=True):
            np.testing.assert_allclose(layer["attention"], expected.probabilities, atol=6e-6)
        np.testing.assert_allclose(printed["cosine_to_previous"], report.cosine_to_previous, atol=6e-6)

    def test_attention_errors(self, run, folder, tmp_path):
        call = ("inspect", "attention", "--model", folder)
        assert_one_line_error(run(*call, "word " * 300), "302 tokens", "maximum is 64", "--truncate")
        assert_one_line_error(run(*call, ""), "at least one word")
        assert_one_line_error(run(*call, "a", "--html", tmp_path / "none" / "a.html"), "there is no folder")
        result = run(*call, "word " * 300, "--truncate")
        assert "truncated: the last 238 tokens" in result.output

    def test_bias(self, run, folder, tmp_path):
        call = ("inspect", "bias", "--template", "The [X] lost the [MASK].", "--groups", "fox, doctor")
        call = (*call, "--model", folder, "--top-k", 2, "--device", "cpu")
        (printed,) = run(*call, "--json").json
        assert printed["groups"] == ["fox", "doctor"]
        output = run(*call, "--plot", tmp_path / "a.png").output
        lines = output.splitlines()
        assert lines[0] == "The [X] lost the [MASK]."
        assert lines[1].split() == ["fox", "doctor"]
        for word in printed["words"]:
            (row,) = [line for line in lines if line.endswith(f"{word['log2_ratios']['doctor']:+.2f}")]
            assert row.split()[-3] == f"{100 * word['scores']['fox']:.3g}%"
        plot = (tmp_path / "a.png").read_bytes()
        assert plot.startswith(b"\x89PNG")
        assert len(plot) > 5_000

    def test_without_torch(self, folder, tmp_path, report):
        """Attention and bias of the command line, in a process that cannot import torch."""
        attention = ("attention", TEXT, "--pair", SECOND, "--json", "--html", tmp_path / "a.html")
        bias = (
            "bias",
            "--template",
            TEMPLATE,
            "--groups",
            "doctor,queen",
            "--json",
            "--plot",
            tmp_path / "a.png",
        )
        calls = [["inspect", *map(str, call), "--model", str(folder)] for call in (attention, bias)]
        code = """
import json
from albertkit.cli.main import run

for call in json.loads(sys.argv[1]):
    sys.argv[1:] = call
    try:
        run()
    except SystemExit as end:
        assert not end.code
"""
        printed, compared = map(json.loads, run_without_torch(code, json.dumps(calls)).splitlines())
        for layer, expected in zip(printed["layers"], report.layers, strict=True):
            np.testing.assert_allclose(layer["attention"], expected.probabilities, atol=1.5e-5)
        assert figures((tmp_path / "a.html").read_text(encoding="utf-8"))["tokens"] == report.tokens
        assert compared["groups"] == ["doctor", "queen"]
        assert (tmp_path / "a.png").stat().st_size > 5_000

    def test_bias_errors(self, run, folder, tmp_path):
        call = ("inspect", "bias", "--model", folder, "--template")
        assert_one_line_error(run(*call, "A [MASK].", "--groups", "man,woman"), "no [X]", "worked as a")
        assert_one_line_error(run(*call, "[X] [MASK]", "--groups", "man,"), "at least two")
        both = (*call, "[X] [MASK]", "--groups", "man,woman", "--plot")
        assert_one_line_error(run(*both, tmp_path / "a.xlsx"), "a.xlsx", ".png")
        assert_one_line_error(run(*both, tmp_path / "none" / "a.png"), "there is no folder")

    def test_a_model_needs_no_verb(self, run, folder, tmp_path, monkeypatch):
        (report,) = run("inspect", "model", folder, "--json").json
        assert run("inspect", folder, "--json").json == run("inspect", "--json", folder).json == [report]
        shutil.copytree(folder, tmp_path / "attention")
        monkeypatch.chdir(tmp_path)
        (found,) = run("inspect", "./attention", "--json").json
        assert found["parameters"] == report["parameters"]

    @pytest.mark.parametrize(
        ("verb", "expected"),
        [((), "model attention bias"), (("attention",), "--html --pair"), (("bias",), "--template --plot")],
    )
    def test_help(self, run, verb, expected):
        output = run("inspect", *verb, "--help").output
        for part in expected.split():
            assert part in output
