"""What a server counts, for Prometheus.

With several processes each writes its figures into the folder PROMETHEUS_MULTIPROC_DIR, and any of them can
tell the sums.
"""

import os

from albertkit.serving.libraries import prometheus_client

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Metrics:
    """The figures of one server."""

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()
        self.registry = prometheus_client.CollectorRegistry()
        self._requests = prometheus_client.Counter(
            "albertkit_requests", "Requests answered", ["route", "status"], registry=self.registry
        )
        self._errors = prometheus_client.Counter(
            "albertkit_errors", "Requests without a result, by kind", ["kind"], registry=self.registry
        )
        self._reloads = prometheus_client.Counter(
            "albertkit_reloads", "Reloads of a model", ["model", "outcome"], registry=self.registry
        )
        self.requests_in_work = prometheus_client.Gauge(
            "albertkit_requests_in_work",
            "Requests that are worked on or wait",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.queued_rows = prometheus_client.Gauge(
            "albertkit_queue_rows",
            "Rows (texts, windows, choices) that wait to be computed",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self._batch_rows = prometheus_client.Histogram(
            "albertkit_batch_rows", "Rows computed at once", buckets=_POWERS, registry=self.registry
        )
        self._batch_tokens = prometheus_client.Histogram(
            "albertkit_batch_tokens", "Tokens computed at once", buckets=_POWERS, registry=self.registry
        )
        self._stages = prometheus_client.Histogram(
            "albertkit_stage_seconds",
            "Time of a request in a stage: tokenize, queue, compute, total",
            ["stage", "model", "task"],
            buckets=_SECONDS,
            registry=self.registry,
        )

    def request(self, route: str, status: int) -> None:
        """Count an answer."""
        self._requests.labels(route, str(status)).inc()

    def error(self, kind: str) -> None:
        """Count a request without a result."""
        self._errors.labels(kind).inc()

    def reload(self, model: str, outcome: str) -> None:
        """Count a reload, "done" or "failed"."""
        self._reloads.labels(model, outcome).inc()

    def batch(self, *, rows: int, tokens: int) -> None:
        """Count what was computed at once."""
        self._batch_rows.observe(rows)
        self._batch_tokens.observe(tokens)

    def stages(self, model: str, task: str, **seconds: float) -> None:
        """Note the time of a request in each stage."""
        for stage, value in seconds.items():
            self._stages.labels(stage, model, task).observe(value)

    def text(self) -> bytes:
        """Return all figures in the format that Prometheus reads."""
        registry = self.registry
        if os.environ.get(FOLDER_VARIABLE):
            from prometheus_client import multiprocess

            registry = prometheus_client.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)
        return prometheus_client.generate_latest(registry)
