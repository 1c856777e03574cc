"""The clocks of one machine: a boot clock that runs a little fast or slow, and a wall clock that somebody sets."""

import asyncio

from federator.simulation.virtual_time import BOOTED_S, ORIGIN_AT


class MachineClock:
    """`federator.kernel.clock.Clock` of one machine. Of true time, which no process of the product can see, `rate` seconds pass here in each."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rate: float = 1.0, ahead_s: float = 0.0) -> None:
        self._time = loop.time
        self._rate = rate
        self._booted_s = self._time()
        self.ahead_s = ahead_s
        """How far the wall clock is ahead of the true time."""

    def now(self) -> float:
        """Wall time."""
        return ORIGIN_AT + self._time() + self.ahead_s

    def boot(self) -> float:
        """Boot time."""
        return BOOTED_S + (self._time() - self._booted_s) * self._rate

    def real_delay_s(self, delay_s: float) -> float:
        """Timers run by the boot clock."""
        return max(0.0, delay_s / self._rate)

    def true_delay_s(self, until_boot_s: float) -> float:
        """True seconds until the boot clock says that."""
        return max(0.0, (until_boot_s - self.boot()) / self._rate)

    def reboot(self) -> None:
        """The machine boots anew."""
        self._booted_s = self._time()
