"""Tests of the static page: its files, its libraries from a stand-in for npm, and the errors.

tests/compat/ opens the page in a browser.
"""

import gzip
import hashlib
import io
import json
import lzma
import random
import re
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run
from modeling_twins import make

import albertkit
from albertkit.errors import ConfigError, DataError
from albertkit.tasks.labels import CLASS, SEVERAL, LabelSet
from albertkit.tasks.token_classification import split_words
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.web import libraries
from albertkit.web.export import INT8_FILE, export_web
from albertkit.web.libraries import Package, fetch_libraries

FILES = {
    "LICENSE": b"Anyone may use this.",
    "dist/ort.wasm.bundle.min.mjs": b"export const ort = 1;",
    # The repetition is farther than the 32,768 bytes that gzip looks back, but xz finds it.
    "dist/ort-wasm-simd-threaded.wasm": random.Random(0).randbytes(40_000) * 2,
    "dist/tokenizers.min.mjs": b"export const tokenizers = 1;",
    "dist/xz-decompress.min.js": b"module.exports = { XzReadableStream: require().Blob };",
}
UNPACK = {".gz": gzip.decompress, ".xz": lzma.decompress}


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that installs a stand-in for npm, the only program on the PATH, which packs files."""
    programs = tmp_path / "programs"
    programs.mkdir()
    hashes = {path: hashlib.sha256(content).hexdigest() for path, content in FILES.items()}
    monkeypatch.setattr(
        libraries, "PACKAGES", (Package("a-library", "1.2.3", "MIT", hashes, exports=("XzReadableStream",)),)
    )
    monkeypatch.setenv("PATH", str(programs))

    def install(files: dict[str, bytes], *, script: str = "") -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as stream:
            for path, content in files.items():
                member = tarfile.TarInfo(f"package/{path}")
                member.size = len(content)
                stream.addfile(member, io.BytesIO(content))
        (programs / "a.tgz").write_bytes(archive.getvalue())
        copy = f'[ "$1 $2" = "pack a-library@1.2.3" ] && /bin/cp {programs}/a.tgz "$6"'
        (programs / "npm").write_text(f"#!/bin/sh\n{script or copy}\n")
        (programs / "npm").chmod(stat.S_IRWXU)

    return install


@pytest.fixture
def model(tiny_vocabulary: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a tiny model of a class with its tokenizer, and returns the folder."""

    def save(head: str) -> Path:
        make(head, vocab_size=500, max_position_embeddings=64).save_pretrained(tmp_path / "tiny-model")
        AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path / "tiny-model")
        return tmp_path / "tiny-model"

    return save


def test_the_page_has_all_files_that_it_refers_to(npm, model, tmp_path: Path) -> None:
    npm(FILES)
    folder = tmp_path / "web"
    report = export_web(model("AlbertForTokenClassification"), folder, page=True, max_drop=100)
    page = folder / "page"
    about = json.loads((page / "files.json").read_text())
    assert (about["name"], about["task"]) == ("tiny-model", "token-classification")
    expected = {
        "ort-wasm-simd-threaded.wasm": FILES["dist/ort-wasm-simd-threaded.wasm"],
        "model.onnx": (folder / INT8_FILE).read_bytes(),
        "config.json": (folder / "config.json").read_bytes(),
        "tokenizer.json": (folder / "tokenizer.json").read_bytes(),
        "tokenizer_config.json": (folder / "tokenizer_config.json").read_bytes(),
    }
    assert {download["name"] for download in about["downloads"]} == set(expected)
    for download in about["downloads"]:
        content, compressed = expected[download["name"]], (page / download["path"]).read_bytes()
        assert len(compressed) == download["bytes"]
        assert len(content) == download["size"]
        assert UNPACK[Path(download["path"]).suffix](compressed) == content
        assert hashlib.sha256(content).hexdigest() == download["sha256"]
    paths = {download["name"]: download["path"] for download in about["downloads"]}
    assert paths["ort-wasm-simd-threaded.wasm"] == "library/ort-wasm-simd-threaded.wasm.xz"
    assert paths["config.json"] == "model/config.json.gz"
    # All files that the page and its scripts refer to exist, and none are on other hosts.
    index = (folder / "index.html").read_text()
    for name in re.findall(r'(?:src|href)="([^"]+)"', index):
        assert (folder / name).is_file(), name
    for script in page.glob("*.js"):
        text = script.read_text()
        assert "https://" not in text
        for name in re.findall(r'^(?:import|\}) .*from "\./([^"]+)"', text, flags=re.MULTILINE):
            assert (page / name).is_file(), name
    ids = set(re.findall(r'\bid="([^"]+)"', index))
    for script in ("page.js", "texts.js", "sentence.js"):
        used = set(re.findall(r'\bfind\("([^"]+)"\)', (page / script).read_text()))
        assert used - ids <= {
            "judgement",
            "swap",
            "zero-shot-scores",
            "chosen",
        }  # only the playground has these panels
    assert "default-src 'none'" in index
    assert "unsafe-inline" not in index
    worker = (folder / "service-worker.js").read_text()
    assert "{{" not in worker
    cached = json.loads(re.search(r"^const FILES = (.*);$", worker, flags=re.MULTILINE)[1])
    assert cached[0] == "./"
    downloaded = {f"page/{download['path']}" for download in about["downloads"]}
    all_of_page = {name for name in report.files if name.startswith("page/") or name == "index.html"}
    assert set(cached[1:]) == all_of_page - downloaded - {"page/library/LICENSES.txt"}
    assert about["version"] in worker
    assert "a-library 1.2.3, MIT\n\nAnyone may use this." in (page / "library" / "LICENSES.txt").read_text()
    sizes = [path.stat().st_size for path in (*page.rglob("*"), folder / "index.html") if path.is_file()]
    assert report.page_bytes == sum(sizes) + len(worker)
    assert f"the page takes {report.page_bytes:,} bytes" in str(report)


def test_the_version_depends_on_the_name(npm, model, tmp_path: Path) -> None:
    """Check the version: browsers delete cached files of another version."""
    npm(FILES)
    folder = model("AlbertModel")
    versions = []
    for number, name in enumerate(("one", "one", "other")):
        export_web(folder, tmp_path / str(number), page=True, name=name, int8=False)
        versions.append(json.loads((tmp_path / str(number) / "page" / "files.json").read_text())["version"])
    assert versions[0] == versions[1] != versions[2]


def test_a_model_in_the_current_folder_has_its_name(
    npm, model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm(FILES)
    monkeypatch.chdir(model("AlbertModel"))
    export_web(".", tmp_path / "web", page=True, int8=False)
    assert json.loads((tmp_path / "web" / "page" / "files.json").read_text())["name"] == "tiny-model"


def test_title_and_samples_of_the_page(npm, model, run: Run, tmp_path: Path) -> None:
    npm(FILES)
    folder = model("AlbertForSequenceClassification")
    samples = tmp_path / "samples.jsonl"
    samples.write_text('{"text": "A fox.", "text_pair": "A dog."}\n{"text": "A key."}\n')
    given = ["--page", "--no-int8", "--title", "Foxes & <keys>", "--samples", samples]
    assert run("export", "web", folder, tmp_path / "web", *given).status == 0
    index = (tmp_path / "web" / "index.html").read_text()
    assert "<title>Foxes &amp; &lt;keys&gt;</title>" in index
    assert "<h1>Foxes &amp; &lt;keys&gt;</h1>" in index
    expected = [{"text": "A fox.", "text_pair": "A dog."}, {"text": "A key."}]
    assert json.loads((tmp_path / "web" / "page" / "files.json").read_text())["samples"] == expected
    versions = set()
    for number, texts in enumerate(([], ["A fox.", "A key."], ["A fox."])):
        target = tmp_path / str(number)
        export_web(folder, target, page=True, int8=False, samples=texts)
        about = json.loads((target / "page" / "files.json").read_text())
        assert about["samples"] == [{"text": text} for text in texts]
        assert "<title>ALBERT in your browser</title>" in (target / "index.html").read_text()
        versions.add(about["version"])
    assert len(versions) == 3


@pytest.mark.parametrize(
    ("head", "samples", "expected"),
    [
        ("AlbertForMaskedLM", ["A [MASK].", ""], r"samples, input 1: ''\. Expected text with a text in each"),
        ("AlbertForMaskedLM", ["A [MASK].", "A fox."], r"samples, input 1: 'A fox\.'.*a text with \[MASK\]"),
        ("AlbertForQuestionAnswering", ["who?"], "Expected question and context with a text in each"),
        ("AlbertModel", [{"text": "A fox.", "other": "x"}], "Expected text with"),
    ],
)
def test_samples_that_are_no_inputs_of_the_task(
    npm, model, tmp_path: Path, head: str, samples: list[Any], expected: str
) -> None:
    npm(FILES)
    with pytest.raises(DataError, match=expected):
        export_web(model(head), tmp_path / "web", page=True, int8=False, samples=samples)
    assert not (tmp_path / "web").exists()


_ASK = """
import { Model } from "./model.js";
import { Reader } from "./tokens.js";
const words = ["[CLS]", "[SEP]", "[MASK]", "<unk>", "▁a"];
const tokenizer = {
  token_to_id: (token) => words.indexOf(token), id_to_token: (id) => words[id],
  get_added_tokens_decoder: () => new Map([0, 1, 2, 3].map((id) => [id, {}])),
  encode: (text) => {
    const tokens = text.split(" ").map((word) => (word === "a" ? "▁a" : word));
    return { ids: tokens.map((token) => words.indexOf(token)), tokens };
  },
  decode: ([id]) => words[id],
};
const names = { cls_token: "[CLS]", sep_token: "[SEP]", mask_token: "[MASK]", unk_token: "<unk>" };
const config = { max_position_embeddings: 16 };
const reader = new Reader(tokenizer, { ...names, model_max_length: 16 }, config);
const scores = { data: new Float32Array(16 * 5), dims: [1, 16, 5] };
const session = { run: async () => ({ start_logits: scores, end_logits: scores, logits: scores }) };
const model = new Model({ ort: { Tensor: class {} }, session, reader, config, name: "a", task: "b" });
const answers = [];
for (const [path, body] of JSON.parse(process.argv[2])) {
  answers.push(await model.ask(path, body).catch((error) => error.message));
}
console.log(JSON.stringify(answers));
"""

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="needs Node.js")


def _node(folder: Path, script: str, *names: str, argument: Any) -> Any:
    """Run a script in a folder with files of the page, and return the JSON that it prints."""
    html = Path(albertkit.__file__).parent / "web" / "html"
    for name in names:
        shutil.copy(html / name, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "script.js").write_text(script)
    command = [str(NODE), "script.js", json.dumps(argument)]
    return json.loads(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout)


def _ask(folder: Path, path: str, *bodies: dict[str, Any]) -> list[Any]:
    """Return the answers or error messages of the page. A row has 16 tokens, and "a" is a token."""
    return _node(folder, _ASK, "model.js", "tokens.js", argument=[[path, body] for body in bodies])


def _words(count: int) -> str:
    return " ".join(["a"] * count)


@needs_node
def test_the_page_reports_how_many_tokens_of_a_context_it_truncates(tmp_path: Path) -> None:
    given = [{"input": {"question": "a a", "context": _words(size)}, "top_k": 1} for size in (3, 30)]
    answers = _ask(tmp_path, "v1/answer", *given)
    assert [answer["results"][0][0].get("cut", 0) for answer in answers] == [0, 30 - (16 - 2 - 3)]


@needs_node
def test_the_page_reads_from_the_config_whether_inputs_are_pairs(tmp_path: Path) -> None:
    for pairs in (True, False, None):
        config = {"max_position_embeddings": 16} | ({} if pairs is None else {"text_pairs": pairs})
        script = _ASK.replace("{ max_position_embeddings: 16 }", json.dumps(config))
        (answer,) = _node(tmp_path, script, "model.js", "tokens.js", argument=[["v1/models", {}]])
        assert answer == {
            "data": [{"id": "a", "tasks": ["b"], "max_tokens": 16, "text_pairs": pairs, "labels": None}]
        }


@needs_node
def test_a_single_label_without_a_problem_type_has_a_probability(tmp_path: Path) -> None:
    script = _ASK.replace("logits: scores", "logits: { data: [2] }")
    (answer,) = _node(tmp_path, script, "model.js", "tokens.js", argument=[["v1/classify", {"input": "a"}]])
    assert answer["results"][0][0]["score"] == pytest.approx(0.880797)  # sigmoid, as in Python


@needs_node
@pytest.mark.parametrize(
    ("kind", "logits", "thresholds"),
    [
        (None, [0.4, 0.6], {"b": 0.7}),
        (None, [0.4, 0.6], {"a": 0.3}),
        (None, [0.4, 0.6], {"a": 0.3, "b": 0.7}),
        (None, [0.4, 0.6], {"a": 0.5, "b": 0.4}),
        (None, [0.2, 0.5, 0.3], {"a": 0.5, "b": 0.6, "c": 0.7}),
        ("multi_label_classification", [0.4, 0.6, 0.9], {"a": 0.3, "c": 0.95}),
    ],
)
def test_the_page_predicts_with_thresholds_as_python(
    tmp_path: Path, kind: str | None, logits: list[float], thresholds: dict[str, float]
) -> None:
    """The logits are the logarithms of the probabilities; of several labels, those of the odds."""
    shares = np.array(logits)
    values = np.log(shares if kind is None else shares / (1 - shares))
    labels = LabelSet(CLASS if kind is None else SEVERAL, tuple("abc"[: len(shares)]), thresholds)
    expected = labels.predict(values)
    names = dict(enumerate(labels.names))
    config = {
        "max_position_embeddings": 16,
        "problem_type": kind,
        "id2label": names,
        "thresholds": thresholds,
    }
    script = _ASK.replace("{ max_position_embeddings: 16 }", json.dumps(config))
    script = script.replace("logits: scores", f"logits: {{ data: {values.tolist()} }}")
    asked = ["v1/classify", {"input": "a", "top_k": 3}]
    (answer,) = _node(tmp_path, script, "model.js", "tokens.js", argument=[asked])
    predicted = {one["label"] for one in answer["results"][0] if one["predicted"]}
    assert predicted == ({*expected} if isinstance(expected, tuple) else {expected} - {None})


@needs_node
def test_the_page_fills_masks_with_a_pretraining_model(tmp_path: Path) -> None:
    """Its logits have another name than those of AlbertForMaskedLM."""
    script = _ASK.replace("logits: scores }", "prediction_logits: scores }")
    asked = ["v1/fill-mask", {"input": "a [MASK]", "top_k": 1}]
    (answer,) = _node(tmp_path, script, "model.js", "tokens.js", argument=[asked])
    assert answer["results"][0][0][0]["score"] == pytest.approx(1 / 5)


@needs_node
def test_the_page_splits_words_at_the_spaces_of_python(tmp_path: Path) -> None:
    spaces = ["\x1c", "\x1f", "\x85", "\ufeff", "\u3000", "\xa0", "\u200b"]  # U+FEFF and U+200B are none
    texts = [f"a{one}b, {one}c" for one in spaces]
    script = 'import { splitWords } from "./tokens.js";' + (
        "console.log(JSON.stringify(JSON.parse(process.argv[2]).map(splitWords)));"
    )
    found = _node(tmp_path, script, "tokens.js", argument=texts)
    assert found == [[list(word) for word in split_words(text)] for text in texts]


@needs_node
def test_the_page_reports_how_many_tokens_of_a_masked_text_it_truncates(tmp_path: Path) -> None:
    given = [{"input": f"[MASK] {_words(size)}", "top_k": 1} for size in (3, 30)]
    assert [answer["cut"] for answer in _ask(tmp_path, "v1/fill-mask", *given)] == [0, 31 - 14]


@needs_node
def test_the_page_refuses_a_question_longer_than_half_a_row(tmp_path: Path) -> None:
    given = [{"input": {"question": _words(size), "context": "a"}, "top_k": 1} for size in (8, 9)]
    answer, error = _ask(tmp_path, "v1/answer", *given)
    assert answer["results"][0][0]["answer"] == "a"
    assert error == "The question has 9 tokens. Expected at most 8. Shorten it."


_DOWNLOAD = """
import { createHash } from "node:crypto";
const responses = JSON.parse(process.argv[2]);
const packed = new Uint8Array(await new Response(
  new Blob(["{}"]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer());
const names = [
  "config.json", "tokenizer.json", "tokenizer_config.json", "model.onnx", "ort-wasm-simd-threaded.wasm",
];
const sha256 = createHash("sha256").update("{}").digest("hex");
const about = { version: "1", name: "a", task: "b",
  downloads: names.map((name) => (
    { name, path: `model/${name}.gz`, bytes: packed.length, size: 2, sha256 })) };
const bodies = {
  xz: new Uint8Array([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0]),
  packed, unpacked: "{}", other: "[]", html: "<html>", damaged: packed.slice(0, 15),
  about: JSON.stringify(about),
  broken: new ReadableStream({ pull: (controller) => controller.error(new TypeError("terminated")) }),
};
if (responses.isInsecure) Object.defineProperty(globalThis, "crypto", { value: undefined });
globalThis.fetch = async (address, { cache }) => {
  const name = address.pathname.split("/").at(-1);
  const version = name === "files.json" ? "" : `?${sha256.slice(0, 16)}`;
  if (cache !== "no-cache" || address.search !== version) throw new Error(`may be an old file: ${address}`);
  const usual = name === "files.json" ? { body: "about" } : {};
  const { status = 200, body = "packed" } = responses[name] ?? usual;
  if (status === 0) throw new TypeError("fetch failed");
  return new Response(bodies[body], { status });
};
const kept = [];
const cache = {
  match: async () => undefined,
  put: async (address) => { kept.push(address.split("/").at(-1)); },
  delete: async () => {},
};
globalThis.self = { caches: { open: async () => cache } };
globalThis.onmessage = null;
globalThis.postMessage = (message) => {
  if (message.ready || message.failed) console.log(JSON.stringify([message, kept]));
};
await import("./worker.js");
"""


@needs_node
@pytest.mark.parametrize(
    ("responses", "message"),
    [
        ({}, None),
        ({"model.onnx.gz": {"body": "unpacked"}}, None),
        ({"model.onnx.gz": {"body": "xz"}}, None),
        (
            {"files.json": {"status": 0}},
            "files.json could not be downloaded. Check your connection. Load this page again.",
        ),
        (
            {"model.onnx.gz": {"status": 404}},
            "model/model.onnx.gz could not be downloaded: the server answers 404. Load this page again.",
        ),
        (
            {"model.onnx.gz": {"body": "broken"}},
            "model/model.onnx.gz could not be downloaded. Check your connection. Load this page again.",
        ),
        (
            {"model.onnx.gz": {"body": "damaged"}},
            "model/model.onnx.gz could not be downloaded completely. Load this page again.",
        ),
        (
            {"model.onnx.gz": {"body": "other"}},
            "model/model.onnx.gz could not be downloaded: its SHA-256 differs from the one in files.json. "
            "Load this page again.",
        ),
        ({"model.onnx.gz": {"body": "other"}, "isInsecure": True}, None),
        (
            {"model.onnx.gz": {"body": "html"}},
            "model/model.onnx.gz could not be downloaded: it has 6 bytes instead of 2. Load this page again.",
        ),
    ],
)
def test_the_page_explains_a_failed_download_and_keeps_no_damaged_file(
    responses: dict[str, Any], message: str | None, tmp_path: Path
) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "ort.wasm.bundle.min.mjs").write_text(
        "export const env = { wasm: {} }; export const InferenceSession = { create: async () => ({}) };"
    )
    (tmp_path / "library" / "tokenizers.min.mjs").write_text("export class Tokenizer {}")
    (tmp_path / "library" / "xz-decompress.min.mjs").write_text(
        "export const XzReadableStream = function () { return new Blob(['{}']).stream(); };"
    )
    (tmp_path / "tokens.js").write_text("export class Reader {}")
    (tmp_path / "model.js").write_text("export class Model {}")
    state, cached = _node(tmp_path, _DOWNLOAD, "worker.js", argument=responses)
    assert state == ({"ready": True} if message is None else {"failed": message})
    assert ("model.onnx.gz" in cached) is (message is None)


def test_errors_are_raised_before_files_are_written(npm, model, tmp_path: Path) -> None:
    folder, target = model("AlbertForMultipleChoice"), tmp_path / "web"
    with pytest.raises(ConfigError, match=r"npm, which is not installed.* Install Node\.js 20"):
        export_web(folder, target, page=True)
    with pytest.raises(ConfigError, match=r"name is 'x', which only the page shows\."):
        export_web(folder, target, name="x")
    with pytest.raises(ConfigError, match=r"samples is \['A fox\.'\], which only the page shows\."):
        export_web(folder, target, samples=["A fox."])
    npm(FILES)
    with pytest.raises(
        ConfigError, match=r"the page has no panel for multiple-choice\. Expected a model for fill"
    ):
        export_web(folder, target, page=True)
    npm(FILES, script="echo 'E404 not found' >&2; exit 7")
    with pytest.raises(DataError, match=r"could not download a-library@1\.2\.3 \(status 7\): E404 not found"):
        export_web(model("AlbertModel"), target, page=True)
    assert not target.exists()


@needs_node
def test_a_script_library_is_converted_to_a_module(npm, tmp_path: Path) -> None:
    npm(FILES)
    files = fetch_libraries()
    (tmp_path / "it.mjs").write_bytes(files["xz-decompress.min.mjs"])
    script = 'import { XzReadableStream } from "./it.mjs"; console.log(XzReadableStream === Blob);'
    assert _node(tmp_path, script, argument=None) is True


@pytest.mark.parametrize("change", ["other", "missing"])
def test_a_changed_or_incomplete_library_is_an_error(npm, change: str) -> None:
    files = dict(FILES)
    content = files.pop("dist/tokenizers.min.mjs") + b"!"
    if change == "other":
        files["dist/tokenizers.min.mjs"] = content
    else:
        content = b""
    npm(files)
    actual = hashlib.sha256(content).hexdigest()
    with pytest.raises(
        DataError, match=f"dist/tokenizers.min.mjs of a-library 1.2.3 has the SHA-256 {actual}"
    ):
        fetch_libraries()


def test_the_command_writes_the_page(npm, model, run: Run, tmp_path: Path) -> None:
    npm(FILES)
    folder = model("AlbertForMaskedLM")
    result = run("export", "web", folder, tmp_path / "web", "--page", "--name", "mine", "--no-int8")
    assert "the page takes " in result.output
    assert "page/worker.js" not in result.output  # the command prints only the sum
    assert json.loads((tmp_path / "web" / "page" / "files.json").read_text())["name"] == "mine"
