"""A dispatcher on a store that is older than a gang over several hosts: it is put together again from what each host says of it."""

import msgspec

from federator.model.jobs import JobStatus
from federator.model.placements import (
    Cause,
    Order,
    Placement,
    PlacementReport,
    PlacementStatus,
    RankStatus,
)
from tests.support.dispatch import FakeSite, World, make_world
from tests.unit.control.test_reconciliation import back, backed_up, finished, restored, say_all

S = PlacementStatus


class Forgotten:
    """A gang over two hosts, and the dispatcher that was restored from before it was placed."""

    def __init__(self, again: World, hosts: list[FakeSite], job: str, placement: Placement) -> None:
        self.again = again
        self.one, self.two = hosts
        self.job = job
        self.id = placement.id
        self._placement = placement

    def word(self, host: FakeSite, status: S, *ranks: int, **fields: object) -> PlacementReport:
        return PlacementReport(
            placement=self.id,
            epoch=self._placement.epoch,
            seq=100,
            status=status,
            at=self.again.clock.now(),
            ranks=tuple(RankStatus(rank=rank, node="main/0") for rank in ranks),
            job=self.job,
            pool="main",
            **fields,  # type: ignore[arg-type]
        )

    async def say(self, host: FakeSite, *words: PlacementReport) -> None:
        await say_all(self.again, host, *words)

    @property
    def now(self) -> Placement:
        return self.again.core.records.placements[self.id]

    @property
    def status(self) -> JobStatus:
        return self.again.job(self.job).status


async def forgotten() -> Forgotten:
    world = await make_world()
    lab, other = await world.add_site("lab"), await world.add_member("lab", "lab-2")
    job = await world.submit(nodes=2, resources={"gpus": 4})
    backup = backed_up(world)
    placement = await world.place(job, "lab-2", "lab")
    again = await restored(world, backup)
    return Forgotten(again, [back(again, lab), back(again, other)], job, placement)


async def test_one_that_runs_on_all_its_hosts_goes_on() -> None:
    gang = await forgotten()
    at = gang.again.clock.now()
    await gang.say(gang.one, gang.word(gang.one, S.RUNNING, 1, started_at=at))
    assert gang.id not in gang.again.core.records.placements, "half of it is no gang"
    await gang.say(gang.two, gang.word(gang.two, S.RUNNING, 0, started_at=at))
    assert gang.now.members == ("lab-2", "lab")
    assert (gang.now.status, gang.now.order, gang.status) == (S.RUNNING, Order.RUN, JobStatus.RUNNING)
    assert await finished(gang.again)
    for host, rank in ((gang.one, 1), (gang.two, 0)):
        done = msgspec.structs.replace(gang.word(host, S.SUCCEEDED, rank, exit_code=0), seq=101)
        await gang.again.core.progress.absorb(host.name, (done,))
    assert gang.status is JobStatus.SUCCEEDED


async def test_one_that_is_only_reserved_is_told_to_run() -> None:
    gang = await forgotten()
    for host, rank in ((gang.one, 1), (gang.two, 0)):
        word = gang.word(host, S.ACCEPTED, rank, rendezvous=f"{host.name}:4000")
        await gang.say(host, word)
    assert (gang.now.status, gang.now.order) == (S.ACCEPTED, Order.RUN)
    assert gang.now.rendezvous == "lab-2:4000"


async def test_one_that_was_just_told_to_run_is_stopped_on_all_and_starts_anew() -> None:
    """Who accepted has not begun, and no longer knows where to meet the one who has."""
    gang = await forgotten()
    await gang.say(gang.one, gang.word(gang.one, S.ACCEPTED, 1, rendezvous="lab:4000"))
    await gang.say(gang.two, gang.word(gang.two, S.STARTING, 0))
    assert (gang.now.order, gang.now.ended) == (Order.STOP, False)
    for host in (gang.one, gang.two):
        stopped = msgspec.structs.replace(gang.word(host, S.STOPPED, cause=Cause.STOPPED), seq=101)
        await gang.again.core.progress.absorb(host.name, (stopped,))
    assert (gang.now.status, gang.status) == (S.STOPPED, JobStatus.PENDING)


async def test_half_a_gang_is_stopped_once_all_hosts_are_heard_and_its_job_starts_anew_only_then() -> None:
    gang = await forgotten()
    await gang.say(gang.one, gang.word(gang.one, S.RUNNING, 1, started_at=gang.again.clock.now()))
    assert not await finished(gang.again, within_s=0.5), "the other half may be at the other host"
    await gang.say(gang.two)
    assert await finished(gang.again)
    assert (gang.now.order, gang.now.ended) == (Order.STOP, False)
    await gang.again.core.turn.once()
    assert gang.again.job(gang.job).placement == gang.id, "it may still run"
    stopped = msgspec.structs.replace(gang.word(gang.one, S.STOPPED, 1, cause=Cause.STOPPED), seq=101)
    await gang.again.core.progress.absorb("lab", (stopped,))
    assert gang.status is JobStatus.PENDING


async def test_one_that_was_refused_leaves_nothing_to_wait_for() -> None:
    gang = await forgotten()
    for host in (gang.one, gang.two):
        await gang.say(host, gang.word(host, S.REFUSED, cause=Cause.CANNOT))
    assert await finished(gang.again)
    assert gang.status is JobStatus.PENDING
