"""The archive of jobs that have ended: what a row of its files has, which files there are, and what is asked of them.

A row has the facts that lists, orders and sums ask for as columns, so that a question reads these alone; and the job's records as the store had
them, as text, so that whoever is shown an old job is shown the same as when it was young.
"""

from typing import Literal

import msgspec


class ArchivedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A row of a file. Times in seconds since the epoch; texts named `_json` are records as the store keeps them."""

    id: str
    name: str
    owner: str
    team: str
    queue: str
    status: str
    array: str | None
    array_index: int | None
    series: str | None
    site: str
    """Of its last attempt,"""
    model: str
    """and the GPU model."""
    submitted_at: float
    started_at: float | None
    finished_at: float
    deadline_at: float | None
    priority: int
    gpus: float
    """Over all nodes."""
    gpu_s: float
    spent_usd: float
    reason: str
    """Kind of the reason why it is as it is."""
    labels: list[str]
    """As `KEY=VALUE`."""
    missed_deadline: bool | None
    start_kept: bool | None
    """Whether it started as was told first; None where nothing was."""
    finish_kept: bool | None
    """The same of its end,"""
    cost_kept: bool | None
    """and of what it cost."""
    attempts: list[str]
    """Ids of its placements."""
    blobs: list[str]
    """Hashes of its work directory and outputs."""
    job_json: str
    spec_json: str
    placements_json: str
    outputs_json: str | None
    events_json: str
    client_key: str | None
    """Under which its owner submitted it, as `OWNER/ID`,"""
    client_json: str | None
    """and what that made; of an array at its first task."""
    line_json: str | None
    """Of the first task of an array: the array as a line of a list,"""
    sum_json: str | None
    """and all its tasks added up."""


def text_bytes(row: ArchivedJob) -> int:
    """How much text a row has, as far as it may be much."""
    texts = (row.job_json, row.spec_json, row.placements_json, row.outputs_json or "", row.events_json)
    return sum(map(len, texts))


class ArchivedShare(msgspec.Struct, frozen=True, gc=False):
    """What one person has in a file, in one queue and under one team."""

    owner: str
    team: str
    queue: str
    jobs: int
    log_bytes: int = 0
    blob_bytes: int = 0
    """Of outputs."""


class ArchiveFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the archive, by the hash of its bytes."""

    id: str
    digest: str
    size_bytes: int
    jobs: int
    first: str
    last: str
    """Ids of its first and last job."""
    finished_from: float
    finished_until: float
    """When the first and the last of its jobs ended."""
    shares: tuple[ArchivedShare, ...]
    moved: bool = False
    """Whether the rows of its jobs are out of the store: until then those that are there still count, and the archive's do not."""
    void: tuple[str, ...] = ()
    """Jobs that changed while the file was written: its rows of them do not count."""
    bare: bool = False
    """Whether the logs and outputs of its jobs are gone."""
    bare_for: tuple[str, ...] = ()
    """Of which people they are gone, where not of all."""


class FilePart(msgspec.Struct, frozen=True):
    """What counts of a file: rows of ids before `below` (None: all), and none of `void`."""

    digest: str
    below: str | None = None
    void: tuple[str, ...] = ()
    last: str = ""
    """The greatest id in it; empty: not known."""


class ArchiveFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows are asked for; what is empty leaves all."""

    ids: tuple[str, ...] = ()
    begins: str = ""
    """What the id begins with."""
    before: str = ""
    """What the id comes before."""
    owner: str = ""
    queue: str = ""
    """With those below it."""
    statuses: tuple[str, ...] = ()
    name: str = ""
    text: str = ""
    """What the name has somewhere, or the id begins with; in lower case."""
    site: str = ""
    reason: str = ""
    since_at: float | None = None
    until_at: float | None = None
    """Submitted at or after the one, and before the other."""
    ended_since_at: float | None = None
    ended_until_at: float | None = None
    array: str = ""
    indices: tuple[int, ...] = ()
    series: str = ""
    labels: tuple[str, ...] = ()
    shown: tuple[tuple[str, str, str], ...] | None = None
    """Owner, queue and team of what is shown; None: all is,"""
    sites: tuple[str, ...] = ()
    """and beside it what ran there last."""


class ArchivePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of an order, as lists have it."""

    order: str = ""
    """Of which column; empty: of the ids."""
    largest: bool = True
    after: tuple[float | str, str] | None = None
    limit: int = 100
    collapse: bool = False
    """Whether an array is one line."""


class StoredJob(msgspec.Struct, frozen=True, gc=False):
    """A job's records as they were stored."""

    job_json: str
    spec_json: str
    placements_json: str
    outputs_json: str | None
    events_json: str | None = None
    """None where they were not asked for."""


class UsageSum(msgspec.Struct, frozen=True):
    """Jobs of one group, added up."""

    group: tuple[str, ...]
    jobs: int
    succeeded: int
    started: int
    wait_s: float
    longest_wait_s: float
    deadlines: int
    deadlines_met: int
    starts_told: int
    starts_kept: int
    finishes_told: int
    finishes_kept: int
    costs_told: int
    costs_kept: int


Column = Literal["user", "team", "queue", "site", "model", "month", "day"]
