"""The routes, as an ASGI application; the playground's beside them where it is wanted."""

import asyncio
from collections.abc import Callable
from typing import Any

from albertkit import __version__
from albertkit.serving import answers, bodies
from albertkit.serving.garbage import GarbageCollector
from albertkit.serving.guard import Guard
from albertkit.serving.libraries import HTTPError, fastapi
from albertkit.serving.pages import add_pages
from albertkit.serving.refusals import Refusal
from albertkit.serving.service import DEADLINE_HEADER, Service

_ROUTES: tuple[tuple[str, type[bodies.Body], type], ...] = (
    ("/v1/fill-mask", bodies.FillMaskBody, answers.FillMaskAnswer),
    ("/v1/classify", bodies.ClassifyBody, answers.ClassifyAnswer),
    ("/v1/tag", bodies.TagBody, answers.TagAnswer),
    ("/v1/answer", bodies.AnswerBody, answers.AnswerAnswer),
    ("/v1/choose", bodies.ChooseBody, answers.ChooseAnswer),
    ("/v1/order", bodies.OrderBody, answers.OrderAnswer),
    ("/v1/embeddings", bodies.EmbeddingsBody, answers.EmbeddingsAnswer),
    ("/v1/tokenize", bodies.TokenizeBody, answers.TokenizeAnswer),
)
_PLAYGROUND = ("/v1/inspect", bodies.InspectBody, answers.InspectAnswer)
_REFUSED = answers.error_responses(400, 401, 404, 408, 413, 422, 429, 500, 504)


def make_application(
    service: Service, *, key: str | None = None, garbage: GarbageCollector
) -> Callable[..., Any]:
    """Return the application of a service, guarded.

    Args:
        service: what answers.
        key: that requests must bring as a bearer token; None for none.
        garbage: is told of every request.
    """
    application = fastapi.FastAPI(
        title="albertkit",
        version=__version__,
        description="ALBERT models over HTTP. Errors are JSON, in the shape of OpenAI's.",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
    )
    scheme = fastapi.security.HTTPBearer(auto_error=False)  # described here; the guard has checked it
    keyed = [] if key is None else [fastapi.Security(scheme)]
    with_playground = service.settings.playground
    for path, body, answer in (*_ROUTES, _PLAYGROUND) if with_playground else _ROUTES:
        application.post(
            path,
            response_model=answer,
            responses=_REFUSED,
            dependencies=keyed,
            summary=path.rpartition("/")[2].replace("-", " ").capitalize(),
            description=body.__doc__,
            operation_id=path.rpartition("/")[2],
        )(_endpoint(service, body))

    @application.get(
        "/v1/models",
        response_model=answers.ModelList,
        responses=answers.error_responses(401),
        dependencies=keyed,
    )
    async def models() -> dict[str, Any]:
        """List the models, and what can be asked of each."""
        return {"object": "list", "data": [one.describe() for one in service.models.values()]}

    @application.get("/healthz", response_model=answers.Health, response_model_exclude_none=True)
    async def healthz() -> dict[str, Any]:
        """Tell that the process is alive."""
        return {"status": "alive"}

    @application.get("/readyz", response_model=answers.Health, responses={503: {"model": answers.Health}})
    async def readyz(response: fastapi.Response) -> dict[str, Any]:
        """Tell whether every model has just answered a probe rightly."""
        found = await asyncio.to_thread(service.ready)
        ready = all(found.values())
        response.status_code = 200 if ready else 503
        return {"status": "ready" if ready else "not ready", "models": found}

    @application.get(
        "/metrics",
        response_class=fastapi.responses.PlainTextResponse,
        responses=answers.error_responses(401),
        dependencies=keyed,
    )
    async def metrics() -> fastapi.Response:
        """Give all figures to Prometheus."""
        return fastapi.Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    pages = add_pages(application) if with_playground else ()
    _describe_errors(application, service)
    return Guard(
        application,
        metrics=service.metrics,
        key=key,
        pages=pages,
        max_body_bytes=service.settings.max_body_bytes,
        client_seconds=service.settings.client_seconds,
        check_room=service.gate.check,
        garbage=garbage,
    )


def _endpoint(service: Service, kind: type[bodies.Body]) -> Callable[..., Any]:
    timeout = fastapi.Header(
        None,
        alias=DEADLINE_HEADER,
        description="Seconds within which the answer is wanted.",
        gt=0,
        allow_inf_nan=False,
    )

    async def endpoint(
        request: fastapi.Request,
        body: kind,  # type: ignore[valid-type]
        seconds: float | None = timeout,
    ) -> fastapi.Response:
        return await service.answer(body, request, seconds=seconds)

    return endpoint


def _describe_errors(application: fastapi.FastAPI, service: Service) -> None:
    """Have every error answered in one shape, and counted."""

    def answered(refusal: Refusal) -> fastapi.Response:
        service.metrics.error(refusal.kind)
        return refusal.response()

    @application.exception_handler(Refusal)
    async def refused(request: fastapi.Request, error: Refusal) -> fastapi.Response:
        del request
        return answered(error)

    @application.exception_handler(fastapi.exceptions.RequestValidationError)
    async def invalid(
        request: fastapi.Request, error: fastapi.exceptions.RequestValidationError
    ) -> fastapi.Response:
        found = error.errors()
        if found[0]["type"] == "json_invalid":
            what = f"at character {found[0]['loc'][-1]}: {found[0]['ctx']['error']}"
            return answered(Refusal(400, "malformed", f"the body is no JSON {what}"))
        sent = request.headers.get("content-type", "none")
        if found[0]["loc"] == ("body",) and "json" not in sent:
            message = f"the Content-Type is {sent!r:.80}; expected JSON, with Content-Type: application/json"
            return answered(Refusal(422, "invalid", message))
        # Where several forms are possible each says why it does not fit.
        said = [".".join(str(one) for one in each["loc"][1:]) + f": {each['msg']}" for each in found[:4]]
        where = [str(one) for one in found[0]["loc"][1:2]]
        message = f"the body does not fit: {'; '.join(said)}. See /openapi.json"
        return answered(Refusal(422, "invalid", message[:1000], param=where[0] if where else None))

    @application.exception_handler(HTTPError)
    async def plain(request: fastapi.Request, error: HTTPError) -> fastapi.Response:
        kinds = {400: "malformed", 404: "unknown_path", 405: "wrong_method"}
        response = answered(
            Refusal(
                error.status_code,
                kinds.get(error.status_code, "http"),
                f"{request.method} {request.url.path!r:.80}: {error.detail}; see /openapi.json",
            )
        )
        response.headers.update(error.headers or {})
        return response

    @application.exception_handler(Exception)
    async def failed(request: fastapi.Request, error: Exception) -> fastapi.Response:
        del request, error  # the framework logs it
        return answered(Refusal(500, "internal", "the server failed at this request, and has noted why"))
