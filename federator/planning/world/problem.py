"""The world of one decision: a problem's jobs in order, its places, who may run where, and what things are worth.

Everything here is derived once per decision and never changes. Identical jobs are one class (planning counts them, so an array
of a thousand costs as much as one job); eligibility is asked once per class and place.

**The order.** Jobs are looked at in this order, by greedy and by every forecast: (1) jobs whose queue is below its guarantee;
(2) priority, in bands of ten, where every hour of waiting adds a point, so that nothing waits for ever, and being interactive a
hundred; (3) the latest start that still meets the deadline, while one can be met; (4) queues' turns by their weights; (5) value
per GPU-hour; (6) arrival.
"""

import math
from collections.abc import Iterable
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from federator.model.jobs import Form, in_gpus
from federator.model.queues import under
from federator.model.rules import GuaranteeRow
from federator.model.snapshot import BusyView, JobView, Problem, Snapshot
from federator.planning.places.candidates import Candidate, of_offer, of_pools, size
from federator.planning.places.data import data_book
from federator.planning.places.host_sets import HostSet, host_set_of
from federator.planning.places.stocks import Stocks
from federator.planning.rules.caps import Caps
from federator.planning.rules.eligibility import Gates
from federator.planning.rules.feasibility import CLOSED, FILTERS, opens_in_time, reject
from federator.planning.rules.filters import FilterContext, Rejection
from federator.planning.rules.rulebook import RuleBook
from federator.planning.rules.shares import Amount, Due, Shortfall, by_queue, due_of, in_use, widest

BAND = 10
"""Points of priority within which the deadline, not the priority, decides."""

ClassKey = int
"""The number of a class in its world."""
LASTING = tuple(test for test in FILTERS if test.name != CLOSED)
"""Filters that say something of the job and not of the moment."""
_NOT_IN_CLASS = frozenset(
    {"id", "revision", "name", "submitted_at", "waits_since_at", "avoid_nodes", "behind_s", "of"}
)
_MAPPED = ("speed", "site_labels", "labels", "licenses")
_class_fields = attrgetter(
    *(name for name in JobView.__struct_fields__ if name not in {*_NOT_IN_CLASS, *_MAPPED})
)
_mapped_fields = attrgetter(*_MAPPED)


LATE, OPTION = 1_000, 10_000
"""Weights in `World.precedence`: more than a job has forms, and more than that."""


_at = tuple.__getitem__


class Places(tuple[Candidate, ...]):
    """The places of a world, by index.

    A **choice** is where a job runs and in which form, as one number: form × number of places + place. It is the place itself for all jobs that have
    one form only, and asked for a choice, this answers with its place. `World.as_form` answers with the job as it would run there.
    """

    __slots__ = ()

    def __getitem__(self, choice: int) -> Candidate:  # type: ignore[override]
        """The place of a choice."""
        try:
            return _at(self, choice)
        except IndexError:  # in a form
            return _at(self, choice % len(self))


class World:
    """One problem, cut for planning."""

    def __init__(self, problem: Problem) -> None:
        """Derive what every part of the planner asks for."""
        self.problem = problem
        self.snapshot: Snapshot = problem.snapshot
        self.now = self.snapshot.taken_at
        self.book = RuleBook(self.snapshot.rules, self.now)
        self.context = FilterContext(self.snapshot, self.book)
        self.data = data_book(self.snapshot)
        pools = sorted(of_pools(self.snapshot.pools, self.data), key=lambda c: c.key)
        offers = sorted((of_offer(view, self.data) for view in self.snapshot.offers), key=lambda c: c.key)
        self.places = Places((*pools, *offers))
        first: dict[tuple[object, ...], int] = {}
        fast = [(at.model, at.market, *_taken_back(at)) for at in self.places]
        near = [(*alike, at.site, at.region) for alike, at in zip(fast, self.places, strict=True)]
        self._as_fast_as = [
            [first.setdefault(alike, n) for n, alike in enumerate(each)] for each in (fast, near)
        ]
        """By place: the first one where a job of one form runs for as long: without inputs, and with some."""
        self._part_of = [2 if at.offer is not None else 1 if at.rented else 0 for at in self.places]
        """By place: owned, leased or offered."""
        self._forms: dict[tuple[str, int], JobView] = {}
        self._rented_for = {view.rented_for for view in self.snapshot.pools if view.rented_for}
        self._rejections: dict[tuple[ClassKey, int], Rejection | None] = {}
        self._rejections_if_open: dict[tuple[ClassKey, int], Rejection | None] = {}
        self._host_sets: dict[int, HostSet] = {}
        self._gates = Gates(self.places, self.context, FILTERS)
        self._home_may: dict[ClassKey, bool] = {}
        self._urgency: dict[ClassKey, tuple[float, float]] = {}
        """Of each class: the latest start, and value per GPU-hour."""
        self.numbers: object = None
        """The same world as `model_arrays.ModelArrays`, once somebody has asked for them."""
        self._open: dict[ClassKey, tuple[int, ...]] = {}
        self._split: dict[ClassKey, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {}
        self._classes: dict[tuple[object, ...], ClassKey] = {}
        self.keys: dict[str, ClassKey] = {job.id: self._key(job) for job in self.snapshot.jobs}
        self.jobs: tuple[JobView, ...] = tuple(sorted(self.snapshot.jobs, key=self._order))
        self.by_id: dict[str, JobView] = {job.id: job for job in self.jobs}

    @cached_property
    def alike(self) -> dict[ClassKey, list[JobView]]:
        """The jobs of each class, in order; the first of them say which class comes first."""
        found: dict[ClassKey, list[JobView]] = {}
        for job in self.jobs:
            found.setdefault(self.key(job), []).append(job)
        return found

    @cached_property
    def named(self) -> dict[str, int]:
        """The places by the keys that the snapshot has for them."""
        return {name: number for number, at in enumerate(self.places) for name in at.names}

    def meet(self, job: JobView) -> None:
        """Know the class of a job that is not of this world, too, without looking at it again."""
        if job.id not in self.keys:
            self.keys[job.id] = self._key(job)

    def key(self, job: JobView) -> ClassKey:
        """The class of a job."""
        known = self.keys.get(job.id)
        return known if known is not None else self._key(job)

    def place_of(self, choice: int) -> int:
        """The place of a choice, by index."""
        return choice % len(self.places)

    def form_of(self, choice: int) -> int:
        """The form of a choice, by its number."""
        return choice // max(1, len(self.places))

    def as_form(self, job: JobView, choice: int) -> JobView:
        """The job as it runs where and how the choice says; itself where it has one form only."""
        whole, form = job.of or job, self.form_of(choice)
        if not form:
            return whole
        known = self._forms.get((whole.id, form))
        if known is None or known.of is not whole:
            known = self._forms[whole.id, form] = whole.as_form(form)
        return known

    def precedence(self, job: JobView, choice: int) -> tuple[int, int]:
        """What comes before the price of a choice: the entry of an ordered list, then how narrow it is; and what being late there adds.

        Everybody starts as narrow as the deadline allows; what is left free after that widens those that have started. What is slower on no more
        GPUs is narrower.
        """
        whole, form = job.of or job, self.form_of(choice)
        if not whole.forms:
            return 0, 0
        option = whole.forms[form - 1].option if form and whole.ordered else 0
        narrower, if_late = _narrowness(whole, form)
        return option * OPTION + narrower, if_late

    def choices(self, job: JobView, place: int) -> list[int]:
        """The place with each of the job's forms."""
        place = self.place_of(place)
        return [place + form * len(self.places) for form in range(1 + len((job.of or job).forms))]

    def rejection(self, job: JobView, choice: int) -> Rejection | None:
        """Why the place is not for the job in this form; None when all filters pass."""
        index = (self.key(job), choice)
        if index not in self._rejections:
            passes = choice in self.open_to(job)
            self._rejections[index] = (
                None if passes else reject(self.as_form(job, choice), self.places[choice], self.context)
            )
        return self._rejections[index]

    def rejection_if_open(self, job: JobView, choice: int) -> Rejection | None:
        """The same for a place that takes nothing new for now, as if it did."""
        index = (self.key(job), choice)
        if index not in self._rejections_if_open:
            whole = self.as_form(job, choice)
            self._rejections_if_open[index] = reject(whole, self.places[choice], self.context, LASTING)
        return self._rejections_if_open[index]

    def open_to(self, job: JobView) -> tuple[int, ...]:
        """Choices that pass all filters: owned, rented and offered places, in whatever form."""
        key = self.key(job)
        if key not in self._open:
            whole = job.of or job
            found = self._gates.open_to(whole)
            for form in range(1, 1 + len(whole.forms)):
                first = form * len(self.places)
                found += tuple(first + place for place in self._gates.open_to(self.as_form(job, first)))
            self._open[key] = found
        return self._open[key]

    def furthest(self, job: JobView, places: Iterable[int]) -> tuple[int, ...]:
        """Of these places those that pass the most filters, for a job of one form; one that takes nothing new for now counts as if it did."""
        return self._gates.furthest(job, places, CLOSED)

    def home(self, job: JobView) -> tuple[int, ...]:
        """Owned places that pass all filters, as choices."""
        return self._parts(job)[0]

    def home_may_take(self, job: JobView) -> bool:
        """Whether some owned place passes the filters, or would if it took new work (by a calendar, in time), in whatever form: waiting for home may be worth it."""
        job = job.of or job
        key = self.key(job)
        if key not in self._home_may:
            self._home_may[key] = bool(self.home(job)) or any(
                self.rejection_if_open(job, place) is None or opens_in_time(job, at, self.context)
                for place, at in enumerate(self.places)
                if not at.rented
            )
        return self._home_may[key]

    def leases(self, job: JobView) -> tuple[int, ...]:
        """Places that are rented already, and pass, as choices."""
        return self._parts(job)[1]

    def offers(self, job: JobView) -> tuple[int, ...]:
        """Offers that pass, as choices."""
        return self._parts(job)[2]

    def _parts(self, job: JobView) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """What is open: owned, leased, offered."""
        key = self.key(job)
        if key not in self._split:
            kinds: tuple[list[int], list[int], list[int]] = ([], [], [])
            for place in self.open_to(job):
                kinds[self._part_of[self.place_of(place)]].append(place)
            self._split[key] = (tuple(kinds[0]), tuple(kinds[1]), tuple(kinds[2]))
        return self._split[key]

    def host_sets(self) -> list[HostSet]:
        """The hosts of all places as things stand, to do with as one likes."""
        return [self.host_set(place) for place in range(len(self.places))]

    def host_set(self, place: int) -> HostSet:
        """The hosts of a place as things stand, to do with as one likes."""
        place = self.place_of(place)
        known = self._host_sets.get(place)
        if known is None:
            known = self._host_sets[place] = host_set_of(self.places[place], self.now)
        return known.copy()

    @cached_property
    def stocks(self) -> Stocks:
        """What machines could be rented from as things stand, to be copied."""
        return Stocks(self.places)

    @cached_property
    def caps(self) -> Caps:
        """The caps as things stand, to be copied."""
        return Caps(self.snapshot, self.book.caps)

    @cached_property
    def guarantees(self) -> tuple[GuaranteeRow, ...]:
        """Guarantees of something, most demanding queue names first in order."""
        return tuple(
            sorted(
                (r for r in self.book.guarantees if r.gpus or r.cpus_milli or r.memory_mib),
                key=lambda r: (r.queue, r.model, r.policy),
            )
        )

    @cached_property
    def dues(self) -> dict[GuaranteeRow, Due]:
        """What each guaranteed queue is due."""
        return {row: due_of(row, self.snapshot.pools) for row in self.guarantees}

    @cached_property
    def shortfalls(self) -> dict[GuaranteeRow, Shortfall]:
        """In what a shortfall of each guarantee is counted, and how much of it there is now."""
        at_home = [(job.queue, self.as_form(job, self.home(job)[0])) for job in self.jobs if self.home(job)]
        return {
            row: due.shortfall(self.in_use(row), (view for queue, view in at_home if under(queue, row.queue)))
            for row, due in self.dues.items()
        }

    @cached_property
    def running(self) -> dict[str, BusyView]:
        """Placements of ours, by id, each with all its ranks, at whatever members they are."""
        whole: dict[str, BusyView] = {}
        for part in (busy for pool in self.snapshot.pools for busy in pool.busy if busy.placement):
            known = whole.get(part.placement or "")
            whole[part.placement or ""] = (
                part
                if known is None
                else replace(part, nodes=known.nodes + part.nodes, waits_as=known.waits_as or part.waits_as)
            )
        return whole

    @cached_property
    def running_amounts(self) -> dict[tuple[str, str], Amount]:
        """What our placements have of what is owned, by queue and GPU model."""
        return by_queue(self.snapshot.pools)

    def in_use(self, row: GuaranteeRow) -> Amount:
        """What a guaranteed queue uses now."""
        return in_use(row, self.running_amounts)

    @cached_property
    def owed(self) -> frozenset[str]:
        """Jobs that their queue's guarantee covers in some form, in the widest such, taken in the order of priority and arrival until it is full."""
        covered: set[str] = set()
        for row in self.guarantees:
            used, due = self.in_use(row), self.dues[row].amount
            mine = (job for job in self.snapshot.jobs if under(job.queue, row.queue))
            for job in sorted(mine, key=lambda j: (-j.priority, j.submitted_at, j.id)):
                then = widest(row, job, used, due)
                if then is not None:
                    used = then
                    covered.add(job.id)
        return frozenset(covered)

    @cached_property
    def share(self) -> dict[str, float]:
        """Each job's turn by the weights of queues: GPUs that its queue has when it is served, per unit of weight.

        Of a queue whose past use counts, that is what it has had of late. Empty while no queue has a weight or a past, so that arrival decides.
        """
        weights = {row.queue: row.weight for row in self.book.guarantees}
        recent = self.snapshot.recent_gpus
        if not recent and all(weight == 1.0 for weight in weights.values()):
            return {}
        used: dict[str, float] = {}
        now = [(queue, has.gpus) for (queue, _), has in self.running_amounts.items() if queue not in recent]
        for queue, gpus in (*now, *recent.items()):
            head = weighted(queue, weights)
            used[head] = used.get(head, 0.0) + gpus
        turns = {}
        for job in sorted(self.snapshot.jobs, key=lambda j: (-j.priority, j.submitted_at, j.id)):
            head = weighted(job.queue, weights)
            used[head] = used.get(head, 0.0) + size(job)
            turns[job.id] = used[head] / weights.get(head, 1.0)
        return turns

    def fastest_s(self, job: JobView, places: Iterable[int]) -> float | None:
        """The shortest run time over some choices."""
        if (job.of or job).forms:
            return min((self.places[p].run_s(self.as_form(job, p)) for p in places), default=None)
        alike, of = self._as_fast_as[bool(job.inputs)], partial(_at, self.places)
        return min((of(place).run_s(job) for place in {alike[place] for place in places}), default=None)

    def _key(self, job: JobView) -> ClassKey:
        own = job.id if job.id in self._rented_for else ""
        mapped = tuple(tuple(sorted(each.items())) if each else () for each in _mapped_fields(job))
        return self._classes.setdefault((own, mapped, _class_fields(job)), len(self._classes))

    def _order(self, job: JobView) -> tuple[Any, ...]:
        key = self.keys[job.id]
        if key not in self._urgency:
            density = self.book.value_usd(job) / max(1e-9, size(job) * job.run_s)
            self._urgency[key] = self._latest_start(job), density
        latest, density = self._urgency[key]
        owed, band = job.id in self.owed, math.floor(self.book.standing(job) / BAND)
        turn = self.share.get(job.id, 0.0)
        return (not owed, -band, latest, turn, -density, job.submitted_at, job.id)

    def _latest_start(self, job: JobView) -> float:
        """That still meets the deadline; infinite where there is none, or none that does."""
        if job.start_by_at is not None:
            return job.start_by_at
        if job.deadline_at is None:
            return math.inf
        start = job.deadline_at - (self.fastest_s(job, self.open_to(job)) or job.run_s)
        return start if start >= self.now else math.inf


def _taken_back(at: Candidate) -> tuple[float, ...]:
    """What of a place says how much work is repeated there, where its machines are taken back: how often, and how many of them a gang takes."""
    return (at.interruptions_h, at.gpus, at.cpus_milli, at.memory_mib) if at.interruptions_h else ()


def _narrowness(whole: JobView, form: int) -> tuple[int, int]:
    """How many forms are narrower, and what being late adds."""
    widths = [(whole.gpus_total, 1.0), *((_gpus(other), other.throughput) for other in whole.forms)]
    gpus, rate = widths[form]
    rates = [throughput for _, throughput in widths]
    narrower = sum(less <= gpus and slower < rate for less, slower in widths)
    return narrower, LATE if min(rates) < max(rates) else 0


def _gpus(form: Form) -> float:
    gpus = form.resources.gpus
    return in_gpus(form.nodes * gpus.each, shared=bool(gpus.share_milli))


def weighted(queue: str, weights: dict[str, float]) -> str:
    """The nearest queue above (or the queue itself) that has a weight; else its top."""
    named = [path for path in weights if under(queue, path)]
    return max(named, key=len, default=queue.split("/", 1)[0])
