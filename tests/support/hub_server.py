"""A small Hugging Face hub on localhost, with the requests of downloads and uploads."""

import base64
import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

SECRET = "hf_the_right_token"
READER = "hf_a_token_for_reading"


def commit_of(label: str) -> str:
    return hashlib.sha1(label.encode()).hexdigest()


@dataclass
class Hub:
    """A hub for downloads and uploads, with settings that cause failures."""

    repositories: dict[str, dict[str, dict[str, bytes]]]
    """Repository -> branch or tag -> file -> content."""
    private: set[str] = field(default_factory=set)
    gated: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    """Files whose download fails with status 503."""
    unreachable: set[str] = field(default_factory=set)
    """Files for which GET and HEAD requests fail with status 503."""
    cut_once: set[str] = field(default_factory=set)
    """Files whose first download stops after half of the bytes."""
    requests: list[str] = field(default_factory=list)
    created: dict[str, bool] = field(default_factory=dict)
    """Created repository -> whether it is private."""
    messages: list[str] = field(default_factory=list)
    """The messages of commits."""
    commits: Counter[str] = field(default_factory=Counter)
    """Repository and branch -> number of commits."""
    url: str = ""

    def __enter__(self) -> "Hub":
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                hub.answer(self)

            def do_POST(self) -> None:
                hub.take(self)

            do_HEAD = do_GET  # noqa: N815

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error) -> None:
        self.stop()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(request.path).path)
        self.requests.append(f"{request.command} {path}")
        call = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)/?", path)
        load = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        name = ""
        if call:
            repository, kind, revision = call.groups()
        elif load:
            repository, revision, name = load.groups()
            kind = "file"
        else:
            return self.refuse(request, 404, "EntryNotFound", "no such call")
        token = request.headers.get("Authorization")
        if token not in (None, f"Bearer {SECRET}"):
            return self.refuse(request, 401, "", "Invalid credentials in Authorization header")
        if repository not in self.repositories or (repository in self.private and token is None):
            return self.refuse(request, 401, "RepoNotFound", "Repository not found")
        if repository in self.gated:
            return self.refuse(request, 403, "GatedRepo", "Access to this model is restricted")
        branches = self.repositories[repository]
        branch = next((b for b in branches if revision in (b, self.newest(repository, b))), None)
        if branch is None:
            return self.refuse(request, 404, "RevisionNotFound", f"Invalid rev id: {revision}")
        files, commit = branches[branch], self.newest(repository, branch)
        if kind == "revision":
            siblings = [{"rfilename": file} for file in files]
            return self.send_json(
                request, {"id": repository, "sha": commit, "siblings": siblings, "tags": []}
            )
        if kind == "tree":
            entries = [
                {"type": "file", "path": file, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for file, content in files.items()
            ]
            return self.send_json(request, entries)
        if name not in files:
            return self.refuse(request, 404, "EntryNotFound", f"no file {name}")
        return self.send_file(request, name, files[name], commit)

    def newest(self, repository: str, branch: str) -> str:
        """Return the newest commit of a branch."""
        made = self.commits[repository + branch]
        return commit_of(repository + branch + (f" {made}" if made else ""))

    def take(self, request: BaseHTTPRequestHandler) -> None:
        """Answer the requests of an upload. Only the right token may write."""
        url = urlsplit(request.path)
        path, body = unquote(url.path), request.rfile.read(int(request.headers["Content-Length"]))
        self.requests.append(f"{request.command} {path}")
        token = request.headers.get("Authorization")
        if path == "/api/validate-yaml":
            return self.send_json(request, {"errors": [], "warnings": []})
        if token != f"Bearer {SECRET}":
            status = 403 if token == f"Bearer {READER}" else 401
            return self.refuse(request, status, "", "no right to write")
        if path == "/api/repos/create":
            given = json.loads(body)
            name = f"{given.get('organization') or 'me'}/{given['name']}"
            if name in self.repositories:
                return self.send_json(request, {"error": "exists", "url": f"{self.url}/{name}"}, status=409)
            self.repositories[name] = {"main": {}}
            self.created[name] = given.get("private") or given.get("visibility") == "private"
            return self.send_json(request, {"url": f"{self.url}/{name}", "id": name, "name": name})
        call = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(branch|preupload|commit)/([^/]+)", path)
        assert call, path
        repository, kind, revision = call.groups()
        branches = self.repositories[repository]
        if kind == "branch":
            branches[revision] = dict(branches["main"])
            return self.send_json(request, {})
        if kind == "preupload":
            modes = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            return self.send_json(request, {"files": modes})
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "header":
                self.messages.append(line["value"]["summary"])
            else:
                branches[revision][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        self.commits[repository + revision] += 1
        oid = self.newest(repository, revision)
        answer = {"success": True, "commitOid": oid, "commitUrl": f"{self.url}/{repository}/commit/{oid}"}
        if "create_pr=1" in url.query:
            answer["pullRequestUrl"] = f"{self.url}/{repository}/discussions/1"
        return self.send_json(request, answer)

    def refuse(self, request: BaseHTTPRequestHandler, status: int, code: str, message: str) -> None:
        request.send_response(status)
        if code:
            request.send_header("X-Error-Code", code)
        request.send_header("X-Error-Message", message)
        request.send_header("Content-Length", "0")
        request.end_headers()

    def send_json(self, request: BaseHTTPRequestHandler, value: object, *, status: int = 200) -> None:
        body = json.dumps(value).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def send_file(self, request: BaseHTTPRequestHandler, name: str, content: bytes, commit: str) -> None:
        is_get = request.command == "GET"
        if (is_get and name in self.broken) or name in self.unreachable:
            self.refuse(request, 503, "", "try later")
            return
        start = int((request.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        request.send_response(206 if start else 200)
        request.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        request.send_header("X-Repo-Commit", commit)
        request.send_header("Content-Length", str(len(content) - start))
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        request.end_headers()
        if is_get and name in self.cut_once:
            self.cut_once.discard(name)
            request.wfile.write(content[: len(content) // 2])
        elif is_get:
            request.wfile.write(content[start:])


def model_files(label: str) -> dict[str, bytes]:
    weights = label.encode() * 20_000
    return {
        "config.json": json.dumps({"label": label}).encode(),
        "model.safetensors": weights,
        "pytorch_model.bin": b"the same weights again",
    }


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """Start a hub that this process uses instead of the real hub, with an empty cache."""
    from huggingface_hub import constants, file_download

    repositories = {
        "org/model": {"main": model_files("main"), "v1.0": model_files("v1.0")},
        "org/secret": {"main": model_files("secret")},
        "org/terms": {"main": model_files("terms")},
        "org/words": {"main": {"README.md": b"no model here"}},
        "albert/albert-base-v2": {"main": model_files("base")},
    }
    with Hub(repositories, private={"org/secret"}, gated={"org/terms"}) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        for module in (constants, file_download):  # before 1.0, file_download has a copy
            url = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
            monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", url, raising=False)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
        yield hub
