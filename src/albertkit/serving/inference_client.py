"""The calls of `huggingface_hub.InferenceClient`: each is converted to a request of our own routes."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from albertkit.serving import request_fields as fields
from albertkit.serving import request_schemas as schemas
from albertkit.serving.api_errors import ApiError
from albertkit.serving.libraries import pydantic
from albertkit.serving.reading import field_name, invalid, parse_request, shown
from albertkit.serving.response_schemas import Candidate, Entity, Label, Place


class Call:
    """A request of the client: inputs and options. An option that is null is the same as no option.

    Args:
        value: the object in the body.
        model: name of the model.
        about: the task and the model, as errors name them.
        hint: explains the model and the task, if the request names no task.

    Raises:
        ApiError: the object does not match the call.
    """

    task: ClassVar[str]
    own: ClassVar[type[schemas.TaskRequest]]
    options: ClassVar[tuple[str, ...]]
    """The options that our request has too."""
    constants: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """Other options, and their values that change nothing."""
    renames: ClassVar[Mapping[str, str]] = {}
    """Name of an option in the call -> its name in our request, if they differ."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Default values of options, by our names, if they differ from those of our request."""
    place: ClassVar[str] = "parameters."
    """Where the options are in the body; "" for beside `inputs`."""

    def __init__(self, value: Mapping[str, Any], model: str, *, about: str, hint: str) -> None:
        self.hint = hint
        self.given = value
        body = {"model": model, **self.defaults, **self._options(about)}
        if "inputs" in value:
            body["input"] = self.inputs(value["inputs"])
        self.request = parse_request(self.own, body, names=self._names())

    @classmethod
    def option_names(cls) -> list[str]:
        """Return the names of all options."""
        return sorted({*cls.options, *cls.constants})

    def inputs(self, given: Any) -> Any:
        """Return the inputs of our request."""
        return given

    def shape(self, results: list[Any]) -> Any:
        """Return the content of the response: one answer for one input, a list of answers for a list."""
        answers = list(map(self.answer, results))
        return answers if isinstance(self.given["inputs"], list) else answers[0]

    def answer(self, result: Any) -> Any:
        """Return the answer for one input."""
        return result

    def renamed(self, error: ApiError) -> ApiError:
        """Return an error of our request with the names of this call's options."""
        name = self._names().get(error.param or "")
        if name is not None:
            error.args = (re.sub(rf"^{error.param}(?=\[|:| is )", name, str(error)),)
            error.param = name
        return with_hint(error, self.hint)

    def _names(self) -> dict[str, str]:
        """Return the place in the body of each field of our request."""
        options = {self.renames.get(name, name): f"{self.place}{name}" for name in self.options}
        return {"input": "inputs", **options}

    def _options(self, about: str) -> dict[str, Any]:
        """Return the options of the body, by our names."""
        known = self.option_names()
        options = outer = {name: value for name, value in self.given.items() if name != "inputs"}
        if self.place:
            options = outer.pop("parameters", None)
            options = {} if options is None else options
            for name in map(field_name, outer):
                raise invalid(f"{name} is not a field of this request, only inputs and parameters.", name)
            if not isinstance(options, dict):
                raise invalid(f"parameters is {shown(options)}. Expected an object.", "parameters")
        elif "parameters" in options:
            raise invalid(
                f"parameters is not an option of {about}. Put its options next to inputs, as in "
                f'{{"inputs": ..., "normalize": true}}. Its options are {", ".join(known)}.',
                "parameters",
            )
        for name, value in sorted(options.items()):
            where = self.place + field_name(name)
            if name not in known:
                raise invalid(
                    f"{where} is not an option of {about}. Its options are {', '.join(known)}.", where
                )
            if name in self.constants and value not in (None, *self.constants[name]):
                expected = shown(self.constants[name][0])
                raise invalid(f"{where} is {shown(value)}. Expected {expected}.", where)
        return {
            self.renames.get(name, name): value
            for name, value in options.items()
            if name in self.options and value is not None
        }


def with_hint(error: ApiError, hint: str) -> ApiError:
    """Return an error with a hint at the end of its message, if the request does not fit its task."""
    if hint and error.status == 422:
        error.args = (f"{str(error).removesuffix('.')}. {hint}",)
    return error


class FillMaskCall(Call):
    """`fill_mask`: returns a list of candidates, or a list for each mask if there are several."""

    task = "fill-mask"
    own = schemas.FillMaskRequest
    options = ("top_k", "targets")

    def answer(self, result: Any) -> Any:
        """Return the candidates of a single mask, or a list for each mask."""
        return result[0] if len(result) == 1 else result


class TextClassificationCall(Call):
    """`text_classification`: returns a list of labels for each input, also for a single input."""

    task = "text-classification"
    own = schemas.ClassifyRequest
    options = ("top_k", "function_to_apply", "truncate")
    defaults: ClassVar = {"top_k": None}  # all labels

    def shape(self, results: list[Any]) -> Any:
        """Return a list for each input. The client reads the first."""
        return results


class ZeroShotClassificationCall(Call):
    """`zero_shot_classification`: returns all candidate labels of each input, best first."""

    task = "zero-shot-classification"
    own = schemas.ZeroShotRequest
    options = ("candidate_labels", "hypothesis_template", "multi_label", "truncate")


class TokenClassificationCall(Call):
    """`token_classification`: returns the entities of a text of any length."""

    task = "token-classification"
    own = schemas.TagRequest
    options = ("aggregation_strategy", "ignore_labels", "stride")
    defaults: ClassVar = {"aggregation_strategy": "simple"}


class QuestionAnsweringCall(Call):
    """`question_answering`: returns the best answer, or a list if `top_k` is more than 1."""

    task = "question-answering"
    own = schemas.AnswerRequest
    options = (
        *("top_k", "max_answer_len", "handle_impossible_answer"),
        *("doc_stride", "max_seq_len", "max_question_len"),
    )
    constants: ClassVar = {"align_to_words": (False,)}
    renames: ClassVar = {"max_answer_len": "max_answer_tokens"}

    def answer(self, result: Any) -> Any:
        """Return the best answer, or all answers."""
        return result[0] if self.request.options()["top_k"] == 1 else result


class FeatureExtractionCall(Call):
    """`feature_extraction`: returns a vector for each text (N, H), also for a single text.

    The client sends the options as fields next to `inputs`, without `parameters`.
    """

    task = "feature-extraction"
    own = schemas.EmbeddingsRequest
    options = ("normalize", "truncate", "dimensions", "prompt_name")
    constants: ClassVar = {"truncation_direction": ("right", "Right"), "encoding_format": ("float",)}
    place = ""

    def shape(self, results: list[Any]) -> Any:
        """Return the vectors."""
        return [result["embedding"] for result in results]


class Sentences(fields.Strict):
    """A sentence, and the sentences to compare with it."""

    source_sentence: str
    sentences: fields.Texts


class SimilarityInputs(fields.Strict):
    """The inputs of `sentence_similarity`."""

    inputs: Sentences


class SentenceSimilarityCall(Call):
    """`sentence_similarity`: returns the cosine similarity of each sentence to the source sentence."""

    task = "feature-extraction"
    own = schemas.EmbeddingsRequest
    options = ("truncate",)

    def inputs(self, given: Any) -> Any:
        """Return all sentences; the source sentence is the first."""
        sentences = parse_request(SimilarityInputs, {"inputs": given}).inputs
        return [sentences.source_sentence, *sentences.sentences]

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

BODY = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "inputs": {"description": "One input or a list, as in the client's method for the task."},
        "parameters": {"type": ["object", "null"], "description": "Options of the client's method."},
    },
}
"""The OpenAPI description of a body."""

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
