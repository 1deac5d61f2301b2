"""Rows of given lengths for engines, and the comparison of an engine with the plain engine."""

import random
from unittest.mock import patch

import numpy as np

from albertkit.engines.engine import Row
from albertkit.engines.plain import PlainEngine
from albertkit.engines.torch_engine import TorchEngine
from albertkit.heads import HEADS

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
    {"pruned_heads": {0: [1, 2]}},
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
    model, rows: list[Row], *, engine=None, atol: float = 1e-4, calls_model: bool = False, **options
) -> None:
    """Compare the scores of an engine with those of the plain engine.

    `calls_model` is True if the engine must call the plain engine.
    """
    expected = PlainEngine(model).run(rows, **options)
    with patch.object(PlainEngine, "batches", autospec=True, side_effect=PlainEngine.batches) as plain:
        scores = (engine or TorchEngine(model)).run(rows, **options)
    assert plain.called == calls_model
    assert len(scores) == len(expected) == len(rows)
    for row_scores, expected_scores in zip(scores, expected, strict=True):
        assert row_scores.dtype == expected_scores.dtype
        np.testing.assert_allclose(row_scores, expected_scores, atol=atol, rtol=1e-4)
