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
    file = Path(model) / REPORT_JSON
    report = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    trained = report.get("settings", {}).get("task", {})
    return build(TaskSettings, {**trained, **given}, where="settings")
