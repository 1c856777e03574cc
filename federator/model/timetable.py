"""Timetables: what runs where and when, as one decision foresees it – what a Gantt chart draws."""

from enum import StrEnum

import msgspec


class BarState(StrEnum):
    """How a piece of work, or a machine, stands at the moment of the decision."""

    ENDED = "ended"
    """It is over; it is there for what went before."""
    RUNNING = "running"
    STARTING = "starting"
    """It has its place, and has not begun."""
    BOOTING = "booting"
    """A rented machine that is not ready yet."""
    RESERVED = "reserved"
    """It waits, and free hosts are held for it by name until then."""
    PLANNED = "planned"
    """It waits, and is to start there then."""
    KEPT = "kept"
    """No work: for that time a policy keeps the place for somebody (`name`), or for nobody."""
    LOCAL = "local"
    """The site's own work, of which no more is known."""


class Lane(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somewhere work runs: hosts of one make at a site, a rented machine, or an offer that is to be rented."""

    key: str
    site: str
    pool: str
    kind: str = ""
    model: str = ""
    market: str = "owned"
    shared: bool = False
    """Its GPUs are shared: jobs have parts of them."""
    gpus_per_node: int = 0
    members: dict[str, int] = {}
    """How many hosts each member has there."""
    lease: str = ""
    """The rental, where it is one."""
    offer: str = ""
    """What is to be rented, where nothing is yet: `provider/offer`."""
    closed: str = ""
    """Why nothing new starts there; empty where it may."""


class Bar(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One piece of work at one place. Times are seconds since the epoch. `id` is its placement's, its job's while it waits, its rental's, or of what a policy keeps the policy's with the lane."""

    id: str
    lane: str
    """The key of a lane."""
    state: BarState
    start_at: float
    end_at: float
    """When it ended, or is expected to."""
    gpus: float = 0.0
    """Over all its hosts."""
    members: tuple[str, ...] = ()
    """The member under each rank, in rank order; empty where nobody knows yet."""
    job: str = ""
    """Of whose work it is; empty for local work, a machine, and what the caller may not see."""
    name: str = ""
    owner: str = ""
    queue: str = ""
    deadline_at: float | None = None
    status: str = ""
    """Of one that has ended: how."""
    because: str = ""
    """Why it is there."""
    tasks: int = 1
    """So many tasks of an array that start and end together there, where the caller asked for that."""


class Timetable(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision foresees, whole: of every lane, what runs, is to start, and is kept free."""

    decision: str
    taken_at: float
    winner: str
    lanes: tuple[Lane, ...] = ()
    bars: tuple[Bar, ...] = ()
    unplanned: int = 0
    """So many of the jobs that it looked at wait without a start that it could foresee."""
