"""The readers for question answering accept SQuAD files and tables, and report unusable answers."""

import json
from pathlib import Path

import numpy as np
import pytest
from labeled_files import Write, report_of

from albertkit.datasets.examples import QuestionExample
from albertkit.datasets.official import squad
from albertkit.datasets.reader import ReadingReport
from albertkit.errors import DataError


def squad_json(*questions: dict, context: str = "Rome is in Italy. Rome is old.") -> str:
    paragraph = {"context": context, "qas": list(questions)}
    return json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]})


def asked(name: str, *answers: tuple[str, int], **more) -> dict:
    given = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": "Where?", "answers": given, **more}


def test_squad_files(write: Write) -> None:
    content = squad_json(
        asked("a", ("Italy", 11), ("in Italy", 8)),
        asked("b", ("Rome", 17)),  # shifted by one
        asked("c", is_impossible=True, plausible_answers=[{"text": "Rome", "answer_start": 0}]),
        asked("d"),
        asked("e", ("Paris", 0)),
    )
    reader = squad(write("dev.json", content))
    context = "Rome is in Italy. Rome is old."
    assert list(reader) == [
        QuestionExample("a", "Where?", context, (("Italy", 11), ("in Italy", 8))),
        QuestionExample("b", "Where?", context, (("Rome", 18),)),
        QuestionExample("c", "Where?", context, (), True),
    ]
    problems = report_of(reader).problems
    assert problems["unlabeled"].first == [f"{reader.source}, question d"]
    assert "'Paris' is not in the context" in problems["invalid label"].first[0]
    assert len(list(squad(reader.source, labeled=False))) == 5
    with pytest.raises(DataError, match="two questions have the id 'a'"):
        list(squad(write("twice.json", squad_json(asked("a", ("Rome", 0)), asked("a", ("Rome", 0))))))
    with pytest.raises(
        DataError, match=r"an object with a list 'data'\. To convert an array of objects: jq -c"
    ):
        list(squad(write("array.json", '[{"question": "a"}]')))


@pytest.mark.parametrize(
    ("context", "answer", "start", "moved"),
    [
        ("smoking is what a king hates", "king", 18, None),
        ("born in 1915, he was 5 years old", "5", 21, None),
        ("smoking", "king", 3, "'king' occurs only inside a word, at offset 3"),
        ("Rome, (Rome)", "Rome", 0, None),
        ("\u5317\u4eac\u5e02", "\u4eac", 1, None),  # in Chinese, each character is a word
    ],
)
def test_answers_without_an_offset(context: str, answer: str, start: int, moved: str | None) -> None:
    reader = QuestionExample.read([{"question": "Q?", "context": context, "answers": answer}])
    report = ReadingReport("")
    assert [one.answers for _, one in reader.read(report)] == [((answer, start),)]
    assert [one.first for one in report.problems.values()] == (
        [[f"{reader.source}, row 1: {moved}"]] if moved else []
    )


@pytest.mark.parametrize(
    ("given", "start", "moved"),
    [
        (18, 18, False),
        (19, 18, True),
        (4, 18, True),  # the closest is inside a word
        (3, 3, False),  # the file says so
        (-1, 18, True),
        (99, 18, True),
    ],
)
def test_answers_at_another_offset_are_counted(write: Write, given: int, start: int, moved: bool) -> None:
    context = "smoking is what a king hates"
    file = squad(write("a.json", squad_json(asked("a", ("king", given)), context=context)))
    answers = {"text": ["king"], "answer_start": [given]}
    for reader in (file, QuestionExample.read([{"question": "Q?", "context": context, "answers": answers}])):
        report = ReadingReport("")
        assert [one.answers for _, one in reader.read(report)] == [(("king", start),)]
        assert (report.rows, report.examples) == (1, 1)
        details = [one.first[0] for one in report.problems.values()]
        assert [detail.endswith(f": 'king' is at offset {start}, not {given}") for detail in details] == [
            True
        ] * moved
        assert [*report.to_json()["problems"]] == ["changed answer"] * moved


def test_an_answer_outside_of_the_context_is_counted(write: Write) -> None:
    reader = squad(write("a.json", squad_json(asked("a", ("Paris", 0), ("Rome", 0)))))
    report = report_of(reader)
    assert report.problems["changed answer"].first == [
        f"{reader.source}, question a: 'Paris' is not in the context, so this answer is ignored"
    ]
    assert report.lines()[0] == f"{reader.source}: 1 example"


def test_tables_of_questions() -> None:
    rows = [
        {"question": "Q?", "context": "In Rome.", "answers": {"text": ["Rome"], "answer_start": [3]}},
        {"question": "Q?", "context": "In Rome.", "answers": {"text": [], "answer_start": []}},
        {"question": "Q?", "context": "In Rome.", "answers": "Rome"},
        {"question": "Q?", "context": "In Rome.", "answers": None},
    ]
    reader = QuestionExample.read(rows)
    assert [(one.answers, one.is_impossible) for one in reader] == [
        ((("Rome", 3),), False),
        ((), True),
        ((("Rome", 3),), False),
    ]
    assert report_of(reader).problems["unlabeled"].count == 1
    report = report_of(QuestionExample.read([{"question": "Q?", "context": "In Rome.", "answers": 5}]))
    assert "row 1: expected the text of an answer" in report.problems["invalid label"].first[0]


def test_xquad(shared: Path) -> None:
    for language in ("en", "de", "ru", "zh"):
        reader = squad(shared / "data" / "xquad" / f"xquad.{language}.json")
        report = report_of(reader)
        assert (report.examples, report.problems) == (1190, {})
        for one in reader:
            for text, start in one.answers:
                assert one.context[start : start + len(text)] == text


@pytest.mark.parametrize(
    ("given", "answers"),
    [
        ({"text": ["Rome"], "answer_start": [0]}, (("Rome", 0),)),
        ({"text": "Rome", "answer_start": 0}, (("Rome", 0),)),
        ("{'text': ['Rome'], 'answer_start': [0]}", (("Rome", 0),)),
        ('{"text": [], "answer_start": []}', ()),
        ({"text": ["Rome"], "answer_start": [np.int64(0)]}, (("Rome", 0),)),
        ({"text": ["Rome"], "answer_start": []}, None),
        ({"text": ["Rome"], "answer_start": ["0"]}, None),
        ({"text": [3], "answer_start": [0]}, None),
        ({"text": None, "answer_start": 0}, None),
        ("{'text': array(['Rome']), 'answer_start': array([0])}", None),
        (["Rome"], None),
        (7, None),
    ],
)
def test_layouts_of_answers(given: object, answers: tuple | None) -> None:
    rows = [{"question": "where", "context": "Rome is old.", "answers": given}]
    report = ReadingReport("")
    found = [one.answers for _, one in QuestionExample.read(rows).read(report)]
    assert found == ([] if answers is None else [answers])
    assert ("invalid label" in report.problems) is (answers is None)


@pytest.mark.parametrize(
    "data",
    [
        *(5, {"a": 1}, "text", [3], [{}], [{"paragraphs": [{"context": "a", "qas": "q"}]}]),
        *(
            [{"paragraphs": [{"context": "a b", "qas": [{"id": 1, "question": "q", "answers": [answer]}]}]}]
            for answer in ({"text": 5, "answer_start": 0}, {"text": "a", "answer_start": "0"}, "a", {})
        ),
    ],
)
def test_squad_files_of_other_layouts(write: Write, data: object) -> None:
    for content in (json.dumps({"data": data}), '{"data": ['):
        with pytest.raises(DataError, match=r"a.json is damaged or incomplete, or has another format"):
            list(squad(write("a.json", content)))
