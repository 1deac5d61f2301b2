"""The schemas of responses, for the OpenAPI description."""

from typing import Any, Literal

from albertkit.serving.libraries import pydantic


class Usage(pydantic.BaseModel):
    """The number of tokens, including special tokens."""

    prompt_tokens: int
    total_tokens: int


class TaskResponse(pydantic.BaseModel):
    """The fields of every response."""

    model: str
    usage: Usage


class Candidate(pydantic.BaseModel):
    """A predicted word for a mask."""

    score: float
    token: int
    token_str: str
    sequence: str
    window: list[int] | None = pydantic.Field(
        None,
        description="For a text that exceeds the maximum length: start and end of the window in characters.",
    )


class Label(pydantic.BaseModel):
    """A label and its score."""

    label: str
    score: float
    cut: int | None = pydantic.Field(None, description="Number of tokens that truncation removed, if any.")


class Entity(pydantic.BaseModel):
    """The characters `start` to `end` of a text. A token has `entity`, an aggregate has `entity_group`."""

    entity: str | None = None
    entity_group: str | None = None
    score: float
    index: int | None = None
    word: str
    start: int
    end: int


class Place(pydantic.BaseModel):
    """The characters `start` to `end` of a context. For no answer, `answer` is "" and both are 0."""

    score: float
    start: int
    end: int
    answer: str


class Choice(pydantic.BaseModel):
    """The best choice, and the probabilities of all choices."""

    choice: str
    index: int
    score: float
    scores: list[float]
    cut: int | None = None


class Judgement(pydantic.BaseModel):
    """The predicted order of two texts."""

    label: Literal["in order", "swapped"]
    score: float
    cut: int | None = None


class Embedding(pydantic.BaseModel):
    """The vector of a text: a list of numbers, or float32 in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Tokens(pydantic.BaseModel):
    """The tokens of an input. Offsets are the characters [start, end) of its text."""

    input_ids: list[int]
    token_type_ids: list[int]
    tokens: list[str]
    offsets: list[list[int]]


class InspectedLayer(pydantic.BaseModel):
    """The attention of an executed layer, and the stored layer with its weights. Both count from 1."""

    stored: int
    heads: list[int]
    attention: str = pydantic.Field(
        description="Probabilities in base64, for each head, each token (row) and each token that it attends "
        "to: little-endian 16-bit integers, to be divided by `scale`."
    )


class Inspection(pydantic.BaseModel):
    """The inspection of a text: T tokens, L layers."""

    text: str
    text_pair: str | None
    tokens: list[str]
    segments: list[int]
    special: list[bool] = pydantic.Field(description="Whether a token is [CLS] or [SEP].")
    cut: int = pydantic.Field(description="Number of tokens that truncation removed.")
    scale: int
    cosine_to_previous: list[list[float]] = pydantic.Field(
        description="(L, T): cosine of each token's hidden states after a layer and before it."
    )
    cosine_to_last: list[list[float]] = pydantic.Field(
        description="(L + 1, T): cosine of each token's hidden states after each layer, beginning with the "
        "embeddings, and after the last layer."
    )
    layers: list[InspectedLayer]


class ModelEntry(pydantic.BaseModel):
    """A model, its tasks and its sizes."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    tasks: list[str]
    max_tokens: int
    embedding_size: int
    text_pairs: bool | None = pydantic.Field(
        description="Whether the model was fine-tuned on pairs of texts; null: unknown."
    )


class ModelList(pydantic.BaseModel):
    """The models, in the format of OpenAI's list."""

    object: Literal["list"]
    data: list[ModelEntry]


class Health(pydantic.BaseModel):
    """The state of the server."""

    status: str
    models: dict[str, bool] | None = None


class ErrorDetail(pydantic.BaseModel):
    """An error: what was received, what was expected and what to do."""

    message: str
    type: str
    param: str | None


class Error(pydantic.BaseModel):
    """The response to a request that failed."""

    error: ErrorDetail


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of the error responses with these statuses."""
    return {status: {"model": Error} for status in statuses}
