"""Write the table of docs/checkpoints.md: what each format of checkpoint gives, beside the original.

    python scripts/checkpoint_table.py

The original TensorFlow code's weights and outputs are in tests/golden/google_tf1_small. They are written in
every format, read back, and what the model then computes is compared with what the original did.
"""

import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from albertkit import AlbertForPreTraining
from albertkit.checkpoints.tensor_bundle import write_bundle
from albertkit.conversion import convert

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden" / "google_tf1_small"
PAGE = ROOT / "docs" / "checkpoints.md"
BEGIN, END = "<!-- table: scripts/checkpoint_table.py -->", "<!-- end of table -->"
WRITTEN = "`convert --to {}`"


def main() -> None:
    arrays = read_golden()
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            f"| {name} | yes | {written} | {largest_difference(make(Path(folder), arrays), arrays):.1e} |"
            for name, written, make in FORMATS
        ]
    header = [
        "| format | read | written | largest difference from the original's outputs |",
        "|---|---|---|---|",
    ]
    table = "\n".join([BEGIN, *header, *rows, END])
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + table + rest.partition(END)[2])
    print(table)


def read_golden() -> dict[str, torch.Tensor]:
    """The original's weights and outputs."""
    with np.load(GOLDEN / "arrays.npz") as file:
        return {key: torch.from_numpy(file[key]) for key in file}


def largest_difference(path: Path, arrays: dict[str, torch.Tensor]) -> float:
    """Over every layer, pooler and both heads; padding left out."""
    golden = {key.removeprefix("golden:"): one for key, one in arrays.items() if key.startswith("golden:")}
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
            (one[real], other[real])
            for one, other in zip(output.hidden_states[1:], golden["layers"], strict=True)
        ),
        (pooled, golden["pooled_output"]),
        (output.prediction_logits, golden["mlm_logits"].flatten(0, 1)),
        (output.sop_logits, golden["sop_logits"]),
    ]
    return max(float((one - other).abs().max()) for one, other in pairs)


# --- one maker per format -----------------------------------------------------------------------


def tensorflow(
    folder: Path, arrays: dict[str, torch.Tensor], *, place: str = "tf1/model.ckpt-best", scope: str = ""
) -> Path:
    """The folder with the original's own files."""
    prefix = folder / place
    prefix.parent.mkdir(parents=True, exist_ok=True)
    write_bundle(prefix, {scope + key[7:]: one for key, one in arrays.items() if key.startswith("weight:")})
    home = prefix.parents[1] if "/variables/" in place else prefix.parent
    shutil.copy(GOLDEN / "albert_config.json", home)
    return home


def archive(folder: Path, arrays: dict[str, torch.Tensor]) -> Path:
    with tarfile.open(folder / "albert.tar.gz", "w:gz") as tar:
        tar.add(tensorflow(folder, arrays), "albert")
    return folder / "albert.tar.gz"


def hub_module(folder: Path, arrays: dict[str, torch.Tensor]) -> Path:
    return tensorflow(folder, arrays, place="module/variables/variables", scope="module/")


def converted(name: str) -> Callable[[Path, dict[str, torch.Tensor]], Path]:
    def make(folder: Path, arrays: dict[str, torch.Tensor]) -> Path:
        convert(tensorflow(folder, arrays), folder / name)
        return folder / name

    return make


def through_tf1(folder: Path, arrays: dict[str, torch.Tensor]) -> Path:
    convert(tensorflow(folder, arrays), folder / "there")
    convert(folder / "there", folder / "and back", to="tf1")
    return folder / "and back"


def other_weights(folder: Path, arrays: dict[str, torch.Tensor], *, sharded: bool) -> Path:
    """A Hugging Face folder whose weights are in shards, or in PyTorch's older file."""
    name = "shards" if sharded else "bin"
    convert(tensorflow(folder, arrays), folder / name)
    tensors = load_file(folder / name / "model.safetensors")
    if not sharded:
        torch.save(tensors, folder / name / "pytorch_model.bin")
    else:
        files = {one: f"model-0000{at % 2 + 1}-of-00002.safetensors" for at, one in enumerate(tensors)}
        for file in set(files.values()):
            save_file({one: tensors[one] for one in tensors if files[one] == file}, folder / name / file)
        (folder / name / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    (folder / name / "model.safetensors").unlink()
    return folder / name


FORMATS = [
    ("TensorFlow 1, the original's files", "", tensorflow),
    ("TensorFlow 1, albertkit's files", WRITTEN.format("tf1"), through_tf1),
    ("TensorFlow 1 in `.tar.gz`", "", archive),
    ("TensorFlow Hub module", "", hub_module),
    ("Julia `.tfbson`, `.bson`", WRITTEN.format("julia"), converted("albert.tfbson")),
    ("Hugging Face `model.safetensors`", WRITTEN.format("hf"), converted("hf")),
    ("Hugging Face, safetensors in shards", "", lambda *given: other_weights(*given, sharded=True)),
    ("Hugging Face `pytorch_model.bin`", "", lambda *given: other_weights(*given, sharded=False)),
]

if __name__ == "__main__":
    main()
