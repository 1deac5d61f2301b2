"""The application: a service that answers validated requests, and its routes in OpenAPI.

A request goes through these files: limits.py (key, size and time of the body), schemas.py (its fields), this
file (admission, deadline, a pipeline in a thread of its own), queue.py (the rows of all requests in batches).
"""

import asyncio
import hashlib
import inspect
import json
import logging
import re
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from copy import copy
from importlib.resources import files
from typing import Any

from albertkit import __version__
from albertkit.allocator import share_arenas
from albertkit.engines.light_model import LightModel
from albertkit.errors import (
    AlbertKitError,
    CheckpointError,
    ConfigError,
    DataError,
    TokenizerError,
    TooLongError,
    short,
)
from albertkit.extras import optional
from albertkit.inspection.attention import SHARED
from albertkit.serving import inference_client, schemas
from albertkit.serving.libraries import CORSMiddleware, HTTPError, fastapi, pydantic
from albertkit.serving.limits import DEADLINE_HEADER, ApiError, Guard, client_gone, too_much
from albertkit.serving.metrics import Metrics
from albertkit.serving.models import ServedModel, find_model, load_model
from albertkit.serving.queue import QueuedEngine, RowQueue, Ticket
from albertkit.serving.request_log import CLIENT_GONE, CURRENT, ID_HEADER, RequestLog
from albertkit.serving.schemas import ROUTES, InspectRequest, TaskRequest
from albertkit.serving.settings import ServingSettings

torch: Any = optional("torch", extra="torch")

logger = logging.getLogger("albertkit.serving")

_MAX_PROBLEMS = 4  # maximum number of problems in one response
_PROBE_SECONDS = 10.0  # for all models together
_PROBE_AGE = 1.0  # seconds for which the result of a probe is reused


class Service:
    """The models, their queue, and the threads of requests. Create it outside of the event loop."""

    def __init__(self, settings: ServingSettings, models: Mapping[str, ServedModel] | None = None) -> None:
        self.settings = settings
        self.metrics = Metrics()
        share_arenas()
        self.models: dict[str, ServedModel] = (
            {name: load_model(name, settings) for name in settings.models} if models is None else dict(models)
        )
        uses_torch = any(
            not isinstance(model.any_pipeline.model, LightModel) for model in self.models.values()
        )
        threads = torch.get_num_threads() if uses_torch else None
        try:
            self._pool = _start_threads(settings.max_requests, uses_torch=uses_torch)
            self.queue = RowQueue(self.metrics, settings, torch_threads=threads)
        except RuntimeError as error:
            count = settings.max_requests + 1
            message = f"the server could not start its {count} threads: {error}. Decrease max_requests."
            raise ConfigError(message) from error
        self._reloading = threading.Lock()
        self._probe: asyncio.Future[dict[str, bool]] | None = None
        self._probe_began = 0.0

    def close(self) -> None:
        """Stop the threads after they have finished their work."""
        self._pool.shutdown()
        self.queue.close()

    async def answer(
        self,
        task_request: TaskRequest,
        request: fastapi.Request,
        *,
        seconds: float | None = None,
        shape: Callable[[list[Any]], Any] | None = None,
    ) -> fastapi.Response:
        """Return the response to a request."""
        served = find_model(self.models, task_request.model, task_request.task)
        CURRENT.get().model = served.name
        self._check_limits(task_request)
        limits = self.settings
        param = None if seconds is None else DEADLINE_HEADER
        seconds = limits.max_seconds if seconds is None else min(seconds, limits.max_seconds)
        characters = task_request.characters() if task_request.computes else 0
        ticket = Ticket(characters=characters, seconds=seconds, max_tokens=limits.max_tokens, param=param)
        self.queue.enter(ticket)
        context = copy_context()  # with the request, for the log
        job = asyncio.get_running_loop().run_in_executor(
            self._pool, lambda: context.run(self._work, served, task_request, ticket, shape)
        )
        job.add_done_callback(lambda _: self.queue.leave(ticket))
        gone = asyncio.ensure_future(_wait_for_disconnect(request))
        try:
            await asyncio.wait(
                {job, gone}, timeout=max(0.0, ticket.seconds_left()), return_when=asyncio.FIRST_COMPLETED
            )
            if not job.done():
                raise client_gone() if gone.done() else ticket.late()
        finally:
            gone.cancel()
            CURRENT.get().rows = ticket.rows
            if not job.done():  # also if the server stops
                ticket.cancel(ApiError(CLIENT_GONE, "cancelled", "the request was cancelled"))
        content = job.result()
        if isinstance(content, ApiError):
            raise content
        stages = {
            "tokenize": max(0.0, ticket.tokenize_seconds),
            "queue": max(0.0, ticket.queue_seconds),
            "compute": ticket.compute_seconds,
            "total": time.monotonic() - ticket.arrived,
        }
        for stage, value in stages.items():
            labels = stage, served.name, request.scope["route"].path_format
            self.metrics.stages.labels(*labels).observe(value)
        return fastapi.Response(content, media_type="application/json")

    def reload(self) -> None:
        """Reload all models while requests are served. A model that cannot be loaded stays unchanged."""
        with self._reloading:
            reloaded = []
            for name in self.models:
                before = ", ".join(self.models[name].pipelines)
                try:
                    self.models[name] = load_model(name, self.settings)
                except Exception as error:  # damaged files raise anything
                    logger.error("the model %s was not reloaded and keeps its old weights: %s", name, error)
                    self.metrics.reloads.labels(name, "failed").inc()
                    continue
                reloaded.append(name)
                self.metrics.reloads.labels(name, "done").inc()
                after = ", ".join(self.models[name].pipelines)
                if after != before:
                    logger.warning("%s: the tasks changed from %s to %s", name, before, after)
            self._probe_began = 0.0
            if reloaded:
                logger.info("reloaded %s", ", ".join(reloaded))

    async def ready(self) -> dict[str, bool]:
        """Return for each model whether it computes a probe correctly and in time; kept for a second."""
        now = time.monotonic()

        def probe() -> dict[str, bool]:
            return {
                name: self.queue.is_alive()
                and model.probe(self.queue, seconds=now + _PROBE_SECONDS - time.monotonic())
                for name, model in self.models.items()
            }

        if self._probe is None or (self._probe.done() and now - self._probe_began > _PROBE_AGE):
            self._probe_began = now
            self._probe = asyncio.ensure_future(asyncio.to_thread(probe))
        return await asyncio.shield(self._probe)  # further calls wait for the same probe

    def _check_limits(self, task_request: TaskRequest) -> None:
        items, characters, limits = len(task_request.items()), task_request.characters(), self.settings
        if items > limits.max_items:
            todo = "Send them in several requests"
            raise too_much("too_many_items", "inputs", items, limits.max_items, todo)
        if characters > limits.max_characters:
            counted = task_request.counting.format(f"{characters:,} characters")
            expected = f"Expected at most {limits.max_characters:,}. Send less in one request."
            raise ApiError(413, "too_many_characters", f"the request {counted}. {expected}")

    def _work(
        self,
        served: ServedModel,
        task_request: TaskRequest,
        ticket: Ticket,
        shape: Callable[[list[Any]], Any] | None,
    ) -> bytes | ApiError:
        """Return the content of the response. It runs in a thread of the request."""
        begin = time.monotonic()
        pipeline = copy(served.pipelines[task_request.task] if task_request.task else served.any_pipeline)
        pipeline.engine = QueuedEngine(served.engine, self.queue, ticket)
        try:
            if ticket.error is not None:
                raise ticket.error
            results = task_request.results(pipeline)
            usage = {"prompt_tokens": ticket.tokens, "total_tokens": ticket.tokens}
            ours = {"model": served.name, "usage": usage, **task_request.content(results)}
            response = shape(results) if shape else ours
            return json.dumps(response, ensure_ascii=False, allow_nan=False).encode("utf-8")
        except ApiError as error:
            return error
        except (ConfigError, DataError, TokenizerError) as error:
            _clear_frames(error)
            return _invalid(task_request, error)
        except CheckpointError as error:
            logger.error("%s: %s", served.name, error)
            return ApiError(500, "not_finite", f"{error} No results are returned.")
        except Exception:
            logger.exception("%s: a request for %s failed", served.name, task_request.task or "tokens")
            return _internal_error()
        finally:
            waited = ticket.queue_seconds + ticket.compute_seconds
            ticket.tokenize_seconds = time.monotonic() - begin - waited


def _invalid(task_request: TaskRequest, error: AlbertKitError) -> ApiError:
    """Return the response to an error of the pipeline, with the names of the request's fields."""
    cause: Any = error.__cause__ if error.inputs else error
    message = str(cause)
    if isinstance(cause, TooLongError):
        advice = ', or set "truncation" to true' if "truncation" in type(task_request).model_fields else ""
        message = f"{cause.reason} Send shorter texts{advice}."
    # "top_k is 100. Expected ...", "the target 'x' is not ..."
    options = (name for name in task_request.options() if message.startswith((name, f"the {name[:-1]} ")))
    param = next(options, "input")
    if error.inputs and isinstance(task_request.input, list):
        message = f"{', '.join(f'input[{index}]' for index in error.inputs[:_MAX_PROBLEMS])}: {message}"
    return ApiError(422, "invalid", message, param=param)


def _clear_frames(error: BaseException | None) -> None:
    """Free the memory of the functions that raised an error.

    Pipelines keep the errors of their inputs, so the functions refer to the error and the error to them. The
    garbage collector would free them, but late: it counts objects, and these have all tokens of a request.
    """
    cleared = set[int]()
    while error is not None and id(error) not in cleared:  # the causes can form a cycle
        cleared.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


async def _wait_for_disconnect(request: fastapi.Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _start_threads(count: int, *, uses_torch: bool) -> ThreadPoolExecutor:
    """Return a pool of running threads, each with one PyTorch thread.

    Outside of the engine, a pipeline computes little. With more PyTorch threads, each request thread would
    keep its own team of threads.
    """
    together = threading.Barrier(count)

    def settle() -> None:
        if uses_torch:
            torch.set_num_threads(1)
        with suppress(threading.BrokenBarrierError):
            together.wait()

    pool = ThreadPoolExecutor(count, thread_name_prefix="request", initializer=settle)
    try:
        for start in [pool.submit(int) for _ in range(count)]:
            start.result()
    except RuntimeError:  # no further thread can start: those that wait for it would keep the process alive
        together.abort()
        raise
    return pool


# --- routes

_DEADLINE = fastapi.Header(
    None,
    alias=DEADLINE_HEADER,
    description="Maximum time in seconds for the response.",
    gt=0,
    allow_inf_nan=False,
)


def _errors(
    *statuses: int, model: type[pydantic.BaseModel] = schemas.Error
) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of the error responses with these statuses."""
    return {status: {"model": model} for status in statuses}


_DOCS, _OPENAPI = "/docs", "/openapi.json"
_ERRORS = (400, 401, 404, 408, 413, 422, 429, 500, 504)


def make_application(service: Service, *, key: str | None = None) -> Callable[..., Any]:
    application = fastapi.FastAPI(
        title="albertkit",
        version=__version__,
        description="ALBERT models over HTTP. Errors are JSON objects in the format of OpenAI's API.",
        docs_url=_DOCS,
        openapi_url=_OPENAPI,
        swagger_ui_oauth2_redirect_url=None,
        redoc_url=None,
        redirect_slashes=False,  # behind a proxy, the redirect would lead to an http address
    )
    scheme = fastapi.security.HTTPBearer(auto_error=False)  # described here; the guard has checked it
    keyed = [] if key is None else [fastapi.Security(scheme)]
    with_playground = service.settings.playground
    for schema in (*ROUTES, InspectRequest) if with_playground else ROUTES:
        name = schema.path.rpartition("/")[2]
        response: Any = pydantic.create_model(
            schema.__name__.replace("Request", "Response"), __base__=schemas.TaskResponse, **schema.response
        )
        application.post(
            schema.path,
            response_model=response,
            responses=_errors(*_ERRORS),
            dependencies=keyed,
            summary=name.replace("-", " ").capitalize(),
            description=inspect.getdoc(schema),
            operation_id=name,
        )(_endpoint(service, schema))
    for number, path in enumerate(inference_client.PATHS):
        application.post(
            path,
            response_model=inference_client.Answer,
            responses=_errors(*_ERRORS, model=inference_client.InferenceError),
            dependencies=keyed,
            summary="InferenceClient",
            description="Requests of huggingface_hub.InferenceClient.",
            operation_id=f"inference_client_{number}",
        )(_inference_endpoint(service, names_model="{model" in path))

    @application.get(
        "/v1/models", response_model=schemas.ModelList, responses=_errors(401), dependencies=keyed
    )
    async def models() -> dict[str, Any]:
        """List the models with their tasks and sizes."""
        return {"object": "list", "data": [model.describe() for model in service.models.values()]}

    @application.get(
        "/v1/models/{model:path}",
        response_model=schemas.ModelEntry,
        responses=_errors(401, 404),
        dependencies=keyed,
    )
    async def model(model: str) -> dict[str, Any]:
        """Describe a model."""
        return find_model(service.models, model, None).describe()

    @application.get("/healthz", response_model=schemas.Health, response_model_exclude_none=True)
    async def healthz() -> dict[str, Any]:
        """Report that the process is alive."""
        return {"status": "alive"}

    @application.get("/readyz", response_model=schemas.Health, responses={503: {"model": schemas.Health}})
    async def readyz(response: fastapi.Response) -> dict[str, Any]:
        """Report whether every model computes the expected scores for a probe."""
        states = await service.ready()
        ready = all(states.values())
        response.status_code = 200 if ready else 503
        return {"status": "ready" if ready else "not ready", "models": states}

    @application.get(
        "/metrics",
        response_class=fastapi.responses.PlainTextResponse,
        responses=_errors(401),
        dependencies=keyed,
    )
    async def metrics() -> fastapi.Response:
        """Return all metrics in the format of Prometheus."""
        return fastapi.Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def respond(request: fastapi.Request, error: Exception) -> fastapi.Response:
        path = request.url.path
        if isinstance(error, ApiError):
            return error.response(path)
        if isinstance(error, fastapi.exceptions.RequestValidationError):
            CURRENT.get().model = _model_of(service, path, error.body)
        if isinstance(error, invalid):
            kind = request.headers.get("content-type", "")
            if request.method == "POST" and not re.match(
                r"application/([\w.-]+\+)?json\b", kind, re.IGNORECASE
            ):
                expected = "Expected Content-Type: application/json."
                message = f"the Content-Type of the request is {short(kind)}. {expected}"
                return ApiError(422, "invalid", message, param="Content-Type").response(path)
            return _invalid_request(error.errors()).response(path)
        if isinstance(error, HTTPError):
            kinds = {400: "malformed", 404: "unknown_path", 405: "wrong_method"}
            message = f"{request.method} {short(path)}: {error.detail}. /openapi.json lists the routes."
            kind = kinds.get(error.status_code, "http")
            response = ApiError(error.status_code, kind, message).response(path)
            response.headers.update(error.headers or {})
            return response
        return _internal_error().response(path)  # the framework logs the error

    invalid = (pydantic.ValidationError, fastapi.exceptions.RequestValidationError)
    for kind in (ApiError, *invalid, HTTPError, Exception):
        application.add_exception_handler(kind, respond)
    pages = _add_pages(application) if with_playground else []
    pages += [_DOCS, _OPENAPI] * service.settings.public_docs
    guarded: Any = Guard(application=application, service=service, key=key, pages=pages)
    if service.settings.cors:  # outside of the guard, because browsers first ask without the key
        guarded = CORSMiddleware(
            guarded,
            allow_origins=service.settings.cors,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=(ID_HEADER, "Retry-After"),
        )
    return RequestLog(application=guarded, routes=application.routes, metrics=service.metrics)


def _endpoint(service: Service, schema: type[TaskRequest]) -> Callable[..., Any]:
    async def endpoint(
        body: Any, request: fastapi.Request, seconds: float | None = _DEADLINE
    ) -> fastapi.Response:
        return await service.answer(body, request, seconds=seconds)

    endpoint.__annotations__["body"] = schema  # FastAPI reads it
    return endpoint


def _inference_endpoint(service: Service, *, names_model: bool) -> Callable[..., Any]:
    async def with_model(
        body: inference_client.Body,
        request: fastapi.Request,
        model: str,
        task: str,
        seconds: float | None = _DEADLINE,
    ) -> fastapi.Response:
        converted, shape = inference_client.read_call(body, service.models, model=model or None, task=task)
        return await service.answer(converted, request, seconds=seconds, shape=shape)

    async def without_model(
        body: inference_client.Body, request: fastapi.Request, task: str, seconds: float | None = _DEADLINE
    ) -> fastapi.Response:
        return await with_model(body, request, "", task, seconds)

    return with_model if names_model else without_model


def _model_of(service: Service, path: str, body: Any) -> str | None:
    """Return the model that an invalid request names or that would answer it; None if it cannot be known."""
    name = body.get("model") if isinstance(body, dict) else None
    if name is not None:
        return name if isinstance(name, str) and name in service.models else None
    tasks = [schema.task for schema in ROUTES if schema.path == path]
    with suppress(ApiError):
        return find_model(service.models, None, tasks[0]).name if tasks else None
    return None


def _invalid_request(problems: Any) -> ApiError:
    """Return the error for a request that does not match its schema, with the messages of pydantic."""
    if problems[0]["type"] == "json_invalid":
        return ApiError(400, "malformed", f"the body is not valid JSON: {problems[0]['ctx']['error']}")
    messages, param = [], None
    for problem in problems[:_MAX_PROBLEMS]:
        where = [str(part) for part in problem["loc"] if part not in ("body", "header")]
        param = param or (where[0] if where else None)
        messages.append(f"{'.'.join(where) or 'the body'}: {problem['msg']}")
    return ApiError(422, "invalid", f"{'; '.join(messages):.1000}. See /openapi.json.", param=param)


def _internal_error() -> ApiError:
    return ApiError(500, "internal", "the server could not process the request. See its log.")


# --- the playground

PLAYGROUND = "/playground"
"""Path of the page. Its files are below this path."""

_PAGE = "playground.html"
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # browsers check the ETag each time
}


def _add_pages(application: fastapi.FastAPI) -> list[str]:
    """Add the page and its files to an application, and redirect `/` to it. Return all paths."""
    html = files("albertkit.serving") / "html"
    shared = files("albertkit.inspection") / "html"
    paths = ["/"]
    for file in (*html.iterdir(), *(shared / name for name in SHARED)):
        path = PLAYGROUND if file.name == _PAGE else f"{PLAYGROUND}/{file.name}"
        kind = _KINDS[file.name.rpartition(".")[2]]
        application.add_route(path, _page(file.read_bytes(), kind), include_in_schema=False)
        paths.append(path)

    async def to_the_page(request: fastapi.Request) -> fastapi.Response:
        del request
        return fastapi.responses.RedirectResponse(PLAYGROUND[1:])  # relative: a proxy may add to the path

    application.add_route("/", to_the_page, include_in_schema=False)
    return paths


def _page(content: bytes, kind: str) -> Callable[..., Any]:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = _HEADERS | {"ETag": tag}

    async def endpoint(request: fastapi.Request) -> fastapi.Response:
        if tag in request.headers.get("if-none-match", ""):
            return fastapi.Response(status_code=304, headers=headers)
        return fastapi.Response(content, headers=headers, media_type=f"{kind}; charset=utf-8")

    return endpoint
