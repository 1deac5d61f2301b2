"""Checks of the documented examples of Keras."""

import importlib
import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
from keras_models import TOLERANCE, USES_TENSORFLOW, largest_difference, on_tensorflow_alone
from modeling_twins import make
from places import ROOT

import albertkit
import albertkit.keras
from albertkit import AlbertForMaskedLM, AlbertModel, AlbertTokenizer

BLOCKS = re.findall(
    r"^```python\n(.*?)^```",
    "".join((ROOT / "docs" / page).read_text() for page in ("how-to/keras.md", "reference/keras.md")),
    re.DOTALL | re.MULTILINE,
)


def in_a_batch(ids: list[int]) -> Any:
    """Return ids as a batch of one: a tensor as in the examples, or a NumPy array for other backends."""
    if USES_TENSORFLOW:
        import tensorflow as tf

        return tf.constant(ids)[None, :]
    return np.array(ids)[None, :]


@pytest.fixture(scope="module")
def albert_base_v2(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a small random model, in place of the published one."""
    folder = tmp_path_factory.mktemp("models") / "albert-base-v2"
    tokenizer = AlbertTokenizer.from_pretrained("bundled")
    make("AlbertForPreTraining", vocab_size=len(tokenizer), max_position_embeddings=48).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    return str(folder)


@on_tensorflow_alone
def test_outputs_of_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a row of the table in docs/how-to/convert.md; test_conversion.py checks the others."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    table = importlib.import_module("checkpoint_table")
    assert table.keras(tmp_path, table.read_golden()) <= 1e-5


@on_tensorflow_alone
def test_features_of_a_text(albert_base_v2: str) -> None:
    """Run the example of the model card."""
    from albertkit import AlbertTokenizer, TFAlbertModel

    tokenizer = AlbertTokenizer.from_pretrained(albert_base_v2)
    model = TFAlbertModel.from_pretrained(albert_base_v2)
    kind = "tf" if USES_TENSORFLOW else "np"
    encoded_input = tokenizer(
        "Replace me by any text you'd like.", return_tensors=kind, truncation=True, max_length=24
    )
    output = model(encoded_input)
    expected = AlbertModel.from_pretrained(albert_base_v2)(
        **tokenizer("Replace me by any text you'd like.", return_tensors="pt", truncation=True, max_length=24)
    )
    assert largest_difference(output, expected) < TOLERANCE


@on_tensorflow_alone
@pytest.mark.filterwarnings("ignore:TFAlbertForSequenceClassification from")
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("TFAlbertModel", (32,)),
        ("TFAlbertForMaskedLM", (10_240,)),
        ("TFAlbertForSequenceClassification", None),
    ],
)
def test_documented_classes(albert_base_v2: str, name: str, shape: tuple[int] | None) -> None:
    """Run the examples of the API: a batch of one, and the first entry of the outputs."""
    tokenizer = AlbertTokenizer.from_pretrained(albert_base_v2)
    model = getattr(albertkit, name).from_pretrained(albert_base_v2)
    input_ids = in_a_batch(tokenizer.encode("Hello, my dog is cute"))
    outputs = model(input_ids)
    expected = (1, 2) if shape is None else (1, input_ids.shape[1], *shape)
    assert tuple(outputs[0].shape) == expected
    if name == "TFAlbertForMaskedLM":
        ours = AlbertForMaskedLM.from_pretrained(albert_base_v2)
        assert largest_difference(outputs, ours(torch.tensor(np.asarray(input_ids)))) < TOLERANCE
        states = keras.ops.ones((1, 16))
        assert tuple(model.get_output_embeddings()(states).shape) == (1, 10_240)
        assert tuple(model.get_input_embeddings().embeddings.shape) == (10_240, 16)


@on_tensorflow_alone
@pytest.mark.filterwarnings("ignore:TFAlbertForSequenceClassification from bundled")
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_pages_on_keras_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    variables: dict[str, Any] = {}
    block = block.replace("num_labels=2", "num_labels=2, num_hidden_layers=2").replace(
        "* 8", "* 4"
    )  # to save time
    exec(block.replace("model.compile(", "model.compile(run_eagerly=True, "), variables)
    if "predicted" in variables:
        assert variables["predicted"] == [1, 0]
