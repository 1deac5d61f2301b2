"""Detect collapsed runs: the model predicts the same for everything, or learns only the label frequencies.

A run is checked only at its end, because a slow start shows both. With several labels, only equal
probabilities are a collapse.
"""

from pathlib import Path

import numpy as np

from albertkit.finetuning.evaluation import Evaluation
from albertkit.finetuning.prepared import Prepared
from albertkit.training.progress import read_metrics

NOTHING_LEARNT = 0.99  # share of the prior's loss above which a run has learned nothing
FEWEST_STEPS = 30  # shorter runs have no time to learn
_LAST = 0.25  # part of a run whose losses are averaged


def prior_loss(prepared: Prepared) -> float | None:
    """Return the training loss of the best prediction that ignores the input, or None if there is none."""
    weights, counts = prepared.class_weights, prepared.task.learnt_classes(prepared.rows)
    if weights is None or counts is None:
        return prepared.task.prior_loss(prepared.rows)
    weighted = np.array([count * float(weights[label]) for label, count in counts.items()])
    return float(-(weighted * np.log(weighted / weighted.sum())).sum() / counts.total())


def collapse(evaluation: Evaluation, folder: Path, *, prior: float | None) -> str | None:
    """Return why the finished run in a folder has collapsed, or None.

    Args:
        evaluation: evaluation of its best model.
        folder: folder of the run.
        prior: result of `prior_loss`.
    """
    lines = [line for line in read_metrics(folder) if "train/loss" in line]
    if not lines or lines[-1]["step"] < FEWEST_STEPS:
        return None
    constant = evaluation.task.constant_answer(evaluation.examples, evaluation.predictions)
    if constant is not None:
        return f"the best model predicts {constant} for every example"
    late = [line["train/loss"] for line in lines if line["step"] > (1 - _LAST) * lines[-1]["step"]]
    mean = sum(late) / len(late)
    if prior is not None and mean > NOTHING_LEARNT * prior:
        return f"the training loss ends at {mean:.4f} (a model that ignores its input has {prior:.4f})"
    return None
