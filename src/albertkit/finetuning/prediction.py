"""Predictions for a file of any size, in constant memory, in its order, resumable.

Each part of some thousand examples is written whole, into a folder beside the output. A run that was killed
goes on after the last part; at the end the parts become the output.
"""

import csv
import json
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from albertkit.config import AlbertConfig
from albertkit.datasets.reader import Reader
from albertkit.errors import DataError
from albertkit.extras import optional
from albertkit.files import atomic_path
from albertkit.finetuning.evaluation import CHUNK, chunks
from albertkit.finetuning.labelled_task import LabelledTask
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.task import BATCH_TOKENS, Task

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
    batch_tokens: int = BATCH_TOKENS,
    part_size: int = CHUNK,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Write the predictions for all examples of a reader; return how many.

    Args:
        labelled, task, model, config: what predicts.
        reader: of examples without labels.
        output: .jsonl, .csv or .parquet; a row for each example.
        about: tells this work from other work: parts of other work are not continued.
        batch_tokens: most tokens computed at once, padding included.
        part_size: examples of a part.
        progress: is told after each part how many examples are done.

    Raises:
        DataError: another kind of output, or parts of other work beside it.
    """
    if output.suffix not in OUTPUTS:
        raise DataError(f"{output}: predictions are written as {', '.join(OUTPUTS)}; choose one of them")
    parts = output.with_name(f".{output.name}.parts")
    done = _begin(parts, about | {"part_size": part_size})
    count = len(done) * part_size
    examples = islice(iter(reader), count, None)
    for number, chunk in enumerate(chunks(examples, part_size), start=len(done)):
        rows = task.features(chunk)
        outputs = task.run(model, rows, batch_tokens=batch_tokens)
        predictions = task.predictions(chunk, rows, outputs)
        with atomic_path(parts / f"{number:08d}.jsonl") as file:
            lines = [
                json.dumps(labelled.record(example, prediction, config))
                for example, prediction in zip(chunk, predictions, strict=True)
            ]
            file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        count += len(chunk)
        progress(count)
    count = sum(1 for _ in _records(parts))  # the last part done may have been a short one
    if not count:
        raise DataError(f"{reader.source}: there is nothing to predict in it")
    with atomic_path(output) as file:
        _WRITERS[output.suffix](parts, file)
    shutil.rmtree(parts)
    return count


def _begin(parts: Path, about: dict[str, Any]) -> list[Path]:
    """Return the parts that are there, of this work."""
    if not (parts / _ABOUT).is_file():
        parts.mkdir(parents=True, exist_ok=True)
        with atomic_path(parts / _ABOUT) as file:
            file.write_text(json.dumps(about))
        return []
    if json.loads((parts / _ABOUT).read_text()) != about:
        raise DataError(
            f"{parts} holds predictions of another model, input or setting that was interrupted: run that "
            "again to finish it, or delete the folder"
        )
    return _parts(parts)


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.jsonl"))


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
                    name: json.dumps(value) if isinstance(value, list | dict) else value
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
