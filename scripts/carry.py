"""Pretrain on a machine without a network, to which you can only copy files of a limited size.

On your machine, once:

    python scripts/carry.py pack shards/books carried/shards --piece-megabytes 60

On the other machine, with a checkout of the project and the copied folder, as often as you have time there:

    python scripts/carry.py train --recipe recipes/small-1gpu-start.toml --shards carried/shards \
        --work work --run work/start --output back/start --max-minutes 8 -- --device cuda

This command unpacks the shards into work/shards and starts or resumes the run in work/start. It then packs
the newest checkpoint, with its exact state, into pieces of 16 MB in back/start. If the other machine has lost
work/start, copy the pieces there and pass them with `--resume carried/start`. The arguments after `--` go to
`albertkit pretrain`. On your machine again:

    python scripts/carry.py unpack back/start runs/start

This creates a run folder, which the same `albertkit pretrain` command resumes on any machine.

* The pieces are parts of one `tar.xz` file, so `cat back/start/pieces.* | tar xJ` unpacks them too.
  `contents.json`, which is written last, has their hashes. Errors name the missing and damaged pieces.
* The exact state takes 12 bytes per parameter (weights and two moments in float32). xz saves 8%: the pieces
  take 51 MB for recipes/small-1gpu.toml and 99 MB for the shape of ALBERT-base. You can copy the pieces in
  several turns, because they remain in the folder.
* `--weights-only` packs only a model folder, a third of the size. You can use this model or start a run from
  it (`--init-from`), but you cannot resume the run.
* The other machine needs the libraries of the base install, PyTorch, PyArrow, Matplotlib, TensorBoard and
  filelock. If albertkit itself is not installed there, set PYTHONPATH=src. A run that started from a model
  (`--init-from`) needs this model under the same path on every machine.
"""

import argparse
import hashlib
import json
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pages import command_line

from albertkit.cli.main import make_app
from albertkit.errors import AlbertKitError, DataError
from albertkit.files import atomic_path, contents
from albertkit.training.state import checkpoints

LIST = "contents.json"
FORMAT, VERSION = "albertkit-pieces", 1
MEGABYTE = 1_000_000
_PIECE = re.compile(rf"{re.escape(LIST)}|pieces\.[0-9]+|\..*\.tmp")
SHARDS_MEGABYTES, RUN_MEGABYTES = 60, 16
# Numbers in float32 hardly shrink at any effort. Tokens do.
SHARDS_EFFORT, RUN_EFFORT = 6, 0


def pack(files: Mapping[str, Path], output: Path, *, megabytes: float, effort: int) -> list[Path]:
    """Pack files into pieces in the folder `output`, and return the files in it.

    New pieces replace old ones. While they are written, the folder has no list of pieces.

    Args:
        files: Name in the archive -> file.
        output: Folder for the pieces.
        megabytes: Maximum size of a piece.
        effort: Preset of xz.

    Raises:
        DataError: `output` contains files that are not pieces.
    """
    output.mkdir(parents=True, exist_ok=True)
    old = list(output.iterdir())
    if not all(_PIECE.fullmatch(file.name) for file in old):
        raise DataError(f"{output} {contents(output)}; choose a folder for the pieces only")
    for file in old:
        file.unlink()
    pieces: list[dict[str, str | int]] = []
    with tempfile.TemporaryFile(dir=output) as packed:
        with tarfile.open(fileobj=packed, mode="w:xz", preset=effort) as archive:
            for name, file in files.items():
                archive.add(file, arcname=name, filter=_anonymous)
        packed.seek(0)
        while piece := packed.read(int(megabytes * MEGABYTE)):
            name = f"pieces.{len(pieces):05d}"
            with atomic_path(output / name) as file:
                file.write_bytes(piece)
            pieces.append({"file": name, "bytes": len(piece), "sha256": hashlib.sha256(piece).hexdigest()})
    with atomic_path(output / LIST) as file:
        document = {"format": FORMAT, "version": VERSION, "pieces": pieces}
        file.write_text(json.dumps(document, indent=2) + "\n")
    return [output / str(piece["file"]) for piece in pieces] + [output / LIST]


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove owner, time and mode, so that the same files always give the same pieces."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


def unpack(pieces: Path, target: Path) -> None:
    """Unpack a folder of pieces into a new folder, which gets its name when it is complete.

    Raises:
        DataError: `target` exists and is not an empty folder, or pieces are missing or damaged.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        problem = contents(target) if target.is_dir() else "is a file"
        raise DataError(f"{target} {problem}; delete it or unpack into another folder")
    files = _check_pieces(pieces)
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    with tempfile.TemporaryFile(dir=temporary.parent) as packed:
        for file in files:
            packed.write(file.read_bytes())
        packed.seek(0)
        with tarfile.open(fileobj=packed, mode="r:xz") as archive:
            archive.extractall(temporary, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    if target.exists():
        target.rmdir()
    temporary.rename(target)


def _check_pieces(pieces: Path) -> list[Path]:
    """Check that all pieces exist and are intact, and return their files in order."""
    try:
        document = json.loads((pieces / LIST).read_text())
    except FileNotFoundError:
        raise DataError(
            f"{pieces}: no {LIST}; pass the folder that `carry.py` wrote, and copy this file too"
        ) from None
    except ValueError as error:
        raise DataError(f"{pieces / LIST}: cannot be read ({error}); copy it again") from error
    if (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise DataError(
            f"{pieces / LIST}: expected format {FORMAT!r} version {VERSION}, found "
            f"{document.get('format')!r} version {document.get('version')!r}"
        )
    faults = [
        f"{piece['file']} is {'damaged' if (pieces / piece['file']).is_file() else 'missing'}"
        for piece in document["pieces"]
        if not _is_intact(pieces / piece["file"], piece["sha256"])
    ]
    if faults:
        raise DataError(f"{pieces}: {', '.join(faults)}; copy these pieces again")
    return [pieces / piece["file"] for piece in document["pieces"]]


def _is_intact(file: Path, sha256: str) -> bool:
    return file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == sha256


def run_files(run: Path, *, weights_only: bool = False) -> dict[str, Path]:
    """Return the files that an exact resume needs, by their names in the run: metrics and newest checkpoint.

    With `weights_only`, return the files of a model folder and the metrics.

    Raises:
        DataError: The run has no checkpoint.
    """
    newest = checkpoints(run)[-1:]
    if not newest:
        raise DataError(f"{run}: no checkpoint of a run to pack")
    root = newest[0] if weights_only else run
    files = {file.relative_to(root).as_posix(): file for file in sorted(newest[0].iterdir())}
    if weights_only:
        files = {name: file for name, file in files.items() if not name.startswith("training_state")}
    metrics = run / "metrics.jsonl"
    return files | ({metrics.name: metrics} if metrics.is_file() else {})


def train(arguments: argparse.Namespace, flags: Sequence[str]) -> None:
    """Unpack the shards, pretrain, and pack the newest checkpoint; exit with the status of `pretrain`."""
    shards, run = arguments.work / "shards", arguments.run or arguments.work / "run"
    if not shards.exists():
        unpack(arguments.shards, shards)
    if arguments.resume and not checkpoints(run):
        unpack(arguments.resume, run)
    words = ["pretrain", "--recipe", arguments.recipe, "--tokenizer", arguments.tokenizer, "--data", shards]
    words += ["--output", run, "--max-minutes", arguments.max_minutes, *flags]
    try:
        make_app()([str(word) for word in words])  # ends with SystemExit
    finally:
        # Also after an error, because the last checkpoint is complete.
        if checkpoints(run):
            files = run_files(run, weights_only=arguments.weights_only)
            written = pack(files, arguments.output, megabytes=arguments.piece_megabytes, effort=RUN_EFFORT)
            _print_sizes(written)


def _print_sizes(files: Sequence[Path]) -> None:
    for file in files:
        print(f"{file.stat().st_size:>12,} bytes  {file}")
    print(f"{sum(file.stat().st_size for file in files):>12,} bytes  in {len(files)} files")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the subcommand and its arguments."""
    parser = command_line(__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("pack", help="pack a folder of shards into pieces")
    verb.add_argument("source", type=Path)
    verb.add_argument("output", type=Path)
    verb.add_argument("--piece-megabytes", type=float, default=SHARDS_MEGABYTES)
    verb = verbs.add_parser("unpack", help="unpack pieces into a new folder")
    verb.add_argument("source", type=Path)
    verb.add_argument("output", type=Path)
    verb = verbs.add_parser("train", help="unpack shards, pretrain for some minutes, pack the run")
    verb.add_argument("--recipe", type=Path, required=True)
    verb.add_argument("--shards", type=Path, required=True, help="folder with the pieces of the shards")
    verb.add_argument("--resume", type=Path, help="pieces of the run, if its folder has no checkpoint")
    verb.add_argument("--tokenizer", default="bundled", help="folder or name of the tokenizer of the shards")
    verb.add_argument("--work", type=Path, required=True, help="folder for the unpacked shards")
    verb.add_argument("--run", type=Path, help="folder of the run (default: WORK/run)")
    verb.add_argument("--output", type=Path, required=True, help="folder for the pieces of the run")
    verb.add_argument("--max-minutes", type=float, required=True, help="time limit without packing")
    verb.add_argument("--piece-megabytes", type=float, default=RUN_MEGABYTES)
    verb.add_argument("--weights-only", action="store_true", help="model without the optimizer state")
    return parser.parse_args(words)


def main() -> None:
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    arguments = parse(words[:end])
    try:
        if arguments.verb == "train":
            train(arguments, words[end + 1 :])
        if arguments.verb == "unpack":
            return unpack(arguments.source, arguments.output)
        paths = sorted(path for path in arguments.source.rglob("*") if path.is_file())
        files = {path.relative_to(arguments.source).as_posix(): path for path in paths}
        if not files:
            raise DataError(f"{arguments.source}: no files to pack; pass the folder that `prepare` wrote")
        megabytes = arguments.piece_megabytes
        _print_sizes(pack(files, arguments.output, megabytes=megabytes, effort=SHARDS_EFFORT))
    except AlbertKitError as error:
        raise SystemExit(f"carry.py: {error}") from error


if __name__ == "__main__":
    main()
