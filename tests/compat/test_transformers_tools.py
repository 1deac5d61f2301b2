"""Tests of docs/how-to/tools-that-require-transformers.md with the tools it names, offline.

    pip install shap keybert evaluate
    pytest tests/compat/test_transformers_tools.py

pytest skips a test if its library is not installed.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from places import ROOT

import albertkit

TICKETS = ROOT / "docs" / "files" / "tickets.csv"
TEXTS = ["The soup was cold, and the bed was hard.", "The view is worth the whole journey."]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a briefly trained run."""
    return albertkit.finetune(
        "text-classification", train=TICKETS, validation=TICKETS, output=tmp_path_factory.mktemp("run"),
        steps=4, batch_size=8, precision="fp32", device="cpu",
    )  # fmt: skip


def scores_of(pipe: Any, texts: list[str]) -> np.ndarray:
    """Return the scores of all labels (texts, labels), in the order of the labels."""
    answers = pipe(texts, top_k=None)
    labels = sorted(score["label"] for score in answers[0])
    return np.array([[{s["label"]: s["score"] for s in a}[label] for label in labels] for a in answers])


def test_shap(run: Any) -> None:
    shap = pytest.importorskip("shap", reason="needs shap: pip install shap")
    classifier = run.pipeline(engine="torch")
    values = shap.Explainer(classifier.to_transformers(top_k=None), seed=0)(TEXTS)
    expected = scores_of(classifier, TEXTS)
    for row in range(len(TEXTS)):
        # The contributions of all words and the base value add up to the score of each label.
        total = values[row].values.sum(axis=0) + values[row].base_values
        names = np.argsort(values.output_names)
        np.testing.assert_allclose(total[names], expected[row], atol=1e-4)


def test_keybert() -> None:
    keybert = pytest.importorskip("keybert", reason="needs KeyBERT: pip install keybert")
    text = "The ship left the harbor in the morning fog."
    pipe = albertkit.pipeline("feature-extraction", "bundled-sentences", engine="torch")
    words = keybert.KeyBERT(pipe.to_transformers()).extract_keywords(text, top_n=3)
    assert len(words) == 3
    for word, score in words:
        assert score == pytest.approx(np.dot(pipe(word), pipe(text)), abs=1e-3)


def test_evaluator(run: Any) -> None:
    evaluate = pytest.importorskip("evaluate", reason="needs evaluate: pip install evaluate")
    datasets = pytest.importorskip("datasets", reason="needs datasets: pip install datasets")

    class Accuracy(evaluate.Metric):
        """The published metric is downloaded. The suite is offline."""

        def _info(self) -> Any:
            types = {name: datasets.Value("int64") for name in ("predictions", "references")}
            return evaluate.MetricInfo(
                description="", citation="", inputs_description="", features=datasets.Features(types)
            )

        def _compute(self, predictions: list[int], references: list[int]) -> dict[str, float]:
            return {"accuracy": float(np.mean(np.equal(predictions, references)))}

    theirs = run.pipeline(engine="torch").to_transformers()
    result = evaluate.evaluator("text-classification").compute(
        theirs.model,
        tokenizer=theirs.tokenizer,
        data=datasets.Dataset.from_csv(str(TICKETS)).class_encode_column("label"),
        metric=Accuracy(),
        label_mapping=theirs.model.config.label2id,
    )
    ours = albertkit.evaluate(run.folder, data=TICKETS, task="text-classification")
    assert result["accuracy"] == pytest.approx(ours.metrics["accuracy"])


def test_trainer_saves_a_complete_folder(tmp_path: Path) -> None:
    model = albertkit.AutoModelForSequenceClassification.from_pretrained("bundled", num_labels=3)
    arguments = transformers.TrainingArguments(str(tmp_path / "run"), use_cpu=True)
    transformers.Trainer(model.to_transformers(), arguments).save_model(str(tmp_path / "saved"))
    saved = albertkit.AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    assert saved.num_labels == 3
    ids = model.dummy_inputs["input_ids"]
    torch.testing.assert_close(saved.eval()(ids).logits, model.eval()(ids).logits, rtol=0, atol=1e-6)
