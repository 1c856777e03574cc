"""What queues have had of late: owned GPUs on average, where half of what is a half-life ago counts, and a quarter of what is two ago.

Charged by what really ran, where it ran: from placements, started to ended, and not from what was asked for; a GPU of a model counts as much as
the queue's policy says. Nothing of it is stored: it is counted
from the placements on record, so that a restart, or another leader, comes to the same.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from federator.control.record.records import Changes, Records
from federator.model.capacity import Market
from federator.model.placements import Placement
from federator.model.rules import QueueTerms


class _Account(NamedTuple):
    """Average GPUs of work that has ended, as of `at`."""

    gpus: float
    at: float


class Usage:
    """Keeps one account per queue whose past use counts; of none while no policy says so."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._version = -1
        self._half_lives_s: dict[str, float] = {}
        self._weights: dict[str, dict[str, float]] = {}
        """By queue and model, where a GPU counts otherwise than once."""
        self._accounts: dict[str, _Account] = {}
        self._counted: set[str] = set()
        records.subscribe(self._heard)

    def recent_gpus(self, now: float) -> Mapping[str, float]:
        """By queue, each by itself; queues without a half-life, and those that have had nothing, are left out."""
        self._follow_policies()
        found: dict[str, float] = {}
        for queue, account in self._accounts.items():
            found[queue] = account.gpus * _left(now - account.at, self._half_lives_s[queue])
        for placement in self._records.open_placements.values() if self._half_lives_s else ():
            queue = self._records.jobs[placement.job].queue
            if placement.ended or placement.started_at is None or not self._counts(placement, queue):
                continue
            ran_s = max(0.0, now - placement.started_at)
            had = self._weighed(placement, queue) * (1.0 - _left(ran_s, self._half_lives_s[queue]))
            found[queue] = found.get(queue, 0.0) + had
        return found

    def _follow_policies(self) -> None:
        """After a change of policies everything is counted anew."""
        policies = self._records.policies
        if policies.version == self._version:
            return
        self._version = policies.version
        terms = [rule for rule in policies.rules if isinstance(rule, QueueTerms) and rule.usage_half_life_s]
        self._half_lives_s = {rule.queue: rule.usage_half_life_s or 0.0 for rule in terms}
        self._weights = {rule.queue: rule.usage_weights for rule in terms}
        self._accounts, self._counted = {}, set()
        if self._half_lives_s:
            for placement in sorted(self._records.placements.values(), key=lambda each: each.ended_at or 0.0):
                self._book(placement)

    def _heard(self, changes: Changes) -> None:
        for row in changes.rows.values() if self._half_lives_s else ():
            if isinstance(row, Placement):
                self._book(row)

    def _book(self, placement: Placement) -> None:
        """Count work that has ended, once."""
        job = self._records.jobs.get(placement.job)
        if placement.started_at is None or placement.ended_at is None or placement.id in self._counted:
            return
        if job is None or not self._counts(placement, job.queue):
            return
        self._counted.add(placement.id)
        half_life_s, at = self._half_lives_s[job.queue], placement.ended_at
        gpus = self._weighed(placement, job.queue) * (1.0 - _left(at - placement.started_at, half_life_s))
        known = self._accounts.get(job.queue, _Account(0.0, at))
        if known.at <= at:
            self._accounts[job.queue] = _Account(known.gpus * _left(at - known.at, half_life_s) + gpus, at)
        else:  # it is heard of late
            late = gpus * _left(known.at - at, half_life_s)
            self._accounts[job.queue] = _Account(known.gpus + late, known.at)

    def _weighed(self, placement: Placement, queue: str) -> float:
        """Its GPUs, each as much as its model counts in that queue."""
        return placement.gpus * self._weights[queue].get(placement.model, 1.0)

    def _counts(self, placement: Placement, queue: str) -> bool:
        return placement.market is Market.OWNED and placement.gpus > 0 and queue in self._half_lives_s


def _left(seconds: float, half_life_s: float) -> float:
    """What is left of one after so long."""
    return math.exp2(-max(0.0, seconds) / half_life_s)
