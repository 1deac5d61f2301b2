"""Start a server and send requests to it with Python's standard library.

    python examples/call_server.py

The server needs the `serve` extra: pip install 'albertkit[serve]'. docs/how-to/serve.md describes the routes,
and so does a running server at /openapi.json.
"""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

COMMAND = [sys.executable, "-m", "albertkit", "serve", "--model", "bundled", "--port", "0"]


def ask(address: str, route: str, **body: Any) -> Any:
    """Send a request with a JSON body and return the response, which may contain an error."""
    request = urllib.request.Request(
        f"{address}/v1/{route}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        return json.load(error)


def main() -> None:
    server = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()  # "serving bundled on http://127.0.0.1:43210"
        if not line:
            sys.exit(server.wait())  # the server has printed the error
        address = line.split()[-1]
        answer = ask(address, "fill-mask", input="She opened the [MASK] and went into the room.", top_k=3)
        for word in answer["results"][0][0]:
            print(f"{word['score']:6.1%}  {word['token_str']}")

        pair = {"text": "She got up early.", "text_pair": "After breakfast, she took the bus to work."}
        print("\norder:", ask(address, "order", input=pair)["results"][0]["label"])
        vectors = ask(address, "embeddings", input=["A dog barks.", "The cat sleeps."])["data"]
        print("vectors:", len(vectors), "of", len(vectors[0]["embedding"]), "numbers")
        print("refused:", ask(address, "fill-mask", input="There is no mask.")["error"]["message"])
    finally:
        server.terminate()  # the server finishes its requests, then exits
        server.wait()


if __name__ == "__main__":
    main()
