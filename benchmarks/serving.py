"""Measure the server under load, against its engine offline and a `transformers` pipeline behind FastAPI.

    python benchmarks/serving.py [--minutes 10] [--model FOLDER] [--json]

The texts come from Python's language reference. Without --model, the model has the shape of ALBERT-base and
random weights. --minutes is the duration of the load at four times the saturation throughput; each other load
takes a fifth of it. The script compares every response with the prediction of the pipeline.
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from report import Figure, command_line, compare, resident, show, state
from serving_load import Generator, Load

DEADLINE = 10.0  # seconds for each request
CLIENTS = 32  # enough to saturate the server
TEXTS = 400

NAIVE = """
import sys, warnings
import fastapi, uvicorn
from transformers import pipeline
warnings.simplefilter("ignore")
classify = pipeline("text-classification", sys.argv[1], device="cpu")
application = fastapi.FastAPI()
@application.post("/v1/classify")
def answer(body: dict):
    return {"results": [classify(body["input"])]}
print("serving", flush=True)
uvicorn.run(application, port=int(sys.argv[2]), log_level="warning")
"""


def make_model(folder: Path) -> None:
    """Save a classifier of the base shape, and a tokenizer."""
    import torch

    from albertkit import AlbertConfig, AlbertForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained("bundled")
    torch.manual_seed(0)
    AlbertForSequenceClassification(
        AlbertConfig(
            vocab_size=len(tokenizer), hidden_size=768, num_attention_heads=12, intermediate_size=3072
        )
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def sample_texts() -> list[str]:
    """Return texts of 4 to 60 words."""
    words = " ".join(topics.values()).split()
    lengths = [4 + 7 * number % 57 for number in range(TEXTS)]
    starts = [sum(lengths[:number]) for number in range(TEXTS)]
    return [" ".join(words[start : start + length]) for start, length in zip(starts, lengths, strict=True)]


@contextmanager
def started(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a server until the end of the block; yield its process and the first line that it prints."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.terminate()
        process.wait(60)


def measure_offline(model: str, texts: list[str], seconds: float) -> tuple[float, list[dict[str, Any]]]:
    """Measure the pipeline on a list of texts; return its texts per second and its predictions."""
    from albertkit import pipeline

    classify = pipeline("text-classification", model, device="cpu")
    answers = classify(texts)
    speeds = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or not speeds:
        begin = time.monotonic()
        classify(texts)
        speeds.append(len(texts) / (time.monotonic() - begin))
    return sorted(speeds)[len(speeds) // 2], answers


def measure_ours(
    model: str, bodies: list[bytes], is_right: Callable[[int, bytes], bool], offline: float, seconds: float
) -> tuple[list[Figure], float, float]:
    """Return the figures of the server, its texts per second, and the median latency of a single client."""
    with started("-m", "albertkit", "serve", "--model", f"bench={model}", "--port", "0") as (process, line):
        match = re.search(r":(\d+)$", line.strip())
        assert match, line
        generator = Generator(
            int(match[1]), "/v1/classify", bodies, is_right, f"X-Request-Timeout: {DEADLINE:g}\r\n"
        )
        generator.closed(CLIENTS, seconds / 10)  # a warm-up with rows of all shapes
        single = generator.closed(1, seconds / 5)
        full = generator.closed(CLIENTS, seconds / 5)
        half = generator.open(full.rate / 2, seconds / 5)
        at_capacity = generator.open(full.rate, seconds / 5)
        memory: list[float] = []
        over = generator.open(full.rate * 4, seconds, lambda _: memory.append(resident(process.pid)))
    settled = memory[len(memory) // 10 :]
    loads = (single, full, half, at_capacity, over)
    figures = [
        compare("texts/s at saturation, against offline", full.rate, offline, at_least=0.9),
        compare(
            "p99 at 0.5x, against one client alone (s)", half.quantile(0.99), single.quantile(0.99), at_most=4
        ),
        state("median at 0.5x, against one client alone (s)", half.quantile(0.5), single.quantile(0.5)),
        state("p99 at 1x, against one client alone (s)", at_capacity.quantile(0.99), single.quantile(0.99)),
        state("results/s at 4x, against saturation", over.rate, full.rate),
        compare("slowest result at 4x, against its deadline (s)", max(over.answered), DEADLINE, at_most=1),
        compare("memory at the end of 4x, against its start (MB)", settled[-1], settled[0], at_most=1.05),
    ]
    if over.refused:
        ranked = sorted(over.refused)
        figures.append(
            compare(
                "p99 of rejections at 4x, against the median of one client alone (s)",
                ranked[int(0.99 * len(ranked))],
                single.quantile(0.5),
                at_most=1,
            )
        )
    failed = sum((load.failed for load in loads), Counter())
    kinds = ", ".join(sorted(failed)) or "of any kind"
    figures += [
        _none("wrong answers", loads, sum(load.wrong for load in loads)),
        _none(f"failed requests ({kinds})", loads, failed.total()),
    ]
    return figures, full.rate, single.quantile(0.5)


def _none(name: str, loads: tuple[Load, ...], count: int) -> Figure:
    """Return a figure that must be 0."""
    total = sum(len(load.answered) + len(load.refused) + load.failed.total() for load in loads)
    return Figure(f"{name}, of requests", count, total, count / total, "<= 0", not count)


def measure_naive(
    model: str, bodies: list[bytes], is_right: Callable[[int, bytes], bool], seconds: float
) -> tuple[Load, Load]:
    """Measure a `transformers` pipeline behind FastAPI: at saturation, and with a single client."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with started("-c", NAIVE, model, str(port)):
        generator = Generator(port, "/v1/classify", bodies, is_right)
        while generator.closed(1, 0.5).failed:
            time.sleep(0.2)
        generator.closed(CLIENTS, seconds / 10)
        return generator.closed(CLIENTS, seconds / 5), generator.closed(1, seconds / 5)


def main() -> None:
    """Run the benchmark and print the figures."""
    parser = command_line(__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="duration of the load at 4x")
    parser.add_argument("--model", help="folder of a classifier to use instead of random weights")
    arguments = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    seconds = arguments.minutes * 60
    texts = sample_texts()
    bodies = [json.dumps({"input": text}).encode() for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or folder
        if arguments.model is None:
            make_model(Path(folder))
        offline, answers = measure_offline(model, texts, seconds / 5)

        def is_right(number: int, content: bytes) -> bool:
            result, expected = json.loads(content)["results"][0][0], answers[number]
            return result["label"] == expected["label"] and math.isclose(
                result["score"], expected["score"], rel_tol=1e-4
            )

        figures, ours, alone = measure_ours(model, bodies, is_right, offline, seconds)
        full, single = measure_naive(model, bodies, is_right, seconds)
    figures += [
        compare("texts/s at saturation, against transformers", ours, full.rate, at_least=1),
        state("median of one client alone, against transformers (s)", alone, single.quantile(0.5)),
    ]
    show("Serving on this machine", figures, as_json=arguments.json, against="compared with")


if __name__ == "__main__":
    main()
