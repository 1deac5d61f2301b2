"""Tests of tokenizers in other processes and threads, of imports, and of the time for long texts."""

import copy
import multiprocessing
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.tokenizer import AlbertTokenizer

TEXT = "The captain, in 1847, found a well-kept [MASK] near the café."


def test_copies_and_pickles(tiny: TokenizerBase, tmp_path: Path) -> None:
    tiny = copy.deepcopy(tiny)
    tiny.add_tokens(["newword"])
    for other in (pickle.loads(pickle.dumps(tiny)), copy.deepcopy(tiny), copy.copy(tiny)):
        assert other(TEXT + " newword") == tiny(TEXT + " newword")
        assert len(other) == 501
    other = copy.deepcopy(tiny)
    other.add_tokens(["more"])
    assert len(tiny) == 501
    assert pickle.loads(pickle.dumps(other)).save_pretrained(tmp_path)


def test_calls_do_not_change_the_pickle(tiny: TokenizerBase) -> None:
    """`datasets` would not find cached results if a call changed the pickle."""
    before = pickle.dumps(tiny)
    tiny.decode(tiny([TEXT] * 20, return_offsets_mapping=True, truncation=True, max_length=8)["input_ids"][0])
    assert pickle.dumps(tiny) == before


def encode_into(tokenizer: TokenizerBase, texts: list[str], queue) -> None:
    queue.put(tokenizer(texts)["input_ids"])


def test_forked_processes(tiny: TokenizerBase) -> None:
    texts = [f"{TEXT} {number}" for number in range(50)]
    expected = tiny(texts)["input_ids"]  # starts threads before the fork
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    children = [context.Process(target=encode_into, args=(tiny, texts, queue)) for _ in range(3)]
    for child in children:
        child.start()
    assert [queue.get() for _ in children] == [expected] * 3
    for child in children:
        child.join(20)
        assert child.exitcode == 0


def test_threads(tiny: TokenizerBase) -> None:
    texts = [f"{TEXT} {number}" for number in range(40)]
    expected = dict(tiny(texts, return_offsets_mapping=True))
    results: list[dict] = []
    threads = [
        threading.Thread(target=lambda: results.append(dict(tiny(texts, return_offsets_mapping=True))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [expected] * 8


def test_encoding_imports_no_large_library(tiny_vocabulary: Path) -> None:
    program = (
        "import sys; from albertkit.tokenization.tokenizer import AlbertTokenizer;"
        f"AlbertTokenizer({str(tiny_vocabulary)!r})('a fox');"
        "print([name for name in ('torch', 'tokenizers', 'numpy', 'transformers') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"


# ---- time ----


UNITS = {
    "one letter": "a",
    "words": "the captain found a key ",
    "digits": "1990,",
    "unknown": "\u2603",
    "accents": "e\u0301\u0327 ",
    "quotes": "''",
    "spaces": " \t",
    "control tokens": "[MASK]",
}


def encoding_time(tokenizer: TokenizerBase, unit: str, size: int, *, offsets: bool) -> float:
    """Return the CPU time for a text of `size` bytes that repeats `unit`."""
    text = unit * (size // len(unit.encode()))
    start = time.process_time()
    tokenizer(text, return_offsets_mapping=offsets, verbose=False)
    return time.process_time() - start


# A text that is 20 times as long should take 20 times the CPU time, or somewhat more on a busy machine.
# Quadratic time would be 400 times.
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_time_is_linear_in_the_length_of_the_text(unit: str, tiny_vocabulary: Path) -> None:
    tokenizer = AlbertTokenizer(tiny_vocabulary)
    for offsets, size in ((False, 25_000), (True, 2_500)):
        small = max(0.001, min(encoding_time(tokenizer, unit, size, offsets=offsets) for _ in range(2)))
        assert encoding_time(tokenizer, unit, 20 * size, offsets=offsets) < 100 * small
