"""Fences: when time alone proves that work is over, or never begun, so that it may start elsewhere.

Only `on_disconnect: {stop_within: D}` makes time a proof. Its site ends the work D after the last message that we answered, counted from when that
message was sent, whatever becomes of its agent. Here it is counted from when we last answered, which is later, and a margin is added for clocks that
drift and kills that take a moment: so the old copy is gone before the new one starts. A dispatcher that has just taken over does not know when its
predecessor last answered, and counts from then. Work that is kept (the default) is never given up by the clock.

A gang that is only reserved on its members has not been told to run, so it too is given up by the clock: one silent member must not hold the others'
capacity. Its members give theirs back by themselves, later than that, so that none does while the last one's answer would still be in time.
"""

import asyncio
import logging

from federator.control.record.records import Records
from federator.control.reports import gangs
from federator.control.reports.inventory import Inventory
from federator.control.reports.statuses import StatusHandler
from federator.kernel.clock import Clock
from federator.kernel.quantities import format_duration
from federator.model.placements import Cause, Order, Placement

LEAST_MARGIN_S = 30.0
MARGIN_SHARE = 0.01
"""Of D: clocks that differ by one second in a hundred are within the margin."""
RESERVE_WITHIN_S = 120.0
"""A reservation that not all members have accepted by then is given up. Agents hold theirs for 300 s (`admission.RESERVE_FOR_S`)."""
LEAST_PAUSE_S = 0.05
log = logging.getLogger(__name__)


def margin_s(stop_within_s: float) -> float:
    """How much longer than its site the dispatcher waits."""
    return max(LEAST_MARGIN_S, MARGIN_SHARE * stop_within_s)


class Fences:
    """Gives up placements that are over by their own promise."""

    def __init__(
        self,
        records: Records,
        inventory: Inventory,
        progress: StatusHandler,
        clock: Clock,
        *,
        look_s: float = 1.0,
    ) -> None:
        self._records = records
        self._inventory = inventory
        self._progress = progress
        self._clock = clock
        self._look_s = look_s
        self._since_boot_s: float | None = None

    def begin(self) -> None:
        """Take over: whatever a predecessor answered, it answered before now."""
        self._since_boot_s = self._clock.boot()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(max(LEAST_PAUSE_S, self._clock.real_delay_s(self._look_s)))

    async def step(self) -> list[str]:
        """Give up what must be over by now; returns those placements."""
        given_up = []
        for placement in tuple(self._records.open_placements.values()):
            if placement.ended:
                continue
            if placement.order is Order.RESERVE:
                over = await self._reserved(placement)
            else:
                over = await self._cut_off(placement)
            if over:
                given_up.append(placement.id)
        return given_up

    async def _reserved(self, placement: Placement) -> bool:
        """Give up a reservation that not all members have accepted in time. While machines are rented for it, they have times of their own."""
        if placement.assembling or self._clock.now() - placement.assigned_at < RESERVE_WITHIN_S:
            return False
        why = (
            f"{', '.join(gangs.silent(placement))} did not answer within {format_duration(RESERVE_WITHIN_S)}"
        )
        await self._progress.give_up(placement.id, why)
        return True

    async def _cut_off(self, placement: Placement) -> bool:
        """Give up what must be over by its own promise; of a gang, each member's part by itself."""
        stop_within_s = self._records.spec(placement.spec_hash).stop_within_s
        if not stop_within_s:
            return False
        over = False
        for member in gangs.unproven(placement):
            silent_s = self._clock.boot() - self._answered_boot_s(member)
            if silent_s < stop_within_s + margin_s(stop_within_s):
                continue
            proof = (
                f"its site has had no answer for {format_duration(silent_s)}, "
                f"and ends it by itself within {format_duration(stop_within_s)} (stop_within)"
            )
            log.warning("%s of %s is given up at %s: %s", placement.id, placement.job, member, proof)
            await self._progress.lose(
                placement.id, proof, acknowledged=False, cause=Cause.CUT_OFF, member=member
            )
            over = True
        return over

    def _answered_boot_s(self, member: str) -> float:
        """Since when it cannot have been answered."""
        if self._since_boot_s is None:
            self.begin()
        assert self._since_boot_s is not None
        heard = self._inventory.members.get(member)
        return max(self._since_boot_s, heard.answered_boot_s if heard is not None else 0.0)
