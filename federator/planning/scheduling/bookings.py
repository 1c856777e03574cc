"""What a schedule comes to: a place and time for each job."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field

import msgspec

from federator.planning.rules.caps import Caps
from federator.planning.scheduling.blocks import Block


class Booking(msgspec.Struct, frozen=True, gc=False):
    """A job's place and time. `rents`: a new instance is rented for it; `exact` is false beyond the work limit."""

    place: int
    """Where and in which form: a choice of the world's (`problem.Places`)."""
    start_at: float
    finish_at: float
    committed_until: float = 0.0
    rents: bool = False
    exact: bool = True
    members: tuple[int, ...] = ()
    """Of each rank, by index; empty for what starts on a machine that nobody has rented yet."""


@dataclass
class Schedule:
    """A booking per job that ever starts, and for those that do not start at once, why."""

    bookings: MutableMapping[str, Booking] = field(default_factory=dict)
    blocks: MutableMapping[str, Block] = field(default_factory=dict)
    caps: Caps | None = None
    """As they stand after what starts now."""
    attempts: int = 0
