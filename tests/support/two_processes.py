"""A function that runs a command in two processes of one training run, as `torchrun` does.

    errors = in_two_processes(["albertkit", "finetune", ...], warm_shell)

`warm_shell` is a fixture in conftest.py. Both processes are forks of its warm process. `["python", FILE]`
runs a file.
"""

import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from shutil import which
from tempfile import TemporaryFile


def in_two_processes(command: Sequence[object], shell: dict[str, str], *, timeout: float = 100) -> str:
    """Run a command in two connected processes, and return their output to stderr.

    Args:
        command: `albertkit` or `python`, and its arguments.
        shell: The environment variables of warm commands.
        timeout: The time in seconds after which both processes are killed.

    Raises:
        AssertionError: A process failed, or the processes exceeded the timeout.
    """
    program = which(str(command[0]), path=shell["PATH"])
    assert program
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # If the interface is not set, gloo asks the name server for the address of this machine.
    world = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        "WORLD_SIZE": "2",
    }
    deadline = time.monotonic() + timeout
    with TemporaryFile("w+") as first, TemporaryFile("w+") as second:
        processes = [
            subprocess.Popen(
                [program, *map(str, command[1:])],
                env=shell | world | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stderr=file,
            )
            for rank, file in enumerate((first, second))
        ]
        try:
            # If a process fails, the other process waits for it forever, so stop both.
            while None in (states := [process.poll() for process in processes]) and not any(states):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.01)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGUSR1)
                    process.wait()
        errors = ""
        for file in (first, second):
            file.seek(0)
            errors += file.read()
    assert states == [0, 0], f"states {states} (None: the process did not end):\n{errors}"
    return errors
