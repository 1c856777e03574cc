"""What is asked once nothing goes wrong any more: why jobs wait, whether anything idles beside them, whether decisions replay, and whether the books are whole.

Reasons and replays are asked of the dispatcher, as its users would; what idles is counted on the machines, and the books are read from the disk.
"""

from collections import Counter

import msgspec

from federator.kernel.errors import FederatorError
from federator.model.events import LedgerEntry, LedgerKind
from federator.model.jobs import Job, JobStatus
from federator.model.placements import Placement
from federator.model.plans import Waiting
from federator.planning.wording.told import told_waiting
from tests.lab.faults.dispatchers import Dispatcher
from tests.lab.faults.plan import LOCAL
from tests.lab.faults.stores import at_once
from tests.lab.faults.world import World

PROBES = 6
"""Looks in a row, a minute apart, in which a job waits beside the same idle GPUs, before that counts."""
SETTLE_S = 600.0
"""After the faults, agents come back and report; what was refused or has failed waits a little before it is tried again."""
REPLAYS = 3
HELD = " are held for "
"""So a reason names for whom free GPUs are held, and until when."""


class Questions:
    """Asked again and again while all is calm."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since_s = world.loop.time()
        self._beside: Counter[tuple[str, str]] = Counter()
        """Jobs and the members whose idle GPUs they wait beside, with the number of looks in a row."""

    async def look(self) -> None:
        """Once a minute."""
        if self._world.loop.time() - self._since_s < SETTLE_S:
            return
        pairs = {(job.id, member) for job in self._waiting() for member in self._idle_for(job)}
        self._beside = Counter({pair: self._beside[pair] + 1 for pair in sorted(pairs)})
        for (job, member), looks in self._beside.items():
            why = self._why(job)
            if looks >= PROBES and (why is None or HELD not in why.because):
                because = why.because if why is not None else "nothing is said of it"
                self._world.truth.find(13, f"{job} waits beside idle GPUs of {member}: {because}")

    async def ask_why(self) -> None:
        """Now and then: everything pending has a reason that its user can read."""
        pending = [job.id for job in self._world.truth.rows.jobs.values() if job.status is JobStatus.PENDING]

        async def ask(server: Dispatcher) -> list[str]:
            core = server.serving()
            present = [core.records.jobs[name] for name in pending if name in core.records.jobs]
            waiting = [job for job in present if job.status is JobStatus.PENDING]
            return [job.id for job in waiting if not (await core.views.explain(job)).because]

        for job in await self._world.users.ask(ask):
            self._world.truth.find(10, f"{job} is pending, and nobody says why")

    async def replay(self) -> None:
        """The last decisions come out as they were recorded."""

        async def ask(server: Dispatcher) -> list[str]:
            core = server.serving()
            rows = core.decisions.rows()[-REPLAYS:]
            answers = [(row.id, await core.decisions.replay(row.id)) for row in rows]
            return [f"{name}: {answer.differences}" for name, answer in answers if not answer.identical]

        try:
            different = await self._world.users.ask(ask)
        except FederatorError as error:
            different = [f"it cannot be replayed: {error!r}"]
        for what in different:
            self._world.truth.find(8, f"a decision replays differently: {what}")

    def read_the_books(self) -> None:
        """Every job that was accepted, and every attempt that has run, is in the ledger, once."""
        entries = _ledger(self._world)
        rows = self._world.truth.rows
        submitted = {entry.job for entry in entries if entry.what.startswith(("submit ", "admitted "))}
        used = Counter(entry.job for entry in entries if entry.kind is LedgerKind.USAGE)
        ran = Counter(each.job for each in rows.placements.values() if _has_run(each))
        for name, job in rows.jobs.items():
            if (
                (job.array or name) not in submitted
                and name not in submitted
                and not _of_array(job, submitted, rows.jobs)
            ):
                self._world.truth.find(1, f"the ledger does not say who submitted {name}")
            if used[name] != ran[name]:
                self._world.truth.find(
                    1, f"{name} has run {ran[name]} times, and the ledger has {used[name]} uses"
                )

    # -- idle GPUs ----------------------------------------------------------------------------------------------------

    def _waiting(self) -> list[Job]:
        """Jobs that nothing but room could keep from starting: single ones of a queue without a limit, while no gang waits for room of its own."""
        rows = self._world.truth.rows
        pending = [job for job in rows.jobs.values() if job.status is JobStatus.PENDING]
        plans = self._world.plan.works()
        if any(plans[job.name].nodes > 1 for job in pending):
            return []
        now_at = self._world.dispatchers[0].clock.now()
        return [
            job
            for job in pending
            if job.queue not in self._world.truth.policies.limits
            and (job.not_before_at or 0.0) < now_at - 60.0
            and job.resume_site is None  # it goes on from what it saved, there and nowhere else
            and job.deadline_at is None
            and not plans[job.name].reads  # it follows another
        ]

    def _idle_for(self, job: Job) -> list[str]:
        """Members of our own that may take it, that have room for it on one host, by their hardware and by what is written of them, and that no policy closes."""
        work = self._world.plan.works()[job.name]
        gpus = work.gpus
        now_s, found = self._world.loop.time(), []
        closing = {each.site for each in self._world.truth.policies.closings if not each.is_over(now_s)}
        for member in self._world.plan.members:
            host = self._world.hosts[member]
            outlives = host.plan.runtime != LOCAL
            if host.plan.site in closing or (outlives and work.stop_within_s):
                continue
            taken = sum(len(rank.slot.gpus) for rank in self._world.truth.live() if rank.member == member)
            held = sum(_gpus_at(each, member) for each in self._world.truth.rows.placements.values())
            # On several hosts what is free may be in pieces: then only a host's worth more than the pieces is room.
            pieces = (host.plan.nodes - 1) * (gpus - 1)
            if (
                member in self._world.lives
                and host.plan.nodes * host.plan.gpus - max(taken, held) >= gpus + pieces
            ):
                found.append(member)
        return found

    def _why(self, job: str) -> Waiting | None:
        """What the newest plan says of it."""
        cores = [each.core for each in self._world.dispatchers if each.core is not None]
        found = next((core.turn.waiting[job] for core in cores if job in core.turn.waiting), None)
        return None if found is None else told_waiting(found, self._world.loop.time())


def _gpus_at(placement: Placement, member: str) -> int:
    """What an attempt that is not over holds there."""
    if placement.ended:
        return 0
    return placement.members.count(member) * placement.gpus_per_node


def _has_run(placement: Placement) -> bool:
    return placement.started_at is not None and placement.ended_at is not None


def _of_array(job: Job, submitted: set[str], jobs: dict[str, Job]) -> bool:
    """Of an array the first task stands for all."""
    return job.array is not None and any(
        each.array == job.array and each.id in submitted for each in jobs.values()
    )


def _ledger(world: World) -> list[LedgerEntry]:
    decoder = msgspec.json.Decoder(LedgerEntry)
    found: list[LedgerEntry] = []
    after: str | None = None
    while True:
        page = at_once(world.disk.store.range("ledger/", after=after, limit=5000))
        found += [decoder.decode(item.value) for item in page.items]
        after = page.next_after
        if after is None:
            return found
