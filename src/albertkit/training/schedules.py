"""Learning-rate schedules: plain functions from a step to a factor of the peak rate."""

from albertkit.training.settings import ScheduleName


def linear_factor(step: int, *, steps: int, warmup_steps: int) -> float:
    """Return the original's factor: linear warm-up from 0, then linear decay to 0 at `steps`.

    The decay is counted from step 0, as `tf.train.polynomial_decay` does: at the end of the warm-up the
    factor is `1 - warmup_steps / steps`, not 1.
    """
    if step < warmup_steps:
        return step / warmup_steps
    return max(0.0, 1.0 - step / steps)


def trapezoid_factor(step: int, *, steps: int, warmup_steps: int, decay_steps: int) -> float:
    """Return a factor that warms up, stays at 1, and falls linearly to 0 over the last `decay_steps`.

    A run with this schedule can be given more steps until its decay begins.
    """
    if step < warmup_steps:
        return step / warmup_steps
    return min(1.0, max(0.0, (steps - step) / decay_steps)) if decay_steps else 1.0


def learning_rate_factor(
    step: int, *, schedule: ScheduleName, steps: int, warmup_steps: int, decay_steps: int
) -> float:
    """Return the factor of the named schedule for the step numbered `step`.

    Steps count from 1, as recorded runs of the original do: the first one is not wasted on a rate of 0.
    """
    if schedule == "linear":
        return linear_factor(step, steps=steps, warmup_steps=warmup_steps)
    return trapezoid_factor(step, steps=steps, warmup_steps=warmup_steps, decay_steps=decay_steps)
