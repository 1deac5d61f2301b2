"""Tests of the files for Docker Compose and Kubernetes in docs/how-to/deploy.md, without Docker.

They run the container's command with the variables of a file, the models in another folder, and free ports.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from places import ROOT

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")

from random_models import save_random_model
from serving_server import Running, wait_for

from albertkit.cli.verbs import COMMANDS
from albertkit.modeling.heads import AlbertForSequenceClassification
from albertkit.serving.server import _DRAIN_MARGIN
from albertkit.serving.settings import KEY_VARIABLE, ServingSettings
from albertkit.tokenization.tokenizer import AlbertTokenizer

SETTINGS = ServingSettings(models={"a": "bundled"})
SECONDS_TO_STOP = SETTINGS.max_seconds + _DRAIN_MARGIN


def files() -> dict[str, list[Any]]:
    """Return the documents of each file on the page."""
    page = (ROOT / "docs/how-to/deploy.md").read_text(encoding="utf-8")
    blocks = re.findall(r'```yaml title="(.+?)"\n(.*?)```', page, re.DOTALL)
    return {name: list(yaml.safe_load_all(text)) for name, text in blocks}


COMPOSE = files()["compose.yaml"][0]
DEPLOYMENT, SERVICE = files()["albertkit.yaml"]
SERVED = COMPOSE["services"]["albertkit"]
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
PORTS = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}


def image(instruction: str) -> list[str]:
    """Return the arguments of the lines of the Dockerfile with an instruction."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    return [line.partition(" ")[2] for line in lines if line.startswith(f"{instruction} ")]


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def test_the_variables_are_options_and_all_ports_and_names_agree() -> None:
    known = {flag.variable for flag in COMMANDS["serve"].flags()} | {KEY_VARIABLE}
    variables = {each["name"]: each.get("value") for each in CONTAINER["env"]}
    assert variables.keys() | SERVED["environment"].keys() <= known
    for values in (variables, SERVED["environment"]):
        assert all(value is None or isinstance(value, str) for value in values.values())
        assert (PORTS["http"], PORTS["metrics"]) == (
            SETTINGS.port,
            int(values["ALBERTKIT_SERVE_METRICS_PORT"]),
        )
    published = [port.split(":") for port in SERVED["ports"]]
    assert [(host, int(target)) for host, _, target in published] == [
        ("127.0.0.1", port) for port in PORTS.values()
    ]
    assert {secret: f"/run/secrets/{secret}" for secret in SERVED["secrets"]} == {
        "key": SERVED["environment"]["ALBERTKIT_SERVE_KEY_FILE"]
    }
    assert COMPOSE["secrets"].keys() == {"key"}
    annotations = DEPLOYMENT["spec"]["template"]["metadata"]["annotations"]
    assert int(annotations["prometheus.io/port"]) == PORTS["metrics"]
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert labels == DEPLOYMENT["spec"]["selector"]["matchLabels"] == SERVICE["spec"]["selector"]
    assert [port["targetPort"] for port in SERVICE["spec"]["ports"]] == ["http"]
    mounted = {mount["name"] for mount in CONTAINER["volumeMounts"]}
    assert mounted == {volume["name"] for volume in POD["volumes"]}


def test_the_containers_are_not_root_and_cannot_write_and_have_limits() -> None:
    (user,) = re.findall(r"useradd .*--uid (\d+)", " ".join(image("RUN")))
    security = POD["securityContext"]
    assert SERVED["user"] == f"{user}:{user}"
    assert (security["runAsUser"], security["runAsNonRoot"]) == (int(user), True)
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert (SERVED["read_only"], SERVED["cap_drop"], SERVED["tmpfs"]) == (True, ["ALL"], ["/tmp"])
    assert {"name": "tmp", "mountPath": "/tmp"} in CONTAINER["volumeMounts"]
    assert CONTAINER["resources"]["limits"] == {"cpu": "2", "memory": "1Gi"}
    assert SERVED["deploy"]["resources"]["limits"] == {"cpus": "2", "memory": "1G"}
    (pause,) = [int(word) for word in CONTAINER["lifecycle"]["preStop"]["exec"]["command"] if word.isdigit()]
    assert POD["terminationGracePeriodSeconds"] >= pause + SECONDS_TO_STOP
    assert seconds(SERVED["stop_grace_period"]) >= SECONDS_TO_STOP
    assert POD["enableServiceLinks"] is False  # variables of a Service could look like options


@pytest.fixture(scope="module")
def models(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    tokenizer = AlbertTokenizer(tiny_vocabulary)
    save_random_model(AlbertForSequenceClassification, tokenizer, root / "reviews", seed=0)
    return root


@contextmanager
def container(
    folder: Path, arguments: list[str], variables: dict[str, str]
) -> Iterator[tuple[Running, Running]]:
    """Run the command of the image; yield the server at its port, and at its second port.

    The user's folder and the working directory must stay empty, as on a read-only file system.
    """
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [free.getsockname()[1] for free in (one, other)]
    for name in ("home", "work", "tmp"):
        (folder / name).mkdir()
    inherited = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH")}
    of_the_image = dict(pair.split("=") for pair in " ".join(image("ENV")).split())
    assert of_the_image["ALBERTKIT_SERVE_HOST"] == "0.0.0.0"
    changed = {
        "ALBERTKIT_SERVE_HOST": "127.0.0.1",
        "ALBERTKIT_SERVE_PORT": str(ports[0]),
        "ALBERTKIT_SERVE_METRICS_PORT": str(ports[1]),
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    assert json.loads(image("ENTRYPOINT")[0]) == ["albertkit"]
    process = subprocess.Popen(
        [sys.executable, "-m", "albertkit", *arguments],
        env=inherited | of_the_image | variables | changed,
        cwd=folder / "work",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        server, operations = (Running(None, port) for port in ports)  # type: ignore[arg-type]
        assert process.stderr is not None
        for expected in (
            f"serving /metrics, /healthz and /readyz on port {ports[1]}",
            "serving reviews (text-classification",
        ):
            line = process.stderr.readline()
            assert json.loads(line)["message"].startswith(expected), line
        wait_for(lambda: operations.ask("/readyz").status == 200)
        yield server, operations
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, output) == (0, "")
    lines = [line for line in map(json.loads, errors.splitlines()) if line["path"] == "/v1/classify"]
    assert [line["status"] for line in lines] == [200, 401]
    assert [*(folder / "home").iterdir(), *(folder / "work").iterdir()] == []


def check_requests(server: Running) -> None:
    right = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
    reply = server.ask("/v1/classify", {"input": "a fox"}, headers=right)
    assert (reply.status, reply.json["model"]) == (200, "reviews")
    assert server.ask("/v1/classify", {"input": "a fox"}).status == 401


def test_the_command_of_the_pod_answers_its_probes_on_the_named_ports(models: Path, tmp_path: Path) -> None:
    variables = {each["name"]: each.get("value", "secret") for each in CONTAINER["env"]}
    variables["ALBERTKIT_SERVE_MODEL"] = variables["ALBERTKIT_SERVE_MODEL"].replace("/models", str(models))
    with container(tmp_path, CONTAINER["args"], variables) as (server, operations):
        named = {"http": server, "metrics": operations}
        for kind, path in (("startup", "/healthz"), ("liveness", "/healthz"), ("readiness", "/readyz")):
            probe = CONTAINER[f"{kind}Probe"]
            assert probe["httpGet"] == {"path": path, "port": "metrics"}
            reply = named[probe["httpGet"]["port"]].ask(path)
            assert reply.status == 200
        annotations = DEPLOYMENT["spec"]["template"]["metadata"]["annotations"]
        assert operations.ask(annotations["prometheus.io/path"]).status == 200
        check_requests(named[SERVICE["spec"]["ports"][0]["targetPort"]])
    # A probe of the server takes up to 10 seconds.
    assert CONTAINER["readinessProbe"]["timeoutSeconds"] > 10


def test_the_command_of_compose_passes_its_health_check(models: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    places = {"/run/secrets": str(tmp_path), "/models": str(models)}
    variables = dict(SERVED["environment"])
    for inside, here in places.items():
        variables = {name: value.replace(inside, here) for name, value in variables.items()}
    with container(tmp_path, SERVED["command"], variables) as (server, operations):
        kind, program, *arguments = SERVED["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "python")
        code = arguments[-1].replace(f":{PORTS['metrics']}/", f":{operations.port}/")
        assert str(operations.port) in code
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
        wrong = code.replace("/readyz", "/v1/models")
        assert subprocess.run([sys.executable, "-c", wrong], capture_output=True).returncode == 1
        check_requests(server)
