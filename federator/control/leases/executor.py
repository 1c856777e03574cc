"""The executor: makes leases true. It asks providers, follows what they say, and gives back what is no longer needed.

Every call to a provider uses the lease's own name, written down before the call, so that a repeated call finds the first machine. Each pass looks at
every open lease and takes the one step that its status asks for; a crash between any two steps leaves a record from which the next pass goes on.
Before a machine is given back, the records are read again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from federator.control.accounts.billing import bill, placements_on
from federator.control.leases.budget import LeaseBudget
from federator.control.leases.lease_endings import (
    assembled,
    dropped,
    failed,
    gone,
    interrupted,
    terminated,
    unreserved,
)
from federator.control.leases.timer import Alarm, LeaseTimer
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.control.reports.interruption_counts import InterruptionCounts
from federator.control.reports.inventory import Inventory
from federator.control.reports.statuses import StatusHandler
from federator.kernel.errors import FederatorError, NoCapacity, Transient
from federator.model.capacity import LEASE_ENDED, Instance, InstanceStatus, LaunchRequest, Lease, LeaseStatus
from federator.model.lifecycle import allows
from federator.model.placements import Cause
from federator.ports import Provider
from federator.settings import LeaseSettings

log = logging.getLogger(__name__)

TAKEN_BACK = "the provider takes the machine back"
NEVER_JOINED = "its agent never joined"
UNANSWERED = "its provider has not answered for as long as the machine was to run"
PAUSED = "renting was paused before its provider was asked"
LISTED_S = 3600.0
"""Providers list a machine for at least so long after its end."""

UserData = Callable[[Lease], Awaitable[str]]
"""Makes the secret start-up text of a lease's instance, with a fresh one-time join token."""


class Executor:
    """Steps every open lease along its life."""

    def __init__(  # noqa: PLR0913 - what it is wired to, by name
        self,
        *,
        records: Records,
        event_writer: EventWriter,
        inventory: Inventory,
        progress: StatusHandler,
        providers: dict[str, Provider],
        user_data: UserData,
        federation: str,
        settings: LeaseSettings,
    ) -> None:
        self._records = records
        self.event_writer = event_writer
        self._inventory = inventory
        self._progress = progress
        self._providers = providers
        self._user_data = user_data
        self._federation = federation
        self._settings = settings
        self.alarm = Alarm()
        self._pace = LeaseTimer(event_writer.clock, settings.poll_s)
        self.lease_budget = LeaseBudget(records, event_writer.clock, settings)
        self._interruptions = InterruptionCounts(records)
        self._missed: dict[str, set[str]] = {}
        """Leases that a provider's last listing did not show though they were launched long ago."""
        self._steps = {
            LeaseStatus.REQUESTED: self.requested,
            LeaseStatus.LAUNCHING: self._launching,
            LeaseStatus.BOOTING: self._booting,
            LeaseStatus.READY: self._ready,
            LeaseStatus.INTERRUPTED: self._interrupted,
            LeaseStatus.DRAINING: self._draining,
            LeaseStatus.TERMINATING: self._terminating,
        }

    def wake(self, changes: Changes | None = None) -> None:
        """Something has happened: where there are leases, one of them may have something to do."""
        self.alarm.hear(changes)

    async def run(self) -> None:
        """Pass after pass: at once when woken, and every `poll_s` to hear what providers say."""
        clock = self.event_writer.clock
        polled_boot_s = float("-inf")
        while True:
            self.alarm.rings.clear()
            if self._providers and clock.boot() - polled_boot_s >= self._settings.poll_s:
                polled_boot_s = clock.boot()
                await self.poll()
            await self.step()
            looks_again = self._providers or self.alarm.any_open
            if await self.alarm.rung(clock.real_delay_s(self._settings.poll_s) if looks_again else None):
                await asyncio.sleep(0.01)

    async def poll(self) -> None:
        """Ask every provider for its offers and for our instances; a provider that does not answer is asked again next time."""
        for name, provider in self._providers.items():
            try:
                # First what runs: what is reserved is on offer only once it is known how much of it is taken.
                instances = {
                    instance.name: instance for instance in await provider.instances(self._federation)
                }
                asked_at = self.event_writer.clock.now()
                self._inventory.offered(name, await provider.offers(), asked_at=asked_at)
            except FederatorError as error:
                log.warning("provider %s: %s", name, error)
                continue
            ours = [
                le
                for le in self._records.leases.values()
                if le.provider == name and le.status not in LEASE_ENDED
            ]
            for lease in ours:
                if lease.id in instances:
                    await self._heard(lease.id, instances[lease.id])
            await self._miss(name, [lease for lease in ours if lease.id not in instances])

    async def _miss(self, provider: str, unlisted: Sequence[Lease]) -> None:
        """A machine that two listings in a row do not show though they should."""
        now = self.event_writer.clock.now()
        missed = {lease.id for lease in unlisted if _over(lease, now)}
        for lease_id in sorted(missed & self._missed.get(provider, set())):
            log.warning("lease %s is no longer listed by %s: it has ended", lease_id, provider)
            await self._ended(lease_id, None)
        self._missed[provider] = missed

    async def step(self) -> None:
        """One step for every lease that has one to take."""
        self.lease_budget.count()
        open_now = [le.id for le in self._records.leases.values() if le.status not in LEASE_ENDED]
        self.alarm.any_open = bool(open_now)
        for lease_id in open_now:
            try:
                await self._heed(lease_id)
                lease = self._records.leases[lease_id]
                if lease.status in self._steps:  # else it has ended meanwhile
                    await self._steps[lease.status](lease)
            except FederatorError as error:
                log.warning("lease %s: %s", lease_id, error)
            except Exception:
                log.exception("lease %s: it is tried again", lease_id)

    async def _heed(self, lease_id: str) -> None:
        """Act on the notice that a machine has had itself: that is sooner than its provider's listing."""
        lease = self._records.leases[lease_id]
        reclaim_at = self._inventory.reclaim_at(lease.member) if _is_itself(self._records, lease) else None
        if reclaim_at is None or not allows(lease.status, "interrupt"):
            return
        if lease.reclaim_at is None:
            await self._noticed(lease_id, reclaim_at)
        await self.move(lease_id, "interrupt")

    async def requested(self, lease: Lease) -> None:
        """Launch a requested lease, or drop it: nobody needs it any more, or no budget allows it."""
        if not placements_on(self._records, lease):
            await dropped(self._records, self.event_writer, lease.id, "no longer needed")
            return
        why = PAUSED if self.lease_budget.closed else self.lease_budget.spent_because(lease)
        if why:
            await failed(self._records, self.event_writer, lease.id, why, "drop")
            return
        await self.move(lease.id, "launch")
        await self._launching(self._records.leases[lease.id])

    async def _launching(self, lease: Lease) -> None:
        """Ask, or ask again after a crash: the name makes both the same."""
        if self.lease_budget.left_s(lease) <= 0:
            await self._failed(lease, self.lease_budget.why(lease, UNANSWERED), event="give-up")
            return
        if self.lease_budget.closed or not self._pace.allows(lease):
            return  # while paused nothing is asked for again: a machine that an unheard answer was of is in the listing
        self._interruptions.count(self.event_writer.clock.now())
        request = LaunchRequest(
            name=lease.id,
            offer=lease.offer.as_offered(),
            federation=self._federation,
            tags={"federator-lease": lease.id, "federator-queue": lease.queue},
            user_data=await self._user_data(lease),
            interruptions_h=self._interruptions.by_zone(lease.offer),
        )
        try:
            instance = await self._providers[lease.provider].launch(request)
        except NoCapacity as error:
            await self._failed(lease, f"no capacity: {error.message}", short=error)
        except Transient:
            raise
        except FederatorError as error:
            await self._failed(lease, error.describe())
        else:
            await self.move(lease.id, "launched", launched_at=instance.launched_at, zone=instance.zone)

    async def _booting(self, lease: Lease) -> None:
        now = self.event_writer.clock.now()
        joins_by_at = lease.requested_at + lease.offer.delay_s + self._settings.join_within_s
        if lease.member in self._records.members:
            # Whether it is connected now does not matter: it may have begun, and only proof of its end frees its work.
            await self.move(lease.id, "joined", ready_at=now)
        elif not placements_on(self._records, lease):
            await self.move(lease.id, "drain")
        elif self.lease_budget.left_s(lease) <= 0 or now > joins_by_at:
            await self._failed(lease, self.lease_budget.why(lease, NEVER_JOINED))

    async def _ready(self, lease: Lease) -> None:
        """Busy, idle, or idle for long enough; never past what was committed for it: its work is told to save itself while that can be paid for."""
        now, left_s = self.event_writer.clock.now(), self.lease_budget.left_s(lease)
        if placements := placements_on(self._records, lease):
            if any(placement.assembling for placement in placements):
                await self._records.transact(partial(assembled, self._records, self.event_writer, lease.id))
            saving_s = max(self._records.spec(placement.spec_hash).grace_s for placement in placements)
            if left_s <= saving_s + self._settings.slack_s / 2:  # the rest is for results to come home
                await self.move(lease.id, "interrupt")
            elif lease.idle_since_at is not None:
                await self._set(lease.id, idle_since_at=None, kept_because="")
        elif lease.idle_since_at is None:
            await self._set(lease.id, idle_since_at=now, kept_because=self.lease_budget.warm(lease).because)
        elif left_s <= 0 or now >= (warm := self.lease_budget.warm(lease)).until_at:
            await self.move(lease.id, "drain")
        elif warm.because != lease.kept_because:
            await self._set(lease.id, kept_because=warm.because)

    async def _interrupted(self, lease: Lease) -> None:
        """Tell its work to save itself while there is time, less what it takes to bring results home."""
        because = self.lease_budget.because(lease) if lease.reclaim_at is None else TAKEN_BACK
        await interrupted(self._records, self.event_writer, lease.id, because)

    async def _draining(self, lease: Lease) -> None:
        """Nothing new starts there; given back once everything of it is home. A placement's end is reported after its logs and outputs.

        After a time it is given back without an answer. That proves nothing yet: its work counts as over, and may start elsewhere, only
        once the provider's listing shows the machine ended.
        """
        now = self.event_writer.clock.now()
        placements = placements_on(self._records, lease)
        waited_s = now - (lease.draining_since_at or now)
        if placements and waited_s < self._settings.drain_within_s and self.lease_budget.left_s(lease) > 0:
            return
        await terminated(self._records, self.event_writer, lease.id, [p.id for p in placements])
        await self._terminating(self._records.leases[lease.id])

    async def _terminating(self, lease: Lease) -> None:
        """Ask until the listing shows it ended."""
        if lease.status is LeaseStatus.TERMINATING and self._pace.allows(lease):
            await self._providers[lease.provider].terminate(lease.id)

    async def _failed(
        self, lease: Lease, why: str, *, event: str = "fail", short: NoCapacity | None = None
    ) -> None:
        """The lease came to nothing: avoid its offer for a while, or keep how much there can be of its stock where that is gone, and let its jobs wait again."""
        until_at = self.event_writer.clock.now() + self._settings.avoid_s
        self._inventory.launch_failed(lease.provider, lease.offer.name, until_at=until_at, short=short)
        limit = short.used + short.each - 1 if short is not None and short.stock else None
        await failed(self._records, self.event_writer, lease.id, why, event, stock_limit=limit)

    async def _heard(self, lease_id: str, instance: Instance) -> None:
        """What the provider says of one instance: its bill, an interruption, its end."""
        lease = self._records.leases[lease_id]
        if lease.launched_at is None:
            await self._set(lease_id, launched_at=instance.launched_at)
            await self.move(lease_id, "launched")
        if instance.zone and instance.zone != lease.zone:
            await self._set(lease_id, zone=instance.zone)
        if instance.billed_usd > lease.billed_usd + 1e-9:
            await bill(self._records, self.event_writer, lease_id, instance.billed_usd)
        if instance.reclaim_at is not None and lease.reclaim_at is None:
            await self._noticed(lease_id, instance.reclaim_at)
        if instance.status is InstanceStatus.INTERRUPTING and allows(lease.status, "interrupt"):
            await self.move(lease_id, "interrupt")
        if instance.status is InstanceStatus.ENDED:
            if instance.no_capacity and allows(self._records.leases[lease_id].status, "fail"):
                stock = lease.offer.stock if instance.over_quota else None
                short = NoCapacity(
                    instance.no_capacity,
                    stock=stock.name if stock else "",
                    each=stock.each if stock else 0,
                    used=self._inventory.used_of(lease.provider, stock) if stock else 0,
                )
                await self._failed(lease, f"no capacity: {short.message}", short=short)
            await self._ended(lease_id, instance.ended_at)

    async def _noticed(self, lease_id: str, reclaim_at: float) -> None:
        """The machine is, or was, taken back: keep that for when it is gone, and avoid the offer for a while."""
        lease = self._records.leases[lease_id]
        until_at = self.event_writer.clock.now() + self._settings.avoid_s
        self._inventory.avoid(
            lease.provider, lease.offer.name, until_at=until_at, because="the provider took one back"
        )
        await self._set(lease_id, reclaim_at=reclaim_at, failure=TAKEN_BACK)

    async def _ended(self, lease_id: str, ended_at: float | None) -> None:
        """The machine is gone: that is proof that nothing runs on it."""
        lease = self._records.leases[lease_id]
        proof = f"the provider says that {lease.id} has ended"
        await unreserved(self._records, self.event_writer, lease_id, proof)
        expected = lease.reclaim_at is not None or lease.status is LeaseStatus.TERMINATING
        cause, at = (
            Cause.INTERRUPTED if expected else Cause.NODE_LOST,
            ended_at or self.event_writer.clock.now(),
        )
        for placement in placements_on(self._records, lease):
            lost = partial(self._progress.lose, placement.id, proof, member=lease.member)
            await lost(acknowledged=True, cause=cause)
        await gone(self._records, self.event_writer, lease_id, at)
        self._pace.forget(lease_id)
        self._inventory.forget(lease.member)

    async def move(self, lease_id: str, event: str, **fields: object) -> None:
        """One edge of the lease's life, if it still applies when looked at again."""

        def compute() -> Changes:
            changes = Changes()
            lease = self._records.leases[lease_id]
            if event == "drain" and placements_on(self._records, lease):
                return changes
            if allows(lease.status, event):
                since = {"draining_since_at": self.event_writer.clock.now()} if event == "drain" else {}
                self.event_writer.lease(changes, lease, event, **since, **fields)
            return changes

        await self._records.transact(compute)

    async def _set(self, lease_id: str, **fields: object) -> None:
        await self._records.transact(partial(_with, self._records, lease_id, fields))


def _with(records: Records, lease_id: str, fields: dict[str, object]) -> Changes:
    """The lease with these fields."""
    changes = Changes()
    changes.put(msgspec.structs.replace(records.leases[lease_id], **fields))
    return changes


def _over(lease: Lease, now: float) -> bool:
    """Whether a lease that is not listed is over: launched long ago, or given up without ever having been seen."""
    if lease.launched_at is None:
        return lease.status is LeaseStatus.TERMINATING
    return lease.launched_at < now - LISTED_S


def _is_itself(records: Records, lease: Lease) -> bool:
    """Whether the member of the lease's name is the lease's machine, and not somebody who has taken the name."""
    member = records.members.get(lease.member)
    return member is not None and member.lease == lease.id
