"""The model card of a run: README.md with the metadata of the hub."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from albertkit.errors import ConfigError
from albertkit.files import json_text, read_json
from albertkit.hub import MODULES_FILE
from albertkit.hub_upload import UploadOptions
from albertkit.metrics import is_better
from albertkit.published import REPOSITORIES

_PIPELINES = {
    "sentence-embedding": "sentence-similarity",
    "sentence-order": "text-classification",
    **{name: name for name in ("text-classification", "token-classification", "question-answering")},
    **{name: name for name in ("multiple-choice", "fill-mask")},
}
"""The hub's name for each task."""


class CardOptions(TypedDict, total=False):
    """Facts for a model card that are not in the report of a run."""

    license: str | None
    """License of the model, such as "apache-2.0"."""
    language: str | Sequence[str] | None
    """Language of the texts as a code, such as "en", or several."""
    datasets: Sequence[str] | None
    """Names of the data on the hub."""
    base_model: str | None
    """Name on the hub of the model that the training began with (default: the `model` of the run if it is
    such a name)."""
    limitations: str | None
    """A text about limits of the model, added to those that the report shows."""


class PushOptions(UploadOptions, CardOptions, total=False):
    """Keyword arguments of the `push_to_hub` of a run."""


def finetuning_card(folder: Path, repo_id: str, report: dict[str, Any], options: PushOptions) -> str:
    """Return the model card of a fine-tuning run.

    Args:
        folder: folder of the run.
        repo_id: repository of the model on the hub.
        report: the content of `report.json`.
        options: other facts for the card.
    """
    task, data = report["task"], report["data"]
    sources = {name: Path(one["source"]).name for name, one in data.items()}
    results = {name: value for name, value in report["metrics"].items() if isinstance(value, float)}
    baseline = {name: f"{value:.4f}" for name, value in report["baseline"].items() if value is not None}
    rows = "\n".join(
        f"| {name} | {value:.4f} | {baseline.get(name, '')} |" for name, value in results.items()
    )
    lower = report["lower_is_better"]
    pictures = [path.name for path in sorted(folder.glob("*.png")) if path.name != "curves.png"]
    parts = [
        f"A model for {task.replace('-', ' ')}, fine-tuned from `{_base_name(report['model'])}` with "
        "[albertkit](https://pypi.org/project/albertkit/).",
        _use(task, repo_id),
        "## Evaluation\n\n"
        f"{report['examples']:,} examples of {sources['validation']}. The baseline ignores the text."
        + (f" Lower is better for {', '.join(lower)}." if lower else "")
        + f"\n\n| metric | value | baseline |\n|---|---|---|\n{rows}\n"
        + "".join(f"\n![{name}]({name})" for name in pictures),
        "## Training data\n\n"
        + "\n".join(
            f"* {name}: {one['examples']:,} of {one['rows']:,} rows of {sources[name]}"
            for name, one in data.items()
        ),
        _training(
            report["settings"],
            f"Training took {report['minutes']:.1f} minutes. The model of step {report['step']:,} was kept.",
        ),
    ]
    limits, validation = _limits(folder, report), sources["validation"]
    return _card(folder, repo_id, task, parts, limits, results, validation, report["model"], options)


def pretraining_card(
    folder: Path,
    repo_id: str,
    *,
    settings: dict[str, Any],
    figures: dict[str, Any],
    metrics: dict[str, float],
    options: PushOptions,
) -> str:
    """Return the model card of a pretraining run.

    Args:
        folder: folder of the run.
        repo_id: repository of the model on the hub.
        settings: settings of the run.
        figures: steps, tokens and time of the run, by name.
        metrics: metrics of the last evaluation.
        options: other facts for the card.
    """
    rows = "\n".join(f"| {name} | {value:.4f} |" for name, value in metrics.items())
    start = settings.get("init_from") or ""
    if start:
        # The card is public, so it must not show the path of a local folder.
        settings = settings | {"init_from": _base_name(start)}
    examples = settings.get("examples", {})
    if not settings.get("order_weight", 1.0):
        examples = examples | {"sentence_order": False}
    objectives = {"masked_lm": "masked language modeling", "sentence_order": "sentence order"}
    trained_on = [title for name, title in objectives.items() if examples.get(name, True)]
    parts = [
        f"An ALBERT model, pretrained on {' and '.join(trained_on)} with "
        "[albertkit](https://pypi.org/project/albertkit/).",
        _use("fill-mask", repo_id),
        f"## Evaluation\n\nOn held-out text.\n\n| metric | value |\n|---|---|\n{rows}" if metrics else "",
        _training(settings, "; ".join(f"{name}: {value:,}" for name, value in figures.items()) + "."),
    ]
    limits = ["The model repeats the biases of its training text."]
    return _card(folder, repo_id, "fill-mask", parts, limits, metrics, "held-out text", start, options)


def _card(
    folder: Path,
    repo_id: str,
    task: str,
    parts: Sequence[str],
    limits: Sequence[str],
    results: dict[str, float],
    data: str,
    start: str,
    options: PushOptions,
) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    name, kind = repo_id.rpartition("/")[2], _PIPELINES.get(task)
    known: dict[str, Any] = {key: options.get(key) for key in ("license", "language")}
    datasets = options.get("datasets")
    sentence_transformers = (folder / MODULES_FILE).is_file()
    metadata = ModelCardData(
        **known,
        datasets=list(datasets) if datasets else None,
        base_model=options.get("base_model") or _hub_name(start),
        library_name="sentence-transformers" if sentence_transformers else "transformers",
        pipeline_tag=kind,
        tags=["albert", "albertkit"],
        model_name=name,
        eval_results=[
            EvalResult(
                task_type=kind or task,
                dataset_type="private",
                dataset_name=data,
                metric_type=metric,
                metric_value=round(value, 6),
            )
            for metric, value in results.items()
        ]
        or None,
    )
    length = read_json(folder / "config.json", ConfigError)["max_position_embeddings"]
    lines = [f"* {line}" for line in (f"The maximum length is {length} tokens.", *limits)]
    ending = ["\n".join(["## Limits\n", *lines]), options.get("limitations")]
    text = "\n\n".join(part for part in [*parts, *ending] if part)
    return f"---\n{metadata.to_yaml()}\n---\n\n# {name}\n\n{text}\n"


def _use(task: str, repo_id: str) -> str:
    known = task if task in _PIPELINES and task != "sentence-embedding" else "feature-extraction"
    return (
        "## Use\n\n```python\nimport albertkit\n\n"
        f"pipeline = albertkit.pipeline({known!r}, {repo_id!r})\n```".replace("'", '"')
    )


def _training(settings: dict[str, Any], took: str) -> str:
    """Return the settings as a recipe, which is TOML."""
    tables = {name: value for name, value in settings.items() if isinstance(value, dict)}
    lines = _toml({name: value for name, value in settings.items() if name not in tables})
    for name, table in tables.items():
        if inner := _toml(table):
            lines += ["", f"[{name}]", *inner]
    recipe = "\n".join(lines)
    return f"## Training\n\n{took} The recipe:\n\n```toml\n{recipe}\n```"


def _toml(values: dict[str, Any]) -> list[str]:
    shown = {name: value for name, value in values.items() if value is not None and value != math.inf}
    return [f"{name} = {json_text(value)}" for name, value in shown.items()]


def _limits(folder: Path, report: dict[str, Any]) -> list[str]:
    """Return the limits of the model that follow from the report."""
    name, metrics, baseline = report["main_metric"], report["metrics"], report["baseline"]
    lines = ["The checkpoint was selected on the evaluation data, so metrics on new data may be lower."]
    if report["examples_cut"]:
        lines.append(
            f"{report['examples_cut']:,} of the {report['examples']:,} evaluated examples were truncated."
        )
    if labels := read_json(folder / "config.json", ConfigError).get("id2label"):
        shown = ", ".join(f"`{label}`" for label in list(labels.values())[:20])
        lines.append(f"Its only labels are {shown}{' and others' if len(labels) > 20 else ''}.")
    if report["calibration_error"] is not None:
        lines.append(
            f"Its confidence differs from its accuracy by {report['calibration_error']:.2f} on average "
            "(expected calibration error)."
        )
    lower = name in report["lower_is_better"]
    if name in baseline and not is_better(metrics[name], baseline[name], lower=lower):
        lines.append(f"Its {name} is no better than the baseline.")
    if report["beats_untrained"] is False:
        lines.append("Training did not improve on the untrained model.")
    if report["collapsed"]:
        lines.append(f"The run collapsed: {report['collapsed']}.")
    return lines


def _base_name(start: str) -> str:
    return _hub_name(start) or Path(start).name


def _hub_name(start: str) -> str | None:
    """Return the hub's name of the model that a run began with; None for a folder and for a bundled model."""
    if start in REPOSITORIES:
        return REPOSITORIES[start]
    is_name = start.count("/") == 1 and start[0] not in "./~" and not Path(start).exists()
    return start if is_name else None
