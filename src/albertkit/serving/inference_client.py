"""The calls of `huggingface_hub.InferenceClient`: each is converted to a request of our own routes."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from albertkit.pipelines.zero_shot_classification import TEMPLATE
from albertkit.serving import request_fields as fields
from albertkit.serving import request_schemas as schemas
from albertkit.serving.api_errors import ApiError
from albertkit.serving.libraries import pydantic
from albertkit.serving.request_fields import Field
from albertkit.serving.response_schemas import Candidate, Entity, Label, Place
from albertkit.tasks.entities import Aggregation
from albertkit.tasks.label_kinds import Function


def with_hint(error: ApiError, hint: str) -> ApiError:
    """Return an error with a hint at the end of its message, if the request does not fit its task."""
    if hint and error.status == 422:
        error.args = (f"{str(error).removesuffix('.')}. {hint}",)
    return error


class Call(fields.Strict):
    """A request of the client. An option that is null is the same as no option."""

    task: ClassVar[str]
    own: ClassVar[type[schemas.TaskRequest]]
    renames: ClassVar[Mapping[str, str]] = {}
    """Name of an option in the call -> its name in our request, if they differ."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Default values of options, by our names, if they differ from those of our request."""

    inputs: Any
    _model: str = pydantic.PrivateAttr()
    _hint: str = pydantic.PrivateAttr("")

    @classmethod
    def option_names(cls) -> set[str]:
        """Return the names of all options."""
        if "parameters" not in cls.model_fields:
            return cls.model_fields.keys() - {"inputs"}
        annotation = cls.model_fields["parameters"].annotation
        kinds: tuple[Any, ...] = get_args(annotation) or (annotation,)  # `Class | None`, or a class
        return set(kinds[0].model_fields)

    def to(self, model: str, *, hint: str) -> Self:
        """Set the model of the call. `hint` explains the model and the task, if the request names no task."""
        self._model, self._hint = model, hint
        return self

    def options(self) -> dict[str, Any]:
        """Return the options of the call, by our names, without those that can have only one value."""
        given: Any = getattr(self, "parameters", self) or ()
        values = {self.renames.get(name, name): value for name, value in given if value is not None}
        known = values.keys() & self.own.model_fields.keys()
        return {**self.defaults, **{name: values[name] for name in known}}

    def request(self) -> schemas.TaskRequest:
        """Return the request of our own route."""
        return self.own(model=self._model, input=self.inputs, **self.options())

    def shape(self, results: list[Any]) -> Any:
        """Return the content of the response: one answer for one input, a list of answers for a list."""
        answers = list(map(self.answer, results))
        return answers if isinstance(self.inputs, list) else answers[0]

    def answer(self, result: Any) -> Any:
        """Return the answer for one input."""
        return result

    def renamed(self, error: ApiError) -> ApiError:
        """Return an error of our request with the names of this call's options."""
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
        error.args = (message,)
        return with_hint(error, self._hint)


class FillMaskParameters(fields.Strict):
    """Options of `fill_mask`."""

    top_k: fields.Count | None = None
    targets: fields.Targets | None = None


class FillMaskCall(Call):
    """`fill_mask`: returns a list of candidates, or a list for each mask if there are several."""

    task = "fill-mask"
    own = schemas.FillMaskRequest
    inputs: str | fields.Texts
    parameters: FillMaskParameters | None = None

    def answer(self, result: Any) -> Any:
        """Return the candidates of a single mask, or a list for each mask."""
        return result[0] if len(result) == 1 else result


class TextClassificationParameters(fields.Strict):
    """Options of `text_classification`."""

    top_k: fields.Count | None = Field(None, description="Number of labels, best first. Default: all.")
    function_to_apply: Function | None = None
    truncate: bool | None = Field(None, description="Truncate texts that exceed the maximum length.")


class TextClassificationCall(Call):
    """`text_classification`: returns a list of labels for each input, also for a single input."""

    task = "text-classification"
    own = schemas.ClassifyRequest
    defaults: ClassVar = {"top_k": None}  # all labels
    inputs: str | fields.TextPair | fields.TextsAndPairs
    parameters: TextClassificationParameters | None = None

    def shape(self, results: list[Any]) -> Any:
        """Return a list for each input. The client reads the first."""
        return results


class ZeroShotClassificationParameters(fields.Strict):
    """Options of `zero_shot_classification`."""

    candidate_labels: fields.CandidateLabels
    hypothesis_template: fields.Name | None = Field(
        None,
        description=f'Hypothesis to test for each label. The label replaces {{}}. Default: "{TEMPLATE}"',
    )
    multi_label: bool | None = None
    truncate: bool | None = Field(None, description="Truncate texts that exceed the maximum length.")


class ZeroShotClassificationCall(Call):
    """`zero_shot_classification`: returns all candidate labels of each input, best first."""

    task = "zero-shot-classification"
    own = schemas.ZeroShotRequest
    inputs: str | fields.Texts
    parameters: ZeroShotClassificationParameters


class TokenClassificationParameters(fields.Strict):
    """Options of `token_classification`."""

    aggregation_strategy: Aggregation | None = Field(
        None, description='How to group tokens into entities. Default: "simple".'
    )
    ignore_labels: fields.Labels | None = None
    stride: fields.Overlap | None = None


class TokenClassificationCall(Call):
    """`token_classification`: returns the entities of a text of any length."""

    task = "token-classification"
    own = schemas.TagRequest
    defaults: ClassVar = {"aggregation_strategy": "simple"}
    inputs: str | fields.Texts
    parameters: TokenClassificationParameters | None = None


class QuestionAnsweringParameters(fields.Strict):
    """Options of `question_answering`."""

    top_k: fields.Count | None = Field(
        None, description="Number of answers. With more than 1, the response is a list."
    )
    max_answer_len: fields.Length | None = None
    handle_impossible_answer: bool | None = None
    doc_stride: fields.Overlap | None = None
    max_seq_len: fields.WindowLength | None = None
    max_question_len: fields.Length | None = None
    align_to_words: Literal[False] | None = Field(None, description="Only false is supported.")


class QuestionAnsweringCall(Call):
    """`question_answering`: returns the best answer, or a list if `top_k` is more than 1."""

    task = "question-answering"
    own = schemas.AnswerRequest
    renames: ClassVar = {"max_answer_len": "max_answer_tokens"}
    inputs: fields.Question | fields.Questions
    parameters: QuestionAnsweringParameters | None = None

    def answer(self, result: Any) -> Any:
        """Return the best answer, or all answers."""
        wanted = self.parameters.top_k if self.parameters else None
        return result[0] if wanted in (None, 1) else result


class FeatureExtractionCall(Call):
    """`feature_extraction`: returns a vector for each text (N, H), also for a single text.

    The client sends the options as fields next to `inputs`, without `parameters`.
    """

    task = "feature-extraction"
    own = schemas.EmbeddingsRequest
    inputs: str | fields.Texts
    normalize: bool | None = Field(None, description="Scale the vectors to length 1. Default: true.")
    truncate: bool | None = Field(None, description="Truncate texts that exceed the maximum length.")
    truncation_direction: Literal["right", "Right"] | None = Field(
        None, description="Only truncation at the end of a text is supported."
    )
    dimensions: int | None = Field(None, description="If set, it must be the size of the model's vectors.")
    encoding_format: Literal["float"] | None = Field(None, description="Only float is supported.")
    prompt_name: fields.Name | None = Field(
        None, description="Name of the model's prompt to prepend to each text."
    )

    def shape(self, results: list[Any]) -> Any:
        """Return the vectors."""
        return [result["embedding"] for result in results]


class Sentences(fields.Strict):
    """A sentence, and the sentences to compare with it."""

    source_sentence: str
    sentences: fields.Texts


class SentenceSimilarityParameters(fields.Strict):
    """Options of `sentence-similarity`. The client itself sends none."""

    truncate: bool | None = Field(None, description="Truncate texts that exceed the maximum length.")


class SentenceSimilarityCall(Call):
    """`sentence_similarity`: returns the cosine similarity of each sentence to the source sentence."""

    task = "feature-extraction"
    own = schemas.EmbeddingsRequest
    inputs: Sentences
    parameters: SentenceSimilarityParameters | None = None

    def request(self) -> schemas.TaskRequest:
        """Return the request for the vectors of all sentences; the source sentence is the first."""
        texts = [self.inputs.source_sentence, *self.inputs.sentences]
        return schemas.EmbeddingsRequest(model=self._model, input=texts, **self.options())

    def shape(self, results: list[Any]) -> Any:
        """Return the cosines. The vectors have length 1, up to rounding errors."""
        vectors = np.array([result["embedding"] for result in results])  # (1 + N, H)
        return (vectors[1:] @ vectors[0]).clip(-1, 1).tolist()

    def renamed(self, error: ApiError) -> ApiError:
        """Return an error with the number of the sentence, without the source sentence."""
        error = super().renamed(error)
        message = str(error).replace("inputs[0]:", "inputs.source_sentence:", 1)
        message = message.replace("(counted from 0)", "(0 is the source sentence)", 1)
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
"""The call for each task that a path can name."""

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
"""The content of a response by task, for one input or for a list."""


class InferenceError(pydantic.BaseModel):
    """An error in the format of the client."""

    error: str
    error_type: str
    param: str | None
