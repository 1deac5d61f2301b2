"""Tests of batches of rows: their order by length, their padding, and wrong rows and arguments."""

import pytest
import torch
from engine_rows import CLASSIFIER, engine_of
from modeling_twins import make

from albertkit.engines.choosing import ENGINES
from albertkit.engines.engine import Row, first_token, plan
from albertkit.engines.torch import pad_batch
from albertkit.errors import ConfigError, DataError


def row(input_ids: list[int], token_type_ids: list[int] | None = None) -> Row:
    return Row(input_ids=input_ids, token_type_ids=token_type_ids or [0] * len(input_ids), example=0)


def test_batches_of_rows_by_length() -> None:
    rows = [row([1] * length) for length in (3, 9, 1, 5, 5)]

    def planned(budget: int, max_rows: int | None = None, *, padded: bool = True) -> list[list[int]]:
        return [batch.numbers for batch in plan(rows, first_token, budget, max_rows, padded=padded)]

    assert planned(100, 2) == planned(100, 2, padded=False) == [[1, 3], [4, 0], [2]]
    assert planned(100) == planned(100, padded=False) == [[1, 3, 4, 0, 2]]
    # padding counts: three rows of 5 positions exceed 10, and a row that is too long is alone
    assert planned(10) == [[1], [3, 4], [0, 2]]
    assert planned(2) == planned(2, padded=False) == [[1], [3], [4], [0], [2]]
    assert planned(14, padded=False) == [[1, 3], [4, 0, 2]]


def test_pad_batch() -> None:
    rows = [row([5, 6, 7], [0, 1, 1]), row([8], [1])]
    batch = pad_batch(rows, pad_token_id=9, device=torch.device("cpu"))
    assert {name: values.tolist() for name, values in batch.items()} == {
        "input_ids": [[5, 6, 7], [8, 9, 9]],
        "attention_mask": [[1, 1, 1], [1, 0, 0]],
        "token_type_ids": [[0, 1, 1], [1, 0, 0]],
    }


@pytest.mark.parametrize("engine", ENGINES)
class TestWrongArguments:
    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (row([]), "row 1 has 0 input_ids and 0 token_type_ids"),
            (row([5, 6], [0]), "row 1 has 2 input_ids and 1 token_type_ids"),
        ],
    )
    def test_rows(self, engine: str, wrong: Row, message: str) -> None:
        with pytest.raises(DataError, match=f"{message}. Expected equal numbers above 0"):
            engine_of(make(CLASSIFIER), engine).run([row([5, 6, 7]), wrong])

    @pytest.mark.parametrize("position", [-1, 3])
    def test_positions_of_other_rows(self, engine: str, position: int) -> None:
        compute = engine_of(make("AlbertForTokenClassification"), engine).run
        with pytest.raises(DataError, match=rf"positions \[{position}\].*3 tokens.*Expected 0 to 2"):
            compute([row([5, 6, 7]), row([8, 9, 10])], read=lambda _: [position])

    @pytest.mark.parametrize("output", ["order", "scores"])
    def test_outputs(self, engine: str, output: str) -> None:
        with pytest.raises(ConfigError, match=f"{CLASSIFIER} has no output '{output}'.*hidden_states"):
            engine_of(make(CLASSIFIER), engine).run([row([5])], output=output)
