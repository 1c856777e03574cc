"""The schedulers that can be compared, by name: ours, and the baselines of `docs/explanation/simulation.md`.

All decide through one port (`federator.ports.Solver`) in the same federation: what differs is the plan, and nothing else. Its turn proves and commits
a baseline's plan as it does ours, so a baseline cannot overfill a site or break a policy either.
"""

from collections.abc import Callable

from federator.kernel.errors import Invalid
from federator.simulation.schedulers.baselines import Fifo, Race, RaceIncremental, Starburst, Threshold
from federator.simulation.schedulers.listing import ListSolver, Rule
from federator.simulation.schedulers.port import (
    Alter,
    Bind,
    Scheduler,
    booted_ahead,
    listed,
    renting_by_itself,
    renting_never,
    to_any,
    to_its_home,
)
from federator.simulation.world import World
from federator.solving.frames import STAGES
from federator.solving.inline import InlineSolver

__all__ = ["PATIENT", "SCHEDULERS", "Scheduler", "patient", "scheduler"]


def _listing(
    name: str,
    rule: type[Rule],
    *,
    alter: Alter | None = None,
    bind: Bind | None = None,
    change: Callable[[World], World] | None = None,
    patience: float = 1.0,
) -> Scheduler:
    def solver(seed: int, world: World) -> ListSolver:
        made = rule(seed, world)
        made.patience = patience
        return ListSolver(name, made, listed(world))

    return Scheduler(name, solver, alter=alter or renting_by_itself(), bind=bind, change=change)


def _production(seed: int, world: World) -> InlineSolver:
    del seed, world
    return InlineSolver()


SCHEDULERS: dict[str, Scheduler] = {
    each.name: each
    for each in (
        Scheduler("ours", _production, stages=STAGES, ours=True, learns=True),
        Scheduler("greedy", _production, stages=("greedy",), ours=True),
        _listing("fifo", Fifo),
        _listing("random", Fifo, bind=to_any),
        _listing("threshold", Threshold),
        _listing("race", Race, change=booted_ahead),
        _listing("race-incremental", RaceIncremental, change=booted_ahead),
        _listing("isolated", Fifo, alter=renting_never(), bind=to_its_home),
        _listing("starburst", Starburst),
    )
}


PATIENT: dict[str, type[Rule]] = {"threshold": Threshold, "starburst": Starburst}
"""Those whose wait before they rent can be made longer or shorter."""


def patient(name: str, patience: float) -> Scheduler:
    """The scheduler of that name, with its wait before it rents so many times as long. Raises `Invalid` for one that has none."""
    if patience == 1.0:
        return scheduler(name)
    if name not in PATIENT:
        raise Invalid(
            f"{name} has no wait of its own that could be longer or shorter",
            field="--scheduler",
            remedy=f"write one of {', '.join(PATIENT)}",
        )
    return _listing(name, PATIENT[name], patience=patience)


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
