"""Tables as people have them: workbooks, the CSV files of Excel, queries, and columns that are found."""

import sqlite3
from datetime import date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import openpyxl
import pyarrow as pa
import pytest
from labeled_files import Write

from albertkit.datasets.columns import find_columns
from albertkit.datasets.examples import TextExample
from albertkit.datasets.inputs import read_inputs
from albertkit.datasets.options import DataOptions
from albertkit.datasets.rows import as_source, read_rows
from albertkit.errors import ConfigError, DataError

ROWS = [{"id": 1, "text": "the river", "label": "a"}, {"id": 2, "text": "the key", "label": None}]


def workbook(path: Path, *sheets: list[list[Any]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"sheet {number}")
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_a_workbook_has_the_values_of_its_cells(tmp_path: Path) -> None:
    cells = [
        ["Tickets of the spring"],
        [],
        ["id", "opened", None, " Message ", "label", None],
        [1, datetime(2026, 3, 2), 2.5, "one\ntwo", "a"],
        [2, datetime(2026, 3, 2, 9, 30), "#N/A", "three_x000D_\nfour", True],
        [],
        ["x", None, None, "=1+1", "b", None, "far"],
        [None, " "],
        [],
    ]
    path = workbook(tmp_path / "a.xlsx", cells, [["text"], ["the river"], ["the key"]])
    rows = read_rows(path)
    assert rows.columns == ["id", "opened", "column C", "Message", "label"]
    first, second, empty, last = rows
    assert (first.origin, last.origin) == (f"{path}, row 4", f"{path}, row 7")
    assert [*first.values.values()] == [1, date(2026, 3, 2), 2.5, "one\ntwo", "a"]
    assert [*second.values.values()] == [2, datetime(2026, 3, 2, 9, 30), None, "three\nfour", True]
    assert {*empty.values.values()} == {None}
    assert last.values["Message"] is None  # a formula without a saved value
    assert last.fault == "cells after column 5"
    other = read_rows(path, sheet="sheet 1")
    assert [row.values for row in other] == [{"text": "the river"}, {"text": "the key"}]
    assert len([*read_rows(path, sheet="sheet 1", header=False)]) == 3
    examples = TextExample.read(
        path, DataOptions(text_column="Message", label_column="label", id_column="id")
    )
    assert [(one.id, one.text, one.label) for one in list(examples)[:2]] == [
        ("1", "one\ntwo", "a"), ("2", "three\nfour", "True"),
    ]  # fmt: skip


def test_wrong_workbooks_are_an_error(tmp_path: Path, write: Write) -> None:
    path = workbook(tmp_path / "a.xlsx", [["text"], ["a"]], [])
    for source, options, message in (
        (path, {"sheet": "other"}, "no sheet 'other'. The sheets are sheet 0, sheet 1"),
        (path, {"sheet": "sheet 1"}, "the sheet is empty"),
        (write("b.xlsx", "no zip"), {}, "b.xlsx is damaged"),
        (write("b.xls", ""), {}, "Save the workbook as .xlsx"),
    ):
        with pytest.raises(DataError, match=message):
            read_rows(source, **options)
    for options in ({"sheet": "a"}, {"encoding": "utf-99"}, {"encoding": "base64"}, {"delimiter": ";;"}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            read_rows(write("a.csv", "text\na\n"), **options)
    with pytest.raises(ConfigError, match="delimiter"):
        read_rows(path, delimiter=";;")


@pytest.mark.parametrize("delimiter", [";", ",", "\t"])
@pytest.mark.parametrize(
    ("encoding", "given"),
    [("utf-8", None), ("utf-8-sig", None), ("utf-8-sig", "cp1252"), ("utf-16", None), ("cp1252", "cp1252")],
)
def test_the_csv_files_of_excel(tmp_path: Path, encoding: str, given: str | None, delimiter: str) -> None:
    lines = ["id|text|label", '1|"Schön, sagt er;\nja"|gut', "||", "2|kalt|schlecht", "||", "||"]
    path = tmp_path / "a.csv"
    path.write_bytes("\r\n".join(lines).replace("|", delimiter).encode(encoding))
    rows = [row.values for row in read_rows(path, encoding=given)]
    assert rows == [
        {"id": "1", "text": "Schön, sagt er;\nja", "label": "gut"},
        {"id": "", "text": "", "label": ""},
        {"id": "2", "text": "kalt", "label": "schlecht"},
    ]


def test_the_line_that_tells_excel_the_separator(write: Write) -> None:
    for mark in ";|,":
        path = write("a.csv", f"sep={mark}\ntext{mark}label\nx{mark}1\n")
        assert [(row.origin, row.values) for row in read_rows(path)] == [
            (f"{path}, line 3", {"text": "x", "label": "1"})
        ]


@pytest.mark.parametrize("title", ["New messages, week 47;;", '"New messages, week 47";;', "Messages;;"])
def test_the_delimiter_is_that_of_all_rows(write: Write, title: str) -> None:
    lines = [title, "Date;Message;Rating", "1.3.;It came late, and broken.;bad", '2.3.;"Fine; thanks";good']
    path = write("a.csv", "\n".join(lines) + "\n")
    assert [row.values["Message"] for row in read_rows(path)] == ["It came late, and broken.", "Fine; thanks"]
    path = write("b.csv", "text,label\nFine; thanks,good\nLate; broken,bad\n")
    assert [row.values["label"] for row in read_rows(path)] == ["good", "bad"]


def test_another_encoding_is_an_error_that_names_the_flag(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("text\nschön\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"line 2: not UTF-8 \(byte 0xf6 at column 4\).*--encoding cp1252"):
        list(read_rows(path))
    path.write_bytes(b"text\n\x81\n")
    with pytest.raises(DataError, match=r"cannot be read.*0x81.* instead of cp1252"):
        list(read_rows(path, encoding="cp1252"))


@pytest.mark.parametrize("encoding", ["undefined", "a\0", "utf-7"])
def test_an_encoding_that_cannot_read_is_an_error(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("text\nschön\n".encode("cp1252"))
    with pytest.raises((ConfigError, DataError)):
        list(read_rows(path, encoding=encoding))


def test_utf_32(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("text\nschön\n".encode("utf-32"))
    assert [row.values for row in read_rows(path)] == [{"text": "schön"}]


def test_a_sheet_of_one_column_has_no_title(tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", [["text"], ["the river"], ["the key", "a note"], ["a fox"]])
    rows = list(read_rows(path))
    assert [row.values["text"] for row in rows] == ["the river", "the key", "a fox"]
    assert [bool(row.fault) for row in rows] == [False, True, False]


class Named(NamedTuple):
    id: int
    text: str
    label: str | None


def query(factory: Any = None) -> sqlite3.Cursor:
    cursor = sqlite3.connect(":memory:").cursor()
    cursor.row_factory = factory
    return cursor.execute("select 1 as id, 'the river' as text, 'a' as label union select 2, 'the key', null")


class Stream:
    """A stream of another library."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.Table.from_pylist(ROWS).__arrow_c_stream__(requested_schema)


class Lazy:
    """A table that is computed when it is needed, as in Polars."""

    columns = ("id", "text", "label")

    def collect_schema(self) -> list[str]:
        return ["id", "text", "label"]

    def collect(self) -> pa.Table:
        return pa.Table.from_pylist(ROWS)


@pytest.mark.parametrize(
    "make",
    [
        query,
        lambda: query(sqlite3.Row),
        lambda: query(sqlite3.Row).fetchall(),
        lambda: [Named(*row.values()) for row in ROWS],
        lambda: [SimpleNamespace(_mapping=row) for row in ROWS],  # rows of SQLAlchemy
        lambda: pa.Table.from_pylist(ROWS).to_reader(),
        Stream,
        Lazy,
    ],
)
def test_queries_and_streams_are_tables(make: Any) -> None:
    source = as_source(make(), name="train")
    assert [dict(row.values) for row in source] == ROWS  # type: ignore[union-attr]
    assert [dict(row.values) for row in read_rows(make())] == ROWS
    assert [*read_inputs(make(), fields=("text", "text_pair"))] == ["the river", "the key"]


def test_polars(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(ROWS)
    for table in (frame, frame.lazy()):
        assert [row.values for row in as_source(table, name="train")] == ROWS  # type: ignore[union-attr]


def test_two_columns_of_a_query_with_one_name_are_an_error() -> None:
    cursor = sqlite3.connect(":memory:").execute("select 1 as id, 2 as id")
    with pytest.raises(DataError, match="2 columns are named 'id'"):
        as_source(cursor, name="train")


def tickets(**columns: Any) -> list[dict[str, Any]]:
    """Return 40 rows; a column is a function of the number of the row."""
    default = {
        "Ticket ID": lambda n: 1000 + n,
        "Opened": lambda n: f"2026-03-{n % 28 + 1:02d} 09:30",
        "Year": lambda n: 2026,
        "Customer": lambda n: f"C-{n % 7:05d}",
        "Subject": lambda n: f"Order {n}",
        "Message": lambda n: f"Where is my order {n}? I have waited for {n} days now.",
        "Amount": lambda n: f"{n % 3}.5",
        "Category": lambda n: ("bill", "parcel")[n % 2],
    }
    made = {name: make for name, make in (default | columns).items() if make}
    return [{name: make(n) for name, make in made.items()} for n in range(40)]


@pytest.mark.parametrize(
    "moment",
    [
        "2026-03-{:02d}", "2026-03-{:02d}T10:00:00Z", "{:02d}.03.2026", "{:d}/3/26 9:30 PM",
        "3 March 20{:02d}", "Mar {:d}, 2026", "{:02d}:30", "{:02d}-Mar-2026 10:15",
    ],
)  # fmt: skip
def test_a_date_is_neither_the_label_nor_the_text(moment: str) -> None:
    rows = tickets(Opened=lambda n: moment.format(n % 3 + 10))
    found = find_columns(read_rows(rows), text=True, label=True)
    assert found == {"text_column": "Message", "label_column": "Category"}


def test_columns_are_found_if_they_are_clear(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    rows = tickets(Opened=lambda n: date(2026, 3, n % 3 + 1))
    reader = TextExample.read(rows)
    assert next(iter(reader)) == TextExample(rows[0]["Message"], None, "bill", "the given examples, row 1")
    assert reader.columns.found == {"text_column": "Message", "label_column": "Category"}
    assert "columns found: --text-column Message, --label-column Category" in caplog.text
    assert TextExample.read(rows, labeled=False).columns.found == {"text_column": "Message"}
    assert TextExample.read(rows, DataOptions(label_column="Customer")).columns.names["label"] == "Customer"
    queue = {"Queue": lambda n: ("a", "b", "c")[n % 3]}
    assert find_columns(read_rows(tickets(**queue)), text=False, label=True) == {"label_column": "Category"}
    with pytest.raises(
        DataError, match=r"several columns may have the labels: Customer, Queue, Kind\. Choose"
    ):
        TextExample.read(tickets(**queue, Category=None, Kind=lambda n: n % 4))
    other = {"Reply": lambda n: f"Your order {n} has left our house, and is on its way."}
    for unclear in (other, {"Message": lambda n: f"Order {n}"}):
        with pytest.raises(DataError, match="no column 'text'"):
            TextExample.read(tickets(**unclear))
    with pytest.raises(DataError, match="no column 'label'"):
        TextExample.read(tickets(Category=None, Customer=None))
    pair = DataOptions(pair_column="Reply")
    assert TextExample.read(tickets(**other), pair).columns.found["text_column"] == "Message"
    assert find_columns(read_rows(tickets(LABEL=lambda n: n % 2)), text=False, label=True) == {
        "label_column": "LABEL"
    }


def test_a_second_text_is_not_ignored() -> None:
    rows = [
        {"sentence1": f"the river {n}", "sentence2": f"the wide river {n}", "label": n % 2} for n in range(9)
    ]
    with pytest.raises(DataError, match="--pair-column"):
        TextExample.read(rows)


def test_a_table_without_its_header_is_not_guessed(write: Write) -> None:
    lines = [f"Where is my order {n}? I am waiting,{('bill', 'parcel')[n % 2]}" for n in range(40)]
    with pytest.raises(DataError, match="or --no-header if the first line is an example"):
        TextExample.read(write("a.csv", "\n".join(lines)))
    found = TextExample.read(write("a.csv", "\n".join(lines)), DataOptions(header=False)).columns.found
    assert found == {"text_column": "0", "label_column": "1"}
