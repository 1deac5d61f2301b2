"""Compare text classification with albertkit and transformers, with the same random weights of ALBERT-base.

albertkit computes in fp32 with `--engine` and with the engine `torch`, and in int8. transformers computes
with PyTorch, and its graph with ONNX Runtime. The script needs the `test` extra.

    python benchmarks/inference.py [--texts dev.tsv] [--questions xquad.en.json] [--vocabulary spiece.model]
        [--count 192] [--runs 3] [--engine auto] [--processor-time] [--json] [--write-page]

--texts is a file with one text per line, in the first of its columns. --questions is a file in SQuAD format;
each question and its paragraph are a pair. Without these files, both come from Python's language reference.
GFLOP/s count the operations of all layers for the real tokens, even those that an engine skips, and are
compared with the fastest matrix product of this run. --write-page writes the tables into dev/measurements.md.
"""

import json
import random
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import onnxruntime
import torch
import transformers
from report import alternate, command_line, compare, show, state, write_page

from albertkit import AlbertConfig, AlbertForSequenceClassification, AlbertTokenizer, pipeline
from albertkit.bench import largest_product
from albertkit.footprint import measure as measure_footprint

BATCH_SIZES = (1, 8, 32)  # transformers computes pairs with the fastest of these
LONG = (8, 512)  # rows and tokens

Pair = dict[str, str]


def read_texts(file: Path | None, count: int) -> list[str]:
    """Return a random sample of the texts, so that all lengths occur."""
    if file is None:
        lines = [sentence for text in topics.values() for sentence in text.replace("\n", " ").split(". ")]
    else:
        lines = [line.split("\t")[0] for line in file.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if 10 < len(line) < 400]
    return random.Random(0).sample(lines, min(count, len(lines)))


def read_pairs(file: Path | None, count: int) -> list[Pair]:
    """Return a random sample of the questions, with their paragraphs."""
    if file is None:
        parts = [part for text in topics.values() for part in text.split("\n\n") if 300 < len(part) < 1200]
        pairs = [{"text": part.split(". ")[0][:100], "text_pair": part} for part in parts]
    else:
        pairs = [
            {"text": question["question"], "text_pair": paragraph["context"]}
            for article in json.loads(file.read_text(encoding="utf-8"))["data"]
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
    return random.Random(0).sample(pairs, min(count, len(pairs)))


class FirstOutput(torch.nn.Module):
    """A model of `transformers` that takes positional inputs and returns only the logits."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        """Return the logits (B, K) for inputs (B, T)."""
        return self.model(input_ids, attention_mask, token_type_ids, return_dict=False)[0]


def traced_graph(folder: Path) -> Callable[[list[str]], Any]:
    """Return a function that computes texts with the graph of `transformers` in ONNX Runtime."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    names, file = ["input_ids", "attention_mask", "token_type_ids"], str(folder / "traced.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            FirstOutput(model),
            tuple(torch.ones(2, 8, dtype=torch.long) for _ in names),
            file,
            input_names=names,
            dynamic_axes={name: {0: "batch", 1: "tokens"} for name in names},
            opset_version=17,
            dynamo=False,
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def compute(texts: list[str]) -> Any:
        batches = (texts[start : start + 32] for start in range(0, len(texts), 32))
        limits = {"truncation": True, "max_length": model.config.max_position_embeddings}
        return [
            session.run(None, {name: inputs[name] for name in names})[0]
            for some in batches
            if (inputs := tokenizer(some, padding=True, return_tensors="np", **limits))
        ]

    return compute


def main() -> None:
    """Run the benchmark and print the figures."""
    parser = command_line(__doc__, runs=3)
    parser.add_argument("--texts", type=Path, help="file with one text per line, in its first column")
    parser.add_argument("--questions", type=Path, help="file in SQuAD format")
    parser.add_argument("--vocabulary", type=Path, help="spiece.model to use instead of the bundled one")
    parser.add_argument(
        "--count", type=int, default=192, help="number of texts, and 8 times the number of pairs"
    )
    parser.add_argument("--engine", default="auto", help="engine of albertkit")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="for one thread on a busy machine: measure processor time",
    )
    parser.add_argument("--write-page", action="store_true", help="write the tables into dev/measurements.md")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.processor_time else time.perf_counter
    transformers.logging.set_verbosity_error()

    def seconds(work: Callable[[Any], Any], given: Any, repeat: int = 1) -> Callable[[], list[float]]:
        def measure() -> list[float]:
            begin = clock()
            for _ in range(repeat):
                work(given)
            return [(clock() - begin) / repeat]

        return measure

    texts, pairs = (
        read_texts(arguments.texts, arguments.count),
        read_pairs(arguments.questions, arguments.count // 8),
    )
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        tokenizer = (
            AlbertTokenizer(str(arguments.vocabulary))
            if arguments.vocabulary
            else AlbertTokenizer.from_pretrained("bundled")
        )
        tokenizer.save_pretrained(name)
        AlbertForSequenceClassification(AlbertConfig.preset("base")).save_pretrained(name)
        ours = pipeline("text-classification", name, device="cpu", engine=arguments.engine)
        int8 = pipeline("text-classification", name, device="cpu", engine="onnx-int8")
        by_torch = pipeline("text-classification", name, device="cpu", engine="torch")
        theirs = transformers.pipeline("text-classification", model=name, device="cpu")
        traced = traced_graph(Path(name))
    footprint = measure_footprint("AlbertForSequenceClassification", ours.model.config)
    cpu = torch.device("cpu")

    best_size = min(
        BATCH_SIZES, key=lambda size: seconds(lambda given: theirs(given, batch_size=size), pairs[:8])()[0]
    )
    long = [" ".join(texts[:40])] * LONG[0]  # longer than the maximum length
    short = "a film that is as good as it is long , and short ."
    ceiling = largest_product(cpu, clock=clock)
    results = {}
    for label, given, sides, repeat in (
        (
            "texts",
            texts,
            (ours, lambda given: theirs(given, batch_size=32), int8, traced, by_torch),
            1,
        ),
        ("pairs", pairs, (ours, lambda given: theirs(given, batch_size=best_size), by_torch), 1),
        ("short", short, (ours, theirs, int8), 5),
    ):
        timed = alternate(arguments.runs, *(seconds(side, given, repeat) for side in sides))
        results[label] = [side[0] for side in timed]
    results["long"] = [
        side[0]
        for side in alternate(
            arguments.runs,
            *(seconds(partial(classify, truncation=True), long) for classify in (ours, by_torch)),
        )
    ]
    difference = max(
        abs(first["score"] - second["score"])
        for inputs in (texts, pairs)
        for first, second in zip(ours(inputs), by_torch(inputs), strict=True)
    )
    ceiling = max(ceiling, largest_product(cpu, clock=clock))

    def length(given: str | Pair) -> int:
        both = (given,) if isinstance(given, str) else (given["text"], given["text_pair"])
        return min(LONG[1], len(tokenizer(*both, verbose=False)["input_ids"]))

    def speed(label: str, given: list[Any]) -> float:
        lengths = map(length, given)
        return sum(count * footprint.flops(count) for count in lengths) / results[label][0] / 1e9

    mine, other, rounded, graph, texts_torch = results["texts"]
    pair_mine, pair_other, pair_torch = results["pairs"]
    long_mine, long_torch = results["long"]
    short_mine, short_other, short_rounded = results["short"]
    count, short_name = len(texts), f"one text of {length(short)} tokens"
    figures = [
        compare("texts per second, batches of 32", count / mine, count / other, at_least=2.6),
        compare("the same against ONNX Runtime", count / mine, count / graph, at_least=1.9),
        compare("texts per second in int8", count / rounded, count / other, at_least=4.5),
        compare(
            f"pairs per second, batches of {best_size}",
            len(pairs) / pair_mine,
            len(pairs) / pair_other,
            at_least=1.5,
        ),
        compare(f"{short_name} (s)", short_mine, short_other, at_most=round(1 / 2.6, 3)),
        compare(f"{short_name} in int8 (s)", short_rounded, short_other, at_most=round(1 / 3.0, 3)),
    ]
    threads = torch.get_num_threads()
    tokens = sum(map(length, texts)) / len(texts), sum(map(length, pairs)) / len(pairs)
    shares = [
        compare(f"texts of {tokens[0]:.0f} tokens", speed("texts", texts), ceiling / 1e9, at_least=0.85),
        state(f"pairs of {tokens[1]:.0f} tokens", speed("pairs", pairs), ceiling / 1e9),
        compare(f"{LONG[0]} of {LONG[1]} tokens", speed("long", long), ceiling / 1e9, at_least=0.85),
    ]
    engines = [
        compare("texts per second", count / mine, count / texts_torch, at_least=0.95),
        compare("pairs per second", len(pairs) / pair_mine, len(pairs) / pair_torch, at_least=0.95),
        compare(
            f"{LONG[0]} of {LONG[1]} tokens: rows per second",
            LONG[0] / long_mine,
            LONG[0] / long_torch,
            at_least=0.95,
        ),
        compare("largest difference from the scores of torch", difference, 1e-5, at_most=1),
    ]
    tables = [
        (f"ALBERT-base, fp32 or int8, {threads} threads", "transformers", figures),
        (f"Engine {arguments.engine}", "engine torch", engines),
        ("GFLOP/s of real tokens, fp32", "largest product", shares),
    ]
    for title, against, rows in tables:
        show(title, rows, as_json=arguments.json, against=against)
    if arguments.write_page:
        write_page("measurements.md", "benchmarks/inference.py", tables)


if __name__ == "__main__":
    main()
