"""Time as a value that is passed in.

Nothing below the composition roots reads a clock of its own: code that needs the time takes a `Clock`, so that tests
and the simulator run on virtual time and the demonstration can run faster than life. Wall time orders what people read;
boot time measures leases, terms and fences, because wall clocks jump.
"""

import time
from dataclasses import dataclass, field
from typing import Protocol


class Clock(Protocol):
    """Both times a process may ask for, in seconds."""

    def now(self) -> float:
        """Wall time, seconds since the epoch, UTC."""
        ...

    def boot(self) -> float:
        """Seconds since this machine booted; never jumps, counts suspended time."""
        ...

    def real_delay_s(self, delay_s: float) -> float:
        """How long a sleeper has to sleep, in real seconds, for `delay_s` of this clock to pass."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Wall time, seconds since the epoch."""
        return time.time()

    def boot(self) -> float:
        """Seconds since boot."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def real_delay_s(self, delay_s: float) -> float:
        """Unscaled."""
        return max(0.0, delay_s)


@dataclass(frozen=True)
class ScaledClock:
    """A clock that runs `factor` times as fast as the machine's, from `origin_at` on.

    For demonstrations only: every process of a federation must be given the same factor and origin, or their times
    disagree.
    """

    factor: float
    origin_at: float

    def now(self) -> float:
        """Scaled wall time: equal to real time at the origin."""
        return self.origin_at + (time.time() - self.origin_at) * self.factor

    def boot(self) -> float:
        """Scaled boot time."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) * self.factor

    def real_delay_s(self, delay_s: float) -> float:
        """Real seconds to sleep for `delay_s` of scaled time."""
        return max(0.0, delay_s / self.factor)


@dataclass
class ManualClock:
    """A clock that moves only when told to: for tests."""

    at: float = 1_760_000_000.0
    boot_s: float = field(default=1000.0)

    def now(self) -> float:
        """The time it was set to."""
        return self.at

    def boot(self) -> float:
        """The boot time it was set to."""
        return self.boot_s

    def real_delay_s(self, delay_s: float) -> float:  # noqa: ARG002 - the protocol's
        """Nothing waits on a manual clock for longer than it takes to yield."""
        return 0.0

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass, on both clocks."""
        if seconds < 0:
            raise ValueError("time does not run backwards")
        self.at += seconds
        self.boot_s += seconds


def parse_clock(text: str) -> Clock:
    """Read the `clock` setting: `system`, or `scaled:FACTOR@ORIGIN` (for demonstrations).

    Raises ValueError with the remedy for anything else.
    """
    if text == "system":
        return SystemClock()
    if text.startswith("scaled:"):
        factor, _, origin = text.removeprefix("scaled:").partition("@")
        try:
            clock = ScaledClock(factor=float(factor), origin_at=float(origin))
        except ValueError:
            clock = None
        if clock is not None and clock.factor > 0:
            return clock
    raise ValueError(
        f"{text!r} is neither 'system' nor 'scaled:FACTOR@ORIGIN', for example 'scaled:60@1760000000'"
    )
