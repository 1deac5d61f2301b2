"""The engine `auto`: of the exact ones, the one that was found to be the faster one on this machine."""

import time
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from albertkit.engines.fitting import as_configured, fits
from albertkit.engines.measurement import Measurement, can_measure, measure, remembered
from albertkit.engines.padding_free import Kind, PaddingFreeEngine
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.engine import Output, Read
from albertkit.tasks.rows import Row

_WORTH_MEASURING = 30.0  # seconds of computing, of which a measurement costs a few hundredths
_SPENT: WeakKeyDictionary[AlbertPreTrainedModel, float] = WeakKeyDictionary()
"""Seconds that a model was computed for by engines that had not measured."""


class AutomaticEngine(PaddingFreeEngine):
    """`torch`, or `onnx` where that was measured to be faster.

    It measures when a model has been computed for half a minute, so a few texts never wait for it, and only
    where nothing is remembered (`measurement.py`). From then on the model is computed by the faster one.
    """

    def __init__(self, model: AlbertPreTrainedModel) -> None:
        super().__init__(model)
        self.measurement = remembered(model) if self._has_choice() and fits(model) else None

    def settle(self, *, anew: bool = False) -> Measurement | None:
        """Measure now, where nothing is remembered; return what was found.

        Args:
            anew: measure also where something is.

        Returns:
            None where there is nothing to choose: no ONNX Runtime, another device or type, a patience,
            changed layers, or more weights than should be held twice.
        """
        if not (self._has_choice() and fits(self.model) and as_configured(self.model)):
            return None
        # Another process may have measured meanwhile.
        self.measurement = None if anew else self.measurement or remembered(self.model)
        if self.measurement is None and can_measure(self.model):
            self.measurement = measure(self.model)
        return self.measurement

    def describe(self) -> str:
        """Say what computes the model, and why."""
        kind, found = self.suitable_kind() or "plain", self.measurement
        if found is None:
            return f"{kind}, not measured"
        seconds = ", ".join(f"{name} {1000 * one:.3g} ms" for name, one in found.seconds.items())
        return f"{kind}; measured for {found.rows} rows of {found.tokens} tokens: {seconds}; {found.file}"

    def batches(
        self,
        rows: Sequence[Row],
        *,
        output: Output,
        read: Read,
        batch_tokens: int | None,
        batch_size: int | None,
    ) -> Iterator[tuple[Sequence[int], Sequence[Tensor]]]:
        """As `Engine.batches`."""
        if self.measurement is None and _SPENT.get(self.model, 0) >= _WORTH_MEASURING:
            self.settle()
        computed = super().batches(
            rows, output=output, read=read, batch_tokens=batch_tokens, batch_size=batch_size
        )
        while True:
            begin = time.perf_counter()
            found = next(computed, None)
            _SPENT[self.model] = _SPENT.get(self.model, 0) + time.perf_counter() - begin
            if found is None:
                return
            yield found

    def suitable_kind(self) -> Kind | None:
        """As `PaddingFreeEngine.suitable_kind`."""
        kind, found = super().suitable_kind(), self.measurement
        if kind is None or found is None or found.engine == kind or not self._has_choice():
            return kind
        return found.engine if as_configured(self.model) else kind

    def _has_choice(self) -> bool:
        """Tell whether ONNX Runtime is there, and computes models where and as this one is now."""
        model = self.model
        return (
            _has_onnx()
            and model.device.type == "cpu"
            and model.dtype == torch.float32
            and getattr(model, "patience", None) is None
        )


@cache
def _has_onnx() -> bool:
    return all(find_spec(name) is not None for name in ("onnx", "onnxruntime"))
