"""First come, first served on hosts, written a second time in forty lines: the federation's mean waits must be those, within a turn.

The reference knows nothing of agents, links, turns or transactions: jobs start the moment that something has room.
"""

import heapq
import random
from collections.abc import Sequence

import pytest

from federator.simulation.accounting import figures
from federator.simulation.work import TraceJob
from tests.unit.simulation.tiny import TURN_S, job, run, site, world

SITES = {"a": 3, "b": 2, "c": 2}
"""Hosts of eight GPUs."""


def mean_wait_s(jobs: Sequence[TraceJob], *, alone: bool) -> float:
    """In order of arrival, with backfill of whatever fits, each rank on the host that it fills best."""
    free = {name: [8] * hosts for name, hosts in SITES.items()}
    ends: list[tuple[float, int, list[tuple[str, int]], int]] = []
    waiting: list[TraceJob] = []
    waits: list[float] = []
    ahead = sorted(jobs, key=lambda each: each.submit_s)
    while ahead or waiting:
        now = min(ahead[0].submit_s if ahead else float("inf"), ends[0][0] if ends else float("inf"))
        while ahead and ahead[0].submit_s <= now:
            waiting.append(ahead.pop(0))
        while ends and ends[0][0] <= now:
            _, _, hosts, gpus = heapq.heappop(ends)
            for name, host in hosts:
                free[name][host] += gpus
        for each in tuple(waiting):
            for name in (each.home,) if alone else SITES:
                fitting = sorted((left, host) for host, left in enumerate(free[name]) if left >= each.gpus)
                if len(fitting) >= each.nodes:
                    chosen = [(name, host) for _, host in fitting[: each.nodes]]
                    for _, host in chosen:
                        free[name][host] -= each.gpus
                    heapq.heappush(ends, (now + each.run_s, len(waits), chosen, each.gpus))
                    waits.append(now - each.submit_s)
                    waiting.remove(each)
                    break
    return sum(waits) / len(waits)


@pytest.mark.parametrize(("scheduler", "alone"), [("fifo", False), ("isolated", True)])
def test_waits_are_those_of_the_reference(scheduler: str, *, alone: bool) -> None:
    chance = random.Random(11)
    jobs = []
    for number in range(150):
        nodes = chance.choice((1, 1, 1, 1, 2))
        gpus = 8 if nodes > 1 else chance.choice((1, 2, 4, 8))
        times = {"submit_s": chance.uniform(0.0, 36_000.0), "run_s": chance.uniform(900.0, 15_000.0)}
        jobs.append(job(f"j{number:03}", nodes=nodes, gpus=gpus, home=chance.choice("abc"), **times))
    where = world(*(site(name, hosts, 8) for name, hosts in SITES.items()))
    expected_s = mean_wait_s(jobs, alone=alone)
    assert expected_s > 1000.0  # there is something to wait for
    found = figures(run(where, *jobs, by=scheduler), where, jobs)
    assert found.wait_mean_s == pytest.approx(expected_s, abs=2 * TURN_S, rel=0.1)
