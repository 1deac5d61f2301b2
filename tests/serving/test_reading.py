"""Errors of the schemas of requests: the parameter that they name, and the advice on token ids."""

from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")

from albertkit.serving.api_errors import ApiError
from albertkit.serving.inference_client import Call, ZeroShotClassificationCall
from albertkit.serving.reading import parse_request
from albertkit.serving.request_fields import Strict
from albertkit.serving.request_schemas import (
    ChooseRequest,
    ClassifyRequest,
    EmbeddingsRequest,
    FillMaskRequest,
    ZeroShotRequest,
)

ADVICE = "Token ids are not supported"


def error_of(schema: type[Strict] | type[Call], value: dict[str, Any]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        schema(value, "nli", about="", hint="") if issubclass(schema, Call) else parse_request(schema, value)
    assert (caught.value.status, caught.value.kind) == (422, "invalid")
    return caught.value


@pytest.mark.parametrize(
    ("parameters", "param", "message"),
    [
        ({"candidate_labels": []}, "parameters.candidate_labels", "candidate_labels is a list of length 0."),
        ({"candidate_labels": "b, c"}, "parameters.candidate_labels", 'candidate_labels is "b, c". Expected'),
        ({"candidate_labels": ["b", 7]}, "parameters.candidate_labels", "candidate_labels[1] is 7. Expected"),
        ({"candidate_labels": [""]}, "parameters.candidate_labels", 'candidate_labels[0] is "". Expected at'),
        ({}, "parameters.candidate_labels", "candidate_labels is missing."),
        ({"candidate_labels": ["b"], "multi_label": 1}, "parameters.multi_label", "multi_label is 1."),
        ([], "parameters", "parameters is a list of length 0. Expected an object"),
    ],
)
def test_errors_in_parameters_name_the_option(parameters: Any, param: str, message: str) -> None:
    error = error_of(ZeroShotClassificationCall, {"inputs": "a", "parameters": parameters})
    assert error.param == param
    assert message in str(error)
    assert ADVICE not in str(error)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (EmbeddingsRequest, {"input": [7, 8]}),
        (EmbeddingsRequest, {"input": ["a", 7]}),
        (EmbeddingsRequest, {"input": [[7, 8]]}),
        (ClassifyRequest, {"input": [[7, 8], [9]]}),
        (ZeroShotClassificationCall, {"inputs": [7], "parameters": {"candidate_labels": ["b"]}}),
    ],
)
def test_elements_that_are_token_ids_get_advice(
    schema: type[Strict] | type[Call], value: dict[str, Any]
) -> None:
    message = f"{ADVICE}, because each model has its own vocabulary. Send texts. See /openapi.json."
    assert str(error_of(schema, value)).endswith(message)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (EmbeddingsRequest, {"input": 7}),
        (EmbeddingsRequest, {"input": [[]]}),
        (EmbeddingsRequest, {"input": [True]}),
        (EmbeddingsRequest, {"input": [["a"]]}),
        (EmbeddingsRequest, {"input": [7.5]}),
        (EmbeddingsRequest, {"input": ["a"], "dimensions": [7, 8]}),
        (ClassifyRequest, {"input": ["a", {"text": 7}]}),
        (ChooseRequest, {"input": [{"context": "a", "choices": [7, 8]}]}),
        (FillMaskRequest, {"input": "[MASK]", "targets": [7, 8]}),
        (ZeroShotRequest, {"input": "a", "candidate_labels": [7, 8]}),
    ],
)
def test_other_errors_have_no_advice_on_token_ids(schema: type[Strict], value: dict[str, Any]) -> None:
    assert ADVICE not in str(error_of(schema, value))
