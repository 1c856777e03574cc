"""Takes the sealed ledger to places outside of the store, seal after seal, and notes in the store how far it came.

The note is written after the target has the seal. So after a crash, or under another leader, at most the last seal is there twice, which verifying takes as one.
Nothing waits for it: a target that does not answer falls behind, and is told of.
"""

import asyncio
import logging
from functools import partial

import msgspec

from federator.control.record.chain import Chain
from federator.control.record.records import Changes, Flag, Records
from federator.kernel.clock import Clock
from federator.kernel.errors import Unavailable
from federator.ports import LedgerTarget
from federator.retry import Backoff
from federator.telemetry import METRICS

log = logging.getLogger(__name__)

MARK = "ledger-export/"
"""How the names of flags begin that say, under `who`, which seal a target has."""
EVERY_S = 1.0
"""Real seconds between two looks."""
BACKOFF = Backoff(2.0, 60.0, spread=0.0)
PATIENCE_S = 300.0
"""A target may be behind for so long before people are told."""


class LedgerExport:
    """One target, which `name` stands for: its address."""

    def __init__(self, records: Records, chain: Chain, clock: Clock, name: str, target: LedgerTarget) -> None:
        self._records, self._chain, self._clock = records, chain, clock
        self.name, self._target = name, target
        self.behind_since: float | None = None
        """Since when it has not taken the next seal (clock); None when there is none."""
        self.fault = "it does not answer"
        """Why, as far as we know."""

    @property
    def done(self) -> int:
        """The number of the last seal that the target has."""
        flag = self._records.flags.get(MARK + self.name)
        return int(flag.who) if flag is not None else 0

    def is_late(self) -> bool:
        """Whether it is behind for longer than can be put down to a restart."""
        return self.behind_since is not None and self._clock.now() - self.behind_since >= PATIENCE_S

    async def run(self) -> None:
        """Send what comes, until cancelled; less and less often to a target that fails."""
        failures = 0
        while True:
            failures = 0 if await self.catch_up() else failures + 1
            await asyncio.sleep(BACKOFF.pause_s(failures) if failures else EVERY_S)

    async def catch_up(self) -> bool:
        """Send all that is sealed; False when the target does not take it now."""
        while self.done < self._chain.state.number:
            if self.behind_since is None:
                self.behind_since = self._clock.now()
            number = max(self.done + 1, self._chain.state.first)
            seal = await self._chain.seal_of(number)
            if seal is None:
                log.error("seal %d is not in the store, so %s goes without it", number, self.name)
            else:
                parts = [part async for part in self._chain.parts_of(seal, begins=self.done == 0)]
                name = f"{number:012d}-{seal.head[:16]}"
                if not await self._sent(name, [msgspec.json.encode(part) for part in parts]):
                    return False
            await self._records.transact(partial(self._noted, number))
            self.behind_since = None
            self._show()
        self._show()
        return True

    async def _sent(self, name: str, lines: list[bytes]) -> bool:
        try:
            await self._target.append(name, lines)
        except Unavailable as error:
            if error.message != self.fault:
                log.warning("the ledger's seal %s is not exported: %s", name, error)
            self.fault = error.message
            METRICS.count("federator_ledger_export_failures_total", target=self.name)
            self._show()
            return False
        return True

    def _noted(self, number: int) -> Changes:
        changes = Changes()
        changes.put(Flag(MARK + self.name, on=True, who=str(number), at=self._clock.now()))
        return changes

    def _show(self) -> None:
        behind = max(0, self._chain.state.number - self.done)
        METRICS.set("federator_ledger_export_behind_seals", behind, target=self.name)
