"""Brings a rank's log from the cluster into its file, each byte once, over cuts and restarts of anyone.

The file is all that is remembered: it is a beginning of the container's log, so a new look skips as many bytes as it has. A node keeps only the newest
part of a long log; when what it has no longer begins like the file, the file's end is looked for in it, and what is missing is said in the log.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial
from pathlib import Path

from federator.kernel.errors import FederatorError, Invalid, NotFound, Unavailable
from federator.kube.api import Api
from federator.retry import Backoff, retried
from federator_agent.kube.manifests import MAIN

HEAD_BYTES = 4096
TAIL_BYTES = 1024
MOST_BYTES = 64 * 2**20
"""What is looked through for the end of the file, at most; nodes keep some 10 MiB."""
SILENCE_S = 600.0
PAUSE_S = 1.0
BACKOFF = Backoff(1.0, 5.0)
TRIES_AT_END = 20
KUBELET_SAYS = (b"failed to try resolving symlinks in path", b"unable to retrieve container logs for")
"""How a body begins when it is no log: the kubelet finds out too late to answer with an error."""
log = logging.getLogger("federator_agent.kube")


class LogFollower:
    """One rank's log. `over` is for others to set, when its container has ended: `run` then gets what is missing, and returns."""

    def __init__(self, api: Api, pod_path: str, file: Path) -> None:
        self._api, self._path, self._file = api, f"{pod_path}/log", file
        self.over = asyncio.Event()

    async def run(self) -> None:
        """Follow until it is over; cut off, go on after a pause."""
        over = asyncio.create_task(self.over.wait())
        reading: asyncio.Task[None] | None = None
        try:
            while not over.done():
                reading = asyncio.create_task(self._follow())
                await asyncio.wait([reading, over], return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait([reading if over.done() else over], timeout=PAUSE_S)
        finally:
            ending = [task for task in (over, reading) if task is not None]
            for task in ending:
                task.cancel()
            await asyncio.wait(ending)
        await self.finish()

    async def _follow(self) -> None:
        try:
            await self._read(follow=True)
        except FederatorError as error:
            log.debug("%s: %s", self._path, error)

    async def finish(self) -> None:
        """The container has ended: get what is missing. What cannot be had is said in the log."""
        trouble = ""
        for _ in range(TRIES_AT_END):
            try:
                await self._read(follow=False)
            except (NotFound, Invalid) as error:
                trouble = str(error)
                break
            except FederatorError as error:
                trouble = str(error)
                await self._server_answers()
                await asyncio.sleep(PAUSE_S)
            else:
                return
        if "is waiting to start" not in trouble:
            self._append(f"\n[federator: the rest of this log could not be fetched: {trouble}]\n".encode())

    async def _server_answers(self) -> None:
        """Return once the API server does: while it is away, no log is lost. A node that is away keeps its logs to itself for longer than anybody waits."""
        ask = partial(self._api.ask, "GET", self._path.removesuffix("/log"))
        with suppress(FederatorError):
            await retried(
                ask, BACKOFF, on=Unavailable, failed=lambda error: log.debug("%s: %s", self._path, error)
            )

    async def _read(self, *, follow: bool) -> None:
        query = {"container": MAIN, **({"follow": "true"} if follow else {})}
        splice = _Splice(self._file)
        async with self._api.stream(self._path, query, silence_s=SILENCE_S) as body:
            began = False
            async for data in body.iter_any():
                if not began and data.startswith(KUBELET_SAYS):
                    raise NotFound(data.decode(errors="replace").strip()[:300])
                began = True
                self._append(splice.take(data))
        self._append(splice.end())  # of a command that wrote nothing there is a log, too: an empty one

    def _append(self, data: bytes) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("ab") as file:
            file.write(data)


class _Splice:
    """Where a log that is read from its beginning goes on after what a file has of it."""

    def __init__(self, file: Path) -> None:
        self._known = file.stat().st_size if file.exists() else 0
        self._head = self._tail = b""
        if self._known:
            with file.open("rb") as source:
                self._head = source.read(HEAD_BYTES)
                source.seek(max(0, self._known - TAIL_BYTES))
                self._tail = source.read()
        self._skip = self._known
        self._gathered = b""
        self._joined = not self._known
        self._rotated = False

    def take(self, data: bytes) -> bytes:
        """What of the next piece is new."""
        if self._joined:
            return self._skipped(data)
        self._gathered += data
        if not self._rotated and len(self._gathered) >= len(self._head):
            self._rotated = not self._gathered.startswith(self._head)
            if not self._rotated:
                return self._join(self._gathered)
        if self._rotated:
            found = self._gathered.find(self._tail)
            if found >= 0:
                self._skip = 0
                return self._join(self._gathered[found + len(self._tail) :])
            if len(self._gathered) > MOST_BYTES:
                return self.end()
        return b""

    def _join(self, data: bytes) -> bytes:
        self._joined, self._gathered = True, b""
        return self._skipped(data)

    def _skipped(self, data: bytes) -> bytes:
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        return data[skipped:]

    def end(self) -> bytes:
        """What is new of what could not be joined until the log ended."""
        if self._joined or not self._gathered or self._head.startswith(self._gathered):
            return b""
        self._skip = 0
        return self._join(b"\n[federator: a part of this log was dropped at its node]\n" + self._gathered)
