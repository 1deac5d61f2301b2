"""The folder of a run as a result: its curves, its metrics, and its model on the hub with a model card."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from albertkit.errors import ConfigError, check_arguments
from albertkit.files import json_text, read_json
from albertkit.hub import MODULES_FILE, read_modules
from albertkit.hub_upload import CARD, UploadOptions, upload
from albertkit.published import REPOSITORIES
from albertkit.results import Result
from albertkit.training.progress import CURVES, read_metrics

_UPLOADED = (".safetensors", ".json", ".model", ".vocab", ".txt", ".png")
_NOT_UPLOADED = {"report.json", "run.json", "seeds.json"}  # they contain local paths
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


class RunFolder(Result):
    """Base class of the results of `pretrain` and `finetune`."""

    folder: Path
    """Folder of the run."""

    @property
    def history(self) -> list[dict[str, float]]:
        """The logged metrics of the run, oldest first: the lines of `metrics.jsonl`."""
        return read_metrics(self.folder)

    def picture(self) -> Path:
        """Return the image file of the curves."""
        return self.folder / CURVES

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the model and its tokenizer to the hub, with a model card.

        Checkpoints, logs, reports and predictions are not uploaded: they may hold texts of the data. The
        README.md of an existing repository is replaced.

        Args:
            repo_id: "organization/name", or a name of your own account; created if it does not exist.
            options: fields of `CardOptions` (`license`, `language`, `datasets`, `base_model`, `limitations`)
                and of `UploadOptions` (`commit_message`, `commit_description`, `private`, `token`,
                `revision`, `create_pr`).

        Returns:
            The URL of the commit or of the pull request.
        """
        known = UploadOptions.__annotations__
        check_arguments("push_to_hub", options, [*known, *CardOptions.__annotations__])
        card = model_card(self.folder, repo_id, PushOptions(**options), **self._card())
        folders = [self.folder]
        if (self.folder / MODULES_FILE).is_file():  # of sentence-transformers
            folders += [self.folder / module for _, module in read_modules(self.folder) if module]
        paths = [path for folder in folders for path in folder.glob("*") if path.suffix in _UPLOADED]
        files: dict[str, Path | bytes] = {
            path.relative_to(self.folder).as_posix(): path
            for path in sorted(paths)
            if path.is_file() and path.name not in _NOT_UPLOADED
        }
        chosen: Any = {name: value for name, value in options.items() if name in known}
        chosen["commit_message"] = chosen.get("commit_message") or "Upload model, tokenizer and model card"
        return upload(files | {CARD: card.encode()}, repo_id, **chosen)

    @abstractmethod
    def _card(self) -> dict[str, Any]:
        """Return the arguments of `model_card` that describe the run."""


def model_card(
    folder: Path,
    repo_id: str,
    options: PushOptions,
    *,
    task: str,
    start: str,
    about: str,
    sections: Sequence[str],
    settings: dict[str, Any],
    took: str,
    limits: Sequence[str],
    results: dict[str, float],
    data: str,
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
    used = task if task in _PIPELINES and task != "sentence-embedding" else "feature-extraction"
    tables = {name: value for name, value in settings.items() if isinstance(value, dict)}
    recipe = _toml({name: value for name, value in settings.items() if name not in tables})
    for title, table in tables.items():
        if lines := _toml(table):
            recipe += ["", f"[{title}]", *lines]
    length = read_json(folder / "config.json", ConfigError)["max_position_embeddings"]
    parts = [
        f"---\n{metadata.to_yaml()}\n---",
        f"# {name}",
        f"{about} with [albertkit](https://pypi.org/project/albertkit/).",
        f'## Use\n\n```python\nimport albertkit\n\npipeline = albertkit.pipeline("{used}", "{repo_id}")\n```',
        *sections,
        f"## Training\n\n{took} The recipe:\n\n```toml\n" + "\n".join(recipe) + "\n```",
        "\n".join(
            ["## Limits\n", f"* The maximum length is {length} tokens.", *(f"* {one}" for one in limits)]
        ),
        options.get("limitations"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _toml(values: dict[str, Any]) -> list[str]:
    shown = {name: value for name, value in values.items() if value is not None and value != math.inf}
    return [f"{name} = {json_text(value)}" for name, value in shown.items()]


def base_name(start: str) -> str:
    """Return the name of the model that a run began with, without the path of a folder."""
    return _hub_name(start) or Path(start).name


def _hub_name(start: str) -> str | None:
    """Return the hub's name of the model that a run began with; None for a folder and for a bundled model."""
    if start in REPOSITORIES:
        return REPOSITORIES[start]
    is_name = start.count("/") == 1 and start[0] not in "./~" and not Path(start).exists()
    return start if is_name else None
