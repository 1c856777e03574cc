"""How often the spot machines of each offer were taken back, counted over the leases on record."""

from collections import defaultdict

from federator.control.record.records import Records
from federator.model.capacity import IN_PARTS, Lease, LeaseStatus, Market, Offer
from federator.planning.places.interruption_rate import Watched

Key = tuple[str, str]
"""Provider and offer; a machine is the same with its GPU shared or not."""


class InterruptionCounts:
    """What has been seen of each spot offer. Leases are kept for ever, so nothing has to be written down for it."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._watched: dict[Key, Watched] = {}
        self._rates_h: dict[Key, float] = {}

    def count(self, now: float) -> None:
        """Look at all leases. A rate that is as it was stays the same object: pools are kept by that."""
        machine_h: defaultdict[Key, float] = defaultdict(float)
        interruptions: defaultdict[Key, int] = defaultdict(int)
        for lease in self._records.leases.values():
            if lease.offer.market is Market.SPOT and lease.launched_at is not None:
                key = _key(lease.offer)
                machine_h[key] += max(0.0, (lease.ended_at or now) - lease.launched_at) / 3600.0
                interruptions[key] += was_taken_back(lease)
        self._watched = {key: Watched(hours, interruptions[key]) for key, hours in machine_h.items()}
        rates_h = {key: watched.rate_h for key, watched in self._watched.items()}
        self._rates_h = {
            key: kept if (kept := self._rates_h.get(key)) == rate else rate for key, rate in rates_h.items()
        }

    def of(self, offer: Offer) -> Watched:
        """What has been seen of it."""
        return self._watched.get(_key(offer), Watched())

    def rate_h(self, offer: Offer) -> float:
        """Interruptions per machine-hour; 0 for what is not taken back."""
        if offer.market is not Market.SPOT:
            return 0.0
        return self._rates_h.get(_key(offer), UNSEEN_H)


UNSEEN_H = Watched().rate_h


def was_taken_back(lease: Lease) -> bool:
    """By a notice, or, where that came too late to be heard, by the end of a machine that was there before anybody gave it back."""
    unasked = lease.ready_at is not None and lease.draining_since_at is None and not lease.failure
    return lease.reclaim_at is not None or (lease.status is LeaseStatus.GONE and unasked)


def _key(offer: Offer) -> Key:
    return offer.provider, offer.name.removesuffix(IN_PARTS)
