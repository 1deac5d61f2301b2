"""The account of an export to ONNX."""

from dataclasses import asdict, dataclass, field
from typing import Any

from albertkit.export.int8_check import Loss


@dataclass(slots=True)
class OnnxReport:
    """What was written, and how close to the reference it computes."""

    source: str
    target: str
    architecture: str
    opset: int
    ir_version: int
    dtype: str
    """Type of the stored weights; for int8 that of the matrices and that of the rest."""
    compute: str
    """Type that is computed in; for int8 that of the matrices and that of the rest."""
    inputs: dict[str, str]
    outputs: dict[str, str]
    file_bytes: int
    weight_bytes: int
    """What the same tensors take in safetensors."""
    largest_difference: float | None
    """From the NumPy reference, on the texts; None for int8."""
    tolerance: float
    batches: list[tuple[int, ...]]
    """Shapes of the input_ids that were compared."""
    metadata: dict[str, str]
    checksums: dict[str, str]
    """SHA-256 of every file written."""
    loss: Loss | None = None
    """What int8 loses; None where nothing was rounded."""
    notes: list[str] = field(default_factory=list)

    @property
    def size_ratio(self) -> float:
        """Size of the file / size of its weights, each stored once."""
        return self.file_bytes / self.weight_bytes

    def to_json(self) -> dict[str, Any]:
        """The report as plain values for `json.dumps`."""
        return {**asdict(self), "size_ratio": self.size_ratio}

    def __str__(self) -> str:
        batches = ", ".join("x".join(map(str, shape)) for shape in self.batches)
        lines = [
            f"{self.source} -> {self.target}",
            f"{self.architecture}, opset {self.opset}, file version {self.ir_version}, weights {self.dtype}, "
            f"computed in {self.compute}",
            *(f"  in   {name}  {kind}" for name, kind in self.inputs.items()),
            *(f"  out  {name}  {kind}" for name, kind in self.outputs.items()),
            f"{self.file_bytes:,} bytes, {self.size_ratio:.3f} times those of the weights",
            f"differs from the reference by at most {self.largest_difference:.1e} "
            f"(bound {self.tolerance:.0e}), on batches of {batches}"
            if self.loss is None
            else f"int8 loses {self.loss.drop:.2f} points of {self.loss.metric} ({self.loss.exact:.2f} to "
            f"{self.loss.rounded:.2f}, on {self.loss.examples} examples)",
        ]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"sha256 {checksum}  {path}" for path, checksum in self.checksums.items()]
        return "\n".join(lines)
