"""A server that answers for one dataset as the Hugging Face Hub does."""

import hashlib
import json
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.servers import Answering, local_server

_COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def hub(name: str, folder: Path, halved: Collection[str] = ()) -> Iterator[tuple[str, list[str]]]:
    """Serve the files in a folder as a dataset; gives the address, and the paths of files that were asked for.

    Of the files in `halved`, the first half is sent, and no more.
    """
    fetched: list[str] = []
    with local_server(partial(_Handler, name, folder, fetched, halved)) as address:
        yield address, fetched


class _Handler(Answering):
    protocol_version = "HTTP/1.1"

    def __init__(self, name: str, folder: Path, fetched: list[str], halved: Collection[str], *arguments: Any) -> None:
        self._name, self._folder, self._fetched, self._halved = name, folder, fetched, halved
        super().__init__(*arguments)

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if match := re.fullmatch(f"/datasets/{self._name}/resolve/[^/]+/(.+)", path):
            self._file(match[1])
        elif re.fullmatch(f"/api/datasets/{self._name}(/revision/[^/]+)?", path):
            siblings = [{"rfilename": entry["path"]} for entry in self._entries() if entry["type"] == "file"]
            self._json({"id": self._name, "sha": _COMMIT, "siblings": siblings, "tags": [], "downloads": 0})
        elif match := re.fullmatch(f"/api/datasets/{self._name}/tree/[^/]+/?(.*)", path):
            self._json([entry for entry in self._entries() if entry["path"].startswith(match[1])])
        else:
            self._missing()

    do_HEAD = do_GET  # noqa: N815  the name that the server calls

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        wanted = parse_qs(body).get("paths") or json.loads(body)["paths"]
        self._json([entry for entry in self._entries() if entry["path"] in wanted])

    def _entries(self) -> list[dict[str, Any]]:
        return [
            {"type": "directory", "path": name, "oid": _oid(name)}
            if path.is_dir()
            else {"type": "file", "path": name, "size": path.stat().st_size, "oid": _oid(name)}
            for path in sorted(self._folder.rglob("*"))
            for name in [path.relative_to(self._folder).as_posix()]
        ]

    def _file(self, name: str) -> None:
        path = self._folder / name
        if not path.is_file():
            self._missing()
            return
        content = path.read_bytes()
        if self.command == "GET":
            self._fetched.append(name)
        first, last = 0, len(content) - 1
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(asked[1]), min(int(asked[2] or last), last)
        part = {"Content-Range": f"bytes {first}-{last}/{len(content)}"} if asked else {}
        headers = {"ETag": f'"{_oid(name)}"', "X-Repo-Commit": _COMMIT, "Accept-Ranges": "bytes", **part}
        self.answer(content[first : last + 1], 206 if asked else 200, headers, is_half=name in self._halved)

    def _json(self, value: Any) -> None:
        self.answer(json.dumps(value).encode(), headers={"Content-Type": "application/json"})

    def _missing(self) -> None:
        self.answer(b"", 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": _COMMIT})


def _oid(name: str) -> str:
    return hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
