"""Prices plans of two builds with the evaluator and the checker of this environment: `PYTHON judge.py CORPUS OLD NEW`.

A decision is worth what its starts come to once the list schedule has gone on from there, in the published order or in the plan's, whichever is
cheaper. It is invalid when the checker finds anything fatal in its actions. Of a plan only actions and the order of what waits are read, so
a build may tell of them as it likes. Exits 1 where a plan is invalid or missing, the whole is dearer, or one decision is dearer by more than 1 %.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from federator.model.plans import Action, Plan, Severity, Waiting
from federator.model.snapshot import Problem
from federator.planning import kernels
from federator.planning.checks import check_actions
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.plan_starts import starts_of, turns_of
from federator.planning.world.problem import World

DEARER = 0.01
"""By more than this part no single decision may be dearer,"""
LEAST_USD = 0.01
"""if it is by more than that."""


class Priced(NamedTuple):
    """What one plan comes to; `idle` counts starts that it leaves out and the schedule makes at once, `none` that there is no such plan."""

    usd: float
    invalid: tuple[str, ...]
    cpu_s: float
    idle: int


class Pair(NamedTuple):
    """Both plans of a problem."""

    name: str
    old: Priced
    new: Priced

    @property
    def ratio(self) -> float:
        """New over old; what differs by less than a cent is the same."""
        return (
            1.0
            if abs(self.new.usd - self.old.usd) <= LEAST_USD
            else self.new.usd / max(self.old.usd, LEAST_USD)
        )


def read_plan(content: bytes, problem: Problem) -> tuple[Plan, float]:
    """A plan as this build knows it, and the seconds it took. Raises `msgspec.DecodeError` where an action is unknown."""
    told: dict[str, Any] = msgspec.msgpack.decode(content)
    plan = told["plan"]
    # What a build says of why jobs wait is nothing that is judged.
    waiting = tuple(Waiting(job=each["job"], kind="capacity", because="") for each in plan.get("waiting", ()))
    acts = [{**each, "because": ""} for each in plan.get("actions", ())]
    actions = msgspec.convert(acts, tuple[Action, ...])
    made = Plan(
        decision=problem.decision,
        taken_at=problem.snapshot.taken_at,
        seed=0,
        winner="",
        winner_because="",
        objective_usd=0.0,
        actions=actions,
        waiting=waiting,
    )
    return made, float(told["cpu_s"])


def priced(problem: Problem, evaluator: Evaluator, content: bytes) -> Priced:
    """What a plan comes to."""
    plan, cpu_s = read_plan(content, problem)
    found = [each for each in check_actions(problem, plan) if each.severity is Severity.FATAL]
    invalid = tuple(f"{each.subject}: promise {each.promise}, {each.text}" for each in found)
    starts = starts_of(evaluator.world, plan.actions)
    order = turns_of(evaluator.world, [each.job for each in plan.waiting])
    scores = [
        evaluator.in_order(each).score(starts) for each in ((None,) if order is None else (None, order))
    ]
    best = min(scores, key=lambda scored: scored.total)
    return Priced(best.total, invalid, cpu_s, len(best.starts.keys() - starts.keys()))


def pairs(corpus: Path, old: Path, new: Path) -> tuple[list[Pair], list[str]]:
    """Both plans of every problem that the old build has decided, and the names of those that the new one has not."""
    found, missing = [], []
    for path in sorted(old.glob("*/*.plan")):
        name = f"{path.parent.name}/{path.stem}"
        other = new / f"{name}.plan"
        if not other.exists():
            missing.append(name)
            continue
        problem = msgspec.msgpack.decode((corpus / f"{name}.problem").read_bytes(), type=Problem)
        evaluator = Evaluator(World(problem))
        both = [priced(problem, evaluator, each.read_bytes()) for each in (path, other)]
        found.append(Pair(name, *both))
    return found, missing


def table(found: list[Pair]) -> list[str]:
    """By family and in all: count, USD, ratio, the dearest single one, invalid plans, milliseconds of a processor each."""
    families: dict[str, list[Pair]] = {}
    for pair in found:
        family = pair.name.partition("/")[0]
        families.setdefault(f"{family}/{size_of(pair.name)}" if family == "bench" else family, []).append(
            pair
        )
    lines = [
        "| family | decisions | old USD | new USD | ratio | dearest | | invalid | idle old, new | ms old | ms new |",
        "|---|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|",
    ]
    for family, members in [*sorted(families.items()), ("all", found)]:
        old_usd, new_usd = (sum(getattr(each, side).usd for each in members) for side in ("old", "new"))
        old_ms, new_ms = (
            1000 * sum(getattr(each, side).cpu_s for each in members) / len(members)
            for side in ("old", "new")
        )
        worst = max(members, key=lambda each: each.ratio)
        invalid = sum(bool(each.new.invalid) for each in members)
        idle = ", ".join(str(sum(getattr(each, side).idle for each in members)) for side in ("old", "new"))
        lines.append(
            f"| {family} | {len(members)} | {old_usd:,.2f} | {new_usd:,.2f} | {new_usd / max(old_usd, 1e-9):.4f} | {worst.ratio:.4f} "
            f"| {worst.name if worst.ratio > 1 else ''} | {invalid} | {idle} | {old_ms:.1f} | {new_ms:.1f} |"
        )
    return lines


def size_of(name: str) -> str:
    """A bench instance without its seed."""
    stem, _, seed = name.partition("/")[2].rpartition("-")
    return stem if seed.isdigit() else name.partition("/")[2]


def report(found: list[Pair], missing: list[str]) -> tuple[list[str], bool]:
    """The table, what is dearer by more than a hundredth, what is invalid or missing; and whether the new build decides as well."""
    dearer = sorted(
        (each for each in found if each.ratio > 1 + DEARER), key=lambda each: each.old.usd - each.new.usd
    )
    broken = [each for each in found if each.new.invalid]
    cheaper = sum(each.ratio < 1 - DEARER for each in found)
    lines = [
        *table(found),
        "",
        f"dearer by more than {100 * DEARER:g} %: {len(dearer)}; cheaper by as much: {cheaper}",
    ]
    lines += [
        f"  {each.name}: {each.old.usd:,.2f} to {each.new.usd:,.2f} USD ({each.ratio:.4f})" for each in dearer
    ]
    lines += [f"  invalid: {each.name}: {each.new.invalid[0]}" for each in broken]
    lines += [f"  not decided by the new one: {name}" for name in missing]
    whole = sum(each.new.usd for each in found) <= sum(each.old.usd for each in found) + LEAST_USD
    return lines, whole and not (dearer or broken or missing)


def main() -> int:
    """Print the report; whether the new build decides as well is the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    told = parser.parse_args()
    found, missing = pairs(told.corpus, told.old, told.new)
    if not found:
        sys.stderr.write("no problem was decided by both\n")
        return 1
    lines, well = report(found, missing)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if well else 1


if __name__ == "__main__":
    kernels.prepare()
    sys.exit(main())
