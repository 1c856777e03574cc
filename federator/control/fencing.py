"""Fences: when work that promised to stop where it is cut off must be over, so that it may start elsewhere.

Only `on_disconnect: {stop_within: D}` makes time a proof. Its site ends the work D after the last message that we answered, counted from when that
message was sent, whatever becomes of its agent. Here it is counted from when we last answered, which is later, and a margin is added for clocks that
drift and kills that take a moment: so the old copy is gone before the new one starts. A dispatcher that has just taken over does not know when its
predecessor last answered, and counts from then. Work that is kept (the default) is never given up by the clock.
"""

import asyncio
import logging

from federator.control.inventory import Inventory
from federator.control.progress import Progress
from federator.control.records import Records
from federator.kernel.clock import Clock
from federator.kernel.quantities import format_duration
from federator.model.placements import Cause, Placement

LEAST_MARGIN_S = 30.0
MARGIN_SHARE = 0.01
"""Of D: clocks that differ by one second in a hundred are within the margin."""
LOOK_S = 1.0
LEAST_PAUSE_S = 0.05
log = logging.getLogger(__name__)


def margin_s(stop_within_s: float) -> float:
    """How much longer than its site the dispatcher waits."""
    return max(LEAST_MARGIN_S, MARGIN_SHARE * stop_within_s)


class Fences:
    """Gives up placements that are over by their own promise."""

    def __init__(self, records: Records, inventory: Inventory, progress: Progress, clock: Clock) -> None:
        self._records = records
        self._inventory = inventory
        self._progress = progress
        self._clock = clock
        self._since_boot_s: float | None = None

    def begin(self) -> None:
        """Take over: whatever a predecessor answered, it answered before now."""
        self._since_boot_s = self._clock.boot()

    async def run(self) -> None:
        """Look again every second of the clock, until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(max(LEAST_PAUSE_S, self._clock.real_delay_s(LOOK_S)))

    async def step(self) -> list[str]:
        """Give up what must be over by now; returns those placements."""
        given_up = []
        for placement in tuple(self._records.open_placements.values()):
            stop_within_s = self._records.spec(placement.spec_hash).stop_within_s
            if placement.ended or not stop_within_s:
                continue
            silent_s = self._clock.boot() - self._answered_boot_s(placement)
            if silent_s < stop_within_s + margin_s(stop_within_s):
                continue
            proof = (
                f"its site has had no answer for {format_duration(silent_s)}, "
                f"and ends it by itself within {format_duration(stop_within_s)} (stop_within)"
            )
            log.warning("%s of %s is given up: %s", placement.id, placement.job, proof)
            await self._progress.lose(placement.id, proof, acknowledged=False, cause=Cause.CUT_OFF)
            given_up.append(placement.id)
        return given_up

    def _answered_boot_s(self, placement: Placement) -> float:
        """Since when none of its members can have been answered; a gang is over when it is over everywhere."""
        if self._since_boot_s is None:
            self.begin()
        assert self._since_boot_s is not None
        heard = [self._inventory.members.get(member) for member in placement.members]
        return max([self._since_boot_s, *(each.answered_boot_s for each in heard if each is not None)])
