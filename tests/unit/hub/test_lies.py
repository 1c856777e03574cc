"""An agent that lies, or is broken: it is told what is wrong, nothing it said counts, and nobody else notices."""

from typing import Any

import msgspec
import pytest

from federator.model.capacity import Pool, Shape
from federator.model.jobs import JobStatus
from federator.model.placements import PlacementReport, PlacementStatus, RankStatus
from federator.model.sites import AilingGpu, LocalWork, SiteReport
from federator.wire import link
from tests.unit.hub.agents import Agent, a_world, job_of, placement

HONEST = Pool(
    name="main",
    nodes=2,
    gpus_per_node=4,
    cpus_milli_per_node=8000,
    memory_mib_per_node=1000,
    free=(Shape(4, 8000, 1000, 2),),
    lent_gpus=8,
)


def with_shape(**fields: int) -> dict[str, Any]:
    shape = msgspec.structs.replace(Shape(4, 8000, 1000, 1), **fields)
    return {"pools": (msgspec.structs.replace(HONEST, free=(shape,)),)}


def with_pool(**fields: Any) -> dict[str, Any]:
    return {"pools": (msgspec.structs.replace(HONEST, **fields),)}


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "less than nothing is free": (with_shape(gpus=-4), "pools[0].free[0].gpus"),
    "CPUs below nothing": (with_shape(cpus_milli=-1), "pools[0].free[0].cpus_milli"),
    "a shape larger than its node": (with_shape(gpus=5), "pools[0].free[0].gpus"),
    "more memory free than there is": (with_shape(memory_mib=1001), "pools[0].free[0].memory_mib"),
    "more hosts free than there are": (with_shape(count=3), "pools[0].free[0].count"),
    "a thousand million hosts": (with_shape(count=10**9), "pools[0].free[0].count"),
    "more hosts than a pool can have": (with_pool(nodes=10**12), "pools[0].nodes"),
    "more hosts by many shapes": (with_pool(free=(Shape(1, 1, 1, 2), Shape(2, 1, 1, 2))), "pools[0].free"),
    "more lent than there is": (with_pool(lent_gpus=9), "pools[0].lent_gpus"),
    "GPUs below nothing": (with_pool(gpus_per_node=-1), "pools[0].gpus_per_node"),
    "a pool without a name": (with_pool(name=""), "pools[0].name"),
    "a label of a pool of a megabyte": (with_pool(labels={"rack": "x" * 2**20}), "pools[0].labels"),
    "a hundred labels of a pool": (with_pool(labels={f"l{n}": "x" for n in range(100)}), "pools[0].labels"),
    "one name for two pools": ({"pools": (HONEST, HONEST)}, "pools"),
    "a thousand pools": ({"pools": tuple(Pool(name=f"p{n}") for n in range(1000))}, "pools"),
    "a price below nothing": ({"pools": (HONEST,), "price_usd_gpu_h": -5.0}, "price_usd_gpu_h"),
    "local work on hosts below nothing": ({"pools": (HONEST,), "local_work": (LocalWork("main", -1, 4),)}, "local_work[0].nodes"),
    "a notice from before there was time": ({"pools": (HONEST,), "reclaim_at": -1.0}, "reclaim_at"),
    "more ailing GPUs than anybody has": ({"pools": (HONEST,), "ailing": (AilingGpu("main", "main/0", 0, ""),) * 5000}, "ailing"),
    "an ailment told at length": ({"pools": (HONEST,), "ailing": (AilingGpu("main", "main/0", 0, "x" * 2**20),)}, "ailing"),
    "a label of a megabyte": ({"pools": (HONEST,), "labels": {"a": "x" * 2**20}}, "labels"),
}  # fmt: skip


async def two_agents() -> tuple[Any, Agent, Agent]:
    """A world in which both have said something true."""
    world, agents = await a_world("north", "south")
    for agent in agents.values():
        await agent.open()
        await agent.told()
        agent.say(link.Report(SiteReport(taken_at=1.0, pools=(HONEST,))))
        assert await agent.silent()
    return world, agents["north"], agents["south"]


async def refused(agent: Agent) -> link.Refusal:
    answer = await agent.hear()
    assert isinstance(answer, link.Refusal), answer
    assert answer.code == "invalid"
    assert answer.retry_after_s == 60.0, "an agent that is repaired or brought up to date may come back"
    return answer


@pytest.mark.parametrize("lie", LIES)
async def test_a_report_that_cannot_be_true_is_refused_by_its_field_and_nothing_of_it_counts(
    lie: str,
) -> None:
    world, liar, honest = await two_agents()
    before = world.core.inventory.members["north"].report
    fields, where = LIES[lie]
    liar.say(link.Report(SiteReport(taken_at=2.0, **fields)))
    refusal = await refused(liar)
    assert f"$.report.{where}" in refusal.detail
    assert world.core.inventory.members["north"].report is before
    honest.say(link.Report(SiteReport(taken_at=3.0, pools=(HONEST,))))
    assert await honest.silent()
    assert world.core.inventory.members["south"].report.taken_at == 3.0
    await world.core.turn.observe()


async def test_what_an_honest_agent_reports_passes() -> None:
    world, _, _ = await two_agents()
    assert world.core.inventory.members["north"].report.pools == (HONEST,)


async def test_a_generation_from_the_future_renumbers_that_agent_and_no_other() -> None:
    world, liar, honest = await two_agents()
    row = placement("plc-1", "north", "south")
    await world.put(row, job_of(row))
    await liar.told(acknowledge=False)
    liar.say(link.DesiredAck(2**60, "digest"))
    again = await liar.told()
    assert again.whole
    assert again.generation > 2**60
    assert (await honest.told()).generation < 2**40


@pytest.mark.parametrize("number", [-1, 2**61, 2**80])
async def test_a_generation_that_is_no_number_of_ours_ends_the_session(number: int) -> None:
    _, liar, _ = await two_agents()
    liar.say(link.DesiredAck(number, "digest"))
    assert "generation" in (await refused(liar)).detail


@pytest.mark.parametrize("field", ["seq", "epoch", "exit_code"])
async def test_a_number_without_end_in_a_status_ends_the_session(field: str) -> None:
    _, liar, _ = await two_agents()
    report = PlacementReport(placement="x", epoch=1, seq=1, status=PlacementStatus.RUNNING, at=1.0)
    liar.say(link.Statuses((msgspec.structs.replace(report, **{field: 2**70}),)))
    assert f"$.reports[0].{field}" in (await refused(liar)).detail


async def test_a_node_with_an_endless_name_ends_the_session() -> None:
    _, liar, _ = await two_agents()
    report = PlacementReport(
        placement="x",
        epoch=1,
        seq=1,
        status=PlacementStatus.LOST,
        at=1.0,
        ranks=(RankStatus(0, node="n" * 1000),),
    )
    liar.say(link.Statuses((report,)))
    assert "$.reports[0].ranks" in (await refused(liar)).detail


async def test_statuses_of_what_it_does_not_have_or_of_another_epoch_change_nothing() -> None:
    """They are acknowledged all the same, or the agent would repeat them for ever."""
    world, liar, honest = await two_agents()
    row = placement("plc-1", "south")
    await world.put(row, job_of(row))
    await honest.told()
    revision = world.core.records.revision
    false = [("plc-1", 1), ("plc-nowhere", 1)]
    for seq, (name, epoch) in enumerate(false, 1):
        report = PlacementReport(
            placement=name, epoch=epoch, seq=seq, status=PlacementStatus.SUCCEEDED, at=1.0
        )
        liar.say(link.Statuses((report,)))
        assert await liar.hear() == link.StatusAck(seq)
    future = PlacementReport(placement="plc-1", epoch=7, seq=1, status=PlacementStatus.SUCCEEDED, at=1.0)
    honest.say(link.Statuses((future,)))
    assert await honest.hear() == link.StatusAck(1)
    assert world.core.records.revision == revision
    assert world.core.progress.anomalies == 3
    assert world.job(row.job).status is JobStatus.PLACED


async def test_statuses_out_of_order_bring_nothing_back() -> None:
    world, agent, _ = await two_agents()
    row = placement("plc-1", "north")
    await world.put(row, job_of(row))
    await agent.told()
    order = ["RUNNING", "ACCEPTED", "STARTING", "SUCCEEDED", "RUNNING", "FAILED", "REFUSED", "ASSIGNED", "REVOKED"]  # fmt: skip
    reports = tuple(
        PlacementReport(placement="plc-1", epoch=1, seq=seq, status=PlacementStatus(status), at=1.0)
        for seq, status in enumerate(order, 1)
    )
    agent.say(link.Statuses(reports))
    assert await agent.hear() == link.StatusAck(len(order))
    assert world.job(row.job).status is JobStatus.SUCCEEDED
    assert world.core.records.placements["plc-1"].status is PlacementStatus.SUCCEEDED


@pytest.mark.parametrize("at", [-1e15, 0.0, 1e18])
async def test_an_agents_clock_moves_no_job_out_of_its_time(at: float) -> None:
    """An end in 1970 would make the job older than its promise at once; one in a far year would keep it for ever."""
    world, agent, _ = await two_agents()
    assigned_at = world.clock.now()
    row = placement("plc-1", "north", assigned_at=assigned_at, gpus_per_node=4)
    await world.put(row, job_of(row))
    await agent.told()
    world.clock.advance(100.0)
    report = PlacementReport(
        placement="plc-1",
        epoch=1,
        seq=1,
        status=PlacementStatus.SUCCEEDED,
        at=at,
        started_at=-at,
        ended_at=at,
        detail="d" * 2**20,
    )
    agent.say(link.Statuses((report,)))
    assert await agent.hear() == link.StatusAck(1)
    job = world.job(row.job)
    assert assigned_at <= job.finished_at <= world.clock.now()
    assert 0.0 <= job.gpu_s <= 400.0
    assert len(world.core.records.placements["plc-1"].detail) <= 1000


async def test_a_hello_with_endless_names_is_refused() -> None:
    _, agents = await a_world("north")
    agent = agents["north"]
    agent.dial()
    agent.say(link.Hello(link.PROTOCOL, "north", "b" * 10_000, "v", "local"))
    refusal = await agent.hear()
    assert isinstance(refusal, link.Refusal)
    assert "boot_id" in refusal.detail
