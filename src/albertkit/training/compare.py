"""Compare runs: their metrics, the settings that differ, and their curves in one picture."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertkit.errors import TrainingError
from albertkit.files import read_json
from albertkit.pictures import check_picture
from albertkit.results import Result
from albertkit.training.progress import METRICS, RUN_JSON, draw_curves, read_metrics
from albertkit.training.run_folder import RunFolder
from albertkit.training.settings import flat_values

REPORT_JSON = "report.json"


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """The result of `compare`."""

    folders: dict[str, Path]
    """Name of a run -> its folder. The name is the part of the path that differs."""
    metrics: dict[str, dict[str, Any]]
    """Name of a run -> its metrics."""
    settings: dict[str, dict[str, Any]]
    """Name of a run -> the settings that differ between the runs."""
    image: Path | None = None
    """The picture of the curves, if it was drawn."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each run, for a DataFrame: its metrics and the settings that differ."""
        return [{"run": name} | self.metrics[name] | self.settings[name] for name in self.folders]

    def summary(self) -> dict[str, Any]:
        """Return the values to show, by name."""
        return {"runs": len(self.folders)}

    def picture(self) -> Path | None:
        """Return the image file of the curves, if a notebook can show it."""
        return self.image if self.image is not None and self.image.suffix == ".png" else None

    def to_json(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return plain values for `json.dumps`: a dict for each run."""
        parts = {"metrics": self.metrics, "settings": self.settings}
        return [
            {"run": name, "folder": str(folder)} | {part: values[name] for part, values in parts.items()}
            for name, folder in self.folders.items()
        ]

    def plot(self, target: str | Path) -> None:
        """Draw the curves of all runs to a .png, .svg or .pdf file: a panel for each metric.

        Args:
            target: the new file.
        """
        check_picture(Path(target))
        draw_curves({name: read_metrics(folder) for name, folder in self.folders.items()}, Path(target))


def compare(runs: Sequence[str | Path | RunFolder], *, output: str | Path | None = None) -> Comparison:
    """Compare runs of `finetune` and `pretrain`: their metrics, the settings that differ, and their curves.

    The metrics are those of the model in the folder of a run: for fine-tuning, those of `report.json`, and
    otherwise those of the best evaluation, or of the last one if the run does not keep the best model.
    "train/loss" and other training metrics are the last ones in `metrics.jsonl`.

    Args:
        runs: folders of runs, which may still be running. In Python also the results of `finetune` and
            `pretrain`.
        output: picture of the curves to draw, a .png, .svg or .pdf file.

    Returns:
        The metrics and the settings of each run.

    Raises:
        TrainingError: a folder is not the folder of a run.
        DataError: `output` exists.
        MissingExtraError: `output` needs the `train` extra.
    """
    if output is not None:
        check_picture(Path(output))
    given = [runs] if isinstance(runs, str | Path | RunFolder) else runs
    if not given:
        raise TrainingError("there is no run to compare. Pass the folders of runs.")
    paths = [Path(run.folder if isinstance(run, RunFolder) else run).absolute() for run in given]
    parent = os.path.commonpath([path.parent for path in paths])
    folders = {path.relative_to(parent).as_posix(): path for path in paths}
    metrics: dict[str, dict[str, Any]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for name, folder in folders.items():
        for file in (RUN_JSON, METRICS):
            if not (folder / file).is_file():
                raise TrainingError(f"{folder} is not the folder of a run: it has no {file}.")
        metrics[name], settings[name] = _read(folder)
    names = dict.fromkeys(setting for values in settings.values() for setting in values)
    first = next(iter(settings.values()))
    differing = [one for one in names if any(each.get(one) != first.get(one) for each in settings.values())]
    settings = {run: {one: values.get(one) for one in differing} for run, values in settings.items()}
    comparison = Comparison(folders, metrics, settings, None if output is None else Path(output))
    if output is not None:
        comparison.plot(output)
    return comparison


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the metrics of a run, and its settings."""
    run, lines, report = read_json(folder / RUN_JSON, TrainingError), read_metrics(folder), {}
    if run["finished"] and (folder / REPORT_JSON).is_file():
        report = read_json(folder / REPORT_JSON, TrainingError)
    last, logged, evaluated = (lines or [{}])[-1], {}, 0
    for line in lines:
        logged |= {name: value for name, value in line.items() if "/" in name}
        evaluated = line["step"] if any(name.startswith("eval/") for name in line) else evaluated
    evaluation = {name[5:]: value for name, value in logged.items() if name.startswith("eval/")}
    training = {name: value for name, value in logged.items() if name.startswith("train/")}
    step = report.get("step", run["best_step"] if run["best_metrics"] else evaluated)
    metrics = {"finished": run["finished"], "steps": last.get("step", 0), "model_step": step}
    metrics["minutes"] = round(last.get("seconds", 0) / 60, 2)
    metrics |= report.get("metrics") or run["best_metrics"] or evaluation
    return metrics | training, flat_values(run["settings"])
