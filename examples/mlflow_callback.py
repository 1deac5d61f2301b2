"""Log a training run to MLflow.

    pip install mlflow
    python examples/mlflow_callback.py

Set MLFLOW_TRACKING_URI to your server or database. You can pass the same callback to `pretrain`.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import mlflow

import albertkit

DATA = Path(__file__).parent / "data"


class MlflowCallback(albertkit.Callback):
    def on_start(self, run):
        mlflow.start_run(run_name=run.output.name)
        mlflow.log_params(run.settings)

    def on_step(self, run, metrics):
        if metrics:  # every `log_every` steps
            mlflow.log_metrics({"learning_rate": run.learning_rate, **metrics}, step=run.step)

    on_evaluation = on_step

    def on_end(self, run):
        mlflow.end_run("FINISHED" if run.finished else "KILLED")


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
            callbacks=[MlflowCallback()],
        )
        print(f"accuracy {run.metrics['accuracy']:.3f} after {run.step} steps")


if __name__ == "__main__":
    main()
