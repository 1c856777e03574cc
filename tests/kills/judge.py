"""The judge: reads the jobs' own files, the provider's bill and the API, and nothing that the dispatcher says of itself in passing."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from federator.model.capacity import LEASE_ENDED, Instance
from federator.model.events import Event
from federator.model.jobs import JobStatus
from federator.wire.http import JobRow, LeaseRow

CENT_USD = 0.01


class Attempt(NamedTuple):
    """What one rank of one placement has written: when it lived, by the boot clock, and whether it came to its end."""

    job: str
    placement: str
    rank: int
    first_s: float
    last_s: float
    ended: bool


def read_attempts(folder: Path) -> list[Attempt]:
    """All attempts that ever wrote a line. A line cut short by a kill is left out."""
    found = []
    for path in folder.glob("*.*"):
        job, placement, rank, _pid = path.name.split(".")
        lines = [line.split() for line in path.read_text().splitlines()]
        times = [float(line[1]) for line in lines if len(line) == 2 and line[1].count(".") == 1]
        if times:
            ended = any(line[0] == "end" for line in lines)
            found.append(Attempt(job, placement, int(rank), min(times), max(times), ended))
    return found


def overlaps(attempts: Iterable[Attempt]) -> list[str]:
    """Promise 2: two placements of one job never run at the same real time; nor does one rank of a placement twice."""
    by_job: defaultdict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_job[attempt.job].append(attempt)
    faults = []
    for job, tries in by_job.items():
        tries.sort(key=lambda attempt: attempt.first_s)
        for number, one in enumerate(tries):
            for other in tries[number + 1 :]:
                same_gang = one.placement == other.placement and one.rank != other.rank
                if not same_gang and other.first_s < one.last_s:
                    faults.append(
                        f"{job}: {other.placement} rank {other.rank} began {one.last_s - other.first_s:.2f} s before {one.placement} was over"
                    )
    return faults


def judge(
    acknowledged: Iterable[str],
    rows: dict[str, JobRow],
    history: dict[str, list[Event]],
    attempts: list[Attempt],
    nodes: dict[str, int],
) -> list[str]:
    """Everything that is wrong: lost, unfinished, accepted twice, accepted without having run, run twice at once."""
    faults = overlaps(attempts)
    ended: defaultdict[str, defaultdict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for attempt in attempts:
        if attempt.ended:
            ended[attempt.job][attempt.placement].add(attempt.rank)
    for job in acknowledged:
        row = rows.get(job)
        if row is None:
            faults.append(f"{job}: acknowledged and lost")
            continue
        if row.status != JobStatus.SUCCEEDED:
            faults.append(f"{job}: {row.status}: {row.because}")
            continue
        accepted = [event for event in history[job] if event.kind == "succeed"]
        if len(accepted) != 1:
            faults.append(f"{job}: accepted {len(accepted)} times")
        elif not any(len(ranks) == nodes[job] for ranks in ended[job].values()):
            faults.append(f"{job}: accepted, but no attempt came to its end with all {nodes[job]} ranks")
    return faults


def check_bill(leases: Iterable[LeaseRow], bill: Iterable[Instance]) -> list[str]:
    """What the provider lists and what we believe to have rented are the same machines, all over, for the same money."""
    ours, theirs = {lease.id: lease for lease in leases}, {instance.name: instance for instance in bill}
    faults = [
        f"lease {lease.id} is still {lease.status}"
        for lease in ours.values()
        if lease.status not in LEASE_ENDED
    ]
    faults += [f"machine {name} belongs to no lease" for name in sorted(theirs.keys() - ours.keys())]
    faults += [
        f"machine {each.name} is still {each.status}" for each in theirs.values() if each.ended_at is None
    ]
    for name, lease in ours.items():
        billed_usd = theirs[name].billed_usd if name in theirs else 0.0
        if abs(billed_usd - lease.billed_usd) > CENT_USD:
            faults.append(f"lease {name} was {lease.billed_usd:.2f} USD here and {billed_usd:.2f} USD there")
    return faults
