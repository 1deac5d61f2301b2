"""Fine-tune a model for question answering on 192 questions, then mark its answers in a text.

    python examples/answer_questions.py

The script generates texts and questions about who bought or sold what, where and when. The validation texts
have other people, things, places and times than the training texts. The model learns the positions of such
answers; it is too small to understand the texts.
"""

import json
import random
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from albertkit import finetune, pipeline

NAMES = tomllib.loads((Path(__file__).parent / "data" / "names.toml").read_text(encoding="utf-8"))["answers"]
VERBS = [("bought", "buy"), ("sold", "sell"), ("lost", "lose"), ("found", "find")]
TEXT = "In April the pilot sold his car in the city. Nobody knows why."
QUESTIONS = ["Who sold his car?", "What did the pilot sell?"]
QUESTIONS += [f"{word} did the pilot sell his car?" for word in ("Where", "When")]


def write(file: Path, count: int, *, known: slice, seed: int) -> None:
    """Write `count` texts, each with four questions, in the columns of SQuAD.

    Args:
        file: the JSON Lines file to write.
        count: number of texts.
        known: the part of each list of names to draw from.
        seed: seed of the random choices.
    """
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        who, what, where, when = (rng.choice(NAMES[kind][known]) for kind in ("who", "what", "where", "when"))
        did, do = rng.choice(VERBS)
        event = rng.choice([f"{who} {did} {what} {where}, {when}.", f"{when} {who} {did} {what} {where}."])
        context = f"{event[0].upper()}{event[1:]} Nobody knows why."
        questions = [f"Who {did} {what}?", f"What did {who} {do}?"]
        questions += [f"{word} did {who} {do} {what}?" for word in ("Where", "When")]
        for question, answer in zip(questions, (who, what, where, when), strict=True):
            start = context.lower().index(answer.lower())
            answers = {"text": [context[start : start + len(answer)]], "answer_start": [start]}
            lines.append(json.dumps({"question": question, "context": context, "answers": answers}))
    file.write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    with TemporaryDirectory() as name:
        train, validation, run = (Path(name) / file for file in ("train.jsonl", "validation.jsonl", "run"))
        write(train, 48, known=slice(0, 10), seed=0)
        write(validation, 12, known=slice(10, 13), seed=1)
        result = finetune(
            "question-answering",
            model="bundled",
            train=train,
            validation=validation,
            output=run,
            epochs=3,
            batch_size=16,
            learning_rate=3e-4,
            evaluate_every=36,
        )
        answer = pipeline(model=run)
    metrics = result.metrics
    print(f"on the validation texts: exact {metrics['exact']:.1%}, F1 {metrics['f1']:.1%}\n")
    for question in QUESTIONS:
        span = answer(question=question, context=TEXT)
        start, end = span["start"], span["end"]
        print(f"{question:<34} {TEXT[:start]}[{TEXT[start:end]}]{TEXT[end:]}")


if __name__ == "__main__":
    main()
