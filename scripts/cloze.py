"""Ask a model the 200 cloze questions of `cloze.jsonl`, and keep the table of dev/measurements.md.

    python scripts/cloze.py [--model bundled] [--json] [--write-page]

A question is a sentence of our own with one [MASK] and every answer that counts: facts that a reader of
the books knows, words that grammar asks for, words that the sense asks for. Top-1 is the share of questions
whose best answer counts, top-5 of those with one among the five best. An answer that is not one piece of the
model's vocabulary cannot be given; a question that has no other counts as wrong, and they are counted.

`--write-page` puts the model's row into the table. The row is known by the hash of the weights: the same
model again replaces its row, another one gets a row of its own below those of the models before it.
"""

import argparse
import datetime
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from albertkit import pipeline
from albertkit.files import atomic_path, file_sha256
from albertkit.hub import resolve
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.model_file import NORMAL, WORD_START, read_model_file, read_piece_table

QUESTIONS = Path(__file__).with_name("cloze.jsonl")
CATEGORIES = ("facts", "grammar", "sense")
PAGE = Path(__file__).parents[1] / "dev" / "measurements.md"
BEGIN, END = "<!-- table: scripts/cloze.py -->", "<!-- end of cloze table -->"
FREQUENT = "the most frequent words, whatever the question"
TOP = 5


@dataclass(frozen=True, kw_only=True)
class Question:
    """A sentence with one [MASK], and the words that count as right."""

    category: str
    text: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Score:
    """Of some questions: how many, and on how many of them the best and one of the five best were right."""

    questions: int
    top_1: int
    top_5: int

    def __str__(self) -> str:
        return f"{self.top_1 / self.questions:.3f} / {self.top_5 / self.questions:.3f}"


def read_questions(file: Path = QUESTIONS) -> list[Question]:
    """Return the questions in their order."""
    rows = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    return [
        Question(category=row["category"], text=row["text"], answers=tuple(row["answers"])) for row in rows
    ]


def answer_ids(question: Question, tokenizer: TokenizerBase) -> set[int]:
    """Return the ids of the answers that are one piece, and so can be given."""
    cut = (tokenizer.tokenize(answer) for answer in question.answers)
    ids = {tokenizer.convert_tokens_to_ids(pieces[0]) for pieces in cut if len(pieces) == 1}
    return ids - {tokenizer.unk_token_id}


def scores(
    questions: Sequence[Question], guesses: Iterable[Sequence[int]], tokenizer: TokenizerBase
) -> dict[str, Score]:
    """Return the scores by category, and of "all".

    Args:
        questions: what was asked.
        guesses: for each question ids of pieces, the best first.
        tokenizer: that of the ids.
    """
    found: dict[str, list[tuple[bool, bool]]] = {category: [] for category in (*CATEGORIES, "all")}
    for question, ids in zip(questions, guesses, strict=True):
        right = [one in answer_ids(question, tokenizer) for one in ids[:TOP]]
        for category in (question.category, "all"):
            found[category].append((right[0], any(right)))
    return {
        category: Score(len(pairs), sum(first for first, _ in pairs), sum(some for _, some in pairs))
        for category, pairs in found.items()
        if pairs
    }


def frequent_ids(model: Path) -> list[int]:
    """Return the whole words that the vocabulary of the model in a folder holds for the most probable."""
    table = read_piece_table(read_model_file(model / "spiece.model"))
    words = [
        one
        for one, piece in enumerate(table.pieces)
        if table.kinds[one] == NORMAL and piece.startswith(WORD_START) and piece != WORD_START
    ]
    return sorted(words, key=lambda one: -table.scores[one])[:TOP]


def rows_with(old: Iterable[str], new: Sequence[str], *, key: str) -> list[str]:
    """Return a table's rows with the one that holds `key` replaced, or with a row more."""
    kept = [row for row in old if f"| {key} |" not in row]
    return [*kept, "| " + " | ".join(new) + " |"]


def write_page(
    by_model: dict[str, Score], by_frequency: dict[str, Score], *, model: str, sha256: str
) -> None:
    """Put the model's row, dated today, into the table of the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    table, _, after = rest.partition(END)
    columns = (*CATEGORIES, "all")
    head = f"| date | model | weights | {' | '.join(columns)} |\n|{'---|' * (3 + len(columns))}"
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    models = [row for row in rows if FREQUENT not in row]
    today = datetime.date.today().isoformat()
    frequent = rows_with([], ["", FREQUENT, "", *(str(by_frequency[one]) for one in columns)], key="")
    models = rows_with(models, [today, model, sha256, *(str(by_model[one]) for one in columns)], key=sha256)
    with atomic_path(PAGE) as file:
        lines = [f"{before}{BEGIN}", head, *frequent, *models, f"{END}{after}"]
        file.write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="bundled", help="folder or name")
    parser.add_argument("--json", action="store_true", help="print one JSON line, with every answer")
    parser.add_argument("--write-page", action="store_true", help=f"put the figures into {PAGE.name}")
    arguments = parser.parse_args()

    questions = read_questions()
    unmasker = pipeline("fill-mask", model=arguments.model)
    answers = unmasker([question.text for question in questions], top_k=TOP)
    tokenizer, config = unmasker.tokenizer, unmasker.model.config
    folder = resolve(arguments.model, patterns=("*.safetensors", "spiece.model"))
    sha256 = file_sha256(folder / "model.safetensors")[:8]
    by_model = scores(questions, ([one["token"] for one in row] for row in answers), tokenizer)
    by_frequency = scores(questions, [frequent_ids(folder)] * len(questions), tokenizer)
    unanswerable = sum(not answer_ids(question, tokenizer) for question in questions)
    described = f"{config.hidden_size} x {config.num_hidden_layers}, {len(tokenizer):,} pieces"
    if arguments.json:
        given = [[one["token_str"] for one in row] for row in answers]
        figures = {name: vars(score) for name, score in by_model.items()}
        print(
            json.dumps(
                {
                    "model": arguments.model,
                    "weights": sha256,
                    "scores": figures,
                    "most_frequent": {name: vars(score) for name, score in by_frequency.items()},
                    "unanswerable": unanswerable,
                    "answers": given,
                }
            )
        )
    else:
        print(f"{arguments.model} ({described}, weights {sha256}); top-1 / top-5, beside {FREQUENT}")
        for name, score in by_model.items():
            print(f"{name:8} {score.questions:4} questions  {score}    {by_frequency[name]}")
        print(f"questions without an answer in its vocabulary: {unanswerable}")
    if arguments.write_page:
        write_page(by_model, by_frequency, model=described, sha256=sha256)


if __name__ == "__main__":
    main()
