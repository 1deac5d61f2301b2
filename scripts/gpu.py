"""Run tests, benchmarks and a training run on a machine with a GPU.

    python scripts/gpu.py [--minutes 25] [--texts books.parquet] [--tokenizer bundled] [--output gpu]
                          [--page dev/gpu-report.md] [--stages tests inference pretraining training]
                          [--dry-run]

The stages run in this order. The first three run in separate processes with a time limit.

1. tests: `pytest tests/gpu` on the GPU.
2. inference: benchmarks/inference_gpu.py.
3. pretraining: benchmarks/pretraining.py --only gpu.
4. training: `albertkit pretrain` with recipes/small-1gpu-start.toml and then recipes/small-1gpu.toml, for the
   remaining minutes. The same command resumes it. This stage needs --texts.

The script writes the output of the stages, `report.json` and the run into the folder of --output. It writes
the figures and the name of the machine to the file of --page. If a stage fails, the others still run, but the
exit status is 1. --dry-run runs all stages with tiny shapes, also without a GPU. Its figures mean nothing.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
from pages import command_line

from albertkit.files import atomic_path, write_json
from albertkit.recipe import read_recipe

ROOT = Path(__file__).parents[1]
STAGES = ("tests", "inference", "pretraining", "training")
TRAINING_RESERVE = 60  # seconds for the last checkpoint and evaluation
TINY = {
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}


@dataclass(frozen=True)
class Stage:
    """The result of a stage."""

    name: str
    succeeded: bool
    seconds: float
    summary: str
    """The last printed line, or the number of figures."""
    figures: list[dict[str, Any]]


def run_stage(name: str, command: list[str], output: Path, *, seconds: float) -> Stage:
    """Run a command with a time limit, and write its output to `output/NAME.log`."""
    begin = time.perf_counter()
    log = output / f"{name}.log"
    with log.open("w", encoding="utf-8") as file:
        try:
            result = subprocess.run(
                [sys.executable, *command],
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
                cwd=ROOT,
            )
            status = result.returncode
        except subprocess.TimeoutExpired:
            status = None
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    figures = [json.loads(line) for line in lines if line.startswith('{"name": ')]
    last_line = lines[-1] if lines else "no output"
    if status is None:
        summary = f"stopped at the limit of {seconds:.0f} s"
    else:
        summary = f"{len(figures)} figures" if figures and status == 0 else last_line
    return Stage(name, status == 0, round(time.perf_counter() - begin, 1), summary, figures)


def train(texts: Path | None, tokenizer: str, output: Path, *, seconds: float, dry_run: bool) -> Stage:
    """Pretrain with recipes/small-1gpu.toml for a limited time, or resume the run of an earlier call."""
    begin = time.perf_counter()
    from albertkit import prepare, pretrain

    shards = output / "shards"
    if dry_run:
        texts = output / "texts.jsonl"
        lines = [json.dumps({"text": text}) for text in list(topics.values())[:20]]
        texts.write_text("\n".join(lines), encoding="utf-8")
    assert texts
    prepare([texts], tokenizer=tokenizer, output=shards, holdout_every=40 if not dry_run else 5)
    run: Any = None
    weights: str | None = None
    for name in ("small-1gpu-start", "small-1gpu"):
        recipe = read_recipe(ROOT / "recipes" / f"{name}.toml")
        if dry_run:
            recipe["model"] |= TINY
            recipe |= {"batch_tokens": 1024, "evaluation_sequences": 8}
            recipe["training"] = {"steps": 3, "warmup_steps": 1, "learning_rate": 1e-3}
        left = (seconds - (time.perf_counter() - begin) - TRAINING_RESERVE) / 60
        recipe["training"]["max_minutes"] = max(left, 0.1)
        folder = output / name
        run = pretrain(recipe, data=shards, tokenizer=tokenizer, output=folder, init_from=weights)
        weights = str(folder)
        if not run.finished:
            break
    summary = ", ".join(f"{name} {value}" for name, value in run.summary().items())
    return Stage("training", True, round(time.perf_counter() - begin, 1), summary, [])


def machine() -> str:
    """Return the name and the memory of the GPU, or "no GPU"."""
    if not torch.cuda.is_available():
        return "no GPU"
    properties = torch.cuda.get_device_properties(0)
    return f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"


def as_page(stages: list[Stage]) -> str:
    """Return the results as Markdown."""
    lines = [
        "# On a GPU",
        "",
        f"Written by `make gpu` on {date.today()}: {machine()}, torch {torch.__version__}.",
        "",
        "| stage | seconds | result |",
        "|---|---|---|",
    ]
    for stage in stages:
        result = "ok" if stage.succeeded else "**failed**"
        lines.append(
            f"| {stage.name} | {stage.seconds:.0f} | {result}: {stage.summary.replace('|', ' ')[:200]} |"
        )
    for stage in stages:
        if stage.figures:
            lines += ["", f"## {stage.name.capitalize()}", "", "| | albertkit | against | ratio | target |"]
            lines.append("|---|---|---|---|---|")
        for figure in stage.figures:
            cells = [
                "" if number is None else f"{number:.4g}" for number in (figure["value"], figure["against"])
            ]
            ratio = "" if figure["ratio"] is None else f"{figure['ratio']:.2f}"
            met = {None: "", True: f"{figure['target']}, met", False: f"{figure['target']}, **missed**"}
            lines.append(f"| {figure['name']} | {cells[0]} | {cells[1]} | {ratio} | {met[figure['met']]} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all stages and write the report."""
    parser = command_line(__doc__)
    parser.add_argument("--minutes", type=float, default=25, help="time limit of all stages together")
    parser.add_argument("--texts", type=Path, help="a corpus for the training run")
    parser.add_argument("--tokenizer", default="bundled", help="folder or name of the tokenizer")
    parser.add_argument("--output", type=Path, default=Path("gpu"), help="folder of logs, report and run")
    parser.add_argument("--page", type=Path, help="Markdown file for the results")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, help="stages to run")
    parser.add_argument("--dry-run", action="store_true", help="check all stages with tiny shapes")
    arguments = parser.parse_args()
    if not torch.cuda.is_available() and not arguments.dry_run:
        raise SystemExit("PyTorch finds no GPU. To check all stages on the CPU, use --dry-run.")
    output = arguments.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    end = time.perf_counter() + arguments.minutes * 60

    def left() -> float:
        return max(1.0, end - time.perf_counter())

    inference, pretraining = (
        ["benchmarks/inference_gpu.py", "--json"],
        ["benchmarks/pretraining.py", "--json"],
    )
    pretraining += ["--only", "gpu", "--runs", "1"]
    if arguments.dry_run:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        inference += ["--device", device, "--layers", "1", "--texts", "8", "--long", "1", "--runs", "1"]
        inference += ["--dtypes", "bfloat16", "--no-compile"]
        pretraining += ["--quick"]
    # Name, command, and maximum share of the remaining time.
    stages: list[tuple[str, list[str], float]] = [
        ("tests", ["-m", "pytest", "tests/gpu"], 0.2),
        ("inference", inference, 0.25),
        ("pretraining", pretraining, 0.4),
    ]
    results: list[Stage] = []

    def finish(stage: Stage) -> None:
        results.append(stage)
        print(
            f"{stage.name}: {'ok' if stage.succeeded else 'FAILED'}, {stage.seconds:.0f} s; {stage.summary}"
        )
        write_json(
            output / "report.json", {"machine": machine(), "stages": [asdict(result) for result in results]}
        )

    for name, command, share in stages:
        if name in arguments.stages:
            finish(run_stage(name, command, output, seconds=share * left()))
    if "training" in arguments.stages and not (arguments.texts or arguments.dry_run):
        print("training: skipped, because --texts is not set")
    elif "training" in arguments.stages:
        texts, tokenizer = arguments.texts, arguments.tokenizer
        finish(_caught(lambda: train(texts, tokenizer, output, seconds=left(), dry_run=arguments.dry_run)))
    if arguments.page:
        with atomic_path(arguments.page) as file:
            file.write_text(as_page(results), encoding="utf-8")
    sys.exit(0 if all(stage.succeeded for stage in results) else 1)


def _caught(work: Callable[[], Stage]) -> Stage:
    try:
        return work()
    except Exception as error:  # keep the report of the other stages
        return Stage("training", False, 0.0, f"{type(error).__name__}: {error}", [])


if __name__ == "__main__":
    main()
