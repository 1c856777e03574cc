"""What a schedule comes to: a place and time for each job; and, where nobody can look at each any more, an estimate of them."""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace

from federator.model.snapshot import JobView
from federator.planning.places.candidates import size
from federator.planning.rules.caps import Caps
from federator.planning.scheduling.blocks import Block
from federator.planning.world.problem import World


@dataclass(frozen=True)
class Booking:
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


def put_back(jobs: Iterable[JobView], bookings: Mapping[str, Booking], now: float) -> dict[str, Booking]:
    """Starts that are not now, later by what the work before them takes that the snapshot leaves out."""
    return {
        job.id: replace(
            booking,
            start_at=booking.start_at + job.behind_s,
            finish_at=booking.finish_at + job.behind_s,
            exact=False,
        )
        for job in jobs
        if job.behind_s
        and (booking := bookings.get(job.id)) is not None
        and booking.start_at > now
        and not booking.rents
    }


def estimate(
    world: World, waiting: list[tuple[JobView, tuple[int, ...]]], at: float
) -> Iterator[tuple[str, Booking]]:
    """Beyond the work limit: start times from the backlog of each place, as if it were a fluid."""
    backlog_s = [0.0] * len(world.places)
    for job, places in waiting:
        if not places:
            continue
        place = min(places, key=lambda p: (backlog_s[world.place_of(p)], p))
        candidate = world.places[place]
        capacity = max(size(job), float(candidate.gpus_in_all))
        start = at + backlog_s[world.place_of(place)]
        run_s = candidate.run_s(world.as_form(job, place))
        backlog_s[world.place_of(place)] += size(job) * run_s / capacity
        yield job.id, Booking(place, start, start + run_s, exact=False)
