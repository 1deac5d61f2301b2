"""The settings that a model was fine-tuned with, found again in its folder."""

import json
from pathlib import Path
from typing import Any

from albertkit.finetuning.report import REPORT_JSON
from albertkit.finetuning.settings import TaskSettings
from albertkit.recipe import build


def task_settings(model: str | Path, given: dict[str, Any]) -> TaskSettings:
    """Return how a model is to read examples: as it was fine-tuned with, where its folder says so.

    Args:
        model: folder or name.
        given: settings that hold instead.
    """
    trained = _report(Path(model)).get("settings", {}).get("task", {})
    return build(TaskSettings, {**trained, **given}, where="settings")


def is_run(folder: Path) -> bool:
    """Tell whether a folder holds the report of a fine-tuning run, and not that of an evaluation."""
    return "settings" in _report(folder)


def _report(folder: Path) -> dict[str, Any]:
    file = folder / REPORT_JSON
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
