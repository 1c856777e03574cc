"""A copy of one kind of object, kept by hand: listed in pages, then watched, and listed again whenever the watch cannot go on.

What is kept of each object is for the caller to say, so that a cluster of thousands of pods takes kilobytes where the client's own models take
megabytes. An object that is `None` to the caller is not kept at all.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Generic, TypeVar

import aiohttp
import msgspec

from federator.kernel.errors import FederatorError, Unavailable
from federator.kube.api import Api, TooOld
from federator.kube.objects import Struct
from federator.retry import Backoff
from federator.wire.jsontext import DEEPEST, Reader, cut, read

PAGE = 500
LARGE_PAGE = 50
"""Of objects that people fill as they like: each may have over a megabyte, and a page is in memory whole."""
WATCH_S = 120
"""So long the server keeps a watch open; then it goes on from where it was."""
SILENCE_S = WATCH_S + 30.0
BACKOFF = Backoff(0.2, 15.0)
MAX_LINE_BYTES = 16 * 2**20
log = logging.getLogger("federator_agent.kube")

Seen = TypeVar("Seen", bound=msgspec.Struct)
Kept = TypeVar("Kept")
Read = TypeVar("Read")


class _ListMeta(Struct, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: tuple[msgspec.Raw, ...] = ()


class _Version(Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    code: int = 0
    message: str = ""


class _Change(Struct, frozen=True):
    type: str
    object: msgspec.Raw


class Informer(Generic[Seen, Kept]):
    """Objects by name (`namespace/name` across namespaces). `changed` is told each name whose object is new, another, or gone (None)."""

    def __init__(
        self,
        api: Api,
        path: str,
        kind: type[Seen],
        keep: Callable[[Seen], tuple[str, Kept | None]],
        changed: Callable[[str, Kept | None], None],
        query: Mapping[str, str] | None = None,
        *,
        skips: bool = False,
    ) -> None:
        """`keep`: the name of an object and what is kept of it. `skips`: of objects that people fill as they like, fewer are listed at once, and one that cannot be read is passed over, where without it nothing is taken to be known."""
        self._api, self._path, self._query = api, path, dict(query or {})
        self._keep, self._changed = keep, changed
        self._object: Reader[Seen] = Reader(kind)
        self._change: Reader[_Change] = Reader(_Change)
        self._page: Reader[_Page] = Reader(_Page)
        self._skips, self._page_size = skips, LARGE_PAGE if skips else PAGE
        self.items: dict[str, Kept] = {}
        self.synced = asyncio.Event()
        """Set once the whole has been listed."""
        self.trouble = ""
        """Why it cannot be kept now; empty: it is."""

    async def run(self) -> None:
        """Keep it, for ever."""
        failures = 0
        while True:
            try:
                version = await self.relist()
                self.trouble = ""
                self.synced.set()
                failures = 0
                while True:
                    version = await self.watch(version)
            except TooOld:
                log.info("%s: listing again, the changes since are gone", self._path)
            except (FederatorError, msgspec.MsgspecError) as error:
                self.trouble = str(error)
                log.warning("%s: %s; listing again", self._path, error)
            failures += 1
            await asyncio.sleep(BACKOFF.pause_s(failures))

    def put(self, name: str, kept: Kept | None) -> None:
        """Take over what is known by other means."""
        if kept is None:
            if self.items.pop(name, None) is None:
                return
        else:
            self.items[name] = kept
        self._changed(name, kept)

    async def relist(self) -> str:
        """All of it, page by page; the version that a watch goes on from. The pages are of one version, however long they take."""
        present: set[str] = set()
        token, version = "", ""
        while True:
            query = self._query | {"limit": str(self._page_size)} | ({"continue": token} if token else {})
            page = _shallow(self._page, await self._api.ask("GET", self._path, query=query), 2)
            for each in page.items:
                if (seen := self._seen(each)) is not None:
                    present.add(self.take(seen))
            token, version = page.metadata.continue_, page.metadata.resource_version
            if not token:
                break
        for name in self.items.keys() - present:
            self.put(name, None)
        return version

    def _seen(self, data: msgspec.Raw) -> Seen | None:
        """An object; None: it cannot be read, and is passed over. Whatever one of them holds, the others are read."""
        try:
            return self._object.decode(cut(bytes(data)))
        except msgspec.DecodeError as error:
            if not self._skips:
                raise
            log.warning("%s: an object is passed over: %s", self._path, error)
            return None

    def take(self, each: Seen) -> str:
        """Keep an object, and answer its key."""
        name, kept = self._keep(each)
        if kept is None or self.items.get(name) != kept:
            self.put(name, kept)
        return name

    async def watch(self, version: str) -> str:
        """Take up changes until the server ends the watch; the version to go on from."""
        query = self._query | {
            "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_S), "resourceVersion": version,
        }  # fmt: skip
        async with self._api.stream(self._path, query, silence_s=SILENCE_S) as body:
            async for line in _lines(body):
                change = _shallow(self._change, line, 1)
                about = read(change.object, _Version)
                if change.type == "ERROR":
                    raise TooOld(about.message) if about.code == 410 else Unavailable(about.message)
                version = about.metadata.resource_version
                if change.type == "BOOKMARK" or (seen := self._seen(change.object)) is None:
                    continue
                if change.type == "DELETED":
                    self.put(self._keep(seen)[0], None)
                else:
                    self.take(seen)
        return version


def _shallow(reader: Reader[Read], data: bytes, around: int) -> Read:
    """What has objects `around` levels down, also where one of them is nested too deeply to be read whole."""
    try:
        return reader.decode(data)
    except msgspec.DecodeError:
        return reader.decode(cut(data, DEEPEST + around))


async def _lines(body: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Whole lines of any length within reason."""
    rest = b""
    async for data in body.iter_any():
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise Unavailable("a line of the answer of the API server is longer than any object may be")
        for line in lines:
            if line.strip():
                yield line
