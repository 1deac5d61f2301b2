"""Write the table of docs/how-to/convert.md: how far each checkpoint format is from the original program.

    KERAS_BACKEND=jax python scripts/checkpoint_table.py

tests/golden/google_tf1_small has weights and outputs of the original TensorFlow code. The script writes these
weights in each format, reads them back, and compares albertkit's outputs with the original ones. For formats
that only another program writes, tests/golden has files and outputs of that program.
"""

import shutil
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from pages import command_line, write_table
from safetensors.torch import load_file

from albertkit import AlbertForMaskedLM, AlbertForPreTraining
from albertkit.checkpoints.arrays import to_numpy
from albertkit.checkpoints.tensor_bundle import write_bundle
from albertkit.conversion import convert
from albertkit.export.onnx import export_onnx

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden" / "google_tf1_small"
PAGE = ROOT / "docs" / "how-to" / "convert.md"
BEGIN = "<!-- table: scripts/checkpoint_table.py -->"

Arrays = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Row:
    """A format: whether albertkit reads and writes it, and how to measure its difference."""

    name: str
    measure: Callable[[Path, Arrays], float]
    """(folder for files, the original's arrays) -> largest difference from the other program's outputs."""
    read: str = "yes"
    written: str = ""

    def line(self, figure: float) -> str:
        """Return the row of the table."""
        return f"| {self.name} | {self.read} | {self.written} | {figure:.1e} |"


def main() -> None:
    command_line(__doc__).parse_args()
    arrays = read_golden()
    with tempfile.TemporaryDirectory() as folder:
        rows = [row.line(row.measure(Path(folder), arrays)) for row in FORMATS]
    header = [
        "| format | read | written | largest difference from the original program's outputs |",
        "|---|---|---|---|",
    ]
    table = "\n".join([*header, *rows])
    write_table(PAGE, BEGIN, table)
    print(table)


def read_golden(file_name: Path = GOLDEN / "arrays.npz") -> Arrays:
    """Return the weights and outputs of the original, or the outputs of another program."""
    with np.load(file_name) as file:
        return {key: torch.from_numpy(file[key]) for key in file}


def largest_difference(path: Path, arrays: Arrays) -> float:
    """Return the largest difference over all layers, the pooler and both heads, without padding."""
    golden = {
        key.removeprefix("golden:"): array for key, array in arrays.items() if key.startswith("golden:")
    }
    inputs = {name: golden[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    rows = torch.arange(len(golden["input_ids"]))[:, None]
    positions = (rows * golden["input_ids"].shape[1] + golden["masked_lm_positions"]).flatten()
    model = AlbertForPreTraining.from_pretrained(path)
    with torch.no_grad():
        output = model(**inputs, output_hidden_states=True, masked_positions=positions)
        pooled = model.albert(**inputs).pooler_output
    real = golden["attention_mask"].bool()
    pairs = [
        *(
            (ours[real], theirs[real])
            for ours, theirs in zip(output.hidden_states[1:], golden["layers"], strict=True)
        ),
        (pooled, golden["pooled_output"]),
        (output.prediction_logits, golden["mlm_logits"].flatten(0, 1)),
        (output.sop_logits, golden["sop_logits"]),
    ]
    return max(float((ours - theirs).abs().max()) for ours, theirs in pairs)


# --- writers of the formats ---------------------------------------------------------------------


def tensorflow(folder: Path, arrays: Arrays, *, place: str = "tf1/model.ckpt-best", scope: str = "") -> Path:
    """Write the original's files, and return their folder."""
    prefix = folder / place
    prefix.parent.mkdir(parents=True, exist_ok=True)
    weights = {scope + key[7:]: to_numpy(array) for key, array in arrays.items() if key.startswith("weight:")}
    write_bundle(prefix, weights)
    home = prefix.parents[1] if "/variables/" in place else prefix.parent
    shutil.copy(GOLDEN / "albert_config.json", home)
    return home


def archive(folder: Path, arrays: Arrays) -> Path:
    with tarfile.open(folder / "albert.tar.gz", "w:gz") as tar:
        tar.add(tensorflow(folder, arrays), "albert")
    return folder / "albert.tar.gz"


def hub_module(folder: Path, arrays: Arrays) -> Path:
    return tensorflow(folder, arrays, place="module/variables/variables", scope="module/")


def converted(name: str, max_shard_size: str | None = None) -> Callable[[Path, Arrays], Path]:
    def make(folder: Path, arrays: Arrays) -> Path:
        convert(tensorflow(folder, arrays), folder / name, max_shard_size=max_shard_size)
        return folder / name

    return make


def through_tf1(folder: Path, arrays: Arrays) -> Path:
    convert(tensorflow(folder, arrays), folder / "there")
    convert(folder / "there", folder / "and back", to="tf1")
    return folder / "and back"


def pytorch_bin(folder: Path, arrays: Arrays) -> Path:
    """Write a Hugging Face folder with the weights in a PyTorch pickle, and return it."""
    convert(tensorflow(folder, arrays), folder / "bin")
    weights = folder / "bin" / "model.safetensors"
    torch.save(load_file(weights), folder / "bin" / "pytorch_model.bin")
    weights.unlink()
    return folder / "bin"


def of_another_program(name: str, model_class: type[AlbertForPreTraining | AlbertForMaskedLM]) -> float:
    """Return the largest difference from the outputs of the program that wrote the files in tests/golden."""
    folder = GOLDEN.with_name(name)
    recorded = read_golden(folder / "outputs.npz")
    inputs = {key: recorded[key].long() for key in ("input_ids", "attention_mask", "token_type_ids")}
    model = model_class.from_pretrained(folder)
    with torch.no_grad():
        output = model(**inputs)
    if name == "transformers_tf":
        return max(
            float((output[key] - recorded[key]).abs().max()) for key in ("prediction_logits", "sop_logits")
        )
    rows = torch.arange(len(inputs["input_ids"]))[:, None]
    return float((output.logits[rows, recorded["masked_positions"].long()] - recorded["logits"]).abs().max())


def heads_in_numpy(arrays: Arrays) -> tuple[dict[str, np.ndarray], Callable[[np.ndarray, np.ndarray], float]]:
    """Return the original's inputs, and a function that compares both heads' logits with the original's."""
    golden = {key[7:]: array.numpy() for key, array in arrays.items() if key.startswith("golden:")}
    names = ("input_ids", "attention_mask", "token_type_ids")
    masked = golden["masked_lm_positions"][..., None].astype(np.int64)

    def difference(words: np.ndarray, order: np.ndarray) -> float:
        at_masks = np.take_along_axis(words, masked, axis=1)
        return max(
            float(np.abs(at_masks - golden["mlm_logits"]).max()),
            float(np.abs(order - golden["sop_logits"]).max()),
        )

    return {name: golden[name].astype(np.int64) for name in names}, difference


def onnx(folder: Path, arrays: Arrays) -> float:
    """Return the largest difference of the exported file in ONNX Runtime."""
    inputs, difference = heads_in_numpy(arrays)
    export_onnx(tensorflow(folder, arrays), folder / "model.onnx")
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    return difference(*session.run(["prediction_logits", "sop_logits"], inputs))


def keras(folder: Path, arrays: Arrays) -> float:
    """Return the largest difference of the Keras class, on the selected backend."""
    from albertkit.keras import TFAlbertForPreTraining  # here, because it takes seconds

    inputs, difference = heads_in_numpy(arrays)
    model = TFAlbertForPreTraining.from_pretrained(tensorflow(folder, arrays))
    words, order = model(inputs)[:2]
    return difference(np.asarray(words), np.asarray(order))


def from_file(make: Callable[[Path, Arrays], Path]) -> Callable[[Path, Arrays], float]:
    """Return a function that measures the files that `make` writes from the original's weights."""
    return lambda folder, arrays: largest_difference(make(folder, arrays), arrays)


FORMATS = [
    Row("TensorFlow 1, Google's files", from_file(tensorflow)),
    Row("TensorFlow 1, albertkit's files", from_file(through_tf1), written="`convert --to tf1`"),
    Row("TensorFlow 1 in `.tar.gz`", from_file(archive)),
    Row("TensorFlow Hub module", from_file(hub_module)),
    Row(
        "TensorFlow 2, the model garden's encoder",
        lambda *_: of_another_program("model_garden", AlbertForMaskedLM),
    ),
    Row("Julia `.tfbson`, `.bson`", from_file(converted("albert.tfbson")), written="`convert --to julia`"),
    Row("Hugging Face `model.safetensors`", from_file(converted("hf")), written="`convert --to hf`"),
    Row(
        "Hugging Face, safetensors in shards",
        from_file(converted("shards", max_shard_size="50kB")),
        written="`convert --max-shard-size`",
    ),
    Row("Hugging Face `pytorch_model.bin`", from_file(pytorch_bin)),
    Row("Hugging Face `tf_model.h5`", lambda *_: of_another_program("transformers_tf", AlbertForPreTraining)),
    Row("Keras 3, `albertkit.keras`", keras, written="`save_pretrained`"),
    Row("ONNX", onnx, written="`export onnx`"),
]

if __name__ == "__main__":
    main()
