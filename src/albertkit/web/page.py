"""A static page that runs an exported model in the browser: our files, three libraries and the model.

    index.html, service-worker.js    at the top, because a service worker serves the folder that it is in
    page/                            scripts and styles, some of them the playground's
    page/library/                    the three libraries
    page/model/                      what the worker downloads, compressed

`{{NAME}}` in index.html is the section NAME of the playground, because both pages use the same scripts. Large
files are stored compressed and the page decompresses them, so their size does not depend on the host.
"""

import gzip
import hashlib
import lzma
import re
from importlib.resources import files
from pathlib import Path

from albertkit.files import json_text

INDEX, SERVICE_WORKER, FOLDER = "index.html", "service-worker.js", "page"
TASKS = (
    "fill-mask",
    "question-answering",
    "text-classification",
    "token-classification",
    "feature-extraction",
)
"""Tasks that the page has a panel for."""
_PLAYGROUND = (
    *("address.js", "icon.svg", "panels.js", "playground.css", "sentence.js", "settled.js", "texts.js"),
)
_PANEL = re.compile(r'  <section [^>]*\bid="([\w-]+)".*?</section>', re.DOTALL)
_SHARED = ("shared.css", "shared.js")
_WASM = "ort-wasm-simd-threaded.wasm"


def is_of_page(path: str) -> bool:
    """Return whether a file of an exported folder, by its path in it, is part of the page."""
    return path in (INDEX, SERVICE_WORKER) or path.startswith(f"{FOLDER}/")


def write_page(
    folder: Path, *, name: str, task: str, model: str, tokenizer: tuple[str, ...], libraries: dict[str, bytes]
) -> None:
    """Write the page into the folder of an exported model.

    Args:
        folder: has the model, config.json and the tokenizer's files.
        name: of the model, which the page shows.
        task: one of `TASKS`.
        model: path of the graph that the page runs.
        tokenizer: names of the tokenizer's files that the page reads.
        libraries: content of the files of the libraries, by name.
    """
    package = files("albertkit")
    own = package / "web" / "html"
    contents = {f"{FOLDER}/library/{one}": content for one, content in libraries.items()}
    scripts = {one.name: one for one in own.iterdir()}
    scripts |= {one: package / "serving" / "html" / one for one in _PLAYGROUND}
    scripts |= {one: package / "inspection" / "html" / one for one in _SHARED}
    index, service_worker = scripts.pop(INDEX), scripts.pop(SERVICE_WORKER)
    contents |= {f"{FOLDER}/{one}": source.read_bytes() for one, source in scripts.items()}
    playground = (package / "serving" / "html" / "playground.html").read_text(encoding="utf-8")
    panels = {found[1]: found[0] for found in _PANEL.finditer(playground)}
    contents[INDEX] = _filled(index.read_text(encoding="utf-8"), panels).encode()
    downloads = {
        _WASM: contents.pop(f"{FOLDER}/library/{_WASM}"),
        "model.onnx": (folder / model).read_bytes(),
        **{one: (folder / one).read_bytes() for one in ("config.json", *tokenizer)},
    }
    packed = {}
    places = {}
    for one, content in downloads.items():
        suffix, packed[one] = _compressed(content)
        places[one] = f"{'library' if one == _WASM else 'model'}/{one}{suffix}"
    version = _version({**contents, **packed}, name, task)
    about = {
        "name": name,
        "task": task,
        "version": version,
        "downloads": [
            {
                "name": one,
                "path": places[one],
                "bytes": len(packed[one]),
                "size": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
            for one, content in downloads.items()
        ],
    }
    contents[f"{FOLDER}/files.json"] = (json_text(about, indent=2, ensure_ascii=False) + "\n").encode()
    kept = ["./", *sorted(one for one in contents if not one.endswith(".txt"))]
    values = {"files": json_text(kept), "version": version}
    contents[SERVICE_WORKER] = _filled(service_worker.read_text(encoding="utf-8"), values).encode()
    contents |= {f"{FOLDER}/{places[one]}": content for one, content in packed.items()}
    for path, content in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def _compressed(content: bytes) -> tuple[str, bytes]:
    """Return the suffix and the content of a compressed file.

    Browsers decompress gzip themselves. xz needs a library and three times as long, so it is used where it
    saves a tenth at least: 39% of the WebAssembly and 33% of tokenizer.json, but nothing of the weights.
    """
    gz = gzip.compress(content, 9, mtime=0)
    xz = lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)
    return (".xz", xz) if len(xz) < 0.9 * len(gz) else (".gz", gz)


def _filled(template: str, values: dict[str, str]) -> str:
    """Return a template with each `{{name}}` replaced by its value."""
    return re.sub(r"\{\{([\w-]+)\}\}", lambda found: values[found[1]], template)


def _version(contents: dict[str, bytes], *others: str) -> str:
    """Return a name for this content. Browsers delete their copies of other versions."""
    digest = hashlib.sha256("\n".join(others).encode())
    for name, content in sorted(contents.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]
