"""The dashboard: files that were built with the package, or a page that says why there are none.

They contain no data of users, so they need no token; what they show comes from the API, which requires one.
"""

from __future__ import annotations

import functools
import gzip
import html
import mimetypes
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

FOLDER = Path(__file__).parent / "web"
SECTIONS = frozenset(
    ("", "jobs", "compare", "submit", "virtual-clusters", "nodes", "policy", "searches", "studies", "login")
)
"""First path components that the browser's router handles; the page is the same for all."""
DATA = frozenset(("api", "metrics", "openapi.json"))
"""First path components of what is no page."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
YEAR = "public, max-age=31536000, immutable"
"""For files whose names change with their content."""
MISSING = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Skep</title>
<h1>Skep is up, without its dashboard</h1><p>{why}</p>
<p>With access to the npm registry, <code>SKEP_WEB=require pip install --force-reinstall --no-deps .</code> builds it,
or says what is in the way; in a checkout that was installed with <code>pip install -e .</code>,
<code>python web/build.py</code> does.
Everything else works: <code>skep ps</code>, <code>skep submit</code>, the API under <code>/api/v1</code>.</p></html>
"""


def is_page(scope: Scope) -> bool:
    """A person who follows a link that leads nowhere gets the page too, which says so."""
    path: str = scope["path"]
    first = first_part(path)
    if scope["method"] not in ("GET", "HEAD"):
        return False
    return (
        first in SECTIONS
        or path.startswith("/assets/")
        or path == "/icon.svg"
        or (first not in DATA and "text/html" in Headers(scope=scope).get("accept", ""))
    )


def first_part(path: str) -> str:
    return path.lstrip("/").partition("/")[0]


def why_missing(folder: Path = FOLDER) -> str | None:
    """None if the dashboard exists."""
    if (folder / "index.html").exists():
        return None
    note = folder / "missing.txt"
    return f"the dashboard was not built: {note.read_text().strip() if note.exists() else 'run web/build.py'}"


class Pages:
    """Serves the pages, before the API."""

    def __init__(self, app: ASGIApp, folder: Path = FOLDER) -> None:
        self.app = app
        self.folder = folder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and is_page(scope):
            await self.page(scope)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def page(self, scope: Scope) -> Response:
        path: str = scope["path"]
        is_file = path.startswith("/assets/") or path == "/icon.svg"
        why = why_missing(self.folder)
        if why is not None and not is_file:
            return Response(MISSING.format(why=html.escape(why)), 503, media_type="text/html")
        file = self.folder / path.lstrip("/") if is_file else self.folder / "index.html"
        if ".." in file.parts or not file.is_file():
            return Response("there is no such file\n", 404, media_type="text/plain")
        headers = {"content-security-policy": POLICY, "vary": "Accept-Encoding"}
        headers["cache-control"] = YEAR if path.startswith("/assets/") else "no-cache"
        plain, squeezed = contents(file, file.stat().st_mtime_ns)
        if "gzip" in Headers(scope=scope).get("accept-encoding", ""):
            headers["content-encoding"], plain = "gzip", squeezed
        status = 200 if is_file or first_part(path) in SECTIONS else 404
        return Response(plain, status, headers, mimetypes.guess_type(file.name)[0])


@functools.lru_cache(maxsize=256)
def contents(file: Path, changed_ns: int) -> tuple[bytes, bytes]:
    """The file, plain and compressed."""
    plain = file.read_bytes()
    return plain, gzip.compress(plain, 9)
