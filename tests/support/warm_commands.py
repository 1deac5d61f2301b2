"""Commands that start in milliseconds: forks of a process that has already imported their modules.

    python tests/support/warm_commands.py FOLDER

The process listens at FOLDER/socket. FOLDER/bin has the commands `albertkit`, `python`, `torchrun` and `pip`.
Each command runs in a fork with the folder, environment and streams of the caller, so pipes, redirections and
loops of a shell work. With BLANK_PICTURES, Matplotlib writes only the header of each picture.
The caller forwards SIGINT and SIGTERM, and sends SIGKILL for SIGUSR1. `torchrun` reads
its options, but runs its script in a single process. `pip install` only checks that the extras exist.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import tomllib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pictures import write_blank
from places import ROOT

COMMANDS = ("albertkit", "pip", "python", "torchrun")
IMPORTED = (
    "albertkit.cli.main",
    "albertkit.finetuning.finetune",
    "albertkit.finetuning.suites",
    "albertkit.pipelines",
    "albertkit.pretraining.prepare",
    "albertkit.pretraining.run",
    "matplotlib.figure",
    "matplotlib.pyplot",
    "pyarrow.parquet",
    "scipy.stats",
    "sklearn.metrics",
    "torch._dynamo",
    "tensorboard.compat.proto.event_pb2",
    "tensorboard.summary.writer.record_writer",
)
CLIENT = """#!{python} -IS
import json, os, signal, socket, sys, time
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(request)
    process = int.from_bytes(server.recv(4, socket.MSG_WAITALL), "big")
    for name, passed in (("SIGINT", "SIGINT"), ("SIGTERM", "SIGTERM"), ("SIGUSR1", "SIGKILL")):
        number = getattr(signal, passed)
        signal.signal(getattr(signal, name), lambda *_, number=number: os.kill(process, number))
    status = server.recv(1)
    while not status and os.path.exists("/proc/%d" % process):  # killed, but it may still hold locks
        time.sleep(0.001)
    sys.exit(int.from_bytes(status or b"\\xff", "big"))
"""


@contextmanager
def warm_commands(folder: Path) -> Iterator[dict[str, str]]:
    """Start the process, and yield the environment variables for shells that use its commands."""
    (folder / "bin").mkdir()
    for name in COMMANDS:
        path = folder / "bin" / name
        path.write_text(CLIENT.format(python=sys.executable, address=str(folder / "socket")))
        path.chmod(0o755)
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TOKENIZERS_PARALLELISM"), "1")
    environment = os.environ | one_thread | {"HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg", "COLUMNS": "120"}
    environment |= {"BLANK_PICTURES": "1"}
    command = [sys.executable, __file__, str(folder)]
    with subprocess.Popen(command, env=environment, start_new_session=True) as server:
        try:
            while not (folder / "socket").exists():
                assert server.poll() is None, "the warm process ended"
                time.sleep(0.01)
            yield environment | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        finally:
            os.killpg(server.pid, signal.SIGKILL)  # also ends background processes of commands


def main() -> None:
    folder = Path(sys.argv[1])
    gc.disable()  # the imported modules are no garbage
    for name in IMPORTED:
        importlib.import_module(name)
    import torch

    from albertkit.tokenization.tokenizer import AutoTokenizer
    from albertkit.training.throughput import measured_flops

    tokenizer = AutoTokenizer.from_pretrained("bundled")
    tokenizer.save_pretrained(folder / "tokenizer")  # computes the tables of characters
    measured_flops(torch.device("cpu"), torch.float32)  # which each training run would measure again
    gc.freeze()  # the garbage collector must not write to shared memory
    gc.enable()

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "starting"))
    listener.listen()
    (folder / "starting").rename(folder / "socket")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            client.sendall(bytes([serve(client)]))
            os._exit(0)
        client.close()


def serve(client: socket.socket) -> int:
    """Run the command of a client with its folder, environment and streams, and return the exit status."""
    length, streams, _, _ = socket.recv_fds(client, 4, 3)
    client.sendall(os.getpid().to_bytes(4, "big"))  # the client forwards signals to this process
    with client.makefile("rb") as file:
        arguments, folder, environment = json.loads(file.read(int.from_bytes(length, "big")))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    status = 0
    if "BLANK_PICTURES" in environment:
        sys.modules["matplotlib.figure"].Figure.savefig = write_blank
    try:
        run(Path(arguments[0]).name, arguments[1:])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status & 255


def run(command: str, arguments: list[str]) -> None:
    if command == "torchrun":
        from torch.distributed.run import parse_args

        options = parse_args(arguments)
        command, arguments = (
            "python",
            ["-m"] * options.module + [options.training_script, *options.training_script_args],
        )
    if command == "pip":
        check_extras(arguments)
    elif command == "albertkit":
        from albertkit.cli.main import run as run_albertkit

        sys.argv = ["albertkit", *arguments]
        run_albertkit()
    elif arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = ""
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")


def check_extras(arguments: list[str]) -> None:
    """Exit with an error if an extra in `pip install 'albertkit[extra]'` is not in pyproject.toml."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    verb, *requirements = arguments
    for requirement in requirements:
        name, _, names = requirement.rstrip("]").partition("[")
        if verb != "install" or (
            names and (name not in (".", "albertkit") or {*names.split(",")} - extras.keys())
        ):
            sys.exit(f"pip {' '.join(arguments)}: no such extra")


if __name__ == "__main__":
    main()
