"""Small corpora, labeled files and models for the commands in the documentation."""

import csv
import json
import random
import re
import shutil
import subprocess
import tarfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from places import ROOT

import albertkit
from albertkit.datasets.official import GLUE_TASKS

Make = Callable[[Path, list[str], dict[str, str]], None]
"""A function of a path, 200 small texts and an environment with `albertkit`. It writes a file or folder."""


def write_books(path: Path, texts: list[str], _: dict[str, str]) -> None:
    path.mkdir()
    for number in range(0, len(texts), 4):
        (path / f"{number:03d}.txt").write_text("\n\n".join(texts[number : number + 4]), encoding="utf-8")


def write_corpus(path: Path, texts: list[str], _: dict[str, str]) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path)


def sentences(texts: list[str], columns: int, rows: int) -> Iterator[list[str]]:
    """Draw rows of sentences without commas."""
    lines = [line for text in texts for line in text.splitlines() if "," not in line]
    draw = random.Random(0)
    for _ in range(rows):
        yield [draw.choice(lines) for _ in range(columns)]


def write_table(*columns: str, delimiter: str = ",") -> Make:
    """Return a function that writes a table of sentences. The column `label` has `bad` or `good`."""
    classes = {"label": ("bad", "good")}

    def write(path: Path, texts: list[str], _: dict[str, str]) -> None:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerow(columns)
            for number, row in enumerate(sentences(texts, len(columns), rows=24)):
                writer.writerow(
                    [
                        classes.get(name, [cell] * 2)[number % 2]
                        for name, cell in zip(columns, row, strict=True)
                    ]
                )

    return write


def write_lines(path: Path, texts: list[str], _: dict[str, str]) -> None:
    path.write_text("".join(f"{line}\n" for (line,) in sentences(texts, 1, rows=20)), encoding="utf-8")


def write_json_lines(path: Path, texts: list[str], _: dict[str, str]) -> None:
    rows = [json.dumps({"text": line}) for (line,) in sentences(texts, 1, rows=20)]
    path.write_text("\n".join(rows), encoding="utf-8")


def write_records(path: Path, texts: list[str], _: dict[str, str]) -> None:
    """Write labeled sentences as records, separated by blank lines."""
    lines = [line for (line,) in sentences(texts, 1, rows=20)]
    records = [f"label: {('bad', 'good')[number % 2]}\ntext: {line}\n" for number, line in enumerate(lines)]
    path.write_text("\n".join(records), encoding="utf-8")


def copy_file(name: str) -> Make:
    """Return a function that copies a file that the pages offer for download."""

    def write(path: Path, texts: list[str], _: dict[str, str]) -> None:
        shutil.copy(ROOT / "docs" / "files" / name, path)

    return write


def write_glue(path: Path, texts: list[str], _: dict[str, str]) -> None:
    """Write two splits of each GLUE task on the pages, in its layout."""
    for name in ("cola", "sst2", "qqp", "qnli", "wnli", "stsb"):
        task = GLUE_TASKS[name]
        columns = task.columns or tuple(column for column in (task.text, task.pair, task.label) if column)
        (path / task.folder).mkdir(parents=True)
        for split in ("train", "dev"):
            with (path / task.folder / f"{split}.tsv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE)
                writer.writerows([] if task.columns else [columns])
                for number, row in enumerate(sentences(texts, len(columns), rows=8)):
                    row[columns.index(task.label)] = task.names[number % 2] if task.names else str(number % 5)
                    writer.writerow(row)


def write_xquad(path: Path, texts: list[str], _: dict[str, str]) -> None:
    articles = [
        {"paragraphs": [{"context": text} for text in texts[start : start + 5]]} for start in range(0, 200, 5)
    ]
    path.write_text(json.dumps({"data": articles}), encoding="utf-8")


def write_model(name: str, **config: object) -> Make:
    """Return a function that writes the bundled model with a new head."""

    def write(path: Path, texts: list[str], _: dict[str, str]) -> None:
        with warnings.catch_warnings(action="ignore"):  # warnings about the new head
            model = getattr(albertkit, name).from_pretrained("bundled", **config)
        model.save_pretrained(path)
        albertkit.AutoTokenizer.from_pretrained("bundled").save_pretrained(path)

    return write


def write_release(path: Path, texts: list[str], environment: dict[str, str]) -> None:
    """Pack the weights of the bundled model in the layout of the releases of Google."""
    folder = path.with_name("albert_base")
    command = ["albertkit", "convert", "bundled", folder, "--to", "tf1"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, "albert_base")


def train_as_on(page: str, name: str, options: str = "") -> Make:
    """Return a function that fine-tunes the model `name` of a page, with its data and its command."""

    def write(path: Path, texts: list[str], environment: dict[str, str]) -> None:
        for title, table in tables_of(page).items():
            path.with_name(title).write_text(table, encoding="utf-8")
        command = re.search(rf"^albertkit finetune (?:.*\\\n)*.*--output {name}$", text_of(page), re.M)
        assert command
        line = command[0].replace(f"--output {name}", f"--output {path.name} {options}")
        subprocess.run(
            ["bash", "-c", line], cwd=path.parent, env=environment, check=True, capture_output=True
        )

    return write


def write_validation(path: Path, texts: list[str], _: dict[str, str]) -> None:
    """Write the validation texts of a page as TSV."""
    table = tables_of("classify.md")["validation.csv"]
    path.write_text(table.replace(",", "\t"), encoding="utf-8")


def tables_of(page: str) -> dict[str, str]:
    """Return the tables of a page by their titles."""
    return dict(re.findall(r'```csv title="(.*?)"\n(.*?)```', text_of(page), re.DOTALL))


def text_of(page: str) -> str:
    return (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8")


FILES: dict[str, Make] = {
    "books": write_books,
    "corpus": write_corpus,
    "glue": write_glue,
    "labeled texts": write_table("text", "label"),
    "labeled tsv": write_table("text", "label", delimiter="\t"),
    "pairs": write_table("sentence1", "sentence2"),
    "texts": write_table("text"),
    "lines": write_lines,
    "json lines": write_json_lines,
    "two columns": write_table("first", "second", delimiter="\t"),
    "classifier": write_model("AlbertForSequenceClassification", id2label={0: "bad", 1: "good"}),
    "topics": train_as_on("zero-shot.md", "topics"),
    "kinds": train_as_on("classify.md", "kinds", "--precision fp32"),
    "validation tsv": write_validation,
    "tagger": write_model("AlbertForTokenClassification", id2label={0: "O", 1: "B-PER", 2: "I-PER"}),
    "reader": write_model("AlbertForQuestionAnswering"),
    "chooser": write_model("AlbertForMultipleChoice"),
    "tickets": copy_file("tickets.csv"),
    "workbook": copy_file("tickets.xlsx"),
    "records": write_records,
    "google's release": write_release,
    "xquad": write_xquad,
}

GIVEN: dict[str, dict[str, str]] = {
    "README.md": {
        "books": "books",
        "train.csv": "labeled texts",
        "dev.csv": "labeled texts",
        "test.csv": "labeled texts",
    },
    "tutorials/csv-to-server.md": {"tickets.csv": "tickets"},
    "tutorials/pretrain-your-books.md": {"books": "books"},
    "how-to/embed.md": {"pairs.csv": "pairs", "dev-pairs.csv": "pairs", "texts.csv": "texts"},
    "how-to/onnx.md": {"my-model": "kinds", "dev.tsv": "validation tsv"},
    "how-to/share.md": {"my-model": "classifier"},
    "how-to/train-on-gpus.md": {"train.csv": "labeled texts", "dev.csv": "labeled texts"},
    "how-to/convert.md": {"albert_base_v2.tar.gz": "google's release", "my-model": "classifier"},
    "reference/cli.md": {
        "my-model": "classifier",
        "tagger": "tagger",
        "reader": "reader",
        "M": "chooser",
        "albert_base_v2.tar.gz": "google's release",
    },
    "reference/file-formats.md": {"books": "books", "train.csv": "labeled texts", "dev.csv": "labeled texts"},
    "reference/recipes.md": {"books": "books", "train.csv": "labeled texts", "dev.csv": "labeled texts"},
    "how-to/continue-pretraining.md": {
        "my-domain": "books",
        "train.csv": "labeled texts",
        "dev.csv": "labeled texts",
    },
    "how-to/corpora.md": {"books": "books"},
    "how-to/fine-tune.md": {
        "train.csv": "labeled texts",
        "dev.csv": "labeled texts",
        "test.csv": "labeled texts",
        "new.jsonl": "json lines",
        "pairs.csv": "pairs",
        "dev-pairs.csv": "pairs",
        "texts.csv": "texts",
        "glue": "glue",
    },
    "how-to/mistakes.md": {"tickets.csv": "tickets"},
    "how-to/new-language.md": {"xquad.de.json": "xquad"},
    "how-to/own-task.md": {"train.txt": "records"},
    "how-to/compare-runs.md": {"tickets.csv": "tickets"},
    "how-to/pandas-and-pytorch.md": {"tickets.csv": "tickets"},
    "how-to/spreadsheets.md": {"tickets.xlsx": "workbook"},
    "how-to/training-callbacks.md": {"tickets.csv": "tickets"},
    "how-to/transformers-trainer.md": {"tickets.csv": "tickets"},
    "how-to/peft.md": {"tickets.csv": "tickets"},
    "how-to/pretrain.md": {"books.parquet": "corpus"},
    "how-to/serve.md": {"runs/reviews": "classifier"},
    "how-to/speed.md": {
        "my-model": "classifier",
        "reviews.txt": "lines",
        "train.tsv": "labeled tsv",
        "dev.tsv": "labeled tsv",
    },
    "how-to/zero-shot.md": {"topics": "topics"},
    "how-to/use-a-model.md": {"run": "classifier", "reviews.txt": "lines", "pairs.tsv": "two columns"},
}
"""Page -> {name of a file that the page needs: its key in FILES}."""
