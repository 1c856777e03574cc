"""Whether what was watched grows without end: the last quarter of a run is compared with its second, when all that is kept for a while is kept."""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Sample = Mapping[str, float]
"""By measure, such as `dispatcher MB`, what one look has seen."""


class Limit(NamedTuple):
    """How much more the last quarter may have than the second."""

    share: float
    more: float


LIMITS = {
    "MB": Limit(0.10, 5.0),
    "descriptors": Limit(0.0, 8.0),
    "threads": Limit(0.0, 4.0),
    "tasks": Limit(0.10, 10.0),
    "processes": Limit(0.0, 6.0),
    "rows": Limit(0.15, 200.0),
}
"""By the last word of a measure. What work needs for the moment comes and goes."""


KEPT = frozenset({"lease rows"})
"""What is never dropped on purpose: caps on money count leases for ever."""


class Growth(NamedTuple):
    """Medians of one measure, and whether it has grown by more than its limit."""

    measure: str
    second: float
    last: float
    leaks: bool


def growth(samples: Sequence[Sample]) -> list[Growth]:
    """Each measure that was seen in both quarters. Raises ValueError for too few samples to tell."""
    quarter = len(samples) // 4
    if quarter < 3:
        raise ValueError(f"{len(samples)} samples are too few: let it run for longer")
    second, last = samples[quarter : 2 * quarter], samples[-quarter:]
    found = []
    for measure in sorted({name for sample in samples for name in sample} - KEPT):
        before, after = ([sample[measure] for sample in part if measure in sample] for part in (second, last))
        if before and after:
            was, now = statistics.median(before), statistics.median(after)
            limit = LIMITS[measure.rpartition(" ")[2]]
            found.append(Growth(measure, was, now, now > was * (1 + limit.share) + limit.more))
    return found
