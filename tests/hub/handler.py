"""One HTTP exchange of the stand-in."""

from __future__ import annotations

import json
import re
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from tests.hub.repos import TOKEN, Content, Repo, etag, read, size

if TYPE_CHECKING:
    from tests.hub.server import Hub, Request

_API = re.compile(r"/api/(?:models/|(?=datasets/))((?:datasets/)?[^/]+/[^/]+)(?:/revision/(.+))?")
_TREE = re.compile(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)")
_FILE = re.compile(r"/(cdn/)?((?:datasets/)?[^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_CHUNK = 65536


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    entry: Request

    @property
    def hub(self) -> Hub:
        hub: Hub = self.server.hub  # type: ignore[attr-defined]
        return hub

    def log_message(self, *_: Any) -> None:
        """Tests read the log of the hub."""

    def do_GET(self) -> None:
        from tests.hub.server import Request

        self.entry = Request(self.command, self.path, self.headers.get("Range"), self.headers.get("Authorization"))
        self.hub.requests.append(self.entry)
        time.sleep(self.hub.latency)
        failure = self.hub.next_failure(self.path)
        if failure is not None:
            asked = {} if failure.retry_after is None else {"Retry-After": failure.retry_after}
            self._answer(failure.status, b"busy", asked)
        else:
            self._route(urlsplit(self.path).path)

    do_HEAD = do_GET  # noqa: N815  # the name http.server looks for

    def _route(self, path: str) -> None:
        if match := _API.fullmatch(path):
            self._model(match[1], unquote(match[2] or "main"))
        elif match := _TREE.fullmatch(path):
            self._tree(match[1], unquote(match[2]))
        elif match := _FILE.fullmatch(path):
            self._file(bool(match[1]), match[2], unquote(match[3]), unquote(match[4]))
        else:
            self._answer(404, b"", {})

    def _model(self, name: str, revision: str) -> None:
        found = self._find(name, revision)
        if found is not None:
            repo, commit = found
            siblings = [
                {"rfilename": file, **({"size": size(content)} if repo.sizes else {})}
                for file, content in repo.commits[commit].items()
            ]
            body = {"id": repo.id, "sha": commit, "siblings": siblings, "tags": [], "gated": repo.gated}
            self._answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _tree(self, name: str, revision: str) -> None:
        found = self._find(name, revision)
        if found is not None:
            repo, commit = found
            files = repo.commits[commit].items()
            body = [
                {"type": "file", "path": file, "size": size(content), "oid": etag(repo, commit, file)}
                for file, content in files
            ]
            self._answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _file(self, on_cdn: bool, name: str, revision: str, file: str) -> None:
        found = self._find(name, revision)
        if found is None:
            return
        repo, commit = found
        content = repo.commits[commit].get(file)
        head = {"X-Repo-Commit": commit}
        if repo.gated and not self._is_trusted():
            refused = {**head, "X-Error-Code": "GatedRepo", "X-Error-Message": "Access to this model is restricted"}
            self._answer(403 if self.entry.authorization else 401, b"", refused)
        elif content is None:
            self._answer(404, b"", {**head, "X-Error-Code": "EntryNotFound"})
        elif repo.lfs and not on_cdn and not file.endswith((".json", ".md")):
            linked = {"X-Linked-Size": str(size(content)), "X-Linked-Etag": f'"{etag(repo, commit, file)}"'}
            self._answer(302, b"", {**head, **linked, "Location": f"{self.hub.endpoint}/cdn{self.path}"})
        else:
            self._send_content(content, {**head, "ETag": f'"{etag(repo, commit, file)}"'})

    def _find(self, name: str, revision: str) -> tuple[Repo, str] | None:
        repo = self.hub.repos.get(name)
        if repo is None:
            self._answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif repo.private and not self._is_trusted():
            self._answer(401, b"", {"X-Error-Message": "Invalid username or password."})
        elif (commit := repo.resolve(revision)) is None:
            self._answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        else:
            return repo, commit
        return None

    def _is_trusted(self) -> bool:
        return self.entry.authorization == f"Bearer {TOKEN}"

    def _send_content(self, content: Content, head: dict[str, str]) -> None:
        total = size(content)
        match = None if self.hub.ignore_range else _RANGE.fullmatch(self.entry.range or "")
        if match is None:
            self._stream(200, content, 0, total, {**head, "Accept-Ranges": "bytes"})
            return
        start, stop = int(match[1]), min(total, int(match[2]) + 1 if match[2] else total)
        if start >= total:
            self._answer(416, b"", {"Content-Range": f"bytes */{total}"})
        else:
            self._stream(206, content, start, stop, {**head, "Content-Range": f"bytes {start}-{stop - 1}/{total}"})

    def _answer(self, status: int, body: bytes, head: dict[str, str]) -> None:
        self._stream(status, body, 0, len(body), head)

    def _stream(self, status: int, content: Content, start: int, stop: int, head: dict[str, str]) -> None:
        self.entry.status = status
        cut = self.hub.cut_short and status in (200, 206) and not self.path.startswith("/api/")
        end = start + (stop - start) // 2 if cut else stop
        try:
            self.send_response(status)
            for key, value in {**head, "Content-Length": str(stop - start)}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self._send_body(content, start, end)
        except ConnectionError:  # the client has had enough
            self.close_connection = True
        if cut:
            self.close_connection = True

    def _send_body(self, content: Content, start: int, stop: int) -> None:
        drip = 0 if self.path.startswith("/api/") else self.hub.drip
        step = 1 if drip else _CHUNK
        for at in range(start, stop, step):
            time.sleep(drip)
            data = read(content, at, min(stop, at + step))
            self.wfile.write(data)
            self.entry.sent += len(data)
