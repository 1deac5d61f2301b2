"""Tests of the command `search`, of files of vectors, and of progress bars in a terminal."""

import json
import os
import pty
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from command_line import Run, assert_one_line_error

import albertkit
from albertkit.errors import ConfigError
from albertkit.finetuning.predict import Predictions
from albertkit.hub import BUNDLED, BUNDLED_SENTENCES

TEXTS = [
    "The butter was bad, and the price shameful.",
    "Until what hour can one have supper?",
    "The garden was lovely, and the children played there all day.",
]
SUPPER = "At what hour is breakfast?"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    file = tmp_path / "faq.jsonl"
    rows = ({"id": f"q{number}", "text": text} for number, text in enumerate(TEXTS))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


class TestSearch:
    def test_prints_the_most_similar_texts(self, run: Run, texts: Path) -> None:
        result = run("search", "--texts", texts, "--query", SUPPER, "--top-k", 2)
        lines = result.output.splitlines()
        assert lines[0] == SUPPER
        assert lines[1].strip().split(maxsplit=2)[1:] == ["q1", TEXTS[1]]
        assert len(lines) == 4

    def test_builds_an_index_once_and_searches_it(self, run: Run, texts: Path, tmp_path: Path) -> None:
        index = tmp_path / "index"
        call = ("search", "--texts", texts, "--index", index)
        assert "3 texts of 384 dimensions, written to" in run(*call).output
        result = run(*call, "--query", SUPPER, "--query", "a garden", "--json")
        assert not result.errors
        assert [line["query"] for line in result.json] == [SUPPER, "a garden"]
        assert [line["matches"][0]["id"] for line in result.json] == ["q1", "q2"]
        texts.unlink()
        queries = tmp_path / "queries.txt"
        queries.write_text("a garden\n\nbad butter\n")
        result = run("search", "--index", index, "--queries", queries, "--top-k", 1, "--json")
        assert [match["id"] for line in result.json for match in line["matches"]] == ["q2", "q0"]

    def test_adds_texts(self, run: Run, texts: Path, tmp_path: Path) -> None:
        more = tmp_path / "more.txt"
        more.write_text("Breakfast is at nine.\n")
        call = ("search", "--index", tmp_path / "index", "--query", SUPPER, "--json", "--texts")
        run(*call, texts)
        assert_one_line_error(run(*call, more), "has other texts than", "--add")
        assert_one_line_error(run(*call[:-1], "--add"), "no texts to add")
        assert len(run(*call, more, "--add").json[0]["matches"]) == 4
        assert not run(*call, more, "--add").errors  # it has them
        said = run("search", "--index", tmp_path / "index", "--texts", more, "--add").output
        assert "already has the texts" in said
        change = tmp_path / "change.csv"
        change.write_text(f"id,text\nq1,{SUPPER}\nq9,The lamp was broken.\n")
        assert "5 texts" in (found := run(*call, change, "--add").errors)
        assert "new: 1, replaced: 1" in found
        result = run("search", "--index", tmp_path / "index", "--remove", "q1", "--remove", "q9")
        assert (result.status, "; removed: 2" in result.output) == (0, True)
        assert_one_line_error(run("search", "--texts", texts, "--query", "a", "--remove", "q1"), "--index")

    def test_options_of_an_index(self, run: Run, texts: Path, tmp_path: Path) -> None:
        index, long = tmp_path / "index", tmp_path / "long.txt"
        run("search", "--texts", texts, "--index", index)
        long.write_text("It rained. " * 400)
        call = ("search", "--index", index, "--query", SUPPER, "--json")
        result = run(*call, "--texts", long, "--add", "--truncation")
        assert len(result.json[0]["matches"]) == 4, result.errors
        assert_one_line_error(run(*call, "--pooling", "max"), "--pooling")
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "mine.txt").touch()
        result = run("search", "--texts", texts, "--index", tmp_path / "other")
        assert_one_line_error(result, "mine.txt")

    def test_errors(self, run: Run, texts: Path, tmp_path: Path) -> None:
        assert_one_line_error(run("search", "--query", "a"), "Pass --texts FILE, --index FOLDER")
        assert_one_line_error(run("search", "--texts", texts), "there is no query")
        assert_one_line_error(run("search", "--index", tmp_path, "--query", "a"), "has no index")
        result = run("search", "--texts", texts, "--query", "a", "--text-column", "body")
        assert_one_line_error(result, "no column 'body'. The columns are id, text")
        (tmp_path / "faq.csv").write_text("id,text\n1,a\n")
        result = run("search", "--texts", tmp_path / "faq.csv", "--query", "a", "--text-column", "body")
        assert_one_line_error(result, "no column 'body'")
        assert "--no-header" not in result.errors
        run("search", "--texts", texts, "--index", tmp_path / "index")
        result = run("search", "--index", tmp_path / "index", "--query", "a", "--model", BUNDLED)
        assert_one_line_error(result, "does not compute the vectors of this index")


class TestFilesOfVectors:
    def test_of_embed_and_predict_are_equal(self, run: Run, tmp_path: Path) -> None:
        pa_parquet = pytest.importorskip("pyarrow.parquet")
        file = tmp_path / "texts.txt"
        file.write_text("\n".join(TEXTS) + "\n")
        expected = albertkit.encode(TEXTS)
        for ending in (".npy", ".parquet"):
            run("embed", "--file", file, "--output", tmp_path / f"embed{ending}")
            output = tmp_path / f"predict{ending}"
            run("predict", "--model", BUNDLED_SENTENCES, "--input", file, "--output", output)
        for name in ("embed", "predict"):
            vectors = np.load(tmp_path / f"{name}.npy")
            assert vectors.dtype == np.float32
            np.testing.assert_array_equal(vectors, expected)
            table = pa_parquet.read_table(tmp_path / f"{name}.parquet")
            assert str(table.schema.field("vector").type) == "fixed_size_list<element: float>[384]"
            np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), np.float32), expected)
        assert table.column_names[:2] == ["row", "vector"]
        assert pa_parquet.read_table(tmp_path / "embed.parquet")["text"].to_pylist() == TEXTS

    def test_of_predict_have_a_row_for_each_input(self, tmp_path: Path) -> None:
        pa_parquet = pytest.importorskip("pyarrow.parquet")
        rows = [{"text": TEXTS[0]}, {"text": ""}, {"text": TEXTS[2]}]
        expected = albertkit.encode(TEXTS)
        outputs = {}
        for ending in ("npy", "parquet", "jsonl", "csv"):
            outputs[ending] = tmp_path / f"vectors.{ending}"
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # the empty text has no vector of special tokens
                predicted = albertkit.predict(BUNDLED_SENTENCES, input=rows, output=outputs[ending])
        with pytest.raises(ConfigError, match="no columns"):
            albertkit.predict(BUNDLED_SENTENCES, input=rows, output=tmp_path / "a.npy", keep_columns=True)
        vectors = np.load(outputs["npy"])
        assert np.isnan(vectors[1]).all()
        np.testing.assert_array_equal(vectors[[0, 2]], expected[[0, 2]])
        lists = pa_parquet.read_table(outputs["parquet"])["vector"].to_pylist()
        assert lists[1] is None
        np.testing.assert_array_equal(np.array([lists[0], lists[2]], np.float32), expected[[0, 2]])
        lines = [json.loads(line) for line in outputs["jsonl"].read_text().splitlines()]
        assert (lines[1]["vector"], lines[1]["problem"]) == (None, "empty")
        assert lines[2]["vector"] == expected[2].tolist()
        np.testing.assert_array_equal(json.loads(predicted[0]["vector"]), expected[0].tolist())
        in_memory = albertkit.predict(BUNDLED_SENTENCES, input=rows)
        assert in_memory[0]["vector"].dtype == np.float32
        np.testing.assert_array_equal(in_memory[2]["vector"], expected[2])
        read = Predictions(3, [], outputs["npy"])
        np.testing.assert_array_equal(read[0]["vector"], expected[0])

    @pytest.mark.parametrize("torn", [b"", b"\0" * 1000])
    def test_a_file_goes_on_after_an_interruption(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bytes
    ) -> None:
        monkeypatch.setattr("albertkit.finetuning.predict.CHUNK", 2)
        rows = [{"text": text} for text in [*TEXTS, "", "the sea and the old ship " * 3]]
        computed: list[int] = []

        def predicted(output: Path, stop_after: int = len(rows)) -> Predictions:
            def progress(count: int, _: int) -> None:
                computed.append(count)
                if count >= stop_after < len(rows):
                    raise KeyboardInterrupt

            return albertkit.predict(
                BUNDLED_SENTENCES, input=rows, output=output, progress=progress, max_length=12
            )

        whole = predicted(tmp_path / "whole.npy")
        assert whole.cut
        assert np.isnan(np.load(tmp_path / "whole.npy")[-2]).all()
        with pytest.raises(KeyboardInterrupt):
            predicted(tmp_path / "again.npy", stop_after=2)
        with (tmp_path / "again.npy.partial").open("ab") as file:
            file.write(torn)
        computed.clear()
        again = predicted(tmp_path / "again.npy")
        assert computed[0] == 4
        assert (again.total, again.cut) == (whole.total, whole.cut)
        assert (tmp_path / "again.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
        assert not (tmp_path / "again.npy.partial").exists()

    def test_are_only_for_vectors(self, run: Run, tmp_path: Path) -> None:
        pairs = tmp_path / "pairs.csv"
        pairs.write_text("sentence1,sentence2\na,b\n")
        call = ("predict", "--model", BUNDLED_SENTENCES, "--input", pairs, "--output")
        assert_one_line_error(run(*call, tmp_path / "a.npy"), "for the vectors of single texts")
        assert_one_line_error(run("embed", "a", "--output", tmp_path / "a.csv"), ".npy, .parquet")


class TestProgressBar:
    """In a terminal, a bar appears on stderr once the work takes more than two seconds."""

    PROGRAM = """
import sys, time
from albertkit.cli.main import run
from albertkit.engines.token_table import TokenTable
from albertkit.logs import ProgressBar
ProgressBar.DELAY = float(sys.argv.pop(1))
compute = TokenTable.compute
def slow(*arguments):
    time.sleep(0.15)
    return compute(*arguments)
TokenTable.compute = slow
sys.argv = ["albertkit", *sys.argv[1:]]
run()
"""

    def in_terminal(self, output: Path, *arguments: object, delay: float = 0.1) -> str:
        """Run a command with stderr in a terminal and stdout in a file; return its stderr."""
        ours, theirs = pty.openpty()
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
        command = [sys.executable, "-c", self.PROGRAM, str(delay), *map(str, arguments)]
        with (
            output.open("wb") as file,
            subprocess.Popen(command, stdout=file, stderr=theirs, env=environment) as process,
        ):
            os.close(theirs)
            shown = b""
            try:
                while part := os.read(ours, 4096):
                    shown += part
            except OSError:  # the other end is closed
                pass
            assert process.wait() == 0, shown.decode()
        os.close(ours)
        return shown.decode()

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        file = tmp_path / "texts.txt"
        file.write_text("".join(f"{number} {TEXTS[number % 3]}\n" for number in range(3000)))
        return file

    @pytest.mark.parametrize("command", ["embed", "predict", "search"])
    def test_is_shown_in_a_terminal(self, command: str, file: Path, tmp_path: Path) -> None:
        flags = {
            "embed": ("--file", file, "--output", tmp_path / "a.npy"),
            "predict": ("--model", BUNDLED_SENTENCES, "--input", file, "--output", tmp_path / "a.npy"),
            "search": ("--texts", file, "--query", SUPPER),
        }[command]
        shown = self.in_terminal(tmp_path / "printed", command, *flags)
        assert "of 3,000 " in shown

    def test_leaves_piped_answers_alone(self, file: Path, tmp_path: Path) -> None:
        shown = self.in_terminal(tmp_path / "printed", "embed", "--file", file, "--json")
        lines = (tmp_path / "printed").read_text().splitlines()
        assert len(lines) == 3000
        assert json.loads(lines[1])["text"] == f"1 {TEXTS[1]}"
        assert "of 3,000 texts" in shown
        assert "embedding" not in shown

    def test_is_not_shown_for_quick_work_or_without_a_terminal(self, file: Path, tmp_path: Path) -> None:
        call = ("embed", "--file", file, "--output")
        assert self.in_terminal(tmp_path / "printed", *call, tmp_path / "a.npy", delay=600) == ""
        command = [sys.executable, "-c", self.PROGRAM, "0.1", *map(str, call), tmp_path / "b.npy"]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        assert result.stderr == ""
