"""What a scheduler is to a simulation: a solver, where jobs are bound before it sees them, and by which rule its rentals are permitted."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from federator.kernel.errors import Invalid
from federator.model.rules import BurstMode, Effect, Filter, Rule
from federator.ports import Solver
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSpec

Rules = tuple[Rule, ...]
Alter = Callable[[Rules], Rules]
Bind = Callable[[TraceJob, WorldSpec, int], tuple[str, ...]]
"""Of a job, in a world, with a seed."""


@dataclass(frozen=True)
class Scheduler:
    """One way to decide. `solver` is made anew for each run, with its seed and the world as it is given."""

    name: str
    solver: Callable[[int, WorldSpec], Solver]
    stages: tuple[str, ...] = ("list",)
    ours: bool = False
    """Whether the dispatcher's own short cuts are taken: the fast path, and a window on long lines, which is chosen by its own order."""
    learns: bool = False
    """Whether users' estimates are corrected by how those before turned out."""
    alter: Alter | None = None
    """Turns the policies' rules into those it is to obey."""
    bind: Bind | None = None
    """The sites that a job is bound to when it is submitted."""
    change: Callable[[WorldSpec], WorldSpec] | None = None
    """What is different in its world."""


def listed(world: WorldSpec) -> tuple[str, ...]:
    """All sites in the order in which the world lists them; then the clouds."""
    return tuple(dict.fromkeys([*(site.name for site in world.sites), *world.cloud_sites.values()]))


def renting_by_itself(rules: Rules) -> Rules:
    """Wherever a policy permits to rent, it is permitted at any time, whatever it would bring: when, is the scheduler's own rule."""
    return tuple(
        replace(rule, mode=BurstMode.THRESHOLD, after_wait_s=0.0) if opens(rule) else rule for rule in rules
    )


def renting_never(rules: Rules) -> Rules:
    """Nothing is rented, whatever policies permit."""
    return tuple(rule for rule in rules if not opens(rule))


def to_its_home(job: TraceJob, world: WorldSpec, seed: int) -> tuple[str, ...]:
    """Its owner's site. Raises `Invalid` for a job that has none."""
    del seed
    if job.home not in {site.name for site in world.sites}:
        raise Invalid(
            f"job {job.name} has no home among the sites of the world",
            field="--scheduler",
            remedy="isolated needs a trace with the column home",
        )
    return (job.home,)


def opens(rule: object) -> bool:
    """Whether a rule permits to rent."""
    return isinstance(rule, Filter) and rule.effect is Effect.ALLOW and rule.mode is not None
