"""Traces of jobs: the spans that their records make, with ids that anybody can compute.

A job has one trace, and its id is the job's own: the 128 bits of a ULID are as many as a trace id has. So the dispatcher, its successor after a crash, a line of the
log and the job itself name the same trace, and nobody has to keep or to send it.
"""

import hashlib

import msgspec

from federator.kernel.ids import JOB_ID, value_of

Attribute = str | int | float | bool


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Something that took its time. Times are seconds since the epoch."""

    job: str
    """Whose trace it is in."""
    name: str
    of: str = ""
    """The placement that it is of; empty: the job as a whole."""
    parent: str = ""
    """Name of the span around it, of the same placement or of the job."""
    start_at: float
    end_at: float
    error: str = ""
    """Why it failed; empty: it did not."""
    attributes: dict[str, Attribute] = {}

    @property
    def id(self) -> int:
        """Its own id, of 64 bits."""
        return span_id(self.job, self.of, self.name)

    @property
    def parent_id(self) -> int:
        """The id of the span around it; 0: it is the root."""
        if not self.parent:
            return 0
        return span_id(self.job, "" if self.parent == ROOT else self.of, self.parent)


ROOT = "job"
"""From the submission to the end."""
RUN = "run"
"""The job's processes, from the first rank's start to the last one's end; spans of the job itself are below it."""


def trace_id(job: str) -> int:
    """The trace of a job, by its id: 128 bits, never 0. What a restored site reports may have an id that is none of ours: of that, its digest."""
    if JOB_ID.fullmatch(job):
        return value_of(job) or 1
    return int.from_bytes(hashlib.sha256(job.encode()).digest()[:16], "big") or 1


def span_id(job: str, of: str, name: str) -> int:
    """The same for everybody who computes it, and never 0, which stands for none."""
    digest = hashlib.sha256(f"{job}/{of}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") or 1


def traceparent(job: str, placement: str) -> str:
    """What a job's processes find as `TRACEPARENT`, in the words of W3C Trace Context: their spans are below the run of this placement."""
    return f"00-{trace_id(job):032x}-{span_id(job, placement, RUN):016x}-01"


def sampled(job: str, share: float) -> bool:
    """Whether a job is among the `share` (0 to 1) whose traces are kept: by its id, so that all who ask agree."""
    return span_id(job, "", ROOT) < share * (1 << 64)
