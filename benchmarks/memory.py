"""Check that memory stays constant: in engines over many batches on a CPU, and in `predict` over a long file.

    python benchmarks/memory.py [--batches 10000] [--texts 100000] [--engines torch,onnx,onnx-int8,plain]
        [--dtype float32] [--json] [--write-page]

The model has the shape of the bundled one, with 512 positions and random weights. A batch has up to 1,024
tokens in rows of random lengths, and small batches are as frequent as large ones. Half of the batches compute
the logits at [CLS], the other half hidden states of random tokens. Each engine runs in a separate process.

`albertkit predict` runs with a classifier made from the bundled model, on sentences of Python's language
reference. The script reads the resident memory from /proc, so it needs Linux. --batches 0 or --texts 0 skips
that part. --write-page writes the table into dev/measurements.md.
"""

import json
import math
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from pydoc_data.topics import topics

from report import Figure, command_line, compare, resident, show, state, write_page

MARKS = (0.1, 0.5, 1.0)  # shares of the batches; later memory is compared with the first mark
MAX_TOKENS, MAX_LENGTH = 1024, 512  # of a batch, of a row
MAX_GROWTH = 1.05
MAX_MEMORY = 1536.0  # MB, for `predict`
_INTERVAL = 0.1  # seconds between two readings of the memory


def engine_memory(engine: str, dtype: str, batches: int) -> list[float]:
    """Return the resident memory of this process in MB after each of `MARKS`."""
    import numpy as np

    from albertkit import AlbertConfig
    from albertkit.checkpoints.arrays import DTYPES
    from albertkit.checkpoints.match import expected_shapes
    from albertkit.engines.choosing import make_engine
    from albertkit.engines.engine import Row, first_token
    from albertkit.engines.light_model import LightModel

    config = AlbertConfig.from_pretrained("bundled", max_position_embeddings=MAX_LENGTH, dtype=dtype)
    head = "AlbertForSequenceClassification"
    normal = np.random.default_rng(0).standard_normal
    weights = {
        name: (0.02 * normal(shape)).astype(DTYPES[dtype])
        for name, shape in expected_shapes(head, config).items()
    }
    computing = make_engine(LightModel(head, config, weights), engine)
    rng = random.Random(0)

    def some_tokens(row: Row) -> list[int]:
        length = len(row.input_ids)
        return rng.sample(range(length), rng.randint(1, length))

    memory = []
    marks = [max(1, round(mark * batches)) for mark in MARKS]
    for number in range(1, batches + 1):
        remaining = _between(rng, MAX_TOKENS)
        rows = []
        while remaining:
            length = _between(rng, min(remaining, MAX_LENGTH))
            remaining -= length
            ids = [rng.randrange(config.vocab_size) for _ in range(length)]
            rows.append(Row(input_ids=ids, token_type_ids=[0] * length, example=len(rows)))
        if rng.random() < 0.5:
            computing.run(rows, read=first_token)
        else:
            computing.run(rows, output="hidden_states", read=some_tokens)
        if number in marks:
            memory += [resident()] * marks.count(number)
    return memory


def _between(rng: random.Random, maximum: int) -> int:
    """Draw a number from 1 to `maximum`; its logarithm is uniformly distributed."""
    return min(maximum, int(math.exp(rng.uniform(0, math.log(maximum + 1)))))


def engine_figures(engine: str, dtype: str, batches: int) -> list[Figure]:
    """Compare the memory of an engine at the later marks with the first mark."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        first, middle, last = pool.submit(engine_memory, engine, dtype, batches).result()
    counts = [round(mark * batches) for mark in MARKS]
    name = f"{engine}, {dtype}: after {{:,}} batches, against {counts[0]:,}"
    return [
        state(name.format(counts[1]), middle, first),
        compare(name.format(counts[2]), last, first, at_most=MAX_GROWTH),
    ]


def predict_figures(count: int) -> list[Figure]:
    """Return the memory of `albertkit predict` on `count` texts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make_classifier(folder / "model")
        sentences = " ".join(topics.values()).replace("\n", " ").split(". ")
        texts = [text for text in sentences if 10 < len(text) < 200]
        with (folder / "texts.jsonl").open("w") as file:
            rng = random.Random(0)
            file.writelines(json.dumps({"text": rng.choice(texts)}) + "\n" for _ in range(count))
        command = [sys.executable, "-m", "albertkit", "predict", "--device", "cpu"]
        files = {"--model": "model", "--input": "texts.jsonl", "--output": "answers.jsonl"}
        command += [word for flag, file in files.items() for word in (flag, str(folder / file))]
        finished = folder / "answers.jsonl.partial"
        readings: list[tuple[int, float]] = []  # bytes of finished predictions, and memory in MB
        process = subprocess.Popen(command)
        while process.poll() is None:
            try:
                done = finished.stat().st_size if finished.exists() else 0
                readings.append((done, resident(process.pid)))
            except (OSError, IndexError):  # the process has just ended
                break
            time.sleep(_INTERVAL)
        if process.wait():
            raise SystemExit(f"albertkit predict ended with exit status {process.returncode}")
        if (answers := sum(1 for _ in (folder / "answers.jsonl").open())) != count:
            raise SystemExit(f"albertkit predict wrote {answers:,} predictions for {count:,} texts")
    end = max(done for done, _ in readings)
    first = max(memory for done, memory in readings if 0 < done <= end / 4)
    last = max(memory for done, memory in readings if done > 3 * end / 4)
    name = f"predict, {count:,} texts"
    return [
        compare(
            f"{name}: peak, against the limit", max(memory for _, memory in readings), MAX_MEMORY, at_most=1
        ),
        compare(f"{name}: last quarter, against the first", last, first, at_most=MAX_GROWTH),
    ]


def _make_classifier(folder: Path) -> None:
    from albertkit import AlbertForSequenceClassification, AutoTokenizer

    AlbertForSequenceClassification.from_pretrained("bundled").save_pretrained(folder)
    AutoTokenizer.from_pretrained("bundled").save_pretrained(folder)


def main() -> None:
    """Run the benchmark and print the figures."""
    parser = command_line(__doc__)
    parser.add_argument("--batches", type=int, default=10_000, help="random batches for each engine")
    parser.add_argument("--texts", type=int, default=100_000, help="texts for `predict`")
    parser.add_argument("--engines", default="torch,onnx,onnx-int8,plain")
    parser.add_argument("--dtype", default="float32", help="dtype of the weights: float32 or bfloat16")
    parser.add_argument("--write-page", action="store_true", help="write the table into dev/measurements.md")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    works = [
        partial(engine_figures, engine, arguments.dtype, arguments.batches)
        for engine in arguments.engines.split(",")
        if arguments.batches
    ]
    works += [partial(predict_figures, arguments.texts)] if arguments.texts else []
    for work in works:
        results = work()
        show("Memory (MB)", results, as_json=arguments.json, against="compared with")
        figures += results
    if arguments.write_page:
        write_page("measurements.md", "benchmarks/memory.py", [("memory (MB)", "compared with", figures)])


if __name__ == "__main__":
    main()
