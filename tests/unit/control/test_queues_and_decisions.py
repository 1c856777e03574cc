"""Queues with limits and guarantees, changes to living jobs, policies, drains, and decisions that can be run again."""

import asyncio
from typing import Any

import msgspec
import pytest

from federator.cli.apply import can_be_applied
from federator.control.leases.rented_sites import check_rented_sites
from federator.kernel.errors import Conflict, Forbidden, Invalid, NotFound
from federator.model.changes import AskFor, Remedy
from federator.model.identity import Caller, Role
from federator.model.jobs import JobStatus
from federator.model.placements import Order
from federator.model.plans import Preempt
from federator.model.sites import SiteStatus
from federator.settings import TurnSettings
from federator.solving.inline import InlineSolver
from federator.wire.http import JobPatch, TokenRequest
from federator.wire.jobfile import read_job
from tests.support.dispatch import ADA, ADMIN, BOB, NoSolver, World, make_world
from tests.support.waiting import until

QUEUES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: small}
spec: {limit: {gpus: 2}, max_priority: 60, max_duration: 2h, deadline_budget: 8h}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: owed}
spec: {guaranteed: {gpus: 4}, reclaim_within: 5m, max_duration: 4h}
"""


@pytest.fixture
async def world() -> World:
    world = await make_world()
    await world.add_site("lab", nodes=1, gpus=4)
    await world.policies(QUEUES)
    return world


async def test_a_queue_never_uses_more_than_its_limit(world: World) -> None:
    first = await world.submit(queue="small", resources={"gpus": 2})
    second = await world.submit(queue="small", resources={"gpus": 1})
    await world.turn()
    assert world.job(first).status is JobStatus.RUNNING
    assert world.job(second).status is JobStatus.PENDING
    assert "limit" in world.core.views.row(world.job(second)).because
    await world.sites["lab"].finish(first)
    await world.turn()
    assert world.job(second).status is JobStatus.RUNNING


async def test_a_queue_gives_its_jobs_deadline_and_time_limit(world: World) -> None:
    job = world.job(await world.submit(queue="small"))
    assert job.deadline_at == pytest.approx(world.clock.now() + 8 * 3600)
    assert job.max_duration_s == 7200
    own = world.job(await world.submit(queue="small", finish_within="1h", max_duration="30m"))
    assert own.deadline_at == pytest.approx(world.clock.now() + 3600)
    assert own.max_duration_s == 1800


async def test_a_queue_caps_the_priority_that_its_users_claim(world: World) -> None:
    with pytest.raises(Invalid) as refused:
        await world.submit(queue="small", priority=61)
    assert refused.value.field == "$.priority"


async def test_a_guaranteed_queue_gets_its_share_back_from_a_borrower(world: World) -> None:
    borrower = await world.submit(resources={"gpus": 4}, estimate="10h", checkpoint={"grace": "10s"})
    await world.turn()
    world.clock.advance(600)
    owed = await world.submit(queue="owed", resources={"gpus": 4}, estimate="1h")
    await world.core.turn.once()
    assert world.job(borrower).status is JobStatus.SUSPENDING
    assert world.placement(borrower).order is Order.STOP
    await world.obey()
    await world.turn()
    assert world.job(owed).status is JobStatus.RUNNING
    assert world.job(borrower).status is JobStatus.PENDING
    await world.sites["lab"].finish(owed)
    await world.turn()
    assert world.job(borrower).status is JobStatus.RUNNING, "a preempted job runs again by itself"


async def test_one_victim_is_enough(world: World) -> None:
    """While the victim saves itself, the next turns count its GPUs as coming free, and stop nobody else."""
    await world.add_site("hall", nodes=1, gpus=4)
    borrowers = [await world.submit(resources={"gpus": 4}, estimate="10h") for _ in range(2)]
    await world.turn()
    world.clock.advance(600)
    await world.submit(queue="owed", resources={"gpus": 4}, estimate="1h")
    plans = [await world.core.turn.once() for _ in range(3)]
    stops = [[action for action in plan.actions if isinstance(action, Preempt)] for plan in plans if plan]
    assert [len(each) for each in stops] == [1, 0, 0]
    statuses = sorted(world.job(job).status for job in borrowers)
    assert statuses == [JobStatus.RUNNING, JobStatus.SUSPENDING]


async def test_the_higher_priority_starts_first(world: World) -> None:
    filler = await world.submit(resources={"gpus": 4})
    await world.turn()
    low = await world.submit(resources={"gpus": 4}, priority=10)
    high = await world.submit(resources={"gpus": 4}, priority=90)
    await world.sites["lab"].finish(filler)
    await world.turn()
    assert world.job(high).status is JobStatus.RUNNING
    assert world.job(low).status is JobStatus.PENDING


async def test_a_running_job_takes_a_new_time_limit_to_its_site(world: World) -> None:
    job = await world.submit(max_duration="1h")
    await world.turn()
    await world.core.intake.update(ADA, job, JobPatch(max_duration="3h", priority=80, deadline="5h"))
    assert world.placement(job).max_duration_s == 3 * 3600
    assert world.job(job).priority == 80
    assert world.job(job).deadline_at == pytest.approx(world.clock.now() + 5 * 3600)


async def test_a_patch_with_a_fault_changes_nothing(world: World) -> None:
    job = await world.submit(queue="small")
    before = world.job(job)
    for patch in (
        JobPatch(),
        JobPatch(priority=99),
        JobPatch(deadline="2001-01-01T00:00:00Z"),
        JobPatch(queue="nowhere"),
        JobPatch(max_cost="x"),
    ):
        with pytest.raises(Invalid):
            await world.core.intake.update(ADA, job, patch)
    assert world.job(job) == before


async def test_a_job_that_waits_is_given_other_gpu_models_and_starts(world: World) -> None:
    job = await world.submit(resources={"gpus": {"count": 1, "models": ["B200"]}})
    brother = await world.submit(resources={"gpus": {"count": 1, "models": ["B200"]}})
    on_processors = await world.submit()
    await world.turn()
    assert world.job(job).status is JobStatus.PENDING
    model = world.core.views.site("lab").pools[0].pool.model
    patch = JobPatch(models=f"B200|{model.lower()}")
    would = await world.core.views.preview_of(*world.core.intake.verbs.patched(ADA, world.job(job), patch))
    assert would.explanation.sites[0].filter == ""
    assert world.core.records.spec(world.job(job).spec_hash).resources.gpus.models == ("B200",)
    await world.core.intake.update(ADA, job, patch)
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    assert world.core.records.spec(world.placement(job).spec_hash).resources.gpus.models == ("B200", model)
    assert world.core.records.spec(world.job(brother).spec_hash).resources.gpus.models == ("B200",)
    with pytest.raises(Conflict, match="while it waits"):
        await world.core.intake.update(ADA, job, JobPatch(models="none"))
    for given in ("", "A100|", "A 100"):
        with pytest.raises(Invalid):
            await world.core.intake.update(ADA, brother, JobPatch(models=given))
    await world.core.intake.update(ADA, brother, JobPatch(models="none"))
    assert world.core.records.spec(world.job(brother).spec_hash).resources.gpus.models == ()
    asked = [world.job(each).spec_hash for each in (job, brother)]
    unused = world.core.records.unused_specs()
    assert not set(asked) & set(unused)
    assert [world.core.records.spec(each).resources.gpus.models for each in unused] == [("B200",)]
    for each in (job, brother):
        assert world.core.records.index.of_spec(world.job(each).spec_hash) == [each]
    with pytest.raises((Invalid, Conflict)):
        await world.core.intake.update(ADA, on_processors, JobPatch(models="A100"))


@pytest.mark.parametrize(
    ("wants", "patch"),
    [
        ({"nodes": 999}, JobPatch(nodes=1)),
        ({"resources": {"gpus": 100}}, JobPatch(gpus=1)),
        ({"resources": {"gpus": {"count": 1, "memory": "2TiB"}}}, JobPatch(gpu_memory="none")),
        ({"resources": {"gpus": 1, "cpus": 4000}}, JobPatch(cpus=0.5)),
        ({"resources": {"gpus": 1, "memory": "60TiB"}}, JobPatch(memory="1GiB")),
        ({"placement": {"sites": ["elsewhere"]}}, JobPatch(sites="elsewhere|lab")),
        ({"placement": {"not_sites": ["lab"]}}, JobPatch(not_sites="none")),
    ],
)
async def test_a_job_that_waits_is_given_other_needs_and_sites(
    world: World, wants: dict[str, Any], patch: JobPatch
) -> None:
    """And the advice that it is given first comes to fields that a patch has."""
    job = await world.submit(**wants)
    await world.turn()
    assert world.job(job).status is JobStatus.PENDING
    told = await world.core.views.explain(world.job(job))
    assert any(can_be_applied(each, job) for each in told.remedies), told.remedies
    would = await world.core.views.preview_of(*world.core.intake.verbs.patched(ADA, world.job(job), patch))
    assert would.explanation.sites[0].filter == ""
    await world.core.intake.update(ADA, job, patch)
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    with pytest.raises(Conflict, match="while it waits"):
        await world.core.intake.update(ADA, job, patch)


async def test_what_cannot_be_changed_of_a_job_is_refused_with_its_field(world: World) -> None:
    wide = await world.submit(nodes=2, max_nodes=4, resources={"gpus": {"count": 1, "models": ["B200"]}})
    half = await world.submit(resources={"gpus": {"count": 0.5, "models": ["B200"]}})
    for job, patch, field in (
        (wide, JobPatch(nodes=1), "$.nodes"),
        (half, JobPatch(gpus=1), "$.gpus"),
        (half, JobPatch(memory="many"), "$.memory"),
        (half, JobPatch(sites="a/b"), "$.sites"),
        (half, JobPatch(sites="lab", not_sites="lab"), "$.not_sites"),
    ):
        with pytest.raises(Invalid) as refused:
            await world.core.intake.update(ADA, job, patch)
        assert refused.value.field == field
    await world.core.intake.update(ADA, wide, JobPatch(sites="lab|north"))
    assert world.core.records.spec(world.job(wide).spec_hash).placement.sites == ("lab", "north")


async def test_a_draining_site_takes_nothing_new_and_its_work_goes_on(world: World) -> None:
    running = await world.submit(resources={"gpus": 1})
    await world.turn()
    await world.core.sites.drain(ADMIN, "lab")
    waiting = await world.submit(resources={"gpus": 1})
    await world.turn()
    assert world.job(running).status is JobStatus.RUNNING
    assert world.job(waiting).status is JobStatus.PENDING
    assert "drain" in world.core.views.row(world.job(waiting)).because
    await world.core.sites.undrain(ADMIN, "lab")
    await world.turn()
    assert world.job(waiting).status is JobStatus.RUNNING


async def test_only_a_disconnected_site_can_be_declared_dead_and_its_jobs_run_elsewhere(world: World) -> None:
    job = await world.submit()
    await world.turn()
    with pytest.raises(Conflict):
        await world.core.sites.declare_dead(ADMIN, "lab", "it burned")
    heard = world.core.inventory.members["lab"]
    world.core.inventory.closed("lab", heard.session)
    await world.core.turn.once()
    assert world.job(job).status is JobStatus.RUNNING, (
        "being cut off stops nothing and starts nothing elsewhere"
    )
    with pytest.raises(Forbidden):
        await world.core.sites.declare_dead(Caller("eve", Role.SITE_ADMIN, ("other",)), "lab", "mine now")
    await world.core.sites.declare_dead(ADMIN, "lab", "it burned")
    assert world.job(job).status is JobStatus.PENDING
    await world.add_site("spare")
    await world.turn()
    assert world.placement(job).site == "spare"


async def test_a_site_that_comes_back_while_it_is_declared_dead_answers_for_itself(world: World) -> None:
    """It was away when asked about, and is back before its jobs are given up: what it runs must not run twice."""
    job = await world.submit()
    await world.turn()
    world.core.inventory.closed("lab", world.core.inventory.members["lab"].session)
    transact = world.core.records.transact

    async def come_back(*given: Any, **fields: Any) -> Any:
        world.core.records.transact = transact  # type: ignore[method-assign]
        done = await transact(*given, **fields)
        world.sites["lab"].connect()
        return done

    world.core.records.transact = come_back  # type: ignore[method-assign]
    with pytest.raises(Conflict, match="connected"):
        await world.core.sites.declare_dead(ADMIN, "lab", "it burned")
    assert world.job(job).status is JobStatus.RUNNING


async def test_a_site_is_draining_until_it_is_not(world: World) -> None:
    site = await world.core.sites.drain(ADMIN, "lab")
    assert site.status is SiteStatus.DRAINING
    assert world.core.views.site("lab").status == "DRAINING"
    site = await world.core.sites.undrain(ADMIN, "lab")
    assert site.status is SiteStatus.JOINING
    assert world.core.views.site("lab").status == "READY"


async def test_a_site_is_removed_once_nothing_can_run_there(world: World) -> None:
    job = await world.submit()
    await world.turn()
    sites, heard = world.core.sites, world.core.inventory.members["lab"]
    with pytest.raises(Conflict, match="connected"):
        await sites.remove(ADMIN, "lab")
    world.core.inventory.closed("lab", heard.session)
    with pytest.raises(Conflict, match="may still run"):
        await sites.remove(ADMIN, "lab")
    await sites.declare_dead(ADMIN, "lab", "it burned")
    with pytest.raises(Forbidden):
        await sites.remove(Caller("eve", Role.SITE_ADMIN, ("lab",)), "lab")
    await sites.remove(ADMIN, "lab")
    assert not world.core.views.sites()
    assert not world.core.records.members
    assert not world.core.records.open_placements, "nobody is left to be told to stop"
    assert world.job(job).status is JobStatus.PENDING
    with pytest.raises(NotFound):
        await sites.remove(ADMIN, "lab")
    await world.add_site("lab")
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING, "the name may be used again"


async def test_tokens_are_listed_with_what_has_become_of_them(world: World) -> None:
    admission = world.core.admission
    await admission.create_token(ADMIN, TokenRequest(name="bob", role="user", expires_in="1h"))
    await admission.create_token(ADMIN, TokenRequest(name="eve", role="user"))
    await admission.create_token(ADMIN, TokenRequest(site="north", kind="onprem", expires_in="3h"))
    await admission.revoke(ADMIN, "eve")
    world.clock.advance(7200)
    rows = {row.name or row.site: (row.role, row.status) for row in admission.rows()}
    assert rows == {"bob": ("user", "expired"), "eve": ("user", "revoked"), "north": ("", "valid")}


async def test_advice_is_for_what_waits(world: World) -> None:
    await world.add_site("other", model="H100")
    waits, runs = (
        await world.submit(resources={"gpus": "L4:1"}),
        await world.submit(resources={"gpus": "A100:1"}),
    )
    await world.turn()
    explained = [await world.core.views.explain(world.job(job)) for job in (waits, runs)]
    assert [each.status for each in explained] == ["PENDING", "RUNNING"]
    assert [any(site.filter for site in each.sites) for each in explained] == [True, True]
    assert [bool(each.changes) for each in explained] == [True, False]
    assert [any(site.change for site in each.sites) for each in explained] == [True, False]


async def test_a_higher_priority_is_advised_to_whoever_may_set_it(world: World) -> None:
    """Within the limits of the queue; and not to somebody who may not change the job."""
    await world.submit(resources={"gpus": 4}, estimate="30m")
    await world.turn()
    other = await world.submit(BOB, name="eval", resources={"gpus": 4}, estimate="10m")
    mine = await world.submit(resources={"gpus": 4}, estimate="10m")
    small = await world.submit(queue="small", resources={"gpus": 2}, priority=60, estimate="10m")
    await world.turn()

    async def advised(job: str, caller: Caller | None) -> list[Remedy]:
        found = await world.core.views.explain(world.job(job), caller)
        assert len(found.changes) == len(found.remedies)
        return [each for each in found.remedies if each.start_at is not None]

    (advice,) = await advised(mine, ADA)
    assert advice.delays[0].job == other
    assert f"eval ({other})" in advice.text
    assert await advised(mine, ADMIN) == [advice]
    assert await advised(mine, BOB) == await advised(mine, None) == []
    assert await advised(small, ADA) == [], "its queue allows no more than 60"
    (change,) = advice.changes
    assert isinstance(change, AskFor)
    await world.core.intake.update(ADA, mine, JobPatch(priority=int(str(change.value))))
    await world.turn()
    assert world.core.turn.waiting[mine].expected_start_at == pytest.approx(advice.start_at, abs=60)


async def test_of_an_ended_job_there_is_no_advice_and_no_forecast(world: World) -> None:
    job = await world.submit()
    await world.turn()
    living = await world.core.views.explain(world.job(job))
    assert "a guess" in living.run_time
    world.clock.advance(100)
    await world.sites["lab"].finish(job)
    done = world.job(job)
    over = await world.core.views.explain(done)
    assert (over.changes, over.run_time, over.home_finish_at) == ((), "", None)
    assert not any(site.change or site.start_at or site.finish_at for site in over.sites)
    assert (over.expected_start_at, over.expected_finish_at) == (done.started_at, done.finished_at)


async def test_a_run_time_says_where_it_is_from(world: World) -> None:
    async def said(**fields: Any) -> str:
        request = read_job({"run": "x", **fields}, now=world.clock.now())
        return (await world.core.views.preview(ADA, request)).explanation.run_time

    assert (
        await said() == "about 1h21m: a guess (1h × 1.35), because nothing is known of it; give an estimate"
    )
    assert await said(estimate="2h") == "about 2h42m: its estimate × 1.35"
    assert (
        await said(estimate="50m", max_duration="1h") == "up to its max_duration of 1h: its estimate × 1.35"
    )
    job = await world.submit(name="known")
    await world.turn()
    world.clock.advance(600)
    await world.sites["lab"].finish(job)
    assert await said(name="known") == "about 13m30s: the median of 1 run × 1.35"


async def test_a_cloud_site_has_a_name_that_no_other_site_has() -> None:
    """Else each rented machine's agent would be refused for ever."""
    world = await make_world()
    with pytest.raises(Conflict, match="provider cloudy"):
        await world.core.admission.create_token(ADMIN, TokenRequest(site="cloud", kind="onprem"))
    check_rented_sites(world.core.records, world.core.settings.providers)
    await world.add_site("cloud")
    with pytest.raises(Invalid, match="cloud is the cloud site of provider cloudy") as refused:
        await world.core.start()
    await world.core.stop()
    assert refused.value.field == "$.providers.cloudy.site"


async def test_an_invalid_policy_set_changes_nothing(world: World) -> None:
    before = world.core.records.policies
    verdict = await world.core.policy_service.apply(ADMIN, QUEUES.replace("gpus: 2", "gpus: -2"), "oops")
    assert verdict.problems
    assert world.core.records.policies == before
    with pytest.raises(Forbidden):
        await world.core.policy_service.apply(ADA, QUEUES, "not mine to say")


async def test_all_problems_of_a_policy_set_are_in_the_verdict(world: World) -> None:
    text = (
        "apiVersion: federator/v1\nkind: Queue\nmetadata: {name: q}\nspec: {weight: -1, max_priority: 200}\n"
    )
    verdict = world.core.policy_service.validate(text)
    assert [problem.field for problem in verdict.problems] == ["$.spec.weight", "$.spec.max_priority"]


async def test_a_queue_with_jobs_in_it_cannot_be_taken_away(world: World) -> None:
    await world.submit(queue="small")
    verdict = world.core.policy_service.validate(
        "apiVersion: federator/v1\nkind: Queue\nmetadata: {name: owed}\nspec: {}\n"
    )
    assert "small" in verdict.problems[0].detail


async def test_a_decision_is_named_only_where_it_was_kept(world: World) -> None:
    runs = await world.submit()
    await world.turn()
    waits = await world.submit(nodes=500)
    await world.turn()
    kept = {row.id for row in world.core.decisions.rows()}
    views = world.core.views
    assert (await views.explain(world.job(runs))).decision in kept
    assert views.detail(world.job(runs)).decision in kept
    assert (await views.explain(world.job(waits))).decision == ""
    assert views.detail(world.job(waits)).decision == ""


async def test_a_recorded_decision_replays_to_the_same_bytes(world: World) -> None:
    await world.submit(resources={"gpus": 2})
    plan = await world.core.turn.once()
    assert plan is not None
    problem, recorded = await world.core.decisions.load(plan.decision)
    stages = tuple(stage.stage for stage in recorded.stages if stage.completed)
    again = [
        await InlineSolver().decide(problem, stages=stages, seed=recorded.seed, limit_s=10) for _ in range(2)
    ]
    assert again[0] is not None
    assert msgspec.json.encode(again[0]) == msgspec.json.encode(again[1])
    assert again[0].actions == recorded.actions


async def test_a_stale_action_is_dropped_and_the_rest_committed(world: World) -> None:
    await world.add_site("other", nodes=1, gpus=4, model="H100")
    kept = await world.submit(resources={"gpus": "A100:4"})
    gone = await world.submit(resources={"gpus": "H100:4"})
    problem = await world.core.turn.observe()
    plan = await InlineSolver().decide(problem, stages=("greedy",), seed=0, limit_s=10)
    assert plan is not None
    assert len(plan.actions) == 2
    await world.core.intake.cancel(ADA, gone)
    committed = await world.core.turn.committer.commit(plan)
    assert [action.job for action in committed.done] == [kept]
    assert [action.job for action, _ in committed.stale] == [gone]


async def test_interactive_work_does_not_wait_for_a_busy_solver(world: World) -> None:
    """A solver that thinks for ever holds up nobody who sits in front of a screen."""
    await world.policies(
        QUEUES
        + "---\napiVersion: federator/v1\nkind: Queue\nmetadata: {name: now}\nspec: {interactive: true}\n"
    )
    thinking = asyncio.Event()

    class SlowSolver(NoSolver):
        async def decide(self, *_: Any, **__: Any) -> None:
            thinking.set()
            await asyncio.Event().wait()

    world.core.turn.solver = SlowSolver()
    world.core.turn.settings = TurnSettings(solver=True)
    world.core.records.subscribe(world.core.turn.wake)
    batch = await world.submit(resources={"gpus": 1})
    turn = asyncio.create_task(world.core.turn.once())
    await thinking.wait()
    person = await world.submit(queue="now", resources={"gpus": 1})
    await until(lambda: world.job(person).status is JobStatus.PLACED, "the person's job is placed")
    assert world.job(batch).status is JobStatus.PENDING
    turn.cancel()


async def test_a_running_job_enters_a_queue_only_within_its_limit(world: World) -> None:
    """Moving work that runs must not take a queue above its limit; work that waits is held back by planning."""
    there = await world.submit(queue="small", resources={"gpus": 1})
    large = await world.submit(resources={"gpus": 2})
    fits = await world.submit(resources={"gpus": 1})
    await world.turn()
    assert world.job(there).status is world.job(large).status is world.job(fits).status is JobStatus.RUNNING
    with pytest.raises(Conflict, match="limit of 2 gpus") as refused:
        await world.core.intake.update(ADA, large, JobPatch(queue="small"))
    assert refused.value.field == "$.queue"
    assert world.job(large).queue == "default"
    await world.core.intake.update(ADA, fits, JobPatch(queue="small"))
    assert world.job(fits).queue == "small"
