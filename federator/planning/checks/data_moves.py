"""What moving a job's data to a place takes, computed again: the cheapest way that rules know for each input, one after another."""

import math
from typing import NamedTuple

from federator.model.datasets import (
    DatasetRule,
    LinkRule,
    Spot,
    dataset_of,
    link_between,
    seconds,
    usd,
)
from federator.model.jobs import Input
from federator.model.snapshot import JobView, Snapshot


class Moved(NamedTuple):
    """Bytes, and what they take and cost on the way."""

    moved_bytes: int = 0
    seconds: float = 0.0
    usd: float = 0.0


class Moving:
    """Rules about data and links, and the regions of sites."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.datasets = [rule for rule in snapshot.rules if isinstance(rule, DatasetRule)]
        self._links = [rule for rule in snapshot.rules if isinstance(rule, LinkRule)]
        self._regions = {offer.site: offer.offer.region for offer in snapshot.offers}
        self._regions.update((pool.site, pool.region) for pool in snapshot.pools)
        self._registered: dict[str, DatasetRule | None] = {}
        self._moved: dict[tuple[tuple[Input, ...], str, str], Moved] = {}

    def moved(self, job: JobView, site: str, region: str) -> Moved:
        """All inputs of the job, to that site."""
        asked = job.inputs, site, region
        if asked not in self._moved:
            each = [self._one(wanted, Spot(site, region)) for wanted in job.inputs]
            counts, spans, prices = zip(*each, strict=True) if each else ((), (), ())
            self._moved[asked] = Moved(sum(counts), sum(spans), sum(prices))
        return self._moved[asked]

    def _one(self, wanted: Input, to: Spot) -> Moved:
        if wanted.uri not in self._registered:
            self._registered[wanted.uri] = dataset_of(self.datasets, wanted.uri)
        dataset = self._registered[wanted.uri]
        count = wanted.size_bytes if wanted.size_bytes is not None or dataset is None else dataset.size_bytes
        if dataset is not None and to.site in (dataset.kept_at or ()):
            return Moved()
        best = Moved(seconds=math.inf, usd=math.inf)
        for spot in dataset.replicas if dataset else ():
            region = spot.region or self._regions.get(spot.site, "")
            link = link_between(self._links, Spot(spot.site, region), to)
            if spot.site and spot.site == to.site:
                return Moved()
            if link is None or count is None:
                continue
            price, span = usd(link, count), seconds(link, count)
            if (price, span) < (best.usd, best.seconds):
                best = Moved(count, span, price)
        return best if math.isfinite(best.usd) else Moved()
