"""Compare fine-tuning with albertkit and with `transformers.Trainer`: tokens per second and peak memory.

    python benchmarks/finetuning.py [--texts train.tsv] [--tags train.txt] [--shape base] [--batch-size 32]
        [--steps 12] [--runs 1] [--processor-time] [--json] [--write-page]

Both sides train the shape of ALBERT-base from the same random weights, in fp32 with one thread. They use the
same examples, batch size, number of steps, optimizer (AdamW) and dropout. `Trainer` draws random batches and
pads each to its longest row (`DataCollatorWithPadding`, `DataCollatorForTokenClassification`). Padding does
not count as tokens. The first two steps of each side are a warm-up. Each side runs in a separate process, in
turn. Memory is the peak memory of the process minus its peak memory before training.

--texts is a file with a text and a label in each line, separated by a tab (SST-2). --tags is a file in CoNLL
format. Without these files, the examples are made from Python's language reference. The script needs the
extra `test`.
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from argparse import SUPPRESS
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from report import Figure, alternate, command_line, compare, show, write_page

WARM_UP = 2  # first steps, which are not measured
EXAMPLES = 4096
AIMS = {"text-classification": 1.9, "token-classification": 1.7}
AIM_MEMORY = 0.6

Case = dict[str, Any]


def read_texts(file: Path | None) -> list[dict[str, Any]]:
    """Return texts with labels from a file, or from Python's language reference."""
    if file is None:
        sentences = [part for text in topics.values() for part in text.replace("\n", " ").split(". ")]
        texts = [(sentence, str(number % 2)) for number, sentence in enumerate(sentences)]
    else:
        lines = file.read_text(encoding="utf-8").splitlines()
        texts = [(line.split("\t")[0], line.split("\t")[1]) for line in lines]
    return [{"text": text, "label": label} for text, label in texts if 10 < len(text) < 400]


def read_tags(file: Path | None) -> list[dict[str, Any]]:
    """Return sentences as words with tags, from a file or from Python's language reference."""
    if file is None:
        return [
            {"tokens": words, "ner_tags": ["O" if word.islower() else "B-NAME" for word in words]}
            for example in read_texts(None)
            if (words := example["text"].split())
        ]
    sentences = file.read_text(encoding="utf-8").strip().split("\n\n")
    columns = [[line.split() for line in sentence.splitlines()] for sentence in sentences]
    return [
        {"tokens": [line[0] for line in lines], "ner_tags": [line[-1] for line in lines]} for lines in columns
    ]


def peak() -> float:
    """Return the peak memory of this process so far, in MB."""
    divisor = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / divisor


def ours(case: Case) -> list[float]:
    """Train with `albertkit.finetune`; return tokens per second and memory in MB."""
    import torch

    from albertkit import finetune

    torch.set_num_threads(1)
    before = peak()
    with tempfile.TemporaryDirectory() as folder:
        finetune(
            case["task"],
            train=case["examples"],
            validation=case["examples"][:1],
            model=case["model"],
            output=Path(folder) / "run",
            steps=case["steps"] + WARM_UP,
            batch_size=case["batch_size"],
            max_length=case["max_length"],
            precision="fp32",
            learning_rate=1e-5,
            log_every=1,
        )
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [line for line in map(json.loads, lines) if "train/loss" in line][WARM_UP - 1 :]
    tokens, seconds = (steps[-1][name] - steps[0][name] for name in ("tokens", "seconds"))
    return [tokens / seconds, peak() - before]


def theirs(case: Case) -> list[float]:
    """Train with `transformers.Trainer`; return tokens per second and memory in MB."""
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(case["model"])
    if case["task"] == "text-classification":
        labels = sorted({example["label"] for example in case["examples"]})
        head: Any = transformers.AlbertForSequenceClassification
        collator: Any = transformers.DataCollatorWithPadding(tokenizer)
        rows: Any = [
            dict(tokenizer(example["text"], truncation=True, max_length=case["max_length"]))
            | {"labels": labels.index(example["label"])}
            for example in case["examples"]
        ]
    else:
        labels = sorted({tag for example in case["examples"] for tag in example["ner_tags"]})
        head = transformers.AlbertForTokenClassification
        collator = transformers.DataCollatorForTokenClassification(tokenizer)
        rows = []
        for example in case["examples"]:
            row = tokenizer(
                example["tokens"], is_split_into_words=True, truncation=True, max_length=case["max_length"]
            )
            words = row.word_ids()
            first = [word is not None and word != before for before, word in zip([None, *words], words)]  # noqa: B905
            tags = [
                labels.index(example["ner_tags"][word]) if begins else -100
                for word, begins in zip(words, first, strict=True)
            ]
            rows.append(dict(row) | {"labels": tags})
    model = head.from_pretrained(case["model"], num_labels=len(labels))
    marks: list[tuple[float, int]] = []
    counted = 0

    def collate(batch: list[Any]) -> Any:
        nonlocal counted
        counted += sum(len(row["input_ids"]) for row in batch)
        return collator(batch)

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            marks.append((time.perf_counter(), counted))

    before = peak()
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            max_steps=case["steps"] + WARM_UP,
            per_device_train_batch_size=case["batch_size"],
            learning_rate=1e-5,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = transformers.Trainer(
            model, arguments, train_dataset=rows, data_collator=collate, callbacks=[Clock()]
        )
        trainer.train()
    (begin, first_tokens), (end, last_tokens) = marks[WARM_UP - 1], marks[WARM_UP - 1 + case["steps"]]
    return [(last_tokens - first_tokens) / (end - begin), peak() - before]


def measure(side: str, case: Case) -> list[float]:
    """Run one side in a separate process with one thread."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ALBERTKIT_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, __file__, "--side", side],
        input=json.dumps(case),
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if result.returncode:
        raise SystemExit(f"{side} failed:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


def main() -> None:
    """Run the benchmark and print the figures."""
    parser = command_line(__doc__, runs=1)
    parser.add_argument("--texts", type=Path, help="a text and a label in each line, separated by a tab")
    parser.add_argument("--tags", type=Path, help="words and tags in CoNLL format")
    parser.add_argument("--shape", default="base", help="preset of AlbertConfig")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=12, help="measured steps of each side")
    parser.add_argument(
        "--processor-time", action="store_true", help="for a busy machine: measure processor time"
    )
    parser.add_argument("--write-page", action="store_true", help="write the tables into dev/measurements.md")
    parser.add_argument("--side", choices=["ours", "theirs"], help=SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        case = json.loads(sys.stdin.read())
        if case["processor_time"]:
            time.perf_counter = time.process_time
        print(json.dumps({"ours": ours, "theirs": theirs}[arguments.side](case)))
        return
    from albertkit import AlbertConfig, AlbertModel, AlbertTokenizer

    common = {
        "steps": arguments.steps,
        "batch_size": arguments.batch_size,
        "max_length": 128,
        "processor_time": arguments.processor_time,
    }
    tables: list[tuple[str, str, list[Figure]]] = []
    with tempfile.TemporaryDirectory() as folder:
        AlbertTokenizer.from_pretrained("bundled").save_pretrained(folder)
        AlbertModel(AlbertConfig.preset(arguments.shape)).save_pretrained(folder)
        data = {
            "text-classification": read_texts(arguments.texts),
            "token-classification": read_tags(arguments.tags),
        }
        for task, examples in data.items():
            examples = random.Random(0).sample(examples, min(EXAMPLES, len(examples)))
            case = common | {"task": task, "examples": examples, "model": folder}
            (speed, memory), (speed_theirs, memory_theirs) = alternate(
                arguments.runs,
                lambda case=case: measure("ours", case),
                lambda case=case: measure("theirs", case),
                warm_up=False,
            )
            figures = [
                compare(f"{task}: tokens/s", speed, speed_theirs, at_least=AIMS[task]),
                compare(f"{task}: peak memory (MB)", memory, memory_theirs, at_most=AIM_MEMORY),
            ]
            title = f"fine-tuning, {arguments.shape}, batches of {arguments.batch_size}"
            tables.append((title, "Trainer", figures))
            show(title, figures, as_json=arguments.json, against="Trainer")
    if arguments.write_page:
        write_page("measurements.md", "benchmarks/finetuning.py", tables)


if __name__ == "__main__":
    main()
