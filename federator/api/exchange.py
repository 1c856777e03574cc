"""One request and its answer: who calls, what came with it, and how it is read within the limits."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from os import SEEK_END
from typing import IO, Annotated, TypeVar, get_origin

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError

from federator.api.feeds import Feeds
from federator.api.problems import STARTED, TooSlow, WrongContentType
from federator.api.transfers import TRANSFERS
from federator.assembly import Core
from federator.control.administration.visibility import Sight
from federator.hub import Session
from federator.kernel.errors import Invalid, TooLarge
from federator.model.identity import Caller
from federator.model.jobs import Job
from federator.model.rights import Relation
from federator.ports import BlobUpload
from federator.wire.decoding import decode
from federator.wire.jsontext import decode_json
from federator.wire.link import SITE_HEADER

T = TypeVar("T")
JSON = "application/json"
YAML = ("application/yaml", "application/x-yaml", "text/yaml")
NDJSON = "application/x-ndjson"
SINGLE_HEADERS = (
    "Authorization",
    "Host",
    "Content-Type",
    "Content-Length",
    "Content-Encoding",
    "Idempotency-Key",
    "Last-Event-ID",
    SITE_HEADER,
)
_TO_THE_END = re.compile(r"bytes=(\d{1,15})-")
GZIP_MAGIC = b"\x1f\x8b"
MIB = 2**20
READ_BYTES = 2**18
SMALL_BYTES = 2**14
"""Most of a body where no one is known yet: a public key with its signatures."""
SMALL_S = 10.0
"""Real seconds for which such a body is waited for."""
Moment = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
"""Seconds since the epoch; milliseconds would be more."""
Cursor = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9._:-]{1,100}$")]
"""Where a page begins: what the last one gave as `next_after`, or the id of its last entry."""


@dataclass
class Call:
    """A request that was let in. Which of caller, job, relations, session and query are set follows from the route's gate."""

    core: Core
    feeds: Feeds
    request: web.Request
    who: Caller | None = None
    about: Job | None = None
    relations: frozenset[Relation] = frozenset()
    """How the caller stands to the job that the path names."""
    of_session: Session | None = None
    given: object = None

    @property
    def caller(self) -> Caller:
        """The person who calls."""
        assert self.who is not None
        return self.who

    @property
    def sight(self) -> Sight:
        """Which jobs the person who calls is shown, at this moment."""
        return self.core.visibility.of(self.caller)

    @property
    def job(self) -> Job:
        """The job that the path names."""
        assert self.about is not None
        return self.about

    @property
    def session(self) -> Session:
        """The agent's session."""
        assert self.of_session is not None
        return self.of_session

    def query(self, kind: type[T]) -> T:
        """The query, as the record that the route declares."""
        assert isinstance(self.given, kind)
        return self.given

    def path(self, name: str) -> str:
        """A part of the path."""
        return self.request.match_info[name]

    async def body(self, kind: type[T]) -> T:
        """The JSON body as a record. Raises `Invalid` with the path of the fault."""
        require_type(self.request, JSON)
        limit = self.core.settings.limits.body_mib * MIB if self.known else SMALL_BYTES
        return decode(decode_json(await self._read(limit)), kind, "$")

    @property
    def known(self) -> bool:
        """Whether anybody has signed in."""
        return self.who is not None or self.of_session is not None

    async def read(self, limit_mib: int) -> bytes:
        """The whole body. Raises `TooLarge`."""
        return await self._read(limit_mib * MIB)

    async def _read(self, limit: int) -> bytes:
        return b"".join([part async for part in self._chunks(limit)])

    async def chunks(self, limit_mib: int) -> AsyncIterator[bytes]:
        """The body as it comes. Raises `TooLarge` as soon as it is known to be over the limit."""
        async for part in self._chunks(limit_mib * MIB):
            yield part

    async def _chunks(self, limit: int) -> AsyncIterator[bytes]:
        size = f"{limit // MIB} MiB" if limit >= MIB else f"{limit // 1024} KiB"
        refused = TooLarge(f"the body is larger than {size}", remedy="send less, or raise the limit")
        if (self.request.content_length or 0) > limit:
            raise refused
        seen = 0
        async for part in self.parts():
            seen += len(part)
            if seen > limit:
                raise refused
            yield part

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes, without limit. Raises `TooSlow` when it comes too slowly, and `Invalid` when it is not coded as it says.

        What counts is how long it was waited for: a sender is not to blame for what we take to work on it.
        """
        settings = self.core.settings.connections
        clock = asyncio.get_running_loop().time
        left_s = settings.body_s if self.known else SMALL_S
        try:
            while True:
                begun_s = clock()
                async with asyncio.timeout(left_s):
                    part = await self.request.content.read(READ_BYTES)
                if not part:
                    return
                left_s += len(part) / settings.body_rate - (clock() - begun_s)
                yield part
        except TimeoutError:
            raise TooSlow(
                f"the body comes at less than {settings.body_rate} bytes a second",
                remedy="send it sooner, or have connections.body_s raised",
            ) from None
        except (web.RequestPayloadError, ContentEncodingError) as error:
            raise Invalid(f"the body is broken: {error}", field="$") from None

    @asynccontextmanager
    async def archive(self, may_go_on: Callable[[], None] = lambda: None) -> AsyncIterator[BlobUpload]:
        """The body as a gzipped tar, by its first bytes, on disk as it comes; the caller keeps it, or it is forgotten. `may_go_on` raises when no more is to be written. Raises `Invalid`, `TooLarge`, `TooMany`."""
        with self.transfer():
            draft = await asyncio.to_thread(self.core.blobs.draft)
            try:
                async for part in self.chunks(self.core.settings.limits.blob_mib):
                    begins = not draft.length
                    if begins and not part.startswith(GZIP_MAGIC[: len(part)]):
                        break
                    may_go_on()
                    await asyncio.to_thread(draft.write, part)
                if draft.length < len(GZIP_MAGIC):
                    raise Invalid("the body is not gzipped", field="$", remedy="send a gzipped tar")
                yield draft
            finally:
                await asyncio.to_thread(draft.discard)

    def transfer(self) -> AbstractContextManager[None]:
        """A place among those who send or fetch large bodies. Raises `TooMany`."""
        name = self.session.member if self.of_session is not None else self.caller.name
        return self.request.app[TRANSFERS].place(f"{'member' if self.of_session else 'user'} {name}")

    async def send(
        self, file: IO[bytes], content_type: str, headers: dict[str, str] | None = None
    ) -> web.StreamResponse:
        """Answer with a file, part by part, and close it; with `Range: bytes=N-` from there on."""
        with file, self.transfer():
            response = web.StreamResponse(headers=headers)
            response.content_type = content_type
            size = await asyncio.to_thread(file.seek, 0, SEEK_END)
            begin = _range_begin(self.request, size)
            if begin:
                response.set_status(HTTPStatus.PARTIAL_CONTENT)
                response.headers["Content-Range"] = f"bytes {begin}-{size - 1}/{size}"
            response.content_length = size - begin
            await asyncio.to_thread(file.seek, begin)
            await response.prepare(self.request)
            self.request[STARTED] = response
            while part := await asyncio.to_thread(file.read, READ_BYTES):
                await response.write(part)
            await response.write_eof()
        return response

    async def stream(self, content_type: str, headers: dict[str, str] | None = None) -> web.StreamResponse:
        """Begin an answer of unknown length."""
        response = web.StreamResponse(headers=headers)
        response.content_type = content_type
        if content_type.startswith("text/"):
            response.charset = "utf-8"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        await response.prepare(self.request)
        self.request[STARTED] = response
        return response

    @property
    def hung_up(self) -> bool:
        """Whether the client has gone away: a stream that waits must look."""
        transport = self.request.transport
        return transport is None or transport.is_closing()


def _range_begin(request: web.Request, size: int) -> int:
    """Where the bytes that are asked for begin. Other ranges than to the end are answered with everything, as a server may."""
    found = _TO_THE_END.fullmatch(request.headers.get("Range", ""))
    begin = int(found[1]) if found else 0
    return begin if begin < size else 0


def require_type(request: web.Request, *allowed: str) -> str:
    """The body's content type, which must be one of these. Raises `WrongContentType`."""
    if request.content_type not in allowed:
        raise WrongContentType(
            f"the body is {request.content_type}", field="Content-Type", remedy=f"send {' or '.join(allowed)}"
        )
    return request.content_type


def refuse_repeated(request: web.Request) -> None:
    """Raise `Invalid` for a header that is there twice and must not be: of two readers one may go by the first, and one by the last."""
    for name in SINGLE_HEADERS:
        if len(request.headers.getall(name, ())) > 1:
            raise Invalid("the header is given more than once", field=name, remedy="send it once")


def refuse_coding(request: web.Request) -> None:
    """Raise `WrongContentType` for a coded body: what is small as it comes could be of any size as it is read."""
    coding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise WrongContentType(
            f"the body is coded as {coding[:40]!r}",
            field="Content-Encoding",
            remedy="send it as it is, without Content-Encoding",
        )


def read_query(request: web.Request, kind: type[msgspec.Struct] | None) -> object:
    """The query as a record of that kind; None: the route takes no query. Unknown names are refused."""
    fields = {} if kind is None else {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, object] = {}
    for name in request.query:
        field = fields.get(name)
        if field is None:
            known = ", ".join(fields) or "none"
            raise Invalid(
                f"there is no query parameter {name[:80]!r}", field=f"?{name[:80]}", remedy=f"known: {known}"
            )
        given = request.query.getall(name)
        if get_origin(field.type) is tuple:
            values[name] = given
        elif len(given) > 1:
            raise Invalid("is given twice", field=f"?{name}")
        else:
            values[name] = given[0]
    if kind is None:
        return None
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise Invalid(what, field=f"?{where.rstrip('`')}") from None


def json_response(answer: object, status: int = 200, seen_by: Sight | None = None) -> web.Response:
    """A record as JSON, without the names of jobs that somebody is not shown; None as an empty answer."""
    if answer is None:
        return web.Response(status=204)
    body = msgspec.json.encode(answer)
    return web.Response(status=status, body=seen_by.masked(body) if seen_by else body, content_type=JSON)
