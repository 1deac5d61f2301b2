"""A server process that measures itself. Its arguments are a model folder and serving settings as JSON.

The first line of its output is its port. For each line on standard input, it prints its peak memory (in MB)
and the longest time that its event loop was blocked (in seconds) since the previous line.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from albertkit.serving.app import Service
from albertkit.serving.server import free_memory, listen, make_server
from albertkit.serving.settings import ServingSettings

_TICK = 0.01  # seconds
_PEAK_SINCE_NOW = "5"  # written to clear_refs


def peak_megabytes() -> float:
    """Return the peak memory of this process in MB, and reset the peak."""
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text(_PEAK_SINCE_NOW)
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000


class Watch:
    """Measures how late the event loop runs a timer."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            wall, computed = time.monotonic(), time.process_time()
            await asyncio.sleep(_TICK)
            # Count only CPU time of this process, because other processes may delay the timer too.
            late = min(time.monotonic() - wall - _TICK, time.process_time() - computed)
            self.longest = max(self.longest, late)


async def main(folder: str, settings: str) -> None:
    """Serve until standard input ends."""
    service = Service(ServingSettings(models={"model": folder}, port=0, device="cpu", **json.loads(settings)))
    free_memory()
    server = make_server(service)
    listening = listen(service.settings)
    listening.listen(2048)
    watch = Watch()
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(server.serve(sockets=[listening])), loop.create_task(watch.run())]
    print(listening.getsockname()[1], flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps({"megabytes": peak_megabytes(), "blocked": watch.longest}), flush=True)
        watch.longest = 0.0
    server.should_exit = True
    await tasks[0]
    tasks[1].cancel()
    service.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
