"""Use and money added up from the ledger, so that no other account can differ from it; waits and deadlines from the jobs on record.

Amounts are added as whole billionths of a dollar: such sums do not depend on their order, and groups add up to the whole. Cents are then given out so that
the rounded groups, too, add up to the rounded whole.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from federator.kernel.errors import TooMany
from federator.model.archive import UsageSum
from federator.model.capacity import Market
from federator.model.events import LedgerEntry, LedgerKind
from federator.model.jobs import Job, JobStatus
from federator.model.placements import Placement
from federator.wire.usage import Key, UsageReport, UsageRow

NANO = 10**9
CENT = NANO // 100
MOST_ROWS = 10_000
SLICE = 2000
"""Jobs that are counted before others have their turn."""
SKEW_S = 3600.0
"""Lines are in the order of the clocks of those who wrote them, and clocks may differ by so much."""
Group = tuple[str, ...]
_DATES = frozenset({"month", "day"})


@dataclass
class _Sums:
    """Of one group. Money in billionths of a dollar, time in seconds."""

    gpu_s: float = 0.0
    rented_gpu_s: float = 0.0
    owned: int = 0
    rented: int = 0
    data: int = 0
    power: int = 0
    energy_kwh: float = 0.0
    co2_kg: float = 0.0
    jobs: int = 0
    succeeded: int = 0
    started: int = 0
    wait_s: float = 0.0
    longest_wait_s: float = 0.0
    deadlines: int = 0
    deadlines_met: int = 0
    starts_told: int = 0
    starts_kept: int = 0
    finishes_told: int = 0
    finishes_kept: int = 0
    costs_told: int = 0
    costs_kept: int = 0
    answered: int = 0
    met: int = 0

    def add_line(self, line: LedgerEntry) -> None:
        """One line of the ledger."""
        usd = round(line.usd * NANO)
        if line.egress_gib:
            self.data += usd
        elif line.kind is LedgerKind.USAGE:
            self.owned += usd
        else:
            self.rented += usd
        self.power += round(line.power_usd * NANO)
        self.energy_kwh += line.energy_kwh
        self.co2_kg += line.co2_kg
        self.gpu_s += line.gpu_s
        self.answered += line.answered
        self.met += line.met
        if line.market != Market.OWNED:
            self.rented_gpu_s += line.gpu_s

    def add_job(self, job: Job) -> None:
        """One job that has ended."""
        self.jobs += 1
        self.succeeded += job.status is JobStatus.SUCCEEDED
        if job.started_at is not None:
            wait_s = max(0.0, job.started_at - job.submitted_at)
            self.started += 1
            self.wait_s += wait_s
            self.longest_wait_s = max(self.longest_wait_s, wait_s)
        missed = job.outcome.missed_deadline if job.outcome is not None else None
        if missed or (missed is not None and job.status is not JobStatus.CANCELLED):
            self.deadlines += 1
            self.deadlines_met += not missed and job.status is JobStatus.SUCCEEDED
        told = job.first_forecast
        if told is not None and job.started_at is not None:
            self.starts_told += 1
            self.starts_kept += told.start_kept(job.started_at)
        if told is not None and job.finished_at is not None and job.status is JobStatus.SUCCEEDED:
            self.finishes_told += 1
            self.finishes_kept += told.finish_kept(job.finished_at)
            cost_kept = told.cost_kept(job.spent_usd)
            self.costs_told += cost_kept is not None
            self.costs_kept += bool(cost_kept)

    def add_sums(self, sums: UsageSum) -> None:
        """Jobs that were added up elsewhere."""
        self.jobs += sums.jobs
        self.succeeded += sums.succeeded
        self.started += sums.started
        self.wait_s += sums.wait_s
        self.longest_wait_s = max(self.longest_wait_s, sums.longest_wait_s)
        self.deadlines += sums.deadlines
        self.deadlines_met += sums.deadlines_met
        self.starts_told += sums.starts_told
        self.starts_kept += sums.starts_kept
        self.finishes_told += sums.finishes_told
        self.finishes_kept += sums.finishes_kept
        self.costs_told += sums.costs_told
        self.costs_kept += sums.costs_kept


class UsageSums:
    """Adds up lines and jobs by some keys."""

    def __init__(self, by: Sequence[Key]) -> None:
        self._by = tuple(dict.fromkeys(by))
        self._groups: dict[Group, _Sums] = {}
        self._total = _Sums()

    def line(self, line: LedgerEntry, team: str) -> None:
        """A line of the ledger; `team`: under which its job was admitted."""
        if line.usd or line.gpu_s or line.answered:
            facts = {
                "user": line.owner,
                "team": team,
                "queue": line.queue,
                "site": line.site,
                "model": line.model,
            }
            self._group(facts, line.at).add_line(line)
            self._total.add_line(line)

    def job(self, job: Job, placement: Placement | None) -> None:
        """A job that has ended; `placement`: its last attempt."""
        site, model = (placement.site, placement.model) if placement is not None else ("", "")
        facts = {"user": job.owner, "team": job.team, "queue": job.queue, "site": site, "model": model}
        self._group(facts, job.finished_at or 0.0).add_job(job)
        self._total.add_job(job)

    def archived(self, sums: UsageSum, by: Sequence[Key]) -> None:
        """Jobs of the archive that were added up by these keys."""
        found = dict(zip(by, sums.group, strict=True))
        self._group_of(tuple(found[key] for key in self._by)).add_sums(sums)
        self._total.add_sums(sums)

    def report(self, *, whose: str, since: float, until: float) -> UsageReport:
        """What came of it."""
        named = sorted(self._groups.items())
        money = [amount for _, each in named for amount in (each.owned, each.rented, each.data)]
        cents = iter(whole_cents(money))
        power = iter(whole_cents([each.power for _, each in named]))
        rows = [
            _row(
                each,
                (next(cents), next(cents), next(cents), next(power)),
                dict(zip(self._by, group, strict=True)),
            )
            for group, each in named
        ]
        parts = tuple(
            sum(round(getattr(row, name) * 100) for row in rows)
            for name in ("owned_usd", "rented_usd", "data_usd", "power_usd")
        )
        total = _row(self._total, parts, {})
        return UsageReport(whose=whose, since=since, until=until, rows=tuple(rows), total=total)

    def _group(self, facts: dict[str, str], at: float) -> _Sums:
        """Raises `TooMany`."""
        if not _DATES.isdisjoint(self._by):
            day = datetime.fromtimestamp(at, UTC).date().isoformat()
            facts = {**facts, "day": day, "month": day[:-3]}
        return self._group_of(tuple(facts[key] for key in self._by))

    def _group_of(self, group: Group) -> _Sums:
        """Raises `TooMany`."""
        found = self._groups.get(group)
        if found is None:
            if len(self._groups) >= MOST_ROWS:
                raise TooMany(
                    f"these are over {MOST_ROWS} groups",
                    field="?by",
                    remedy="name fewer keys, or a shorter time",
                )
            found = self._groups[group] = _Sums()
        return found


def whole_cents(amounts: Sequence[int]) -> list[int]:
    """Billionths of a dollar as cents that add up to the rounded sum: each is rounded up or down, those with the largest rest up."""
    cents = [amount // CENT for amount in amounts]
    missing = round(sum(amounts) / CENT) - sum(cents)
    by_rest = sorted(range(len(amounts)), key=lambda at: (-(amounts[at] % CENT), at))
    for at in by_rest[:missing]:
        cents[at] += 1
    return cents


def _row(sums: _Sums, cents: Sequence[int], group: dict[Key, str]) -> UsageRow:
    owned, rented, data, power = cents
    return UsageRow(
        **group,
        gpu_s=sums.gpu_s,
        rented_gpu_s=sums.rented_gpu_s,
        owned_usd=owned / 100,
        rented_usd=rented / 100,
        data_usd=data / 100,
        usd=(owned + rented + data) / 100,
        energy_kwh=sums.energy_kwh,
        power_usd=power / 100,
        co2_kg=sums.co2_kg,
        jobs=sums.jobs,
        succeeded=sums.succeeded,
        wait_s=sums.wait_s / sums.started if sums.started else None,
        longest_wait_s=sums.longest_wait_s if sums.started else None,
        deadlines=sums.deadlines,
        deadlines_met=sums.deadlines_met,
        starts_told=sums.starts_told,
        starts_kept=sums.starts_kept,
        finishes_told=sums.finishes_told,
        finishes_kept=sums.finishes_kept,
        costs_told=sums.costs_told,
        costs_kept=sums.costs_kept,
        answered=sums.answered,
        met=sums.met,
    )


async def add_lines(
    sums: UsageSums,
    lines: AsyncIterator[LedgerEntry],
    team_of: Callable[[LedgerEntry], str],
    counts: Callable[[LedgerEntry, str], bool],
    until: float,
) -> None:
    """Those lines before `until` that count."""
    async for line in lines:
        if line.at >= until + SKEW_S:
            return
        team = team_of(line)
        if line.at < until and counts(line, team):
            sums.line(line, team)


async def add_jobs(
    sums: UsageSums, jobs: Iterable[tuple[Job, Placement | None]], since: float, until: float
) -> None:
    """Those that have ended in that time, each with its last attempt. Gives way to others now and then."""
    for number, (job, placement) in enumerate(jobs):
        if number % SLICE == 0:
            await asyncio.sleep(0)
        if job.terminal and job.finished_at is not None and since <= job.finished_at < until:
            sums.job(job, placement)
