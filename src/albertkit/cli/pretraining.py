"""The verbs from raw text to a pretrained model: train-tokenizer, prepare, pretrain."""

import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from albertkit.cli.completing import RUNNERS, models, one_of
from albertkit.cli.flags import settings_flags
from albertkit.cli.printing import print_json
from albertkit.extras import require
from albertkit.logs import ProgressBar
from albertkit.pretraining.settings import PretrainingSettings
from albertkit.recipe import build, merge, read_recipe

logger = logging.getLogger(__name__)

_Inputs = Annotated[
    list[str],
    typer.Argument(
        help="Files, folders or globs: .txt, .jsonl, .parquet, each also .gz or .zst.", metavar="FILE"
    ),
]
_TextColumn = Annotated[str, typer.Option(help="Where the text is in .jsonl and .parquet files.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the report as one JSON line.")]


def train_tokenizer(
    inputs: _Inputs,
    output: Annotated[Path, typer.Option(help="Folder of the new tokenizer.")],
    vocab_size: Annotated[int, typer.Option(help="Number of pieces, special tokens included.")] = 30_000,
    cased: Annotated[bool, typer.Option("--cased", help="Keep upper and lower case apart.")] = False,
    keep_accents: Annotated[
        bool, typer.Option("--keep-accents", help="Keep accents; nearly all languages but English need it.")
    ] = False,
    coverage: Annotated[
        float,
        typer.Option(help="Share of all characters that must be pieces of their own; Chinese: 0.9995."),
    ] = 0.99995,
    text_column: _TextColumn = "text",
    threads: Annotated[int, typer.Option(help="Threads of SentencePiece.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the sample of lines that is trained on.")] = 0,
    json: _Json = False,
) -> None:
    """Train a SentencePiece vocabulary by ALBERT's recipe.

    Example: albertkit train-tokenizer books/*.txt --vocab-size 8192 --output tokenizer
    """
    from albertkit.files import check_new_folder
    from albertkit.pretraining.corpus import Corpus
    from albertkit.tokenization.normalization import Normalization
    from albertkit.tokenization.vocabulary import train_vocabulary

    check_new_folder(output)
    corpus = Corpus.find(inputs, text_column=text_column)
    normalization = Normalization(do_lower_case=not cased, keep_accents=keep_accents)
    report = train_vocabulary(
        (document.text for document in corpus),
        output,
        vocab_size=vocab_size,
        normalization=normalization,
        character_coverage=coverage,
        num_threads=threads,
        seed=seed,
    )
    _print_report(
        {
            "pieces": report.size,
            "pieces_per_word": round(report.pieces_per_word, 4),
            "characters_per_piece": round(report.characters_per_piece, 4),
            "unknown_characters": round(report.unknown_characters, 8),
            "lines": report.total_lines,
            "lines_sampled": report.sampled_lines,
            "lines_held_out": report.held_out_lines,
            "output": str(output),
        },
        json,
    )


def prepare(
    inputs: _Inputs,
    tokenizer: Annotated[str, typer.Option(help="Folder or name of the tokenizer.", autocompletion=models)],
    output: Annotated[Path, typer.Option(help="Folder of the shards.")],
    text_column: _TextColumn = "text",
    language: Annotated[str, typer.Option(help="ISO 639 code, for the sentence splitter.")] = "en",
    sentence_per_line: Annotated[
        bool, typer.Option("--sentence-per-line", help="One sentence a line, a blank line between documents.")
    ] = False,
    section_sentences: Annotated[
        int, typer.Option(help="Cut longer documents into sections of about so many sentences (0: never).")
    ] = 64,
    holdout_every: Annotated[
        int | None, typer.Option(min=1, help="Every so many source documents, one goes to the held-out set.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes (default: one per CPU, with Ray all there are).")
    ] = None,
    runner: Annotated[
        str,
        typer.Option(
            help="local (this machine), or ray: the same shards from a Ray cluster.",
            autocompletion=one_of(RUNNERS),
        ),
    ] = "local",
    json: _Json = False,
) -> None:
    """Cut raw text into shards of tokenized documents.

    Example: albertkit prepare books/*.txt --tokenizer tokenizer --holdout-every 40 --output shards
    """
    from albertkit.pretraining.prepare import PrepareProgress
    from albertkit.pretraining.prepare import prepare as build_shards

    with ProgressBar() as bar:

        def show(progress: PrepareProgress) -> None:
            rate = progress.text_bytes / 1e6 / max(progress.seconds, 1e-9)
            bar.update(f"{progress.fraction:.0%} of the text, {rate:.1f} MB/s", progress.fraction)

        report = build_shards(
            inputs,
            tokenizer,
            output,
            text_column=text_column,
            language=language,
            sentence_per_line=sentence_per_line,
            section_sentences=section_sentences,
            holdout_every=holdout_every,
            workers=workers,
            runner=runner,
            progress=show,
        )
    held_out = report.validation
    _print_report(
        {
            "source_documents": report.source_documents,
            "text_bytes": report.text_bytes,
            "units_kept": report.kept_units,
            "documents": report.train.documents,
            "sentences": report.train.sentences,
            "tokens": report.train.tokens,
            "held_out_documents": held_out.documents if held_out else 0,
            "held_out_tokens": held_out.tokens if held_out else 0,
            "seconds": round(report.seconds, 1),
            "megabytes_per_second": round(report.text_bytes / 1e6 / report.seconds, 2),
            "output": str(report.output),
        },
        json,
    )


@settings_flags(PretrainingSettings, parameter="flags")
def pretrain(
    data: Annotated[Path, typer.Option(help="Folder of shards that `prepare` wrote.")],
    tokenizer: Annotated[
        str, typer.Option(help="Folder or name of the tokenizer of the shards.", autocompletion=models)
    ],
    output: Annotated[Path, typer.Option(help="Folder of the run; a run that is there goes on.")],
    recipe: Annotated[
        Path | None, typer.Option(help="TOML file of settings, which flags override; it gives the shape.")
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            help="auto (the best there is), cpu, cuda, cuda:1, mps ...",
            autocompletion=one_of(["auto", "cpu", "cuda", "mps"]),
        ),
    ] = "auto",
    flags: dict[str, Any] | None = None,
) -> None:
    """Pretrain on masked words and sentence order, or go on with a run.

    Several processes, on one machine or many: torchrun --nproc-per-node 8 -m albertkit pretrain ...

    Example: albertkit pretrain --recipe recipes/bundled.toml --data shards --tokenizer tokenizer --output run
    """
    require("torch", extra="train")
    from albertkit.files import full_disk_named
    from albertkit.pretraining.run import pretrain as run
    from albertkit.training.distributed import join_world

    table = merge(read_recipe(recipe) if recipe else {}, flags or {}, PretrainingSettings)
    settings = build(PretrainingSettings, table, where=str(recipe or "settings"))
    with join_world(device) as world, full_disk_named(output):
        result = run(settings, data, tokenizer, output, world=world)
    state = result.state
    ending = "finished" if result.finished else "stopped (the same command goes on)"
    if world.is_main:
        logger.info(
            f"{ending} at step {state.step}, {state.tokens:,} tokens, {state.seconds / 60:.1f} minutes of "
            f"training; model in {output}"
        )
    if result.signal is not None:
        raise typer.Exit(128 + result.signal)  # as a shell counts: a script must not take this for finished


def _print_report(values: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json(values)
        return
    width = max(map(len, values))
    for name, value in values.items():
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        typer.echo(f"{name.replace('_', ' '):<{width}}  {shown}")
