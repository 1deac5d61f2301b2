"""Rows of any length for engines, and the comparison of an engine with the plain one."""

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
    """A few positions in any order, of some rows none."""
    rng = random.Random(sum(row.input_ids))
    return rng.sample(range(len(row.input_ids)), rng.randint(0, min(3, len(row.input_ids))))


def assert_equal(
    model, rows: list[Row], *, engine=None, atol: float = 1e-4, calls_model: bool = False, **options
) -> None:
    """Compare the scores of an engine with those of the plain one, and see which of them computed."""
    expected = PlainEngine(model).run(rows, **options)
    with patch.object(PlainEngine, "batches", autospec=True, side_effect=PlainEngine.batches) as plain:
        found = (engine or TorchEngine(model)).run(rows, **options)
    assert plain.called == calls_model
    assert len(found) == len(expected) == len(rows)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, atol=atol, rtol=1e-4)
