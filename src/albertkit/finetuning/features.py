"""Examples -> rows, chunk by chunk; what cannot be made into rows is counted over all examples."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from albertkit.errors import AlbertKitError, DataError
from albertkit.tasks.multiple_choice import MultipleChoice
from albertkit.tasks.task import Task

CHUNK = 1024  # examples that are sorted by length and computed together
_LISTED = 10  # examples named in an error


def chunks(examples: Iterable[Any], size: int = CHUNK) -> Iterator[list[Any]]:
    """Yield lists of up to `size` examples."""
    examples = iter(examples)
    while some := list(islice(examples, size)):
        yield some


def features_of_all(task: Task, examples: Iterable[Any]) -> Iterator[tuple[list[Any], Sequence[Any]]]:
    """Yield chunks of examples with their rows.

    Raises:
        DataError: examples that are too long, or wrong in another way, after all chunks have been read: how
            many, the names of the first ones, and what is wrong with the very first.
    """
    count, wrong, first = 0, list[str](), None
    for chunk in chunks(examples):
        count += len(chunk)
        try:
            yield chunk, task.features(chunk)
        except AlbertKitError as error:
            before = len(wrong)
            for example in chunk:
                try:
                    task.features([example])
                except AlbertKitError as own:
                    wrong.append(example.id)
                    first = first or own
            if len(wrong) == before:  # only together are they wrong
                raise error
    if first is not None:
        listed = ", ".join(wrong[:_LISTED]) + (", ..." if len(wrong) > _LISTED else "")
        raise DataError(f"{len(wrong):,} of {count:,} examples cannot be used ({listed}). The first: {first}")


def may_refuse(task: Task) -> bool:
    """Return whether a task refuses examples that are too long, instead of cutting them."""
    return not getattr(task, "truncation", True) or isinstance(task, MultipleChoice)
