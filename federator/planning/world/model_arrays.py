"""The ways in which jobs could run, as numbers: one decision's world in the arrays that the kernels read.

A *way* is one manner of running a class of identical jobs: so many ranks of such a size at one place, for so long, at such a price. Made once
per world, and shared by all schedules in it. What ranks, times and prices mean is said by `candidates`, `prices` and `host_sets`; a property test
holds them and these arrays together.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from federator.model.queues import under
from federator.model.rules import CapUnit, PriceKind
from federator.model.snapshot import BusyView, JobView
from federator.planning.kernels import tables as t
from federator.planning.kernels.start_cost import gpus_usd, machines_usd
from federator.planning.kernels.tables import Records
from federator.planning.places.candidates import LEAST_RUN_S, Candidate, machines, size
from federator.planning.places.host_sets import RANKS_PER_WORK
from federator.planning.places.interruption_rate import rework
from federator.planning.places.stocks import Stocks
from federator.planning.rules.calendars import closure
from federator.planning.rules.caps import additional_worst_usd, busy_use
from federator.planning.rules.permits import only_deadlines
from federator.planning.rules.rulebook import capped
from federator.planning.world.chances import spread_of
from federator.planning.world.free_hours import Floats, Ints
from federator.planning.world.prices import doubt_usd, longer_s
from federator.planning.world.problem import OPTION, World

UNITS = {
    CapUnit.GPUS: t.GPUS,
    CapUnit.JOBS: t.JOBS,
    CapUnit.LICENSES: t.JOBS,
    CapUnit.USD: t.USD,
    CapUnit.INSTANCES: t.INSTANCES,
    CapUnit.USD_PER_H: t.USD_PER_H,
}


def numbers_of(world: World) -> "ModelArrays":
    """A world's arrays; they are made once."""
    if not isinstance(world.numbers, ModelArrays):
        world.numbers = ModelArrays(world)
    return world.numbers


class ModelArrays:
    """A world in arrays, and how to find one's way in them. Schedules work on copies of what they change."""

    def __init__(self, world: World) -> None:
        """Make all arrays."""
        self.world = world
        self.index = {job.id: number for number, job in enumerate(world.jobs)}
        """Where a job stands in the published order."""
        self._class_number = {key: number for number, key in enumerate(world.alike)}
        self.klass = [self._class_number[world.key(job)] for job in world.jobs]
        """Of each job."""
        self.heads = [members[0] for members in world.alike.values()]
        """The first job of each class."""
        self.pairs: list[tuple[int, int, float]] = []
        self.places, self.hosts, self.releases, self.given, self.backs = self._capacity()
        self.ways, self.classes = self._ways()
        self.jobs = self._jobs()
        self.rows = self._rows()
        self.promises = self._promises()
        self._way_of = np.full((len(self.heads), len(world.places) * (1 + self._most_forms())), -1)
        """By class and choice."""
        self._way_of[self.class_of_way, self.ways["choice"]] = np.arange(len(self.ways))
        self.pair_records = np.array(self.pairs, dtype=t.PAIR)
        self.most_ranks = int(self.ways["nodes"].max(initial=1))
        self.all_ranks = sum(_most_ranks(job) for job in world.jobs)
        self.again = sum(_most_ranks(job) for job in world.jobs if job.forms)
        """Ranks of jobs that may start a second time at their first moment: wider."""

    @cached_property
    def class_of_way(self) -> Ints:
        """The class of each way."""
        return np.repeat(np.arange(len(self.classes)), self.classes["last_way"] - self.classes["first_way"])

    def way(self, job: int, place: int) -> int:
        """The way of a job (by its index) by a choice that is open to it; -1 where it is not."""
        known = self._way_of[self.klass[job]]
        return int(known[place]) if place < len(known) else -1

    def rented_ways(self, job: JobView) -> Records:
        """Those by which a job could run on what is rented or offered: leases, then offers."""
        klass = self._class_number.get(self.world.key(job))
        if klass is None:
            return self.ways_by(job, (*self.world.leases(job), *self.world.offers(job)))
        first, last = self.classes["first_way"][klass], self.classes["last_way"][klass]
        return self.ways[first + len(self.world.home(job)) : last]

    def ways_by(self, job: JobView, choices: Sequence[int]) -> Records:
        """The ways of any job by these choices, open or not."""
        return _Options(self.world, [job], np.zeros(len(choices), dtype=np.int64), _ints(choices)).ways()

    def _most_forms(self) -> int:
        """Of any job, beside the first."""
        return max((len(job.forms) for job in self.heads), default=0)

    def flags(self, usable: t.Flags) -> tuple[t.Flags, dict[str, int]]:
        """What is only yes or no, in one array, and where each part begins; `usable` is of the rentals."""
        world = self.world
        selects = [[place.selected_by(row.pools) for place in world.places] for row in world.caps.rows]
        at = [
            [not at.rented and row.model in ("", at.model) for at in world.places] for row in world.guarantees
        ]
        to = [[under(job.queue, row.queue) for job in self.heads] for row in world.guarantees]
        parts = {"selects": selects, "promised_at": at, "promised_to": to}
        columns = max(len(world.places), len(self.heads), usable.shape[1], 1)
        rows = sum(map(len, parts.values()))
        flags = np.zeros((rows + len(world.jobs) + 2 * len(self.heads), columns), dtype=np.uint8)
        begins, row = {}, 0
        for name, part in parts.items():
            begins[name] = row
            for values in part:
                flags[row, : len(values)] = values
                row += 1
        begins["usable"], begins["open_at"] = row, row + len(world.jobs)
        begins["open_ways"] = begins["open_at"] + len(self.heads)
        flags[row : row + len(world.jobs), : usable.shape[1]] = usable
        return flags, begins

    # -- capacity -----------------------------------------------------------------------------------------------------

    def _capacity(self) -> tuple[Records, Records, Records, Records, Ints]:
        """The places with their hosts and releases, as things stand."""
        world = self.world
        host_sets = [world.host_set(place) for place in range(len(world.places))]
        places = _places(world.places)
        _count_stocks(places, world.stocks)
        hosts = _table(t.HOST, sum(len(host_set.hosts) for host_set in host_sets))
        free = _ints([host for host_set in host_sets for host in host_set.hosts]).reshape(-1, 3)
        hosts["gpus"], hosts["cpus"], hosts["memory"] = free.T
        hosts["member"] = [member for host_set in host_sets for member in host_set.members]
        begins = _firsts([len(host_set.hosts) for host_set in host_sets])
        places["first_host"], places["hosts"] = begins[:-1], np.diff(begins)
        places["members"] = [max(host_set.members, default=0) + 1 for host_set in host_sets]
        before = np.concatenate([np.zeros((1, 3), dtype=np.int64), np.cumsum(free, axis=0)])[begins]
        places["free_gpus"], places["free_cpus"], places["free_memory"] = np.diff(before, axis=0).T
        rows: list[tuple[float, ...]] = []
        given: list[int] = []
        backs = [0]
        for number, host_set in enumerate(host_sets):
            begin = len(rows)
            for release in host_set.releases:
                kind = t.NOTHING if release.payload is None else t.WORK
                following = len(rows) + 1 if len(rows) - begin + 1 < len(host_set.releases) else -1
                first = len(given)
                given += [int(places["first_host"][number]) + host for host in release.hosts]
                of = kind, len(rows), first, len(release.hosts), following, release.overdue
                rows.append((*release.need, *of, release.at))
                self._give_back(number, release.number, release.payload)
                backs.append(len(self.pairs))
            if host_set.releases:
                places["soonest"][number], places["latest"][number] = begin, len(rows) - 1
        hosts_given = _table(t.GIVEN, len(given))
        hosts_given["host"] = given
        return places, hosts, np.array(rows, dtype=t.RELEASE), hosts_given, _ints(backs)

    def _give_back(self, place: int, number: int, busy: object) -> None:
        """What the end of running work gives back to caps: with its first rank, all of it."""
        pool = self.world.places[place].standing
        if pool is None or not isinstance(busy, BusyView) or number % RANKS_PER_WORK:
            return
        for index, row in enumerate(self.world.caps.rows):
            amount = busy_use(row, busy, pool) if UNITS[row.unit] < t.USD else 0.0
            if amount:
                self.pairs.append((index, 0, amount))

    # -- work ---------------------------------------------------------------------------------------------------------

    def _ways(self) -> tuple[Records, Records]:
        world = self.world
        classes = _table(t.CLASS, len(self.heads))
        open_to = [(*world.home(job), *world.leases(job), *world.offers(job)) for job in self.heads]
        first = _firsts([len(choices) for choices in open_to])
        classes["first_way"], classes["last_way"] = first[:-1], first[1:]
        for klass, job in enumerate(self.heads):
            rows = [
                (number, 0, row.counts(1.0, job.licenses))
                for number, row in enumerate(world.caps.rows)
                if capped(row, job)
            ]
            classes["first_row"][klass], classes["last_row"][klass] = (
                len(self.pairs),
                len(self.pairs) + len(rows),
            )
            self.pairs += rows
        class_of = np.repeat(np.arange(len(self.heads)), np.diff(first))
        ways = _Options(world, self.heads, class_of, _ints(chain.from_iterable(open_to))).ways()
        classes["gpus"] = [job.gpus_total for job in self.heads]
        classes["frugal"] = [only_deadlines(world.book, job) for job in self.heads]
        classes["forms"] = [bool(job.forms) for job in self.heads]
        classes["not_before"] = [job.not_before_at or 0.0 for job in self.heads]
        spreads = [spread_of(job) for job in self.heads]
        classes["typical"] = [typical for typical, _ in spreads]
        classes["steep"] = [steep for _, steep in spreads]
        classes["deadline"] = [np.inf if job.deadline_at is None else job.deadline_at for job in self.heads]
        classes["value"] = [world.book.value_usd(job) for job in self.heads]
        classes["size"] = [size(job) for job in self.heads]
        for name in ("stuck_by", "stuck_at", "asks"):
            classes[name] = -1
        return ways, classes

    def _jobs(self) -> Records:
        world = self.world
        jobs = _table(t.JOBS_RECORD, len(world.jobs))
        jobs["klass"] = self.klass
        jobs["wait_usd_h"] = [world.book.wait_usd_h(job) for job in world.jobs]
        jobs["patient_until"] = [job.submitted_at + job.patience_s for job in world.jobs]
        jobs["behind_s"] = [job.behind_s for job in world.jobs]
        for name in ("forced", "way", "later"):
            jobs[name] = -1
        jobs["exact"] = 1
        jobs["turn"] = jobs["rank"] = np.arange(len(jobs))
        for number, job in enumerate(world.jobs):
            if job.avoid_nodes:
                jobs["first_avoided"][number] = len(self.pairs)
                for place in dict.fromkeys(map(world.place_of, world.open_to(job))):
                    members = sorted(world.places[place].members_of(job.avoid_nodes))
                    self.pairs += [(place, member, 0.0) for member in members]
                jobs["last_avoided"][number] = len(self.pairs)
        return jobs

    def _rows(self) -> Records:
        rows = _table(t.ROW, len(self.world.caps.rows))
        rows["unit"] = [UNITS[row.unit] for row in self.world.caps.rows]
        rows["limit"] = [row.limit for row in self.world.caps.rows]
        rows["used"] = self.world.caps.used
        return rows

    def _promises(self) -> Records:
        promises = _table(t.PROMISE, len(self.world.guarantees))
        for name in ("kind", "each", "due", "used"):
            promises[name] = [getattr(self.world.shortfalls[row], name) for row in self.world.guarantees]
        promises["usd"] = [row.shortfall_usd_gpu_h for row in self.world.guarantees]
        return promises


class _Options:
    """All classes in all their choices at once: how long jobs run there (as `Candidate.run_s` has it) and what it costs (as `prices.cost`)."""

    def __init__(self, world: World, heads: Sequence[JobView], klass: Ints, choice: Ints) -> None:
        """`heads`: the first job of each class; `klass` and `choice` of each way."""
        self.world, self.choice = world, choice
        count = max(1, len(world.places))
        self.place, form = choice % count, choice // count
        asked, self.view = np.unique(np.column_stack((klass, form)), axis=0, return_inverse=True)
        self.views = [world.as_form(heads[k], number * count) for k, number in asked.tolist()]
        """Each class in each of its forms."""
        places = tuple(world.places)
        self.pairs = [
            (self.views[view], places[place])
            for view, place in zip(self.view.tolist(), self.place.tolist(), strict=True)
        ]

    def ways(self) -> Records:
        """One record each."""
        ways, places, of = _table(t.WAY, len(self.choice)), self.world.places, self.place
        if not len(ways):
            return ways
        ways["place"], ways["choice"] = of, self.choice
        sizes = {"gpus": "gpus", "nodes": "nodes", "cpus": "cpus_milli", "memory": "memory_mib"}
        for name, field in (sizes | {"apart": "apart", "gpus_total": "gpus_total"}).items():
            ways[name] = self._of_views(getattr(view, field) for view in self.views)
        ways["left_over"] = _ints(at.gpus for at in places)[of] - ways["gpus"]
        ways["closes"] = ways["opens"] = np.inf
        if self.world.book.openings:
            shut = [closure(job, at, self.world.book) for job, at in self.pairs]
            ways["closes"], ways["opens"] = zip(*shut, strict=True)
        if any(row.unit is CapUnit.USD for row in self.world.caps.rows):
            ways["worst_usd"] = [additional_worst_usd(job, at, self.world.now) for job, at in self.pairs]
        self._precede(ways)
        self._price(ways)
        return ways

    def _of_views(self, values: Iterable[float]) -> Floats:
        """What each view has, by way."""
        found: Floats = np.array(list(values), dtype=np.float64)[self.view]
        return found

    def _precede(self, ways: Records) -> None:
        """What jobs of several forms prefer."""
        several = self._of_views(bool((view.of or view).forms) for view in self.views)
        for index in np.flatnonzero(several).tolist():
            (view, at), way = self.pairs[index], ways[index]
            way["longer_s"] = longer_s(view, at)
            way["first"], way["if_late"] = self.world.precedence(view, int(self.choice[index]))
            way["option"] = way["first"] // OPTION

    def _price(self, ways: Records) -> None:
        """Run times and prices, by what of a place decides them."""
        world, places, of = self.world, self.world.places, self.place
        names = sorted({at.model for at in places})
        speeds = np.array(
            [[max(view.speed.get(name, 1.0) if name else 1.0, 1e-6) for name in names] for view in self.views]
        )
        speed = speeds[self.view, _ints(names.index(at.model) for at in places)[of]]
        moved_s = np.zeros(len(ways))
        for index in np.flatnonzero(self._of_views(bool(view.inputs) for view in self.views)).tolist():
            job, at = self.pairs[index]
            moved = at.transfer(job)
            moved_s[index], ways["egress_usd"][index] = moved.seconds, moved.usd
        ways["machines"] = self._machines(self.views)
        run_s = self._of_views(view.run_s for view in self.views) / speed
        longer = self._rework(self.views, ways["machines"], run_s)
        ways["run_s"] = np.maximum(LEAST_RUN_S, run_s * longer) + moved_s
        wholes = [view.of or view for view in self.views]
        charged_s = self._of_views(whole.run_s for whole in wholes) / speed
        longer = self._rework(wholes, self._machines(wholes), charged_s)
        charged_s = np.maximum(LEAST_RUN_S, charged_s * longer) + moved_s
        usd_gpu_h = np.array([0.0 if at.rented else at.price_usd_gpu_h for at in places])[of]
        run_usd = gpus_usd(usd_gpu_h, self._of_views(whole.gpus_total for whole in wholes), charged_s)
        if any(term.kind is PriceKind.POOL for term in world.book.prices):
            added = np.array([world.book.surcharge_usd_gpu_h(job, at) for job, at in self.pairs])
            run_usd = run_usd + gpus_usd(added, self._of_views(size(whole) for whole in wholes), charged_s)
        if any(at.doubt for at in places):
            run_usd = run_usd + [doubt_usd(world.book, job, at) for job, at in self.pairs]
        ways["run_usd"] = run_usd
        self._bill(ways)

    def _rework(self, views: Sequence[JobView], machines: Ints, run_s: Floats) -> Floats:
        """By way: how much longer these, which take so many machines for so long, run where machines are taken back (`Candidate.rework`)."""
        longer = np.ones(len(self.place))
        rates = np.array([at.interruptions_h for at in self.world.places])[self.place]
        taken = np.flatnonzero(rates)
        saves_s = self._of_views(np.inf if view.repeats_s is None else view.repeats_s for view in views)
        expected = rates * machines * np.minimum(run_s, saves_s) / 3600.0
        each, back = np.unique(expected[taken], return_inverse=True)
        longer[taken] = np.array([rework(x) for x in each.tolist()])[back]
        return longer

    def _machines(self, views: Sequence[JobView]) -> Ints:
        """By way: how many machines these take of what is rented; 1 of what exists."""
        found = np.ones(len(self.place), dtype=np.int64)
        offers = np.array([at.offer is not None for at in self.world.places], dtype=bool)
        sizes = [(v.nodes, v.gpus, v.cpus_milli, v.memory_mib, v.apart) for v in views]
        known: dict[tuple[object, int], int] = {}
        rented = np.flatnonzero(offers[self.place])
        for index, view, place in zip(
            rented.tolist(), self.view[rented].tolist(), self.place[rented].tolist(), strict=True
        ):
            asked = sizes[view], place
            if asked not in known:
                known[asked] = machines(views[view], self.world.places[place])
            found[index] = known[asked]
        return found

    def _bill(self, ways: Records) -> None:
        """The rent of the machines that offers take."""
        places, of = self.world.places, self.place
        offers = [at.offer.offer if at.offer else None for at in places]
        delay_s, teardown_s, least_s = (
            np.array([getattr(offer, name) if offer else 0.0 for offer in offers])[of]
            for name in ("delay_s", "teardown_s", "minimum_billing_s")
        )
        paid_s = np.maximum(least_s, delay_s + ways["run_s"] + teardown_s)
        usd_h = np.array([at.instance_usd_h for at in places])[of]
        ways["whole_usd"] = machines_usd(usd_h, ways["machines"], paid_s)


def _most_ranks(job: JobView) -> int:
    """Of whatever form."""
    return max(job.nodes, *(form.nodes for form in job.forms)) if job.forms else job.nodes


def _places(candidates: Sequence[Candidate]) -> Records:
    places = _table(t.PLACE, len(candidates))
    places["kind"] = [t.OFFER if c.offer else t.LEASE if c.rented else t.OWNED for c in candidates]
    places["delay_s"] = [c.offer.offer.delay_s if c.offer else 0.0 for c in candidates]
    places["usd_h"] = [c.instance_usd_h for c in candidates]
    places["gpus"] = [c.gpus for c in candidates]
    places["cpus"] = [c.cpus_milli for c in candidates]
    places["memory"] = [c.memory_mib for c in candidates]
    places["all_gpus"] = [c.gpus_in_all for c in candidates]
    places["soonest"], places["latest"] = -1, -1
    return places


def _count_stocks(places: Records, stocks: Stocks) -> None:
    """Of sources that several offers draw on, the first of these keeps count."""
    places["stock"] = -1
    for place, draws in enumerate(stocks.draws):
        for source, each in draws:
            (_, first, stock), left = stocks.sources[source], stocks.left[source]
            if stock is None:
                places["counter"][place], places["left"][first] = first, left
            else:
                places["stock"][place], places["each"][place], places["stock_left"][first] = first, each, left


def _table(kind: np.dtype[Any], length: int) -> Records:
    return np.zeros(length, dtype=kind)


def _ints(values: Iterable[object]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def _firsts(counts: Sequence[int]) -> Ints:
    """Where lists of these lengths begin when they lie one after the other."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(_ints(counts), dtype=np.int64)])
