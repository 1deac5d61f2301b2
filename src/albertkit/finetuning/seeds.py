"""The same run with several seeds: how much of a figure is chance. The best model is kept."""

import shutil
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from albertkit.files import finite, write_json
from albertkit.finetuning.prepared import Prepared
from albertkit.finetuning.run import FinetuningResult, run_prepared, sayer
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.metrics.direction import is_better
from albertkit.training.distributed import World
from albertkit.training.loop import refuse_other_folders

SEEDS_JSON = "seeds.json"


def run_seeds(
    prepared: Prepared,
    settings: FinetuningSettings,
    output: Path,
    *,
    seeds: int,
    world: World,
) -> FinetuningResult:
    """Do runs in `output/seed-0` and so on, and put the best model with its report into `output`.

    `seeds.json`, and the report under "seeds", have mean and standard deviation (over n - 1) of each metric.

    Args:
        prepared: what all runs share.
        settings: of all runs, but for the seed, which counts up from theirs.
        output: folder of the runs; runs that are there go on.
        seeds: how many runs, at least 2.
        world: the processes.

    Returns:
        The best run, or the one that was interrupted.
    """
    assert seeds > 1
    say = sayer(world)
    if world.is_main and not (output / SEEDS_JSON).is_file():
        refuse_other_folders(output, {f"seed-{number}" for number in range(seeds)})
    results: list[FinetuningResult] = []
    for number in range(seeds):
        folder, seeded = output / f"seed-{number}", replace(settings, seed=settings.seed + number)
        say(f"run {number + 1} of {seeds}, in {folder}")
        result = run_prepared(prepared, seeded, folder, world=world)
        if not result.run.finished:
            return result
        results.append(result)
    if not world.is_main:
        return results[-1]
    reports = [result.report for result in results if result.report]
    summary = summarise([report["metrics"] for report in reports])
    best = _best([report["metrics"] for report in reports], reports[0]["main_metric"])
    report = reports[best] | {"seeds": summary, "seed": best}
    # First: it says that what follows in this folder is of these runs.
    write_json(output / SEEDS_JSON, finite(summary))
    for file in (output / f"seed-{best}").iterdir():
        if file.is_file() and file.suffix in _COPIED:
            shutil.copy2(file, output)
    write_json(output / "report.json", finite(report))
    for name, one in summary.items():
        say(f"{name}: {one['mean']:.4f} +- {one['deviation']:.4f} over {seeds} seeds")
    say(f"the best is seed-{best}")
    return replace(results[best], report=report)


# Model, tokenizer, report, pictures, curves; not the lock.
_COPIED = (".json", ".safetensors", ".model", ".vocab", ".txt", ".md", ".png", ".jsonl")


def _best(metrics: list[dict[str, float]], name: str) -> int:
    """Return the number of the best run; of equal ones the first."""
    best = 0
    for number, one in enumerate(metrics):
        if is_better(name, one[name], metrics[best][name]):
            best = number
    return best


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
