"""The same run with several seeds: how much of a figure is chance. The best model is kept."""

import json
import shutil
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from albertkit.files import atomic_path
from albertkit.finetuning.prepared import Prepared
from albertkit.finetuning.run import FinetuningResult, run_prepared, sayer
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.training.distributed import World

SEEDS_JSON = "seeds.json"


def run_seeds(
    prepared: Prepared,
    settings: FinetuningSettings,
    output: Path,
    *,
    seeds: int,
    world: World,
    console: Console,
) -> FinetuningResult:
    """Do runs in `output/seed-0` and so on, and put the best model with its report into `output`.

    `seeds.json`, and the report under "seeds", have mean and standard deviation (over n - 1) of each metric.

    Args:
        prepared: what all runs share.
        settings: of all runs, but for the seed, which counts up from theirs.
        output: folder of the runs; runs that are there go on.
        seeds: how many runs, at least 2.
        world: the processes.
        console: where progress goes.

    Returns:
        The best run, or the one that was interrupted.
    """
    assert seeds > 1
    say = sayer(world, console)
    results: list[FinetuningResult] = []
    for number in range(seeds):
        folder, seeded = output / f"seed-{number}", replace(settings, seed=settings.seed + number)
        say(f"run {number + 1} of {seeds}, in {folder}")
        result = run_prepared(prepared, seeded, folder, world=world, console=console)
        if not result.run.finished:
            return result
        results.append(result)
    if not world.is_main:
        return results[-1]
    reports = [result.report for result in results if result.report]
    summary = summarise([report["metrics"] for report in reports])
    best = max(range(seeds), key=lambda number: reports[number]["metrics"][reports[number]["main_metric"]])
    for file in (output / f"seed-{best}").iterdir():
        if file.is_file() and file.suffix in _COPIED:
            shutil.copy2(file, output)
    report = reports[best] | {"seeds": summary, "seed": best}
    for name, content in (("report.json", report), (SEEDS_JSON, summary)):
        with atomic_path(output / name) as target:
            target.write_text(json.dumps(content, indent=2) + "\n")
    for name, one in summary.items():
        say(f"{name}: {one['mean']:.4f} +- {one['deviation']:.4f} over {seeds} seeds")
    say(f"the best is seed-{best}")
    return replace(results[best], report=report)


# Model, tokenizer, report, pictures, curves; not the lock.
_COPIED = (".json", ".safetensors", ".model", ".vocab", ".txt", ".md", ".png", ".jsonl")


def summarise(metrics: list[dict[str, float]]) -> dict[str, dict[str, Any]]:
    """Return mean, standard deviation and the values of each metric."""
    return {
        name: {
            "mean": statistics.fmean(one[name] for one in metrics),
            "deviation": statistics.stdev(one[name] for one in metrics),
            "values": [one[name] for one in metrics],
        }
        for name in metrics[0]
    }
