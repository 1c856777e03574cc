"""What a scheduler is to a simulation: a solver, and by which rule its rentals are permitted."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from federator.model.rules import BurstMode, Effect, Filter, Rule
from federator.ports import Solver

Rules = tuple[Rule, ...]
Alter = Callable[[Rules], Rules]


@dataclass(frozen=True)
class Scheduler:
    """One way to decide. `solver` is made anew for each run, with its seed; `alter` turns the policies' rules into those it is to obey."""

    name: str
    solver: Callable[[int], Solver]
    stages: tuple[str, ...] = ("list",)
    fast_path: bool = False
    alter: Alter | None = None


def renting_after(wait_s: float) -> Alter:
    """Wherever a policy permits to rent, it is permitted after so long a wait, whatever it would bring."""

    def alter(rules: Rules) -> Rules:
        return tuple(
            replace(rule, mode=BurstMode.THRESHOLD, after_wait_s=wait_s) if _opens(rule) else rule
            for rule in rules
        )

    return alter


def renting_never() -> Alter:
    """Nothing is rented, whatever policies permit."""
    return lambda rules: tuple(rule for rule in rules if not _opens(rule))


def _opens(rule: Rule) -> bool:
    return isinstance(rule, Filter) and rule.effect is Effect.ALLOW and rule.mode is not None
