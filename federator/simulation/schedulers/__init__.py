"""The schedulers that can be compared, by name: ours, and the baselines of `docs/explanation/simulation.md`.

All decide through one port (`federator.ports.Solver`) in the same federation: what differs is the plan, and nothing else. Its turn proves and commits
a baseline's plan as it does ours, so a baseline cannot overfill a site or break a policy either.
"""

from federator.kernel.errors import Invalid
from federator.simulation.schedulers.baselines import Fifo, Race, Threshold
from federator.simulation.schedulers.listing import ListSolver, Rule
from federator.simulation.schedulers.port import (
    Bind,
    Scheduler,
    renting_after,
    renting_never,
    to_any,
    to_its_home,
)
from federator.solving.inline import InlineSolver

__all__ = ["SCHEDULERS", "Scheduler", "scheduler"]

WAIT_S = 1800.0
"""Baselines that rent do so after so long."""


def _listing(
    name: str, rule: type[Rule], *, burst_after_s: float | None, bind: Bind | None = None
) -> Scheduler:
    alter = renting_never() if burst_after_s is None else renting_after(burst_after_s)
    return Scheduler(name, lambda seed: ListSolver(name, rule(seed)), alter=alter, bind=bind)


SCHEDULERS: dict[str, Scheduler] = {
    each.name: each
    for each in (
        Scheduler("ours", lambda _: InlineSolver(), stages=("greedy", "lp", "cpsat"), ours=True),
        Scheduler("greedy", lambda _: InlineSolver(), stages=("greedy",), ours=True),
        _listing("fifo", Fifo, burst_after_s=WAIT_S),
        _listing("random", Fifo, burst_after_s=WAIT_S, bind=to_any),
        _listing("threshold", Threshold, burst_after_s=WAIT_S),
        _listing("race", Race, burst_after_s=0.0),
        _listing("isolated", Fifo, burst_after_s=None, bind=to_its_home),
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
