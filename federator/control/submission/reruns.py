"""Rerun: what has ended is submitted again, as it was asked for."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from federator.control.record.records import Records
from federator.control.submission.expansion import MOST_SPANS
from federator.kernel.errors import Conflict, Forbidden
from federator.model.arrays import EVERYWHERE, Indices, JobArray, Spans, both, joined, size
from federator.model.identity import Caller
from federator.model.jobs import Follows, Job, JobStatus
from federator.wire.addresses import label_of_all
from federator.wire.jobfile import JobRequest
from federator.wire.steps import Step, StepsRequest


def request_again(
    records: Records,
    caller: Caller,
    jobs: Sequence[Job],
    of: tuple[JobArray | None, Spans] = (None, ()),
    *,
    failed: bool,
    now: float,
) -> JobRequest:
    """The request for these jobs once more, or for those that have `failed`: a job, or tasks of one array, which of a large one are named by their places as well. What it followed has ended, and what it reads of that is read again; a deadline that is past is left out. Raises `Forbidden` and `Conflict`."""
    array, places = of
    alike = [*jobs, *([array.template] if array is not None else [])]
    if any(job.owner != caller.name for job in alike):
        raise Forbidden(
            f"{alike[0].name} belongs to {alike[0].owner}",
            remedy="ask them to run it again, or submit a file of yours",
        )
    wanted = [job for job in jobs if job.status is JobStatus.FAILED] if failed else list(jobs)
    again = Indices.of(sorted({job.array_index for job in wanted if job.array_index is not None}))
    if array is not None:
        no_jobs = _no_jobs(array, places, failed=failed)
        again = array.indices.at(joined((*no_jobs, *array.indices.places(again))))
    if not wanted and not again:
        raise Conflict(
            f"nothing of {label_of_all(alike)} has failed", remedy="leave out --failed to run all of it again"
        )
    if living := [job for job in wanted if not job.terminal]:
        raise Conflict(
            f"{living[0].label} has not ended: it is {living[0].status}",
            remedy="wait for its end, or start it again now: federator requeue",
        )
    of_arrays = {job.array for job in wanted}
    if len(of_arrays) > 1:
        raise Conflict(f"{label_of_all(jobs)} are tasks of several arrays", remedy="name those of one array")
    if len(again.runs) > MOST_SPANS:
        raise Conflict(
            f"these tasks of {alike[0].name} are in over {MOST_SPANS} pieces",
            remedy=f"name fewer of them: {alike[0].name}[{again[0]}-{again.runs[MOST_SPANS - 1].last}]",
        )
    job = wanted[0] if wanted else alike[0]
    due_at, spec = job.deadline_at, records.spec(job.spec_hash)
    return JobRequest(
        spec=spec,
        after=tuple(dict.fromkeys(each.job for each in spec.inputs_from or ())),
        queue=job.queue,
        team=job.team,
        priority=job.priority,
        deadline_at=due_at if due_at is not None and due_at > now else None,
        value_usd=job.value_usd,
        must=job.must,
        max_cost_usd=job.max_cost_usd,
        max_duration_s=job.max_duration_s,
        array=again,
        at_once=job.at_once,
        notify=job.notify,
    )


def steps_again(
    records: Records, caller: Caller, steps: Mapping[str, Job], *, failed: bool, now: float
) -> StepsRequest:
    """The request for a pipeline once more; of `failed`, for the steps that failed and those that follow them, which read what the others have left. `steps`: in their order, by the id of the job or array. Raises `Forbidden` and `Conflict`."""
    for job in steps.values():
        if job.owner != caller.name:
            remedy = "ask them to run it again, or submit a file of yours"
            raise Forbidden(f"{job.name} belongs to {job.owner}", remedy=remedy)
    jobs = {step: [*_tasks_of(records, step)] for step in steps}
    of = {each.id: step for step, tasks in jobs.items() for each in tasks} | {step: step for step in steps}
    wanted: dict[str, Job] = {}
    for step, tasks in jobs.items():
        if any(not each.terminal for each in tasks) or records.has_left(step):
            raise Conflict(f"{steps[step].name} has not ended", remedy="wait for its end, or cancel it")
        bad = any(each.status is JobStatus.FAILED for each in tasks)
        if not failed or bad or any(of.get(name) in wanted for each in tasks for name in each.after):
            wanted[step] = steps[step]
    pipeline, _, _ = next(iter(steps.values())).name.rpartition(".")
    if not wanted:
        raise Conflict(
            f"nothing of {pipeline} has failed", remedy="leave out --failed to run all of it again"
        )
    again: list[Step] = []
    for step, job in wanted.items():
        array = records.job_arrays.get(step)
        request = request_again(records, caller, jobs[step], (array, EVERYWHERE), failed=False, now=now)
        names = {name: wanted[of[name]].name for name in (*of, *job.after) if of.get(name) in wanted}
        again.append(Step(job.name.rpartition(".")[2], _following(request, job, names)))
    return StepsRequest(pipeline, tuple(again))


def _tasks_of(records: Records, step: str) -> Iterator[Job]:
    """The jobs that a step is: one, or the tasks of an array that are jobs."""
    job = records.jobs.get(step)
    yield from (job,) if job is not None else records.arrays.get(step, {}).values()


def _following(request: JobRequest, job: Job, names: Mapping[str, str]) -> JobRequest:
    """A step's request that follows and reads steps which run again by their names, and reads the others as before."""
    sources = request.spec.inputs_from or ()
    pairs = {names[name]: how for name, how in job.follows() if name in names}
    for each in sources:
        pairs.setdefault(names.get(each.job, each.job), Follows.EACH if each.each else Follows.OK)
    read = tuple(replace(each, job=names.get(each.job, each.job)) for each in sources)
    spec = replace(request.spec, inputs_from=read) if read else request.spec
    return replace(request, spec=spec, after=tuple(pairs), after_how=tuple(pairs.values()))


def _no_jobs(array: JobArray, places: Spans, *, failed: bool) -> Spans:
    """Where tasks are that are to run again and are not in memory: in the archive, or cancelled before they were jobs. Raises `Conflict`."""
    left, archived = both(array.left, places), array.archived
    if failed:
        return both(archived.failed if archived is not None else (), places)
    if left:
        waiting = f"{size(left)} tasks of {array.template.name} wait"
        raise Conflict(waiting, remedy="wait for their end, or cancel them")
    return places
