"""The schemas of responses, for OpenAPI; the pipelines make them."""

from typing import Any, Literal

from albertkit.serving.libraries import pydantic


class Usage(pydantic.BaseModel):
    """Tokens that were read, special ones included."""

    prompt_tokens: int
    total_tokens: int


class _TaskResponse(pydantic.BaseModel):
    model: str
    usage: Usage


class Candidate(pydantic.BaseModel):
    """A word for a mask."""

    score: float
    token: int
    token_str: str
    sequence: str
    window: list[int] | None = pydantic.Field(
        None, description="Of a text over the model's length: the characters that were read."
    )


class FillMaskResponse(_TaskResponse):
    """For each text, for each mask, the candidates, best first."""

    results: list[list[list[Candidate]]]


class Label(pydantic.BaseModel):
    """A label, and its score."""

    label: str
    score: float
    cut: int | None = pydantic.Field(None, description="Tokens that were left out, if any.")


class ClassifyResponse(_TaskResponse):
    """For each input the labels, best first."""

    results: list[list[Label]]


class ZeroShotResponse(_TaskResponse):
    """For each text the candidate labels, best first."""

    results: list[list[Label]]


class Entity(pydantic.BaseModel):
    """Characters start to end of the text; `entity` for a piece, `entity_group` for an aggregate."""

    entity: str | None = None
    entity_group: str | None = None
    score: float
    index: int | None = None
    word: str
    start: int
    end: int


class TagResponse(_TaskResponse):
    """For each text the entities, in order."""

    results: list[list[Entity]]


class Place(pydantic.BaseModel):
    """Characters start to end of the context; "" at 0 to 0 for no answer."""

    score: float
    start: int
    end: int
    answer: str


class AnswerResponse(_TaskResponse):
    """For each question the answers, best first."""

    results: list[list[Place]]


class Choice(pydantic.BaseModel):
    """The best choice, and the probability of each."""

    choice: str
    index: int
    score: float
    scores: list[float]
    cut: int | None = None


class ChooseResponse(_TaskResponse):
    """For each context the choice."""

    results: list[Choice]


class Judgement(pydantic.BaseModel):
    """Whether two texts follow each other."""

    label: Literal["in order", "swapped"]
    score: float
    cut: int | None = None


class OrderResponse(_TaskResponse):
    """For each pair the judgement."""

    results: list[Judgement]


class Embedding(pydantic.BaseModel):
    """The vector of a text: numbers, or float32 in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsResponse(_TaskResponse):
    """The vectors, as OpenAI's embeddings."""

    object: Literal["list"]
    data: list[Embedding]


class Tokens(pydantic.BaseModel):
    """The tokens of an input; offsets are characters [start, end) of its text."""

    input_ids: list[int]
    token_type_ids: list[int]
    tokens: list[str]
    offsets: list[list[int]]


class TokenizeResponse(_TaskResponse):
    """For each input its tokens."""

    results: list[Tokens]


class InspectedLayer(pydantic.BaseModel):
    """The attention of an executed layer, which has the weights of a stored one; both count from 1."""

    stored: int
    heads: list[int]
    attention: str = pydantic.Field(
        description="In base64, for each head, each token (row) and each token it looks at: 16-bit numbers, "
        "the low byte first; divided by `scale` they are probabilities."
    )


class Inspection(pydantic.BaseModel):
    """A text inside a model: T tokens, L layers."""

    text: str
    text_pair: str | None
    tokens: list[str]
    segments: list[int]
    special: list[bool] = pydantic.Field(description="Whether a token is [CLS] or [SEP].")
    cut: int = pydantic.Field(description="Tokens that were left out.")
    scale: int
    cosine_to_previous: list[list[float]] = pydantic.Field(
        description="(L, T): of the vector of each token after a layer with the one before it."
    )
    cosine_to_last: list[list[float]] = pydantic.Field(
        description="(L + 1, T): with the one after the last layer, from the embeddings on."
    )
    layers: list[InspectedLayer]


class InspectResponse(_TaskResponse):
    """What happens to the text."""

    results: list[Inspection]


class ModelEntry(pydantic.BaseModel):
    """A model, and what can be asked of it."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    tasks: list[str]
    max_tokens: int
    embedding_size: int


class ModelList(pydantic.BaseModel):
    """The models, as OpenAI's list of them."""

    object: Literal["list"]
    data: list[ModelEntry]


class Health(pydantic.BaseModel):
    """How the server is."""

    status: str
    models: dict[str, bool] | None = None


class ErrorDetail(pydantic.BaseModel):
    """What was received, what was expected and what to do."""

    message: str
    type: str
    param: str | None


class Error(pydantic.BaseModel):
    """A request without a result."""

    error: ErrorDetail


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of some statuses."""
    return {status: {"model": Error} for status in statuses}
