"""The waiting jobs in columns, kept up to date change by change: what a turn chooses its window from.

Reading 100,000 records and specs in every turn would cost more than planning. So each waiting job has a row of numbers here, written when
its record changes; a turn copies the columns, and a thread chooses from the copy. Records of jobs stay the truth: a row that is late only
makes the window a little worse, for the observer looks at each chosen job's record again.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import NamedTuple

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace
from numpy.typing import NDArray

from federator.control.record.records import Changes, Records
from federator.control.reports.history import History
from federator.model.arrays import JobArray
from federator.model.jobs import Job, JobSpec, PlacementConstraints, Resources
from federator.model.rules import planned
from federator.model.snapshot import Lead, Outside, PoolView
from federator.planning.scheduling.forecast import runtime_quantiles
from federator.planning.world.line import Eligible, JobKind, Kinds, Line, LineForm
from federator.planning.world.outlook import OutlookArrays
from federator.planning.world.window import EVALUATIONS, FEWEST_EVALUATIONS, Window, choose, is_small

SPARE = 10_000
"""Kinds and specs that no waiting job is of any more, beyond as many again as there are jobs: then everything is read anew."""
OLDEST_S = 300.0
"""A plan of the whole line that is older chooses no window: its buckets begin at another time."""
ROW = np.dtype(
    [
        ("stamp", np.int64),
        ("submitted_at", np.float64),
        ("priority", np.float64),
        ("deadline_at", np.float64),
        ("limit_s", np.float64),
        ("ready_at", np.float64),
        ("kind", np.int64),
        ("klass", np.int64),
        ("run", np.int64),
        ("ahead", np.int64),
        ("behind_s", np.float64),
    ]
)
"""`stamp` is 0 for a row that is free, else another for every writing; `ahead` is -1 until a window was chosen with the row in view."""


class LinePosition(NamedTuple):
    """How a job stood in the line when a window was last chosen; `alike` is a job of its class that was in it, if any was."""

    ahead: int
    behind_s: float
    alike: str | None


class _Sort(NamedTuple):
    """What all jobs of one spec, queue and owner share: their kind, where their run time is looked up, and the hash of their needs."""

    kind: int
    run: int
    needs: int


class WaitingLine:
    """Rows of the jobs that may start, as `eligible` has it."""

    def __init__(
        self,
        records: Records,
        history: History,
        eligible: Callable[[Job], bool],
        *,
        refuse: Callable[[str, Exception], object] | None = None,
        whole: bool = False,
        recent_gpus: Callable[[float], Mapping[str, float]] = lambda _now: {},
    ) -> None:
        """`refuse`: told of a job of which no row can be made, with the error, which is raised where there is nobody to tell. `whole`: there is no window; a decision sees every job that waits. `recent_gpus`: of queues at a moment, see `Usage`."""
        self._recent_gpus = recent_gpus
        self._records = records
        self._history = history
        self._eligible = eligible
        self._refuse = refuse
        self.whole = whole
        self._stamps = count(1)
        self._changed: set[str] | None = None
        """Jobs whose rows are to be written again; None: all, for nothing was read yet."""
        self._one_at_a_time = asyncio.Lock()
        self.evaluations = EVALUATIONS
        self._known: OutlookArrays | None = None
        self.outside: dict[str, Outside] = {}
        """What jobs outside the last window are expected to use, by row of the model."""
        self.leads: tuple[Lead, ...] = ()
        """What a plan of the whole line rents now for jobs of the last window,"""
        self.prices: dict[str, float] = {}
        """and its prices."""
        self._begin()
        records.subscribe(self._note)

    async def window(self, pools: Callable[[], list[PoolView]], now: float) -> dict[str, float]:
        """Choose the jobs that a decision is to see, each with how long work outside the window keeps it (s)."""
        async with self._one_at_a_time:
            return await self._choose(pools, now)

    def look_again(self, jobs: Collection[str]) -> None:
        """Whether these are eligible may have changed, though their rows have not."""
        if self._changed is not None:
            self._changed.update(jobs)

    def pace(self, used: float) -> None:
        """Fit the next windows to the solver: `used` is what share of its time it took for the last; 1 and more is late.

        A window that is too large for a slow or busy machine would cost every turn the whole limit, and its plan.
        """
        if used >= 1.0:
            self.evaluations = max(FEWEST_EVALUATIONS, self.evaluations // 2)
        elif used < 1 / 4:
            self.evaluations = min(EVALUATIONS, self.evaluations * 2)

    async def heads(self) -> tuple[list[str], list[int], list[int]] | None:
        """Of each class the first to come, how many there are, and what the class is called here; None where no window is needed."""
        async with self._one_at_a_time:
            self._catch_up()
        live = np.flatnonzero(self._rows["stamp"])
        rows = self._rows[live]
        if self.whole or is_small(self._line(rows)):
            return None
        words, first, counts = np.unique(rows["klass"], return_index=True, return_counts=True)
        return [self._ids[slot] for slot in live[first].tolist()], counts.tolist(), words.tolist()

    def expect(self, known: OutlookArrays | None) -> None:
        """Choose the next windows with this plan of the whole line."""
        self._known = known

    async def _choose(self, pools: Callable[[], list[PoolView]], now: float) -> dict[str, float]:
        self._catch_up()
        live = np.flatnonzero(self._rows["stamp"])
        seen = self._rows[live]
        line, rules = self._line(seen), planned(self._records.policies.rules)
        self.outside, self.leads, self.prices = {}, (), {}
        if self.whole or is_small(line, self.evaluations):
            return {self._ids[slot]: 0.0 for slot in live.tolist()}
        recent = self._recent_gpus(now)
        known = self._known
        if known is not None and now - known.taken_at > OLDEST_S:
            known = None
        found = await asyncio.to_thread(choose, line, pools(), rules, now, self.evaluations, recent, known)
        self._remember(live, seen, found)
        self.outside, leads, self.prices = found.told
        self.leads = tuple(replace(lead, job=self._ids[live[entry]]) for entry, lead in leads)
        chosen = live[found.chosen]
        return {
            self._ids[slot]: behind
            for slot, behind in zip(chosen, found.behind_s[found.chosen].tolist(), strict=True)
        }

    def standing(self, job_id: str) -> LinePosition | None:
        """Where the job stood; None when no window was chosen since it came or changed."""
        slot = self._slots.get(job_id)
        if slot is None or self._rows["ahead"][slot] < 0:
            return None
        row = self._rows[slot]
        return LinePosition(int(row["ahead"]), float(row["behind_s"]), self._alike.get(int(row["klass"])))

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Forget everything."""
        self._rows = np.zeros(1024, dtype=ROW)
        self._ids: list[str] = []
        self._free: list[int] = []
        self._slots: dict[str, int] = {}
        self._kinds = Kinds()
        self._sorts: dict[tuple[str, str, str, str, bool, str | None, int | None], _Sort] = {}
        self._runs: dict[tuple[str, str] | float, int] = {}
        self._run_s = np.zeros(1024)
        self._alike: dict[int, str] = {}

    def _note(self, changes: Changes) -> None:
        """Rows have changed in the store."""
        if self._changed is None:
            return
        for row in changes.rows.values():
            if isinstance(row, Job):
                self._changed.add(row.id)
                if row.terminal:
                    self._changed |= self._records.index.followers(row)
            elif isinstance(row, JobArray) and row.cancelled:
                self._changed |= self._records.index.followers_of(row)
        self._changed.update(key.removeprefix("job/") for key in changes.deletes if key.startswith("job/"))

    def _catch_up(self) -> None:
        """Write the rows of what has changed."""
        if len(self._kinds) + len(self._sorts) > SPARE + 4 * len(self._slots):
            self._changed = None
        if self._changed is None:
            self._begin()
        changed, self._changed = self._changed, set()
        jobs = self._records.open_jobs
        for name in jobs if changed is None else sorted(changed):
            job = jobs.get(name)
            if job is None or not self._eligible(job):
                self._remove(name)
                continue
            try:
                self._put(job)
            except Exception as error:
                self._remove(name)
                if self._refuse is None:
                    raise
                self._refuse(name, error)
        for key in self._history.take_news():
            if key in self._runs:
                self._run_s[self._runs[key]] = self._forecast_s(key)

    def _put(self, job: Job) -> None:
        slot = self._slots.get(job.id)
        if slot is None:
            slot = self._slots[job.id] = self._new_slot(job.id)
        sort = self._sort(job)
        own = (job.priority, job.deadline_at, job.value_usd, job.must, job.max_cost_usd, job.spent_usd)
        self._rows[slot] = (
            next(self._stamps),
            # The tasks of an array were submitted at one moment, and stand in the order of their numbers.
            job.submitted_at + 1e-6 * (job.array_index or 0),
            job.priority,
            math.inf if job.deadline_at is None else job.deadline_at,
            math.inf if job.max_duration_s is None else job.max_duration_s,
            job.not_before_at or 0.0,
            sort.kind,
            hash((sort.needs, *own, job.max_duration_s, job.not_before_at, job.refusals)),
            sort.run,
            -1,
            0.0,
        )

    def _new_slot(self, name: str) -> int:
        if self._free:
            slot = self._free.pop()
            self._ids[slot] = name
            return slot
        self._ids.append(name)
        if len(self._ids) > len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        return len(self._ids) - 1

    def _remove(self, name: str) -> None:
        slot = self._slots.pop(name, None)
        if slot is not None:
            self._rows["stamp"][slot] = 0
            self._ids[slot] = ""
            self._free.append(slot)

    def _sort(self, job: Job) -> _Sort:
        key = (job.spec_hash, job.queue, job.owner, job.team, job.may_rent, job.resume_site, job.form)
        known = self._sorts.get(key)
        if known is None:
            known = self._sorts[key] = self._new_sort(job, self._records.spec(job.spec_hash))
        return known

    def _new_sort(self, job: Job, spec: JobSpec) -> _Sort:
        where = spec.placement
        sites = (job.resume_site,) if job.resume_site else where.sites
        ways = [(spec.nodes, spec.resources), *((each.nodes, each.resources) for each in spec.forms or ())]
        if job.form is not None:
            ways = [ways[job.form]]
        kind = JobKind(job.queue, tuple(_form(nodes, each, where, sites) for nodes, each in ways))
        run = self._run((job.queue, job.kin) if spec.estimate_s is None else spec.estimate_s)
        others = (
            job.owner,
            job.team,
            job.may_rent,
            job.form,
            spec.resources.gpus.memory_mib,
            spec.forms or (),
            bool(spec.elastic),
            bool(spec.ordered),
            None if spec.patience_s is UNSET else spec.patience_s,
            tuple(sorted(spec.speed.items())),
            spec.spot_policy,
            tuple(sorted(where.labels.items())),
            where.together,
            tuple(sorted(spec.labels.items())),
            tuple(sorted((spec.licenses or {}).items())),
            bool(spec.stop_within_s),
            spec.checkpoint,
            spec.inputs or (),
        )
        return _Sort(self._kinds.number(kind), run, hash((kind, run, others)))

    def _run(self, key: tuple[str, str] | float) -> int:
        """Where the run time by this estimate, or of that queue and name, is kept."""
        if key not in self._runs:
            number = self._runs[key] = len(self._runs)
            if number == len(self._run_s):
                self._run_s = np.concatenate([self._run_s, np.zeros_like(self._run_s)])
            self._run_s[number] = self._forecast_s(key)
        return self._runs[key]

    def _forecast_s(self, key: tuple[str, str] | float) -> float:
        if isinstance(key, tuple):
            return runtime_quantiles(None, self._history.runs(*key)).run_s
        return runtime_quantiles(key).run_s

    # -- windows ------------------------------------------------------------------------------------------------------

    def _line(self, rows: NDArray[np.void]) -> Line:
        return Line(
            submitted_at=rows["submitted_at"],
            priority=rows["priority"],
            deadline_at=rows["deadline_at"],
            run_s=np.minimum(self._run_s[rows["run"]], rows["limit_s"]),
            ready_at=rows["ready_at"],
            kind=rows["kind"],
            klass=rows["klass"],
            table=self._kinds.table(),
            forms=self._kinds.forms(),
            queues=tuple(self._kinds.queues),
            eligibles=tuple(self._kinds.eligibles),
        )

    def _remember(self, live: NDArray[np.int64], seen: NDArray[np.void], found: Window) -> None:
        """Note how each stands, unless its row has changed while the window was chosen."""
        same = self._rows["stamp"][live] == seen["stamp"]
        self._rows["ahead"][live[same]] = found.ahead[same]
        self._rows["behind_s"][live[same]] = found.behind_s[same]
        classes, first = np.unique(seen["klass"][found.chosen], return_index=True)
        slots = live[found.chosen[first]]
        self._alike = {
            klass: self._ids[slot] for klass, slot in zip(classes.tolist(), slots.tolist(), strict=True)
        }


def _form(nodes: int, resources: Resources, where: PlacementConstraints, sites: tuple[str, ...]) -> LineForm:
    """What a job asks for in one of its forms, and where that may be."""
    gpus = resources.gpus
    models, shared = (gpus.models, bool(gpus.share_milli)) if gpus.count else ((), None)
    eligible = Eligible(models, sites, where.not_sites, where.kinds, shared)
    return LineForm(
        eligible, nodes, gpus.each, resources.cpus_milli, resources.memory_mib + resources.shm_mib
    )
