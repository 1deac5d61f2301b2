"""The verbs export: models for other runtimes."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from albertkit.cli.flags import settings_flags
from albertkit.cli.options import JsonReport, Source
from albertkit.cli.printing import print_result
from albertkit.datasets.options import DataOptions

Architecture = Annotated[
    str | None,
    typer.Option(
        help="Model class, such as AlbertModel for the encoder only.",
        show_default="the class in the config, if the source has its weights",
    ),
]
StoredDtype = Annotated[
    Literal["float32", "float16", "bfloat16"] | None,
    typer.Option(help="Data type of the stored weights.", show_default="as in the source"),
]
Calibrate = Annotated[
    Path | None,
    typer.Option(
        help="Data to measure the accuracy drop on: labeled examples of the model's task, or a .txt file "
        "with one text per line.",
        show_default="sentences included in albertkit",
    ),
]
MaxDrop = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=100,
        help="Maximum accuracy drop of the int8 model, in percentage points. If the drop is larger, the int8 "
        "model is not written.",
        show_default="0.5",
    ),
]
ComparedTexts = Annotated[
    Path | None,
    typer.Option(
        help="Compare the outputs on the lines of this file.", show_default="sentences included in albertkit"
    ),
]

app = typer.Typer(
    help="Export a model for other runtimes.\n\nExample: albertkit export onnx bundled bundled.onnx",
    no_args_is_help=True,
)


@app.command("onnx")
@settings_flags(DataOptions, parameter="columns", panel="data")
def onnx(
    source: Source,
    target: Annotated[
        Path, typer.Argument(help="A .onnx file, or a folder for model.onnx, the config and the tokenizer.")
    ],
    architecture: Architecture = None,
    dtype: StoredDtype = None,
    compute: Annotated[
        Literal["float32", "float16"], typer.Option(help="Data type of the computation; float16 is for GPUs.")
    ] = "float32",
    opset: Annotated[int, typer.Option(help="Version of the ONNX operators (opset), at least 17.")] = 20,
    int8: Annotated[
        bool,
        typer.Option(
            "--int8",
            help="Quantize the layers' matrices to int8. The file has about a quarter of the size, and the "
            "model runs faster on CPUs with int8 instructions (VNNI). The report gives the accuracy drop.",
        ),
    ] = False,
    calibrate: Calibrate = None,
    max_drop: MaxDrop = None,
    all_inputs: Annotated[
        bool,
        typer.Option(
            "--all-inputs",
            help="Make attention_mask and token_type_ids required inputs, for runtimes that do not support "
            "optional ONNX inputs.",
        ),
    ] = False,
    texts: ComparedTexts = None,
    json: JsonReport = False,
    *,
    columns: dict[str, Any],
) -> None:
    """Export a model to ONNX, and compare its outputs with the NumPy reference.

    If the outputs differ, the command fails and writes no file. With --int8, it fails if the accuracy drop
    exceeds --max-drop.

    Example: albertkit export onnx my-model my-model.onnx
    """
    from albertkit.export.onnx import export_onnx

    report = export_onnx(
        source,
        target,
        architecture=architecture,
        dtype=dtype,
        compute=compute,
        opset=opset,
        int8=int8,
        calibrate=calibrate,
        max_drop=max_drop,
        all_inputs=all_inputs,
        **({} if texts is None else {"texts": texts}),
        **columns,
    )
    print_result(report, json)


@app.command("web")
@settings_flags(DataOptions, parameter="columns", panel="data")
def web(
    source: Source,
    target: Annotated[Path, typer.Argument(help="Folder to write, new or empty.")],
    architecture: Architecture = None,
    dtype: StoredDtype = None,
    int8: Annotated[
        bool,
        typer.Option(help="Also write onnx/model_quantized.onnx in int8, and measure its accuracy drop."),
    ] = True,
    calibrate: Calibrate = None,
    max_drop: MaxDrop = None,
    page: Annotated[
        bool,
        typer.Option(
            "--page", help="Also write a static page that runs the model in the visitor's browser. Needs npm."
        ),
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(help="Model name to show on the page.", show_default="the last part of SOURCE"),
    ] = None,
    texts: ComparedTexts = None,
    json: JsonReport = False,
    *,
    columns: dict[str, Any],
) -> None:
    """Export a model for transformers.js, in browsers and in Node.js.

    The new folder has onnx/model.onnx, onnx/model_quantized.onnx (int8), config.json and the tokenizer files.

    Example: albertkit export web my-model my-model-web
    """
    from albertkit.web.export import export_web

    report = export_web(
        source,
        target,
        architecture=architecture,
        dtype=dtype,
        int8=int8,
        calibrate=calibrate,
        max_drop=max_drop,
        page=page,
        name=name,
        **({} if texts is None else {"texts": texts}),
        **columns,
    )
    print_result(report, json)
