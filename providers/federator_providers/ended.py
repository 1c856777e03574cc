"""Machines that have ended, remembered for a while: most clouds forget them at once, or soon."""

from collections.abc import Container

from federator.kernel.clock import Clock
from federator.model.capacity import Instance

KEEP_ENDED_S = 2 * 3600.0
"""How long they are remembered."""


class EndedMachines:
    """By name. What was first heard of an end stays."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, Instance] = {}

    def get(self, name: str) -> Instance | None:
        """The machine of that name, if it has ended."""
        return self._known.get(name)

    def remember(self, machine: Instance) -> Instance:
        """One that has ended, as it was first heard of."""
        now, known = self._clock.now(), self._known
        self._known = {
            name: each for name, each in known.items() if now - (each.ended_at or now) < KEEP_ENDED_S
        }
        return self._known.setdefault(machine.name, machine)

    def beside(self, listed: Container[str], federation: str) -> list[Instance]:
        """Those of a federation that are not listed any more."""
        known = self._known.values()
        return [each for each in known if each.tags["federation"] == federation and each.name not in listed]
