"""The sweeper: finds machines that nobody knows, and drops records that have outlived their promise."""

import asyncio
import logging
from functools import partial

from federator.control.inventory import Inventory
from federator.control.records import Changes, Records
from federator.control.scribe import Scribe
from federator.kernel.errors import FederatorError
from federator.model.capacity import LEASE_ENDED, InstanceStatus
from federator.model.events import LedgerKind
from federator.model.jobs import Job
from federator.ports import Provider
from federator.settings import RetentionSettings

log = logging.getLogger(__name__)

BATCH = 100
"""Keys deleted in one transaction; stores take 120."""


class Sweeper:
    """Looks for leaks every `sweep_s`, and for what is too old."""

    def __init__(
        self,
        *,
        records: Records,
        scribe: Scribe,
        inventory: Inventory,
        providers: dict[str, Provider],
        federation: str,
        retention: RetentionSettings,
    ) -> None:
        self._records = records
        self._scribe = scribe
        self._inventory = inventory
        self._providers = providers
        self._federation = federation
        self._retention = retention
        self._suspects: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Sweep after sweep, until cancelled."""
        while True:
            await self.sweep()
            await asyncio.sleep(max(0.2, self._scribe.clock.real_delay_s(self._retention.sweep_s)))

    async def sweep(self) -> None:
        """One sweep: silence, leaks, age."""
        self._inventory.refresh()
        await self.end_leaks()
        await self.drop_old()

    async def end_leaks(self) -> list[str]:
        """End instances with our tag that no open lease knows, once they were seen so in two listings; returns those ended now."""
        seen: set[tuple[str, str]] = set()
        ended = []
        for name, provider in self._providers.items():
            try:
                instances = await provider.instances(self._federation)
                for instance in instances:
                    if instance.status is InstanceStatus.ENDED or self._known(instance.name):
                        continue
                    seen.add((name, instance.name))
                    if (name, instance.name) in self._suspects:
                        await provider.terminate(instance.name)
                        await self._note_leak(name, instance.name, instance.billed_usd)
                        ended.append(instance.name)
            except FederatorError as error:
                log.warning("provider %s: %s", name, error)
        self._suspects = seen
        return ended

    async def drop_old(self) -> int:
        """Drop jobs that ended longer ago than their promise, with placements, events and client ids; returns how many."""
        before = self._scribe.clock.now() - self._retention.jobs_s
        dropped = 0
        for job in [
            job for job in self._records.jobs.values() if job.terminal and (job.finished_at or 0.0) < before
        ]:
            keys = await self._keys_of(job)
            for start in range(0, len(keys), BATCH):
                batch = keys[start : start + BATCH]
                await self._records.transact(partial(Changes, deletes=batch))
            dropped += 1
        return dropped

    async def _keys_of(self, job: Job) -> list[str]:
        """Everything that is kept of a job, its own row last: a sweep cut short is taken up by the next."""
        page = await self._records.store.range(f"event/{job.id}/")
        keys = [item.key for item in page.items]
        keys += [f"placement/{p.id}" for p in self._records.placements.values() if p.job == job.id]
        if job.client_id is not None:
            keys.append(f"client/{job.owner}/{job.client_id}")
        if job.id in self._records.outputs:
            keys.append(f"outputs/{job.id}")
        return [*keys, f"job/{job.id}"]

    def _known(self, name: str) -> bool:
        lease = self._records.leases.get(name)
        return lease is not None and lease.status not in LEASE_ENDED

    async def _note_leak(self, provider: str, name: str, billed_usd: float) -> None:
        log.error("leaked instance %s at %s: ended", name, provider)

        def compute() -> Changes:
            changes = Changes()
            text = f"instance {name} at {provider} belonged to no lease and was ended"
            changes.put(self._scribe.ledger(LedgerKind.LOSS, "sweeper", text, usd=billed_usd))
            return changes

        await self._records.transact(compute)
