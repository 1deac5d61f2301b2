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
import html
import lzma
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from albertkit.datasets.inputs import read_inputs
from albertkit.errors import DataError, short
from albertkit.files import json_text
from albertkit.inspection.attention import SHARED
from albertkit.tokenization.folder import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE

INDEX, SERVICE_WORKER, FOLDER = "index.html", "service-worker.js", "page"
TASKS = {
    "fill-mask": ("text",),
    "question-answering": ("question", "context"),
    "text-classification": ("text", "text_pair"),
    "token-classification": ("text",),
    "feature-extraction": ("text",),
}
"""Tasks that the page has a panel for -> the fields of an input."""
TITLE = "ALBERT in your browser"
_PLAYGROUND = (
    "address.js",
    "icon.svg",
    "panels.js",
    "playground.css",
    "samples.js",
    "sentence.js",
    "settled.js",
    "texts.js",
)
_MODEL_FILES = ("config.json", TOKENIZER_FILE, TOKENIZER_CONFIG_FILE)
_PANEL = re.compile(r'  <section [^>]*\bid="([\w-]+)".*?</section>', re.DOTALL)
_WASM = "ort-wasm-simd-threaded.wasm"


def is_of_page(path: str) -> bool:
    """Return whether a file of an exported folder, by its path in it, is part of the page."""
    return path in (INDEX, SERVICE_WORKER) or path.startswith(f"{FOLDER}/")


def read_samples(samples: Any, task: str) -> list[dict[str, str]]:
    """Return the inputs that a page offers, as dicts with the fields of the task."""
    fields = TASKS[task]
    inputs = read_inputs(samples, fields=fields)
    read = []
    for given, number in zip(list(inputs), inputs.numbers, strict=False):  # reading counts them
        sample = given if isinstance(given, Mapping) else {fields[0]: given}
        required = fields[:1] if fields[-1] == "text_pair" else fields
        texts = {name: sample.get(name) for name in fields if sample.get(name) or name in required}
        wrong = [name for name, text in texts.items() if not isinstance(text, str) or not text.strip()]
        where = f"{inputs.name or 'samples'}, {inputs.kind} {number}"
        if wrong or sample.keys() - {*fields}:
            raise DataError(
                f"{where}: {short(given)}. Expected {' and '.join(required)} with a text in each."
            )
        if task == "fill-mask" and "[MASK]" not in str(texts["text"]):
            raise DataError(f"{where}: {short(given)}. Expected a text with [MASK].")
        read.append(texts)
    return read


def write_page(
    folder: Path,
    *,
    name: str,
    title: str,
    samples: Sequence[Mapping[str, str]],
    task: str,
    model: str,
    libraries: dict[str, bytes],
) -> None:
    """Write the page into the folder of an exported model."""
    packages = ("web", "serving", "inspection")
    web, serving, inspection = (files("albertkit") / package / "html" for package in packages)
    sources = [file for file in web.iterdir() if file.name not in (INDEX, SERVICE_WORKER)]
    sources += [*(serving / file for file in _PLAYGROUND), *(inspection / file for file in SHARED)]
    contents = {f"{FOLDER}/{source.name}": source.read_bytes() for source in sources}
    contents |= {f"{FOLDER}/library/{file}": content for file, content in libraries.items()}
    playground = (serving / "playground.html").read_text(encoding="utf-8")
    panels = {panel[1]: panel[0] for panel in _PANEL.finditer(playground)}
    contents[INDEX] = _filled(web / INDEX, panels | {"title": html.escape(title)})
    downloads = {
        _WASM: contents.pop(f"{FOLDER}/library/{_WASM}"),
        "model.onnx": (folder / model).read_bytes(),
        **{file: (folder / file).read_bytes() for file in _MODEL_FILES},
    }
    compressed, entries = {}, []
    for file, content in downloads.items():
        # Browsers decompress gzip themselves. xz needs a library and three times as long, so it is used where
        # it saves a tenth at least: 39% of the WebAssembly and 33% of tokenizer.json, but nothing of the
        # weights.
        gz = gzip.compress(content, 9, mtime=0)
        xz = lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)
        suffix, packed = (".xz", xz) if len(xz) < 0.9 * len(gz) else (".gz", gz)
        path = f"{'library' if file == _WASM else 'model'}/{file}{suffix}"
        compressed[f"{FOLDER}/{path}"] = packed
        sizes = {"bytes": len(packed), "size": len(content)}
        entries.append({"name": file, "path": path, **sizes, "sha256": hashlib.sha256(content).hexdigest()})
    digest = hashlib.sha256("\n".join((name, task, json_text(samples))).encode())
    for path, content in sorted((contents | compressed).items()):
        digest.update(f"{path} {len(content)}\n".encode() + content)
    version = digest.hexdigest()[:16]  # browsers delete their copies of other versions
    about = {"name": name, "task": task, "samples": samples, "version": version, "downloads": entries}
    contents[f"{FOLDER}/files.json"] = (json_text(about, indent=2, ensure_ascii=False) + "\n").encode()
    kept = ["./", *sorted(path for path in contents if not path.endswith(".txt"))]
    values = {"files": json_text(kept), "version": version}
    contents[SERVICE_WORKER] = _filled(web / SERVICE_WORKER, values)
    for path, content in (contents | compressed).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def _filled(template: Traversable, values: dict[str, str]) -> bytes:
    """Return the content of a template with each `{{name}}` replaced by its value."""
    text = template.read_text(encoding="utf-8")
    return re.sub(r"\{\{([\w-]+)\}\}", lambda mark: values[mark[1]], text).encode()
