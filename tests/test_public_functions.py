"""Tests of the public functions from raw text to a model, and of the display of their results."""

import inspect
import logging
from pathlib import Path
from typing import Any

import pytest

import albertkit
from albertkit.errors import ConfigError, DataError
from albertkit.logs import ProgressBar, lines_shown
from albertkit.pretraining.settings import PretrainingSettings, TokenizerSettings
from albertkit.recipe import settings_from, takes_settings

SHAPE = {"embedding_size": 16, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="module")
def folder(tiny_texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with books, and with a tokenizer and shards from the public functions."""
    folder = tmp_path_factory.mktemp("public")
    (folder / "books").mkdir()
    for number in range(20):
        text = "\n\n".join(tiny_texts[number * 10 : number * 10 + 10])
        (folder / "books" / f"{number}.txt").write_text(text)
    trained = albertkit.train_tokenizer([f"{folder}/books/*.txt"], vocab_size=400, output=folder / "tok")
    assert trained.pieces == len(trained.tokenizer) == 400
    assert "pieces per word" in repr(trained)
    assert "<td style='text-align:right'>400</td>" in trained._repr_html_()
    prepared = albertkit.prepare(
        folder / "books", tokenizer=folder / "tok", output=folder / "shards", holdout_every=5, workers=1
    )
    assert prepared.summary()["source_documents"] == 20
    assert str(folder / "shards") in str(prepared)
    return folder


def test_rows_in_memory_give_the_same_shards_as_files(folder: Path, tmp_path: Path) -> None:
    rows = [{"text": file.read_text()} for file in sorted((folder / "books").glob("*.txt"))]
    prepared = [
        albertkit.prepare(inputs, folder / "tok", tmp_path / f"{number}", workers=1)
        for number, inputs in enumerate([rows, sorted((folder / "books").glob("*.txt"))])
    ]
    from_rows, from_files = ([shard.sha256 for shard in report.train.shards] for report in prepared)
    assert from_rows == from_files
    trained = albertkit.train_tokenizer(iter(rows), vocab_size=400, output=tmp_path / "tok")
    assert (trained.output / "spiece.model").read_bytes() == (folder / "tok" / "spiece.model").read_bytes()
    with pytest.raises(DataError, match=r"no column 'body'. The columns are text"):
        albertkit.train_tokenizer(rows, text_column="body", vocab_size=400, output=tmp_path / "other")


def test_the_error_of_a_lone_surrogate_names_the_row(tmp_path: Path) -> None:
    rows = [{"text": "A sentence. Another one."}, {"text": "A sentence. \ud800 Another one."}]
    for function, options in (
        (albertkit.prepare, {"tokenizer": "bundled", "workers": 1}),
        (albertkit.train_tokenizer, {}),
    ):
        with pytest.raises(DataError, match=r"row 2: \\ud800 is a lone surrogate"):
            function(rows, output=tmp_path / "out", **options)


@pytest.mark.usefixtures("blank_pictures")
def test_a_run_is_continued_by_the_same_call(folder: Path, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {
        "data": folder / "shards", "tokenizer": folder / "tok", "output": tmp_path / "run", "model": SHAPE,
        "batch_size": 4, "max_seq_length": 32, "learning_rate": 1e-3, "evaluation_sequences": 4,
        "device": "cpu", "precision": "fp32", "schedule": "trapezoid",
    }  # fmt: skip
    first = albertkit.pretrain(**arguments, steps=2, max_minutes=1e-9)
    assert (first.finished, first.step) == (False, 1)
    assert "stopped; the same call resumes the run" in repr(first)
    run = albertkit.pretrain(**arguments, steps=2)
    assert (run.finished, run.step) == (True, 2)
    assert run.metrics["masked_loss"] > 0
    assert "<img src='data:image/png;base64," in run._repr_html_()
    assert run.pipeline()("She opened the [MASK].", top_k=1)[0]["score"] > 0


def test_settings_come_from_a_recipe_and_from_keyword_arguments(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(
        "batch_size = 8\n[model]\nhidden_size = 32\n[training]\nsteps = 3\n"
    )
    given = {"steps": 5, "model": {"num_hidden_layers": 2}}
    settings = settings_from(PretrainingSettings, tmp_path / "recipe.toml", given)
    assert (settings.batch_size, settings.training.steps) == (8, 5)
    assert settings.model == {"hidden_size": 32, "num_hidden_layers": 2}
    assert settings_from(PretrainingSettings, settings, {"steps": 7}).training.steps == 7
    with pytest.raises(ConfigError, match=r"unknown setting 'stepz'\. Did you mean 'steps'"):
        albertkit.pretrain(data="a", tokenizer="b", output="c", stepz=3)


@pytest.mark.parametrize("name", ["Trainer", "DataCollatorWithPadding", "set_seed"])
def test_names_of_transformers_say_where_they_are(name: str) -> None:
    assert not hasattr(albertkit, name)
    with pytest.raises(ImportError, match=f"albertkit has no {name}.*: from transformers import {name}. See"):
        exec(f"from albertkit import {name}", {})
    assert not hasattr(albertkit, "Trainers")


@pytest.mark.parametrize("name", ["train_tokenizer", "prepare", "pretrain"])
def test_help_shows_every_setting(name: str) -> None:
    function = getattr(albertkit, name)
    parameters = inspect.signature(function).parameters
    assert parameters["seed"].default == 0
    assert all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    assert "\nSettings:\n" in function.__doc__
    assert "\n    seed: Random seed" in function.__doc__


def test_a_setting_without_default_is_required() -> None:
    @takes_settings(TokenizerSettings)
    def call(inputs: str, **settings: Any) -> None: ...

    assert list(inspect.signature(call).parameters)[:2] == ["inputs", "vocab_size"]


def test_inspection_functions(tmp_path: Path) -> None:
    attention = albertkit.inspect_attention("The captain opened the door.", html=tmp_path / "page.html")
    assert repr(attention).startswith(f"Attention of bundled on {len(attention.tokens)} tokens: ")
    assert attention.to_html() == (tmp_path / "page.html").read_text()
    assert attention._repr_html_().startswith("<iframe srcdoc='&lt;!doctype html")


class TestLines:
    """Lines of the log."""

    def test_lines_are_shown_if_logging_is_not_configured(self, capsys: pytest.CaptureFixture[str]) -> None:
        with lines_shown(always=True):
            logging.getLogger("albertkit.part").info("a line of %s", "x" * 200)
            logging.getLogger("albertkit.part").warning("[bold]careful :smile:")
        logging.getLogger("albertkit.part").info("not shown")
        lines = [f"a line of {'x' * 200}", "warning: [bold]careful :smile:"]
        assert capsys.readouterr().err.splitlines() == lines

    def test_handlers_that_a_program_adds_meanwhile_stay(self) -> None:
        logger, added = logging.getLogger("albertkit"), logging.NullHandler()
        before = list(logger.handlers)
        try:
            with lines_shown(always=True):
                logger.addHandler(added)
            assert logger.handlers == [*before, added]
        finally:
            logger.removeHandler(added)

    def test_a_program_that_configured_logging_decides(
        self, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        with lines_shown():  # pytest has configured handlers
            logging.getLogger("albertkit.part").info("a line")
        assert caplog.messages == ["a line"]
        assert capsys.readouterr().err == ""

    def test_lines_replace_a_progress_bar(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        monkeypatch.setattr(ProgressBar, "SECONDS", 0.0)
        monkeypatch.setattr(ProgressBar, "DELAY", 0.0)
        with ProgressBar() as bar:
            bar.update("1 of 2", 1, 2)
            bar.update("2 of 2", 2, 2)  # no line, because the result reports the end
        assert caplog.messages == ["1 of 2"]
