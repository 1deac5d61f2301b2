"""Tests of the Dockerfile without Docker: they read every line and run its commands.

The tests replace the paths of the image by paths in a temporary folder. The environment of the image has
links to the libraries of the current environment, so pip downloads nothing. USER needs root and FROM needs a
daemon: the tests only read these lines.
"""

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from places import ROOT
from requirements import required

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")


def instructions() -> list[tuple[str, str]]:
    """Return (instruction, arguments) of every line except comments."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    return [(line.split()[0], line.partition(" ")[2]) for line in lines if line and not line.startswith("#")]


def values(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def test_every_instruction_is_known_and_the_image_is_slim_and_not_root() -> None:
    known = "FROM WORKDIR COPY RUN ARG USER ENV EXPOSE HEALTHCHECK STOPSIGNAL ENTRYPOINT CMD"
    assert {name for name, _ in instructions()} <= set(known.split())
    assert all("-slim" in image for image in values("FROM"))
    (user,) = values("USER")
    assert any(re.search(rf"useradd .*--uid [1-9]\d+ {user}$", command) for command in values("RUN"))
    names = [name for name, _ in instructions()]
    assert names.index("USER") > max(number for number, name in enumerate(names) if name == "RUN")
    for copied in values("COPY"):
        *sources, _ = copied.split()
        if not copied.startswith("--from"):
            ignored = (ROOT / ".dockerignore").read_text().splitlines()
            assert all((ROOT / source).exists() and f"!{source}" in ignored for source in sources)


@pytest.mark.slow
def test_its_commands_build_a_healthy_server(tmp_path: Path) -> None:
    source, wheels = tmp_path / "source", tmp_path / "wheels"
    source.mkdir()
    build, install, _ = values("RUN")
    for copied in values("COPY")[:2]:
        *names, _ = copied.split()
        for name in names:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, source / name)
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    build = build.replace("python", sys.executable, 1).replace("/wheels", str(wheels))
    subprocess.run(f"{build} --no-build-isolation", shell=True, cwd=source, env=environment, check=True)
    assert len(list(wheels.glob("*.whl"))) == 1

    # This environment has links to the libraries that the image contains, and no others.
    image = tmp_path / "image"
    subprocess.run([sys.executable, "-m", "venv", image], check=True)
    (site_packages,) = image.glob("lib/python3*/site-packages")
    for name in required("serve"):
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (site_packages / top).exists():
                (site_packages / top).symlink_to(str(distribution.locate_file(top)))
    install, _, remove = install.partition(" && ")
    assert remove.startswith("rm -rf /tmp/")
    install = install.replace("python", str(image / "bin/python"), 1).replace("/tmp/wheels", str(wheels))
    install = install.replace("/tmp/constraints.txt", str(ROOT / "constraints.txt"))
    install = install.replace("--constraint", "--no-index --no-deps --constraint")
    subprocess.run(install, shell=True, env=environment, check=True)
    assert (site_packages / "albertkit").is_dir()
    assert subprocess.run([image / "bin/python", "-c", "import torch"], capture_output=True).returncode == 1

    entry, command = (json.loads(values(name)[0]) for name in ("ENTRYPOINT", "CMD"))
    assert "/readyz" in values("HEALTHCHECK")[0]
    settings = dict(pair.split("=") for pair in values("ENV")[0].split())
    server = subprocess.Popen(
        [image / "bin" / entry[0], *command, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment | settings,
        cwd=tmp_path,
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        port = re.search(r":(\d+)$", line.strip())
        assert port, line
        check = values("HEALTHCHECK")[0].partition("CMD ")[2].replace(":8080", f":{port[1]}")
        probe = shlex.split(check)
        assert probe[0] == "python"
        subprocess.run([image / "bin/python", *probe[1:]], check=True, timeout=60)
        server.send_signal(getattr(signal, values("STOPSIGNAL")[0]))
        assert server.wait(60) == 0
        time.sleep(0.1)
        assert subprocess.run([image / "bin/python", *probe[1:]], capture_output=True).returncode == 1
    finally:
        server.kill()
        server.communicate()
