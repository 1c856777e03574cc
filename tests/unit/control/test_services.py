"""Services: as many replicas as the load needs, each a job like any other; a changed file takes the place of the former, and nobody's outage takes one away."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from federator.control.queries.usage_report import UsageSums
from federator.kernel.errors import Conflict, Forbidden, Invalid, NotFound, TooMany
from federator.model.jobs import Job, JobStatus
from federator.model.placements import Cause
from federator.model.services import BACKOFF_S, Service
from federator.model.sites import GpuUse
from federator.wire.servicefile import read_service
from federator.wire.services import (
    GatewayReport,
    ReplicaRow,
    Routed,
    SeenLoad,
    SeenReplica,
    ServiceDetail,
)
from tests.support.dispatch import ADA, ADMIN, BOB, World, make_world, renting
from tests.unit.control.series_story import ledger

FILE: dict[str, Any] = {
    "kind": "service", "name": "chat", "run": "serve", "port": 8000, "resources": {"gpus": 1}, "replicas": {"min": 1, "max": 4},
    "target": {"requests_per_replica": 4, "p95_latency": "2s"},
}  # fmt: skip


async def a_world(**file: Any) -> World:
    world = await make_world()
    await world.add_site("lab", gpus=8)
    await apply(world, **file)
    await settle(world)
    return world


async def apply(world: World, canary: int = 0, **file: Any) -> ServiceDetail:
    asked = read_service({**FILE, **file}, now=world.clock.now())
    return await world.core.services.apply(ADA, asked, canary=canary)


async def settle(world: World, looks: int = 1) -> None:
    """Let the loop, the plan and the site do what they are to do."""
    for _ in range(looks):
        await world.core.replicas.look()
        await world.turn()


async def pass_time(world: World, seconds: float, at_once: float = 0.0, p95_s: float | None = None) -> Routed:
    """Let it pass, with a gateway that tells of that load every two seconds and finds all replicas ready."""
    routed = Routed()
    for _ in range(round(seconds / 2)):
        world.clock.advance(2.0)
        routed = tell(world, at_once, p95_s)
        await settle(world)
    return routed


def tell(
    world: World,
    at_once: float = 0.0,
    p95_s: float | None = None,
    *,
    ready: bool = True,
    gateway: str = "one",
    errors: tuple[int, ...] = (),
) -> Routed:
    answered = 20 if at_once else 0
    slow = answered if p95_s is not None and p95_s > 2 else 0
    running = [each for each in detail(world).replicas if each.health not in ("waiting", "gone")]
    replicas = tuple(
        SeenReplica(each.job, ready, answered=10, errors=10 if each.revision in errors else 0)
        for each in running
    )
    seen = SeenLoad("chat", at_once, 2.0, answered, answered - slow, slow, p95_s, replicas)
    return world.core.services.tell(ADA, GatewayReport((seen,), gateway))


def service(world: World) -> Service:
    return world.core.records.services["ada/chat"]


def detail(world: World) -> ServiceDetail:
    return world.core.services.detail(ADA, service(world))


def active(world: World) -> list[ReplicaRow]:
    return [each for each in detail(world).replicas if not each.draining]


def jobs(world: World) -> list[Job]:
    return sorted(
        (each for each in world.core.records.jobs.values() if each.name.startswith("chat-")),
        key=lambda job: job.id,
    )


async def test_its_replicas_are_jobs_like_any_other() -> None:
    world = await a_world(replicas=2)
    assert [(each.name, str(each.status)) for each in jobs(world)] == [
        ("chat-1", "RUNNING"),
        ("chat-2", "RUNNING"),
    ]
    spec = world.core.records.spec(jobs(world)[0].spec_hash)
    assert (spec.env["PORT"], spec.labels) == ("8000", {"service": "chat"})
    await settle(world, 5)
    assert len(jobs(world)) == 2
    assert detail(world).service.ready == 2


async def test_more_load_brings_more_replicas_and_less_takes_them_away_later() -> None:
    world = await a_world()
    routed = await pass_time(world, 10, at_once=11.0, p95_s=0.5)
    (found,) = routed.services
    assert (len(found.replicas), found.replicas[0].port, found.at_once_each) == (3, 8000, 8)
    assert "11.0 requests at a time" in detail(world).service.because
    await pass_time(world, 200, at_once=1.0)
    assert len(active(world)) == 3
    await pass_time(world, 150, at_once=1.0)
    assert [str(job.status) for job in jobs(world)].count("RUNNING") == 1
    assert [str(job.status) for job in jobs(world)].count("CANCELLED") == 2
    assert detail(world).service.attained == 1.0


async def test_the_loads_of_several_gateways_are_added_up() -> None:
    world = await a_world()
    for _ in range(5):
        world.clock.advance(2.0)
        tell(world, 6.0, gateway="one")
        tell(world, 5.0, gateway="two")
        await settle(world)
    assert len(active(world)) == 3
    assert detail(world).service.rate == 20.0
    tell(world, ready=False, gateway="two")
    await settle(world)
    assert {each.health for each in active(world)} == {"ready"}, "one of them finds it so"
    await pass_time(world, 20, at_once=6.0)
    newest = world.core.services.load("ada/chat").loads[-1]
    assert newest.at_once == 6.0, "a gateway that has ended counts no more"


async def test_the_ledger_has_the_level_attained_once_an_hour_and_at_the_end() -> None:
    world = await a_world()
    for _ in range(100):
        world.clock.advance(40.0)
        tell(world, 1.0, p95_s=3.0 if world.clock.now() % 80 < 40 else 1.0)
        await world.core.replicas.look()
    lines = [line async for line in ledger(world) if line.answered]
    assert (len(lines), lines[0].owner, lines[0].queue) == (1, "ada", "default")
    assert (lines[0].answered, lines[0].met) == (1820, 920)
    sums = UsageSums(("queue",))
    sums.line(lines[0], "")
    (row,) = sums.report(whose="", since=0.0, until=1.0).rows
    assert (row.queue, row.answered, row.met, row.usd) == ("default", 1820, 920, 0.0)
    await world.core.services.delete(ADA, service(world))
    for _ in range(30):
        world.clock.advance(2.0)
        await settle(world)
    assert not world.core.records.services
    assert sum([line.answered async for line in ledger(world)]) == 2000


async def test_slow_answers_bring_more_too() -> None:
    world = await a_world()
    await pass_time(world, 10, at_once=1.0, p95_s=3.0)
    assert len(active(world)) >= 2
    assert "answers took longer than 2 s" in detail(world).service.because


def use_gpus(world: World, percent: int | None) -> None:
    """Its site says that the GPU of each replica is so busy."""
    running = [each for each in active(world) if each.status == "RUNNING"]
    uses = [
        GpuUse("main", "host-0", at, percent, placements=(world.placement(each.job).id,))
        for at, each in enumerate(running)
    ]
    world.core.inventory.gpu_uses.hear("lab", uses)


async def test_busy_gpus_bring_more_replicas_without_any_gateway_and_idle_ones_take_them_away_later() -> None:
    world = await a_world(target={"gpu_utilisation": 60})
    for work, seconds, replicas in ((90, 20, 2), (128, 20, 2), (10, 250, 2), (10, 90, 1)):
        for _ in range(seconds // 2):
            world.clock.advance(2.0)
            use_gpus(world, work // len(active(world)))
            await settle(world)
        assert len(active(world)) == replicas, work
    assert service(world).because == "its GPUs are 5 % busy, 60 % wanted", "as when it was decided"
    assert detail(world).service.gpu_use_percent == 10.0


async def test_of_requests_and_the_use_of_gpus_the_larger_number_is_wanted() -> None:
    world = await a_world(target={"gpu_utilisation": 60, "requests_per_replica": 4})
    use_gpus(world, 30)
    await pass_time(world, 10, at_once=11.0)
    assert len(active(world)) == 3
    use_gpus(world, 90)
    await pass_time(world, 10, at_once=1.0)
    assert len(active(world)) == 4, "5 by the use of GPUs; more than 4 there may not be"


async def test_what_is_drained_is_told_to_the_gateway_before_it_is_cancelled() -> None:
    world = await a_world(replicas=2, drain="1h")
    await pass_time(world, 4)
    await apply(world, replicas=1, drain="1h")
    await settle(world)
    weights = [each.weight for each in tell(world).services[0].replicas]
    assert sorted(weights) == [0, 100]
    assert all(job.status is JobStatus.RUNNING for job in jobs(world))
    await pass_time(world, 8)
    assert sorted(str(job.status) for job in jobs(world)) == ["CANCELLED", "RUNNING"]


async def test_none_while_nobody_asks_and_one_for_the_first_who_does() -> None:
    world = await a_world(replicas={"min": 0, "max": 2})
    assert not jobs(world)
    await pass_time(world, 4, at_once=0.4)
    assert len(active(world)) == 1
    await pass_time(world, 340)
    assert not active(world)


async def test_one_that_ends_is_replaced_and_each_time_a_little_later() -> None:
    world = await a_world()
    for number in range(1, 4):
        (job,) = (each for each in jobs(world) if not each.terminal)
        assert job.name == f"chat-{number}"
        await world.sites["lab"].finish(job.id)
        await settle(world)
        assert all(each.terminal for each in jobs(world))
        world.clock.advance(BACKOFF_S * 2 ** (number - 1) + 0.1)
        await settle(world)


async def test_one_that_is_no_longer_ready_is_replaced() -> None:
    world = await a_world()
    await pass_time(world, 4)
    for _ in range(10):
        world.clock.advance(2.0)
        tell(world, ready=False)
        await settle(world)
    assert [each.health for each in active(world)] == ["failing", "starting"]
    await pass_time(world, 2)
    assert len(active(world)) == 1


async def test_the_share_of_a_site_that_is_lost_moves() -> None:
    """The site is silent, so nobody knows that its replicas have ended: that requests do not reach them is enough."""
    world = await a_world(replicas=2)
    await pass_time(world, 4)
    assert [each.site for each in active(world)] == ["lab", "lab"]
    await world.add_site("spare", gpus=8)
    world.core.inventory.closed("lab", world.core.inventory.members["lab"].session)
    world.sites.pop("lab")
    await seen_without(world, "lab")
    assert [(each.site, each.health) for each in active(world)] == [("spare", "ready")] * 2
    weights = {each.job: each.weight for each in tell(world).services[0].replicas}
    assert {weights[each.job] for each in active(world)} == {100}


async def seen_without(world: World, lost: str) -> None:
    """Half a minute in which a gateway finds all replicas ready but those of one site."""
    for _ in range(15):
        world.clock.advance(2.0)
        rows = [each for each in detail(world).replicas if each.health != "waiting"]
        seen = tuple(SeenReplica(each.job, each.site != lost) for each in rows)
        world.core.services.tell(ADA, GatewayReport((SeenLoad("chat", replicas=seen),), "one"))
        await settle(world)


def at_sites(world: World) -> dict[str, int]:
    return dict(Counter(each.site for each in active(world) if each.status == "RUNNING"))


async def test_replicas_that_are_spread_leave_no_site_with_more_than_half() -> None:
    world = await make_world()
    await world.add_site("lab", gpus=8)
    spare = await world.add_site("spare", gpus=2)
    await apply(world, replicas=2, spread="sites")
    await settle(world)
    assert at_sites(world) == {"lab": 1, "spare": 1}
    await pass_time(world, 4)
    await apply(world, replicas=6, spread="sites")
    await settle(world, 2)
    assert at_sites(world) == {"lab": 3, "spare": 2}, "the sixth waits for room at another site"
    (waits,) = (job for job in jobs(world) if job.status is JobStatus.PENDING)
    why = await world.core.views.explain(waits)
    assert "service chat is spread over sites, and half of its replicas are there" in " ".join(
        each.text for each in why.sites
    )
    spare.pool = replace(spare.pool, nodes=2)
    spare.report()
    await settle(world)
    assert at_sites(world) == {"lab": 3, "spare": 3}


async def test_the_share_of_a_lost_site_moves_to_where_half_is_and_back() -> None:
    world = await make_world()
    for name in ("lab", "spare"):
        await world.add_site(name, gpus=8)
    await apply(world, replicas=4, spread="sites")
    await settle(world)
    await pass_time(world, 4)
    assert at_sites(world) == {"lab": 2, "spare": 2}
    lost = world.sites.pop("lab")
    world.core.inventory.closed("lab", world.core.inventory.members["lab"].session)
    await seen_without(world, "lab")
    assert at_sites(world) == {"spare": 4}
    world.sites["lab"] = lost
    lost.connect()
    await pass_time(world, 60)
    await apply(world, replicas=6, spread="sites")
    await pass_time(world, 60)
    assert at_sites(world)["lab"] == 2, "new ones go to the site that has come back"


async def test_an_update_of_replicas_that_are_spread_leaves_them_spread() -> None:
    world = await make_world()
    for name in ("lab", "spare"):
        await world.add_site(name, gpus=8)
    await apply(world, replicas=2, spread="sites")
    await settle(world)
    await pass_time(world, 4)
    await apply(world, replicas=2, spread="sites", run="serve --new")
    await pass_time(world, 80)
    assert {each.revision for each in active(world)} == {2}
    assert at_sites(world) == {"lab": 1, "spare": 1}


GUARANTEED = """
apiVersion: federator/v1
kind: Queue
metadata: {name: serving}
spec: {guaranteed: {gpus: 6}, reclaim_within: 1m}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {}
"""


QUICK = {"requests_per_replica": 4, "down_after": "20s"}


def batch_running(world: World) -> int:
    return sum(
        job.status is JobStatus.RUNNING for job in world.core.records.jobs.values() if job.name == "train"
    )


async def test_batch_gives_back_by_guarantee_what_the_night_has_left_it() -> None:
    world = await make_world()
    await world.add_site("lab", gpus=8)
    await world.policies(GUARANTEED)
    await apply(world, queue="serving", replicas={"min": 1, "max": 6}, target=QUICK)
    for _ in range(8):
        await world.submit(name="train", resources={"gpus": 1}, estimate="40h", checkpoint={"grace": "10s"})
    for load, seconds, replicas, batch in ((1, 10, 1, 7), (24, 80, 6, 2), (1, 60, 1, 7)):
        await pass_time(world, seconds, at_once=load)
        assert (at_sites(world), batch_running(world)) == ({"lab": replicas}, batch), load


async def test_a_replica_that_is_worth_more_goes_before_batch_that_has_waited_longer() -> None:
    world = await make_world()
    await world.add_site("lab", gpus=1)
    first = await world.submit(name="train", resources={"gpus": 1}, estimate="1h")
    await world.turn()
    waits = await world.submit(name="train", resources={"gpus": 1}, estimate="1h")
    await apply(world, priority=90)
    await settle(world)
    await world.sites["lab"].finish(first)
    await settle(world)
    assert (at_sites(world), world.job(waits).status) == ({"lab": 1}, JobStatus.PENDING)


async def test_a_machine_is_rented_for_the_replica_that_the_level_lacks_and_goes_with_the_load() -> None:
    """The recipe of the how-to: each replica would be late if it did not start within ten minutes."""
    world = await make_world()
    await world.add_site("lab", gpus=8)
    await world.policies(renting(max_duration="24h", deadline_usd=20, usd_per_day=5000))
    await world.core.executor.poll()
    file: dict[str, Any] = {
        "estimate": "24h",
        "max_duration": "24h",
        "finish_within": "24h10m",
        "resources": {"gpus": 8},
    }
    await apply(world, replicas={"min": 1, "max": 2}, target=QUICK, **file)
    await settle(world)
    assert not world.leases(), "the first has room at home"
    begun_at = world.clock.now()
    while not world.leases():
        await pass_time(world, 10, at_once=8.0)
        assert world.clock.now() - begun_at < 600
    await world.core.executor.step()
    await world.core.executor.poll()
    (lease,) = world.leases()
    world.clock.advance(lease.offer.delay_s)
    await world.boot(world.leases()[0])
    await pass_time(world, 10, at_once=8.0)
    assert at_sites(world) == {"lab": 1, lease.site: 1}
    await pass_time(world, 60, at_once=1.0)
    assert at_sites(world) == {"lab": 1}, "the dearest goes first"


async def test_a_changed_file_takes_the_place_of_the_former_and_back() -> None:
    world = await a_world(replicas=2)
    await pass_time(world, 4)
    await apply(world, replicas=2, run="serve --new")
    least = 2
    for _ in range(40):
        await pass_time(world, 2)
        least = min(least, sum(each.health == "ready" for each in active(world)))
        assert len(active(world)) <= 3
    assert least == 2
    assert {each.revision for each in active(world)} == {2}
    assert [each.status for each in detail(world).replicas] == ["RUNNING", "RUNNING"]
    await world.core.services.rollback(ADA, service(world))
    await pass_time(world, 60)
    assert {each.revision for each in active(world)} == {1}
    assert detail(world).former == 2


async def test_the_same_file_again_changes_nothing() -> None:
    world = await a_world()
    before = service(world)
    assert (await apply(world)).service.revision == 1
    assert service(world) == before
    assert (await apply(world, replicas=3)).service.revision == 1


async def a_canary() -> World:
    world = await a_world(replicas=4)
    await pass_time(world, 4)
    await apply(world, canary=25, replicas=4, run="serve --bad")
    await pass_time(world, 20)
    assert sorted(each.revision for each in active(world)) == [1, 1, 1, 2]
    return world


async def test_a_canary_with_more_errors_is_rolled_back_at_once() -> None:
    world = await a_canary()
    world.clock.advance(2.0)
    tell(world, errors=(1, 2))
    await settle(world)
    assert service(world).canary == 25, "the former has as many"
    (bad,) = (each.job for each in detail(world).replicas if each.revision == 2)
    world.clock.advance(2.0)
    tell(world, errors=(2,))
    await world.core.replicas.look()
    assert (service(world).canary, service(world).revision.number) == (0, 1)
    assert "answers were errors" in detail(world).fault
    assert {each.job: each.weight for each in tell(world).services[0].replicas}[bad] == 0
    await pass_time(world, 20)
    assert [each.revision for each in active(world)] == [1, 1, 1, 1]
    said = [entry.what async for entry in ledger(world)]
    assert f"roll back service chat: {detail(world).fault}" in said


@pytest.mark.parametrize("how", ["ends", "is not ready"])
async def test_a_canary_whose_replica_fails_is_rolled_back_at_once(how: str) -> None:
    world = await a_canary()
    (bad,) = (each.job for each in active(world) if each.revision == 2)
    if how == "ends":
        await world.sites["lab"].finish(bad)
    else:
        for _ in range(9):
            world.clock.advance(2.0)
            seen = tuple(SeenReplica(each.job, each.job != bad) for each in detail(world).replicas)
            world.core.services.tell(ADA, GatewayReport((SeenLoad("chat", replicas=seen),), "one"))
            await world.core.replicas.look()
    await settle(world)
    assert (service(world).canary, service(world).revision.number) == (0, 1)
    assert detail(world).fault.startswith("a replica of it")
    await apply(world, replicas=4, run="serve --better")
    assert not detail(world).fault


async def test_a_canary_whose_replica_has_run_its_time_stays() -> None:
    world = await a_canary()
    (last,) = (each.job for each in active(world) if each.revision == 2)
    await world.sites["lab"].finish(last, exit_code=143, cause=Cause.MAX_DURATION)
    await pass_time(world, 4)
    assert service(world).canary == 25
    assert not detail(world).fault


async def test_a_canary_has_its_part_until_it_is_promoted_or_rolled_back() -> None:
    world = await a_world(replicas=4)
    await pass_time(world, 4)
    await apply(world, canary=25, replicas=4, run="serve --new")
    await pass_time(world, 40)
    assert sorted(each.revision for each in active(world)) == [1, 1, 1, 2]
    weights = {each.job: each.weight for each in tell(world).services[0].replicas}
    assert set(weights.values()) == {256}
    with pytest.raises(Conflict, match="is a canary"):
        await apply(world, replicas=4, run="serve --newer")
    await world.core.services.promote(ADA, service(world))
    await pass_time(world, 100)
    assert [each.revision for each in active(world)] == [2, 2, 2, 2]
    with pytest.raises(Conflict, match="no canary"):
        await world.core.services.promote(ADA, service(world))
    await apply(world, canary=50, replicas=4, run="serve --bad")
    await pass_time(world, 40)
    await world.core.services.rollback(ADA, service(world))
    await pass_time(world, 60)
    assert [each.revision for each in active(world)] == [2, 2, 2, 2]


async def test_deleting_it_ends_its_replicas_and_then_it_is_gone() -> None:
    world = await a_world(replicas=2)
    await pass_time(world, 4)
    await world.core.services.delete(ADA, service(world))
    with pytest.raises(Conflict, match="being deleted"):
        await apply(world)
    for _ in range(10):
        world.clock.advance(4.0)
        await settle(world)
    world.clock.advance(30.0)
    await settle(world, 3)
    assert not world.core.records.services
    assert all(job.status is JobStatus.CANCELLED for job in jobs(world))


async def test_who_changes_a_service_that_is_gone_by_then_is_told_so() -> None:
    world = await a_world(replicas={"min": 0, "max": 1})
    seen = service(world)
    await world.core.services.delete(ADA, seen)
    await settle(world, looks=3)
    assert not world.core.records.services
    with pytest.raises(NotFound, match="service chat is gone"):
        await world.core.services.rollback(ADA, seen)


async def test_what_keeps_replicas_from_coming_is_said_and_those_that_are_there_stay() -> None:
    world = await a_world()
    await world.policies(
        "apiVersion: federator/v1\nkind: Queue\nmetadata: {name: default}\nspec: {allow: [{users: [bob]}]}\n"
    )
    await pass_time(world, 10, at_once=9.0)
    assert [str(job.status) for job in jobs(world)] == ["RUNNING"]
    assert "no replica can be submitted" in detail(world).service.because


async def test_only_who_may_change_its_jobs_may_change_it() -> None:
    world = await a_world()
    for change in (world.core.services.delete, world.core.services.promote, world.core.services.rollback):
        with pytest.raises(Forbidden):
            await change(BOB, service(world))
    assert world.core.services.detail(BOB, service(world)).file is None
    assert world.core.services.tell(BOB, GatewayReport()).services == ()
    with pytest.raises(NotFound):
        world.core.services.find(BOB, "chat", "bob")
    await world.core.services.delete(ADMIN, service(world))


async def test_there_is_a_limit_on_how_many() -> None:
    world = await a_world()
    world.core.services.limits = type(world.core.services.limits)(services=1)
    with pytest.raises(TooMany):
        await apply(world, name="other")


@pytest.mark.parametrize(
    ("file", "field", "said"),
    [
        ({"port": None}, "$.port", "service chat has none"),
        ({"name": None}, "$.name", "is missing"),
        ({"every": "6h"}, "$.every", "does not go with a service"),
        ({"array": "0-3"}, "$.array", "does not go with a service"),
        ({"replicas": {"min": 3, "max": 2}}, "$.replicas.max", "less than min"),
        ({"ready": {"http": "health"}}, "$.ready.http", "not the path"),
        ({"ready": {"http": "/x'\n    bind *:1"}}, "$.ready.http", "not the path"),
        ({"ready": {"http": '/"$HOME"'}}, "$.ready.http", "not the path"),
        ({"ready": {"http": "/x\n"}}, "$.ready.http", "not the path"),
        ({"replica": 3}, "$.replica", "no field"),
        ({"kind": "servise"}, "$.kind", "cannot be"),
        ({"spread": "sites", "replicas": 1}, "$.spread", "one replica cannot be spread"),
        ({"target": {"p95_latency": "fast"}}, "$.target.p95_latency", ""),
        ({"target": {"gpu_utilisation": 70}, "resources": {}}, "$.target.gpu_utilisation", "has none"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(file: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_service({**FILE, **file}, now=0.0)
    assert caught.value.field == field
    assert said in caught.value.message
