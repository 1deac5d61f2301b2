"""Rows of given lengths for engines, and the comparison of an engine with the plain engine."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from modeling_twins import make

from albertkit.checkpoints.arrays import to_arrays
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import Engine, Row, every_token, first_token
from albertkit.engines.light_model import LightModel, class_name
from albertkit.engines.torch import TorchEngine, takes_packed_rows
from albertkit.heads import HEADS

Read = Callable[[Row], Sequence[int]]

CLASSIFIER = "AlbertForSequenceClassification"
OUTPUTS = {name: next(iter(head.scores)) for name, head in HEADS.items()}
"""The main output of each head."""
WHOLE_TEXT = tuple(name for name, head in HEADS.items() if head.reads_first)
SHAPES = [
    {},
    {"num_hidden_groups": 2, "num_hidden_layers": 4, "inner_group_num": 2},
    {"num_hidden_groups": 3},
    {"num_hidden_layers": 1},
    {"hidden_act": "gelu"},
    {"hidden_act": "relu"},
    {"hidden_act": "silu"},
    {"hidden_act": "quick_gelu"},
    {"hidden_act": "mish"},
]


def rows_of(lengths: list[int], *, seed: int = 0) -> list[Row]:
    rng = random.Random(seed)
    return [
        Row(
            input_ids=[rng.randrange(60) for _ in range(length)],
            token_type_ids=[int(position > length // 2) for position in range(length)],
            example=number,
        )
        for number, length in enumerate(lengths)
    ]


def some_tokens(row: Row) -> list[int]:
    """Return up to three positions of a row, in random order."""
    rng = random.Random(sum(row.input_ids))
    return rng.sample(range(len(row.input_ids)), rng.randint(0, min(3, len(row.input_ids))))


def assert_equal(
    model, rows: list[Row], *, engine=None, atol: float = 1e-4, is_padded: bool = False, **options
) -> None:
    """Compare the scores of an engine with those of padded rows.

    `is_padded` is True if the engine `torch` must pad the rows too.
    """
    expected = TorchEngine(model, padded=True).run(rows, **options)
    if engine is None:
        assert takes_packed_rows(model) != is_padded
        engine = TorchEngine(model)
    scores = engine.run(rows, **options)
    assert len(scores) == len(expected) == len(rows)
    for row_scores, expected_scores in zip(scores, expected, strict=True):
        assert row_scores.dtype == expected_scores.dtype
        np.testing.assert_allclose(row_scores, expected_scores, atol=atol, rtol=1e-4)


def light(model) -> LightModel:
    """Return a light model with the weights of a PyTorch model."""
    return LightModel(class_name(model), model.config, to_arrays(model.state_dict()))


def engine_of(model, name: str) -> Engine:
    """Return an engine of this name for the weights of a PyTorch model."""
    return make_engine(light(model) if "onnx" in name else model, name)


ANY_CALL: dict[str, st.SearchStrategy[Any]] = {
    "head": st.sampled_from(list(OUTPUTS)),
    "lengths": st.lists(st.integers(1, 24), min_size=1, max_size=12),
    "batch_tokens": st.sampled_from([None, 1, 30, 100]),
    "batch_size": st.sampled_from([None, 1, 3]),
    "shape": st.sampled_from(SHAPES),
    "read": st.sampled_from([first_token, every_token, some_tokens]),
}
"""Arguments of `assert_equal_call`: models of each head and shape, with different rows and batches."""


def assert_equal_call(
    engine: str, head: str, lengths: list[int], shape: dict[str, Any], read: Read, **batches: int | None
) -> None:
    """Compare the scores of an engine with those of the plain engine, for a new model."""
    model = make(head, **shape)
    read = first_token if head in WHOLE_TEXT else read
    options = {"engine": engine_of(model, engine), "output": OUTPUTS[head], "read": read}
    assert_equal(model, rows_of(lengths), **options, **batches)
