"""A minimal Hugging Face Hub on 127.0.0.1 with a log of requests and injected faults."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

Fault = Callable[["Handler", bytes], bool]
"""Handles a GET request and returns true, or returns false to leave it to the server."""


class Hub:
    """The state of a server: repositories with commits and branches, and plain files.

    Attributes:
        repos: Files by name, by commit, by repository.
        refs: Commits by repository and branch.
        files: Contents by path, as on any static web server.
        log: Method, path and Range of every request.
        fault: What goes wrong, if anything.
        token: The only token that may read and write, if there is one.
    """

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, dict[str, bytes]]] = {}
        self.refs: dict[tuple[str, str], str] = {}
        self.files: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self.log: list[tuple[str, str, str]] = []
        self.fault: Fault | None = None
        self.token = ""
        self.url = ""

    def commit(self, repo: str, files: dict[str, bytes], branch: str = "main") -> str:
        commits = self.repos.setdefault(repo, {})
        sha = hashlib.sha1(f"{repo} {len(commits)}".encode()).hexdigest()
        commits[sha] = files
        self.refs[repo, branch] = sha
        return sha

    def put(self, path: str, folder: Path) -> str:
        """Serve a folder as plain files and return its URL."""
        self.files |= {f"/{path}/{file.name}": file.read_bytes() for file in folder.iterdir()}
        return f"{self.url}/{path}"

    def got(self, ending: str = "") -> list[str]:
        return [path for method, path, _ in self.log if method == "GET" and path.endswith(ending)]


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def send(self, code: int, body: bytes | dict[str, Any] = b"", **headers: str) -> None:
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def note(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.log.append((self.command, self.path, self.headers.get("Range", "")))
        return body

    def allowed(self) -> bool:
        return not self.hub.token or self.headers.get("Authorization") == f"Bearer {self.hub.token}"

    def do_GET(self) -> None:
        if self.path == "/api/agent-harnesses":  # which huggingface_hub asks for once a day
            self.send(404)
            return
        self.note()
        match = re.fullmatch(r"/([\w.-]+/[\w.-]+)/resolve/([^/]+)/(.+)", self.path)
        headers = {}
        if match:
            repo, revision, name = match.groups()
            sha = self.hub.refs.get((repo, revision), revision)
            content = self.hub.repos.get(repo, {}).get(sha, {}).get(name) if self.allowed() else None
            headers = {"X_Error_Message": "Repository not found", "X_Error_Code": "RepoNotFound"}
            if content is not None:
                headers = {"X_Repo_Commit": sha, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        else:
            content = self.hub.files.get(self.path)
        if self.hub.fault is not None and self.hub.fault(self, content or b""):
            return
        if content is None:
            self.send(401 if match and not self.allowed() else 404, **headers)
            return
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.send(206 if start else 200, content[start:], **headers)

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        data = self.note()
        self.hub.blobs[hashlib.sha256(data).hexdigest()] = data
        self.send(200)

    def do_POST(self) -> None:
        body = self.note()
        if not self.allowed():
            self.send(401, X_Error_Message="Invalid credentials")
            return
        if self.path == "/api/repos/create":
            values = json.loads(body)
            repo = f"{values.get('organization') or 'me'}/{values['name']}"
            self.hub.repos.setdefault(repo, {})
            self.send(200, {"url": f"{self.hub.url}/{repo}"})
        elif match := re.fullmatch(r"/api/models/([\w.-]+/[\w.-]+)/branch/([^/]+)", self.path):
            self.hub.refs[match[1], match[2]] = self.hub.refs.get((match[1], "main"), "")
            self.send(200, {})
        elif self.path == "/api/validate-yaml":
            errors = [{"message": text} for text in card_errors(json.loads(body)["content"])]
            self.send(400 if errors else 200, {"errors": errors, "warnings": []})
        elif "/preupload/" in self.path:
            wanted = [{**one, "shouldIgnore": False} for one in json.loads(body)["files"]]
            mode = {True: "lfs", False: "regular"}
            files = [one | {"uploadMode": mode[one["path"].endswith(".safetensors")]} for one in wanted]
            self.send(200, {"files": files})
        elif self.path.endswith("/info/lfs/objects/batch"):
            upload = {"upload": {"href": f"{self.hub.url}/lfs"}}
            files = [{**one, "actions": upload} for one in json.loads(body)["objects"]]
            self.send(200, {"transfer": "basic", "objects": files})
        elif match := re.fullmatch(r"/api/models/([\w.-]+/[\w.-]+)/commit/([^/]+)", self.path):
            sha = self.hub.commit(match[1], dict(self.files_of(body)), match[2])
            address = f"{self.hub.url}/{match[1]}/commit/{sha}"
            self.send(200, {"commitUrl": address, "commitOid": sha, "hookOutput": ""})
        else:
            self.send(404)

    def files_of(self, body: bytes) -> Iterator[tuple[str, bytes]]:
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                yield value["path"], base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                yield value["path"], self.hub.blobs[value["oid"]]


PIPELINES = {"text-classification", "token-classification", "question-answering", "translation", "text-generation"}
PIPELINES |= {"text-ranking", "image-classification", "tabular-classification", "tabular-regression"}
"""Pipeline tags of the Hub (huggingface.js, packages/tasks/src/pipelines.ts)."""
LICENSES = ("apache-2.0", "mit", "bsd-3-clause", "cc-by-4.0", "cc-by-sa-4.0", "gpl-3.0", "other", "unknown")


def card_errors(text: str) -> Iterator[str]:
    """Yield the errors that the Hub finds in the metadata of a model card."""
    values = yaml.safe_load(text.split("---")[1])
    lists = {key: values.get(key) or [] for key in ("tags", "datasets", "metrics")}
    if not all(isinstance(item, str) for items in lists.values() for item in items):
        yield '"tags", "datasets" and "metrics" must be arrays of strings'
    if values.get("license") not in (None, *LICENSES):
        yield f'"license" must be one of [{", ".join(LICENSES)}]'
    if values.get("pipeline_tag") not in (None, *PIPELINES):
        yield '"pipeline_tag" must be one of the tasks of the Hub'
    for model in values.get("model-index") or []:
        for result in model["results"]:
            parts = [
                model.get("name"),
                result["task"].get("type"),
                result["dataset"].get("type"),
                result["dataset"].get("name"),
            ]
            parts += [metric.get("type") for metric in result["metrics"]]
            if not all(isinstance(part, str) and part for part in parts):
                yield '"model-index" needs names and types'
            if not all(isinstance(metric.get("value"), int | float) for metric in result["metrics"]):
                yield '"model-index[0].results[0].metrics[0].value" is required'


@contextmanager
def serving() -> Iterator[Hub]:
    """Run a server until the block ends."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
