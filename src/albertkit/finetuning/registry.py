"""The tasks that can be fine-tuned, by their names."""

from albertkit.errors import ConfigError, did_you_mean
from albertkit.finetuning.labelled_choices import LabelledChoices
from albertkit.finetuning.labelled_pairs import LabelledPairs
from albertkit.finetuning.labelled_questions import LabelledQuestions
from albertkit.finetuning.labelled_task import LabelledTask
from albertkit.finetuning.labelled_texts import LabelledTexts
from albertkit.finetuning.labelled_words import LabelledWords

LABELLED_TASKS: dict[str, type[LabelledTask]] = {
    "text-classification": LabelledTexts,
    "token-classification": LabelledWords,
    "question-answering": LabelledQuestions,
    "multiple-choice": LabelledChoices,
    "sentence-embedding": LabelledPairs,
}


def labelled_task(name: str) -> LabelledTask:
    """Return the task of a name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in LABELLED_TASKS:
        raise ConfigError(
            f"the task is {name!r}{did_you_mean(name, LABELLED_TASKS)}; expected one of "
            f"{', '.join(LABELLED_TASKS)}"
        )
    return LABELLED_TASKS[name]()
