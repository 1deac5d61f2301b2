"""Find the best shape and vocabulary for a budget of processor time, with a small scaling study.

    python benchmarks/scaling.py --texts FILE [--recipe FILE] [--minutes 30] [--hours 20]
                                 [--shapes 256x4 256x8 384x4 384x4x2 384x6] [--vocabularies 8192]
                                 [--output FOLDER] [--json]

A shape is hidden size x layers, or hidden size x layers x groups. The script trains each shape with the
recipe for the same processor minutes, at a constant learning rate and with one thread, on all cores in
parallel. It fits a power law to the held-out masked loss over time, and extrapolates it to the budget of
`--hours`. The extrapolation shows which shape to choose, not the loss that it will have.

To compare vocabularies, the script trains the first shape with each of them. It compares the held-out loss
per character, because tokens of different vocabularies differ in length.

The file `runs.jsonl` in the output folder has the finished runs, so the same command continues after an
interruption. The folder also gets the plot `scaling.png`.
"""

import tempfile
from pathlib import Path
from typing import Any

from report import Figure, command_line, compare, show, state
from time_to_loss import Case, Curve, Runs, prepared

FITTED = 0.5  # share of the points to fit, from the end; warm-up and the plateau shape the earlier ones


def shape_of(name: str) -> dict[str, int]:
    """Return the config settings of a shape such as 384x4 or 384x4x2."""
    hidden, layers, *groups = map(int, name.split("x"))
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_hidden_groups": groups[0] if groups else 1,
        "num_attention_heads": hidden // 64,
        "intermediate_size": 4 * hidden,
    }


def fit(curve: Curve) -> tuple[float, float, float]:
    """Fit the loss c + a * hours**-b to the later points of a curve, and return (c, a, b)."""
    import numpy as np
    from scipy.optimize import curve_fit

    points = np.array(curve[int(len(curve) * (1 - FITTED)) :])
    hours, losses = points[:, 0] / 3600, points[:, 2]

    def law(time: Any, floor: float, factor: float, power: float) -> Any:
        return floor + factor * time**-power

    bounds = ([0, 0, 0.05], [losses.min(), 20, 2])
    start = (losses.min() / 2, 1, 0.3)
    fitted, _ = curve_fit(law, hours, losses, p0=start, bounds=bounds, max_nfev=20_000)
    return tuple(fitted)


def figures_of(curves: dict[str, Curve], hours: float, against: str) -> list[Figure]:
    """Return the tokens, final loss and extrapolated loss of each shape, compared with shape `against`."""
    figures = []
    laws = {name: fit(curve) for name, curve in curves.items()}
    for name, curve in curves.items():
        floor, factor, power = laws[name]
        first = laws[against]
        figures += [
            state(f"{name}: million tokens", curve[-1][1] / 1e6, curves[against][-1][1] / 1e6),
            state(f"{name}: held-out loss", curve[-1][2], curves[against][-1][2]),
            compare(
                f"{name}: extrapolated to {hours:g} hours",
                floor + factor * hours**-power,
                first[0] + first[1] * hours ** -first[2],
            ),
        ]
    return figures


def draw(curves: dict[str, Curve], hours: float, file: Path) -> None:
    """Plot each curve and its power law over processor hours."""
    import numpy as np
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(7, 4), layout="constrained")
    panel = picture.subplots()
    for name, curve in curves.items():
        floor, factor, power = fit(curve)
        points = np.array(curve[1:])
        (line,) = panel.plot(points[:, 0] / 3600, points[:, 2], ".", label=name)
        times = np.geomspace(points[len(points) // 2, 0] / 3600, hours)
        panel.plot(times, floor + factor * times**-power, color=line.get_color(), linewidth=1)
    panel.set(xscale="log", xlabel="processor hours", ylabel="held-out masked loss")
    panel.grid(alpha=0.3)
    panel.legend()
    picture.savefig(file, dpi=110)


def characters_per_token(case: Case) -> float:
    """Return the mean number of characters per token in the held-out text."""
    from albertkit import AlbertTokenizer
    from albertkit.pretraining.shards import ShardSet

    tokenizer = AlbertTokenizer.from_pretrained(case["tokenizer"])
    held_out = ShardSet(Path(case["shards"]) / "validation")
    ids = [held_out.tokens(index)[0].tolist() for index in range(min(len(held_out), 50))]
    return sum(map(len, tokenizer.batch_decode(ids))) / sum(map(len, ids))


def with_vocabulary(texts: str, size: str, folder: Path) -> Case:
    """Train a vocabulary of `size` pieces, prepare shards with it, and return the paths of both."""
    from albertkit import train_tokenizer

    train_tokenizer([texts], output=folder / "trained", vocab_size=int(size))
    return prepared(texts, str(folder / "trained"), folder)


def vocabulary_figures(curves: dict[str, Curve], characters: dict[str, float]) -> list[Figure]:
    """Return the final loss per character of each vocabulary, compared with the first vocabulary."""
    losses = {size: curves[size][-1][2] / characters[size] for size in characters}
    first = next(iter(losses.values()))
    return [
        state(f"{size} pieces: held-out loss per character", loss, first) for size, loss in losses.items()
    ]


def main() -> None:
    """Train the models, fit and plot the power laws, and print the figures."""
    parser = command_line(__doc__)
    parser.add_argument("--texts", required=True, help="corpus: a .txt, .jsonl or .parquet file")
    parser.add_argument("--recipe", default="mini", help="recipe of all runs")
    parser.add_argument("--minutes", type=float, default=30, help="processor minutes of each run")
    parser.add_argument("--hours", type=float, default=20, help="budget of the extrapolation")
    parser.add_argument("--shapes", nargs="+", default=["256x4", "256x8", "384x4", "384x4x2", "384x6"])
    parser.add_argument(
        "--vocabularies", nargs="*", default=[], help="sizes of vocabularies to train on the texts"
    )
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("scaling"), help="folder of the results")
    arguments = parser.parse_args()
    from albertkit.cores import usable_cores
    from albertkit.recipe import read_recipe

    recipe = read_recipe(Path(arguments.recipe))
    arguments.output.mkdir(parents=True, exist_ok=True)
    runs, cores = Runs(arguments.output / "runs.jsonl", arguments.texts), usable_cores()

    def case(shape: str, common: Case) -> Case:
        shaped = recipe | {"model": recipe["model"] | shape_of(shape)}
        settings = {"side": "ours", "seconds": arguments.minutes * 60, "seed": arguments.seed}
        return common | settings | {"recipe": shaped, "precision": arguments.precision, "decay": 0}

    with tempfile.TemporaryDirectory() as name:
        common = prepared(arguments.texts, "bundled", Path(name))
        shapes = [case(shape, common) for shape in arguments.shapes]
        curves = dict(zip(arguments.shapes, runs.curves(shapes, cores), strict=True))
        sizes, characters = {}, {}
        for size in arguments.vocabularies:
            folder = Path(name) / size
            folder.mkdir()
            sizes[size] = case(arguments.shapes[0], with_vocabulary(arguments.texts, size, folder))
            characters[size] = characters_per_token(sizes[size])
        by_size = dict(zip(sizes, runs.curves(list(sizes.values()), cores), strict=True))
    draw(curves, arguments.hours, arguments.output / "scaling.png")
    first = arguments.shapes[0]
    figures = figures_of(curves, arguments.hours, first)
    show("pretraining: shapes", figures, as_json=arguments.json, against=first)
    if characters:
        figures = vocabulary_figures(by_size, characters)
        show("vocabularies", figures, as_json=arguments.json, against=f"{arguments.vocabularies[0]} pieces")


if __name__ == "__main__":
    main()
