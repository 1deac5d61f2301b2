"""The metrics of a server, for Prometheus.

With several processes, each writes its metrics to the folder PROMETHEUS_MULTIPROC_DIR, and any process can
return the sums.
"""

import os
from functools import partial
from pathlib import Path

from albertkit.serving.libraries import prometheus_client

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()
        self.registry = prometheus_client.CollectorRegistry()
        counter = partial(prometheus_client.Counter, registry=self.registry)
        gauge = partial(prometheus_client.Gauge, registry=self.registry, multiprocess_mode="livesum")
        histogram = partial(prometheus_client.Histogram, registry=self.registry)
        self.requests = counter(
            "albertkit_requests",
            "Requests by route and HTTP status (499: the client closed the connection)",
            ["route", "status"],
        )
        self.errors = counter(
            "albertkit_errors",
            "Requests that failed, by type of the error, HTTP status and model (if it is known)",
            ["type", "status", "model"],
        )
        self.reloads = counter(
            "albertkit_reloads", "Reloads of a model by outcome (done or failed)", ["model", "outcome"]
        )
        self.requests_in_progress = gauge("albertkit_requests_in_progress", "Requests in progress or waiting")
        self.queued_rows = gauge(
            "albertkit_queue_rows", "Rows (texts, windows of long texts, choices) waiting to be computed"
        )
        self.batch_rows = histogram("albertkit_batch_rows", "Rows in a batch", buckets=_POWERS)
        self.batch_tokens = histogram("albertkit_batch_tokens", "Tokens in a batch", buckets=_POWERS)
        self.stages = histogram(
            "albertkit_stage_seconds",
            "Seconds that a successful request spent in a stage (tokenize, queue, compute) and in total",
            ["stage", "model", "route"],
            buckets=_SECONDS,
        )

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        registry = self.registry
        if folder := os.environ.get(FOLDER_VARIABLE):
            _forget_dead_processes(folder)
            from prometheus_client import multiprocess

            registry = prometheus_client.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)
        return prometheus_client.generate_latest(registry)


def _forget_dead_processes(folder: str) -> None:
    """Remove the gauges of workers that have died; their counters stay in the sums."""
    from prometheus_client import multiprocess

    for path in Path(folder).glob("gauge_live*_*.db"):
        process_id = int(path.stem.rpartition("_")[2])
        try:
            os.kill(process_id, 0)
        except ProcessLookupError:
            multiprocess.mark_process_dead(process_id, folder)
