"""The tasks for fine-tuning, by name."""

from typing import Any

from albertkit.checkpoints.sentence_modules import POOLING_KEY
from albertkit.config import SETTINGS_KEY, TASK_KEY, AlbertConfig
from albertkit.errors import ConfigError, did_you_mean
from albertkit.tasks.multiple_choice import MultipleChoice
from albertkit.tasks.question_answering import QuestionAnswering
from albertkit.tasks.sentence_embedding import SentenceEmbedding
from albertkit.tasks.task import Task
from albertkit.tasks.text_classification import TextClassification
from albertkit.tasks.token_classification import TokenClassification

TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (
        TextClassification,
        TokenClassification,
        QuestionAnswering,
        MultipleChoice,
        SentenceEmbedding,
    )
}


def task_of(task: str | Task[Any, Any, Any] | type[Task]) -> Task:
    """Return the task with a name; a task itself, or its class, is also accepted."""
    if isinstance(task, str) and task in TASKS:
        return TASKS[task]()
    if isinstance(task, type) and issubclass(task, Task):
        task = task()
    if not isinstance(task, Task):
        known = f"{', '.join(TASKS)}, or a `Task` of your own"
        raise ConfigError(f"the task is {task!r}{did_you_mean(str(task), TASKS)}. Expected one of {known}.")
    if task.name in TASKS and type(task) is not TASKS[task.name]:
        what = f"the name of {type(task).__name__} is {task.name!r}, which is a task of albertkit"
        raise ConfigError(f"{what}. Choose another `name`.")
    return task


def task_for(
    config: AlbertConfig, model: str, task: str | Task[Any, Any, Any] | type[Task] | None = None
) -> Task:
    """Return the task that a model was fine-tuned for, or the task that the caller chose instead."""
    own = user_task_of(config)
    if task is not None and not (own and isinstance(task, str)):
        chosen = task_of(task)
        if not own or chosen.name not in TASKS:
            return chosen
    if own:
        raise needs_class(model, own)
    name = config.extra.get(TASK_KEY)
    for known in TASKS.values() if name is None else ():
        # AlbertModel is also the class of models without a task.
        is_encoder = known is SentenceEmbedding and POOLING_KEY not in config.extra
        if known.architecture in (config.architectures or []) and not is_encoder:
            return known()
    if name not in TASKS:
        what = "does not record its task" if name is None else f"was fine-tuned for {name!r}"
        raise ConfigError(f"{model} {what}. Pass the task: {', '.join(TASKS)}, or a `Task` of your own.")
    return TASKS[name]()


def needs_class(model: str, name: str) -> ConfigError:
    """Return the error for a model of a task of your own that is used without the class of the task."""
    return ConfigError(
        f"{model} was fine-tuned for {name!r}, a task of your own, and does not contain its code. In Python, "
        "pass an object of your class: task=MyTask() for `evaluate` and `predict`, or pipeline(MyTask(), "
        "model). The command line and the server know only albertkit's tasks."
    )


def user_task_of(config: Any) -> str | None:
    """Return the name of the user's own task that a model was fine-tuned for, or None for other models.

    `finetune` always writes the settings of the task with its name. Configs of old versions of `transformers`
    have only a name, such as "mrpc", which is not a task of albertkit.
    """
    extra = getattr(config, "extra", {})
    name = extra.get(TASK_KEY)
    return name if name is not None and name not in TASKS and SETTINGS_KEY in extra else None
