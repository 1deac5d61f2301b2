"""Learning-rate schedules: plain functions from a place in the run to a factor of the peak rate.

A place is counted in steps or in tokens, and so are all lengths beside it.
"""

from albertkit.training.settings import TrainingSettings


def linear_factor(place: int, *, length: int, warmup: int) -> float:
    """Return the original's factor: linear warm-up from 0, then linear decay to 0 at `length`.

    The decay is counted from place 0, as `tf.train.polynomial_decay` does: at the end of the warm-up the
    factor is `1 - warmup / length`, not 1.
    """
    if place < warmup:
        return place / warmup
    return max(0.0, 1.0 - place / length)


def trapezoid_factor(place: int, *, length: int, warmup: int, decay: int) -> float:
    """Return a factor that warms up, stays at 1, and falls linearly to 0 over the last `decay`.

    A run with this schedule can be given more time until its decay begins.
    """
    if place < warmup:
        return place / warmup
    return min(1.0, max(0.0, (length - place) / decay)) if decay else 1.0


def learning_rate_factor(settings: TrainingSettings, *, step: int, tokens: int) -> float:
    """Return the factor for the step numbered `step`, after which `tokens` tokens will have been seen.

    Steps count from 1, as recorded runs of the original do: the first one is not wasted on a rate of 0.
    """
    place = step if settings.unit == "steps" else tokens
    if settings.schedule == "linear":
        return linear_factor(place, length=settings.length, warmup=settings.warmup)
    return trapezoid_factor(place, length=settings.length, warmup=settings.warmup, decay=settings.decay)
