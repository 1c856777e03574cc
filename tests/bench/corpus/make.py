"""Writes the corpus: each problem as msgpack, in a folder of its family. Nothing is drawn anew: the same tree writes the same problems.

A long line is there three times: whole, as a turn sees it by a plan of the whole line (`.seen`), and as it does without one (`.blind`).
Problems of traces are recorded while greedy decides, which is quick, with estimates corrected; each decision's problem counts, whoever decided the ones before.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from unittest.mock import patch

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from msgspec.structs import replace

from federator.model.plans import Plan
from federator.model.snapshot import Problem
from federator.planning import kernels
from federator.simulation.running import simulate
from federator.simulation.schedulers import Scheduler
from federator.solving.decide import decide
from federator.solving.frames import STAGES
from federator.solving.inline import InlineSolver
from tests.bench.solver.instances import Instance, Parameters
from tests.bench.solver.measure import CHURN, Outlooks, Report, line_of, windowed
from tests.lab.comparison.cases import LOADS, all_cases, jobs_of, world_of
from tests.lab.faults.drawing import draw
from tests.lab.faults.running import play_plan
from tests.properties.planning.test_each_kind_of_constraint import KINDS
from tests.scenarios.reading import scenarios
from tests.support.worlds import worlds_at_random

HOUR_S = 3600.0
QUICK = ("greedy",)
RECORDING = Scheduler(
    "recording", lambda _seed, _world: InlineSolver(), stages=STAGES, ours=True, learns=True
)
TRACES: dict[str, tuple[float, int]] = {
    **{f"online/load{load}/seed{seed}": (12.0, 20) for load in LOADS for seed in (1, 2, 3)},
    "ten-clusters/x0.2/k1.5/burst": (24.0, 15),
    "ten-clusters/x0.15/k3": (24.0, 15),
    "ten-clusters/x0.15/k1.5/burst": (24.0, 15),
    "elasticflow/federated/elastic": (12.0, 15),
    "elasticflow/itp03/elastic": (24.0, 15),
    "chronus/burst": (12.0, 15),
    "chronus/must": (12.0, 15),
}
"""By the comparison's case: the hours of its trace, and how many of its problems are kept."""
TINY_EACH, RANDOM, FAULT_SEEDS, FAULTS_EACH = 4, 120, 24, 4
BENCHES: dict[str, tuple[Parameters, int]] = {
    **{f"100x10-{seed}": (Parameters(100, 10, seed=seed), 6) for seed in range(4)},
    **{f"1000x20-{seed}": (Parameters(1_000, 20, seed=seed), 3) for seed in range(2)},
    **{f"10000x50-{seed}": (Parameters(10_000, 50, seed=seed), 3) for seed in range(2)},
    "differ-1000x20": (Parameters(1_000, 20, 1_000), 2),
    "differ-10000x50": (Parameters(10_000, 50, 10_000), 1),
}
"""By name: the instance, and how many turns are decided before the one that is kept."""


class Corpus:
    """A folder that problems are put into."""

    def __init__(self, folder: Path) -> None:
        """It is made where it is missing."""
        self._folder = folder
        self.count = 0

    def put(self, family: str, name: str, problem: Problem) -> None:
        """Write a problem."""
        place = self._folder / family / f"{name.replace('/', '--').replace(' ', '-')}.problem"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(msgspec.msgpack.encode(problem))
        self.count += 1


def put_tiny(corpus: Corpus, each: int = TINY_EACH) -> None:
    """The tiny worlds of each kind of constraint, and of the scenarios, and worlds at random."""
    for kind, rolled in KINDS.items():
        for dice in ("", "unseen"):
            for seed in range(each):
                corpus.put("kinds", f"{kind}-{dice}{seed}", rolled(Random(f"{kind}-{dice}{seed}")))
    for story in scenarios():
        corpus.put("scenarios", story.name.partition("/")[0] + "-" + str(corpus.count), story.problem)


def put_random(corpus: Corpus, count: int = RANDOM) -> None:
    """Small worlds with everything in them."""
    found: list[Problem] = []

    @settings(
        max_examples=count, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(worlds_at_random(most_jobs=12))
    def draw_one(problem: Problem) -> None:
        found.append(problem)

    draw_one()
    for number, problem in enumerate(found):
        corpus.put("random", f"{number:03}", problem)


def put_faults(corpus: Corpus, seeds: int = FAULT_SEEDS) -> None:
    """What dispatchers are asked while agents, stores and clouds fail."""
    for seed in range(seeds):
        with recorded() as problems:
            play_plan(msgspec.structs.replace(draw(seed), solver=True))
        for number, problem in enumerate(spread(problems, FAULTS_EACH)):
            corpus.put("faults", f"{seed}-{number}", problem)


def put_traces(corpus: Corpus, data: Path, names: Sequence[str]) -> None:
    """Every so many of the decisions of a case's first hours."""
    for case in all_cases():
        if case.name not in names:
            continue
        hours, count = TRACES[case.name]
        world = world_of(case, data)
        with recorded() as problems:
            simulate(world, jobs_of(case, data, world, hours * HOUR_S), RECORDING, seed=case.seed)
        for number, problem in enumerate(spread(problems, count)):
            corpus.put(case.family.replace(" ", "-"), f"{case.name}-{number}", problem)
        say(f"{case.name}: {len(problems)} decisions")


def put_benches(corpus: Corpus, names: Sequence[str]) -> None:
    """Synthetic federations after some turns under churn, with the last turn's prices."""
    for name in names:
        parameters, turns = BENCHES[name]
        instance, outlooks = Instance(parameters), Outlooks(Report())
        prices: dict[str, float] = {}
        for number in range(turns):
            whole = replace(instance.problem(number), warm_prices=prices)
            prices = decide(windowed(whole, line_of(whole), outlooks.latest(number))).prices
            outlooks.ask(whole, number)
            instance.churn(CHURN)
        whole = replace(instance.problem(turns), warm_prices=prices)
        seen, blind = (windowed(whole, line_of(whole), known) for known in (outlooks.latest(turns), None))
        corpus.put("bench", name, whole)
        if len(seen.snapshot.jobs) < len(whole.snapshot.jobs):
            corpus.put("bench", f"{name}.seen", seen)
            corpus.put("bench", f"{name}.blind", blind)
        say(f"{name}: {len(seen.snapshot.jobs)} of {len(whole.snapshot.jobs)} jobs seen")


@contextmanager
def recorded() -> Iterator[list[Problem]]:
    """Every problem with work that is decided in this process meanwhile."""
    problems: list[Problem] = []
    plainly = InlineSolver.decide

    async def noting(
        self: InlineSolver, problem: Problem, *, stages: tuple[str, ...], seed: int, limit_s: float
    ) -> Plan | None:
        if problem.snapshot.jobs:
            problems.append(problem)
        return await plainly(self, problem, stages=QUICK, seed=seed, limit_s=limit_s)

    with patch.object(InlineSolver, "decide", noting):
        yield problems


def spread(problems: Sequence[Problem], count: int) -> list[Problem]:
    """So many of them, equally far apart."""
    step = max(1, len(problems) // count)
    return list(problems[step // 2 :: step][:count])


def say(line: str) -> None:
    """What is done, for who waits."""
    sys.stderr.write(line + "\n")


def main() -> None:
    """Write all of it, or the families that are named."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.corpus.make", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, help="the folder of the traces; without it there are none")
    parser.add_argument("--only", nargs="*", default=("tiny", "random", "faults", "traces", "bench"))
    parser.add_argument("--case", nargs="*", default=tuple(TRACES))
    parser.add_argument("--bench", nargs="*", default=tuple(BENCHES))
    given_ = parser.parse_args()
    kernels.prepare()
    corpus = Corpus(given_.folder)
    if "tiny" in given_.only:
        put_tiny(corpus)
    if "random" in given_.only:
        put_random(corpus)
    if "faults" in given_.only:
        put_faults(corpus)
    if "traces" in given_.only and given_.data is not None:
        put_traces(corpus, given_.data, given_.case)
    if "bench" in given_.only:
        put_benches(corpus, given_.bench)
    say(f"{corpus.count} problems in {given_.folder}")


if __name__ == "__main__":
    main()
