"""The curves of a run, drawn from its `metrics.jsonl`."""

import json
from pathlib import Path

from albertkit.errors import TrainingError
from albertkit.extras import optional
from albertkit.files import write_picture

# Not pyplot, whose backend belongs to the program or notebook that trains.
matplotlib_figure = optional("matplotlib.figure", extra="train")


def read_metrics(output: str | Path) -> list[dict[str, float]]:
    """Return the logged lines of a run, oldest first.

    Raises:
        TrainingError: the folder has no `metrics.jsonl`.
    """
    file = Path(output) / "metrics.jsonl"
    if not file.is_file():
        raise TrainingError(f"{file} is missing. Restore the file, or choose another output folder.")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def plot_curves(output: str | Path) -> Path:
    """Draw each metric over the tokens seen, training and evaluation in one panel, to `curves.png`."""
    lines = read_metrics(output)
    series: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for line in lines:
        for name, value in line.items():
            kind, slash, metric = name.partition("/")
            if slash and value is not None:
                points = series.setdefault(metric, {}).setdefault(kind, ([], []))
                points[0].append(line["tokens"] / 1e6)
                points[1].append(value)
    columns = max(len(series), 1)
    width, height = 4.2 * columns, 3.2  # inches, as are the margins below
    figure = matplotlib_figure.Figure(figsize=(width, height))
    # Matplotlib's own layouts would draw everything twice.
    figure.subplots_adjust(
        left=0.6 / width, right=1 - 0.2 / width, bottom=0.5 / height, top=1 - 0.35 / height
    )
    panels = figure.subplots(1, columns, squeeze=False, gridspec_kw={"wspace": 0.25})
    for panel, (metric, kinds) in zip(panels[0], sorted(series.items()), strict=False):
        for kind, (tokens, values) in sorted(kinds.items()):
            panel.plot(tokens, values, label=kind, marker="o" if kind == "eval" else "", markersize=3)
        panel.set(title=metric, xlabel="million tokens")
        panel.grid(alpha=0.3)
        panel.legend()
    target = Path(output) / "curves.png"
    write_picture(figure, target, dpi=110)
    return target
