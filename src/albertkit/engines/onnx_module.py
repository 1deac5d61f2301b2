"""Compute a PyTorch model in ONNX Runtime on a CPU, if the model's weights determine its output."""

from collections.abc import Sequence

import torch

from albertkit.checkpoints.arrays import to_arrays
from albertkit.engines.engine import BatchScores, Engine, Job, Row
from albertkit.engines.fitting import MadeFromWeights, as_configured, fits, head_of, warn_of_call
from albertkit.engines.light_model import LightModel
from albertkit.engines.onnx_engine import OnnxEngine
from albertkit.engines.plain import PlainEngine
from albertkit.modeling.pretrained import AlbertPreTrainedModel

_ENGINES: MadeFromWeights[OnnxEngine] = MadeFromWeights()


class OnnxModuleEngine(Engine):
    """Computes a PyTorch model of this package in ONNX Runtime; calls any other model as `PlainEngine` does.

    Args:
        model: The model. It is computed without dropout and gradients, also in training mode.
        int8: Whether to multiply the layers' matrices in int8.
        chosen: The name by which the user chose this engine, for a warning if the model must be called; None
            for no warning.
    """

    def __init__(
        self, model: AlbertPreTrainedModel, *, int8: bool = False, chosen: str | None = None
    ) -> None:
        self.model = model
        self.int8 = int8
        self.chosen = chosen

    def batches(self, rows: Sequence[Row], job: Job) -> BatchScores:
        """Yield the scores of batches as `Engine.batches` does, the longest rows first."""
        model = self.model
        if not (fits(model) and head_of(model, job.output) is not None and as_configured(model, job.output)):
            if self.chosen is not None:
                warn_of_call(self.chosen)
            return PlainEngine(model).batches(rows, job)
        return self._engine().batches(rows, job)

    def _engine(self) -> OnnxEngine:
        model = self.model

        def make() -> OnnxEngine:
            weights = to_arrays({name: tensor.float() for name, tensor in model.state_dict().items()})
            light = LightModel(type(model).__name__, model.config.replace(), weights)
            return OnnxEngine(light, int8=self.int8, threads=torch.get_num_threads())

        def is_current(engine: OnnxEngine) -> bool:
            return engine.model.config == model.config

        return _ENGINES.get(model, [model], make, key=self.int8, is_current=is_current)
