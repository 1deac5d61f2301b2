"""The verbs export: models for other runtimes."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from albertkit.cli.flags import settings_flags
from albertkit.cli.options import JsonReport, Source
from albertkit.cli.printing import print_result
from albertkit.datasets.options import DataOptions

app = typer.Typer(
    help="Export a model for other runtimes.\n\nExample: albertkit export onnx bundled bundled.onnx",
    no_args_is_help=True,
)


@app.command("onnx")
@settings_flags(DataOptions, parameter="columns", panel="data")
def onnx(
    source: Source,
    target: Annotated[
        Path,
        typer.Argument(help="A .onnx file, or a folder for model.onnx, the config and the tokenizer."),
    ],
    architecture: Annotated[
        str | None,
        typer.Option(
            help="Model class, such as AlbertModel for the encoder only.",
            show_default="the class in the config, if its weights are there",
        ),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float16", "bfloat16"] | None,
        typer.Option(help="Data type of the stored weights.", show_default="as in the source"),
    ] = None,
    compute: Annotated[
        Literal["float32", "float16"],
        typer.Option(help="Data type of the computation; float16 is for GPUs."),
    ] = "float32",
    opset: Annotated[int, typer.Option(help="Version of the ONNX operators (opset), at least 17.")] = 20,
    int8: Annotated[
        bool,
        typer.Option(
            "--int8",
            help="Quantize the layers' matrices to int8. The file is about a quarter of the size, and faster "
            "on CPUs with int8 instructions (VNNI). The report gives the loss in accuracy.",
        ),
    ] = False,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            help="Measure the loss on labeled examples of the model's task, or on the texts of a .txt file.",
            show_default="sentences that come with albertkit",
        ),
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(
            min=0, help="Maximum loss in accuracy with --int8, in percentage points.", show_default="0.5"
        ),
    ] = None,
    all_inputs: Annotated[
        bool,
        typer.Option(
            "--all-inputs",
            help="Require the attention mask and the segments as inputs, for runtimes without optional ONNX "
            "inputs.",
        ),
    ] = False,
    texts: Annotated[
        Path | None,
        typer.Option(
            help="Compare on the lines of this file.", show_default="sentences that come with albertkit"
        ),
    ] = None,
    json: JsonReport = False,
    *,
    columns: dict[str, Any],
) -> None:
    """Export a model to ONNX, and compare its outputs with the NumPy reference.

    No file is kept if the outputs differ. With --int8, the loss in accuracy decides instead.

    Example: albertkit export onnx my-model my-model.onnx
    """
    from albertkit.onnx.export import export_onnx

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
    target: Annotated[Path, typer.Argument(help="New or empty folder.")],
    architecture: Annotated[
        str | None,
        typer.Option(
            help="Model class, such as AlbertModel for the encoder only.",
            show_default="the class in the config, if its weights are there",
        ),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float16", "bfloat16"] | None,
        typer.Option(help="Data type of the stored weights.", show_default="as in the source"),
    ] = None,
    int8: Annotated[
        bool,
        typer.Option(help="Also write onnx/model_quantized.onnx, in int8, and measure its loss in accuracy."),
    ] = True,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            help="Measure the loss on labeled examples of the model's task, or on the texts of a .txt file.",
            show_default="sentences that come with albertkit",
        ),
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Maximum loss in accuracy of the int8 model, in percentage points. If it loses more, it is "
            "not written.",
            show_default="0.5",
        ),
    ] = None,
    page: Annotated[
        bool,
        typer.Option(
            "--page",
            help="Also write a static page that runs the model in the visitor's browser. Needs npm.",
        ),
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(help="Model name to show on the page.", show_default="the last part of SOURCE"),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            help="Compare on the lines of this file.", show_default="sentences that come with albertkit"
        ),
    ] = None,
    json: JsonReport = False,
    *,
    columns: dict[str, Any],
) -> None:
    """Export a model for transformers.js, in browsers and in Node.js.

    The folder gets onnx/model.onnx, onnx/model_quantized.onnx (int8), config.json and the tokenizer's files.

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
