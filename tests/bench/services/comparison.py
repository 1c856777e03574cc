"""The same requests, once for each way to scale: how many were answered in time, and what it cost in GPU hours."""

from collections.abc import Sequence
from itertools import islice
from math import ceil
from typing import NamedTuple

from msgspec.structs import replace

from federator.model.services import Replica, Scale
from federator.wire.services import SeenLoad
from tests.bench.services.fleet import Fleet, Machine
from tests.bench.services.requests import GPUS, START_S, Request
from tests.bench.services.scalers import Federator, Fixed, Scaler, Threshold

TICK_S = 0.1
LOOK_S, TELL_S = 0.5, 2.0
"""As a gateway looks and tells."""
SLACK = 1.5
"""The target: so many times what 95 of 100 requests take where each is alone. And a request is as good as alone if it takes no longer than so many times that."""


ATTAINED = 0.95


class Outcome(NamedTuple):
    """What came of one way to scale."""

    attained: float
    """The part of all requests that were answered within the target,"""
    unhurried: float
    """and that within `SLACK` times what they take alone."""
    p95_s: float
    gpu_hours: float
    most: int
    """Replicas that were wanted at most."""


def target_s(requests: Sequence[Request]) -> float:
    """Within so long 95 of 100 requests should be answered."""
    return SLACK * _p95([each.alone_s for each in requests])


def at_a_time(requests: Sequence[Request], limit_s: float) -> int:
    """How many requests one replica can always work on and answer 95 of 100 within the target: what its owner would measure, and write as `requests_per_replica`."""
    some, many = requests[:1000], 1
    while many < len(some) and _p95(_kept_full(some, many + 1)) <= limit_s:
        many += 1
    return many


def _kept_full(requests: Sequence[Request], many: int) -> list[float]:
    """How long each takes where the next begins as soon as one is answered."""
    machine, begun, took = Machine(Replica("", 1), 0.0), dict[int, float](), list[float]()
    left = iter(range(len(requests)))
    for number in islice(left, many):
        begun[number] = 0.0
        machine.take(requests[number]._replace(at_s=float(number)), 0.0)
    while machine.running:
        for request, at_s in machine.follow(machine.at_s + TICK_S):
            took.append(at_s - begun[int(request.at_s)])
            for number in islice(left, 1):
                begun[number] = at_s
                machine.take(requests[number]._replace(at_s=float(number)), at_s)
    return took


def for_the_mean(requests: Sequence[Request], scale: Scale) -> int:
    """Replicas for the requests at a time on average, were each alone."""
    over_s = requests[-1].at_s - requests[0].at_s + 1.0
    return max(1, ceil(sum(each.alone_s for each in requests) / over_s / scale.requests_per_replica))


def simulated(
    requests: Sequence[Request], scaler: Scaler, scale: Scale, begin: int, start_s: float = START_S
) -> Outcome:
    """What comes of it, from so many replicas that are ready until the last request is answered."""
    fleet, limit_s = Fleet(scale, begin, start_s), scale.p95_latency_s or float("inf")
    took, new, at_once, ratios = list[float](), list[float](), list[int](), list[float]()
    tick, asked, most = 0, 0, begin
    while len(took) < len(requests):
        now_s = tick * TICK_S
        while asked < len(requests) and requests[asked].at_s <= now_s:
            fleet.ask(requests[asked])
            asked += 1
        for request, answered_s in fleet.work(now_s, TICK_S):
            took.append(answered_s - request.at_s)
            new.append(took[-1])
            ratios.append(took[-1] / request.alone_s)
        tick += 1
        now_s = tick * TICK_S
        if tick % round(LOOK_S / TICK_S) == 0:
            at_once.append(fleet.at_once)
        if tick % round(TELL_S / TICK_S) == 0:
            slow = sum(each > limit_s for each in new)
            seen = SeenLoad(
                "", sum(at_once) / len(at_once), TELL_S, len(new), len(new) - slow, slow,
                replicas=fleet.seen(now_s),
            )  # fmt: skip
            new, at_once = [], []
            wanted = scaler.wanted(seen, fleet.active, now_s)
            most = max(most, wanted)
            fleet.scale_to(wanted, now_s)
    return Outcome(
        sum(each <= limit_s for each in took) / len(took),
        sum(each <= SLACK for each in ratios) / len(ratios),
        _p95(took),
        fleet.held_s * GPUS / 3600,
        most,
    )


def compared(requests: Sequence[Request], scale: Scale, start_s: float = START_S) -> dict[str, Outcome]:
    """All ways to scale, by name. The fleet for the peak is the smallest fixed one that keeps the target, which one knows only afterwards."""

    def fixed(many: int) -> Outcome:
        bounds = replace(scale, least=many, most=many)
        return simulated(requests, Fixed(many), bounds, many, start_s)

    begin = for_the_mean(requests, scale)
    outcomes = {f"fixed for the mean, {begin}": fixed(begin)}
    peak, outcome = begin, outcomes[f"fixed for the mean, {begin}"]
    while outcome.attained < ATTAINED:
        peak += 1
        outcome = fixed(peak)
    outcomes[f"fixed for the peak, {peak}"] = outcome
    outcomes["threshold, as Kubernetes"] = simulated(requests, Threshold(scale, begin), scale, begin, start_s)
    outcomes["Federator"] = simulated(requests, Federator(scale, begin), scale, begin, start_s)
    return outcomes


def _p95(seconds: Sequence[float]) -> float:
    return sorted(seconds)[(95 * len(seconds) - 1) // 100]
