"""Looks rules up: what a policy set says about one job, one place and one moment.

Rules are a closed vocabulary (`federator.model.rules`); this is the only module of the planner that matches scopes,
selectors and windows, so a rule means the same to filters, prices and caps.
"""

import math
from collections.abc import Iterable

from federator.model.capacity import Market
from federator.model.datasets import DatasetRule, concerns_data
from federator.model.rules import (
    BurstMode,
    CapRow,
    CapUnit,
    Each,
    Effect,
    Filter,
    GuaranteeRow,
    Opening,
    PoolSelector,
    PreemptRule,
    PriceKind,
    PriceTerm,
    Rule,
    Scope,
    in_scope,
)
from federator.model.snapshot import JobView
from federator.planning.kernels.start_cost import gpus_usd
from federator.planning.places.candidates import Candidate, size
from federator.planning.rules.openings import open_at

DEFAULT_MISS_USD_GPU_H = 12.0
"""Value of a met deadline where no queue prices it: about three times what a GPU-hour costs to rent."""
DEFAULT_WAIT_USD_GPU_H = 0.05
"""Price of waiting where no queue sets one: it ranks, and is far too small to rent for."""
NEVER_WAIT_H = 7 * 24.0
"""A job that no plan ever starts is charged its whole value and a week of waiting."""
MUST_USD = 1_000_000.0
"""Value of a deadline that must be met: finite, so that two of them can still be compared."""
PRIORITY_DOUBLES_EVERY = 25.0
"""So many points of priority double the price of a job's waiting."""
AGING_POINTS_PER_H = 1.0
"""Points of priority that an hour of waiting adds, in the order and in the price: so nothing waits for ever."""
MAX_AGED = 600.0
"""Where aging ends: an hour's wait then costs so much (four million times the price of priority 50) that no deadline is worth it, and sums stay exact beside it."""
INTERACTIVE_POINTS = 100.0
"""So much is being interactive worth in the order: before all priorities, and after what has waited for days."""
INTERACTIVE_FACTOR = 10.0
"""Somebody sits before an interactive job: its waiting costs so many times as much."""


def _depth(scope: Scope, queue: str) -> tuple[int, int]:
    """How specific a scope is for a queue: the deepest path that admits it, then how much else it asks for."""
    paths = [path.count("/") + 1 for path in scope.queues if queue == path or queue.startswith(path + "/")]
    return max(paths, default=0), bool(scope.owners) + len(scope.labels)


class RuleBook:
    """The rules of one snapshot, at its moment."""

    def __init__(self, rules: Iterable[Rule], at: float) -> None:
        """Sort the rules by what they do; a closed window takes its rule out."""
        rules = tuple(rules)
        self.denials = [
            r for r in rules if isinstance(r, Filter) and r.effect is Effect.DENY and open_at(r.window, at)
        ]
        allowing = [r for r in rules if isinstance(r, Filter) and r.effect is Effect.ALLOW]
        self.permits = [r for r in allowing if not r.advisory]
        self.advisers = [r for r in allowing if r.advisory]
        self.at = at
        self.guarantees = [r for r in rules if isinstance(r, GuaranteeRow)]
        self.preemptions = [r for r in rules if isinstance(r, PreemptRule)]
        self.prices = [r for r in rules if isinstance(r, PriceTerm) and open_at(r.window, at)]
        self.datasets = [r for r in rules if isinstance(r, DatasetRule)]
        self._permits_about: dict[tuple[object, ...], list[Filter]] = {}
        self.closures: dict[tuple[object, ...], tuple[float, float]] = {}
        """What `calendars.closure` has found."""
        self.openings = [r for r in rules if isinstance(r, Opening) and not r.is_over(at)]
        hard = [r for r in rules if isinstance(r, CapRow) and r.hard and r.each is Each.TOGETHER]
        borrowing = (borrowing_cap(row) for row in self.guarantees)
        self.caps = [*hard, *(cap for cap in borrowing if cap is not None)]
        self.licenses = [r for r in hard if r.unit is CapUnit.LICENSES]

    def hours_of(self, job: JobView, candidate: Candidate) -> list[Opening]:
        """The calendars that hold for the job at this place."""
        return [
            r
            for r in self.openings
            if candidate.selected_by(r.pools)
            and r.concerns(queue=job.queue, owner=job.owner, labels=job.labels)
        ]

    def denial(self, job: JobView, candidate: Candidate) -> Filter | None:
        """The first rule that denies the job this place."""
        return next(
            (
                r
                for r in self.denials
                if matches(r.scope, job)
                and candidate.selected_by(r.pools) is not r.beyond
                and (r.data is None or concerns_data(r.data, self.datasets, job.inputs, every=False))
            ),
            None,
        )

    def permits_about(self, job: JobView) -> list[Filter]:
        """Burst policies that are about this job; found once for all of whom a scope says the same."""
        who = (job.queue, job.owner, *sorted(job.labels.items()))
        if who not in self._permits_about:
            self._permits_about[who] = [r for r in self.permits if matches(r.scope, job)]
        return self._permits_about[who]

    def permits_for(self, job: JobView, candidate: Candidate) -> list[Filter]:
        """Those that are about this place, too, whatever their window, mode and price say."""
        about = (r for r in self.permits_about(job) if candidate.selected_by(r.pools))
        return [r for r in about if self.leaves_with(r, job)]

    def leaves_with(self, permit: Filter, job: JobView) -> bool:
        """Whether the job reads nothing but data that the burst policy lets leave."""
        return permit.data is None or concerns_data(permit.data, self.datasets, job.inputs, every=True)

    def kept_by(self, job: JobView, candidate: Candidate) -> list[Filter]:
        """Burst policies that are about this job and this place but for its data, which they do not let leave."""
        about = (r for r in self.permits_about(job) if candidate.selected_by(r.pools))
        return [r for r in about if not self.leaves_with(r, job)]

    def advisers_for(self, job: JobView, candidate: Candidate) -> list[Filter]:
        """Burst policies that are about this job and this place and only advise."""
        return [r for r in self.advisers if matches(r.scope, job) and candidate.selected_by(r.pools)]

    def in_force(self, permit: Filter) -> bool:
        """Whether the burst policy lets anything burst now."""
        return permit.mode is not BurstMode.OFF and open_at(permit.window, self.at)

    def value_usd(self, job: JobView) -> float:
        """What meeting the job's deadline is worth, in whatever form it runs; 0 without one."""
        job = job.of or job
        if job.deadline_at is None:
            return 0.0
        if job.must:
            return MUST_USD
        if job.value_usd is not None:
            return job.value_usd
        price = self._price(PriceKind.MISS, job, DEFAULT_MISS_USD_GPU_H)
        return float(gpus_usd(price, job.priced_gpus or size(job), job.priced_run_s or job.run_s))

    def wait_usd_h(self, job: JobView) -> float:
        """What one hour of this job's waiting costs: its queue's prices, its size in form 0, its aged priority, and who waits for it."""
        return self.fresh_wait_usd_h(job) * math.exp2((self.aged_priority(job) - 50) / PRIORITY_DOUBLES_EVERY)

    def fresh_wait_usd_h(self, job: JobView) -> float:
        """The same of such a job that has just arrived with the middle priority: equal for all that are alike."""
        job = job.of or job
        per_gpu = self._price(PriceKind.WAIT, job, DEFAULT_WAIT_USD_GPU_H)
        price = per_gpu * (job.priced_gpus or size(job)) + self._price(PriceKind.WAIT_JOB, job, 0.0)
        return price * (INTERACTIVE_FACTOR if job.interactive else 1.0)

    def aged_priority(self, job: JobView) -> float:
        """The job's priority, grown by its waiting."""
        waited_h = max(0.0, self.at - job.submitted_at) / 3600.0
        return min(MAX_AGED, job.priority + AGING_POINTS_PER_H * waited_h)

    def standing(self, job: JobView) -> float:
        """What orders jobs: aged priority, and whether somebody sits before them."""
        return self.aged_priority(job) + (INTERACTIVE_POINTS if job.interactive else 0.0)

    def surcharge_usd_gpu_h(self, job: JobView, candidate: Candidate) -> float:
        """What policies add to the price of this place."""
        return sum(term.usd for term in self.surcharges(job, candidate))

    def surcharges(self, job: JobView, candidate: Candidate) -> list[PriceTerm]:
        """The terms that add to the price of this place now."""
        terms = (r for r in self.prices if r.kind is PriceKind.POOL)
        return [r for r in terms if matches(r.scope, job) and candidate.selected_by(r.pools)]

    def _price(self, kind: PriceKind, job: JobView, default: float) -> float:
        terms = [r for r in self.prices if r.kind is kind and matches(r.scope, job)]
        best = max(terms, key=lambda r: (_depth(r.scope, job.queue), r.usd, r.policy), default=None)
        return default if best is None else best.usd


def matches(scope: Scope, job: JobView) -> bool:
    """Whether the rule is about this job."""
    return in_scope(scope, queue=job.queue, owner=job.owner, labels=job.labels)


def capped(cap: CapRow, job: JobView) -> bool:
    """Whether the cap counts this job, where it is about the place."""
    return matches(cap.scope, job) and (cap.unit is not CapUnit.LICENSES or cap.license in job.licenses)


def borrowing_cap(row: GuaranteeRow) -> CapRow | None:
    """A limit on borrowing, as the cap that it is: the guarantee and what may be borrowed on top."""
    if row.borrowing_limit is None:
        return None
    owned = PoolSelector(markets=(Market.OWNED,), models=(row.model,) if row.model else ())
    limit, scope = float(row.gpus + row.borrowing_limit), Scope(queues=(row.queue,))
    return CapRow(policy=row.policy, unit=CapUnit.GPUS, limit=limit, scope=scope, pools=owned)
