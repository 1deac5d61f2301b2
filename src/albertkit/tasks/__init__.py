"""The tasks, one class in one file each; the names that a task of your own needs (docs/own-task.md)."""

from albertkit.engines.engine import Row
from albertkit.tasks.label_kinds import CLASS, NUMBER, SEVERAL, TAGS
from albertkit.tasks.labels import LabelSet
from albertkit.tasks.measuring import Metric, directions
from albertkit.tasks.task import Task

__all__ = ["CLASS", "NUMBER", "SEVERAL", "TAGS", "LabelSet", "Metric", "Row", "Task", "directions"]
