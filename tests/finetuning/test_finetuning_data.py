"""Fine-tuning counts unusable and truncated rows, and warns about labels that may be misread."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bound_tasks import unread
from finetuning_runs import FAST, texts, tune
from json_lines import write_json_lines

from albertkit.datasets.examples import QuestionExample, TextExample, WordsExample
from albertkit.datasets.options import DataOptions
from albertkit.finetuning.prepared import Prepared, prepare
from albertkit.tasks.labels import CLASS, SEVERAL, TAGS, LabelKind, LabelSet
from albertkit.tasks.registry import TASKS
from albertkit.tasks.settings import TaskSettings

pytestmark = pytest.mark.usefixtures("blank_pictures")


def test_texts_over_the_limit_are_counted(model: Path, data: Path, tmp_path: Path) -> None:
    rows = texts(20, 1)
    rows[3]["text"] = "river " * 100
    write_json_lines(
        tmp_path / "train.jsonl", [*rows, {"text": "", "label": "good"}, {"text": "key", "label": None}]
    )
    write_json_lines(tmp_path / "validation.jsonl", texts(6, 1))
    settings = replace(FAST, steps=1)
    report = tune("text-classification", settings, model, tmp_path, tmp_path / "run").report
    assert report is not None
    found = report["data"]["training"]
    assert (found["rows"], found["examples"], found["examples_cut"]) == (22, 20, 1)
    assert {name: one["count"] for name, one in found["problems"].items()} == {"empty": 1, "unlabeled": 1}


def test_a_maximum_length_above_the_model_is_logged(
    model: Path, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for length, expected in (
        (64, ["max_length is 64, but the model's maximum is 48 tokens: using 48"]),
        (48, []),
        (None, []),
    ):
        caplog.clear()
        prepared = prepare(
            TASKS["text-classification"](),
            replace(FAST, task=TaskSettings(max_length=length)),
            model=model,
            train=data / "train.jsonl",
            validation=data / "validation.jsonl",
            options=DataOptions(),
        )
        assert prepared.task.max_length == 48
        assert [line for line in caplog.messages if line.startswith("max_length")] == expected


@pytest.mark.parametrize(
    ("training", "noted"),
    [
        ([("Rome",), ("is",), ("old",)], True),
        ([("Rome",)], False),
        ([("Rome", "is"), ("old",)], False),
    ],
)
def test_sentences_of_one_word_cause_a_warning(
    training: list[tuple[str, ...]], noted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    task = unread("token-classification", id2label=dict(enumerate(["O", "B-LOC"])))
    assert task.check([WordsExample(words) for words in training], [], 8) is None
    assert [one.levelname for one in caplog.records] == ["WARNING"] * noted
    assert all(one.startswith("each training example has a single word") for one in caplog.messages)


@pytest.mark.parametrize(
    ("labels", "note"),
    [
        (["o", "B-PER", "I-PER", "I-LOC"], "no tagging scheme: 'o' (did you mean 'O'?)."),
        (["O", "B-PER", "label"], "no tagging scheme: 'label'. Expected O, or a prefix (B, I, E, S, L or U)"),
        (["O", "B-PER", "label"], "Perhaps a comment or a header was read as a word."),
        (["O", "B-PER", "I-PER"], None),
        (["-LRB-", "B-X", "NN"], None),
    ],
)
def test_labels_without_a_scheme_cause_a_warning(
    labels: list[str], note: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    task = unread("token-classification", id2label=dict(enumerate(labels)))
    assert task.check([], [], 8) is None
    assert [one.levelname for one in caplog.records] == ["WARNING"] * (note is not None)
    assert all(one.startswith("the metrics") and str(note) in one for one in caplog.messages)


@pytest.mark.parametrize(
    ("kind", "labels", "note"),
    [
        (SEVERAL, [("sea",), ("sea;storm",)], "use --label-separator ';'"),
        (CLASS, ["soso", "So so", "bad"], "only in case or spaces, perhaps by mistake: 'So so', 'soso'"),
        (SEVERAL, [("soso", "So so"), ("bad",)], "perhaps by mistake: 'So so', 'soso'"),
        (CLASS, list(map(str, range(11))), "11 whole numbers, which are read as classes"),
        (CLASS, list(map(str, range(10))), None),
        # The note must fit a decimal comma and a thousands separator: 1,080 may be 1.08 or 1080.
        (CLASS, ["2,53", "1,08", "3"], "a decimal point and no thousands separator"),
        (CLASS, ["1,080", "2,530", "1,200,000.5"], "a decimal point and no thousands separator"),
        (CLASS, ["a,b", "1,08", "c"], None),
        (TAGS, [("O", "B-LOC")], None),
    ],
)
def test_labels_that_may_be_misread_cause_a_note(
    kind: LabelKind, labels: list[Any], note: str | None
) -> None:
    flat = [name for label in labels for name in (label if isinstance(label, tuple) else [label])]
    _, *notes = LabelSet(kind, tuple(sorted({*flat}))).notes(labels * 2)
    assert [note in line for line in notes if note] == [True] * (note is not None)
    assert bool(notes) == (note is not None)


def prepared_with_hold_out(model: Path, task: str, examples: Sequence[Any], seed: int = 0) -> Prepared:
    return prepare(
        TASKS[task](), replace(FAST, seed=seed), model=model, train=examples, validation=None,
        options=DataOptions(),
    )  # fmt: skip


@pytest.mark.parametrize("seed", [0, 7])
def test_different_texts_are_held_out_by_their_rows(model: Path, seed: int) -> None:
    examples = [TextExample(f"{number}", None, ["bad", "good"][number % 2]) for number in range(205)]
    prepared = prepared_with_hold_out(model, "text-classification", examples, seed)
    expected = sorted(random.Random(seed).sample(range(205), 20))
    assert prepared.validation.examples == [examples[number] for number in expected]


def test_equal_texts_are_held_out_together(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With random labels, a model that remembers the training texts must not look good."""
    caplog.set_level("INFO")
    draw = random.Random(0)
    labels = [draw.choice(["bad", "good"]) for _ in range(200)]
    examples = [TextExample(f"{number % 200}", None, labels[number % 200]) for number in range(800)]
    prepared = prepared_with_hold_out(model, "text-classification", examples)
    held_out = [example.text for example in prepared.validation.examples]
    assert len(held_out) == 80
    assert len(set(held_out)) == 20
    assert len(prepared.units) == 720
    assert prepared.data["validation"]["shared_with_training"] == 0
    assert "the same text" not in caplog.text


def test_a_text_of_many_copies_is_held_out_as_seldom_as_others(model: Path) -> None:
    examples = [TextExample(f"{number}", label="ab"[number % 2]) for number in range(385)]
    examples += [TextExample("n/a", label="ab"[number % 2]) for number in range(15)]
    prepared = (prepared_with_hold_out(model, "text-classification", examples, seed) for seed in range(10))
    texts = [{example.text for example in one.validation.examples} for one in prepared]
    assert sum("n/a" in held_out for held_out in texts) <= 3


@pytest.mark.parametrize("copies", [1, 10])
def test_held_out_examples_have_different_labels(
    model: Path, caplog: pytest.LogCaptureFixture, copies: int
) -> None:
    examples = [TextExample(f"the {number} words", label="abc"[number // 8]) for number in range(24)] * copies
    for seed in range(8):
        prepared = prepared_with_hold_out(model, "text-classification", examples, seed)
        assert len({example.label for example in prepared.validation.examples}) > 1
    texts_held_out = {example.text for example in prepared.validation.examples}
    assert len(texts_held_out) == 2
    assert ("They have 2 distinct texts" in caplog.text) is (copies > 1)
    assert "depend on chance" in caplog.text


def test_equal_contexts_are_held_out_together(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for contexts, held_out, shared in ((12, 4, 0), (3, 16, 0), (1, 4, 4)):
        caplog.clear()
        examples = [
            QuestionExample(str(number), "what?", f"the key {number % contexts}", (("key", 4),))
            for number in range(48)
        ]
        prepared = prepared_with_hold_out(model, "question-answering", examples)
        assert len(prepared.validation.examples) == held_out
        assert len({example.context for example in prepared.validation.examples}) == 1
        assert prepared.data["validation"]["shared_with_training"] == shared
        note = "validation: 4 of 4 examples have the same text or context as a training example, so the "
        assert (note in caplog.text) is bool(shared)


def test_texts_of_both_files_are_counted(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    training = [TextExample(text, pair, label) for text, pair, label in (("a", "b", "x"), ("c", "d", "y"))]
    validation = [TextExample(text, pair, "x") for text, pair in (("a", "b"), ("a", "d"), ("a", "b"))]
    prepared = prepare(
        TASKS["text-classification"](), FAST, model=model, train=training * 2, validation=validation,
        options=DataOptions(),
    )  # fmt: skip
    assert prepared.data["validation"]["shared_with_training"] == 2
    assert "validation: 2 of 3 examples have the same text or context as a training example" in caplog.text


@pytest.mark.parametrize("seed", range(5))
def test_every_label_keeps_a_training_example(model: Path, seed: int) -> None:
    labels = ["common"] * 30 + ["twice"] * 2 + [f"once {number}" for number in range(8)]
    examples = [TextExample(f"{number}", None, label) for number, label in enumerate(labels)]
    prepared = prepared_with_hold_out(model, "text-classification", examples, seed)
    assert len(prepared.validation.examples) == 4
    assert {row.labels for row in prepared.rows} == set(range(10))


def test_equal_texts_with_different_labels_are_counted(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    texts_and_labels = ("a x", "a y", "a x", "b x", "b x", "N/A y", "N/A y", "- x")
    training = [TextExample(text, label=label) for text, label in map(str.split, texts_and_labels)]
    prepared = prepare(
        TASKS["text-classification"](), FAST, model=model, train=training, validation=training[5:7],
        options=DataOptions(),
    )  # fmt: skip
    assert prepared.data["training"]["conflicting_labels"] == 3
    assert prepared.data["validation"]["conflicting_labels"] == 0
    assert "validation: 'N/A' (2) may stand for a missing text" in caplog.text
    conflicting = "3 of 8 examples have a text that also occurs with another label, for example the text 'a'"
    assert f"training: {conflicting}" in caplog.text
    assert "training: 'N/A' (2) may stand for a missing text" in caplog.text
    assert "'-'" not in caplog.text
    pairs = [
        TextExample(*texts, label=label)
        for *texts, label in (("a", "b c", "x"), ("a b", "c", "y"), ("a", "b c", "y"))
    ]
    prepared = prepare(
        TASKS["text-classification"](), FAST, model=model, train=pairs, validation=pairs,
        options=DataOptions(),
    )  # fmt: skip
    assert prepared.data["training"]["conflicting_labels"] == 2  # the texts of a pair are not joined
