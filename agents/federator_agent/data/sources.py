"""Where data lies, by the kind of its address: files of the site, web servers, and stores that speak S3.

A source lists what an address names, fetches one item of it, and (files and S3) takes what is put there. What it raises says whether trying again may help:
`Permanent` when the address or the credentials are wrong, `Transient` when the other side is in trouble.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from federator.kernel.errors import Invalid, NotSupported, TooLarge
from federator_agent.data.allowed import below
from federator_agent.link_use import LinkUse

Moved = Callable[[int], None]
"""Is told of bytes as they arrive, those among them that had come before and need not come again."""
FolderCheck = Callable[[Path, Path], None]
"""Refuses a folder that is named where it really lies, by what it raises."""
READ_BYTES = 2**20
"""Most that `read` takes: it is for small files, such as the notes of a checkpoint."""
MOST_ITEMS = 2_000_000
"""Files that one address may name."""
T = TypeVar("T")


class Item(msgspec.Struct, frozen=True):
    """One file of what an address names. `name`: its path below the address; empty for the address itself. `tag`: changes with the content."""

    name: str
    size: int
    tag: str


def listed(uri: str, found: Iterable[Item]) -> list[Item]:
    """What an address names, sorted by name. Raises `TooLarge`, before the rest is looked for."""
    items: list[Item] = []
    for item in found:
        if len(items) == MOST_ITEMS:
            raise TooLarge(
                f"{uri} names over {MOST_ITEMS} files",
                remedy="pack them into archives, or name a part of them",
            )
        items.append(item)
    return sorted(items, key=lambda item: item.name)


class GivenUp(Exception):
    """Nobody waits for this transfer any more."""


class Readable(Protocol):
    """What data is fetched from."""

    link: LinkUse | None
    """What its transfers go over, and keep to. None: they do not leave the site, or whoever makes them sees to it."""

    async def items(self, uri: str) -> list[Item]:
        """What it names, sorted by name. Raises `NotFound` for nothing, `TooLarge` for over `MOST_ITEMS`, `Permanent`, `Transient`."""
        ...

    async def fetch(self, uri: str, item: Item, into: Path, moved: Moved) -> None:
        """Write an item to a file, which may hold a part of it already. Raises `NotFound` when it has gone or changed since, `HoursOver`, `Permanent`, `Transient`."""
        ...


class Source(Readable, Protocol):
    """One kind of address."""

    async def put(self, file: Path, uri: str) -> None:
        """Make an address hold a file's content, whole or not at all; what has begun waits for its hours itself. Raises `NotSupported`, `Permanent`, `Transient`."""
        ...

    async def read(self, uri: str) -> bytes:
        """A small content at once, of at most `READ_BYTES`. Raises `NotFound`, `Permanent`, `Transient`."""
        ...

    async def remove(self, uri: str) -> None:
        """What is not there is removed already. Raises `Permanent`, `Transient`."""
        ...


class WebRules(NamedTuple):
    """What web servers are asked for a job."""

    networks: tuple[str, ...] = ()
    """Beside the public Internet, the site's networks whose servers may be asked."""
    addresses: tuple[str, ...] | None = None
    """What the job may name, and servers may send on to; None: everything."""


ANY_PUBLIC = WebRules()
_WEB = ("http", "https")
_DOORS = {
    "file": ("federator_agent.data.files", "FileSource"),
    "http": ("federator_agent.data.web", "WebSource"),
    "https": ("federator_agent.data.web", "WebSource"),
    "s3": ("federator_agent.data.s3", "S3Source"),
}


def size_of(file: Path) -> int:
    """Bytes of a file that may not be there."""
    return file.stat().st_size if file.exists() else 0


def scheme_of(uri: str) -> str:
    """The kind of an address."""
    return urlsplit(uri).scheme


class Sources:
    """The sources of one agent, each made when it is first asked for: an agent that moves nothing imports nothing for it."""

    def __init__(self, check: FolderCheck, link: LinkUse | None = None) -> None:
        """`check`: of the site's own files, what may be named. `link`: to the outside; None: nobody counts what goes over it."""
        self._known: dict[tuple[str, bool], Source] = {}
        self._check, self._link = check, link

    def of(self, uri: str, web: WebRules = ANY_PUBLIC) -> Source:
        """The source of an address, by those rules if it is a web server's. Raises `Invalid` for a kind that this agent does not know, `NotSupported` for one that is not installed."""
        scheme = scheme_of(uri)
        if scheme not in _DOORS:
            raise Invalid(
                f"{uri!r} is not an address that this agent can fetch", remedy=f"use {', '.join(_DOORS)}"
            )
        link = self._link
        if link is not None and any(below(uri, each) for each in link.limits.bulk.on_site):
            link = None
        kind = scheme, link is None
        if kind not in self._known:
            module, name = _DOORS[scheme]
            try:
                door = getattr(import_module(module), name)
                if scheme in _WEB:
                    made: Source = door(web, link)  # it holds nothing, and its rules are the job's
                    return made
                self._known[kind] = door(self._check) if scheme == "file" else door(link)
            except ModuleNotFoundError as error:
                remedy = "install federator[agent,aws] there"
                raise NotSupported(
                    f"this agent cannot reach {scheme}: {error.name} is missing", remedy=remedy
                ) from None
        return self._known[kind]


async def in_thread(work: Callable[[Moved], T], moved: Moved) -> T:
    """Run what blocks in a thread. Cancelled, the thread ends at its next word of progress."""
    given_up = threading.Event()

    def progress(count: int) -> None:
        if given_up.is_set():
            raise GivenUp
        moved(count)

    try:
        return await asyncio.to_thread(work, progress)
    except asyncio.CancelledError:
        given_up.set()
        raise
