"""What the demonstration found: records that `--json` writes and the end of it shows."""

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

import msgspec

from federator.model.capacity import BurstEvidence


class Check(msgspec.Struct, frozen=True):
    """Something that must hold, whether it does, and what was seen."""

    name: str
    holds: bool
    seen: str


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one job. `attempts` counts placements; `met` is None for a job that was never due."""

    name: str
    id: str
    owner: str
    queue: str
    status: str
    site: str
    market: str
    submitted_at: float
    started_at: float | None
    finished_at: float | None
    deadline_at: float | None
    met: bool | None
    attempts: int
    gpus: int
    lease: str = ""
    burst: BurstEvidence | None = None


class LeaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """One rental, by our books and by the provider's."""

    id: str
    offer: str
    status: str
    billed_usd: float
    provider_status: str
    provider_billed_usd: float
    evidence: BurstEvidence | None = None


class Survival(msgspec.Struct, frozen=True, kw_only=True):
    """The kill of the dispatcher: what was before and what was found after. `faults` is empty when nothing was lost."""

    killed_pid: int
    new_pid: int
    down_s: float
    """Real seconds without a dispatcher."""
    jobs_before: int
    jobs_after: int
    running_before: int
    kept: int
    """Running attempts that were still the same ones afterwards, same placement and epoch."""
    worked_on: int
    """Ranks that were at work while nobody was in charge."""
    faults: tuple[str, ...] = ()


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """What the same work comes to under one scheduler, simulated."""

    scheduler: str
    due: int
    missed: int
    rented_usd: float
    wait_mean_s: float
    """Of the jobs that started, until their first start."""
    done: int
    jobs: int


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The whole outcome."""

    speed: float
    began_at: float
    took_s: float
    """Real seconds, from the first process to the last."""
    jobs: tuple[JobResult, ...]
    leases: tuple[LeaseResult, ...]
    spent_usd: float
    cap_usd: float | None
    gpu_hours: dict[str, float]
    survival: Survival | None
    checks: tuple[Check, ...] = ()
    compared: tuple[Compared, ...] = ()
    """The same work, simulated under several schedulers."""

    @property
    def due(self) -> tuple[JobResult, ...]:
        """Jobs that had a deadline."""
        return tuple(job for job in self.jobs if job.met is not None)

    @property
    def met(self) -> int:
        """How many of them made it."""
        return sum(job.met is True for job in self.due)

    @property
    def ok(self) -> bool:
        """Whether everything that must hold does."""
        return all(check.holds for check in self.checks)


def write_result(path: Path, result: msgspec.Struct) -> None:
    """As JSON, indented."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")


def second_copies(journal: Iterable[str]) -> list[str]:
    """Every way in which the journal of the jobs shows that something ran twice: lines with `what`, `at`, `job`, `placement`, `rank`."""
    starts: dict[tuple[str, int], list[float]] = {}
    ends: dict[tuple[str, int], float] = {}
    attempts: dict[str, set[str]] = {}
    for text in journal:
        line: Mapping[str, object] = json.loads(text)
        placement, rank, at = str(line["placement"]), int(str(line["rank"])), float(str(line["at"]))
        attempts.setdefault(str(line["job"]), set()).add(placement)
        if line["what"] == "start":
            starts.setdefault((placement, rank), []).append(at)
        else:
            ends[placement, rank] = at
    faults = [
        f"rank {rank} of {placement} was started {len(times)} times"
        for (placement, rank), times in starts.items()
        if len(times) > 1
    ]
    for job, placements in attempts.items():
        spans = sorted(_span(placement, starts, ends) for placement in placements)
        faults += [
            f"two attempts of {job} ran at the same time"
            for (_, ended), (begun, _) in pairwise(spans)
            if begun < ended
        ]
    return faults


def _span(
    placement: str, starts: Mapping[tuple[str, int], list[float]], ends: Mapping[tuple[str, int], float]
) -> tuple[float, float]:
    """From the first start to the last known end of an attempt."""
    begun = min((min(times) for (name, _), times in starts.items() if name == placement), default=0.0)
    return begun, max((at for (name, _), at in ends.items() if name == placement), default=begun)
