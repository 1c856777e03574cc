"""What an etcd store needs from time to time: its history forgotten, its size watched, large values that no key names dropped.

Every dispatcher does this, leader or not: each act is harmless when two do it, and an etcd that fills up while nobody leads would
keep anybody from leading again.
"""

import asyncio
import contextlib
import logging
from collections import deque

from aetcd import rpc

from federator.kernel.errors import FederatorError, Unavailable
from federator.ports import Blobs
from federator.settings import EtcdSettings
from federator.store.etcd_link import FULL_REMEDY, EtcdLink, Member

LOOK_S = 10.0
"""Real seconds between two looks at the cluster's size and alarms."""
UNUSED_S = 86400.0
"""A large value is dropped when no key has named it for this long."""
DROP_EVERY_S = 3600.0
MIB = 2**20
log = logging.getLogger(__name__)


class Upkeep:
    """One task of the store, from `start` to `stop`."""

    def __init__(self, link: EtcdLink, blobs: Blobs, data: bytes, settings: EtcdSettings) -> None:
        self._link = link
        self._blobs = blobs
        self._data = data
        self._settings = settings
        self._full = ""
        self._past: deque[tuple[float, int]] = deque()
        """When which revision was the newest, by the loop's clock."""
        self._dropped_s: float | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="etcd-upkeep")

    async def stop(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def refuse_if_full(self) -> None:
        """Raise `Unavailable` when the last look found the cluster full."""
        if self._full:
            raise Unavailable(
                f"the etcd store {self._link.names} is full: {self._full}",
                retry_after_s=LOOK_S,
                remedy=FULL_REMEDY,
            )

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
                await self.forget()
                await self.drop_unused()
            except FederatorError as error:
                log.warning("looking after etcd: %s", error)
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """See how large the cluster is, and whether it has raised an alarm."""
        status = (await self._link.call(_status, rpc.StatusRequest())).message
        # Zero: an etcd too old to tell what of its file is in use.
        size_bytes = status.dbSizeInUse or status.dbSize
        asked = rpc.AlarmRequest(action=rpc.AlarmRequest.GET, alarm=rpc.NOSPACE)
        alarms = (await self._link.call(_alarm, asked)).message.alarms
        was, self._full = self._full, ""
        if any(alarm.alarm == rpc.NOSPACE for alarm in alarms):
            self._full = "it has raised the alarm NOSPACE"
        elif size_bytes > self._settings.size_mib * MIB:
            self._full = f"{size_bytes // MIB} MiB are in use, {self._settings.size_mib} are allowed"
        if self._full and not was:
            log.error("the etcd store is full: %s (%s)", self._full, FULL_REMEDY)
        self._past.append((asyncio.get_running_loop().time(), status.header.revision))

    async def forget(self) -> None:
        """Compact what is older than the settings keep; 0 leaves that to the cluster's own."""
        keep_s = self._settings.compact_after_s
        old = None
        while self._past and self._past[0][0] <= asyncio.get_running_loop().time() - keep_s:
            old = self._past.popleft()[1]
        if old and keep_s:
            # An error says that somebody else has compacted further.
            with contextlib.suppress(FederatorError):
                await self._link.call(lambda member: member.kv.Compact, rpc.CompactionRequest(revision=old))

    async def drop_unused(self) -> None:
        """Drop large values whose key is gone or has another value. What was just put is in use for a day."""
        now_s = asyncio.get_running_loop().time()
        if self._dropped_s is not None and now_s - self._dropped_s < DROP_EVERY_S:
            return
        self._dropped_s = now_s
        for digest in await asyncio.to_thread(self._blobs.unused, UNUSED_S):
            kept = await asyncio.to_thread(self._blobs.get, digest)
            key = (kept or b"").partition(b"\n")[0]
            if not key.startswith(self._data):
                continue
            kvs = (await self._link.call(_range, rpc.RangeRequest(key=key))).message.kvs
            if kvs and kvs[0].value[1:] == digest.encode():
                await asyncio.to_thread(self._blobs.has, digest)  # which is to use it
            else:
                await asyncio.to_thread(self._blobs.drop, digest, UNUSED_S)


def _status(member: Member) -> object:
    return member.maintenance.Status


def _alarm(member: Member) -> object:
    return member.maintenance.Alarm


def _range(member: Member) -> object:
    return member.kv.Range
