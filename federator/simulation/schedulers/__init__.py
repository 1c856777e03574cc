"""The schedulers that users compare, by name: ours, and simple ones.

All decide through one port (`federator.ports.Solver`) in the same federation: what differs is the plan, and nothing else. Its turn proves and commits
any plan as it does ours, so no scheduler can overfill a site or break a policy. A simulation takes a `Scheduler`, of whatever origin; the names here
are those of the commands.
"""

from federator.kernel.errors import Invalid
from federator.simulation.schedulers.listing import Fifo, Threshold, listing
from federator.simulation.schedulers.port import Scheduler, renting_never, to_its_home
from federator.simulation.world import WorldSpec
from federator.solving.frames import STAGES
from federator.solving.inline import InlineSolver

__all__ = ["SCHEDULERS", "Scheduler", "scheduler"]


def _production(seed: int, world: WorldSpec) -> InlineSolver:
    del seed, world
    return InlineSolver()


SCHEDULERS: dict[str, Scheduler] = {
    each.name: each
    for each in (
        Scheduler("ours", _production, stages=STAGES, ours=True, learns=True),
        Scheduler("greedy", _production, stages=("greedy",), ours=True),
        listing("fifo", Fifo),
        listing("threshold", Threshold),
        listing("isolated", Fifo, alter=renting_never, bind=to_its_home),
    )
}


def scheduler(name: str) -> Scheduler:
    """The scheduler of that name. Raises `Invalid`."""
    found = SCHEDULERS.get(name)
    if found is None:
        raise Invalid(
            f"there is no scheduler {name!r}",
            field="--scheduler",
            remedy=f"write one of {', '.join(SCHEDULERS)}",
        )
    return found
