"""Compare inference on a GPU with albertkit and with transformers, eager and compiled, with the same weights.

    python benchmarks/inference_gpu.py [--device cuda] [--shape base] [--texts 2048] [--long 256]
        [--dtypes float16 bfloat16] [--runs 3] [--json]

There are two workloads: texts of mixed lengths, mostly short, and rows of 512 tokens. transformers gets its
rows sorted by length, in padded batches of the fastest of three sizes. Its compiled model (`torch.compile`,
dynamic shapes) is warmed up with all three. Tokenizing is not measured, because both sides do it on the CPU.
The script needs the `test` extra.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import transformers
from report import Figure, alternate, command_line, compare, show, state

from albertkit import AlbertConfig, AlbertForSequenceClassification
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import Row, first_token

BATCH_SIZES = (64, 256, 1024)
AIM = 1.5


def draw_rows(lengths: np.ndarray, vocab_size: int) -> list[Row]:
    """Return rows of random ids."""
    random = np.random.default_rng(0)
    return [
        Row(
            input_ids=random.integers(5, vocab_size, length).tolist(),
            token_type_ids=[0] * int(length),
            example=number,
        )
        for number, length in enumerate(lengths)
    ]


def padded(model: Any, rows: list[Row], size: int, device: torch.device) -> np.ndarray:
    """Compute padded batches with a model; return the logits (rows, labels) in the order of the rows."""
    order = sorted(range(len(rows)), key=lambda number: len(rows[number].input_ids))
    scores: list[torch.Tensor] = []
    with torch.inference_mode():
        for begin in range(0, len(order), size):
            chosen = [rows[number].input_ids for number in order[begin : begin + size]]
            ids = np.zeros((len(chosen), max(map(len, chosen))), np.int64)
            mask = np.zeros_like(ids)
            for number, row in enumerate(chosen):
                ids[number, : len(row)], mask[number, : len(row)] = row, 1
            tensors = [torch.from_numpy(array).to(device, non_blocking=True) for array in (ids, mask)]
            scores.append(model(input_ids=tensors[0], attention_mask=tensors[1]).logits.float())
    return torch.cat(scores).cpu().numpy()[np.argsort(order)]


def seconds(work: Callable[[], Any]) -> Callable[[], list[float]]:
    """Return a function that measures the seconds of a call. The call must return its results on the CPU."""

    def measure() -> list[float]:
        begin = time.perf_counter()
        work()
        return [time.perf_counter() - begin]

    return measure


def figures(
    *,
    device: str,
    shape: Any,
    layers: int | None,
    texts: int,
    long: int,
    dtypes: list[str],
    runs: int,
    compiled: bool,
    sizes: tuple[int, ...] = BATCH_SIZES,
) -> list[Figure]:
    """Return the speed of both sides on both workloads, and the largest difference of their scores.

    Args:
        device: device of both sides.
        shape: preset of AlbertConfig.
        layers: number of layers; None for that of the preset.
        texts: rows of mixed lengths.
        long: rows of 512 tokens.
        dtypes: data types of the weights.
        runs: measured runs of each side.
        compiled: whether transformers' model is compiled.
        sizes: batch sizes of transformers, of which the fastest counts.
    """
    transformers.logging.set_verbosity_error()
    changed: dict[str, Any] = {"num_hidden_layers": layers} if layers else {}
    config = AlbertConfig.preset(shape, **changed)
    lengths = np.random.default_rng(1).lognormal(3.2, 0.6, texts).astype(int).clip(4, 256)
    loads = {
        f"{texts} texts of {lengths.mean():.0f} tokens": draw_rows(lengths, config.vocab_size),
        f"{long} x 512 tokens": draw_rows(np.full(long, 512), config.vocab_size),
    }
    side = "compiled" if compiled else "eager"
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        AlbertForSequenceClassification(config).save_pretrained(folder)
        for name in dtypes:
            dtype = getattr(torch, name)
            ours = AlbertForSequenceClassification.from_pretrained(folder).to(device, dtype).eval()
            theirs: Any = transformers.AlbertForSequenceClassification.from_pretrained(folder)
            theirs = theirs.to(device, dtype).eval()
            called = torch.compile(theirs, dynamic=True) if compiled else theirs
            engine = make_engine(ours, "torch")
            for load, rows in loads.items():
                our_work = partial(engine.run, rows, output="logits", read=first_token)
                works = [partial(padded, called, rows, size, torch.device(device)) for size in sizes]
                for work in works:
                    work()  # also compiles
                their_work = min(works, key=lambda work: seconds(work)()[0])
                ((our_time,), (their_time,)) = alternate(runs, seconds(our_work), seconds(their_work))
                speeds = len(rows) / our_time, len(rows) / their_time
                figures.append(compare(f"{name}, {load}, {side} (texts/s)", *speeds, at_least=AIM))
                our_scores = np.stack(our_work()).reshape(len(rows), -1)
                difference = float(np.abs(our_scores - padded(theirs, rows, 64, torch.device(device))).max())
                figures.append(state(f"{name}, {load}: largest difference of a logit", difference))
    return figures


def main() -> None:
    """Run the benchmark and print the figures."""
    parser = command_line(__doc__, runs=3)
    parser.add_argument("--device", default="cuda", help="device of both sides")
    parser.add_argument("--shape", default="base", help="preset of AlbertConfig")
    parser.add_argument("--layers", type=int, help="number of layers; overrides the preset")
    parser.add_argument("--texts", type=int, default=2048, help="rows of mixed lengths")
    parser.add_argument("--long", type=int, default=256, help="rows of 512 tokens")
    parser.add_argument("--dtypes", nargs="+", default=["float16", "bfloat16"])
    parser.add_argument("--no-compile", action="store_true", help="skip torch.compile")
    options = vars(parser.parse_args())
    as_json, no_compile = options.pop("json"), options.pop("no_compile")
    title = f"{options['shape']}, {device_name(torch.device(options['device']))}"
    for compiled in (False,) if no_compile else (False, True):
        show(title, figures(**options, compiled=compiled), as_json=as_json)


def device_name(device: torch.device) -> str:
    """Return the name of a GPU, or the type of another device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


if __name__ == "__main__":
    main()
