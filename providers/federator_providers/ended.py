"""Machines that have ended, remembered for a while: most clouds forget them at once, or soon."""

from collections.abc import Container
from typing import NamedTuple

from federator.kernel.clock import Clock
from federator.model.capacity import Instance

KEEP_ENDED_S = 2 * 3600.0
"""How long they are remembered."""


class _Known(NamedTuple):
    machine: Instance
    heard_at: float


class EndedMachines:
    """By name. What was first heard of an end stays, as long as it is heard again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _Known] = {}

    def get(self, name: str) -> Instance | None:
        """The machine of that name, if it has ended."""
        known = self._known.get(name)
        return known.machine if known else None

    def remember(self, machine: Instance) -> Instance:
        """One that has ended, as it was first heard of."""
        now = self._clock.now()
        first = self.get(machine.name) or machine
        self._known[machine.name] = _Known(first, now)
        kept = self._known.items()
        self._known = {name: each for name, each in kept if now - each.heard_at < KEEP_ENDED_S}
        return first

    def beside(self, listed: Container[str], federation: str) -> list[Instance]:
        """Those of a federation that are not listed any more."""
        known = (each.machine for each in self._known.values())
        return [each for each in known if each.tags["federation"] == federation and each.name not in listed]
