"""Pipelines by what people call them: the jobs and arrays that are the steps of one."""

from federator.control.administration.visibility import Sight
from federator.control.record.records import Records
from federator.model.jobs import Job


def pipeline_named(records: Records, sight: Sight, owner: str, name: str) -> str:
    """The id of the newest pipeline of that name, that owner's first, or of the one with that id; empty where none is shown."""
    found: list[tuple[bool, str]] = []
    for pipeline, jobs in records.pipelines.items():
        first = next(iter(jobs.values()))
        if name in (pipeline, name_of(first)) and sight.job(first):
            found.append((first.owner == owner, pipeline))
    return max(found, default=(False, ""))[1]


def steps_of(records: Records, pipeline: str) -> dict[str, Job]:
    """Its steps in order, by the id of the job or array: the job, or one that stands for the tasks."""
    found = {row.id: row.template for row in records.job_arrays.values() if row.template.pipeline == pipeline}
    for job in records.pipelines.get(pipeline, {}).values():
        found[job.array or job.id] = job
    return dict(sorted(found.items()))


def name_of(job: Job) -> str:
    """That of the pipeline which a job is a step of."""
    return job.name.rpartition(".")[0]
