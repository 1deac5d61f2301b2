"""Log a training run to Weights & Biases.

    pip install wandb
    python examples/wandb_callback.py

Set WANDB_MODE=offline to keep the run on your machine. You can pass the same callback to `pretrain`.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import wandb

import albertkit

DATA = Path(__file__).parent / "data"


class WandbCallback(albertkit.Callback):
    def on_start(self, run):
        wandb.init(project="albertkit", name=run.output.name, config=run.settings)

    def on_step(self, run, metrics):
        if metrics:  # every `log_every` steps
            wandb.log({"learning_rate": run.learning_rate, **metrics}, step=run.step)

    on_evaluation = on_step

    def on_end(self, run):
        wandb.finish(exit_code=0 if run.finished else 1)


def main() -> None:
    with TemporaryDirectory() as folder:
        run = albertkit.finetune(
            "text-classification",
            train=DATA / "tickets_train.csv",
            validation=DATA / "tickets_validation.csv",
            output=Path(folder) / "tickets",
            epochs=1,
            batch_size=40,
            log_every=2,
            callbacks=[WandbCallback()],
        )
        print(f"accuracy {run.metrics['accuracy']:.3f} after {run.step} steps")


if __name__ == "__main__":
    main()
