"""Tests of the commands from raw text to a pretrained model."""

import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from pretraining_runs import RECIPE_SIZES

from albertkit import AlbertForMaskedLM, AlbertTokenizer
from albertkit.training.progress import read_metrics

Albertkit = Callable[..., CompletedProcess[str]]
SMALL_RUN = f"""
batch_size = 8
evaluation_sequences = 16

{RECIPE_SIZES}
[examples]
max_seq_length = 64

[training]
steps = 4
warmup_steps = 1
"""


@pytest.fixture(scope="module")
def albertkit(warm_shell: dict[str, str]) -> Albertkit:
    """The command, which must end with `status`."""

    def run(*arguments: object, status: int = 0) -> CompletedProcess[str]:
        command = [shutil.which("albertkit", path=warm_shell["PATH"]), *map(str, arguments)]
        wide = warm_shell | {"COLUMNS": "200"}
        result = subprocess.run(command, capture_output=True, text=True, env=wide, timeout=120)
        assert result.returncode == status, result.stderr
        return result

    return run


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for index in range(0, 200, 10):
        (folder / f"{index:03d}.txt").write_text("\n\n".join(tiny_texts[index : index + 10]))
    return folder


@pytest.fixture(scope="module")
def run_folder(albertkit: Albertkit, corpus: Path) -> Path:
    """Train a tokenizer, prepare shards and pretrain for four steps."""
    work = corpus.parent
    report = albertkit(
        "train-tokenizer", corpus, "--vocab-size", 500, "--output", work / "tokenizer", "--json"
    ).stdout
    assert json.loads(report)["pieces"] == 500
    report = albertkit(
        "prepare", corpus, "--tokenizer", work / "tokenizer", "--holdout-every", 5, "--workers", 1,
        "--output", work / "shards", "--json",
    ).stdout  # fmt: skip
    counts = json.loads(report)
    assert counts["source_documents"] == 20
    assert counts["held_out_documents"] > 0
    (work / "small.toml").write_text(SMALL_RUN)
    albertkit(
        "pretrain", "--recipe", work / "small.toml", "--data", work / "shards",
        "--tokenizer", work / "tokenizer", "--output", work / "run",
    )  # fmt: skip
    return work / "run"


def test_the_run_is_a_model_with_curves(run_folder: Path) -> None:
    model = AlbertForMaskedLM.from_pretrained(run_folder)
    assert (model.config.vocab_size, model.config.hidden_size) == (500, 32)
    assert len(AlbertTokenizer.from_pretrained(run_folder)) == 500
    first, evaluation = [line for line in read_metrics(run_folder) if "eval/masked_loss" in line]
    assert (first["step"], evaluation["step"]) == (0, 4)
    assert 5 < evaluation["eval/masked_loss"] < 7  # near log(500) = 6.2
    assert 0.2 < evaluation["eval/order_accuracy"] < 0.8


def test_the_model_answers(albertkit: Albertkit, run_folder: Path) -> None:
    result = albertkit(
        "fill-mask", "--model", run_folder, "--json", "--top-k", 3, "The captain opened [MASK]."
    )
    assert result.stdout.count("token_str") == 3


def test_flags_override_the_recipe_and_a_finished_run_stays(albertkit: Albertkit, run_folder: Path) -> None:
    work = run_folder.parent
    common = ("--recipe", work / "small.toml", "--data", work / "shards", "--tokenizer", work / "tokenizer")
    albertkit("pretrain", *common, "--output", work / "two", "--steps", 2, "--optimizer", "adamw")
    assert [line["step"] for line in read_metrics(work / "two")] == [0, 2, 2]
    again = albertkit("pretrain", *common, "--output", work / "two", "--steps", 2, "--optimizer", "adamw")
    assert "finished at step 2" in again.stderr
    other = albertkit(
        "pretrain", *common, "--output", work / "two", "--steps", 2, "--optimizer", "lamb", status=1
    )
    assert "optimizer: saved 'adamw', now 'lamb'" in other.stderr
    assert "Traceback" not in other.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--recipe", "none.toml"), "no recipe none.toml"),
        (("--steps", 1), "exactly one of batch_size and batch_tokens"),
    ],
)
def test_errors_have_one_line(
    albertkit: Albertkit, tmp_path: Path, arguments: tuple[object, ...], message: str
) -> None:
    places = ("--data", tmp_path, "--tokenizer", tmp_path, "--output", tmp_path / "run")
    result = albertkit("pretrain", *places, *arguments, status=1)
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_another_tokenizer_than_the_shards_is_an_error(
    albertkit: Albertkit, run_folder: Path, corpus: Path
) -> None:
    work = run_folder.parent
    albertkit("train-tokenizer", corpus, "--vocab-size", 400, "--output", work / "other")
    result = albertkit(
        "pretrain", "--recipe", work / "small.toml", "--data", work / "shards",
        "--tokenizer", work / "other", "--output", work / "refused", status=1,
    )  # fmt: skip
    assert "made with another vocabulary" in result.stderr


def test_cased_tokenizers_stay_cased(albertkit: Albertkit, corpus: Path, tmp_path: Path) -> None:
    albertkit(
        "train-tokenizer", corpus, "--vocab-size", 500, "--cased", "--keep-accents", "--output", tmp_path
    )
    tokenizer = AlbertTokenizer.from_pretrained(tmp_path)
    assert "".join(tokenizer.tokenize("The café")).replace("▁", " ").strip() == "The café"

    config = tmp_path / "tokenizer_config.json"
    config.write_text(config.read_text().replace('"do_lower_case": false', '"do_lower_case": true'))
    result = albertkit(
        "prepare", corpus, "--tokenizer", tmp_path, "--workers", 1, "--output", tmp_path / "shards"
    )
    assert result.stderr.startswith("warning: ")
    assert "pieces of the vocabulary can never occur" in result.stderr
    assert "do_lower_case=true: ▁" in result.stderr
    assert result.stderr.count("\n") == 1


def test_nothing_that_is_there_is_overwritten(albertkit: Albertkit, run_folder: Path, corpus: Path) -> None:
    work = run_folder.parent
    again = ("--vocab-size", 400, "--output", work / "tokenizer")
    assert "Choose another folder" in albertkit("train-tokenizer", corpus, *again, status=1).stderr
    common = ("--recipe", work / "small.toml", "--data", work / "shards", "--tokenizer", work / "tokenizer")
    result = albertkit("pretrain", *common, "--output", corpus, status=1)
    assert ": a new run would overwrite it" in result.stderr
    assert not (corpus / "config.json").exists()


def test_missing_files_and_devices_are_errors_of_one_line(
    albertkit: Albertkit, run_folder: Path, tmp_path: Path
) -> None:
    work = run_folder.parent
    common = ("--recipe", work / "small.toml", "--output", tmp_path / "run")
    shards, tokenizer = ("--data", work / "shards"), ("--tokenizer", work / "tokenizer")
    for arguments, message in [
        ((*tokenizer, "--data", tmp_path), "not a finished shard folder"),
        ((*tokenizer, "--data", tmp_path / "nowhere"), "nowhere/train has no manifest.json"),
        ((*shards, "--tokenizer", tmp_path / "none"), "none"),
        ((*shards, *tokenizer, "--device", "cuda:7"), "cuda:7"),
        ((*shards, *tokenizer, "--save-every", 0), "save_every must be 1 or more"),
    ]:
        result = albertkit("pretrain", *common, *arguments, status=1)
        assert message in result.stderr
        assert result.stderr.count("\n") == 1, result.stderr


def test_a_signal_shows_in_the_exit_status(
    run_folder: Path, warm_shell: dict[str, str], tmp_path: Path
) -> None:
    work = run_folder.parent
    places = ("--data", work / "shards", "--tokenizer", work / "tokenizer", "--output", tmp_path / "run")
    settings = ("--recipe", work / "small.toml", "--steps", 100_000, "--log-every", 1)
    command = [shutil.which("albertkit", path=warm_shell["PATH"]), "pretrain", *places, *settings]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, env=warm_shell)
    assert process.stderr is not None
    while not process.stderr.readline().startswith("step 2/"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=60) == 128 + signal.SIGINT
    assert "stopped at step" in rest


def test_holding_out_everything_is_explained(
    albertkit: Albertkit, corpus: Path, run_folder: Path, tmp_path: Path
) -> None:
    one = next(corpus.glob("*.txt"))
    tokenizer = ("--tokenizer", run_folder.parent / "tokenizer")
    result = albertkit("prepare", one, *tokenizer, "--holdout-every", 40, "--output", tmp_path, status=1)
    assert "no text to train on" in result.stderr


def test_holding_out_far_more_than_expected_is_a_warning(
    albertkit: Albertkit, corpus: Path, run_folder: Path, tmp_path: Path
) -> None:
    files, tokenizer = sorted(corpus.glob("*.txt")), ("--tokenizer", run_folder.parent / "tokenizer")
    for documents, count, warned in ((8, 4, False), (3, 40, True)):
        every = ("--holdout-every", count, "--output", tmp_path / str(documents))
        result = albertkit("prepare", *files[:documents], *tokenizer, *every)
        assert ("% of the tokens are held out" in result.stderr) == warned
