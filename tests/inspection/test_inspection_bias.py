"""Tests of `compare_groups`, which compares the words that a model predicts for groups."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inspected_model import TEMPLATE

from albertkit.errors import ConfigError, DataError
from albertkit.inspection.bias import GroupComparison
from albertkit.inspection.inspect import compare_groups
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.pipelines import FillMaskPipeline, pipeline


@pytest.fixture(scope="module")
def fill(folder: Path) -> FillMaskPipeline:
    return pipeline("fill-mask", folder, device="cpu")


@pytest.fixture(scope="module")
def compared(fill: FillMaskPipeline) -> GroupComparison:
    groups = ["doctor", "old fox", "queen"]
    return compare_groups(TEMPLATE, groups, model=fill.model, tokenizer=fill.tokenizer, top_k=4)


class TestBias:
    def test_words_are_those_of_the_pipeline(self, fill, compared):
        for group in ("doctor", "old fox", "queen"):
            expected = fill(TEMPLATE.replace("[X]", group), top_k=4)
            predictions = compared.predictions[group]
            assert [answer["token"] for answer in predictions] == [answer["token"] for answer in expected]
            for answer, expected_answer in zip(predictions, expected, strict=True):
                assert answer["sequence"] == expected_answer["sequence"]
                assert answer["score"] == pytest.approx(expected_answer["score"], rel=1e-5)

    def test_ratios_are_over_the_union_of_answers(self, fill, compared):
        best = {answer["token"] for answers in compared.predictions.values() for answer in answers}
        assert len(compared.words) == len(best)
        assert {word.token for word in compared.words} == best
        log_probabilities = {}
        for group in compared.groups:
            encoded = fill.tokenizer(TEMPLATE.replace("[X]", group), return_tensors="pt")
            mask = encoded["input_ids"][0].tolist().index(fill.tokenizer.mask_token_id)
            with torch.no_grad():
                logits = fill.model(**encoded).logits[0, mask].double()
            log_probabilities[group] = logits.log_softmax(dim=-1).numpy()
        for word in compared.words:
            for group in compared.groups:
                assert word.scores[group] == pytest.approx(
                    np.exp(log_probabilities[group][word.token]), rel=1e-4
                )
            assert list(word.log2_ratios) == ["old fox", "queen"]
            for group, ratio in word.log2_ratios.items():
                difference = log_probabilities[group] - log_probabilities["doctor"]
                assert ratio == pytest.approx(difference[word.token] / math.log(2), abs=1e-4)
        ratios = [word.log2_ratios["queen"] for word in compared.words]
        assert ratios == sorted(ratios)

    def test_groups_can_be_any_iterable(self, fill, compared):
        groups = dict.fromkeys(compared.groups)
        for given in (groups, (group for group in groups)):
            report = compare_groups(TEMPLATE, given, model=fill.model, tokenizer=fill.tokenizer, top_k=4)
            assert report.groups == compared.groups
            assert [word.token for word in report.words] == [word.token for word in compared.words]

    def test_a_pretraining_model_gives_the_same(self, folder, fill, compared):
        model = AlbertForPreTraining.from_pretrained(folder)
        options = {"model": model, "tokenizer": fill.tokenizer, "top_k": 4}
        report = compare_groups(TEMPLATE, compared.groups, **options)
        assert [word.token for word in report.words] == [word.token for word in compared.words]
        for word, expected in zip(report.words, compared.words, strict=True):
            assert word.scores == pytest.approx(expected.scores, rel=1e-4)

    def test_errors(self, fill):
        def compare(template: Any, groups: Any, **options):
            compare_groups(template, groups, model=fill.model, tokenizer=fill.tokenizer, **options)

        for template, groups, message in (
            ("A [MASK].", ["man", "woman"], r"no \[X\] in the template 'A \[MASK\]\.'"),
            ("The [X].", ["man", "woman"], r"no \[MASK\] in the text"),
            ("[X] [MASK] [MASK]", ["man", "woman"], r"2 \[MASK\]"),
            ("[X] [MASK]", ["man", "[MASK]"], r"2 \[MASK\]"),
            ("[X] [MASK]", ["man"], "'man'. Expected at least two"),
            ("[X] [MASK]", "man", "'man'. Expected at least two"),
            ("[X] [MASK]", ["man", "man"], "at least two different"),
            ("[X] [MASK]", [], "are none"),
            ("[X] [MASK]", [1, 2], "the groups are 1, 2. Expected at least two"),
            ("[X] [MASK]", [["man"], ["woman"]], r"\['man'\], \['woman'\]. Expected at least two"),
            (None, ["man", "woman"], r"no \[X\] in the template None"),
            ("[X] [MASK]" + " word" * 80, ["man", "woman"], "maximum is 64"),
        ):
            with pytest.raises(DataError, match=message):
                compare(template, groups)
        with pytest.raises(ConfigError, match="top_k is 0"):
            compare("[X] [MASK]", ["man", "woman"], top_k=0)
        other = AlbertModel(fill.model.config)
        with pytest.raises(
            ConfigError, match=r"AlbertForMaskedLM or AlbertForPreTraining, got .*AlbertModel"
        ):
            compare_groups("[X] [MASK]", ["a", "b"], model=other, tokenizer=fill.tokenizer)

    def test_a_plot_of_too_many_words_is_an_error(self, compared, tmp_path):
        many = replace(compared, words=compared.words * 200)
        with pytest.raises(ConfigError, match=r"would have [\d,]+ words\. Expected at most 500\."):
            many.plot(tmp_path / "a.png")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(("name", "begin"), [("a.svg", b"<?xml"), ("a.PDF", b"%PDF")])
    def test_plot(self, fill, tmp_path, name, begin):
        groups = ["$x_", r"\frac$"]  # matplotlib must not read them as formulas
        options = {"model": fill.model, "tokenizer": fill.tokenizer, "top_k": 4}
        compare_groups("[X] $ [MASK]", groups, plot=tmp_path / name, **options)
        assert (tmp_path / name).read_bytes().startswith(begin)
        assert [file.name for file in tmp_path.iterdir()] == [name]
