"""Fine-tune the bundled model on four public tasks and write the table of docs/explanation/bundled-model.md.

    python scripts/task_figures.py --data ../shared/data --output runs/task-figures

`--data` has sst2/{train,dev}.tsv (text, label), rte/ (the XML files of the PASCAL challenges 1 to 3),
conll2000/{train,test}.txt and xquad/xquad.en.json. Each run keeps its folder, so the same command resumes it.
The script stores results in task_figures.jsonl, by task, settings, seeds and weights (for a random start, by
the config). It does not measure stored results again.

For each task, the script fine-tunes the model from its pretrained weights and from random weights, with
the numbers of seeds in `SEEDS` and the settings in `TASKS`. It also computes the baselines of
`task_baselines.py`. A run is evaluated only at its start and at its end. The evaluation data decides nothing.
"""

import argparse
import hashlib
import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pages import command_line, write_table
from task_baselines import BASELINES

from albertkit.config import AlbertConfig
from albertkit.datasets.options import DataOptions
from albertkit.files import atomic_path, file_sha256
from albertkit.finetuning.evaluate import REPORT_JSON
from albertkit.finetuning.finetune import SEEDS_JSON, finetune
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.hub import resolve
from albertkit.tasks.settings import TaskSettings

KEPT = Path(__file__).with_suffix(".jsonl")
PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "bundled-model.md"
BEGIN = "<!-- table: scripts/task_figures.py -->"
AT_THE_END = 10**9  # steps between evaluations: none during the training
DROPOUT = {"dropout": 0.2, "attention_dropout": 0.1, "classifier_dropout": 0.2}  # from random weights
LESS_DROPOUT = {"dropout": 0.1, "attention_dropout": 0.1, "classifier_dropout": 0.1}
# Questions need no dropout: even 0.1 is worse, because the model has to find their words in the text. On
# tags, 0.2 costs the bundled model four points.
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "classifier_dropout": 0.0}
ADAMW = {"optimizer": "adamw"}
TEST_DATA = (
    "SST-2 on its development set, RTE and CoNLL-2000 on their test sets, XQuAD on a quarter of its articles."
)
SEEDS = {"random": 2, "pretrained": 3}
"""Number of seeds of each start."""


@dataclass(frozen=True, kw_only=True)
class FigureTask:
    """A row of the table."""

    title: str
    task: str
    metrics: tuple[str, ...]
    files: Callable[[Path, Path], tuple[Path, Path]]
    """(data folder, folder for converted files) -> training and evaluation files."""
    options: DataOptions
    settings: dict[str, Any]
    pretrained: dict[str, Any] = field(default_factory=dict)
    """Settings for the pretrained start only, chosen on a part of the training data (dev/lab-notes.md)."""


def sst2(data: Path, _: Path) -> tuple[Path, Path]:
    return data / "sst2" / "train.tsv", data / "sst2" / "dev.tsv"


def rte(data: Path, made: Path) -> tuple[Path, Path]:
    """Train on everything except the test set of the third challenge, as in GLUE."""
    splits = {"train": ("rte1_dev", "rte1_test", "rte2_dev", "rte2_test", "rte3_dev"), "test": ("rte3_test",)}
    for split, names in splits.items():
        pairs = (
            pair for name in names for pair in ElementTree.parse(data / "rte" / f"{name}.xml").iter("pair")
        )
        rows = (
            {
                "text": (pair.findtext("t") or "").strip(),
                "pair": (pair.findtext("h") or "").strip(),
                "label": "entailment"
                if (pair.get("entailment") or pair.get("value")) in ("YES", "TRUE")
                else "not_entailment",
            }
            for pair in pairs
        )
        with atomic_path(made / f"{split}.jsonl") as file:
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return made / "train.jsonl", made / "test.jsonl"


def conll2000(data: Path, _: Path) -> tuple[Path, Path]:
    return data / "conll2000" / "train.txt", data / "conll2000" / "test.txt"


def xquad(data: Path, made: Path) -> tuple[Path, Path]:
    """Evaluate on every fourth article."""
    articles = json.loads((data / "xquad" / "xquad.en.json").read_text())["data"]
    splits = {
        "train": [article for number, article in enumerate(articles) if number % 4 != 3],
        "test": articles[3::4],
    }
    for split, chosen in splits.items():
        with atomic_path(made / f"{split}.json") as file:
            file.write_text(json.dumps({"version": "1.1", "data": chosen}))
    return made / "train.json", made / "test.json"


TASKS = {
    "sst2": FigureTask(
        title="SST-2, accuracy",
        task="text-classification",
        metrics=("accuracy",),
        files=sst2,
        options=DataOptions(header=False, text_column="0", label_column="1"),
        settings=ADAMW | {"epochs": 5, "learning_rate": 2e-4},
        pretrained=LESS_DROPOUT | {"optimizer": "muon", "learning_rate": 3e-4},
    ),
    "rte": FigureTask(
        title="RTE, accuracy",
        task="text-classification",
        metrics=("accuracy",),
        files=rte,
        options=DataOptions(pair_column="pair"),
        settings=ADAMW
        | {"epochs": 6, "learning_rate": 2e-4, "task": TaskSettings(max_length=128), **LESS_DROPOUT},
    ),
    "conll2000": FigureTask(
        title="CoNLL-2000 chunks, F1",
        task="token-classification",
        metrics=("f1",),
        files=conll2000,
        options=DataOptions(),
        settings=ADAMW | {"epochs": 3, "learning_rate": 6e-4},
        pretrained=NO_DROPOUT | {"classifier_dropout": 0.1, "optimizer": "muon"},
    ),
    "xquad": FigureTask(
        title="XQuAD in English, exact match / F1",
        task="question-answering",
        metrics=("exact", "f1"),
        files=xquad,
        options=DataOptions(),
        settings=ADAMW | {"epochs": 4, "learning_rate": 2e-4, "batch_size": 8, **NO_DROPOUT},
        pretrained={"learning_rate": 3e-4, "task": TaskSettings(max_length=128, doc_stride=64)},
    ),
}


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--only", choices=list(TASKS), nargs="*", default=list(TASKS))
    parser.add_argument("--write-page", action="store_true", help=f"write the table into {PAGE.name}")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.only:
        rows.append(figures(name, arguments))
        print(json.dumps(rows[-1]))
    table = to_markdown(rows)
    print(table)
    if arguments.write_page:
        write_table(PAGE, BEGIN, table)


def figures(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the metrics and baselines of one task."""
    row = TASKS[name]
    folder = arguments.output / name
    folder.mkdir(parents=True, exist_ok=True)
    files = row.files(arguments.data, folder)
    result: dict[str, Any] = {"task": name, "baselines": BASELINES[name](*files)}
    for start in ("pretrained", "random"):
        settings = DROPOUT | row.settings | (row.pretrained if start == "pretrained" else {})
        conditions = {
            "task": name,
            "start": start,
            "seeds": SEEDS[start],
            "settings": {
                key: asdict(value) if isinstance(value, TaskSettings) else value
                for key, value in settings.items()
            },
            "model": identity(arguments.model, start),
        }
        measured = kept(conditions)
        if measured is None:
            measured = measure(row, files, arguments.model, settings, start, folder / start)
            keep(conditions | measured)
        result[start] = measured
    return result


def identity(model: str, start: str) -> str:
    """Return an id of a start: the hash of its weights, or of its config if the weights are random."""
    folder = resolve(model, patterns=("config.json", "model.safetensors"))
    if start == "pretrained":
        return file_sha256(folder / "model.safetensors")[:8]
    config = AlbertConfig.from_pretrained(folder).to_dict()
    return hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()[:8]


def kept(conditions: dict[str, Any]) -> dict[str, Any] | None:
    """Return the stored record with these conditions, or None."""
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    records = [record for record in map(json.loads, lines) if conditions.items() <= record.items()]
    return records[-1] if records else None


def keep(record: dict[str, Any]) -> None:
    """Store a record."""
    before = KEPT.read_text() if KEPT.exists() else ""
    with atomic_path(KEPT) as file:
        file.write_text(f"{before}{json.dumps(record)}\n")


def measure(
    row: FigureTask, files: tuple[Path, Path], model: str, settings: dict[str, Any], start: str, output: Path
) -> dict[str, Any]:
    """Fine-tune with every seed; return mean and deviation of each metric, and the mean minutes of a run."""
    finetune(
        row.task,
        recipe=FinetuningSettings(from_scratch=start == "random", evaluate_every=AT_THE_END, **settings),
        model=model,
        train=files[0],
        validation=files[1],
        output=output,
        seeds=SEEDS[start],
        **asdict(row.options),
    )
    summary = json.loads((output / SEEDS_JSON).read_text())
    reports = [
        json.loads((output / f"seed-{seed}" / REPORT_JSON).read_text()) for seed in range(SEEDS[start])
    ]
    minutes = statistics.fmean(report["minutes"] for report in reports)
    return {metric: summary[metric] for metric in row.metrics} | {"minutes": minutes}


def to_markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table, with mean and standard deviation over the seeds."""
    lines = [
        "| | simple baselines | random start | pretrained start | minutes per run |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        task = TASKS[row["task"]]
        cells = [
            " / ".join(
                f"{row[start][metric]['mean']:.3f} ± {row[start][metric]['deviation']:.3f}"
                for metric in task.metrics
            )
            for start in SEEDS
        ]
        baselines = "; ".join(f"{name} {value}" for name, value in row["baselines"].items())
        minutes = f"{row['pretrained']['minutes']:.1f}"
        lines.append(f"| {task.title} | {baselines} | {cells[0]} | **{cells[1]}** | {minutes} |")
    seeds = " and ".join(f"{number} seeds ({start} start)" for start, number in SEEDS.items())
    return "\n".join([*lines, "", f"{TEST_DATA} Mean and standard deviation over {seeds}."])


if __name__ == "__main__":
    main()
