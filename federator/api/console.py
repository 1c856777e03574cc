"""The console's files: read once, answered with what browsers need to keep them apart from everything else.

They are static, and for everyone: what they show is asked of the API, as whoever has signed in. A path of a page answers `index.html`, so that a
page can be loaded anew or sent to somebody. It names all modules that this page will need, so that they are fetched at once and not one after the
other as each import is read. Addresses in it hold a hash of all files: a browser keeps what it has until there is another console.
"""

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from posixpath import dirname, normpath

from aiohttp import web
from aiohttp.typedefs import Handler

TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
"""Kinds of files that are served; others in the package are not."""
PAGES = {
    "": "pages/now.js",
    "sign-in": "sign_in.js",
    "plan": "pages/plan.js",
    "jobs": "pages/jobs.js",
    "submit": "pages/submit.js",
    "money": "pages/money.js",
    "policies": "pages/policies.js",
    "sites": "pages/sites.js",
    "decisions": "pages/decisions.js",
}
"""First parts of paths of pages, and the module of each."""
ONE_JOB = "pages/job.js"
"""The module below `/jobs/`."""
PLACE = "/console/"
NO_PAGES = ("/v1/", "/agent/", PLACE)
"""Begins of paths of programs and files."""
START = "main.js"
HASH_LENGTH = 20
KEPT = "public, max-age=31536000, immutable"
"""What is at an address with its hash never changes."""
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


class Console:
    """The files, and the frame of each page."""

    def __init__(self) -> None:
        self.files = dict(_walk(files("federator.console"), ""))
        """By their path below `PLACE`."""
        told = "".join(f"{name} {file.etag}\n" for name, file in sorted(self.files.items()))
        self.version = _etag(told.encode())
        """A hash of all of them."""
        modules = {*PAGES.values(), ONE_JOB}
        self.frames = {module: self._frame(module) for module in modules}
        """`index.html` by the module of the page."""

    def find(self, path: str) -> tuple[ConsoleFile, bool] | None:
        """The file at a path below `PLACE`, and whether the path says which version it is of. Another version's address, as in a tab that is older than this dispatcher, finds the present file."""
        version, _, rest = path.partition("/")
        if len(version) != HASH_LENGTH or "." in version:
            version, rest = "", path
        file = self.files.get(rest)
        return None if file is None else (file, version == self.version)

    def _frame(self, module: str) -> ConsoleFile:
        text = self.files["index.html"].body.decode().replace(PLACE, f"{PLACE}{self.version}/")
        wanted = (name for name in self._needs([START, module]) if name != START)
        links = (f'    <link rel="modulepreload" href="{PLACE}{self.version}/{name}">\n' for name in wanted)
        head, script, tail = text.partition("    <script")
        return _file("text/html", (head + "".join(links) + script + tail).encode())

    def _needs(self, modules: list[str]) -> list[str]:
        """These and all that they import, in the order in which that is found."""
        found = dict.fromkeys(modules)
        for module in (queue := list(found)):
            for name in _imports(self.files[module].body.decode()):
                path = normpath(f"{dirname(module)}/{name}").lstrip("/")
                if path not in found:
                    found[path] = None
                    queue.append(path)
        return list(found)


def add_console(app: web.Application) -> None:
    """Serve the console at `/` and at the paths of its pages."""
    console = Console()

    async def page(request: web.Request) -> web.Response:
        given = request.match_info
        module = (
            ONE_JOB if given.get("page") == "jobs" and given.get("rest") else PAGES[given.get("page", "")]
        )
        return _answer(request, console.frames[module])

    async def file(request: web.Request) -> web.Response:
        found = console.find(request.match_info["file"])
        if found is None:
            raise web.HTTPNotFound
        return _answer(request, found[0], kept=found[1])

    named = "|".join(filter(None, PAGES))
    app.router.add_get("/", page)
    app.router.add_get(f"/{{page:({named})}}", page)
    app.router.add_get(f"/{{page:({named})}}/{{rest:.*}}", page)
    app.router.add_get(PLACE + "{file:.+}", file)

    @web.middleware
    async def no_such_page(request: web.Request, handler: Handler) -> web.StreamResponse:
        """A person who has followed a wrong link is answered by a page; programs by the problem."""
        try:
            return await handler(request)
        except web.HTTPNotFound:
            if not _is_for_a_page(request):
                raise
            answer = _answer(request, console.frames[PAGES[""]])
            answer.set_status(HTTPStatus.NOT_FOUND)
            return answer

    app.middlewares.append(no_such_page)


def _is_for_a_page(request: web.Request) -> bool:
    """Whether a browser wants to show what is at an address that nothing has."""
    accepted = request.headers.get("Accept", "")
    return request.method == "GET" and "text/html" in accepted and not request.path.startswith(NO_PAGES)


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, ConsoleFile]]:
    for each in folder.iterdir():
        kind = TYPES.get(each.name[each.name.rfind(".") :])
        if each.is_dir():
            yield from _walk(each, f"{prefix}{each.name}/")
        elif kind is not None:
            yield prefix + each.name, _file(kind, each.read_bytes())


def _file(kind: str, body: bytes) -> ConsoleFile:
    return ConsoleFile(kind, body, gzip.compress(body, mtime=0), _etag(body))


def _imports(module: str) -> Iterator[str]:
    """What it imports at once; what it imports later is not for the first view."""
    for line in module.splitlines():
        if line.startswith("import ") and line.endswith('";'):
            yield line.rpartition(' from "')[2].removesuffix('";')


def _etag(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:HASH_LENGTH]


def _answer(request: web.Request, file: ConsoleFile, *, kept: bool = False) -> web.Response:
    headers = HEADERS | {"ETag": f'"{file.etag}"', "Vary": "Accept-Encoding"}
    if kept:
        headers["Cache-Control"] = KEPT
    if any(each.value == file.etag for each in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    body = file.body
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"] = "gzip"
        body = file.packed
    return web.Response(body=body, content_type=file.content_type, charset="utf-8", headers=headers)
