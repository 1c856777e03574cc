"""Why jobs wait, added up by reason, and what is kept for whom.

The sums are made of the newest plan, once for everybody who looks: a look then costs a few additions, however many jobs wait.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from federator.control.administration.visibility import ANOTHERS, Sight
from federator.control.queries.explanations import Explainer
from federator.control.record.job_index import CellKey
from federator.control.record.records import Records
from federator.control.turns.turn import Turn
from federator.model.jobs import Job, JobStatus, in_gpus
from federator.model.plans import ReservedFor, Waiting
from federator.model.rules import Opening, selects
from federator.model.snapshot import PoolView
from federator.planning.explanations.rule_words import kept_for
from federator.planning.rules.openings import kept_spans
from federator.wire.waiting import ReservedGpus, WaitingNow, WaitReason

STEP = 500
"""Jobs looked at in one go."""
REST = 20.0
"""Sums are good for so many times as long as it took to make them, whatever is planned meanwhile: who looks costs a twentieth of the loop at most."""
MOST_RESERVED = 50


@dataclass
class _Sum:
    jobs: int = 0
    gpus: float = 0.0
    first: str = ""


class Waits:
    """Answers what waits, as of the newest plan."""

    def __init__(
        self,
        records: Records,
        turn: Turn,
        explainer: Explainer,
        told: Callable[[Job], Waiting | None],
        pools: Callable[[], Sequence[PoolView]],
    ) -> None:
        """`told`: what people are told of a job that waits; `pools`: all capacity there is, as it is now."""
        self._records, self._turn, self._explainer, self._told = records, turn, explainer, told
        self._pools = pools
        self._sums: dict[CellKey, dict[str, _Sum]] = {}
        self._good_until = 0.0
        self._one_at_a_time = asyncio.Lock()

    async def now(self, sight: Sight) -> WaitingNow:
        """What waits of what somebody is shown."""
        async with self._one_at_a_time:
            clock = asyncio.get_running_loop().time
            begun = clock()
            if begun >= self._good_until:
                self._sums = await self._added_up()
                self._good_until = clock() + REST * (clock() - begun)
            found: dict[str, _Sum] = {}
            for cell, sums in self._sums.items():
                if sight.cell(cell):
                    for reason, each in sums.items():
                        _add(found.setdefault(reason, _Sum()), each)
        rows = sorted(found.items(), key=lambda item: (-item[1].jobs, item[0]))
        return WaitingNow(
            jobs=sum(each.jobs for each in found.values()),
            gpus=sum(each.gpus for each in found.values()),
            reasons=tuple(
                self._row(reason, each) for reason, each in rows if each.first in self._records.jobs
            ),
            reserved=(*self._for_gangs(sight), *islice(self._by_policies(), MOST_RESERVED)),
        )

    async def _added_up(self) -> dict[CellKey, dict[str, _Sum]]:
        made: dict[CellKey, dict[str, _Sum]] = {}
        waiting = [(cell, list(ids)) for cell, ids in self._records.index.cells(JobStatus.PENDING)]
        looked_at = 0
        for cell, ids in waiting:
            for name in ids:
                looked_at += 1
                if looked_at % STEP == 0:
                    await asyncio.sleep(0)
                job = self._records.jobs.get(name)
                if job is not None:
                    spec = self._records.spec(job.spec_hash)
                    gpus = spec.nodes * spec.resources.gpus.total
                    reason = self._explainer.reason_of(job)
                    _add(made.setdefault(cell, {}).setdefault(reason, _Sum()), _Sum(1, gpus, name))
        return made

    def _row(self, reason: str, each: _Sum) -> WaitReason:
        job = self._records.jobs[each.first]
        waiting = self._told(job)
        return WaitReason(
            reason=reason,
            jobs=each.jobs,
            gpus=each.gpus,
            first=each.first,
            first_at=job.submitted_at,
            because=waiting.because if waiting is not None else "",
        )

    def _for_gangs(self, sight: Sight) -> Iterator[ReservedGpus]:
        """Each job once for which something is held."""
        seen: set[str] = set()
        for waiting in self._turn.waiting.values():
            held = waiting.reserved
            if held is None or held.why is not ReservedFor.GANG or held.for_job in seen:
                continue
            job = self._records.jobs.get(held.for_job)
            seen.add(held.for_job)
            if job is not None and len(seen) <= MOST_RESERVED:
                shown, spec = sight.job(job), self._records.spec(job.spec_hash)
                yield ReservedGpus(
                    site=held.place.partition("/")[0],
                    job=job.id if shown else "",
                    name=job.label if shown else ANOTHERS,
                    gpus=spec.nodes * spec.resources.gpus.total,
                    until_at=held.until_at,
                )

    def _by_policies(self) -> Iterator[ReservedGpus]:
        """What is kept at this moment from one moment to another, by site: what is free of it now."""
        now = self._explainer.expectations.now()
        for rule in self._records.policies.rules:
            spans = kept_spans(rule, now) if isinstance(rule, Opening) else ()
            until_at = max((until_at for first_at, until_at in spans if first_at <= now), default=None)
            if until_at is None or not isinstance(rule, Opening):
                continue
            free: dict[str, float] = {}
            for pool in self._pools():
                if selects(rule.pools, pool):
                    busy = sum(each.nodes * each.gpus for each in pool.busy)
                    gpus = in_gpus(pool.nodes * pool.gpus_per_node - busy, shared=pool.shared)
                    free[pool.site] = free.get(pool.site, 0.0) + gpus
            for site, gpus in free.items():
                if gpus > 0:
                    yield ReservedGpus(
                        site=site,
                        job="",
                        name=kept_for(rule),
                        gpus=gpus,
                        until_at=until_at,
                        policy=rule.policy,
                    )


def _add(to: _Sum, more: _Sum) -> None:
    to.jobs += more.jobs
    to.gpus += more.gpus
    to.first = min(to.first or more.first, more.first)
