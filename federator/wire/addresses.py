"""How people name jobs: by id or name, and tasks of an array by their indices in brackets, as in `sweep[3]` or `sweep[3-7]`."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from federator.kernel.errors import Invalid
from federator.model.arrays import Indices
from federator.model.jobs import Job
from federator.wire.fields import indices

ID_PREFIX = "job-"
LEAST_ID = len(ID_PREFIX) + 6
"""How much of a job's id names it, where no other job's id begins so."""
_INDEXED = re.compile(r"([^\[\]]*)\[([^\[\]]*)\]")


class Address(NamedTuple):
    """What was named."""

    name: str
    """Id or name of a job, or of an array."""
    indices: Indices = Indices(())
    """The tasks of it, in growing order; empty: none in particular."""


def read_address(text: str) -> Address:
    """The parts of what somebody wrote. Raises `Invalid` for brackets that hold no indices."""
    match = _INDEXED.fullmatch(text)
    return Address(text) if match is None else Address(match[1], indices(match[2], "JOB"))


def may_be_id(text: str) -> bool:
    """Whether somebody wrote an id, or how it begins."""
    return text.startswith(ID_PREFIX) and len(text) >= LEAST_ID


def begins_id(text: str, job: str) -> bool:
    """Whether the id of this job was written, or how it begins; a name otherwise."""
    return may_be_id(text) and job.startswith(text)


def names_array(name: str, job: Job) -> bool:
    """Whether that name, for which this job was found, means all tasks of its array: neither an id nor an index."""
    return job.array is not None and not begins_id(name, job.id) and not name.endswith("]")


def in_ranges(indices: Sequence[int]) -> str:
    """Indices in growing order as people write them: `0-3,7`, `0-99:5`."""
    return str(Indices.of(indices))


def one_task(name: str, indices: str, tasks: int, ended: Mapping[str, str], verb: str) -> Invalid:
    """That a verb is about one task of an array, which is named: the first that failed, where any did.

    `ended`: by how they ended, the indices of tasks, as `ArrayDetail` has both.
    """
    failed = next((which for why, which in ended.items() if why.startswith("FAILED")), "")
    first = re.split("[-,]", failed or indices)[0]
    which = "the first that failed" if failed else "one of them"
    return Invalid(
        f"{name} is an array of {tasks} task{'s' if tasks != 1 else ''}",
        field="JOB",
        remedy=f"name {which}: federator {verb} '{name}[{first}]'",
    )


def label_of_all(jobs: Sequence[Job]) -> str:
    """What people call them: a job by its name, tasks of an array by its name and their indices."""
    indices = sorted(job.array_index for job in jobs if job.array_index is not None)
    return f"{jobs[0].name}[{in_ranges(indices)}]" if indices else jobs[0].name
