"""The routes as an ASGI application, with those of the playground if it is enabled."""

import inspect
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from albertkit import __version__
from albertkit.errors import short
from albertkit.serving import inference_client, inference_paths, response_schemas
from albertkit.serving.api_errors import ApiError, internal_error
from albertkit.serving.guard import Guard
from albertkit.serving.libraries import HTTPError, fastapi, pydantic
from albertkit.serving.models import find_model
from albertkit.serving.pages import add_pages
from albertkit.serving.reading import parse_request, read_object
from albertkit.serving.request_fields import Strict
from albertkit.serving.request_schemas import ROUTES, InspectRequest, TaskRequest
from albertkit.serving.service import Service
from albertkit.serving.work import DEADLINE_HEADER

_REFERENCE = "#/components/schemas/{model}"
_DEADLINE = fastapi.Header(
    None,
    alias=DEADLINE_HEADER,
    description="Maximum time in seconds for the response.",
    gt=0,
    allow_inf_nan=False,
)
_ERRORS = response_schemas.error_responses(400, 401, 404, 408, 413, 422, 429, 500, 504)


def make_application(service: Service, *, key: str | None = None) -> Callable[..., Any]:
    """Return the application of a service, inside a `Guard`.

    Args:
        service: computes the responses.
        key: key that requests must send as a bearer token; None if they need no key.
    """
    application = fastapi.FastAPI(
        title="albertkit",
        version=__version__,
        description="ALBERT models over HTTP. Errors are JSON objects in the format of OpenAI's API.",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # behind a proxy, the redirect would lead to an http address
    )
    scheme = fastapi.security.HTTPBearer(auto_error=False)  # described here; the guard has checked it
    keyed = [] if key is None else [fastapi.Security(scheme)]
    with_playground = service.settings.playground
    routes = (*ROUTES, InspectRequest) if with_playground else ROUTES
    for schema in routes:
        name = schema.path.rpartition("/")[2]
        reference = {"$ref": _REFERENCE.format(model=schema.__name__)}
        response: Any = pydantic.create_model(
            schema.__name__.replace("Request", "Response"),
            __base__=response_schemas.TaskResponse,
            **schema.response,
        )
        application.post(
            schema.path,
            response_model=response,
            responses=_ERRORS,
            dependencies=keyed,
            summary=name.replace("-", " ").capitalize(),
            description=inspect.getdoc(schema),
            operation_id=name,
            openapi_extra=_request_body(reference),
        )(_endpoint(service, schema))

    _add_inference_client(application, service, keyed)

    @application.get(
        "/v1/models",
        response_model=response_schemas.ModelList,
        responses=response_schemas.error_responses(401),
        dependencies=keyed,
    )
    async def models() -> dict[str, Any]:
        """List the models with their tasks and sizes."""
        return {"object": "list", "data": [model.describe() for model in service.models.values()]}

    @application.get(
        "/v1/models/{model:path}",
        response_model=response_schemas.ModelEntry,
        responses=response_schemas.error_responses(401, 404),
        dependencies=keyed,
    )
    async def model(model: str) -> dict[str, Any]:
        """Describe a model."""
        return find_model(service.models, model, None).describe()

    @application.get("/healthz", response_model=response_schemas.Health, response_model_exclude_none=True)
    async def healthz() -> dict[str, Any]:
        """Report that the process is alive."""
        return {"status": "alive"}

    @application.get(
        "/readyz", response_model=response_schemas.Health, responses={503: {"model": response_schemas.Health}}
    )
    async def readyz(response: fastapi.Response) -> dict[str, Any]:
        """Report whether every model computes the expected scores for a probe."""
        states = await service.ready()
        ready = all(states.values())
        response.status_code = 200 if ready else 503
        return {"status": "ready" if ready else "not ready", "models": states}

    @application.get(
        "/metrics",
        response_class=fastapi.responses.PlainTextResponse,
        responses=response_schemas.error_responses(401),
        dependencies=keyed,
    )
    async def metrics() -> fastapi.Response:
        """Return all metrics in the format of Prometheus."""
        return fastapi.Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    pages = add_pages(application) if with_playground else ()
    _describe_requests(application, routes)
    _describe_errors(application, service)
    return Guard(application=application, service=service, key=key, pages=pages)


def _endpoint(service: Service, schema: type[TaskRequest]) -> Callable[..., Any]:
    async def endpoint(request: fastapi.Request, seconds: float | None = _DEADLINE) -> fastapi.Response:
        task_request = parse_request(schema, await _read(service, request))
        return await service.answer(task_request, request, seconds=seconds)

    return endpoint


def _add_inference_client(application: fastapi.FastAPI, service: Service, keyed: list[Any]) -> None:
    """Add the paths of `huggingface_hub.InferenceClient`."""
    body = _request_body(inference_client.BODY)
    for number, path in enumerate(inference_paths.PATHS):
        names = re.findall(r"{(\w+)", path)
        application.post(
            path,
            response_model=inference_client.Answer,
            responses={status: {"model": inference_client.InferenceError} for status in _ERRORS},
            dependencies=keyed,
            summary="InferenceClient",
            description="Requests of huggingface_hub.InferenceClient.",
            operation_id=f"inference_client_{number}",
            openapi_extra=body
            | {
                "parameters": [
                    {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                    for name in names
                ],
            },
        )(_inference_endpoint(service))


def _inference_endpoint(service: Service) -> Callable[..., Any]:
    async def endpoint(request: fastapi.Request, seconds: float | None = _DEADLINE) -> fastapi.Response:
        value = await _read(service, request)
        name, task = request.path_params.get("model"), request.path_params.get("task")
        agent = request.headers.get("user-agent", "")
        call = inference_paths.read_call(value, service.models, name=name, task=task, agent=agent)
        try:
            return await service.answer(call.request, request, seconds=seconds, shape=call.shape)
        except ApiError as error:
            raise call.renamed(error) from None

    return endpoint


async def _read(service: Service, request: fastapi.Request) -> dict[str, Any]:
    return read_object(
        b"".join([part async for part in request.stream()]),
        content_type=request.headers.get("content-type"),
        content_encoding=request.headers.get("content-encoding"),
        max_items=service.settings.max_items,
    )


def _request_body(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI description of a body. `reading` parses it instead of the framework."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _describe_requests(application: fastapi.FastAPI, schemas: Sequence[type[Strict]]) -> None:
    """Add the schemas of requests to FastAPI's OpenAPI description."""
    describe = application.openapi
    wanted: Any = [(schema, "validation") for schema in schemas]

    @cache  # each call would take 50 ms
    def description() -> dict[str, Any]:
        described = describe()
        definitions = pydantic.json_schema.models_json_schema(wanted, ref_template=_REFERENCE)[1]["$defs"]
        described["components"]["schemas"] |= definitions
        return described

    application.openapi = description  # the hook that FastAPI documents


def _describe_errors(application: fastapi.FastAPI, service: Service) -> None:
    """Return all errors in the same format, and count them."""

    async def respond(request: fastapi.Request, error: Exception) -> fastapi.Response:
        described = _as_api_error(request, error)
        service.metrics.errors.labels(described.kind).inc()
        response = described.response(request.url.path)
        if isinstance(error, HTTPError):
            response.headers.update(error.headers or {})
        return response

    for kind in (ApiError, fastapi.exceptions.RequestValidationError, HTTPError, Exception):
        application.add_exception_handler(kind, respond)


def _as_api_error(request: fastapi.Request, error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, fastapi.exceptions.RequestValidationError):
        problem = error.errors()[0]  # of the deadline header: the framework validates nothing else
        name = problem["loc"][-1]
        message = f"the header {name} is {short(problem['input'])}. Expected a number of seconds above 0."
        return ApiError(422, "invalid", message, param=str(name))
    if isinstance(error, HTTPError):
        kinds = {400: "malformed", 404: "unknown_path", 405: "wrong_method"}
        message = f"{request.method} {short(request.url.path)}: {error.detail}. See /openapi.json."
        return ApiError(error.status_code, kinds.get(error.status_code, "http"), message)
    return internal_error()  # the framework logs the error
