"""How fast a kind of work goes on each GPU model: as its user declares, corrected by how long runs on different models took.

Runs of one name tell only the ratio of two models' speeds. That they are all longer than estimated is an error of the estimate
(`forecast.leaning`), so one model, that whose declared speed is nearest 1, keeps it, and the others are measured by it: neither
correction has a part of the other. Everything is a logarithm and normally distributed, as in `forecast`.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from federator.planning.scheduling.forecast import DOUBT, NAMESAKES, OWNERS

BETWEEN = 0.4
"""How far ln(speed) on a model is from one name of jobs to the next, as a standard deviation. Of Gavel's 7 kinds of training (Narayanan
et al., OSDI 2020, table of throughputs on one GPU, means over batch sizes) the ratios of K80, P100 and V100 differ by e^±0.44 to
e^±0.83, which is √2 as much."""
DECLARED = 0.25
"""Likewise how far a declared speed is off. A choice, not measured: it is said of this very work, so it is better than that of other work.
With 0.4 a speed that is twice too high is found out by two runs in place of three, and right ones are moved more by chance."""
GUESSED = 0.8
"""And how far speed 1 is off where nothing is declared: the standard deviation of ln(speed) over the five models of the synthetic family."""
SURE = 2.0
"""A declared speed stands while the runs of its own name are within so many standard errors of it: they differ by chance, and most speeds are declared about right."""
TOLD = 0.05
"""A correction smaller than this is not told."""
TELLS = 3
"""So many corrections are told, the largest first."""

Logs = Mapping[str, float]
"""ln(speed) by GPU model."""


class Speeds(NamedTuple):
    """Speeds by GPU model, where one that is absent is 1, and from how many runs of the same name each was corrected."""

    factors: Mapping[str, float]
    runs: Mapping[str, int] = {}

    def on(self, model: str) -> float:
        """The speed on that model."""
        return self.factors.get(model, 1.0)


class _Log(NamedTuple):
    mean: float
    variance: float


def learned_speeds(
    declared: Mapping[str, float],
    own: Sequence[tuple[str, float]] = (),
    others: Iterable[tuple[Logs, bool]] = (),
) -> Speeds:
    """What is known of a name's speeds.

    `own` are its runs: the GPU model, and ln(seconds there), or, where sizes are told by estimates, ln(seconds there / estimate).
    `others` are ln(speed) as measured of other names, and whether they are of the same owner; of strangers in the same queue it takes
    `OWNERS` times as many.
    """
    times = defaultdict(list)
    for model, log_s in own:
        times[model].append(log_s)
    pooled, measured = _pooled(others), _measured(times)
    compared = {model for seen in (pooled, measured) if len(seen) > 1 for model in seen}
    if not compared:
        return Speeds(declared)
    before = {
        model: _Log(math.log(declared[model]), DECLARED**2) if model in declared else _Log(0.0, GUESSED**2)
        for model in sorted(compared)
    }
    after = _compared(_compared(before, pooled), measured)
    own_ones = measured if len(measured) > 1 else pooled
    keeps = min(sorted(own_ones), key=lambda model: (abs(before[model].mean), -len(times.get(model, ()))))
    moved = after[keeps].mean - before[keeps].mean
    # Three digits: a view that would differ by less than a run says is not made anew.
    found = {
        model: float(f"{math.exp(log.mean - moved):.3g}")
        for model, log in after.items()
        if model not in declared or not _agree(measured, before, model, keeps)
    }
    found[keeps] = declared.get(keeps, 1.0)
    runs = {model: len(times[model]) for model in measured} if len(measured) > 1 else {}
    return Speeds({**declared, **found}, runs)


def _agree(seen: Mapping[str, _Log], before: Mapping[str, _Log], model: str, keeps: str) -> bool:
    """Whether runs on both of these models differ from what is declared by no more than chance."""
    if not {model, keeps} <= seen.keys():
        return False
    off = seen[model].mean - seen[keeps].mean - (before[model].mean - before[keeps].mean)
    return off**2 <= SURE**2 * (seen[model].variance + seen[keeps].variance)


def _measured(times: Mapping[str, Sequence[float]]) -> dict[str, _Log]:
    """What runs of one name tell on each model, up to what is common to all: how far they differ is seen over all models."""
    middles = {model: sum(each) / len(each) for model, each in sorted(times.items())}
    count = sum(map(len, times.values()))
    square = sum((x - middles[model]) ** 2 for model, each in times.items() for x in each)
    within = (DOUBT * NAMESAKES**2 + square) / (DOUBT + count - len(middles))
    return {model: _Log(-middle, within / len(times[model])) for model, middle in middles.items()}


def _pooled(others: Iterable[tuple[Logs, bool]]) -> dict[str, _Log]:
    """What other names tell of one more."""
    weights: defaultdict[str, float] = defaultdict(float)
    sums: defaultdict[str, float] = defaultdict(float)
    for logs, same_owner in others:
        weight = 1.0 if same_owner else 1.0 / OWNERS
        for model, log in logs.items():
            weights[model] += weight
            sums[model] += weight * log
    return {
        model: _Log(sums[model] / weight, BETWEEN**2 * (1.0 + 1.0 / weight))
        for model, weight in sorted(weights.items())
    }


def _compared(known: dict[str, _Log], seen: Mapping[str, _Log]) -> dict[str, _Log]:
    """What is known after something was seen up to an unknown constant, which is common to all models; of one model alone that is nothing."""
    if len(seen) < 2:
        return known
    weight = {model: 1.0 / (known[model].variance + log.variance) for model, log in seen.items()}
    total = sum(weight.values())
    offset = sum(weight[model] * (log.mean - known[model].mean) for model, log in seen.items()) / total
    found = dict(known)
    for model, log in seen.items():
        mean, variance = known[model]
        trust = variance * weight[model]
        left = variance - trust * variance + trust**2 / total
        found[model] = _Log(mean + trust * (log.mean - mean - offset), left)
    return found


def in_words(speeds: Speeds, declared: Mapping[str, float]) -> str:
    """Which speeds differ from those declared, and how that is known; empty where none does."""
    off = {model: abs(math.log(speeds.on(model) / declared.get(model, 1.0))) for model in speeds.factors}
    told = sorted((model for model in off if off[model] >= TOLD), key=lambda model: (-off[model], model))
    return "; ".join(_one_in_words(model, speeds, declared) for model in told[:TELLS])


def _one_in_words(model: str, speeds: Speeds, declared: Mapping[str, float]) -> str:
    runs = speeds.runs.get(model, 0)
    of = f"{runs} run{'s' * (runs > 1)} of that name" if runs else "other work of its owner and queue"
    said = f"the {declared[model]:g} declared" if model in declared else "1, for none is declared"
    return f"on {model} at speed {speeds.on(model):.3g}, not {said}, as {of} took"
