"""Compare the time to a held-out loss: a recipe of albertkit against a plain `transformers` loop with AdamW.

    python benchmarks/time_to_loss.py [--texts FILE] [--tokenizer NAME] [--recipe FILE] [--minutes 90]
                                      [--seeds 3] [--rates 1e-4 3e-4 1e-3] [--shape HIDDENxLAYERS]
                                      [--output FOLDER] [--json]

Both sides train the same shape on the same shards, in fp32 with one thread. Both are evaluated on the same
held-out masked words (15% of the tokens, whole words, full length). Time is processor time, because other
work may run on the machine. It does not include evaluations.

* The plain loop trains on sequences of full length with 15% masked. It uses AdamW with bias correction, a
  warm-up, a linear decay to the end of its time, and the initial weights of the library. Its learning rate is
  the best of three, which are tried for a quarter of the time. Its time does not include drawing examples.
* albertkit runs `albertkit pretrain` with the recipe, for a quarter of the plain loop's time. The learning
  rate decays over the last 30%. The time includes drawing examples.

The result is the processor time and the tokens in which albertkit reaches the final loss of the plain loop,
as medians over the seeds. Runs are parallel on all cores; `--minutes` is their approximate total time on idle
cores. Without --texts, the text is Python's language reference, which is too short for a meaningful result.

The output folder gets `curves.json` and `time_to_loss.png`. Its file `runs.jsonl` has the finished runs, so
the same command continues after an interruption.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import SUPPRESS
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from pydoc_data.topics import topics
from threading import Lock
from typing import Any

from report import Figure, command_line, compare, show, state

Case = dict[str, Any]
Curve = list[list[float]]  # [processor seconds, tokens, held-out loss of masked words]

OURS = 0.25  # our time, as a share of the plain loop's
SEARCH = 0.25  # time for each learning rate that is tried, as a share of the plain loop's
DECAY = 0.3  # share of our steps
POINTS = 20  # evaluations in each run
SPEED_STEPS = 12  # steps of the run that measures our speed
EVALUATED = 256  # held-out sequences
AIM_TIME, AIM_TOKENS = 0.2, 0.5


def held_out(case: Case) -> list[Any]:
    """Return the held-out batches on which both sides are evaluated."""
    from albertkit.pretraining.batches import fixed_batches
    from albertkit.pretraining.masking import WordTable
    from albertkit.pretraining.shards import ShardSet

    words = WordTable(Path(case["tokenizer"]) / "spiece.model")
    return fixed_batches(
        ShardSet(Path(case["shards"]) / "validation"), words, plain_examples(case), 16, limit=EVALUATED
    )


def plain_examples(case: Case) -> Any:
    """Return the settings for examples of the plain loop: 15% masked in whole words, as in BERT."""
    from albertkit.pretraining.settings import ExampleSettings

    return ExampleSettings(max_seq_length=case["recipe"]["examples"]["max_seq_length"], max_ngram=1)


def ours(case: Case) -> Curve:
    """Train with the recipe for the time of the case, then evaluate every checkpoint."""
    from albertkit.modeling.heads import AlbertForPreTraining
    from albertkit.pretraining.loss import PretrainingObjective
    from albertkit.pretraining.run import run_pretraining
    from albertkit.pretraining.settings import PretrainingSettings
    from albertkit.recipe import build
    from albertkit.training.checkpoints import STATE_JSON, checkpoints

    time.perf_counter = time.process_time  # the training loop then measures processor time

    def pretrain(folder: Path, steps: int, points: int) -> None:
        training = case["recipe"]["training"] | {
            "steps": steps,
            "schedule": "trapezoid",
            "decay_steps": int(steps * case.get("decay", DECAY)),
            "precision": case.get("precision", "fp32"),
            "seed": case["seed"],
            "evaluate_every": steps,
            "save_every": max(1, steps // points),
            "keep_checkpoints": 10**6,
        }
        training["warmup_steps"] = min(training.get("warmup_steps", 0), steps // 5)
        recipe = case["recipe"] | {"training": training, "evaluation_sequences": 1}
        settings = build(PretrainingSettings, recipe, where="time_to_loss")
        run_pretraining(settings, case["shards"], case["tokenizer"], folder)

    def seconds(checkpoint: Path) -> float:
        return json.loads((checkpoint / STATE_JSON).read_text())["seconds"]

    with tempfile.TemporaryDirectory() as name:
        pretrain(Path(name) / "speed", SPEED_STEPS, SPEED_STEPS)
        times = [seconds(folder) for folder in checkpoints(Path(name) / "speed")]
        step_seconds = (times[-1] - times[2]) / (len(times) - 3)
        pretrain(Path(name) / "run", max(SPEED_STEPS, int(case["seconds"] / step_seconds)), POINTS)
        recipe = case["recipe"] | {"training": {"steps": 1}}
        objective = PretrainingObjective(build(PretrainingSettings, recipe, where="time_to_loss"))
        batches = held_out(case)
        curve: Curve = []
        for folder in checkpoints(Path(name) / "run"):
            model = AlbertForPreTraining.from_pretrained(folder).eval()
            tokens = json.loads((folder / STATE_JSON).read_text())["tokens"]
            curve.append([seconds(folder), tokens, objective.evaluate(model, batches)["masked_loss"]])
    return curve


def plain(case: Case) -> Curve:
    """Train with a plain `transformers` loop for the time of the case."""
    import torch
    import transformers

    from albertkit.pretraining.batches import ExampleStream
    from albertkit.pretraining.masking import WordTable
    from albertkit.pretraining.shards import ShardSet

    torch.manual_seed(case["seed"])
    shards = ShardSet(Path(case["shards"]) / "train")
    words = WordTable(Path(case["tokenizer"]) / "spiece.model")
    examples, recipe = plain_examples(case), case["recipe"]
    shape = {name: value for name, value in recipe["model"].items() if name != "initializer_range"}
    config = transformers.AlbertConfig(vocab_size=shards.manifest.vocabulary_size, **shape)
    model = transformers.AlbertForPreTraining(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=case["learning_rate"], weight_decay=0.01)
    rows = recipe.get("batch_size") or recipe["batch_tokens"] // examples.max_seq_length
    evaluated = held_out(case)

    def arguments(batch: Any) -> dict[str, torch.Tensor]:
        arrays = ("input_ids", "attention_mask", "token_type_ids")
        return {name: torch.from_numpy(getattr(batch, name)).long() for name in arrays} | {
            "labels": torch.from_numpy(batch.masked_labels).long(),
            "sentence_order_label": torch.from_numpy(batch.order_labels).long(),
        }

    def loss() -> float:
        model.eval()
        total = count = 0.0
        with torch.no_grad():
            for batch in evaluated:
                given = arguments(batch)
                labels = given.pop("labels").view(-1)
                given.pop("sentence_order_label")
                scores = model(**given).prediction_logits.flatten(0, 1)
                total += torch.nn.functional.cross_entropy(scores, labels, reduction="sum").item()
                count += int((labels >= 0).sum())
        model.train()
        return total / count

    elapsed, tokens, limit = 0.0, 0, case["seconds"]
    curve = [[0.0, 0, loss()]]
    for batch in ExampleStream(shards, words, examples, rows, seed=case["seed"]):
        given = arguments(batch)
        begin = time.process_time()
        share = elapsed / limit
        for group in optimizer.param_groups:
            group["lr"] = case["learning_rate"] * max(0.0, min(share / 0.05 + 1e-3, (1 - share) / 0.95))
        model(**given).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        elapsed += time.process_time() - begin
        tokens += batch.num_tokens
        if elapsed >= limit * min(1, len(curve) / POINTS):
            curve.append([elapsed, tokens, loss()])
            if elapsed >= limit:
                break
    return curve


def reached(curve: Curve, loss: float) -> list[float] | None:
    """Return the processor seconds and tokens in which a curve first reaches a loss, or None."""
    for before, after in pairwise(curve):
        if after[2] <= loss:
            share = (before[2] - loss) / (before[2] - after[2]) if before[2] > loss else 0.0
            return [before[column] + share * (after[column] - before[column]) for column in (0, 1)]
    return None


class Runs:
    """The curves of finished runs, in a file with one line per run.

    The path of the texts and the settings identify a run.
    """

    def __init__(self, file: Path, texts: str | None) -> None:
        self.file, self.texts, self.lock = file, texts, Lock()
        lines = file.read_text().splitlines() if file.exists() else []
        self.finished: dict[str, Curve] = dict(json.loads(line) for line in lines)

    def curves(self, cases: list[Case], cores: int) -> list[Curve]:
        """Run each unfinished case in a separate process with one thread, `cores` of them at a time."""
        with ThreadPoolExecutor(cores) as pool:
            return list(pool.map(self._curve, cases))

    def _curve(self, case: Case) -> Curve:
        settings = {name: value for name, value in case.items() if name not in ("shards", "tokenizer")}
        key = json.dumps([self.texts, settings], sort_keys=True)
        if key not in self.finished:
            self.finished[key] = run(case)
            with self.lock, self.file.open("a") as lines:
                lines.write(json.dumps([key, self.finished[key]]) + "\n")
        return self.finished[key]


def run(case: Case) -> Curve:
    """Run a case in a separate process with one thread."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ALBERTKIT_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, __file__, "--case", json.dumps(case)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    if result.returncode:
        raise SystemExit(f"{case['side']} failed:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


def figures_of(curves: dict[str, list[Curve]], learning_rate: float) -> list[Figure]:
    """Return the time and tokens in which albertkit reaches the plain final loss, and both final losses."""
    goal = statistics.median(curve[-1][2] for curve in curves["plain"])
    limit = [statistics.median(curve[-1][column] for curve in curves["plain"]) for column in (0, 1)]
    hits = [reached(curve, goal) for curve in curves["ours"]]
    figures = []
    units = (("processor minutes", 60, AIM_TIME), ("million tokens", 1e6, AIM_TOKENS))
    for column, (unit, divisor, aim) in enumerate(units):
        name = f"{unit} to a loss of {goal:.3f}"
        values = [hit[column] if hit else float("inf") for hit in hits]
        if (value := statistics.median(values)) < float("inf"):
            figures.append(compare(name, value / divisor, limit[column] / divisor, at_most=aim))
        else:
            end = statistics.median(curve[-1][column] for curve in curves["ours"])
            missed = compare(f"{name} (not reached)", end / divisor, limit[column] / divisor, at_most=aim)
            figures.append(replace(missed, met=False))
    ends = [statistics.median(curve[-1][2] for curve in curves[side]) for side in ("ours", "plain")]
    return [
        *figures,
        state("held-out loss at the end", *ends),
        state("learning rate of the plain loop", learning_rate),
    ]


def draw(curves: dict[str, list[Curve]], file: Path) -> None:
    """Plot the loss over processor minutes and over tokens."""
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(9, 3.6), layout="constrained")
    panels = picture.subplots(1, 2, sharey=True)
    for panel, column, divisor, label in zip(
        panels, (0, 1), (60, 1e6), ("processor minutes", "million tokens"), strict=True
    ):
        for side, color in (("ours", "tab:blue"), ("plain", "tab:gray")):
            for number, curve in enumerate(curves[side]):
                x, y = [point[column] / divisor for point in curve], [point[2] for point in curve]
                name = {"ours": "albertkit", "plain": "transformers, AdamW"}[side]
                panel.plot(x, y, color=color, alpha=0.8, label=name if number == 0 else None)
        panel.set(xlabel=label, ylabel="held-out masked loss" if column == 0 else None)
        panel.grid(alpha=0.3)
    panels[0].legend()
    picture.savefig(file, dpi=110)


def prepared(texts: str | None, tokenizer: str, folder: Path) -> Case:
    """Write a tokenizer and shards to a folder, and return their paths."""
    from albertkit import AlbertTokenizer
    from albertkit.pretraining.prepare import prepare

    AlbertTokenizer.from_pretrained(tokenizer).save_pretrained(folder / "tokenizer")
    source = Path(texts) if texts else folder / "topics.jsonl"
    if texts is None:
        source.write_text("".join(json.dumps({"text": text}) + "\n" for text in topics.values()))
    prepare([source], folder / "tokenizer", folder / "shards", holdout_every=20)
    return {"shards": str(folder / "shards"), "tokenizer": str(folder / "tokenizer")}


def main() -> None:
    """Run the benchmark, plot the curves and print the figures."""
    parser = command_line(__doc__)
    parser.add_argument("--texts", help="corpus: a .txt, .jsonl or .parquet file")
    parser.add_argument("--tokenizer", default="bundled", help="folder or name of the tokenizer")
    parser.add_argument("--recipe", default="mini", help="recipe for albertkit")
    parser.add_argument("--minutes", type=float, default=90, help="approximate time of all runs")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each side")
    parser.add_argument(
        "--rates", type=float, nargs="+", default=[1e-4, 3e-4, 1e-3], help="learning rates of the plain loop"
    )
    parser.add_argument("--shape", help="hidden size x layers, such as 384x6; overrides the recipe")
    parser.add_argument("--output", type=Path, default=Path("time-to-loss"), help="folder of the results")
    parser.add_argument("--case", help=SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        case = json.loads(arguments.case)
        print(json.dumps({"ours": ours, "plain": plain}[case["side"]](case)))
        return
    from albertkit.cores import usable_cores
    from albertkit.recipe import read_recipe

    recipe = read_recipe(Path(arguments.recipe))
    if arguments.shape:
        hidden, layers = map(int, arguments.shape.split("x"))
        of_shape = {"hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": 4 * hidden}
        recipe["model"] |= of_shape | {"num_attention_heads": hidden // 64}
    # Choose the seconds of a plain run so that all runs together take --minutes on all cores.
    shares = SEARCH * len(arguments.rates) + (1 + OURS) * arguments.seeds
    cores = usable_cores()
    seconds = arguments.minutes * 60 * cores * 0.8 / shares  # the rest is for startup and evaluations
    arguments.output.mkdir(parents=True, exist_ok=True)
    runs = Runs(arguments.output / "runs.jsonl", arguments.texts)
    with tempfile.TemporaryDirectory() as name:
        common = prepared(arguments.texts, arguments.tokenizer, Path(name)) | {"recipe": recipe, "seed": 0}
        search = common | {"side": "plain", "seconds": SEARCH * seconds}
        searched = runs.curves([search | {"learning_rate": rate} for rate in arguments.rates], cores)
        learning_rate = min(zip(searched, arguments.rates, strict=True), key=lambda pair: pair[0][-1][2])[1]
        seeds = range(1, arguments.seeds + 1)
        cases = [
            *(
                {"side": "plain", "seconds": seconds, "learning_rate": learning_rate, "seed": seed}
                for seed in seeds
            ),
            *({"side": "ours", "seconds": OURS * seconds, "seed": seed} for seed in seeds),
        ]
        results = runs.curves([common | case for case in cases], cores)
    curves = {"plain": results[: arguments.seeds], "ours": results[arguments.seeds :]}
    (arguments.output / "curves.json").write_text(json.dumps(curves | {"search": searched}))
    draw(curves, arguments.output / "time_to_loss.png")
    show("pretraining: time to a loss", figures_of(curves, learning_rate), as_json=arguments.json)


if __name__ == "__main__":
    main()
