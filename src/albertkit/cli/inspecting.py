"""The verb inspect: what a model is and what it costs."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from albertkit.cli.completing import models_and_shapes
from albertkit.cli.printing import print_json

if TYPE_CHECKING:
    import numpy as np

    from albertkit.config import AlbertConfig
    from albertkit.footprint import Footprint

_SHAPE = (
    "hidden_size",
    "embedding_size",
    "num_hidden_layers",
    "num_hidden_groups",
    "inner_group_num",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "vocab_size",
    "hidden_act",
)
_TOKENS = 128  # of the text that memory is estimated for
_LENGTHS = (128, 512)


def inspect(
    model: Annotated[
        str,
        typer.Argument(
            help="Model folder or file of any format, hub name, 'bundled', or a shape such as base-v2.",
            autocompletion=models_and_shapes,
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a model's shape, parameters, memory, operations and tokenizer.

    Example: albertkit inspect bundled
    """
    preset = re.fullmatch(r"(base|large|xlarge|xxlarge)(?:-(v1|v2))?", model)
    report = _of_shape(*preset.groups()) if preset and not Path(model).exists() else _of_checkpoint(model)
    report = {"model": model, **report}
    if json:
        print_json(report)
    else:
        _print(report)


def _of_shape(size: str, version: str | None) -> dict[str, Any]:
    from albertkit.config import AlbertConfig

    return _of_config(AlbertConfig.preset(cast(Any, size), version=cast(Any, version or "v2")))


def _of_checkpoint(name: str) -> dict[str, Any]:
    from albertkit.checkpoints.formats import locate, read
    from albertkit.config import AlbertConfig
    from albertkit.errors import ModelNotFoundError
    from albertkit.published import warn_of_contradictions
    from albertkit.tokenization.auto import AutoTokenizer

    path = locate(name)
    checkpoint = read(path)
    config = AlbertConfig.from_dict(checkpoint.config)
    warn_of_contradictions(name, vars(config))
    report = _of_config(config, checkpoint.tensors)
    if not path.is_dir():
        return {**report, "tokenizer": None}  # a Julia file, or one checkpoint of several
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except ModelNotFoundError:
        return {**report, "tokenizer": None}  # weights alone are a model folder too
    settings = {
        "class": type(tokenizer).__name__,
        "pieces": len(tokenizer),
        **tokenizer.normalization,
        "model_max_length": tokenizer.model_max_length,
        "special_tokens": {
            token: tokenizer.convert_tokens_to_ids(token) for token in tokenizer.all_special_tokens
        },
    }
    return {**report, "tokenizer": settings}


def _of_config(config: "AlbertConfig", tensors: "dict[str, np.ndarray] | None" = None) -> dict[str, Any]:
    """Return the figures of a model of that shape; of the weights too, where there are any."""
    from albertkit.footprint import measure
    from albertkit.heads import HEADS

    named = (config.architectures or [""])[0]
    architecture = named if named in HEADS else "AlbertForPreTraining"
    footprint = measure(architecture, config)
    act = config.hidden_act
    report = {
        "class": architecture,
        "shape": {name: getattr(config, name) for name in _SHAPE} | {"hidden_act": str(act)},
        "parameters": {part: vars(one) for part, one in footprint.parameters.items()}
        | {"total": vars(footprint.total)},
        "memory": _memory(footprint),
        "flops": _flops(footprint),
    }
    if tensors is not None:
        from albertkit.checkpoints.arrays import is_floating

        floating = [tensor for tensor in tensors.values() if is_floating(tensor)]
        report["weights"] = {
            "dtype": ", ".join(sorted({tensor.dtype.name for tensor in floating})),
            "bytes": sum(tensor.nbytes for tensor in tensors.values()),
            "tensors": len(tensors),
        }
    return report


def _memory(footprint: "Footprint") -> dict[str, int]:
    """Return bytes; activations for one text of `_TOKENS` tokens in fp32, as estimates."""
    return {
        "weights_fp32": footprint.weight_bytes(4),
        "weights_fp16": footprint.weight_bytes(2),
        f"inference_per_{_TOKENS}_tokens": footprint.inference_floats * 4 * _TOKENS,
        f"training_per_{_TOKENS}_tokens": footprint.training_floats * 4 * _TOKENS,
    }


def _flops(footprint: "Footprint") -> dict[str, int]:
    """Return floating-point operations for one token."""
    return {
        "per_token": footprint.flops_per_token,
        **{f"per_token_at_{length}": footprint.flops(length) for length in _LENGTHS},
        "per_masked_word": footprint.head_flops,
    }


def _print(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"{report['model']}  {report['class']}", style="bold", markup=False)
    shape, memory, flops = report["shape"], report["memory"], report["flops"]
    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_row("hidden size", f"{shape['hidden_size']:,}, embeddings {shape['embedding_size']:,}")
    facts.add_row(
        "layers",
        f"{shape['num_hidden_layers'] * shape['inner_group_num']} executed, "
        f"{shape['num_hidden_groups'] * shape['inner_group_num']} stored, "
        f"{shape['num_attention_heads']} heads, feed-forward {shape['intermediate_size']:,}, "
        f"{shape['hidden_act']}",
    )
    facts.add_row("vocabulary", f"{shape['vocab_size']:,} pieces")
    facts.add_row("longest text", f"{shape['max_position_embeddings']:,} tokens")
    if "weights" in report:
        weights = report["weights"]
        facts.add_row("stored as", f"{weights['dtype']}, {_megabytes(weights['bytes'])}")
    facts.add_row(
        "memory",
        f"weights {_megabytes(memory['weights_fp32'])} in fp32, {_megabytes(memory['weights_fp16'])} in fp16",
    )
    facts.add_row(
        f"  for {_TOKENS} tokens",
        f"about {_megabytes(memory[f'inference_per_{_TOKENS}_tokens'])} in inference, "
        f"{_megabytes(memory[f'training_per_{_TOKENS}_tokens'])} in training (fp32)",
    )
    facts.add_row(
        "MFLOP per token",
        ", ".join(f"{flops[f'per_token_at_{length}'] / 1e6:,.1f} at {length} tokens" for length in _LENGTHS)
        + (f"; {flops['per_masked_word'] / 1e6:,.1f} per masked word" if flops["per_masked_word"] else ""),
    )
    if report.get("tokenizer"):
        facts.add_row("tokenizer", _describe(report["tokenizer"]))
    console.print(facts)
    table = Table("parameters", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("stored", justify="right")
    table.add_column("as executed", justify="right")
    for part, one in report["parameters"].items():
        style = "bold" if part == "total" else None
        table.add_row(part, f"{one['distinct']:,}", f"{one['executed']:,}", style=style)
    console.print()
    console.print(table)


def _describe(tokenizer: dict[str, Any]) -> str:
    lower = tokenizer["do_lower_case"]
    strips = tokenizer.get("strip_accents")  # WordPiece's; None follows lower case
    kept = tokenizer.get("keep_accents", not (lower if strips is None else strips))
    return (
        f"{tokenizer['class']}, {tokenizer['pieces']:,} pieces, {'lower case' if lower else 'cased'}, "
        f"{'accents kept' if kept else 'accents removed'}"
    )


def _megabytes(number: int) -> str:
    return f"{number / 1e6:,.1f} MB"
