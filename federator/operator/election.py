"""Which of several operators works: the holder of a Lease of the cluster, as its own controllers do it.

Two that work for a moment do no harm: submissions are idempotent by uid, and writes name what they are about. So it saves requests, and no more depends on it.
Others' clocks are not believed: a holder has gone when its record has not changed for so long by one's own.
"""

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Any

from federator.kernel.errors import Conflict, FederatorError, NotFound
from federator.kube.api import Api, decoded
from federator.operator.objects import Struct

NAME = "federator-operator"
HELD_S = 10.0
"""A holder that has not been heard for so long is gone."""
RENEW_S = 3.0
LOOK_S = 1.0
REQUEST_S = 2.0
log = logging.getLogger("federator.operator")


class _Spec(Struct, frozen=True):
    holder_identity: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class _Meta(Struct, frozen=True):
    resource_version: str = ""


class _Lease(Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class Election:
    """One candidate."""

    def __init__(self, api: Api, namespace: str, me: str) -> None:
        self._api, self._me = api, me
        self._all = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._seen: tuple[_Spec, float] = (_Spec(), 0.0)
        self.stands = "starting"
        """How it stands: `works`, `stands by`, or `starting` while the lease has not been seen."""

    async def won(self) -> None:
        """Return once this one holds the lease."""
        while True:
            try:
                if await self._take():
                    self.stands = "works"
                    return
                self.stands = "stands by"
            except FederatorError as error:
                log.warning("the lease of the operators cannot be had yet: %s", error)
            await asyncio.sleep(LOOK_S)

    async def lost(self) -> None:
        """Keep the lease; return when another has it, or when it could not be renewed in time."""
        renewed = time.monotonic()
        while time.monotonic() - renewed < HELD_S - RENEW_S:
            await asyncio.sleep(RENEW_S)
            try:
                if not await self._take():
                    return
                renewed = time.monotonic()
            except FederatorError as error:
                log.warning("the lease of the operators cannot be renewed: %s", error)

    async def leave(self) -> None:
        """Let the next one work at once."""
        self.stands = "stands by"
        try:
            lease = await self._look()
            if lease is not None and lease.spec.holder_identity == self._me:
                await self._write(lease, "")
        except FederatorError as error:
            log.info("the lease of the operators is left to run out: %s", error)

    async def _take(self) -> bool:
        """Whether it is this one's now."""
        lease = await self._look()
        if lease is None:
            return await self._made()
        if lease.spec.holder_identity not in ("", self._me):
            if lease.spec != self._seen[0]:
                self._seen = (lease.spec, time.monotonic())
            if time.monotonic() - self._seen[1] < HELD_S:
                return False
        return await self._write(lease, self._me)

    async def _look(self) -> _Lease | None:
        try:
            return decoded(await self._api.ask("GET", f"{self._all}/{NAME}", patience_s=REQUEST_S), _Lease)
        except NotFound:
            return None

    async def _made(self) -> bool:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": NAME},
            "spec": self._spec(self._me, 0),
        }
        try:
            await self._api.ask("POST", self._all, body=body, patience_s=REQUEST_S)
        except Conflict:
            return False
        return True

    async def _write(self, lease: _Lease, holder: str) -> bool:
        others = holder != lease.spec.holder_identity
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": NAME, "resourceVersion": lease.metadata.resource_version},
            "spec": self._spec(holder, lease.spec.lease_transitions + others),
        }
        try:
            await self._api.ask("PUT", f"{self._all}/{NAME}", body=body, patience_s=REQUEST_S)
        except (Conflict, NotFound):
            return False
        return True

    def _spec(self, holder: str, transitions: int) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": int(HELD_S),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }
