"""Predictions for a file of any size, in constant memory, in its order, resumable.

Each part of some thousand examples is written whole, into a folder beside the output. A run that was killed
goes on after the last part; at the end the parts become the output.
"""

import csv
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from albertkit.config import AlbertConfig
from albertkit.datasets.reader import Reader
from albertkit.datasets.report import ReadingReport
from albertkit.errors import DataError
from albertkit.extras import optional
from albertkit.files import atomic_path, by_number, json_text, write_json
from albertkit.finetuning.evaluation import CHUNK, chunks
from albertkit.finetuning.labelled_task import LabelledTask
from albertkit.finetuning.prediction_engines import Engine, run_local
from albertkit.finetuning.predictor import Predictor
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.task import Task

pa = optional("pyarrow", extra="train")
parquet = optional("pyarrow.parquet", extra="train")

OUTPUTS = (".jsonl", ".csv", ".parquet")
_ABOUT = "about.json"


def predict_file(
    labelled: LabelledTask,
    task: Task,
    model: AlbertPreTrainedModel,
    config: AlbertConfig,
    reader: Reader[Any],
    output: Path,
    *,
    about: dict[str, Any],
    batch_tokens: int | None = None,
    backend: str = "auto",
    part_size: int = CHUNK,
    engine: Engine = run_local,
    progress: Callable[[int], None] = lambda _: None,
    on_cut: Callable[[int], object] = lambda _: None,
    report: ReadingReport | None = None,
) -> int:
    """Write the predictions for all examples of a reader; return how many.

    Args:
        labelled, task, model, config: what predicts.
        reader: of examples without labels.
        output: .jsonl, .csv or .parquet; a row for each example.
        about: tells this work from other work, beside the model and its config: parts of other work are not
            continued. Values of JSON.
        batch_tokens: most tokens computed at once, padding included; None for what suits the device.
        backend: what computes, one of `engines.choosing.ENGINES`.
        part_size: examples of a part.
        engine: who computes the parts; they are the same whoever does, so another one can go on.
        progress: is told after each part how many examples are done.
        on_cut: is told at the end of each example that was cut how many tokens were left out.
        report: is filled with what was read, and with what is odd about it.

    Raises:
        DataError: another kind of output, parts of other work beside it, or a part that failed.
    """
    if output.suffix not in OUTPUTS:
        raise DataError(f"{output}: predictions are written as {', '.join(OUTPUTS)}; choose one of them")
    parts = output.with_name(f".{output.name}.parts")
    done = _begin(parts, about | {"part_size": part_size, "model_sha256": _sha256(model, config)})
    count = len(done) * part_size
    report = ReadingReport(reader.source) if report is None else report
    examples = islice((example for _, example in reader.read(report)), count, None)
    predictor = Predictor(labelled, task, model, config, batch_tokens, backend)
    with closing(engine(enumerate(chunks(examples, part_size), start=len(done)), predictor)) as finished:
        for number, lines in finished:
            with atomic_path(parts / f"{number:08d}.jsonl") as file:
                file.write_text(lines, encoding="utf-8")
            count += lines.count("\n")
            progress(count)
    count = 0  # again: the last part done may have been a short one
    for line in _records(parts):
        count += 1
        if (left_out := json.loads(line).get("cut", 0)) > 0:
            on_cut(left_out)
    if not count:
        raise DataError(f"{reader.source}: there is nothing to predict in it")
    with atomic_path(output) as file:
        _WRITERS[output.suffix](parts, file)
    shutil.rmtree(parts)
    return count


def _sha256(model: AlbertPreTrainedModel, config: AlbertConfig) -> str:
    """Return what changes with any weight, and with the config: a folder may hold another model by now."""
    found = hashlib.sha256(config.to_json_string().encode())
    for name, parameter in model.named_parameters():
        found.update(name.encode())
        found.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _begin(parts: Path, about: dict[str, Any]) -> list[Path]:
    """Return the parts that are there, of this work."""
    if not (parts / _ABOUT).is_file():
        parts.mkdir(parents=True, exist_ok=True)
        write_json(parts / _ABOUT, about, indent=None)
        return []
    if json.loads((parts / _ABOUT).read_text()) != about:
        raise DataError(
            f"{parts} holds predictions of another model, input or setting that was interrupted: run that "
            "again to finish it, or delete the folder"
        )
    return _parts(parts)


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.jsonl"), key=by_number)


def _records(parts: Path) -> Iterator[str]:
    for part in _parts(parts):
        with part.open(encoding="utf-8") as lines:
            yield from lines


def _write_jsonl(parts: Path, file: Path) -> None:
    with file.open("w", encoding="utf-8") as target:
        target.writelines(_records(parts))


def _write_csv(parts: Path, file: Path) -> None:
    """Write cells as they are, lists and objects as JSON."""
    with file.open("w", encoding="utf-8", newline="") as target:
        writer = None
        for line in _records(parts):
            record = json.loads(line)
            if writer is None:
                writer = csv.DictWriter(target, list(record))
                writer.writeheader()
            writer.writerow(
                {
                    name: json_text(value) if isinstance(value, list | dict) else value
                    for name, value in record.items()
                }
            )


def _write_parquet(parts: Path, file: Path) -> None:
    """Write a row group for each part. What a column holds, one part alone may not tell (empty lists)."""
    schemas = (_table(part).schema for part in _parts(parts))
    schema = next(schemas)
    for other in schemas:
        schema = pa.unify_schemas([schema, other], promote_options="permissive")
    with parquet.ParquetWriter(file, schema) as writer:
        for part in _parts(parts):
            writer.write_table(_table(part, schema))


def _table(part: Path, schema: Any = None) -> Any:
    with part.open(encoding="utf-8") as lines:
        return pa.Table.from_pylist([json.loads(line) for line in lines], schema=schema)


_WRITERS = {".jsonl": _write_jsonl, ".csv": _write_csv, ".parquet": _write_parquet}
