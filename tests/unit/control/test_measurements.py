"""What work really uses: whose word counts, what stays of it, and who is told when GPUs idle."""

from typing import Any

import pytest

from federator.model.events import AlertKind, LedgerKind
from federator.model.jobs import JobStatus, TerminalReason
from federator.model.placements import Used
from federator.wire.link import Sample
from tests.support.dispatch import World, make_world
from tests.unit.control.test_quotas import queue

HALF = Used(
    sampled_s=100.0,
    cpu_s=50.0,
    memory_peak_mib=10,
    gpus_sampled_s=200.0,
    gpus_busy_s=100.0,
    gpu_memory_peak_mib=5,
)


async def running() -> tuple[World, str]:
    world = await make_world()
    await world.add_site("north", gpus=4)
    job = await world.submit(resources={"gpus": 2})
    await world.turn()
    await world.sites["north"].run_all()
    return world, job


def hear(world: World, job: str, used: Used, member: str = "north") -> None:
    world.core.inventory.measured(member, (Sample(world.placement(job).id, used),))


def known(world: World, job: str) -> Used | None:
    return world.core.views.row(world.job(job)).used


async def test_what_a_member_says_of_its_own_is_shown_and_stays_when_it_is_over() -> None:
    world, job = await running()
    assert known(world, job) is None
    hear(world, job, HALF, member="elsewhere")
    assert known(world, job) is None
    hear(world, job, HALF)
    assert known(world, job) == HALF
    assert world.core.views.detail(world.job(job)).used == HALF
    await world.sites["north"].finish(job)
    assert world.placement(job).used == HALF
    hear(world, job, Used(sampled_s=1.0))
    assert known(world, job) == HALF


async def test_an_agent_that_begins_anew_goes_on_from_what_it_had_said() -> None:
    world, job = await running()
    hear(world, job, HALF)
    hear(world, job, Used(sampled_s=10.0, cpu_s=1.0, gpus_sampled_s=20.0))
    used = known(world, job)
    assert used is not None
    assert (used.sampled_s, used.cpu_s) == (110.0, 51.0)
    assert used.gpus_busy == pytest.approx(100.0 / 220.0)
    hear(world, job, Used(sampled_s=20.0, cpu_s=2.0, gpus_sampled_s=40.0))
    again = known(world, job)
    assert again is not None
    assert again.sampled_s == 120.0


def test_hosts_beside_each_other_are_added_up() -> None:
    both = HALF.joined(Used(sampled_s=90.0, cpu_s=10.0, gpus_sampled_s=100.0, idle_s=60.0), beside=True)
    assert (both.sampled_s, both.cpu_s, both.gpus_sampled_s) == (100.0, 60.0, 300.0)
    assert both.idle_s == 0.0, "a gang idles when all of it does"


async def test_idle_gpus_are_told_once() -> None:
    world, job = await running()
    hear(world, job, Used(sampled_s=4000.0, gpus_sampled_s=8000.0, idle_s=1700.0))
    assert not await world.core.alerts.look()
    hear(world, job, Used(sampled_s=4200.0, gpus_sampled_s=8400.0, idle_s=1900.0))
    (alert,) = await world.core.alerts.look()
    assert alert.kind is AlertKind.IDLE
    assert "its 2 GPUs do nothing for 31m" in alert.text
    assert not await world.core.alerts.look()
    events = await world.core.views.events(job, None)
    assert [event.text for event in events if event.kind == "idle-gpus"] == [alert.text]


async def test_work_that_idles_ends_where_its_queue_says_so_and_nowhere_else() -> None:
    world = await make_world()
    await world.add_site("north", gpus=8)
    await world.policies(
        queue("strict", "{max_idle: 1h}") + queue("patient", "{max_idle: 3h}") + queue("free", "{}")
    )
    jobs = {
        name: await world.submit(queue=name, resources={"gpus": 1}) for name in ("strict", "patient", "free")
    }
    busy = await world.submit(queue="strict", resources={"gpus": 1})
    await world.turn()
    await world.sites["north"].run_all()
    for job, idle_s in ((busy, 0.0), *((each, 7200.0) for each in jobs.values())):
        hear(world, job, Used(sampled_s=7200.0, gpus_sampled_s=7200.0, idle_s=idle_s))
    await world.turn()
    assert [world.job(each).status for each in (busy, jobs["patient"], jobs["free"])] == [
        JobStatus.RUNNING
    ] * 3
    ended = world.job(jobs["strict"])
    assert (ended.status, ended.outcome.reason if ended.outcome else None) == (
        JobStatus.CANCELLED,
        TerminalReason.CANCELLED,
    )
    assert ended.outcome is not None
    assert ended.outcome.detail == "its GPUs did nothing for 2h; queue strict ends such work after 1h"
    revision = world.core.records.revision
    await world.turn()
    assert world.core.records.revision == revision, "what may idle for longer is not written again and again"


@pytest.mark.parametrize(
    ("verb", "status", "says"),
    [("requeue", JobStatus.PENDING, "requeues"), ("hold", JobStatus.HELD, "holds")],
)
async def test_work_that_idles_saves_itself_and_waits_again_or_is_held(
    verb: str, status: JobStatus, says: str
) -> None:
    world = await make_world()
    site = await world.add_site("north", gpus=8)
    await world.policies(queue("strict", f"{{max_idle: {{after: 1h, then: {verb}}}}}"))
    job = await world.submit(queue="strict", resources={"gpus": 1}, checkpoint={"grace": "60s"})
    await world.turn()
    await site.run_all()
    hear(world, job, Used(sampled_s=7200.0, gpus_sampled_s=7200.0, idle_s=7200.0))
    await world.turn()
    await site.run_all()  # it stops, and has saved itself
    assert world.job(job).status is status
    assert world.job(job).resume_site == "north"
    texts = [event.text for event in await world.core.views.events(job, None)]
    assert f"its GPUs did nothing for 2h; queue strict {says} such work after 1h" in texts


async def test_elastic_work_that_idles_goes_on_in_its_smallest_form_and_other_work_is_left() -> None:
    world = await make_world()
    site = await world.add_site("north", gpus=8)
    await world.policies(queue("strict", "{max_idle: {after: 1h, then: shrink}}"))
    saves: dict[str, Any] = {"checkpoint": {"grace": "60s"}, "resources": {"gpus": 1}, "queue": "strict"}
    elastic = await world.submit(nodes=4, min_nodes=1, max_nodes=4, **saves)
    other = await world.submit(**saves)
    await world.turn()
    await site.run_all()
    assert world.core.records.placements[world.job(elastic).placement or ""].nodes == 4
    for job in (elastic, other):
        hear(world, job, Used(sampled_s=7200.0, gpus_sampled_s=7200.0, idle_s=7200.0))
    await world.turn()
    await site.run_all()
    await world.turn()
    await site.run_all()
    assert [world.job(each).status for each in (elastic, other)] == [JobStatus.RUNNING] * 2
    assert [world.job(each).epoch for each in (elastic, other)] == [2, 1]
    placement = world.core.records.placements[world.job(elastic).placement or ""]
    assert placement.nodes == 1
    hear(world, elastic, Used(sampled_s=7200.0, gpus_sampled_s=7200.0, idle_s=7200.0))
    await world.turn()
    assert world.job(elastic).placement == placement.id, "it has no smaller form"
    texts = [event.text for event in await world.core.views.events(elastic, None)]
    assert "its GPUs did nothing for 2h; queue strict shrinks such work after 1h" in texts


async def test_idle_work_shrinks_to_a_form_on_gpus_such_as_it_has() -> None:
    """Kept to the smallest of all, it would wait for GPUs of which there are none."""
    world = await make_world()
    site = await world.add_site("north", gpus=8, model="A100")
    await world.policies(queue("strict", "{max_idle: {after: 1h, then: shrink}}"))
    kinds = {"any_of": [{"gpus": "A100:2"}, {"gpus": "H100:1"}]}
    saves: dict[str, Any] = {"checkpoint": {"grace": "60s"}, "resources": kinds, "queue": "strict"}
    job = await world.submit(nodes=2, min_nodes=1, max_nodes=2, **saves)
    await world.turn()
    await site.run_all()
    hear(world, job, Used(sampled_s=7200.0, gpus_sampled_s=7200.0, idle_s=7200.0))
    for _ in range(2):
        await world.turn()
        await site.run_all()
    placement = world.core.records.placements[world.job(job).placement or ""]
    assert (world.job(job).status, world.job(job).epoch) == (JobStatus.RUNNING, 2)
    assert (placement.model, placement.nodes, placement.gpus_per_node) == ("A100", 1, 2)


async def test_energy_is_written_down_per_attempt_and_summed_per_job() -> None:
    """The agent has begun anew in the middle, and what it had said before counts."""
    world, job = await running()
    hear(
        world, job, Used(sampled_s=3600.0, energy_kwh=0.5, power_sampled_s=7200.0, power_usd=0.15, co2_kg=0.2)
    )
    hear(world, job, Used(sampled_s=60.0, energy_kwh=0.25, power_sampled_s=120.0, power_usd=0.05, co2_kg=0.1))
    await world.sites["north"].finish(job)
    assert world.job(job).energy_kwh == 0.75
    (line,) = [line for line in await world.core.views.ledger() if line.kind is LedgerKind.USAGE]
    assert [line.energy_kwh, line.power_usd, line.co2_kg] == pytest.approx([0.75, 0.2, 0.3])


async def test_where_no_power_is_measured_no_energy_is_written_down() -> None:
    world, job = await running()
    hear(world, job, HALF)
    await world.sites["north"].finish(job)
    assert world.job(job).energy_kwh == 0.0
