"""Check a Keras model without PyTorch. `keras_process.py` runs this file once for each backend.

With JAX, which compiles for ten seconds, the script neither trains nor writes Keras files.
`keras_checks_training.py` does both. `tests/project/test_layers.py` checks that `albertkit.keras` never
imports PyTorch.

Arguments: a saved classifier, a folder with a `pytorch_model.bin`, and an output folder.
"""

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albertkit import TFAlbertForSequenceClassification, reference
from albertkit.checkpoints import formats
from albertkit.checkpoints.match import fit
from albertkit.config import AlbertConfig
from albertkit.errors import MissingExtraError

saved, pickled, folder = map(Path, sys.argv[1:])
generator = np.random.default_rng(0)
ids, mask = generator.integers(5, 60, size=(4, 9)), np.ones((4, 9), np.int64)
mask[2:, 6:] = 0
inputs = {"input_ids": ids, "attention_mask": mask}


def logits_of(model: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(model(inputs).logits))


model: Any = TFAlbertForSequenceClassification.from_pretrained(saved, from_pt=True)
checkpoint = formats.read(saved)
config = AlbertConfig.from_dict(checkpoint.config)
weights, _ = fit("AlbertForSequenceClassification", config, checkpoint.tensors)
expected = reference.forward("AlbertForSequenceClassification", config, weights, ids, mask)["logits"]
np.testing.assert_allclose(logits_of(model), expected, atol=1e-4)

USES_TENSORFLOW = keras.backend.backend() == "tensorflow"
if USES_TENSORFLOW:
    model.compile(
        optimizer=keras.optimizers.Adam(1e-2),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=True,  # tracing a step takes seconds
    )
    losses = model.fit(inputs, np.array([0, 1, 0, 1]), epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0], losses
model.save_pretrained(folder)
again = TFAlbertForSequenceClassification.from_pretrained(folder)
np.testing.assert_array_equal(logits_of(again), logits_of(model))
if USES_TENSORFLOW:
    model.save(folder / "model.keras")
    loaded: Any = keras.saving.load_model(folder / "model.keras")
    np.testing.assert_array_equal(logits_of(loaded), logits_of(model))

try:
    TFAlbertForSequenceClassification.from_pretrained(pickled)
except MissingExtraError as error:
    assert "pip install 'albertkit[torch]'" in str(error), error  # noqa: PT017
else:
    raise AssertionError("albertkit read a PyTorch file without PyTorch")
