"""The settings that a model was fine-tuned with, found again in its folder."""

from pathlib import Path
from typing import Any

from albertkit.errors import ConfigError
from albertkit.files import read_json
from albertkit.finetuning.report import REPORT_JSON
from albertkit.finetuning.settings import TaskSettings
from albertkit.recipe import build


def task_settings(model: str | Path, given: dict[str, Any]) -> TaskSettings:
    """Return how a model is to read examples: as it was fine-tuned with, where its folder says so.

    Args:
        model: folder or name.
        given: settings that hold instead.
    """
    trained = _report(Path(model)).get("settings", {})
    task = trained.get("task", {}) if isinstance(trained, dict) else None
    if not isinstance(task, dict):
        raise ConfigError(f"{Path(model) / REPORT_JSON}: expected a table of settings, found {trained!r:.60}")
    return build(TaskSettings, {**task, **given}, where="settings")


def is_run(folder: Path) -> bool:
    """Tell whether a folder holds the report of a fine-tuning run, and not that of an evaluation."""
    return "settings" in _report(folder)


def _report(folder: Path) -> dict[str, Any]:
    file = folder / REPORT_JSON
    return read_json(file, ConfigError) if file.is_file() else {}
