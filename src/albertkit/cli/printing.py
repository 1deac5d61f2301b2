"""Print answers as text for people, and as JSON for programs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    from albertkit.bench import BenchReport, Timing
    from albertkit.inspection.attention import AttentionReport
    from albertkit.training.compare import Comparison

_LONG_BAR = 30
_QUOTED = 30  # characters shown on each side of an answer
_MAX_COMPARED = 12  # maximum number of texts whose similarity table fits into a terminal
_MAX_TEXT, _MIN_TEXT = 50, 20  # columns of the texts in this table
_MAX_LABELS = 20  # maximum number of labels in a table of their scores


def print_json(value: dict[str, Any]) -> None:
    from albertkit.files import finite, json_text

    print(json_text(finite(value), ensure_ascii=False), flush=True)


def print_metrics(report: dict[str, Any], as_json: bool, *, labels: bool = False) -> None:
    """Print the metrics of a report as lines, each with its baseline, or as one line of JSON.

    If `labels`, the scores and the confusions of each label follow, if there are any.
    """
    metrics, baseline = report["metrics"], report["baseline"]
    labels = labels and bool(report["classes"])
    if as_json:
        print_json(metrics | ({name: report[name] for name in ("classes", "confusion")} if labels else {}))
        return
    width = max(map(len, metrics))
    for name, value in metrics.items():
        shown = f"{value:.4f}" if isinstance(value, float) else f"{value:,}"
        beside = f"  (baseline {baseline[name]:.4f})" if name in baseline else ""
        print(f"{name:<{width}}  {shown}{beside}")
    if labels:
        _print_labels(report["classes"], report["confusion"])


def _print_labels(classes: dict[str, dict[str, float]], confusion: dict[str, dict[str, int]]) -> None:
    from albertkit.finetuning.evaluate import most_confused

    console, table = new_console(), new_table("label", right=("precision", "recall", "F1", "count"))
    shown = list(classes.items())
    if len(shown) > _MAX_LABELS:
        shown = sorted(shown, key=lambda label: label[1]["f1"])[:_MAX_LABELS]
    for name, scores in shown:
        precision, recall, f1 = (f"{scores[one]:.4f}" for one in ("precision", "recall", "f1"))
        table.add_row(name, precision, recall, f1, f"{scores['count']:,}")
    console.print()
    print_table(console, table)
    if len(shown) < len(classes):
        console.print(f"{len(shown)} of {len(classes):,} labels, those with the lowest F1", style="dim")
    if confusions := most_confused(confusion):
        table = new_table("true", "predicted", right=["count"])
        for true, predicted, count in confusions:
            table.add_row(true, predicted, f"{count:,}")
        console.print("\nmost frequent confusions", style="italic")
        print_table(console, table)


def as_fields(given: Any) -> dict[str, Any]:
    """Return the fields of an input by name."""
    if isinstance(given, dict):
        return given
    return dict(zip(("text", "text_pair"), given if isinstance(given, tuple) else (given,), strict=False))


def new_console() -> "Console":
    """Return the console, which prints texts as they are: without markup, colors of numbers, or emojis."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def new_table(
    *columns: str, right: Iterable[str] = (), padding: tuple[int, ...] = (0, 2, 0, 0), **options: Any
) -> "Table":
    """Return a table without lines. The columns `right` are aligned right; `options` are those of Rich."""
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, padding=cast(Any, padding), **options)
    for name in right:
        table.add_column(name, justify="right")
    return table


def print_title(console: "Console", given: Any, *, cut: int = 0) -> None:
    """Print an input, and the number of its tokens that truncation removed."""
    for name, value in as_fields(given).items():
        if value and name != "choices":
            console.print(str(value), style="bold")
    if cut:
        console.print(f"truncated: the last {cut:,} tokens", style="dim")


def print_table(console: "Console", table: "Table") -> None:
    """Print a table. In a narrow terminal, its cells wrap, the widest columns first, and nothing is cut."""
    for column in table.columns:
        column.overflow = "fold"
    console.print(table)


def print_bars(console: "Console", shares: Sequence[tuple[str, float]]) -> None:
    """Print one line per name, with a bar whose length is its probability relative to the best.

    A single bar is relative to 100%.
    """
    from rich.bar import Bar

    table = new_table("", right=[""], show_header=False)
    table.add_column(max_width=_LONG_BAR)
    best = max(score for _, score in shares) if len(shares) > 1 else 1.0
    for name, score in shares:
        table.add_row(name, f"{100 * score:.3g}%", Bar(size=best, begin=0, end=score, color="cyan"))
    print_table(console, table)


def print_spans(console: "Console", spans: Sequence[tuple[str, str, dict[str, Any]]]) -> None:
    """Print one line per span: its label, its text, its probability, its characters."""
    if not spans:
        console.print("nothing found", style="dim")
    else:
        table = new_table(show_header=False)
        for name, text, span in spans:
            cells = [name, text] if text else [name]
            table.add_row(*cells, f"{100 * span['score']:.3g}%", f"{span['start']}:{span['end']}")
        print_table(console, table)
    console.print()


def print_matches(console: "Console", matches: Sequence[dict[str, Any]]) -> None:
    """Print one line per text: its similarity to the query, its id, its text."""
    table = new_table(show_header=False)
    for match in matches:
        table.add_row(f"{match['score']:.3f}", str(match["id"]), " ".join(match["text"].split()))
    print_table(console, table)
    console.print()


def print_masks(console: "Console", text: str, masks: list[list[dict[str, Any]]], tokenizer: Any) -> None:
    print_title(console, text)
    for number, words in enumerate(masks, start=1):
        if len(masks) > 1:
            console.print(f"mask {number}", style="dim")
        if "window" in words[0]:
            start, end = words[0]["window"]
            console.print(f"read: characters {start:,} to {end:,} of {len(text):,}", style="dim")
        # A word-start mark alone is empty as text, and "old" and "▁old" are the same text. The vocabulary's
        # spelling tells them apart.
        counts = Counter(word["token_str"] for word in words)
        names = [
            word["token_str"]
            if word["token_str"] and counts[word["token_str"]] == 1
            else tokenizer.convert_ids_to_tokens(word["token"])
            for word in words
        ]
        print_bars(console, [(name, word["score"]) for name, word in zip(names, words, strict=True)])
    console.print()


def quote(answer: dict[str, Any], context: str) -> str:
    """Return an answer with the words around it."""
    if not answer["answer"]:
        return "(no answer)"
    before, after = context[: answer["start"]], context[answer["end"] :]
    if len(before) > _QUOTED:
        before = "... " + before[-_QUOTED:].partition(" ")[2]
    if len(after) > _QUOTED:
        after = after[:_QUOTED].rpartition(" ")[0] + " ..."
    return " ".join(f"{before}[{answer['answer']}]{after}".split())


def print_vectors(texts: list[str], matrix: "np.ndarray", output: Path | None) -> None:
    """Print the first numbers of one vector, or the cosines between several."""
    import numpy as np
    from rich.text import Text

    from albertkit.metrics import unit

    console = new_console()
    where = "" if output is None else f", written to {output}"
    if len(texts) == 1:
        console.print(f"{matrix.shape[1]} dimensions, norm {np.linalg.norm(matrix):.2f}{where}")
        console.print(" ".join(f"{number:+.3f}" for number in matrix[0, :8]), "...")
        return
    console.print(f"{len(texts):,} vectors of {matrix.shape[1]} dimensions{where}")
    if len(texts) > _MAX_COMPARED:
        return
    scaled = unit(matrix)
    cosines = [[f"{cosine:.2f}" for cosine in row] for row in scaled @ scaled.T]
    padding = (0, 1) if 7 * len(texts) + _MIN_TEXT <= console.width else (0, 1, 0, 0)
    table = new_table(title="cosine similarity", title_justify="left", padding=padding)
    table.add_column("", no_wrap=True)
    table.add_column("text", max_width=_MAX_TEXT)
    for number in range(1, len(texts) + 1):
        table.add_column(str(number), justify="right", no_wrap=True)
    for number, (text, row) in enumerate(zip(texts, cosines, strict=True), start=1):
        table.add_row(str(number), Text(text, no_wrap=True, overflow="ellipsis"), *row)
    print_table(console, table)


def print_model(report: dict[str, Any]) -> None:
    from albertkit.inspection.model import TOKENS

    console = new_console()
    console.print(f"{report['model']}  {report['class']}", style="bold")
    shape, memory, flops = report["shape"], report["memory"], report["flops"]
    facts = new_table(show_header=False)
    facts.add_row("hidden size", f"{shape['hidden_size']:,}, embeddings {shape['embedding_size']:,}")
    facts.add_row(
        "layers",
        f"{shape['num_hidden_layers'] * shape['inner_group_num']} executed, "
        f"{shape['num_hidden_groups'] * shape['inner_group_num']} stored, "
        f"{shape['num_attention_heads']} heads, feed-forward {shape['intermediate_size']:,}, "
        f"{shape['hidden_act']}",
    )
    facts.add_row("vocabulary", f"{shape['vocab_size']:,} pieces")
    facts.add_row("maximum length", f"{shape['max_position_embeddings']:,} tokens")
    if "weights" in report:
        weights = report["weights"]
        facts.add_row("stored as", f"{weights['dtype']}, {_megabytes(weights['bytes'])}")
    facts.add_row(
        "memory",
        f"weights {_megabytes(memory['weights_fp32'])} in fp32, {_megabytes(memory['weights_fp16'])} in fp16",
    )
    facts.add_row(
        f"  for {TOKENS} tokens",
        f"about {_megabytes(memory[f'inference_per_{TOKENS}_tokens'])} in inference, "
        f"{_megabytes(memory[f'training_per_{TOKENS}_tokens'])} in training (fp32)",
    )
    facts.add_row(
        "MFLOP per token",
        ", ".join(
            f"{value / 1e6:,.1f} at {name.removeprefix('per_token_at_')} tokens"
            for name, value in flops.items()
            if name.startswith("per_token_at_")
        )
        + (f"; {flops['per_masked_word'] / 1e6:,.1f} per masked word" if flops["per_masked_word"] else ""),
    )
    if tokenizer := report.get("tokenizer"):
        lower = tokenizer["do_lower_case"]
        strips = tokenizer.get("strip_accents")  # for WordPiece; None follows lower case
        kept = tokenizer.get("keep_accents", not (lower if strips is None else strips))
        facts.add_row(
            "tokenizer",
            f"{tokenizer['class']}, {tokenizer['pieces']:,} pieces, {'lower case' if lower else 'cased'}, "
            f"accents {'kept' if kept else 'removed'}",
        )
    print_table(console, facts)
    table = new_table("parameters", right=("stored", "as executed"))
    for part, count in report["parameters"].items():
        style = "bold" if part == "total" else None
        table.add_row(part, f"{count['distinct']:,}", f"{count['executed']:,}", style=style)
    console.print()
    print_table(console, table)


def _megabytes(number: int) -> str:
    return f"{number / 1e6:,.1f} MB"


def print_attention(report: "AttentionReport", html: Path | None) -> None:
    console = new_console()
    print_title(console, {"text": report.text, "text_pair": report.text_pair}, cut=report.cut)
    columns = ("layer", "weights", "with the previous layer", "with the last layer")
    title = "mean cosine of the vectors"
    table = new_table(right=columns, title=title, title_justify="left", padding=(0, 1))
    table.add_row("0", "", "", f"{report.cosine_to_last[0].mean():.3f}", style="dim")
    for number, layer in enumerate(report.layers, start=1):
        table.add_row(
            str(number),
            str(layer.stored),
            f"{report.cosine_to_previous[number - 1].mean():.3f}",
            f"{report.cosine_to_last[number].mean():.3f}",
        )
    print_table(console, table)
    if html is None:
        console.print("--html FILE shows the attention of every layer and head", style="dim")
    else:
        console.print(
            f"{len(report.tokens)} tokens, written to {html} ({html.stat().st_size / 1e3:,.0f} kB): open it "
            "in a browser",
        )


def print_comparison(comparison: "Comparison") -> None:
    """Print a row for each metric and for each setting that differs, with a column for each run."""
    console = new_console()
    table = new_table("", right=comparison.folders)
    for values in (comparison.metrics, comparison.settings):
        for name in dict.fromkeys(name for of_run in values.values() for name in of_run):
            table.add_row(name, *(_cell(of_run.get(name)) for of_run in values.values()))
        if values is comparison.metrics:
            table.add_row()
            title = "settings that differ" if any(comparison.settings.values()) else "all settings are equal"
            table.add_row(title, style="italic")
    print_table(console, table)
    if comparison.image is not None:
        console.print(f"curves written to {comparison.image}", style="dim")


def _cell(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_bench(report: "BenchReport", plot: Path | None) -> None:
    """Print the machine, and a table of the speeds with a row per size and a column per engine."""
    console, about = new_console(), report.about
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    device = "" if about["device"] == "cpu" else f"{about['device']}, "
    console.print(f"{report.model} ({about['class']}, {about['dtype']})", style="bold")
    console.print(
        f"{device}{about['processor']}, {about['threads']} threads on {about['cores']} cores; {versions}"
    )
    product = f"{report.product / 1e9:,.1f} GFLOP/s ({about['product_library']})"
    console.print(f"largest matrix product: {product}\n")
    engines = list(dict.fromkeys(timing.engine for timing in report.timings))
    others = {name: dtype for name, dtype in about["computed_in"].items() if dtype != about["dtype"]}
    names = (f"{name} ({others[name]})" if name in others else name for name in engines)
    table = new_table(right=("batch", "tokens", *names))
    rows: dict[tuple[int, int], dict[str, Timing]] = {}
    for timing in sorted(report.timings, key=lambda timing: (timing.length or 0, timing.batch)):
        rows.setdefault((timing.length or 0, timing.batch), {})[timing.engine] = timing
    for (length, batch), timings in rows.items():
        tokens = str(length) if length else f"{report.tokens_per_text:.0f} (file)"
        speeds = [f"{timings[name].texts_per_second:,.4g} ({timings[name].share:.0%})" for name in engines]
        table.add_row(str(batch), tokens, *speeds)
    console.print("texts per second (operations as a share of the largest matrix product's)", style="italic")
    print_table(console, table)
    console.print()
    for name, difference in report.differences.items():
        console.print(f"{name}: scores differ from {engines[0]} by at most {difference:.1e}", style="dim")
    for name, reason in report.left_out.items():
        console.print(f"not measured: {name}: {reason}", style="dim", soft_wrap=True)
    if plot is not None:
        console.print(f"plot written to {plot}", style="dim")
