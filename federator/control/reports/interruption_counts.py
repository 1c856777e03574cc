"""How often the spot machines of each offer were taken back, in each zone and in all, counted over the leases on record."""

from collections import defaultdict

from federator.control.record.records import Records
from federator.model.capacity import IN_PARTS, Lease, LeaseStatus, Market, Offer
from federator.planning.places.interruption_rate import Watched

Key = tuple[str, str]
"""Provider and offer; a machine is the same with its GPU shared or not."""
ANYWHERE = ""
"""In place of a zone: in all of them, and where none is known."""


class InterruptionCounts:
    """What has been seen of each spot offer. Leases are kept for ever, so nothing has to be written down for it."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._watched: dict[Key, Watched] = {}
        self._rates_h: dict[Key, dict[str, float]] = {}
        """By zone, those where machines have run, and `ANYWHERE`."""

    def count(self, now: float) -> None:
        """Look at all leases. A rate that is as it was stays the same object: pools are kept by that."""
        seen: defaultdict[Key, defaultdict[str, Watched]] = defaultdict(lambda: defaultdict(Watched))
        for lease in self._records.leases.values():
            if lease.offer.market is Market.SPOT and lease.launched_at is not None:
                hours = max(0.0, (lease.ended_at or now) - lease.launched_at) / 3600.0
                by_zone = seen[_key(lease.offer)]
                for zone in {ANYWHERE, lease.zone}:
                    before = by_zone[zone]
                    by_zone[zone] = Watched(
                        before.machine_h + hours, before.interruptions + was_taken_back(lease)
                    )
        self._watched = {key: by_zone[ANYWHERE] for key, by_zone in seen.items()}
        self._rates_h = {key: _rates(by_zone, self._rates_h.get(key, {})) for key, by_zone in seen.items()}

    def of(self, offer: Offer) -> Watched:
        """What has been seen of it, in whatever zone."""
        return self._watched.get(_key(offer), Watched())

    def rate_h(self, offer: Offer, zone: str = ANYWHERE) -> float:
        """Interruptions per machine-hour; 0 for what is not taken back."""
        rates_h = self.by_zone(offer)
        return rates_h.get(zone, rates_h.get(ANYWHERE, 0.0))

    def by_zone(self, offer: Offer) -> dict[str, float]:
        """Interruptions per machine-hour in the zones where machines of it have run, and `ANYWHERE`; empty for what is not taken back."""
        return self._rates_h.get(_key(offer), UNSEEN) if offer.market is Market.SPOT else {}


UNSEEN = {ANYWHERE: Watched().rate_h}


def was_taken_back(lease: Lease) -> bool:
    """By a notice, or, where that came too late to be heard, by the end of a machine that was there before anybody gave it back."""
    unasked = lease.ready_at is not None and lease.draining_since_at is None and not lease.failure
    return lease.reclaim_at is not None or (lease.status is LeaseStatus.GONE and unasked)


def _rates(by_zone: dict[str, Watched], kept: dict[str, float]) -> dict[str, float]:
    """What is expected of the offer is what its zones begin with."""
    anywhere_h = by_zone[ANYWHERE].rate_h
    rates_h = {
        zone: anywhere_h if zone == ANYWHERE else watched._replace(prior_rate_h=anywhere_h).rate_h
        for zone, watched in by_zone.items()
    }
    return {zone: was if (was := kept.get(zone)) == rate else rate for zone, rate in rates_h.items()}


def _key(offer: Offer) -> Key:
    return offer.provider, offer.name.removesuffix(IN_PARTS)
