"""Compute the response to a validated request: limits, admission, deadline, pipeline."""

import asyncio
import json
import logging
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from copy import copy
from typing import Any

from albertkit.allocator import share_arenas
from albertkit.engines.light_model import LightModel
from albertkit.errors import CheckpointError, ConfigError, DataError, TokenizerError
from albertkit.extras import optional
from albertkit.serving.api_errors import CLIENT_GONE, ApiError, internal_error, too_much
from albertkit.serving.batching import QueuedEngine, RowQueue
from albertkit.serving.libraries import fastapi
from albertkit.serving.metrics import Metrics
from albertkit.serving.models import ServedModel, find_model, load_model
from albertkit.serving.request_schemas import TaskRequest
from albertkit.serving.settings import ServingSettings
from albertkit.serving.work import DEADLINE_HEADER, Ticket

torch: Any = optional("torch", extra="torch")

logger = logging.getLogger("albertkit.serving")

MODEL: ContextVar[str] = ContextVar("model")
"""The model of the request that a thread computes, for the log."""
_PROBE_SECONDS = 10.0  # for all models together
_PROBE_AGE = 1.0  # seconds for which the result of a probe is reused


class Service:
    """The models, their queue, and the threads of requests. Create it outside of the event loop.

    Args:
        settings: settings of the server.
        models: loaded models; None to load those of the settings.

    Raises:
        AlbertKitError: a model cannot be loaded, its scores are wrong, or a thread cannot start.
    """

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
            self.queue = RowQueue(
                self.metrics,
                max_requests=settings.max_requests,
                batch_wait=settings.batch_wait,
                torch_threads=threads,
            )
        except RuntimeError as error:
            raise ConfigError(
                f"the server could not start its {settings.max_requests + 1} threads: {error}. Decrease "
                "max_requests (--max-requests), or raise the limits of this process (ulimit -v, ulimit -u)."
            ) from error
        self._reloading = threading.Lock()
        self._probed: tuple[float, dict[str, bool]] = (float("-inf"), {})
        self._probing: asyncio.Future[dict[str, bool]] | None = None

    def close(self) -> None:
        """Stop the threads after they have finished their work."""
        self._pool.shutdown()
        self.queue.close()

    def describe(self) -> list[str]:
        """Return a line for each model: its name and its tasks."""
        return [f"{name} ({', '.join(model.pipelines)})" for name, model in self.models.items()]

    async def answer(
        self,
        task_request: TaskRequest,
        request: fastapi.Request,
        *,
        seconds: float | None = None,
        shape: Callable[[list[Any]], Any] | None = None,
    ) -> fastapi.Response:
        """Return the response to a request.

        Args:
            task_request: the validated content of the request.
            request: the HTTP request, whose client may disconnect.
            seconds: maximum time in seconds for the response, at most the server's maximum.
            shape: function that converts the results to the content of the response; None for the format of
                our own routes.

        Raises:
            ApiError: the request cannot be computed, or not in time.
        """
        served = find_model(self.models, task_request.model, task_request.task)
        self._check_limits(task_request)
        limits = self.settings
        param = None if seconds is None else DEADLINE_HEADER
        seconds = limits.max_seconds if seconds is None else min(seconds, limits.max_seconds)
        characters = task_request.characters() if task_request.computes else 0
        ticket = Ticket(characters=characters, seconds=seconds, max_tokens=limits.max_tokens, param=param)
        self.queue.enter(ticket)
        job = asyncio.get_running_loop().run_in_executor(
            self._pool, self._work, served, task_request, ticket, shape
        )
        job.add_done_callback(lambda _: self.queue.leave(ticket))
        gone = asyncio.ensure_future(_wait_for_disconnect(request))
        try:
            await asyncio.wait(
                {job, gone}, timeout=max(0.0, ticket.seconds_left()), return_when=asyncio.FIRST_COMPLETED
            )
            if not job.done():
                raise (
                    ApiError(CLIENT_GONE, "client_gone", "the client closed the connection")
                    if gone.done()
                    else ticket.late()
                )
        finally:
            gone.cancel()
            if not job.done():  # also if the server stops
                ticket.cancel(ApiError(CLIENT_GONE, "cancelled", "the request was cancelled"))
        content = job.result()
        if isinstance(content, ApiError):
            raise content
        self._note(served, request.scope["route"].path_format, ticket)
        return fastapi.Response(content, media_type="application/json")

    def reload(self) -> None:
        """Reload all models while requests are served. A model that cannot be loaded stays unchanged."""
        with self._reloading:
            reloaded = []
            for name in self.models:
                before = list(self.models[name].pipelines)
                try:
                    self.models[name] = load_model(name, self.settings)
                    reloaded.append(name)
                except Exception as error:  # damaged files raise anything
                    logger.error("the model %s was not reloaded, and its old weights stay: %s", name, error)
                after = list(self.models[name].pipelines)
                if after != before:
                    logger.warning(
                        "%s: the tasks changed from %s to %s", name, ", ".join(before), ", ".join(after)
                    )
                outcome = "done" if name in reloaded else "failed"
                self.metrics.reloads.labels(name, outcome).inc()
            self._probed = (float("-inf"), {})
            if reloaded:
                logger.info("reloaded %s", ", ".join(reloaded))

    async def ready(self) -> dict[str, bool]:
        """Return for each model whether it computes a probe correctly and in time; kept for a second."""
        when, states = self._probed
        if time.monotonic() - when <= _PROBE_AGE:
            return states
        if self._probing is None or self._probing.done():  # further calls wait for the same probe
            self._probing = asyncio.ensure_future(asyncio.to_thread(self._probe))
        return await asyncio.shield(self._probing)

    def _probe(self) -> dict[str, bool]:
        end = time.monotonic() + _PROBE_SECONDS
        states = {
            name: self.queue.is_alive() and model.probe(self.queue, seconds=end - time.monotonic())
            for name, model in self.models.items()
        }
        self._probed = (time.monotonic(), states)
        return states

    def _check_limits(self, task_request: TaskRequest) -> None:
        items, characters, limits = len(task_request.items()), task_request.characters(), self.settings
        if items > limits.max_items:
            todo = "Send them in several requests"
            raise too_much("too_many_items", "inputs", items, limits.max_items, todo)
        if characters > limits.max_characters:
            raise ApiError(
                413,
                "too_many_characters",
                f"the request {task_request.counting.format(f'{characters:,} characters')}. Expected at most "
                f"{limits.max_characters:,}. {task_request.to_send_less}.",
            )

    def _work(
        self,
        served: ServedModel,
        task_request: TaskRequest,
        ticket: Ticket,
        shape: Callable[[list[Any]], Any] | None,
    ) -> bytes | ApiError:
        """Return the content of the response. It runs in a thread of the request."""
        begin = time.monotonic()
        MODEL.set(served.name)
        pipeline = copy(served.pipelines[task_request.task] if task_request.task else served.any_pipeline)
        pipeline.engine = QueuedEngine(served.engine, self.queue, ticket, served.budget)
        try:
            if ticket.error is not None:
                raise ticket.error
            results = task_request.results(pipeline)
            usage = {"prompt_tokens": ticket.tokens, "total_tokens": ticket.tokens}
            ours = {"model": served.name, "usage": usage, **task_request.content(results)}
            response = shape(results) if shape else ours
            content = json.dumps(response, ensure_ascii=False, allow_nan=False).encode("utf-8")
        except ApiError as error:
            return error
        except (ConfigError, DataError, TokenizerError) as error:
            _clear_frames(error)
            return ApiError(
                422,
                "invalid",
                task_request.message_for_client(str(error)),
                param=task_request.field_of(error),
            )
        except CheckpointError as error:
            logger.error("%s: %s", served.name, error)
            return ApiError(500, "not_finite", f"{error} No results are returned.")
        except Exception:
            logger.exception("%s: a request for %s failed", served.name, task_request.task or "tokens")
            return internal_error()
        finally:
            waited = ticket.queue_seconds + ticket.compute_seconds
            ticket.tokenize_seconds = time.monotonic() - begin - waited
        return content

    def _note(self, served: ServedModel, route: str, ticket: Ticket) -> None:
        seconds = {
            "tokenize": max(0.0, ticket.tokenize_seconds),
            "queue": max(0.0, ticket.queue_seconds),
            "compute": ticket.compute_seconds,
            "total": time.monotonic() - ticket.arrived,
        }
        for stage, value in seconds.items():
            self.metrics.stages.labels(stage, served.name, route).observe(value)


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
