"""Detect collapsed runs: the model predicts the same for everything, or learns only the label frequencies.

At the end of a run, either condition suffices. During a run, only both together end it, because a slow start
shows either. With several labels, only equal probabilities are a collapse, and only at the end of a run.
"""

from pathlib import Path

import numpy as np

from albertkit.finetuning.evaluation import Evaluation
from albertkit.finetuning.prepared import Prepared
from albertkit.training.progress import read_metrics
from albertkit.training.run_state import RunState
from albertkit.training.settings import TrainingSettings

NOTHING_LEARNT = 0.99  # share of the prior's loss above which a run has learned nothing
JUDGED_FROM = 1 / 3  # part of a run, plus its warm-up, before it is judged
FEWEST_STEPS = 30  # shorter runs have no time to learn, and a lower learning rate would not help
_LAST = 0.25  # part of a finished run whose losses are averaged


def prior_loss(prepared: Prepared) -> float | None:
    """Return the training loss of the best prediction that ignores the input, or None if there is none."""
    weights, counts = prepared.class_weights, prepared.task.learnt_classes(prepared.rows)
    if weights is None or counts is None:
        return prepared.task.prior_loss(prepared.rows)
    weighted = np.array([count * float(weights[label]) for label, count in counts.items()])
    return float(-(weighted * np.log(weighted / weighted.sum())).sum() / counts.total())


class CollapseWatch:
    """Judges a run at its evaluations: pass each evaluation, then call the object.

    Args:
        training: settings of the run.
        prior: result of `prior_loss`.
    """

    def __init__(self, training: TrainingSettings, prior: float | None) -> None:
        self.prior = prior
        self.first_step = max(JUDGED_FROM * training.length, training.warmup_steps)
        self.evaluation: Evaluation | None = None

    def __call__(self, state: RunState) -> str | None:
        """Return why the run has collapsed, or None."""
        # The running mean is in the saved state, so a resumed run is judged the same way.
        loss, one = state.watch, self.evaluation
        is_early = state.step < self.first_step or loss.seen < FEWEST_STEPS
        if self.prior is None or one is None or is_early or loss.mean <= NOTHING_LEARNT * self.prior:
            return None
        constant = one.task.constant_answer(one.examples, one.predictions)
        if constant is None:
            return None
        return (
            f"at step {state.step} the model predicts {constant} for every example, and the training loss is "
            f"{loss.mean:.4f} (a model that ignores its input has {self.prior:.4f})"
        )


def collapse(evaluation: Evaluation, folder: Path, *, prior: float | None) -> str | None:
    """Return why a finished run has collapsed, or None.

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
