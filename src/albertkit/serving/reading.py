"""Parse the body of a request and validate it, with errors that name the fields.

The number of values is limited before parsing: `json.loads` can create objects with a hundred times the size
of the body, and keeps Python's lock meanwhile.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from email.message import Message
from functools import cache
from typing import Any, TypeVar

from albertkit.errors import short
from albertkit.serving.api_errors import ApiError
from albertkit.serving.libraries import pydantic
from albertkit.serving.request_fields import Strict

S = TypeVar("S", bound=Strict)
Place = tuple[str | int, ...]
"""Names of fields and numbers of items, from the outside in."""
_VALUES = 10_000  # maximum number of values in a body, in addition to those of its inputs
_VALUES_PER_INPUT = 64
_MAX_ERRORS = 4  # maximum number of errors in one response
_TOKEN_IDS = " Token ids are not supported, because each model has its own vocabulary. Send texts."
_FORMS = {"string_type": "a text", "model_type": "an object", "list_type": "a list"}  # errors of another form


def read_object(
    content: bytes, *, content_type: str | None, content_encoding: str | None, max_items: int
) -> dict[str, Any]:
    """Return the JSON object of a body.

    Args:
        content: the body.
        content_type: the header Content-Type, which must be JSON in UTF-8.
        content_encoding: the header Content-Encoding. Compressed bodies are an error.
        max_items: maximum number of inputs of a request, which limits the number of values in the body.

    Raises:
        ApiError: the body is not JSON, is too large, or is not an object.
    """
    _check_headers(content_type, content_encoding)
    value = _parse(content, limit=_VALUES + _VALUES_PER_INPUT * max_items)
    if not isinstance(value, dict):
        raise invalid(f'the body is {shown(value)}. Expected an object, such as {{"input": ...}}.', None)
    return value


def parse_request(schema: type[S], value: dict[str, Any], *, names: Mapping[str, str] = {}) -> S:
    """Return a request of a schema.

    Args:
        schema: the schema.
        value: the fields.
        names: names of fields in errors, if they differ from those in the schema.

    Raises:
        ApiError: the object does not match the schema.
    """
    try:
        return schema.model_validate(value)
    except pydantic.ValidationError as error:
        raise _schema_error(schema, error, names) from None


def _check_headers(content_type: str | None, content_encoding: str | None) -> None:
    main = (content_type or "none").partition(";")[0].strip().lower()
    if main != "application/json" and not (main.startswith("application/") and main.endswith("+json")):
        raise invalid(
            f"the header Content-Type is {short(content_type or 'none')}. Expected application/json.",
            "Content-Type",
        )
    header = Message()
    header["Content-Type"] = content_type or ""
    if header.get_content_charset("utf-8") not in ("utf-8", "utf8", "us-ascii"):
        raise invalid(
            f"the header Content-Type is {short(content_type)}. Expected UTF-8, the encoding of JSON. "
            "Send the body in UTF-8, without a charset.",
            "Content-Type",
        )
    if content_encoding not in (None, "", "identity"):
        raise invalid(
            f"the header Content-Encoding is {short(content_encoding)}. Expected none. Send plain JSON.",
            "Content-Encoding",
        )


def _parse(content: bytes, *, limit: int) -> Any:
    if not content:
        raise invalid('the body is empty. Expected a JSON object, such as {"input": ...}.', None)
    if not _holds_at_most(limit, content):
        raise ApiError(
            413,
            "too_many_items",
            f"the body has more than {limit:,} values (texts, lists, ...). Send them in several requests.",
        )
    try:
        value = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_object)
        if b"\\u" in content:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError:
        raise invalid(
            "the body contains a lone surrogate, such as \\ud800, which is not a character", None
        ) from None
    except UnicodeDecodeError as error:
        problem = f"it is not UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        problem = f"{error.msg} (character {error.pos})"
    except RecursionError:
        problem = "its lists and objects are nested too deeply"
    except ValueError:  # Python's limit
        problem = "a number has too many digits"
    raise ApiError(400, "malformed", f"the body is not valid JSON: {problem}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise invalid(f"the body has the field {short(twice)} twice. Send it once.", None)
    return value


def _holds_at_most(limit: int, content: bytes) -> bool:
    """Return whether JSON has at most `limit` values and keys, without parsing it."""
    # Outside of strings, each value except the first follows one of these characters.
    if sum(map(content.count, (b",", b"[", b"{", b":"))) < limit:
        return True
    # Without escaped characters, the remaining quotes begin and end strings.
    content = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    if content.count(b'"') > 2 * limit:
        return False
    outside = b"".join(content.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{", b":"))) < limit


def _schema_error(
    schema: type[Strict], error: pydantic.ValidationError, names: Mapping[str, str]
) -> ApiError:
    """Return the API error for an object that does not match its schema."""
    # If a field can have several forms, pydantic reports an error for each. The errors at the innermost place
    # are those of the form that the client meant.
    problems: dict[Place, list[Any]] = {}
    depths: dict[str | int, int] = {}
    for problem in error.errors(include_url=False):
        place = _place(problem)
        problems.setdefault(place, []).append(problem)
        depths[place[0]] = max(len(place), depths.get(place[0], 0))
    innermost = [place for place in problems if len(place) == depths[place[0]]]
    sentences = [_sentence(schema, _written(place, names), problems[place]) for place in innermost]
    first = innermost[0]
    param = _written(first[:1], names)
    is_element = first[0] == "input" and len(first) == 2 and isinstance(first[1], int)
    ids = _TOKEN_IDS if is_element and _are_ids(problems[first][0]["input"]) else ""
    return invalid(f"{' '.join(sentences[:_MAX_ERRORS]):.1000}{ids} See /openapi.json.", param)


def _are_ids(value: Any) -> bool:
    """Return whether an element of the input is a token id, or a list of token ids."""
    if isinstance(value, list):
        return bool(value) and all(type(item) is int for item in value)
    return type(value) is int


def _place(error: Any) -> Place:
    """Return where an error is, without the names of the forms that pydantic tried."""
    *outer, last = error["loc"]
    place = [part for part in outer if isinstance(part, int) or part in _fields()]
    if error["type"] == "extra_forbidden" or isinstance(last, int) or last in _fields():
        place.append(last)
    return tuple(place)


def _written(place: Place, names: Mapping[str, str]) -> str:
    """Return a place as most languages write it, input[3].text."""
    first, *others = place
    inner = (f"[{part}]" if isinstance(part, int) else f".{field_name(part)}" for part in others)
    return "".join([names.get(str(first)) or field_name(str(first)), *inner])


def field_name(name: str) -> str:
    """Return the name of a field as errors show it: with quotes around unusual names."""
    is_usual = re.fullmatch(r"[\w-]+", name)
    return (name if is_usual else json.dumps(name, ensure_ascii=False))[:80]


def _sentence(schema: type[Strict], place: str, errors: list[Any]) -> str:
    """Return the message for the errors at a place."""
    error = next((error for error in errors if error["type"] not in _FORMS), errors[0])
    if error["type"] == "missing":
        return f"{place} is missing."
    if error["type"] == "extra_forbidden":
        fields = f" The fields are {', '.join(schema.model_fields)}." if len(error["loc"]) == 1 else ""
        return f"{place} is not a field of this request.{fields}"
    expected = re.sub(r"^\w+ should (be|have) | after validation.*", "", error["msg"])
    expected = re.sub(r"^(greater|less) than", r"a number \g<0>", expected)
    if error["type"] in _FORMS:
        expected = ", or ".join(dict.fromkeys(map(_form, errors)))
    return f"{place} is {shown(error['input'])}. Expected {expected}."


def _form(error: Any) -> str:
    if error["type"] == "model_type":
        schema = _schemas()[error["ctx"]["class_name"]]
        return f"an object with {' and '.join(schema.model_fields)}"
    return _FORMS[error["type"]]


def shown(value: Any) -> str:
    """Return a JSON value as messages show it."""
    if isinstance(value, str | int | float) or value is None:
        return f"{json.dumps(value):.60}"
    return f"a list of length {len(value)}" if isinstance(value, list) else "an object"


@cache
def _schemas() -> dict[str, type[Strict]]:
    """Return all schemas of requests and their parts, by name."""
    schemas, waiting = dict[str, type[Strict]](), [Strict]
    while waiting:
        derived = waiting.pop().__subclasses__()
        schemas |= {schema.__name__: schema for schema in derived}
        waiting += derived
    return schemas


@cache
def _fields() -> set[str]:
    return {name for schema in _schemas().values() for name in schema.model_fields}


def invalid(message: str, param: str | None) -> ApiError:
    """Return the error for a body that does not match its task."""
    return ApiError(422, "invalid", message, param=param)
