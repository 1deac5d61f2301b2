"""Compare one real task side by side: the sentiment of sentences from film reviews (SST-2).

    python benchmarks/side_by_side.py [--data FOLDER] [--runs 3] [--examples N] [--json] [--write-page]

* TF-IDF: words and pairs of words with logistic regression, in scikit-learn.
* albertkit: the bundled model after `finetune` with all defaults, in the pipeline of the base install.
* transformers: the same model after `Trainer` with the same number of epochs, batch size and learning rate,
  in its pipeline with batches of 32.
* base: the speed of both pipelines with random weights in the shape of ALBERT-base.

All sides train on sst2/train.tsv and predict sst2/test.tsv in --data. Each training and each prediction runs
in a new process. A prediction is measured --runs times, in turn, and the table has the medians. The time of a
prediction excludes the start of the process and the loading of the model; memory is the peak of the process.
The script needs the `test` extra and Linux. With all examples, it takes about 20 minutes on two cores.
"""

import pickle
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from finetuning_quality import DATA, ROOT, sst2
from report import Figure, command_line, compare, conditions, replace_table, show, state

Row = dict[str, Any]
Prediction = tuple[float, float, float]
"""Accuracy, texts per second and peak memory in MB."""


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of this module in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def measured(predict: Callable[[list[str]], list[str]], rows: list[Row]) -> Prediction:
    """Predict all rows after a warm-up."""
    predict([row["text"] for row in rows[:32]])
    begin = time.perf_counter()
    labels = predict([row["text"] for row in rows])
    seconds = time.perf_counter() - begin
    right = sum(label == row["label"] for label, row in zip(labels, rows, strict=True))
    peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
    return right / len(rows), len(rows) / seconds, int(peak) / 1024


def train_linear(rows: list[Row]) -> tuple[float, Any]:
    """Fit TF-IDF with logistic regression; return the seconds and the model."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    begin = time.perf_counter()
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
    model = make_pipeline(vectors, LogisticRegression(C=10, max_iter=1000))
    model.fit([row["text"] for row in rows], [row["label"] for row in rows])
    return time.perf_counter() - begin, model


def predict_linear(model: Any, rows: list[Row]) -> Prediction:
    """Predict with scikit-learn."""
    return measured(lambda texts: list(model.predict(texts)), rows)


def train_albertkit(rows: list[Row], folder: Path) -> tuple[float, Row]:
    """Fine-tune with all defaults; return the seconds and the settings."""
    from albertkit import finetune

    begin = time.perf_counter()
    run: Any = finetune("text-classification", train=rows, output=folder)
    return time.perf_counter() - begin, run.report["settings"]


def predict_albertkit(folder: Path, rows: list[Row]) -> Prediction:
    """Predict with albertkit's pipeline."""
    from albertkit import pipeline

    classify: Any = pipeline("text-classification", model=str(folder))
    return measured(lambda texts: [answer["label"] for answer in classify(texts)], rows)


def train_transformers(rows: list[Row], folder: Path, settings: Row) -> float:
    """Train with `transformers.Trainer`; return the seconds."""
    import torch
    import transformers

    from albertkit.hub import resolve

    transformers.logging.set_verbosity_error()
    source = resolve("bundled", patterns=("*",))
    begin = time.perf_counter()
    labels = sorted({row["label"] for row in rows})
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(
        source, dtype=torch.float32, id2label=dict(enumerate(labels))
    )
    data: Any = [
        tokenizer(row["text"], truncation=True, max_length=128) | {"labels": labels.index(row["label"])}
        for row in rows
    ]
    arguments = transformers.TrainingArguments(
        str(folder / "run"),
        num_train_epochs=settings["epochs"],
        per_device_train_batch_size=settings["batch_size"],
        learning_rate=settings["learning_rate"],
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    collate = transformers.DataCollatorWithPadding(tokenizer)
    transformers.Trainer(network, arguments, train_dataset=data, data_collator=collate).train()
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return time.perf_counter() - begin


def predict_transformers(folder: Path, rows: list[Row]) -> Prediction:
    """Predict with the pipeline of transformers."""
    from transformers import pipeline

    classify: Any = pipeline("text-classification", model=str(folder), device="cpu")
    return measured(lambda texts: [answer["label"] for answer in classify(texts, batch_size=32)], rows)


def write_base(folder: Path) -> None:
    """Write a classifier with random weights in the shape of ALBERT-base."""
    import numpy as np

    from albertkit import AlbertConfig, AlbertTokenizer
    from albertkit.checkpoints.folder import write_folder
    from albertkit.checkpoints.match import expected_shapes

    config = AlbertConfig.preset("base").replace(architectures=["AlbertForSequenceClassification"])
    random = np.random.default_rng(0)
    shapes = expected_shapes("AlbertForSequenceClassification", config)
    weights = {name: 0.02 * random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    write_folder(folder, config.to_dict(), weights)
    AlbertTokenizer.from_pretrained("bundled").save_pretrained(folder)


def size(folder: Path) -> float:
    """Return the megabytes of the files that a prediction reads."""
    names = ("model.safetensors", "config.json", "tokenizer.json", "spiece.model")
    return sum((folder / name).stat().st_size for name in names if (folder / name).exists()) / 1e6


def page_lines(
    train: int,
    test: int,
    accuracy: list[float],
    seconds: list[float],
    speed: list[float],
    memory: list[float],
    sizes: list[float],
) -> list[str]:
    """Return the lines of the README's table: a row for each side, and the conditions below."""
    sides = (
        "TF-IDF with logistic regression",
        "bundled model, albertkit",
        "bundled model, `transformers`",
        "ALBERT-base, albertkit",
        "ALBERT-base, `transformers`",
    )
    lines = [
        "| | accuracy | training | texts per second | memory | size on disk |",
        "|---|---|---|---|---|---|",
    ]
    for index, side in enumerate(sides):
        trained = ["", ""]  # the weights of ALBERT-base are random
        if index < len(seconds):
            trained = [f"{accuracy[index]:.3f}", f"{_two_digits(seconds[index])} s"]
        megabytes = f"{memory[index]:,.0f} MB", f"{_two_digits(sizes[index])} MB"
        figures = [_two_digits(speed[index]), *megabytes]
        lines.append(f"| {' | '.join([side, *trained, *figures])} |")
    counts = f"SST-2, {train:,} training and {test:,} test sentences"
    return [*lines, "", f"{counts}; {conditions()}."]


def _two_digits(number: float) -> str:
    """Round to two significant digits."""
    rounded = float(f"{number:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def main() -> None:
    """Run the benchmark and print the figures."""
    parser = command_line(__doc__, runs=3)
    parser.add_argument(
        "--data", type=Path, default=DATA, help="folder with sst2/train.tsv and sst2/test.tsv"
    )
    parser.add_argument("--examples", type=int, help="training and test examples (default: all)")
    parser.add_argument("--write-page", action="store_true", help="write the table into README.md")
    arguments = parser.parse_args()
    data = sst2(arguments.data)
    train, test = data.train[: arguments.examples], data.test[: arguments.examples]
    with tempfile.TemporaryDirectory() as name:
        ours, theirs, base = (Path(name, part) for part in ("ours", "theirs", "base"))
        linear_seconds, linear = in_new_process(train_linear, train)
        our_seconds, settings = in_new_process(train_albertkit, train, ours)
        their_seconds = in_new_process(train_transformers, train, theirs, settings)
        write_base(base)
        sides = [
            partial(predict_linear, linear),
            partial(predict_albertkit, ours),
            partial(predict_transformers, theirs),
            partial(predict_albertkit, base),
            partial(predict_transformers, base),
        ]
        results: list[list[Prediction]] = [[] for _ in sides]
        for _ in range(arguments.runs):
            for values, predict in zip(results, sides, strict=True):
                values.append(in_new_process(predict, test))
        accuracy, speed, memory = (
            [statistics.median(prediction[part] for prediction in values) for values in results]
            for part in range(3)
        )
        sizes = [len(pickle.dumps(linear)) / 1e6, *map(size, (ours, theirs, base, base))]
    seconds = [linear_seconds, our_seconds, their_seconds]

    def figures(other: int) -> list[Figure]:
        return [
            compare("accuracy", accuracy[1], accuracy[other], at_least=1),
            state("training (s)", seconds[1], seconds[other]),
            state("texts per second", speed[1], speed[other]),
            state("peak memory (MB)", memory[1], memory[other]),
            state("size on disk (MB)", sizes[1], sizes[other]),
        ]

    tables = [
        ("SST-2, bundled model", "transformers", figures(2)),
        ("SST-2, bundled model and a linear one", "TF-IDF", figures(0)),
        (
            "shape of ALBERT-base",
            "transformers",
            [
                state("texts per second", speed[3], speed[4]),
                state("peak memory (MB)", memory[3], memory[4]),
            ],
        ),
    ]
    for title, against, part in tables:
        show(title, part, as_json=arguments.json, against=against)
    if arguments.write_page:
        lines = page_lines(len(train), len(test), accuracy, seconds, speed, memory, sizes)
        replace_table(ROOT / "README.md", "benchmarks/side_by_side.py", lines)


if __name__ == "__main__":
    main()
