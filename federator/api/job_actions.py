"""What is done to jobs that are there: one verb for many of them, and submitting again what has ended."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from federator.api.access import not_yours, relations, require_no_series
from federator.api.exchange import Call
from federator.api.jobs import client_id_of, hash_of
from federator.control.queries.job_lists import Meant
from federator.control.queries.pipelines import steps_of
from federator.control.submission.expansion import refuse_pieces
from federator.control.submission.reruns import request_again, steps_again
from federator.control.submission.verbs import NOTHING
from federator.kernel.errors import Invalid, TooMany
from federator.model.arrays import JobArray, Spans, both, has, size, without
from federator.model.jobs import JobStatus
from federator.model.rights import MAY_CHANGE
from federator.wire.addresses import read_address
from federator.wire.http import ActedOn, JobAction, Rerun, Submitted


async def act(call: Call) -> list[ActedOn]:
    """Do it to all jobs that are named, once it is known that all of them may be changed by the caller."""
    action = await call.body(JobAction)
    if (action.patch is None) is (action.verb == "update"):
        raise Invalid(
            "goes with update, and with nothing else", field="$.patch", remedy="write what to change"
        )
    if action.verb != "cancel":
        call.core.sweeper.retention.refuse_line(call.caller.name)
    meant = await _meant(call, action)
    return [await _act_on(call, action, name, jobs) for name, jobs in meant]


async def _meant(call: Call, action: JobAction) -> list[tuple[str, Meant]]:
    """What each entry means, all of it the caller's to change so; others have their turn after every entry."""
    meant, most, jobs_meant = list[tuple[str, Meant]](), call.core.settings.limits.batch_jobs, 0
    for name in dict.fromkeys(_entries(call, action)):
        each = await call.core.views.find_all(call.caller, name)
        jobs_meant += len(each.jobs) + (size(each.places) if _one_by_one(action, name) else 0)
        if jobs_meant > most:
            raise TooMany(
                f"these entries mean over {most} jobs (limits.batch_jobs)",
                remedy="name the rest in another request",
            )
        jobs = each.jobs if each.array is None else [*each.jobs, each.array.template]
        for job in {(each.owner, each.queue, each.team, each.placement): each for each in jobs}.values():
            require_no_series(job, name)
            if not relations(call.core, call.caller, job) & MAY_CHANGE:
                raise not_yours(job)
        if each.array is not None and _one_by_one(action, name):
            refuse_pieces(each.array, without(each.array.left, each.places), each.array.cancelled)
        call.core.intake.verbs.check(call.caller, action, jobs)
        meant.append((name, each))
        await asyncio.sleep(0)
    return meant


def _entries(call: Call, action: JobAction) -> Iterator[str]:
    """What is named, with its steps in place of a pipeline."""
    for name in action.jobs:
        yield from call.core.views.steps(call.caller, name) or (name,)


def _one_by_one(action: JobAction, name: str) -> bool:
    """Whether tasks that are not expanded become jobs by it: some of an array that are not cancelled are no longer as the rest."""
    return action.verb != "cancel" and bool(read_address(name).indices)


async def _act_on(call: Call, action: JobAction, name: str, meant: Meant) -> ActedOn:
    intake, rest = call.core.intake, NOTHING
    if meant.array is not None and not (meant.jobs or meant.array.id in call.core.records.job_arrays):
        ended = f"{meant.label} has ended"
        return ActedOn(name, meant.label, 0, size(meant.named), status={}, because=ended, left_because=ended)
    if meant.array is not None and not _one_by_one(action, name):
        rest = await intake.verbs.act_on_rest(call.caller, action, meant.array.id, meant.places)
        more = _became_jobs(call, meant.array, meant.places)
    else:
        more = [job.id for job in meant.tasks]
    ids = [*(job.id for job in meant.jobs), *more]
    acted = await intake.verbs.act(call.caller, action, ids)
    now = [job for job in map(call.core.records.known_job, ids) if job is not None]
    status = Counter(str(job.status) for job in now) + _unexpanded(call, meant)
    return ActedOn(
        name=name,
        label=meant.label,
        changed=acted.changed + rest.changed,
        left=acted.left + rest.left,
        status=dict(status),
        because=acted.because or rest.because or next((job.because for job in now), ""),
        left_because=acted.left_because or rest.left_because,
    )


def _became_jobs(call: Call, array: JobArray, places: Spans) -> list[str]:
    """Tasks at these places, none of which was a job, that are jobs now. Never by the name, which may be that of another array by now."""
    tasks, indices = call.core.records.arrays.get(array.id, {}).values(), array.indices
    return [job.id for job in tasks if has(places, indices.index(job.array_index or 0))]


def _unexpanded(call: Call, meant: Meant) -> Counter[str]:
    """How many of the tasks that are meant and are no jobs are in each status now."""
    array = call.core.records.job_arrays.get(meant.array.id) if meant.array is not None else None
    if array is None:
        return Counter()
    left, cancelled = size(both(array.left, meant.places)), size(both(array.cancelled, meant.places))
    return Counter({str(array.template.status): left}) + Counter({str(JobStatus.CANCELLED): cancelled})


async def rerun(call: Call) -> Submitted:
    """Submit again what has ended."""
    asked, now = await call.body(Rerun), call.core.clock.now()
    if call.core.views.steps(call.caller, asked.job):
        return await _rerun_steps(call, asked, now)
    meant = await call.core.views.find_all(call.caller, asked.job)
    records, of = call.core.records, (meant.array, meant.named)
    request = request_again(records, call.caller, meant.jobs, of, failed=asked.failed, now=now)
    if not call.core.notifications.reachable(call.caller.name):
        request = replace(request, notify=())
    client_id = client_id_of(call.request.headers.get("Idempotency-Key"), request)
    return await call.core.intake.submit(
        call.caller, request, client_id=client_id, body_hash=hash_of(msgspec.to_builtins(asked))
    )


async def _rerun_steps(call: Call, asked: Rerun, now: float) -> Submitted:
    """The same of a pipeline."""
    steps = steps_of(call.core.records, call.core.views.pipeline(call.caller, asked.job))
    request = steps_again(call.core.records, call.caller, steps, failed=asked.failed, now=now)
    if not call.core.notifications.reachable(call.caller.name):
        quiet = (step._replace(request=replace(step.request, notify=())) for step in request.steps)
        request = request._replace(steps=tuple(quiet))
    client_id = client_id_of(call.request.headers.get("Idempotency-Key"), request)
    body_hash = hash_of(msgspec.to_builtins(asked))
    return await call.core.intake.submit_steps(call.caller, request, client_id=client_id, body_hash=body_hash)
