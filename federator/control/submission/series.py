"""What people do to series: submit one, or another under its name; look, pause, resume, end.

Of an owner there is one series of a name. Its row says when the next run is due; the loop in `series_runs` submits the runs.
"""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from federator.control.administration.authority import OVERSEERS
from federator.control.administration.visibility import Visibility
from federator.control.record.event_writer import EventWriter
from federator.control.record.holders import Held, holders_of
from federator.control.record.records import Changes, Records
from federator.control.record.shares import Limit, Shares
from federator.control.submission.acceptance import Acceptance, Entry
from federator.control.submission.series_owners import (
    listed,
    named,
    relations,
    require_right,
    series_owners,
    signed_in,
)
from federator.kernel.errors import Conflict, Invalid, NotFound, TooMany
from federator.model.identity import Caller, Role
from federator.model.jobs import Job
from federator.model.rights import MAY_READ
from federator.model.series import Recurrence, Series, SeriesStatus, said, series_key
from federator.settings import LimitSettings
from federator.wire.http import SeriesDetail, SeriesRow, Submitted
from federator.wire.jobfile import JobRequest

SHOWN_RUNS = 10


class SeriesService:
    """Series, as people see and change them."""

    def __init__(
        self,
        records: Records,
        event_writer: EventWriter,
        acceptance: Acceptance,
        limits: LimitSettings,
        shares: Shares,
        visibility: Visibility,
        absent_s: float | None = None,
    ) -> None:
        """`absent_s`: so long after its owner's last sign-in a series goes on; None: nobody signs in but with tokens."""
        self._records = records
        self._event_writer = event_writer
        self._acceptance = acceptance
        self.limits = limits
        self._shares = shares
        self._visibility = visibility
        self._absent_s = absent_s

    async def submit(self, caller: Caller, request: JobRequest) -> Submitted:
        """Begin a series, or give the one of that name another file, which counts from its next run on. The same file again changes nothing.

        Raises what is wrong with the file as that of a job, and `TooMany`.
        """
        key = series_key(caller.name, request.spec.name)
        repeated: list[bool] = []
        folders = await self._acceptance.folders(request.spec.workdir)

        def compute() -> Changes:
            changes = Changes()
            former = self._records.series.get(key)
            series = self._from(self._acceptance.entry(caller, folders), request, former)
            repeated[:] = [series is former]
            if series is not former:
                changes.put(series)
                what = f"submit series {series.name}" if former is None else f"replace series {series.name}"
                self._act(changes, caller, series, what)
            return changes

        await self._records.transact(compute)
        series = self._records.series[key]
        paused = series.status is SeriesStatus.PAUSED
        return Submitted(
            jobs=(),
            name=series.name,
            repeated=repeated[0],
            series=series.name,
            next_at=None if paused else series.next_at,
            paused=said(series, self._event_writer.clock.now(), "") if paused else "",
        )

    def _from(self, entry: Entry, request: JobRequest, former: Series | None) -> Series:
        assert request.repeated is not None
        caller = entry.caller
        now, every = self._event_writer.clock.now(), request.repeated.every
        job = self._acceptance.prepare(entry, request)
        if request.array and len(request.array) > self.limits.array_tasks:
            raise Invalid(
                f"{len(request.array)} tasks are more than {self.limits.array_tasks}", field="$.array"
            )
        file = _in_queue(request.repeated.file, job.queue)
        if former is not None and former.ended_at is None:
            same = replace(former, team=job.team, groups=caller.groups)
            if (file, every) == (former.file, former.every):
                return former if same == former else same
            return replace(same, queue=job.queue, file=file, changed_at=now, **_times(every, former, now))
        if former is None:
            self._room_for_one(caller.name, job.team)
        anchor_at = every.start_at if every.start_at is not None else now
        next_at = every.first(now, anchor_at)
        if next_at is None:
            raise Invalid("leaves no time for a run", field="$.every.end", remedy="write a later one")
        return Series(
            # A series that has ended goes on counting: no two of its runs have one name.
            id=former.id if former else self._event_writer.ids.new("ser"),
            runs=former.runs if former else 0,
            last=former.last if former else (),
            name=request.spec.name,
            owner=caller.name,
            queue=job.queue,
            team=job.team,
            **signed_in(caller, now),
            file=file,
            every=every,
            created_at=now,
            changed_at=now,
            anchor_at=anchor_at,
            next_at=next_at,
        )

    def _room_for_one(self, owner: str, team: str) -> None:
        most = self.limits.series
        if len(self._records.series) >= most:
            raise TooMany(
                f"there are {most} series on record already, those that have ended lately among them",
                retry_after_s=60.0,
            )
        remedy = "end some, and wait until they are forgotten"
        self._shares.refuse_over(Limit(Held.SERIES, most, "limits.series", remedy), holders_of(owner, team))

    async def pause(self, caller: Caller, series: Series) -> SeriesDetail:
        """Submit no runs. One that is there goes on; one that is owed is left out."""
        paused: dict[str, object] = {
            "paused_by": caller.name,
            "paused_because": "",
            "vouched_by": "",
            "owed_at": None,
        }
        return await self._change(caller, series, "pause", lambda _now: paused)

    async def resume(self, caller: Caller, series: Series) -> SeriesDetail:
        """Submit runs again, from the next one on that is due. Raises `Forbidden` where its owner may not use its queue."""
        owner = (
            caller if caller.name == series.owner else Caller(series.owner, Role.USER, groups=series.groups)
        )
        if caller.role not in OVERSEERS:
            self._acceptance.authority.rights(owner, series.queue, series.team)

        def resumed(now: float) -> dict[str, object]:
            owners = series_owners(self._records, now, self._absent_s)
            vouched_by = caller.name if owners.shut_out(series) else ""
            return {
                "paused_by": "",
                "paused_because": "",
                "vouched_by": vouched_by,
                "next_at": series.next(now),
            }

        return await self._change(caller, series, "resume", resumed)

    async def end(self, caller: Caller, series: Series) -> SeriesDetail:
        """No more runs; one that is there goes on."""

        def ended(now: float) -> dict[str, object]:
            because = f"cancelled by {caller.name}"
            return {"ended_at": now, "ended_because": because, "next_at": None, "owed_at": None}

        return await self._change(caller, series, "end", ended)

    async def _change(
        self, caller: Caller, about: Series, verb: str, fields: Callable[[float], dict[str, object]]
    ) -> SeriesDetail:
        require_right(self._acceptance.authority, caller, about)
        key = series_key(about.owner, about.name)

        def compute() -> Changes:
            changes = Changes()
            series = self._records.series[key]
            if series.ended_at is not None:
                raise Conflict(
                    f"series {series.name} has ended: {series.ended_because}", remedy="submit its file again"
                )
            moved = replace(series, **fields(self._event_writer.clock.now()))
            if moved != series and (verb != "resume" or series.paused_by):
                changes.put(moved)
                self._act(changes, caller, series, f"{verb} series {series.name}")
            return changes

        await self._records.transact(compute)
        return self.detail(caller, self._records.series[key])

    def _act(self, changes: Changes, caller: Caller, series: Series, what: str) -> None:
        self._event_writer.act(changes, f"user:{caller.name}", what, queue=series.queue, owner=series.owner)

    # -- what people are shown ----------------------------------------------------------------------------------------

    def find(self, caller: Caller, name: str, owner: str = "") -> Series:
        """A series by its name: the caller's own first. Raises `NotFound`."""
        found = self.known(caller, name, owner)
        if found is None:
            raise NotFound(f"no series {name!r}", remedy="'federator series' shows those that there are")
        return found

    def known(self, caller: Caller, name: str, owner: str = "") -> Series | None:
        """The same, or None."""
        found = named(self._records.series, self._visibility.of(caller), caller, name, owner)
        return max(found, key=lambda each: (each.ended_at is None, each.changed_at), default=None)

    def run_of(self, caller: Caller, name: str) -> Job:
        """The newest run of that series. Raises `NotFound`, also where there is neither a job nor a series of that name."""
        series = self.known(caller, name)
        if series is None:
            raise NotFound(f"no job {name!r}", remedy="'federator list' shows those that there are")
        runs = newest_run(self._records, series)
        if not runs:
            raise NotFound(f"series {name} has no run on record; {self.row(series).because}")
        return runs[0]

    def rows(self, caller: Caller, *, mine: bool = False, ended: bool = False) -> list[SeriesRow]:
        """All series that they are shown, by name; those that have ended only where they are asked for."""
        shown = listed(self._records.series, self._visibility.of(caller), caller.name if mine else "")
        return [self.row(each) for each in shown if ended or each.ended_at is None]

    def row(self, series: Series) -> SeriesRow:
        """A line of the list."""
        last = newest_run(self._records, series)
        return SeriesRow(
            name=series.name,
            owner=series.owner,
            queue=series.queue,
            every=str(series.every),
            overlap=str(series.every.overlap),
            status=str(series.status),
            next_at=series.next_at if series.status is SeriesStatus.ACTIVE else None,
            runs=series.runs,
            last=last[0].name if last else "",
            last_status=str(_furthest(last).status) if last else "",
            because=said(series, self._event_writer.clock.now(), running(self._records, series)),
        )

    def detail(self, caller: Caller, series: Series) -> SeriesDetail:
        """Everything about one; its file only for those who may read its jobs' logs."""
        may_read = bool(relations(self._acceptance.authority, caller, series) & MAY_READ)
        jobs = self._records.runs.get(series_key(series.owner, series.name), {})
        return SeriesDetail(
            series=self.row(series),
            every=series.every,
            notes=series.notes,
            jobs=tuple(sorted(jobs, reverse=True)[:SHOWN_RUNS]),
            created_at=series.created_at,
            changed_at=series.changed_at,
            file=msgspec.json.decode(series.file) if may_read else None,
        )

    def of_run(self, job: Job) -> str:
        """Of a run of a series, what comes after it; empty for other jobs."""
        series = self._records.series.get(series_key(job.owner, job.series or ""))
        if series is None:
            return ""
        return f"series {series.name}: " + said(
            series, self._event_writer.clock.now(), running(self._records, series)
        )


def newest_run(records: Records, series: Series) -> list[Job]:
    """The jobs of the newest run, as far as they are on record."""
    tasks = [job for name in series.last for job in records.arrays.get(name, {}).values()]
    return tasks or [records.jobs[name] for name in series.last if name in records.jobs]


def running(records: Records, series: Series) -> str:
    """The name of the newest run, if it is not over; else an empty text."""
    left = (records.job_arrays[name].template.name for name in series.last if records.has_left(name))
    return next((job.name for job in newest_run(records, series) if not job.terminal), next(left, ""))


def _furthest(jobs: list[Job]) -> Job:
    """One that is still open, or else one that did not succeed, or else any."""
    return min(jobs, key=lambda job: (job.terminal, job.status == "SUCCEEDED"))


def _times(every: Recurrence, former: Series, now: float) -> dict[str, object]:
    """When the runs of a series are due that goes on with other times, or with the same."""
    same = replace(every, overlap=former.every.overlap, keep=former.every.keep) == former.every
    if same:
        return {"every": every}
    anchor_at = every.start_at if every.start_at is not None else former.anchor_at
    next_at = former.next(now, every, anchor_at)
    if next_at is None:
        raise Invalid("leaves no time for a run", field="$.every.end", remedy="write a later one")
    return {"every": every, "anchor_at": anchor_at, "next_at": next_at, "owed_at": None}


def _in_queue(file: str, queue: str) -> str:
    """The file with its queue named: what the default is may change meanwhile."""
    return msgspec.json.encode({**msgspec.json.decode(file), "queue": queue}, order="deterministic").decode()
