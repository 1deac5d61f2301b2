"""Tests of the HTML page of attention: its data, and what Chromium shows."""

import base64
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chromium import Watch
from inspected_model import SECOND, TEXT, outputs, page_data
from places import ROOT

from albertkit.inspection.attention import SCALE, compute_attention

HOSTILE = '</script><script>document.title = "taken"</script><!-- <b>&amp;'


class TestPage:
    """The file, read without a browser."""

    def test_page_holds_the_models_attention(self, model, tokenizer, report):
        data = page_data(replace(report, model="tiny").to_html())
        output = outputs(model, tokenizer, TEXT, SECOND)
        count = len(data["tokens"])
        for layer, expected in zip(data["layers"], output.attentions, strict=True):
            packed = np.frombuffer(base64.b64decode(layer["attention"]), dtype="<u2")
            shares = packed.reshape(4, count, count) / data["scale"]
            np.testing.assert_allclose(shares, expected[0], atol=0.51 / SCALE)
        np.testing.assert_allclose(data["cosine_to_last"], report.cosine_to_last, atol=1e-5)
        assert data["tokens"] == report.tokens

    def test_texts_of_the_user_are_escaped(self, model, tokenizer):
        report = compute_attention(model, tokenizer, HOSTILE, "{{script}}")
        page = replace(report, model="<i>{{data}}").to_html()
        assert page.count("</script>") == 2  # one ends the data, one ends the script
        assert HOSTILE not in page
        assert "<i>" not in page
        data = page_data(page)
        assert (data["text"], data["text_pair"], data["model"]) == (HOSTILE, "{{script}}", "<i>{{data}}")

    def test_wheel_has_the_files_of_the_pages(self, tmp_path):
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT]
        subprocess.run(build, check=True, capture_output=True)
        (wheel,) = tmp_path.glob("*.whl")
        packed = {name for name in zipfile.ZipFile(wheel).namelist() if "/html/" in name}
        source = ROOT / "src"
        pages = source.glob("albertkit/*/html/*")
        assert packed == {file.relative_to(source).as_posix() for file in pages}
        names = {Path(name).name for name in packed}
        assert {"attention.html", "playground.html", "shared.js", "worker.js"} <= names


class TestInABrowser:
    """The page in Chromium."""

    @pytest.fixture
    def opened(self, browser, tmp_path, model, tokenizer):
        """Return a function that opens the page of texts. Browser errors and requests fail the test."""
        watch = Watch()

        def open_page(*texts: str, **options):
            file = tmp_path / "page.html"
            report = compute_attention(model, tokenizer, *texts)
            file.write_text(replace(report, model="tiny").to_html(), encoding="utf-8")
            page = watch.over(browser.new_page(**options))
            page.goto(file.as_uri())
            return page, report

        yield open_page
        assert watch.complaints == []
        assert [url for url in watch.requests if not url.startswith(("file:", "data:"))] == []
        assert len([url for url in watch.requests if url.startswith("file:")]) == 1

    @staticmethod
    def shares(page) -> list[float]:
        """Return the shares that the page shows under the tokens."""
        percentages = page.locator("#pieces label:visible small").all_inner_texts()
        return [float(text.removesuffix("%")) / 100 for text in percentages]

    def test_values_shown_are_the_models(self, opened, model, tokenizer):
        page, report = opened(TEXT, SECOND)
        attentions = [layer[0].numpy() for layer in outputs(model, tokenizer, TEXT, SECOND).attentions]
        assert page.title() == f"Attention: {TEXT} / {SECOND}"
        # Select the fifth token. The page shows the first layer and the mean of its heads.
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
        kept = [position for position, special in enumerate(report.special) if not special]
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

    def test_the_keyboard_selects_tokens_and_cells(self, opened, model, tokenizer):
        page, report = opened(TEXT)
        mean = outputs(model, tokenizer, TEXT).attentions[0][0].mean(0)
        page.locator("#pieces input:checked").focus()
        page.keyboard.press("ArrowRight")  # from the first token of the text to the second
        np.testing.assert_allclose(self.shares(page), mean[2], atol=6e-4)
        page.locator("#heat").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        readout = page.locator("#readout").inner_text()
        assert f"{report.tokens[3]}4 attends to {report.tokens[3]}4, {100 * mean[3, 3]:.1f}%" in readout

    def test_the_mouse_selects_a_cell_of_the_heat_map(self, opened, model, tokenizer):
        page, report = opened(TEXT)
        mean = outputs(model, tokenizer, TEXT).attentions[0][0].mean(0)
        margin, cell = page.evaluate("[map.margin, map.cell]")
        page.locator("#heat").hover(position={"x": margin + 5.5 * cell, "y": margin + 2.5 * cell})
        readout = page.locator("#readout").inner_text()
        assert f"{report.tokens[2]}3 attends to {report.tokens[5]}6, {100 * mean[2, 5]:.1f}%" in readout

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_the_page_fits_a_phone(self, opened, scheme):
        page, _ = opened(TEXT, SECOND, viewport={"width": 360, "height": 740}, color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        bright = sum(map(int, re.findall(r"\d+", background)[:3])) > 380
        assert bright == (scheme == "light")

    def test_markup_of_the_user_is_text(self, opened):
        page, _ = opened(HOSTILE)
        assert page.title().startswith("Attention: </script>")
        assert page.locator("#texts p").inner_text() == HOSTILE
