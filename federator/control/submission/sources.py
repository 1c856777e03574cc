"""What a submission may read of the outputs of other jobs: those that its owner may read, of jobs that collect any."""

from federator.control.administration.authority import Authority
from federator.control.record.records import Records
from federator.kernel.errors import Forbidden, Invalid
from federator.model.arrays import JobArray
from federator.model.identity import Caller
from federator.model.jobs import InputFrom, Job
from federator.model.rights import MAY_READ
from federator.wire.inputs import check_collected

MOST_TASKS = 10_000
"""Tasks of an array that one job reads as a whole: each is an archive of its own."""
FIELD = "$.inputs"


def check_source(
    records: Records,
    authority: Authority,
    caller: Caller,
    source: InputFrom,
    first: Job,
    array: JobArray | None = None,
) -> None:
    """Raise what is wrong with reading that: `Forbidden` and `Invalid`. `first`: the job, or any task of the array; `array`: one of the archive."""
    placement = records.known_placement(first.placement)
    site = placement.site if placement is not None else ""
    if not authority.relations(caller, first, site) & MAY_READ:
        remedy = f"ask {first.owner} for a copy, or an administrator of queue {first.queue} for the right"
        raise Forbidden(
            f"{first.name} belongs to {first.owner}, and you may not read its outputs",
            field=FIELD,
            remedy=remedy,
        )
    tasks = 1 if source.job == first.id else _tasks(records, first, array)
    _check_collected(records, first, source, tasks=tasks)


def _check_collected(records: Records, first: Job, source: InputFrom, *, tasks: int) -> None:
    """Raise `Invalid` where it is known already that there is nothing to read."""
    check_collected(source, first.name, records.spec(first.spec_hash).outputs, FIELD)
    if tasks > MOST_TASKS and not source.each:
        raise Invalid(
            f"{first.name} has {tasks} tasks; the outputs of at most {MOST_TASKS} are read as a whole",
            field=FIELD,
            remedy="follow each task with one of an array of your own: after: {each: …}",
        )
    if first.array is None and first.terminal and records.known_outputs(first.id) is None:
        remedy = "run it again (federator rerun), and name the new one"
        raise Invalid(f"{first.name} has ended and left no outputs", field=FIELD, remedy=remedy)


def _tasks(records: Records, first: Job, array: JobArray | None) -> int:
    """How many tasks there are, with those that are no jobs yet, and those that are in the archive."""
    array = array or records.job_arrays.get(first.array or "")
    return len(array.indices) if array is not None else len(records.arrays.get(first.array or "", {}))
