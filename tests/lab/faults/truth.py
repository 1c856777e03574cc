"""What really runs, kept by the world itself, and the promises that can be judged by it alone, at the moment when they are broken.

Nothing here is asked of the dispatcher or of an agent: ranks say when they begin and end, the disk of the store says what was written.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import json

from federator.control.record.records import TABLES
from federator.model.allotments import LocalJob
from federator.model.capacity import Lease
from federator.model.jobs import Job, JobSpec
from federator.model.placements import Order, Placement, PlacementStatus
from federator.model.rules import PolicySet
from federator.model.series import Series
from federator.ports import Transaction
from tests.lab.faults.journal import Journal
from tests.lab.faults.plan import JobPlan, Plan
from tests.lab.faults.policies import Policies
from tests.lab.faults.processes import FaultLoop
from tests.lab.faults.ranks import RealRank

MOST_FINDINGS = 5
CLOCKS_SET_S = 150.0
"""By so much the clock of a host may be wrong that says how long something ran, of two GPUs."""
SHORTEST_S = 1.0
Row = Job | Placement | Lease | Series | PolicySet


class Finding(msgspec.Struct, frozen=True):
    """A promise that was broken. `promise` 0: none of the thirteen, but something that must not happen either."""

    promise: int
    what: str
    at_s: float


class LocalWork(NamedTuple):
    """What a member has admitted by itself; its disk may have been lost since."""

    job: LocalJob
    member: str
    forgotten: bool = False


class Rows:
    """The rows of the store as they were written, decoded from its own bytes."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.placements: dict[str, Placement] = {}
        self.leases: dict[str, Lease] = {}
        self.series: dict[str, Series] = {}
        self.policy_sets: dict[str, PolicySet] = {}
        tables: dict[type[Any], dict[str, Any]] = {
            Job: self.jobs,
            Placement: self.placements,
            Lease: self.leases,
            Series: self.series,
            PolicySet: self.policy_sets,
        }
        self._by_prefix: dict[str, tuple[msgspec.json.Decoder[Any], dict[str, Any]]] = {
            TABLES[kind].prefix.rstrip("/"): (msgspec.json.Decoder(kind), table)
            for kind, table in tables.items()
        }

    def take(self, transaction: Transaction) -> list[Row]:
        """Take in what was written; the rows of it."""
        rows: list[Row] = []
        for put in transaction.puts:
            prefix, _, name = put.key.partition("/")
            known = self._by_prefix.get(prefix)
            if known is not None:
                row = known[0].decode(put.value)
                known[1][name] = row
                rows.append(row)
        for key in transaction.deletes:
            prefix, _, name = key.partition("/")
            known = self._by_prefix.get(prefix)
            if known is not None:
                known[1].pop(name, None)
        return rows


class Truth:
    """All ranks, where they run, and what they came to."""

    def __init__(self, plan: Plan, loop: FaultLoop, journal: Journal) -> None:
        self.rows = Rows()
        self.policies = plan.policies
        """The set in force, by what is durable."""
        self._placed_under: dict[str, Policies] = {}
        """Of each placement, the set that was in force when it was written first."""
        self.findings: list[Finding] = []
        self.accepted: dict[str, JobPlan] = {}
        """Jobs that were acknowledged to their users, by id."""
        self.seated: set[tuple[str, str]] = set()
        """Placements that a member has ever held slots for, by its disk."""
        self.succeeded: set[str] = set()
        """Placements of which all ranks have come to their own good end."""
        self.local: dict[str, LocalWork] = {}
        """Placements that a member has ever admitted by itself, by its disk."""
        self.called_off: dict[str, str] = {}
        """Jobs whose cancellation a member has acknowledged by itself, and that member."""
        self._unseen: set[tuple[str, str]] = set()
        """Attempts of which a member has forgotten everything before the store knew that it had begun with them."""
        self._meant_s: dict[tuple[str, str], float] = {}
        """When a member's disk first said that it ends its part of a placement."""
        self._plan = plan
        self._loop = loop
        self._journal = journal
        self._work = plan.works()
        self._live: defaultdict[str, dict[tuple[str, int], RealRank]] = defaultdict(dict)
        """By job, the ranks that run now."""
        self._all: defaultdict[str, dict[int, RealRank]] = defaultdict(dict)
        """By placement, the ranks that ever ran."""
        self._waiting: defaultdict[str, list[tuple[RealRank, Callable[[RealRank], None]]]] = defaultdict(list)
        self._saved_s: dict[tuple[str, str], float] = {}
        self._attempts: defaultdict[str, int] = defaultdict(int)

    def find(self, promise: int, what: str) -> None:
        """A promise is broken."""
        self._journal.note("WATCH", f"promise {promise} is broken: {what}")
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(Finding(promise, what, self._loop.time()))

    @property
    def now_s(self) -> float:
        """True time."""
        return self._loop.time()

    def live(self) -> Iterator[RealRank]:
        """All ranks that run now."""
        for ranks in self._live.values():
            yield from ranks.values()

    def runs(self, job: str) -> bool:
        """Whether anything of the job runs now."""
        return bool(self._live.get(job))

    def ever(self, placement: str) -> dict[int, RealRank]:
        """The ranks of a placement that ever ran."""
        return self._all.get(placement, {})

    def forgotten(self, member: str) -> None:
        """All that runs there ends, and its disk is empty. What the store has not seen to have begun may begin anew, for nobody can know better."""
        for placement in self.rows.placements.values():
            if member in placement.members:
                known = placement.part(member) or placement
                if known.status is PlacementStatus.ASSIGNED:
                    self._unseen.add((placement.id, member))
        for name, work in self.local.items():
            if work.member == member and not work.forgotten:
                self.local[name] = work._replace(forgotten=True)
                self.called_off.pop(work.job.job, None)
                if name not in self.rows.placements:  # it may be told and not heard yet
                    self._unseen.add((name, member))
                    self.accepted.pop(work.job.job, None)

    def admitted(self, job: LocalJob, member: str) -> None:
        """The member has written down that it has admitted it: within what its site may?"""
        if job.placement in self.local:
            return
        self.local[job.placement] = LocalWork(job, member)
        site = next(host.site for host in self._plan.hosts if host.member == member)
        allotment = next(each for each in self._plan.policies.allotments if each.site == site)
        works = [each for each in self.local.values() if each.member == member and not each.forgotten]
        if len(works) > allotment.jobs:
            self.find(5, f"{member} has admitted {len(works)} jobs of {allotment.jobs}")
        ran = [rank for each in works for rank in self.ever(each.job.placement).values()]
        plan = self._work[json.decode(job.spec, type=JobSpec).name]
        used_s = sum(
            len(rank.slot.gpus) * ((rank.ended_s or self._loop.time()) - rank.began_s) for rank in ran
        )
        most_s = plan.max_duration_s * plan.gpus * plan.nodes + used_s
        if most_s > allotment.gpu_h * 3600 + CLOCKS_SET_S * (1 + len(ran)):
            self.find(5, f"{member} has given {most_s / 3600:.2f} GPU-hours of {allotment.gpu_h:g}")

    def means_to_end(self, placement: str, member: str) -> None:
        """Its agent has written down that it ends its part, and asks its ranks to as soon as it can."""
        self._meant_s.setdefault((placement, member), self._loop.time())

    def meant_to_end(self, rank: RealRank) -> bool:
        """Whether it ended after that was written. Even if it was never asked: an agent that died in between cannot tell its end from that of work that has saved itself."""
        meant_s = self._meant_s.get((rank.placement, rank.member))
        return meant_s is not None and rank.ended_s is not None and meant_s <= rank.ended_s

    def placed(self, placement: Placement) -> bool:
        """It was written; whether for the first time."""
        first = placement.id not in self._placed_under
        self._placed_under.setdefault(placement.id, self.policies)
        return first

    # -- what ranks say -----------------------------------------------------------------------------------------------

    def began(self, rank: RealRank) -> None:
        """A rank runs from now on: is it alone, does it fit, is its gang whole?"""
        live = self._live[rank.job]
        for other in live.values():
            if other.placement != rank.placement:
                self.find(
                    2,
                    f"{rank.job} begins as {rank.name} at {rank.member}, and still runs as {other.name} at {other.member}",
                )
                break
        if rank.rank in self._all[rank.placement] and (rank.placement, rank.member) not in self._unseen:
            self.find(2, f"rank {rank.rank} of {rank.placement} is started a second time, at {rank.member}")
        if rank.job in self.called_off:
            self.find(1, f"{rank.job} begins as {rank.name}, and its site has said that it is cancelled")
        live[rank.placement, rank.rank] = rank
        self._all[rank.placement][rank.rank] = rank
        self._fits(rank)
        self._is_whole(rank)
        self._is_within_its_queue(rank)

    def ended(self, rank: RealRank) -> None:
        """It runs no more."""
        self._live[rank.job].pop((rank.placement, rank.rank), None)
        ranks = self._all[rank.placement]
        if len(ranks) == rank.spec.nodes and all(
            each.code == 0 and each.asked_s is None for each in ranks.values()
        ):
            self.succeeded.add(rank.placement)

    def _fits(self, rank: RealRank) -> None:
        """Promise 4, by the hardware: no GPU has two owners, no host more work than it holds."""
        here = [
            each for each in self.live() if each.member == rank.member and each.slot.host == rank.slot.host
        ]
        gpus = [gpu for each in here for gpu in each.slot.gpus]
        if len(gpus) != len(set(gpus)) or not set(gpus) <= set(rank.pool.numbers):
            self.find(
                4,
                f"{rank.slot.host} of {rank.member} has GPUs {sorted(gpus)} in use, after {rank.name} began",
            )
        if sum(each.slot.cpus_milli for each in here) > rank.pool.cpus_milli_per_node:
            self.find(4, f"{rank.slot.host} of {rank.member} has more CPUs in use than it has")

    def _is_whole(self, rank: RealRank) -> None:
        """Promise 3: all ranks at one site, and all of them seated before the first one runs."""
        row = self.rows.placements.get(rank.placement)
        if row is None and rank.placement in self.local:
            return
        if row is None:
            self.find(
                2, f"{rank.name} begins at {rank.member}, and the store knows nothing of {rank.placement}"
            )
            return
        if rank.slot.rank >= rank.spec.nodes:
            self.find(3, f"{rank.name}: a rank too many")
        sites = {each.site for each in self._all[rank.placement].values()}
        if len(sites) > 1:
            self.find(3, f"{rank.placement} has ranks at {', '.join(sorted(sites))}")
        missing = sorted({member for member in row.members if (rank.placement, member) not in self.seated})
        if missing:
            self.find(
                3, f"{rank.name} begins at {rank.member}, and {', '.join(missing)} has never held its part"
            )

    def _is_within_its_queue(self, rank: RealRank) -> None:
        """Promise 5: no queue uses more GPUs than its limit, by the policies under which the last of them was placed: what runs when a limit falls goes on."""
        if rank.placement in self.local:
            return
        ranks = [
            each for each in self.live() if each.queue == rank.queue and each.placement not in self.local
        ]
        placed = {each.placement for each in ranks}
        under = [policies for name, policies in self._placed_under.items() if name in placed]
        limit = under[-1].limits.get(rank.queue) if under else None
        used = sum(len(each.slot.gpus) for each in ranks)
        if limit is not None and used > limit:
            self.find(5, f"queue {rank.queue} uses {used} GPUs of {limit}, after {rank.name} began")

    def asked(self, rank: RealRank) -> None:
        """Promise 9: what is asked to end for the dispatcher's sake was ordered to, durably."""
        row = self.rows.placements.get(rank.placement)
        if rank.placement in self.local:
            return  # people there may cancel it
        if row is not None and row.order is not Order.STOP and not row.ended:
            self.find(9, f"{rank.name} is told to stop at {rank.member}, and nobody ordered that")

    # -- what only the world knows of the work -------------------------------------------------------------------------

    def work(self, rank: RealRank) -> JobPlan:
        """What it really is."""
        return self._work[rank.spec.name]

    def when_all_run(self, rank: RealRank, go_on: Callable[[RealRank], None]) -> None:
        """Call `go_on` once all ranks of its gang run: before that, none of them gets anywhere."""
        waiting = self._waiting[rank.placement]
        waiting.append((rank, go_on))
        ranks = self._all[rank.placement]
        if len(ranks) == rank.spec.nodes and all(each.ended_s is None for each in ranks.values()):
            del self._waiting[rank.placement]
            self._attempts[rank.job] += 1
            for each, go in waiting:
                go(each)

    def left_s(self, rank: RealRank) -> float:
        """How long it still runs."""
        done_s = self._saved_s.get((rank.job, rank.member), 0.0) if rank.resume else 0.0
        return max(SHORTEST_S, self.work(rank).run_s - done_s)

    def exit_code(self, rank: RealRank) -> int:
        """With which code it ends by itself."""
        return 1 if self._attempts[rank.job] <= self.work(rank).fails else 0

    def stubborn(self, rank: RealRank) -> bool:
        """Whether it heeds no signal but the last."""
        return self.work(rank).stubborn

    def saved(self, rank: RealRank) -> None:
        """It has saved itself here."""
        done_s = self._saved_s.get((rank.job, rank.member), 0.0) if rank.resume else 0.0
        self._saved_s[rank.job, rank.member] = done_s + self._loop.time() - rank.began_s
