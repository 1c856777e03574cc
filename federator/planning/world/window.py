"""Which of very many waiting jobs one decision looks at, and what it has to know of the others.

A schedule costs about jobs × classes evaluations, so beyond `EVALUATIONS` of them a decision sees a window of the line. Whatever could start
now has to be in it, and no job may starve for being outside. So it is made of

* the first in the published order, but of one class no more than could start now and a few: those behind them are alike;
* the first of each queue, so that no queue's backlog hides another queue's work from rentals, guarantees and reasons;
* those whose deadlines press most, whatever their priority: renting in time is decided for them;
* of what fits the hosts that are free now, each queue's first in turn: that is what backfills.

Jobs in the window that others outside are before in the order are told for how long that work would keep them (`behind_s`): forecasts
add it, so that a deadline behind ten thousand jobs is not taken for safe. Everything is arithmetic on columns, one entry per job:
the cost is some tens of milliseconds for 100,000 jobs, most of it sorting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from federator.model.capacity import Market
from federator.model.jobs import WHOLE_MILLI, in_gpus
from federator.model.queues import under
from federator.model.rules import QueueTerms, Rule
from federator.model.snapshot import PoolView
from federator.planning.kernels.tables import MOST_ALIKE
from federator.planning.places.candidates import CPU_ONLY_SIZE
from federator.planning.rules.rulebook import AGING_POINTS_PER_H, INTERACTIVE_POINTS, MAX_AGED, RuleBook
from federator.planning.rules.shares import SLACK, by_queue, due_of, in_use
from federator.planning.world.free_hours import Bools, Floats, Ints
from federator.planning.world.line import Eligible, Line
from federator.planning.world.outlook import NOTHING, OutlookArrays, Plan, RestOfLine
from federator.planning.world.problem import BAND, weighted

EVALUATIONS = 130_000
"""Jobs × classes of a window: a turn decides on so many in half a second, most of it the linear stage. A smaller window is quicker and worse: of
1,000 jobs at 20 sites the half leaves a gap of 3.8 % where all leave 0.8."""
FEWEST_EVALUATIONS = 5_000
"""Down to so many, windows shrink while the solver does not get done with them in time."""
MOST_JOBS = 2_000
"""Jobs of a window, however few their classes."""
MARGIN = MOST_ALIKE
"""Of one class, so many more than could start now: the next turn has them at hand, and forecasts have an idea of what follows."""
PLANNED = 2
"""Where a plan of the whole line is known, a window may be so many times as large, if that plan starts so much at once."""
FIRST_SHARE, NEW_SHARE = 0.1, 0.1
"""Then the first in the order have this share of the limits to themselves, and what the plan does not know yet has that share for each reason to see it."""
SOON_S = 0.0
"""What that plan starts so soon (s) is chosen by it."""
QUEUE_HEADS = 4
"""Of each queue, so many are in the window whatever else is, as far as there is room."""
MOST_GROUPS = 16
"""Sets of pools that jobs may use, up to which work outside the window is told apart by them."""


@dataclass(frozen=True)
class Window:
    """Entries of the line that a decision is to see, in the line's own order; and of every entry, how it stands."""

    chosen: Ints
    behind_s: Floats
    """For how long work outside the window keeps it, by an estimate."""
    ahead: Ints
    """How many stand before it in the published order, in the window or not."""
    told: RestOfLine = NOTHING
    """Where a plan of the whole line is known."""


def choose(
    line: Line,
    pools: Sequence[PoolView],
    rules: Sequence[Rule],
    now: float,
    evaluations: int | None = None,
    recent_gpus: Mapping[str, float] | None = None,
    known: OutlookArrays | None = None,
) -> Window:
    """The window of the line, of so many evaluations (None: as many as a window may cost); all of the line where it is small.

    `recent_gpus`: as a snapshot has it; `known`: what a plan of the whole line expects, where there is one.
    """
    if is_small(line, evaluations):
        return Window(np.arange(len(line)), np.zeros(len(line)), np.arange(len(line)))
    return _Choice(line, pools, rules, now, recent_gpus or {}).window(evaluations or EVALUATIONS, known)


def is_small(line: Line, evaluations: int | None = None) -> bool:
    """Whether the whole line is within the limits of a window."""
    return len(line) <= MOST_JOBS and len(line) * len(np.unique(line.klass)) <= (evaluations or EVALUATIONS)


class _Choice:
    """One choice, made on the line's columns put into the published order."""

    def __init__(
        self,
        line: Line,
        pools: Sequence[PoolView],
        rules: Sequence[Rule],
        now: float,
        recent_gpus: Mapping[str, float],
    ) -> None:
        self.pools, self.book, self.now, self.recent = pools, RuleBook(rules, now), now, recent_gpus
        self.line, self.table, self.running = line, line.table, by_queue(pools)
        gpus, nodes = self._asks(self.table)[:, 0], self.table[:, 2]
        self.size = np.where(gpus > 0, gpus, nodes * CPU_ONLY_SIZE)
        interactive = {rule.queue for rule in rules if isinstance(rule, QueueTerms) and rule.interactive}
        self.extra = INTERACTIVE_POINTS * np.isin(line.queues, list(interactive))[self.table[:, 0]]
        self.latest = np.where(line.deadline_at - line.run_s >= now, line.deadline_at - line.run_s, np.inf)
        self.latest = np.minimum(self.latest, self._starts_by(rules))
        self.order = self._order()
        self.kind = line.kind[self.order]
        self.words, self.klass = np.unique(line.klass[self.order], return_inverse=True)
        self.nth = _nth(self.klass)
        self.startable = np.where(line.ready_at[self.order] > now, 0, self._startable()[self.kind])

    def _starts_by(self, rules: Sequence[Rule]) -> Floats:
        """By when the queues of the jobs want them to start; infinite where they do not say."""
        most_s = {rule.queue: rule.max_wait_s for rule in rules if isinstance(rule, QueueTerms)}
        waits = np.array([most_s.get(queue) or np.inf for queue in self.line.queues])
        wait_s = waits[self.table[:, 0]][self.line.kind] if len(waits) else np.zeros(0)
        said = np.isfinite(wait_s)
        by: Floats = np.full(len(wait_s), np.inf)
        submitted_at, wait_s = self.line.submitted_at[said], wait_s[said]
        by[said] = submitted_at + wait_s * np.maximum(1.0, np.floor((self.now - submitted_at) / wait_s) + 1.0)
        return by

    def window(self, evaluations: int, known: OutlookArrays | None = None) -> Window:
        """Its parts, within the limits."""
        first = np.flatnonzero(self.nth < self.startable + MARGIN)
        plan = None if known is None else self._plan(known)
        if plan is None:
            budget = _Limits(self.klass, evaluations, MOST_JOBS)
            budget.add(first, share=0.4)
            for part in (self._heads(), self._pressing(), self._backfill()):
                budget.add(part, share=0.2)
            budget.add(first, share=1.0)
        else:
            budget = _Limits(self.klass, PLANNED * evaluations, MOST_JOBS)
            budget.add(np.arange(min(1, len(self.line))), share=1.0)
            budget.add(first, share=FIRST_SHARE)
            budget.add(self._soonest(plan), share=1.0)
            new = ~plan.known[self.klass]
            for part in (self._heads(), self._pressing(), self._backfill()):
                budget.add(part[new[part]], share=NEW_SHARE)
            # Where the plan's starts of now have been made, a window is as without a plan.
            budget.within(evaluations)
            budget.add(self._backfill(), share=0.2)
            budget.add(first, share=1.0)
        ahead, behind_s = np.empty(len(self.line), dtype=np.int64), np.empty(len(self.line))
        ahead[self.order] = np.arange(len(self.line))
        behind_s[self.order] = self._behind(budget.inside)
        inside = np.flatnonzero(budget.inside)
        told = NOTHING if plan is None else plan.told(self.klass[inside], self.order[inside])
        return Window(np.sort(self.order[inside]), behind_s, ahead, told)

    def _asks(self, rows: Ints) -> Floats:
        """GPUs (parts as parts), milli-cores and MiB of all nodes, of rows as `Kinds` has them."""
        parts = np.array([bool(each.shared) for each in self.line.eligibles], dtype=bool)[rows[:, 1]]
        of_all = rows[:, 2:3] * rows[:, 3:]
        return np.column_stack((of_all[:, 0] / np.where(parts, WHOLE_MILLI, 1), of_all[:, 1:]))

    # -- the order ----------------------------------------------------------------------------------------------------

    def _order(self) -> Ints:
        """The published order (see `problem`), but for its last part: value per GPU-hour."""
        line = self.line
        waited_h = np.maximum(0.0, self.now - line.submitted_at) / 3600.0
        aged = np.minimum(MAX_AGED, line.priority + AGING_POINTS_PER_H * waited_h)
        band = np.floor((aged + self.extra[line.kind]) / BAND)
        keys = [line.submitted_at, self._turns(), self.latest, -band, ~self._owed()]
        return np.lexsort([key for key in keys if np.any(key != key[0])] or keys[:1])

    def _owed(self) -> Bools:
        """Jobs that their queue's guarantee covers in some form, in the widest such, by priority and arrival until it is full."""
        line, owed = self.line, np.zeros(len(self.line), dtype=bool)
        if not self.book.guarantees:
            return owed
        asks, in_turn = self._asks(line.forms), np.lexsort((line.submitted_at, -line.priority))
        by_size = np.lexsort((*asks.T[::-1], line.forms[:, 0]))
        forms, asks = line.forms[by_size], asks[by_size]
        for row in self.book.guarantees:
            due, used = due_of(row, self.pools).amount, in_use(row, self.running)
            free = np.array(due) * (1.0 + SLACK) - np.array(used)
            queues = np.array([under(queue, row.queue) for queue in line.queues])
            models = np.array([not row.model or row.model in each.models for each in line.eligibles])
            covered = queues[self.table[forms[:, 0], 0]] & models[forms[:, 1]]
            mine = in_turn
            while len(mine):
                widest = np.full(len(self.table), -1)
                fits = np.flatnonzero(covered & (asks <= free).all(axis=1))
                widest[forms[fits, 0]] = fits  # of those of one kind the last
                mine = mine[widest[line.kind[mine]] >= 0]
                # As many as fit in a row; whoever is next is too large in this form, and all that are as wide with it.
                wanted = asks[widest[line.kind[mine]]]
                taken = mine[(np.cumsum(wanted, axis=0) <= free).all(axis=1)]
                owed[taken] = True
                free -= wanted[: len(taken)].sum(axis=0)
                mine = mine[len(taken) :]
        return owed

    def _turns(self) -> Floats:
        """Queues' turns by their weights and their past; nothing while all weigh the same and nobody's past counts."""
        line, turns = self.line, np.zeros(len(self.line))
        weights = {row.queue: row.weight for row in self.book.guarantees}
        if not self.recent and all(weight == 1.0 for weight in weights.values()):
            return turns
        heads = [weighted(queue, weights) for queue in line.queues]
        by_arrival = np.lexsort((line.submitted_at, -line.priority))
        queue, sizes = self.table[line.kind, 0], self.size[line.kind]
        for head in dict.fromkeys(heads):
            of_head = np.array([each == head for each in heads])
            mine = by_arrival[of_head[queue[by_arrival]]]
            recent = sum(gpus for name, gpus in self.recent.items() if weighted(name, weights) == head)
            had = recent + self._in_use(head)
            turns[mine] = (had + np.cumsum(sizes[mine])) / weights.get(head, 1.0)
        return turns

    def _in_use(self, head: str) -> float:
        """Owned GPUs that placements of a queue, or below it, have; without those of queues whose past counts."""
        mine = ((queue, has) for (queue, _), has in self.running.items() if under(queue, head))
        return sum(has.gpus for queue, has in mine if queue not in self.recent)

    # -- the parts, as places in the order ----------------------------------------------------------------------------

    def _plan(self, known: OutlookArrays) -> Plan:
        counts = np.bincount(self.klass, minlength=len(self.words))
        return Plan(known, self.words, counts, self.now)

    def _soonest(self, plan: Plan) -> Ints:
        """Those that the plan of the whole line starts or rents for now, and after them those that it starts next."""
        start_s = plan.start_s(self.klass, self.nth)
        found = np.flatnonzero(start_s <= SOON_S)
        return found[np.argsort(start_s[found], kind="stable")]

    def _heads(self) -> Ints:
        return np.flatnonzero(_nth(self.table[self.kind, 0]) < QUEUE_HEADS)

    def _pressing(self) -> Ints:
        """Deadlines that can still be met, the soonest latest start first."""
        latest = self.latest[self.order]
        found = np.flatnonzero(np.isfinite(latest) & (self.nth < MARGIN))
        return found[np.argsort(latest[found], kind="stable")]

    def _backfill(self) -> Ints:
        """What fits now: of each queue in turn, and within it of each kind in turn, the next in order."""
        found = np.flatnonzero(self.nth < self.startable)
        found = found[np.argsort(_nth(self.kind[found]), kind="stable")]
        return found[np.argsort(_nth(self.table[self.kind[found], 0]), kind="stable")]

    def _startable(self) -> Ints:
        """Per kind, a bound on how many jobs of it the hosts that are free now could hold, all else being away: in whichever form most, of what is for each."""
        bound, forms = np.zeros(len(self.table), dtype=np.int64), self.line.forms
        used = np.zeros(len(self.table), dtype=bool)
        used[self.line.kind] = True
        used = used[forms[:, 0]]
        for number in np.unique(forms[used, 1]):
            mine = forms[used & (forms[:, 1] == number)]
            hosts = self._free(self.line.eligibles[number])
            ranks = np.full((len(mine), len(hosts)), MOST_JOBS)
            for resource in range(3):
                need = mine[:, 3 + resource][:, np.newaxis]
                fits = hosts[:, resource] // np.maximum(need, 1)
                ranks = np.where(need > 0, np.minimum(ranks, fits), ranks)
            most = np.zeros_like(bound)
            np.maximum.at(most, mine[:, 0], np.minimum(MOST_JOBS, ranks @ hosts[:, 3]) // mine[:, 2])
            bound += most
        return bound

    def _free(self, eligible: Eligible) -> Ints:
        """Free hosts that are there now: GPUs, CPUs, memory, how many."""
        counts: dict[tuple[int, int, int], int] = {}
        for pool in self.pools:
            if pool.open and (pool.ready_at or 0.0) <= self.now and eligible.admits(pool):
                for shape in pool.free:
                    host = (shape.gpus, shape.cpus_milli, shape.memory_mib)
                    counts[host] = counts.get(host, 0) + shape.count
        rows = [(*host, count) for host, count in counts.items()]
        return np.array(rows, dtype=np.int64).reshape(len(rows), 4)

    # -- what is outside ----------------------------------------------------------------------------------------------

    def _behind(self, inside: Bools) -> Floats:
        """By place in the order: for how long the work before it that is outside would keep the home that it may use.

        Work that may run elsewhere too is spread over all that it may use, as if it were a fluid.
        """
        behind = np.zeros(len(self.line))
        groups = list(self.line.eligibles)
        group = self.table[self.kind, 1]
        if len(groups) > MOST_GROUPS:
            groups, group = [Eligible()], np.zeros(len(self.line), dtype=np.int64)
        run_s = self.line.run_s[self.order]
        work = np.where(inside, 0.0, self.size[self.kind] * np.where(np.isfinite(run_s), run_s, 0.0))
        alone = [self._capacity(each) for each in groups]
        for number, mine in enumerate(groups):
            if not alone[number]:
                continue
            both = [self._capacity(mine, other) for other in groups]
            shares = np.array([b / all_ if all_ else 0.0 for b, all_ in zip(both, alone, strict=True)])
            here = group == number
            behind[here] = np.cumsum(work * shares[group])[here] / alone[number]
        return behind

    def _capacity(self, *eligibles: Eligible) -> float:
        """GPUs (or nodes without any, as `size` counts them) of owned pools that pass all of these."""
        return sum(
            in_gpus(pool.nodes * pool.gpus_per_node, shared=pool.shared) or pool.nodes * CPU_ONLY_SIZE
            for pool in self.pools
            if pool.open and pool.market is Market.OWNED and all(each.admits(pool) for each in eligibles)
        )


def _nth(words: Ints) -> Ints:
    """How many equal ones stand before each."""
    by_word = np.argsort(words, kind="stable")
    ordered = words[by_word]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(words) else np.empty(0, np.int64)
    lengths = np.diff(np.r_[starts, len(words)])
    nth = np.empty(len(words), dtype=np.int64)
    nth[by_word] = np.arange(len(words)) - np.repeat(starts, lengths)
    return nth


class _Limits:
    """Fills a window part by part, counting jobs and classes. `inside` is by place in the order."""

    def __init__(self, klass: Ints, evaluations: int, most_jobs: int) -> None:
        """`klass` of every job, by number; so many jobs times classes may be taken, and so many jobs."""
        self._most_jobs = most_jobs
        self._evaluations = evaluations
        self.inside = np.zeros(len(klass), dtype=bool)
        self._klass = klass
        self._known = np.zeros(int(klass.max()) + 1, dtype=bool)
        self._jobs = 0

    def within(self, evaluations: int) -> None:
        """From now on, take only what fits this limit."""
        self._evaluations = evaluations

    def add(self, part: Ints, *, share: float) -> None:
        """Take from the front of the part what fits that share of the limits, and the limits beside what is inside already."""
        part = part[~self.inside[part]][: int(share * self._most_jobs)]
        klass = self._klass[part]
        fresh = np.zeros(len(part), dtype=bool)
        fresh[np.unique(klass, return_index=True)[1]] = True
        jobs = np.arange(1, len(part) + 1)
        alone = jobs * np.cumsum(fresh) <= share * share * self._evaluations
        classes = int(self._known.sum()) + np.cumsum(fresh & ~self._known[klass])
        fits = (
            alone
            & (self._jobs + jobs <= self._most_jobs)
            & ((self._jobs + jobs) * classes <= self._evaluations)
        )
        taken = part[fits]
        self.inside[taken] = True
        self._known[self._klass[taken]] = True
        self._jobs += len(taken)
