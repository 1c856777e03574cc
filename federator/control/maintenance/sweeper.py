"""The sweeper: finds machines that nobody knows, and has dropped what has outlived its promise."""

import asyncio
import logging

from federator.control.maintenance.reconciliation import SPARED
from federator.control.maintenance.retention import Retention
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.control.reports.inventory import Inventory
from federator.kernel.errors import FederatorError
from federator.model.capacity import LEASE_ENDED, InstanceStatus
from federator.model.events import LedgerKind
from federator.ports import Provider

log = logging.getLogger(__name__)


class Sweeper:
    """Looks for leaks every `sweep_s`, and for what is too old."""

    def __init__(
        self,
        *,
        records: Records,
        event_writer: EventWriter,
        inventory: Inventory,
        providers: dict[str, Provider],
        federation: str,
        retention: Retention,
        sweep_s: float,
    ) -> None:
        self._records = records
        self.event_writer = event_writer
        self._inventory = inventory
        self._providers = providers
        self._federation = federation
        self.retention = retention
        self._sweep_s = sweep_s
        self._suspects: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Sweep after sweep, until cancelled."""
        while True:
            await self.sweep()
            await asyncio.sleep(max(0.2, self.event_writer.clock.real_delay_s(self._sweep_s)))

    async def sweep(self) -> None:
        """One sweep: silence, leaks, age."""
        self._inventory.refresh()
        await self.end_leaks()
        await self.retention.sweep()

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

    def _known(self, name: str) -> bool:
        if SPARED + name in self._records.flags:
            return True
        lease = self._records.leases.get(name)
        return lease is not None and lease.status not in LEASE_ENDED

    async def _note_leak(self, provider: str, name: str, billed_usd: float) -> None:
        log.error("leaked instance %s at %s: ended", name, provider)

        def compute() -> Changes:
            changes = Changes()
            text = f"instance {name} at {provider} belonged to no lease and was ended"
            changes.put(self.event_writer.ledger(LedgerKind.LOSS, "sweeper", text, usd=billed_usd))
            return changes

        await self._records.transact(compute)
