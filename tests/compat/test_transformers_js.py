"""Tests of `export web` with transformers.js in Node: it gives the ids and scores of Python on 200 texts."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser_texts import texts
from modeling_twins import HEADS
from node_packages import npm_install
from places import ROOT
from serving_server import save_random_models

import albertkit
from albertkit import reference
from albertkit.checkpoints import formats
from albertkit.checkpoints.sentence_modules import Pooling, SentenceModules, attach
from albertkit.config import AlbertConfig
from albertkit.export.check import open_session
from albertkit.hub import resolve
from albertkit.web.export import INT8_FILE, export_web

PACKAGE = "@huggingface/transformers@4.3.1"
COUNT = 200
SCRIPT = Path(__file__).with_name("transformers_js.mjs")
TOLERANCE = 1e-4
"""The maximum difference of outputs. The random weights are large, so outputs are up to 10."""
FEW = 20


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the library."""
    return npm_install(tmp_path_factory.mktemp("node"), PACKAGE)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a random model for each head, with the bundled vocabulary. Its export is in NAME-web."""
    root = tmp_path_factory.mktemp("models")
    vocabulary = resolve("bundled", patterns=("*.model",)) / "spiece.model"
    models = save_random_models(HEADS, vocabulary, root, seed=3)
    for name, folder in models.items():
        export_web(folder, root / f"{name}-web", max_drop=100)
    return {name: Path(folder) for name, folder in models.items()}


def run_node(node: Path, cases: list[dict[str, Any]], tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Run the script on cases, and return the JSON values that it prints."""
    (node / "cases.json").write_text(json.dumps(cases))
    (node / SCRIPT.name).write_text(SCRIPT.read_text())
    command = ["node", SCRIPT.name, "cases.json"]
    result = subprocess.run(command, cwd=node, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    return map(json.loads, result.stdout.splitlines())


def web(folder: Path) -> str:
    return f"{folder}-web"


def array(value: dict[str, Any]) -> np.ndarray:
    assert value["every"] == 1
    return np.array(value["values"]).reshape(value["dims"])


def compare(output: dict[str, Any], expected: np.ndarray, text: str, *, tolerance: float) -> None:
    assert tuple(output["dims"]) == expected.shape
    sampled = expected.ravel()[:: output["every"]]
    np.testing.assert_allclose(output["values"], sampled, atol=tolerance, err_msg=text)


@pytest.mark.parametrize("head", HEADS)
def test_ids_and_scores_are_those_of_python(
    head: str, node: Path, folders: dict[str, Path], tmp_path: Path
) -> None:
    folder, choices, given = folders[head], head == "AlbertForMultipleChoice", texts(COUNT)
    tokenizer = albertkit.AutoTokenizer.from_pretrained(folder)
    checkpoint = formats.read(folder)
    config = AlbertConfig.from_dict(checkpoint.config)
    written = json.loads((Path(web(folder)) / "config.json").read_text())["architectures"][0]
    case = {
        "folder": web(folder),
        "architecture": written,
        "dtype": "fp32",
        "texts": given,
        "choices": choices,
    }
    results = list(run_node(node, [case], tmp_path))
    assert len(results) == COUNT
    largest = 0.0
    for text, result in zip(given, results, strict=True):
        first = [text, text.upper()] if choices else [text]
        second = ["Yes.", "No, thanks."] if choices else None
        batch = tokenizer(first, second, padding=True, truncation=True, max_length=64, return_tensors="np")
        np.testing.assert_array_equal(array(result["ids"]), batch["input_ids"], err_msg=text)
        inputs = {name: np.asarray(values, np.int64) for name, values in batch.items()}
        if choices:
            inputs = {name: values[None] for name, values in inputs.items()}
        expected = reference.forward(head, config, checkpoint.tensors, **inputs)
        if head == "AlbertForPreTraining":
            expected = {"logits": expected["prediction_logits"]}
        assert result["outputs"]
        for name, values in result["outputs"].items():
            compare(values, expected[name], text, tolerance=TOLERANCE)
            largest = max(largest, float(np.abs(expected[name]).max()))
    assert largest > 0.5  # not all outputs are near 0


def test_the_blocks_of_the_documentation_run(node: Path, folders: dict[str, Path]) -> None:
    export_web("bundled", node / "models" / "bundled-web", max_drop=1.5)
    shutil.copytree(web(folders["AlbertForTokenClassification"]), node / "models" / "tagger-web")
    page = (ROOT / "docs" / "how-to" / "browser.md").read_text()
    blocks = re.findall(r"^```javascript\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    printed = []
    for number, block in enumerate(blocks):
        (node / f"{number}.mjs").write_text(block)
        result = subprocess.run(
            ["node", f"{number}.mjs"], cwd=node, capture_output=True, text=True, timeout=100, check=True
        )
        printed.append(result.stdout)
    assert len(blocks) == 2
    (best,) = albertkit.pipeline("fill-mask")("The doctor shook his [MASK] and said nothing.", top_k=1)
    assert re.search(r"token_str: '(.*)'", printed[0])[1] == best["token_str"]  # the first candidate
    assert re.fullmatch(r"\[ 1, \d+, 3 \]\n", printed[1])


@pytest.mark.parametrize("head", HEADS)
def test_int8_outputs_are_those_of_onnx_runtime_in_python(
    head: str, node: Path, folders: dict[str, Path], tmp_path: Path
) -> None:
    """Check the int8 file, which browsers open. Node opens the float32 file by default."""
    folder = folders[head]
    if head == "AlbertForMultipleChoice":
        pytest.skip("its rows are pairs; the other heads test the same operators")
    given = texts(FEW)
    written = json.loads((Path(web(folder)) / "config.json").read_text())["architectures"][0]
    case = {"folder": web(folder), "architecture": written, "dtype": "q8", "texts": given}
    session = open_session(Path(web(folder)) / INT8_FILE)
    tokenizer = albertkit.AutoTokenizer.from_pretrained(folder)
    for text, result in zip(given, run_node(node, [case], tmp_path), strict=True):
        batch = tokenizer([text], truncation=True, max_length=64, return_tensors="np")
        inputs = {name: np.asarray(batch[name], np.int64) for name in batch}
        names = [output.name for output in session.get_outputs()]
        expected = dict(zip(names, session.run(names, inputs), strict=True))
        for name, values in result["outputs"].items():
            compare(values, expected[name], text, tolerance=1e-3)


def test_its_pipelines_give_the_answers_of_albertkit(
    node: Path, folders: dict[str, Path], tmp_path: Path
) -> None:
    given = texts(FEW)
    masked = [f"{' '.join(text.split()[:8])} [MASK] and nothing." for text in given]
    tasks = {
        "AlbertForSequenceClassification": ("text-classification", given, {"top_k": 3}),
        "AlbertForMaskedLM": ("fill-mask", masked, {"top_k": 5}),
        "AlbertModel": ("feature-extraction", given, {"pooling": "mean"}),
    }
    for head, (name, asked, options) in tasks.items():
        task = {"name": name, "texts": asked, "options": options}
        case = {
            "folder": web(folders[head]), "architecture": head, "dtype": "fp32", "texts": [], "task": task
        }  # fmt: skip
        ours = albertkit.pipeline(name, str(folders[head]))
        results = list(run_node(node, [case], tmp_path))
        for text, result in zip(asked, results, strict=True):
            answer = result["answer"]
            if name == "feature-extraction":
                expected = ours(text, pooling="mean")
                np.testing.assert_allclose(array(answer).ravel(), np.ravel(expected), atol=TOLERANCE)
                continue
            answer = answer[0] if isinstance(answer[0], list) else answer
            expected = ours(text, top_k=options["top_k"])
            key = "label" if name == "text-classification" else "token"
            assert [prediction[key] for prediction in answer] == [prediction[key] for prediction in expected]
            scores = [[prediction["score"] for prediction in side] for side in (answer, expected)]
            np.testing.assert_allclose(scores[0], scores[1], atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_options_in_the_report_give_the_vectors_of_python(
    pooling: Pooling, node: Path, folders: dict[str, Path], tmp_path: Path
) -> None:
    folder, given = shutil.copytree(folders["AlbertModel"], tmp_path / "model"), texts(FEW)
    model = albertkit.AlbertModel.from_pretrained(folder)
    modules = SentenceModules((pooling,), normalize=True, prompts={"q": "a text: "}, default_prompt_name="q")
    attach(model.config, modules)
    model.save_pretrained(folder)
    (note,) = export_web(folder, web(folder), int8=False).notes
    options_in_note = re.search(
        r"""\{ pooling: "(\w+)", normalize: (\w+) \}.* prepend '(.*)' to each text""", note
    )
    assert options_in_note
    pooling_name, normalize, prompt = options_in_note.groups()
    options = {"pooling": pooling_name, "normalize": json.loads(normalize)}
    task = {"name": "feature-extraction", "texts": [prompt + text for text in given], "options": options}
    case = {"folder": web(folder), "architecture": "AlbertModel", "dtype": "fp32", "texts": [], "task": task}
    ours = albertkit.pipeline("feature-extraction", str(folder))
    for text, result in zip(given, run_node(node, [case], tmp_path), strict=True):
        vector = array(result["answer"]).ravel()
        np.testing.assert_allclose(vector, ours(text, truncation=True), atol=TOLERANCE)
