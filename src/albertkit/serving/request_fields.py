"""The fields of request schemas: their types, with limits, and the parts that a request consists of."""

from functools import partial
from typing import Annotated, Any

from albertkit.serving.libraries import pydantic

Field = pydantic.Field
_LIGATURES = {"\ufdfa": 17, "\ufdfb": 7}  # Arabic ligature -> number of characters that normalization adds
ListField = partial(Field, fail_fast=True)  # the errors of all items of a long list would fill the memory


class Strict(pydantic.BaseModel):
    """A request or a part of one. Values are not converted, and unknown fields are errors."""

    model_config = pydantic.ConfigDict(strict=True, extra="forbid")


class TextPair(Strict):
    """A text, optionally with a second text."""

    text: str
    text_pair: str | None = None


class OrderedPair(Strict):
    """Two texts whose order the model predicts."""

    text: str
    text_pair: str


class Question(Strict):
    """A question and its context."""

    question: str
    context: str


class Choices(Strict):
    """A context, an optional question about it, and the choices."""

    context: str
    question: str | None = None
    choices: Annotated[list[str], ListField(min_length=2)]


Name = Annotated[str, Field(max_length=1000)]
Texts = Annotated[list[str], ListField(min_length=1)]
TextsAndPairs = Annotated[list[str | TextPair], ListField(min_length=1)]
Questions = Annotated[list[Question], ListField(min_length=1)]
Targets = Annotated[list[str], ListField(min_length=1, max_length=1000)]
Labels = Annotated[list[Name], ListField(max_length=1000)]
CandidateLabels = Annotated[
    list[Annotated[Name, Field(min_length=1)]], ListField(min_length=1, max_length=1000)
]
Truncate = Annotated[
    bool | None,
    Field(
        description="Truncate inputs that exceed the maximum length, and report the number of removed "
        "tokens. Default: true for a model with a maximum length of the fine-tuning, otherwise false."
    ),
]
Masks = Annotated[bool, Field(description="Parse [MASK] in a text as the mask token, as fill-mask does.")]
Count = Annotated[int, Field(ge=1, le=100)]
Length = Annotated[int, Field(ge=1, le=512)]
WindowLength = Annotated[int, Field(ge=4, le=512)]  # [CLS], two [SEP] and a token
Overlap = Annotated[int, Field(ge=0, le=512)]


def pair(item: str | TextPair) -> tuple[str, str | None]:
    """Return a text and its second text."""
    return (item.text, item.text_pair) if isinstance(item, TextPair) else (item, None)


def plain(items: list[Any]) -> list[Any]:
    """Return inputs as pipelines take them."""
    return [item if isinstance(item, str) else item.model_dump() for item in items]


def characters(item: Any) -> int:
    """Return the number of characters of an input after normalization, except for rare characters."""
    if isinstance(item, str):
        return len(item) + sum(item.count(character) * more for character, more in _LIGATURES.items())
    return sum(characters(value) for _, value in item if isinstance(value, str))
