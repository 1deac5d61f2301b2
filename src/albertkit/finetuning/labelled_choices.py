"""Multiple choice: RACE, and tables like SWAG's."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from albertkit.config import AlbertConfig
from albertkit.datasets.choices import ChoiceColumns, ChoiceTable, RaceFolder
from albertkit.datasets.reader import Reader
from albertkit.engines.engine import Row, runs_of_examples
from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.labelled_task import Judged, LabelledTask, task_room
from albertkit.finetuning.settings import TaskSettings
from albertkit.metrics.multiple_choice import choice_scores
from albertkit.tasks.examples import ChoiceExample
from albertkit.tasks.multiple_choice import Chosen, MultipleChoice
from albertkit.tokenization.base import TokenizerBase


class LabelledChoices(LabelledTask):
    """Texts with choices of which one is right."""

    architecture = "AlbertForMultipleChoice"
    metrics = ("accuracy", "middle", "high")

    def reader(self, source: str, options: DataOptions, *, labelled: bool = True) -> Reader[ChoiceExample]:
        """Return the reader of a folder of RACE or of a table."""
        path = Path(source)
        if path.is_dir() and not (path / "state.json").is_file():
            return RaceFolder(path, labelled=labelled)
        columns = ChoiceColumns(
            context=options.context_column or "sent1",
            question=options.question_column or "sent2",
            choices=tuple(name.strip() for name in options.choice_columns.split(",") if name.strip()),
            label=options.label_column or "label",
            id=options.id_column,
        )
        return ChoiceTable(
            source, columns, labelled=labelled, header=options.header, delimiter=options.delimiter
        )

    def task(self, tokenizer: TokenizerBase, config: AlbertConfig, settings: TaskSettings) -> MultipleChoice:
        """Return the task."""
        return MultipleChoice(
            tokenizer, max_length=task_room(config, settings), truncation=settings.truncation
        )

    def main_metric(self, config: AlbertConfig, examples: Sequence[ChoiceExample]) -> str:
        """Return accuracy."""
        del config, examples
        return "accuracy"

    def scores(
        self, examples: Sequence[ChoiceExample], predictions: Sequence[Chosen], config: AlbertConfig
    ) -> dict[str, float]:
        """Return accuracy, of RACE also that of its parts."""
        del config
        true = [_right(example) for example in examples]
        return choice_scores(true, [one.choice for one in predictions], ids=[one.id for one in examples])

    def baseline(self, examples: Sequence[ChoiceExample], config: AlbertConfig) -> dict[str, float]:
        """Return how often a guess is right."""
        del config
        return {"accuracy": sum(1 / len(example.choices) for example in examples) / len(examples)}

    def judge(self, example: ChoiceExample, prediction: Chosen, config: AlbertConfig) -> list[Judged]:
        """Return the one decision."""
        del config
        right = example.label == prediction.choice
        return [Judged(example.label, prediction.choice, right, max(prediction.scores))]

    def record(self, example: ChoiceExample, prediction: Chosen, config: AlbertConfig) -> dict[str, Any]:
        """Return {choice, text, score, scores}."""
        del config
        return {
            "choice": prediction.choice,
            "text": example.choices[prediction.choice],
            "score": max(prediction.scores),
            "scores": prediction.scores,
        }

    def truth(self, example: ChoiceExample) -> int:
        """Return the place of the right choice."""
        return _right(example)

    def prior_loss(self, rows: Sequence[Row], config: AlbertConfig) -> float:
        """Return the loss of equal probabilities: the place of a choice says nothing to the model."""
        del config
        widths = [len(unit) for unit in runs_of_examples(rows)]
        return sum(map(math.log, widths)) / len(widths)


def _right(example: ChoiceExample) -> int:
    assert example.label is not None  # the reader leaves out what has none
    return example.label
