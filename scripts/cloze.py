"""Evaluate a model on the 200 cloze questions of `cloze.jsonl`, and write the table of dev/measurements.md.

    python scripts/cloze.py [--model bundled] [--questions scripts/plain_facts.jsonl] [--json] [--write-page]

A question is a sentence with one [MASK] and a list of correct answers. It asks for a fact that a reader of
the books knows, for a word that the grammar requires, or for a word that the sense requires. Top-1 is the
share of questions with a correct best answer, top-5 the share with a correct answer among the best five. The
model can only predict single pieces of its vocabulary. A question without a correct answer of one piece
counts as wrong, and the script prints the number of these questions.

`plain_facts.jsonl` has twenty facts that everybody knows.

`--write-page` adds the model's row at the end of the table. The hash of the weights identifies the model: the
new row replaces an old row of the same model.
"""

import datetime
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pages import command_line, rows_of, write_table

from albertkit import pipeline
from albertkit.files import file_sha256
from albertkit.hub import resolve
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.model_file import NORMAL, WORD_START, read_model

QUESTIONS = Path(__file__).with_name("cloze.jsonl")
CATEGORIES = ("facts", "grammar", "sense")
PAGE = Path(__file__).parents[1] / "dev" / "measurements.md"
BEGIN = "<!-- table: scripts/cloze.py -->"
FREQUENT = "the most frequent words, whatever the question"
TOP = 5


@dataclass(frozen=True, kw_only=True)
class Question:
    """A sentence with one [MASK], and the correct answers."""

    category: str
    text: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Score:
    """Number of questions, and how many of them have a correct best answer and one among the best five."""

    questions: int
    top_1: int
    top_5: int

    def __str__(self) -> str:
        return f"{self.top_1 / self.questions:.3f} / {self.top_5 / self.questions:.3f}"


def read_questions(file: Path = QUESTIONS) -> list[Question]:
    """Return the questions of a file in order."""
    rows = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    return [
        Question(category=row["category"], text=row["text"], answers=tuple(row["answers"])) for row in rows
    ]


def answer_ids(question: Question, tokenizer: TokenizerBase) -> set[int]:
    """Return the ids of the answers that are a single piece, which the model can predict."""
    tokenized = (tokenizer.tokenize(answer) for answer in question.answers)
    ids = {tokenizer.convert_tokens_to_ids(pieces[0]) for pieces in tokenized if len(pieces) == 1}
    return ids - {tokenizer.unk_token_id}


def scores(
    questions: Sequence[Question], predictions: Iterable[Sequence[int]], tokenizer: TokenizerBase
) -> dict[str, Score]:
    """Return the score of each category, and the score "all" of all questions.

    Args:
        questions: The questions.
        predictions: Ids of the predicted pieces for each question, the best one first.
        tokenizer: The tokenizer of the ids.
    """
    outcomes: dict[str, list[tuple[bool, bool]]] = {category: [] for category in (*CATEGORIES, "all")}
    for question, ids in zip(questions, predictions, strict=True):
        correct = [piece in answer_ids(question, tokenizer) for piece in ids[:TOP]]
        for category in (question.category, "all"):
            outcomes[category].append((correct[0], any(correct)))
    return {
        category: Score(len(pairs), sum(top_1 for top_1, _ in pairs), sum(top_5 for _, top_5 in pairs))
        for category, pairs in outcomes.items()
        if pairs
    }


def frequent_ids(model: Path) -> list[int]:
    """Return the ids of the most probable whole words, by the vocabulary of the model in a folder."""
    pieces = read_model((model / "spiece.model").read_bytes()).pieces
    words = [
        index
        for index, piece in enumerate(pieces)
        if piece.type == NORMAL and piece.piece.startswith(WORD_START) and piece.piece != WORD_START
    ]
    return sorted(words, key=lambda index: -pieces[index].score)[:TOP]


def rows_with(old: Iterable[str], new: Sequence[str], *, key: str) -> list[str]:
    """Return the rows of a table with a new row at the end, and without old rows that have a cell `key`."""
    kept = [row for row in old if f"| {key} |" not in row]
    return [*kept, "| " + " | ".join(new) + " |"]


def write_page(
    by_model: dict[str, Score], by_frequency: dict[str, Score], *, model: str, sha256: str
) -> None:
    """Write the model's row, with today's date, into the table of the page."""
    columns = (*CATEGORIES, "all")
    head = f"| date | model | weights | {' | '.join(columns)} |\n|{'---|' * (3 + len(columns))}"
    models = [row for row in rows_of(PAGE, BEGIN)[1:] if FREQUENT not in row]
    today = datetime.date.today().isoformat()
    frequent = rows_with([], ["", FREQUENT, "", *(str(by_frequency[name]) for name in columns)], key="")
    models = rows_with(models, [today, model, sha256, *(str(by_model[name]) for name in columns)], key=sha256)
    write_table(PAGE, BEGIN, "\n".join([head, *frequent, *models]))


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--model", default="bundled", help="folder or name of the model")
    parser.add_argument("--questions", type=Path, default=QUESTIONS, help="file of questions")
    parser.add_argument("--json", action="store_true", help="print one JSON line, with every answer")
    parser.add_argument("--write-page", action="store_true", help=f"write the model's row into {PAGE.name}")
    arguments = parser.parse_args()
    if arguments.write_page and arguments.questions.name != QUESTIONS.name:
        parser.error(f"--write-page needs the questions of {QUESTIONS.name}")

    questions = read_questions(arguments.questions)
    unmasker = pipeline("fill-mask", model=arguments.model)
    answers = unmasker([question.text for question in questions], top_k=TOP)
    tokenizer, config = unmasker.tokenizer, unmasker.model.config
    folder = resolve(arguments.model, patterns=("*.safetensors", "spiece.model"))
    sha256 = file_sha256(folder / "model.safetensors")[:8]
    by_model = scores(questions, ([answer["token"] for answer in row] for row in answers), tokenizer)
    by_frequency = scores(questions, [frequent_ids(folder)] * len(questions), tokenizer)
    unanswerable = sum(not answer_ids(question, tokenizer) for question in questions)
    groups = "" if config.num_hidden_groups == 1 else f" in {config.num_hidden_groups} groups"
    described = f"{config.hidden_size} x {config.num_hidden_layers}{groups}, {len(tokenizer):,} pieces"
    if arguments.json:
        words = [[answer["token_str"] for answer in row] for row in answers]
        figures = {name: vars(score) for name, score in by_model.items()}
        print(
            json.dumps(
                {
                    "model": arguments.model,
                    "weights": sha256,
                    "scores": figures,
                    "most_frequent": {name: vars(score) for name, score in by_frequency.items()},
                    "unanswerable": unanswerable,
                    "answers": words,
                }
            )
        )
    else:
        print(f"{arguments.model} ({described}, weights {sha256}); top-1 / top-5, then {FREQUENT}")
        for name, score in by_model.items():
            print(f"{name:8} {score.questions:4} questions  {score}    {by_frequency[name]}")
        print(f"questions without an answer in the vocabulary: {unanswerable}")
    if arguments.write_page:
        write_page(by_model, by_frequency, model=described, sha256=sha256)


if __name__ == "__main__":
    main()
