"""Write the table of docs/explanation/sizes.md: parameters, files and memory of the published shapes.

    python scripts/sizes.py [--shapes bundled,base,large,xlarge,xxlarge] [--write-page]

Published shapes have random weights. The script writes the files and reads their sizes. For the memory, a
process loads a folder and computes the vector of one text of 128 tokens. The figure is the peak resident
memory minus the memory before loading the model. Linux only; the largest shape takes some minutes and 5 GB.
"""

import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pages import command_line, rows_of, write_table

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "sizes.md"
BEGIN = "<!-- table: scripts/sizes.py -->"
SHAPES = ("bundled", "base", "large", "xlarge", "xxlarge")
COLUMNS = (
    *("shape", "parameters", "without sharing", "MFLOPs per token"),
    *("file, fp32", "file, fp16", "file, int8"),
    *("memory, `plain`", "memory, `torch`", "memory, `onnx`", "memory, int8"),
)
TOKENS = 128
MEGABYTE = 1e6


def write_models(shape: str, folder: Path) -> str:
    """Write a model of a shape in fp32, fp16 and int8; return the cells that need no computation."""
    import numpy as np
    import torch

    from albertkit import AlbertConfig, AlbertModel
    from albertkit.checkpoints.arrays import to_arrays
    from albertkit.engines.light_model import LightModel
    from albertkit.export.onnx import write_file
    from albertkit.footprint import measure

    torch.manual_seed(0)
    if shape == "bundled":
        model = AlbertModel.from_pretrained("bundled")
    else:
        model = AlbertModel(AlbertConfig.preset(shape))
    footprint = measure("AlbertModel", model.config)
    model.save_pretrained(folder / "fp32")
    network = LightModel("AlbertModel", model.config, to_arrays(model.state_dict()))
    options = {"opset": 20, "compute": np.dtype("float32"), "int8": True, "optional_inputs": True}
    write_file(folder / "int8.onnx", network, {}, **options)
    model.half().save_pretrained(folder / "fp16")
    files = (folder / "fp32/model.safetensors", folder / "fp16/model.safetensors", folder / "int8.onnx")
    total = footprint.total
    cells = [
        shape,
        f"{total.distinct / 1e6:.1f} M",
        f"{total.executed / 1e6:,.0f} M",
        f"{footprint.flops(TOKENS) / 1e6:,.0f}",
        *(f"{file.stat().st_size / MEGABYTE:,.1f} MB" for file in files),
    ]
    return f"| {' | '.join(cells)} |"


def engine_memory(folder: Path, engine: str) -> float:
    """Return the memory in MB that an engine needs for one text."""
    from albertkit.engines.choosing import make_engine
    from albertkit.engines.engine import Row, first_token
    from albertkit.engines.light_model import LightModel

    if engine == "onnx":
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    else:
        from albertkit.engines import torch  # noqa: F401

    before = peak_memory()
    model = LightModel.from_pretrained(folder / "fp32", "AlbertModel")
    row = Row(input_ids=[5] * TOKENS, token_type_ids=[0] * TOKENS, example=0)
    make_engine(model, engine).run([row], output="hidden_states", read=first_token)
    return peak_memory() - before


def session_memory(folder: Path) -> float:
    """Return the memory in MB that ONNX Runtime alone needs for one text with the int8 file."""
    import numpy as np
    import onnxruntime

    before = peak_memory()
    session = onnxruntime.InferenceSession(folder / "int8.onnx")
    session.run(None, {"input_ids": np.full((1, TOKENS), 5)})
    return peak_memory() - before


def peak_memory() -> float:
    """Return the peak resident memory of this process in MB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / MEGABYTE


def in_new_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process, so that measurements do not share memory."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def measured(shape: str) -> str:
    """Return the row of a shape."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        line = in_new_process(write_models, shape, folder)
        memory = [in_new_process(engine_memory, folder, engine) for engine in ("plain", "torch", "onnx")]
        memory.append(in_new_process(session_memory, folder))
    return line + "".join(f" {figure:,.0f} MB |" for figure in memory)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument(
        "--shapes", default=",".join(SHAPES), help=f"comma-separated, from {', '.join(SHAPES)}"
    )
    parser.add_argument("--write-page", action="store_true", help=f"write the table into {PAGE.name}")
    options = parser.parse_args()
    rows = {shape: measured(shape) for shape in options.shapes.split(",")}
    print("\n".join(rows.values()))
    if options.write_page:
        write_page(rows)


def write_page(rows: dict[str, str]) -> None:
    """Put rows into the table of the page, and keep the rows of other shapes."""
    for line in rows_of(PAGE, BEGIN):
        for shape in SHAPES:
            if line.startswith(f"| {shape} |"):
                rows.setdefault(shape, line)
    head = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    write_table(PAGE, BEGIN, "\n".join([*head, *(rows[shape] for shape in SHAPES if shape in rows)]))


if __name__ == "__main__":
    main()
