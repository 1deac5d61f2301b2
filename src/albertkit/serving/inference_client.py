"""What `huggingface_hub.InferenceClient` sends and reads: each call becomes a request of our own routes.

A path names a model, a task, both or neither. Without a task the form of the body decides where it can, else
the head of the model.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from albertkit.pipelines.zero_shot_classification import TEMPLATE
from albertkit.serving.api_errors import ApiError
from albertkit.serving.libraries import pydantic
from albertkit.serving.models import ServedModel, find_model
from albertkit.serving.reading import check_body
from albertkit.serving.request_schemas import (
    AnswerRequest,
    CandidateLabels,
    ClassifyRequest,
    Count,
    EmbeddingsRequest,
    Field,
    FillMaskRequest,
    Labels,
    Length,
    Name,
    Overlap,
    Question,
    Questions,
    Strict,
    TagRequest,
    Targets,
    TaskRequest,
    TextPair,
    Texts,
    TextsAndPairs,
    ZeroShotRequest,
)
from albertkit.serving.response_schemas import Candidate, Entity, Label, Place
from albertkit.tasks.entities import Aggregation
from albertkit.tasks.label_kinds import Function

PATHS = ("/", "/models/{model:path}/pipeline/{task}", "/models/{model:path}", "/pipeline/{task}")
"""Their order matters: the first that matches is taken."""


class Call(Strict):
    """A body of the client; null is the same as leaving an option out."""

    task: ClassVar[str]
    own: ClassVar[type[TaskRequest]]
    renames: ClassVar[Mapping[str, str]] = {}
    """Our names of options that have another name here."""

    inputs: Any
    _model: str = pydantic.PrivateAttr()

    @classmethod
    def option_names(cls) -> set[str]:
        """Return the names of all options."""
        if "parameters" not in cls.model_fields:
            return cls.model_fields.keys() - {"inputs"}
        annotation = cls.model_fields["parameters"].annotation
        options, *_ = get_args(annotation) or [annotation]  # a class, or a class and None
        return set(options.model_fields)

    def to(self, model: str) -> Self:
        """Address the call to a model."""
        self._model = model
        return self

    def options(self) -> dict[str, Any]:
        """Return the options that were given, by our names."""
        given: Strict | None = getattr(self, "parameters", None)
        return {} if given is None else self._renamed_options(given)

    def request(self) -> TaskRequest:
        """Return the request of our own route."""
        return self.own(model=self._model, input=self.inputs, **self.options())

    def shape(self, results: list[Any]) -> Any:
        """Return what the client reads: an answer for one input, a list of answers for a list."""
        answers = [self.answer(one) for one in results]
        return answers if isinstance(self.inputs, list) else answers[0]

    def answer(self, result: Any) -> Any:
        """Return the answer for one input."""
        return result

    def renamed(self, error: ApiError) -> ApiError:
        """Return an error of the request with the names of this body."""
        theirs = {ours: name for name, ours in self.renames.items()}
        if error.param == "input":
            message = str(error)
            error.args = (f"inputs{message[5:]}" if message.startswith(("input[", "input:")) else message,)
            error.param = "inputs"
        elif error.param in self.own.model_fields and error.param != "model":
            nested = "parameters." if "parameters" in type(self).model_fields else ""
            error.param = nested + theirs.get(error.param, error.param)
        return error

    def _renamed_options(self, given: Strict) -> dict[str, Any]:
        return {self.renames.get(name, name): value for name, value in given if value is not None}


class FillMaskParameters(Strict):
    """Options of `fill_mask`."""

    top_k: Count | None = None
    targets: Targets | None = None


class FillMaskCall(Call):
    """`fill_mask`: a list of candidates; for a text with several masks a list for each."""

    task = "fill-mask"
    own = FillMaskRequest
    inputs: str | Texts
    parameters: FillMaskParameters | None = None

    def answer(self, result: Any) -> Any:
        """Return the candidates of the only mask, or of each."""
        return result[0] if len(result) == 1 else result


class TextClassificationParameters(Strict):
    """Options of `text_classification`."""

    top_k: Count | None = Field(None, description="How many labels, best first; all by default.")
    function_to_apply: Function | None = None
    truncate: bool | None = Field(None, description="Cut what is longer than the model reads.")


class TextClassificationCall(Call):
    """`text_classification`: a list of labels for each input, also for a single one."""

    task = "text-classification"
    own = ClassifyRequest
    inputs: str | TextPair | TextsAndPairs
    parameters: TextClassificationParameters | None = None

    def options(self) -> dict[str, Any]:
        """Return the options, with all labels by default."""
        return {"top_k": None} | super().options()

    def shape(self, results: list[Any]) -> Any:
        """Return a list for each input: the client takes the first."""
        return results


class ZeroShotClassificationParameters(Strict):
    """Options of `zero_shot_classification`."""

    candidate_labels: CandidateLabels
    hypothesis_template: Name | None = Field(None, description=f'"{TEMPLATE}" by default.')
    multi_label: bool | None = None
    truncate: bool | None = Field(None, description="Cut what is longer than the model reads.")


class ZeroShotClassificationCall(Call):
    """`zero_shot_classification`: all candidate labels, best first; for a list of inputs a list for each."""

    task = "zero-shot-classification"
    own = ZeroShotRequest
    inputs: str | Texts
    parameters: ZeroShotClassificationParameters


class TokenClassificationParameters(Strict):
    """Options of `token_classification`."""

    aggregation_strategy: Aggregation | None = Field(None, description='"simple" by default.')
    ignore_labels: Labels | None = None
    stride: Overlap | None = None


class TokenClassificationCall(Call):
    """`token_classification`: the entities of a text of any length."""

    task = "token-classification"
    own = TagRequest
    inputs: str | Texts
    parameters: TokenClassificationParameters | None = None

    def options(self) -> dict[str, Any]:
        """Return the options; neighboring tokens of one kind are one entity by default."""
        return {"aggregation_strategy": "simple"} | super().options()


class QuestionAnsweringParameters(Strict):
    """Options of `question_answering`."""

    top_k: Count | None = Field(None, description="Over 1 the answer is a list.")
    max_answer_len: Length | None = None
    handle_impossible_answer: bool | None = None
    doc_stride: Overlap | None = None
    max_seq_len: Length | None = None
    max_question_len: Length | None = None
    align_to_words: Literal[False] | None = Field(None, description="Answers are whole tokens.")


class QuestionAnsweringCall(Call):
    """`question_answering`: the best answer; with `top_k` over 1 a list."""

    task = "question-answering"
    own = AnswerRequest
    renames: ClassVar = {"max_answer_len": "max_answer_tokens"}
    inputs: Question | Questions
    parameters: QuestionAnsweringParameters | None = None

    def options(self) -> dict[str, Any]:
        """Return the options but `align_to_words`, which has one value."""
        return {name: value for name, value in super().options().items() if name != "align_to_words"}

    def answer(self, result: Any) -> Any:
        """Return the best answer, or all of them."""
        wanted = self.parameters.top_k if self.parameters else None
        return result[0] if wanted in (None, 1) else result


class FeatureExtractionCall(Call):
    """`feature_extraction`: a vector for each text (N, H), also for a single one.

    The client sends its options beside `inputs`.
    """

    task = "feature-extraction"
    own = EmbeddingsRequest
    inputs: str | Texts
    normalize: bool | None = Field(None, description="Vectors of length 1; true by default.")
    truncate: bool | None = Field(None, description="Cut what is longer than the model reads.")
    truncation_direction: Literal["right", "Right"] | None = Field(None, description="Texts lose their end.")
    dimensions: int | None = Field(None, description="Must be the model's own, where given.")
    encoding_format: Literal["float"] | None = Field(None, description="The client reads no other.")
    prompt_name: None = Field(None, description="No model here has prompts.")

    def options(self) -> dict[str, Any]:
        """Return the options that have an effect."""
        given = self._renamed_options(self)
        return {name: given[name] for name in ("normalize", "truncate", "dimensions") if name in given}

    def shape(self, results: list[Any]) -> Any:
        """Return the vectors."""
        return [one["embedding"] for one in results]


class Sentences(Strict):
    """A sentence, and those that it is compared with."""

    source_sentence: str
    sentences: Texts


class SentenceSimilarityParameters(Strict):
    """Options of `sentence-similarity`; the client itself sends none."""

    truncate: bool | None = Field(None, description="Cut what is longer than the model reads.")


class SentenceSimilarityCall(Call):
    """`sentence_similarity`: the cosine of each sentence's vector with that of the source sentence."""

    task = "feature-extraction"
    own = EmbeddingsRequest
    inputs: Sentences
    parameters: SentenceSimilarityParameters | None = None

    def request(self) -> TaskRequest:
        """Return the request for all vectors, the source sentence's first."""
        texts = [self.inputs.source_sentence, *self.inputs.sentences]
        return EmbeddingsRequest(model=self._model, input=texts, **self.options())

    def shape(self, results: list[Any]) -> Any:
        """Return the cosines; the vectors have length 1, but for rounding."""
        vectors = np.array([one["embedding"] for one in results])  # (1 + N, H)
        return (vectors[1:] @ vectors[0]).clip(-1, 1).tolist()

    def renamed(self, error: ApiError) -> ApiError:
        """Return an error whose number counts the source sentence as the first."""
        error = super().renamed(error)
        message = str(error).replace("inputs[0]:", "inputs.source_sentence:", 1)
        if message.startswith("inputs["):
            number, _, rest = message[len("inputs[") :].partition("]")
            message = f"inputs.sentences[{int(number) - 1}]{rest}"
        error.args = (message,)
        return error


CALLS: Mapping[str, type[Call]] = {
    "fill-mask": FillMaskCall,
    "text-classification": TextClassificationCall,
    "zero-shot-classification": ZeroShotClassificationCall,
    "token-classification": TokenClassificationCall,
    "question-answering": QuestionAnsweringCall,
    "feature-extraction": FeatureExtractionCall,
    "sentence-similarity": SentenceSimilarityCall,
}
"""The calls by the task that a path names."""

_ZERO_SHOT = {"candidate_labels", "hypothesis_template", "multi_label"}  # options of no other task

Answer = (
    list[Candidate]
    | list[list[Candidate]]
    | list[list[list[Candidate]]]
    | list[Label]
    | list[list[Label]]
    | list[Entity]
    | list[list[Entity]]
    | Place
    | list[Place]
    | list[list[Place]]
    | list[list[float]]
    | list[float]
)
"""What the client reads, by task: for one input, or for a list."""


class InferenceError(pydantic.BaseModel):
    """An error as the client shows it."""

    error: str
    error_type: str
    param: str | None


def read_call(
    value: dict[str, Any], models: Mapping[str, ServedModel], *, name: str | None, task: str | None
) -> Call:
    """Return the call that a body makes, addressed to its model.

    Args:
        value: the object of the body.
        models: by name.
        name: of the model, from the path; None for the first that does the task.
        task: from the path; None to tell it by the body or the model.

    Raises:
        ApiError: no such model or task, a model that is not for the task, or a body that is not of the task.
    """
    if task is not None and task not in CALLS:
        raise ApiError(404, "unknown_task", f"there is no task {task!r:.80}; tasks are {', '.join(CALLS)}")
    name = name.rstrip("/") if name else None
    task = task or _task_of_body(value)
    if task is None:
        served = find_model(models, name, None)
        task = _task_of_model(served)
    else:
        served = find_model(models, name, CALLS[task].task)
    kind = CALLS[task]
    _check_options(kind, value, f"{task}, the task of this request to the model {served.name!r:.80}")
    return check_body(kind, value).to(served.name)


def _task_of_body(value: dict[str, Any]) -> str | None:
    """Return the task of a body whose form no other task has."""
    inputs = value.get("inputs")
    forms = inputs if isinstance(inputs, dict) else {}
    if "source_sentence" in forms or "sentences" in forms:
        return "sentence-similarity"
    if "question" in forms:
        return "question-answering"
    parameters = value.get("parameters")
    if isinstance(parameters, dict) and not _ZERO_SHOT.isdisjoint(parameters):
        return "zero-shot-classification"
    options = value.keys() - {"inputs", "parameters"}
    return "feature-extraction" if options & FeatureExtractionCall.model_fields.keys() else None


def _task_of_model(served: ServedModel) -> str:
    """Return the task of a model's head: of several, the first that the client has."""
    own = [one for one in served.pipelines if one != "feature-extraction"] or ["feature-extraction"]
    for task in own:
        if task in CALLS:
            return task
    raise ApiError(
        404,
        "wrong_task",
        f"the model {served.name!r:.80} is for {', '.join(own)}; InferenceClient has no method for that. "
        f"Use a route of /openapi.json, or /models/{served.name:.80}/pipeline/feature-extraction for vectors",
    )


def _check_options(kind: type[Call], value: dict[str, Any], task: str) -> None:
    """Raise ApiError for an option that the task does not have."""
    nested = "parameters" in kind.model_fields
    given = value.get("parameters") if nested else value.keys() - {"inputs"}
    allowed = kind.option_names()
    if isinstance(given, dict | set) and (unknown := sorted(set(given) - allowed)):
        name = f"{'parameters.' if nested else ''}{unknown[0]:.80}"
        message = f"{name} is not an option of {task}; its options are {', '.join(sorted(allowed))}"
        raise ApiError(422, "invalid", message, param=name)
