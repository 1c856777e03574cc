"""The console's files: read once, answered with what browsers need to keep them apart from everything else.

They are static, and for everyone: what they show is asked of the API, as whoever has signed in. A path of a page answers `index.html`, so that a
page can be loaded anew or sent to somebody.
"""

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from aiohttp import web

TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
"""Kinds of files that are served; others in the package are not."""
PAGES = ("sign-in", "plan", "jobs", "submit", "money", "policies", "sites", "decisions")
"""First parts of paths of pages; `/` is the page Now."""
PLACE = "/console/"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing inline, nothing from elsewhere, no markup that is parsed, and no page that shows this one inside of itself."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True)
class ConsoleFile:
    """A file, as it is and packed."""

    content_type: str
    body: bytes
    packed: bytes
    etag: str


def read_console() -> dict[str, ConsoleFile]:
    """All files of the console by their path below `PLACE`."""
    return dict(_walk(files("federator.console"), ""))


def add_console(app: web.Application) -> None:
    """Serve the console at `/` and at the paths of its pages."""
    table = read_console()

    async def page(request: web.Request) -> web.Response:
        return _answer(request, table["index.html"])

    async def file(request: web.Request) -> web.Response:
        found = table.get(request.match_info["file"])
        if found is None:
            raise web.HTTPNotFound
        return _answer(request, found)

    app.router.add_get("/", page)
    app.router.add_get(f"/{{page:({'|'.join(PAGES)})}}", page)
    app.router.add_get(f"/{{page:({'|'.join(PAGES)})}}/{{rest:.*}}", page)
    app.router.add_get(PLACE + "{file:.+}", file)


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, ConsoleFile]]:
    for each in folder.iterdir():
        kind = TYPES.get(each.name[each.name.rfind(".") :])
        if each.is_dir():
            yield from _walk(each, f"{prefix}{each.name}/")
        elif kind is not None:
            body = each.read_bytes()
            etag = hashlib.sha256(body).hexdigest()[:20]
            yield prefix + each.name, ConsoleFile(kind, body, gzip.compress(body, mtime=0), etag)


def _answer(request: web.Request, file: ConsoleFile) -> web.Response:
    headers = HEADERS | {"ETag": f'"{file.etag}"', "Vary": "Accept-Encoding"}
    if any(each.value == file.etag for each in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    body = file.body
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"] = "gzip"
        body = file.packed
    return web.Response(body=body, content_type=file.content_type, charset="utf-8", headers=headers)
