"""The training loop with its optimizers, schedules, checkpoints and logs, for any objective."""
