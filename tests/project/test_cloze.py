"""Tests of the cloze questions, and of the script that scores models with them and writes a table."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from json_lines import write_json_lines
from random_models import random_model

from albertkit.modeling.heads import AlbertForMaskedLM
from albertkit.tokenization.tokenizer import AlbertTokenizer

END = "<!-- end of table -->"
SPLIT = [
    "cemetery",
    "frozen",
    "growl",
    "lights",
    "mare",
    "mutton",
    "organ",
    "sailed",
    "sing",
    "slippers",
    "thigh",
    "tomb",
    "vault",
]
"""Answers that the bundled vocabulary splits, so that the model cannot give them."""


@pytest.fixture
def cloze(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("cloze")


@pytest.fixture(scope="module")
def tokenizer() -> AlbertTokenizer:
    return AlbertTokenizer.from_pretrained("bundled")


@pytest.fixture
def frequent_words_model(tokenizer: AlbertTokenizer, tmp_path: Path) -> Path:
    """Return a model whose five best predictions are always the, of, and, to, rome."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "max_position_embeddings": 64}
    model = random_model(AlbertForMaskedLM, tokenizer, **sizes)
    with torch.no_grad():
        model.predictions.decoder.weight.zero_()
        for rank, word in enumerate(("the", "of", "and", "to", "rome")):
            model.predictions.bias[tokenizer.convert_tokens_to_ids(f"▁{word}")] = 10.0 - rank
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_the_200_questions_are_well_formed(cloze, tokenizer: AlbertTokenizer) -> None:
    questions = cloze.read_questions()
    assert len(questions) == len({question.text for question in questions}) == 200
    assert Counter(question.category for question in questions) == {"facts": 67, "grammar": 67, "sense": 66}
    # No answer is so frequent that predicting it everywhere scores well.
    assert max(Counter(answer for question in questions for answer in question.answers).values()) <= 8
    for question in questions:
        assert question.text.count("[MASK]") == 1, question
        assert question.text[-1] in ".?", question
        assert len(set(question.answers)) == len(question.answers) > 0, question
        for answer in question.answers:
            assert answer.isalpha(), question
            assert answer.islower(), question
    answers = [answer for question in questions for answer in question.answers]
    split = [answer for answer in answers if tokenizer.tokenize(answer) != [f"▁{answer}"]]
    assert sorted({*split}) == SPLIT
    ids = sum(len(cloze.answer_ids(question, tokenizer)) for question in questions)
    assert ids == len(answers) - len(split)


def test_scores_by_hand(cloze, tokenizer: AlbertTokenizer) -> None:
    rows = [
        ("facts", ("paris",)),
        ("facts", ("rome", "london")),
        ("sense", ("bread",)),
        ("sense", ("thames",)),
    ]
    questions = [
        cloze.Question(category=category, text="[MASK]", answers=answers) for category, answers in rows
    ]
    predicted = ["paris the of and to", "the of and to london", "the of and to a bread", "the of and to a"]
    ids = [[tokenizer.convert_tokens_to_ids(f"▁{word}") for word in words.split()] for words in predicted]
    scores = cloze.scores(questions, ids, tokenizer)
    assert {name: (score.questions, score.top_1, score.top_5) for name, score in scores.items()} == {
        "facts": (2, 1, 2),
        "sense": (2, 0, 0),  # bread is the sixth prediction; thames has several pieces
        "all": (4, 1, 2),
    }
    assert str(scores["facts"]) == "0.500 / 1.000"
    assert cloze.answer_ids(questions[3], tokenizer) == set()


def test_the_most_frequent_words_of_the_vocabulary(cloze, tokenizer: AlbertTokenizer) -> None:
    folder = Path(tokenizer.vocab_file).parent
    pieces = tokenizer.convert_ids_to_tokens(cloze.frequent_ids(folder))
    assert pieces[0] == "▁the"
    assert {*pieces[1:]} == {"▁of", "▁and", "▁to", "▁a"}


def test_writes_one_row_for_each_model(
    cloze,
    frequent_words_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    questions = tmp_path / "cloze.jsonl"
    rows = [
        {"category": "facts", "text": "He marched on [MASK].", "answers": ["rome"]},
        {"category": "grammar", "text": "It was on [MASK] first of May.", "answers": ["the"]},
        {"category": "sense", "text": "He ate some [MASK].", "answers": ["bread", "meat"]},
    ]
    write_json_lines(questions, rows)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{cloze.BEGIN}\n{END}\nafter\n")
    monkeypatch.setattr(cloze, "PAGE", page)
    for flags in (["--write-page"], ["--write-page", "--json"]):
        files = ["--model", str(frequent_words_model), "--questions", str(questions)]
        monkeypatch.setattr(sys, "argv", ["cloze.py", *files, *flags])
        cloze.main()
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["scores"]["all"] == {"questions": 3, "top_1": 1, "top_5": 2}
    assert printed["answers"][0] == ["the", "of", "and", "to", "rome"]
    assert printed["unanswerable"] == 0
    text = page.read_text()
    assert text.startswith(f"before\n{cloze.BEGIN}\n| date | model | weights | facts | grammar |")
    assert text.endswith(f"{END}\nafter\n")
    table = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert len(table) == 3  # the script ran twice, but did not repeat a row
    assert cloze.FREQUENT in table[1]
    assert table[2][1] == "16 x 1, 10,240 pieces"
    assert table[2][3:] == ["0.000 / 1.000", "1.000 / 1.000", "0.000 / 0.000", "0.333 / 0.667 |"]
    assert table[2][2] == printed["weights"]
    other = [*cloze.rows_with(text.splitlines()[4:6], ["d", "m", "abc"], key="abc")]
    assert len(other) == 3
