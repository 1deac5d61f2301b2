"""Record the results of the command line before a redesign, and compare them afterwards.

    python dev/golden.py record FOLDER      # before
    python dev/golden.py compare FOLDER     # after each step; exits with 1 if a result differs

The script uses only the command line and public names, so a record stays valid when the code behind them
changes. A record contains:

* losses, metrics, weights and predictions of ten steps of pretraining and of each fine-tuning task,
* the answers of pipelines with each engine,
* shards, an exported graph, and the names of all options.

On the same machine with one thread, all values must be equal bit for bit. Scores of ONNX Runtime may differ
by 1e-6. The script takes about two minutes.
"""

import argparse
import contextlib
import csv
import hashlib
import io
import json
import multiprocessing
import os
import random
import re
import runpy
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["COLUMNS"], os.environ["NO_COLOR"] = "300", "1"

WORDS = (
    *("the", "old", "sea", "man", "door", "room", "captain", "looked", "opened", "waited", "rain"),
    *("house", "letter", "never", "again", "upon", "river", "morning"),
)
VERBS = [
    *("fill-mask", "classify", "tag", "answer", "choose", "order", "embed", "serve", "playground", "bench"),
    *("train-tokenizer", "prepare", "pretrain", "finetune", "evaluate", "predict", "convert", "export onnx"),
    *("inspect model", "inspect attention"),
]
SHORT = [
    *("--steps", "10", "--batch-size", "4", "--precision", "fp32"),
    *("--optimizer", "adamw", "--learning-rate", "1e-4"),  # not the defaults, which may change
    *("--log-every", "1", "--evaluate-every", "5"),
]
TIMES = {"seconds", "tokens_per_second", "memory_gb", "minutes_left", "minutes", "mfu"}
ONNX_TOLERANCE = 1e-6


def sentence(draw: random.Random, words: int = 8) -> str:
    """Return a capitalized sentence of random words."""
    return " ".join(draw.choice(WORDS) for _ in range(words)).capitalize() + "."


def write_table(path: Path, names: list[str], rows: list[list[Any]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


def write_data(folder: Path) -> None:
    """Write a small labeled file for each task, and a corpus."""
    draw = random.Random(0)
    texts = [sentence(draw, draw.randint(3, 14)) for _ in range(40)]
    write_table(folder / "single.csv", ["text", "label"], [[text, draw.choice("ab")] for text in texts])
    pairs = [[text, sentence(draw), draw.choice("xyz")] for text in texts]
    write_table(folder / "pair.csv", ["text", "second", "label"], pairs)
    several = [[text, draw.choice(["a", "b", "a;b", ""])] for text in texts]
    write_table(folder / "several.csv", ["text", "label"], several)
    write_table(
        folder / "number.csv", ["text", "label"], [[text, round(draw.random() * 5, 2)] for text in texts]
    )
    choices = [[text, "Then", sentence(draw), sentence(draw), draw.randint(0, 1)] for text in texts]
    write_table(folder / "choice.csv", ["sent1", "sent2", "ending0", "ending1", "label"], choices)
    write_table(folder / "vectors.csv", ["text", "second"], [[text, sentence(draw)] for text in texts])
    with (folder / "tags.conll").open("w") as file:
        for text in texts:
            for word in text.rstrip(".").split():
                file.write(f"{word} {draw.choice(['O', 'O', 'B-A', 'I-A', 'B-B'])}\n")
            file.write("\n")
    questions = []
    for number, text in enumerate(texts):
        context = f"{text} {sentence(draw, 60)}"
        answers = [{"text": context.split()[1], "answer_start": context.index(" ") + 1}] if number % 4 else []
        question = {
            "id": str(number),
            "question": "Who was it?",
            "answers": answers,
            "is_impossible": not answers,
        }
        questions.append({"context": context, "qas": [question]})
    (folder / "squad.json").write_text(
        json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": questions}]})
    )
    for book in range(3):
        paragraphs = "\n\n".join(" ".join(sentence(draw) for _ in range(6)) for _ in range(60))
        (folder / f"book{book}.txt").write_text(paragraphs)


def write_model(folder: Path) -> None:
    """Save a small random encoder with the bundled tokenizer."""
    import torch

    from albertkit import AlbertConfig, AlbertForPreTraining, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained("bundled")
    torch.manual_seed(0)
    config = AlbertConfig(
        vocab_size=len(tokenizer),
        embedding_size=16,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=48,
        num_hidden_layers=3,
        max_position_embeddings=96,
        initializer_range=0.2,
    )
    AlbertForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def albertkit(folder: Path, *arguments: str) -> str:
    """Run the command line in this process, in a folder, and return what it prints."""
    printed, errors = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["albertkit", *arguments]
    try:
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(errors),
        ):
            runpy.run_module("albertkit", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise RuntimeError(
                f"albertkit {' '.join(arguments)} ended with {end.code}:\n{errors.getvalue()}"
            ) from end
    finally:
        sys.argv = argv
    return printed.getvalue()


def json_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def without_times(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in TIMES}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def finetuned(folder: Path, task: str, name: str, data: str, *options: str) -> dict[str, Any]:
    """Fine-tune for ten steps, evaluate and predict; return the results that must not change."""
    columns = [option for option in options if option.startswith(("--pair", "--label", "--choice"))]
    columns = [value for option in columns for value in (option, options[options.index(option) + 1])]
    paths = ["--train", data, "--validation", data, "--model", "model", "--output", name]
    albertkit(folder, "finetune", task, *paths, *SHORT, *options)
    run = folder / name
    results: dict[str, Any] = {
        "losses": [without_times(row) for row in json_lines((run / "metrics.jsonl").read_text())],
        "metrics": json.loads((run / "report.json").read_text())["metrics"],
        "weights": digest(run / "model.safetensors"),
    }
    predictions = run / "predictions.jsonl"
    results["predictions"] = json_lines(predictions.read_text()) if predictions.exists() else None
    for engine in ("torch", "plain", "onnx"):
        output = f"{name}-{engine}.jsonl"
        model = ["--model", name, "--engine", engine, *columns]
        albertkit(folder, "predict", "--input", data, "--output", output, *model)
        results[f"predict {engine}"] = json_lines((folder / output).read_text())
        lines = albertkit(folder, "evaluate", "--data", data, "--json", *model)
        figures = json_lines(lines)[-1]
        results[f"evaluate {engine}"] = (
            figures.get("metrics", figures) if isinstance(figures, dict) else figures
        )
    return results


def pretrained(folder: Path, name: str, *options: str) -> dict[str, Any]:
    """Pretrain for ten steps, and return the losses and the weights."""
    shape = (
        "[model]\nembedding_size = 16\nhidden_size = 32\nnum_hidden_layers = 2\nnum_attention_heads = 4\n"
        "intermediate_size = 48\nmax_position_embeddings = 64\n[examples]\nmax_seq_length = 48\n"
        "[training]\nsteps = 10\nlearning_rate = 1e-3\nwarmup_steps = 2\n"
        "evaluate_every = 5\nsave_every = 10\nlog_every = 1\n"
    )
    (folder / f"{name}.toml").write_text("evaluation_sequences = 16\n" + shape)
    paths = ["--recipe", f"{name}.toml", "--data", "shards", "--tokenizer", "bundled", "--output", name]
    albertkit(folder, "pretrain", *paths, "--precision", "fp32", *options)
    run = folder / name
    state = next(run.glob("checkpoints/*/training_state.safetensors"), None) or next(
        run.rglob("training_state.safetensors")
    )
    return {
        "losses": [without_times(row) for row in json_lines((run / "metrics.jsonl").read_text())],
        "weights": digest(state.with_name("model.safetensors")),
        "training_state": digest(state),
    }


def shards(folder: Path) -> dict[str, str]:
    books = [f"book{book}.txt" for book in range(3)]
    options = "--tokenizer bundled --workers 1 --holdout-every 10 --output shards"
    albertkit(folder, "prepare", *books, *options.split())
    return {
        str(path.relative_to(folder)): digest(path) for path in sorted((folder / "shards").rglob("*.arrow"))
    }


def vocabulary(folder: Path) -> dict[str, str]:
    options = ["--vocab-size", "40", "--output", "vocabulary", "--threads", "1"]
    albertkit(folder, "train-tokenizer", "book0.txt", "book1.txt", *options)
    return {"spiece.model": digest(folder / "vocabulary" / "spiece.model")}


def answers(folder: Path, engine: str) -> dict[str, Any]:
    """Return the answers of the commands that need no fine-tuned model."""
    model = ["--model", "model", "--engine", engine, "--json"]
    masked = ["The old [MASK] opened the door.", "A [MASK] [MASK] river."]
    second = "And then, in 1847, the sea was quiet."
    return {
        "fill-mask": json_lines(albertkit(folder, "fill-mask", *masked, *model)),
        "order": json_lines(albertkit(folder, "order", "The door opened.", second, *model)),
        "embed": json_lines(albertkit(folder, "embed", "The door opened.", second, *model)),
        "bundled": json_lines(albertkit(folder, "fill-mask", masked[0], "--engine", engine, "--json")),
    }


def exported(folder: Path) -> dict[str, Any]:
    """Export the encoder with its heads, and return the outputs of ONNX Runtime for fixed ids."""
    import numpy as np
    import onnxruntime

    albertkit(folder, "export", "onnx", "model", "exported")
    session = onnxruntime.InferenceSession(next((folder / "exported").rglob("*.onnx")))
    ids = np.arange(24, dtype=np.int64).reshape(2, 12) + 50
    values = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    inputs = {value.name: values[value.name] for value in session.get_inputs()}
    names = [value.name for value in session.get_outputs()]
    arrays = session.run(names, inputs)
    return {
        name: np.asarray(array).reshape(-1)[:64].tolist() for name, array in zip(names, arrays, strict=True)
    }


def options_of(verb: str) -> list[str]:
    return sorted(set(re.findall(r"--[a-z][a-z0-9-]+", albertkit(Path.cwd(), *verb.split(), "--help-all"))))


def record() -> dict[str, Any]:
    """Compute a record in a temporary folder."""
    with (
        tempfile.TemporaryDirectory() as name,
        ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool,
    ):
        folder = Path(name)
        write_data(folder)
        write_model(folder / "model")
        tasks = {
            "text-classification": "text-classification single single.csv",
            "pairs": "text-classification pair pair.csv --pair-column second",
            "several labels": "text-classification several several.csv --label-separator ;",
            "numbers": "text-classification number number.csv --problem-type regression",
            "token-classification": "token-classification tags tags.conll",
            "question-answering": "question-answering squad squad.json --doc-stride 16",
            "multiple-choice": "multiple-choice choice choice.csv --choice-columns ending0,ending1",
            "sentence-embedding": "sentence-embedding vectors vectors.csv --pair-column second",
        }
        jobs: dict[str, Any] = {
            **{name: (finetuned, *words.split()) for name, words in tasks.items()},
            "vocabulary": (vocabulary,),
            "export": (exported,),
            **{f"answers {engine}": (answers, engine) for engine in ("torch", "plain", "onnx")},
        }
        futures = {name: pool.submit(job[0], folder, *job[1:]) for name, job in jobs.items()}
        futures["shards"] = pool.submit(shards, folder)
        shard_files = futures["shards"].result()
        runs = {
            "adamw": ["--batch-size", "8", "--optimizer", "adamw"],
            "lamb": ["--batch-size", "8", "--optimizer", "lamb"],
            "tokens": ["--batch-tokens", "512"],
        }
        for run, options in runs.items():
            futures[f"pretrain {run}"] = pool.submit(pretrained, folder, f"pretrain-{run}", *options)
        futures |= {f"options {verb}": pool.submit(options_of, verb) for verb in VERBS}
        return {**{name: future.result() for name, future in futures.items()}, "shards": shard_files}


def differences(before: Any, after: Any, place: str) -> list[str]:
    """Return a line for each difference. Scores of ONNX Runtime may differ by `ONNX_TOLERANCE`."""
    if place.startswith("options "):
        return [f"{place}: {name} is missing from the help" for name in sorted(set(before) - set(after))]
    if isinstance(before, dict) and isinstance(after, dict):
        lines = [f"{place}.{name}: only in one record" for name in sorted(set(before) ^ set(after), key=str)]
        return lines + [
            line
            for key in before
            if key in after
            for line in differences(before[key], after[key], f"{place}.{key}")
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [line for number, (old, new) in pairs for line in differences(old, new, f"{place}[{number}]")]
    tolerance = ONNX_TOLERANCE if "onnx" in place or place.startswith("export") else 0.0
    if isinstance(before, float) and isinstance(after, float) and abs(before - after) <= tolerance:
        return []
    return [] if before == after else [f"{place}: {before!r} before, {after!r} now"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=["record", "compare"])
    parser.add_argument("folder", type=Path, help="folder of record.json")
    options = parser.parse_args()
    path = options.folder / "record.json"
    if options.verb == "record" and path.exists():
        raise SystemExit(f"{path} already exists. Delete it to make a new record.")
    if options.verb == "compare" and not path.exists():
        raise SystemExit(f"{path} does not exist. Run `record` first, with the code before the redesign.")
    now = json.loads(json.dumps(record()))
    if options.verb == "record":
        options.folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(now, indent=1))
        print(f"{path}: {len(now)} entries")
        return
    before = json.loads(path.read_text())
    lines = [f"{name}: no longer recorded" for name in before if name not in now]
    common = [name for name in before if name in now]
    lines += [line for name in common for line in differences(before[name], now[name], name)]
    print("\n".join(lines[:100]) or f"{len(before)} entries are equal")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
