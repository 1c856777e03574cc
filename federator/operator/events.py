"""Events of the objects, for `kubectl describe`. They are written beside the work and never hold it up: what is said when too many wait, or cannot be written, is left out."""

import asyncio
import logging
import time
from collections import deque
from typing import NamedTuple

from federator.kernel.errors import Conflict, FederatorError
from federator.kube.api import Api
from federator.operator.objects import API_VERSION, KIND, FederatedJob, digest
from federator.operator.status import LONGEST, instant

COMPONENT = "federator-operator"
WARNINGS = frozenset({"Failed", "Refused", "NotCancelled", "NotChanged", "NotPlanned"})
MOST = 2000
"""So many may wait."""
WRITERS = 2
log = logging.getLogger("federator.operator")


class About(NamedTuple):
    """Which object an Event is of."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Events:
    """Those that wait to be written."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._waiting: deque[tuple[str, dict[str, object]]] = deque()
        self._some = asyncio.Event()
        self._left_out = 0
        """Since the last time that none waited."""

    def tell(self, job: FederatedJob, reason: str, message: str) -> None:
        """Say it of a job's object; the same is said once."""
        meta = job.metadata
        self.tell_of(About(API_VERSION, KIND, meta.namespace, meta.name, meta.uid), reason, message)

    def tell_of(self, about: About, reason: str, message: str) -> None:
        """Say it of any object; the same is said once."""
        if len(self._waiting) >= MOST:
            if not self._left_out:
                log.warning("events are left out, that of %s first: %d wait to be written", about.name, MOST)
            self._left_out += 1
            return
        now = instant(time.time())
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about.name[:200]}.{digest([about.uid, reason, message])}",
                "namespace": about.namespace,
            },
            "involvedObject": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "name": about.name,
                "namespace": about.namespace,
                "uid": about.uid,
            },
            "type": "Warning" if reason in WARNINGS else "Normal",
            "reason": reason,
            "message": message[:LONGEST],
            "source": {"component": COMPONENT},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._waiting.append((about.namespace, event))
        self._some.set()

    async def run(self) -> None:
        """Write them, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WRITERS):
                tasks.create_task(self._write())

    async def _write(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            await self.flush()

    async def flush(self) -> None:
        """Write those that wait now."""
        while self._waiting:
            namespace, event = self._waiting.popleft()
            try:
                await self._api.ask("POST", f"/api/v1/namespaces/{namespace}/events", body=event)
            except Conflict:
                continue  # it has been said
            except FederatorError as error:
                log.info("an event of namespace %s is left out: %s", namespace, error)
        if self._left_out:
            log.warning("%d events were left out", self._left_out)
            self._left_out = 0
