"""What is scarce about a place, in USD: the stored prices of the rows that a start there would use.

The linear program's duals say what one more GPU on free hosts, one more unit of a cap, one more GPU of a guarantee would save everybody. A start there now uses
so much of each; that is what it takes from others, beside its own price. Where the solver did not finish there are no prices, and nothing is said.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping

from federator.model.capacity import Market
from federator.model.queues import under
from federator.model.rules import GuaranteeRow
from federator.model.snapshot import JobView
from federator.planning.places.candidates import Candidate
from federator.planning.rules.caps import Caps, row_names
from federator.planning.rules.shares import Shortfall
from federator.planning.world.buckets import BUCKETS_H

LEAST_USD = 0.005
_HOURS: Mapping[str, Callable[[JobView], float]] = {
    "hours": lambda job: float(job.nodes * job.gpus),
    "core-hours": lambda job: job.nodes * job.cpus_milli / 1000.0,
    "gib-hours": lambda job: job.nodes * job.memory_mib / 1024.0,
}
_SAID = {"hours": "GPU-hours", "core-hours": "core-hours", "gib-hours": "GiB-hours of memory"}


def congestion(
    prices: Mapping[str, float],
    job: JobView,
    at: Candidate,
    caps: Caps,
    shortfalls: Mapping[GuaranteeRow, Shortfall],
) -> dict[str, float]:
    """By what is scarce, in words, the dearest first: `free GPUs of home/gpu`, `cap of quota (gpus)`; below 0 where it relieves something: `guarantee of research`."""
    if not prices:
        return {}
    found: dict[str, float] = {}
    owed = {f"{row.queue}/{row.model}": counted for row, counted in shortfalls.items()}
    for name, price in prices.items():
        kind, _, rest = name.partition("/")
        used, said = 0.0, ""
        if kind in ("fit", "cpus", "memory") and (rest == at.key or rest.rpartition("/")[0] == at.key):
            used, said = _on_hosts(kind, rest, job), f"free {'GPUs' if kind == 'fit' else kind} of {at.shown}"
        elif kind in _HOURS and rest.rpartition("/")[0] == at.key:
            used, said = _HOURS[kind](job) * _overlap_h(rest, job, at), f"{_SAID[kind]} of {at.shown}"
        elif kind == "guarantee":
            queue, _, model = rest.rpartition("/")
            if at.market is Market.OWNED and model in ("", at.model) and under(job.queue, queue):
                used, said = owed[rest].of(job) if rest in owed else 0.0, f"guarantee of {queue}"
        if used:
            found[said] = found.get(said, 0.0) - price * used
    for row, name, adds in zip(caps.rows, row_names(caps.rows), caps.adds(job, at), strict=True):
        later = (f"cap-hours/{name}/{low:g}h" for low in BUCKETS_H)
        price = prices.get(f"cap/{name}", 0.0)
        price += sum(prices[key] * _overlap_h(key, job, at) for key in later if key in prices)
        if adds and price:
            said = f"cap of {row.policy} ({row.unit.value})"
            found[said] = found.get(said, 0.0) - price * adds
    dearest = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return {said: round(usd, 4) for said, usd in dearest if abs(usd) >= LEAST_USD}


def _overlap_h(rest: str, job: JobView, at: Candidate) -> float:
    """How long what starts now runs in the bucket that begins so many hours from now."""
    low_h = float(rest.rpartition("/")[2].removesuffix("h"))
    high_h = BUCKETS_H[min(bisect_right(BUCKETS_H, low_h), len(BUCKETS_H) - 1)]
    return max(0.0, min(high_h, at.run_s(job) / 3600.0) - low_h)


def _on_hosts(kind: str, rest: str, job: JobView) -> float:
    if kind == "fit":
        step = int(rest.rpartition("/")[2])
        return float(job.nodes * (job.gpus // step)) if step else 0.0
    return float(job.nodes * (job.cpus_milli if kind == "cpus" else job.memory_mib))
