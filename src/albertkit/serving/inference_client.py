"""What `huggingface_hub.InferenceClient` sends and reads: each call becomes a request of our own routes."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from albertkit.pipelines.zero_shot_classification import TEMPLATE
from albertkit.serving.api_errors import ApiError
from albertkit.serving.libraries import pydantic
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


class Call(Strict):
    """A request of the client; null is the same as leaving an option out."""

    task: ClassVar[str]
    own: ClassVar[type[TaskRequest]]
    renames: ClassVar[Mapping[str, str]] = {}
    """Our names of options that have another name here."""

    inputs: Any
    _model: str = pydantic.PrivateAttr()
    _is_guess: bool = pydantic.PrivateAttr(False)

    @classmethod
    def option_names(cls) -> set[str]:
        """Return the names of all options."""
        if "parameters" not in cls.model_fields:
            return cls.model_fields.keys() - {"inputs"}
        annotation = cls.model_fields["parameters"].annotation
        kinds: tuple[Any, ...] = get_args(annotation) or (annotation,)  # a class and None, or a class
        return set(kinds[0].model_fields)

    def to(self, model: str, *, is_guess: bool) -> Self:
        """Address the call to a model; `is_guess` if nothing in the request chose it."""
        self._model, self._is_guess = model, is_guess
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
        """Return an error of the request with the names of this call."""
        theirs = {ours: name for name, ours in self.renames.items()}
        message = str(error)
        if error.param == "input":
            if message.startswith(("input[", "input:")):
                message = f"inputs{message[5:]}"
            error.param = "inputs"
        elif error.param in self.own.model_fields and error.param != "model":
            nested = "parameters." if "parameters" in type(self).model_fields else ""
            name = nested + theirs.get(error.param, error.param)
            message = re.sub(f"^{error.param} is ", f"{name} is ", message)
            error.param = name
        if self._is_guess and error.status == 422:
            message += (
                f". The path names no model and no task, so the model {self._model!r:.80} answered, in the "
                f"task {self.task}; for another, use the path /models/NAME or /pipeline/TASK"
            )
        error.args = (message,)
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
    prompt_name: str | None = Field(None, description="Name of a prompt of the model.")

    def options(self) -> dict[str, Any]:
        """Return the options that have an effect."""
        given = self._renamed_options(self)
        names = ("normalize", "truncate", "dimensions", "prompt_name")
        return {name: given[name] for name in names if name in given}

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
