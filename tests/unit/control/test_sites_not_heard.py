"""A site that has not reported is no place that a plan could look at; whoever asks is told of it nevertheless, and why it is none."""

from federator.model.jobs import JobStatus
from federator.model.plans import Explanation
from federator.model.sites import Member, Site, SiteKind
from federator.planning.wording.told import because_of
from federator.wire.jobfile import read_job
from tests.support.dispatch import ADA, World, make_world
from tests.unit.control.test_after_a_restart import restarted


def said(explanation: Explanation, site: str) -> list[str]:
    """The reasons of one site."""
    return [each.text for each in explanation.sites if each.site == site]


async def explained(world: World, job: str) -> Explanation:
    """As a user asks."""
    return await world.core.views.explain(world.job(job))


async def test_a_site_that_never_reported_is_named_with_what_to_do() -> None:
    world = await make_world()
    await world.add_site("lab", gpus=4)
    joined = Member(id="yard", site="yard", public_key="", joined_at=world.clock.now())
    await world.put(Site(name="yard", kind=SiteKind.ONPREM), joined, Site(name="barn", kind=SiteKind.ONPREM))
    waits = await world.submit(resources={"gpus": 8})
    await world.turn()
    for found in (
        await explained(world, waits),
        (await world.core.views.preview(ADA, read_job({"run": "x"}, now=world.clock.now()))).explanation,
    ):
        (yard,) = said(found, "yard")
        assert "federator-agent serve" in yard
        assert "its capacity is not known" in yard
        assert said(found, "barn") == ["no host of it has joined yet; its capacity is not known"]


async def test_of_a_job_that_was_placed_it_is_what_was_known_then() -> None:
    world = await make_world()
    await world.add_site("lab", gpus=4)
    await world.put(Site(name="yard", kind=SiteKind.ONPREM), Member(id="yard", site="yard", public_key=""))
    runs = await world.submit(resources={"gpus": 1})
    await world.turn()
    assert said(await explained(world, runs), "yard") == [
        "its agent had not reported when this was decided: its capacity was not known"
    ]


async def test_after_a_restart_it_is_waited_for_and_then_missed() -> None:
    """A site that has been here for long is not JOINING because the dispatcher was restarted."""
    world = await make_world()
    await world.add_site("lab", gpus=4)
    world.clock.advance(1)
    waits = await world.submit(resources={"gpus": 8})
    again = await restarted(world)
    await again.core.turn.once()
    (row,) = again.core.views.sites()
    assert (row.status, row.because) == (
        "JOINING", "waiting for its first report since the dispatcher started 0s ago",
    )  # fmt: skip
    (text,) = said(await explained(again, waits), "lab")
    assert text == f"{row.because}; its capacity is not known"
    again.clock.advance(720)
    (row,) = again.core.views.sites()
    assert row.status == "UNREACHABLE"
    assert row.because == "waiting for its first report since the dispatcher started 12m ago"
    await again.add_site("lab", gpus=4)
    (row,) = again.core.views.sites()
    assert (row.status, row.because) == ("READY", "")


async def test_a_host_that_is_down_is_named_beside_those_that_are_there() -> None:
    world = await make_world()
    await world.add_site("lab", gpus=4)
    await world.put(Member(id="lab-2", site="lab", public_key=""))
    waits = await world.submit(nodes=2, resources={"gpus": 4})
    await world.turn()
    there, away = said(await explained(world, waits), "lab")
    assert "even empty it holds 1 of the gang's 2 nodes" in there
    assert away.startswith("lab-2: waiting for its first report")


async def test_a_site_that_was_lost_says_when_it_was_last_heard() -> None:
    world = await make_world()
    await world.add_site("lab", gpus=4)
    waits = await world.submit(resources={"gpus": 1})
    world.core.inventory.closed("lab", world.core.inventory.members["lab"].session)
    await world.core.turn.once()
    (text,) = said(await explained(world, waits), "lab")
    assert text == "its agent is not connected, last heard 0s ago"


async def test_of_a_running_job_whose_site_is_not_heard_everybody_is_told_since_when() -> None:
    world = await make_world()
    site = await world.add_site("lab", gpus=4)
    runs = await world.submit(resources={"gpus": 1})
    await world.turn()
    because = because_of(world.job(runs), world.clock.now())
    inventory = world.core.inventory
    assert world.core.views.row(world.job(runs)).because == because
    inventory.closed("lab", inventory.members["lab"].session, stopped=True)
    world.clock.advance(300)
    said = "lab: its agent was stopped 5m ago"
    assert world.core.views.row(world.job(runs)).because == f"{because}; {said}"
    assert world.core.views.detail(world.job(runs)).job.because == f"{because}; {said}"
    assert (await explained(world, runs)).because.endswith(said)
    site.connect()
    site.report()
    assert world.core.views.row(world.job(runs)).because == because
    inventory.closed("lab", inventory.members["lab"].session)
    world.clock.advance(3)
    assert world.core.views.row(world.job(runs)).because.endswith(
        "lab: its agent is not connected, last heard 3s ago"
    )


async def test_what_has_ended_is_as_sure_as_it_was() -> None:
    world = await make_world()
    site = await world.add_site("lab", gpus=4)
    runs = await world.submit(resources={"gpus": 1})
    await world.turn()
    await site.finish(runs)
    world.core.inventory.closed("lab", world.core.inventory.members["lab"].session, stopped=True)
    assert "agent" not in world.core.views.row(world.job(runs)).because


async def test_after_a_restart_of_ours_what_runs_is_not_sure_until_it_is_heard() -> None:
    world = await make_world()
    await world.add_site("lab", gpus=4)
    runs = await world.submit(resources={"gpus": 1})
    await world.turn()
    again = await restarted(world)
    row = again.core.views.row(again.job(runs))
    assert row.because.endswith("lab: not heard since the dispatcher started")


async def test_work_in_a_pool_that_its_site_does_not_report_counts_against_its_queue() -> None:
    """The agent of a cluster that was started again reports before it has looked at the cluster."""
    world = await make_world()
    lab = await world.add_site("lab", gpus=4)
    await world.add_site("yard", gpus=4)
    await world.policies("""
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {limit: {gpus: 4}}
""")
    runs = await world.submit(resources={"gpus": 4})
    await world.place(runs, "lab")
    await world.obey()
    waits = await world.submit(resources={"gpus": 1})
    for _ in range(2):
        lab.report(pools=())
        await world.turn()
        assert world.job(waits).status is JobStatus.PENDING
    assert "the site does not report this pool" in said(await explained(world, waits), "lab")[0]
    await lab.finish(runs)
    lab.report()
    await world.turn()
    assert world.job(waits).status is JobStatus.RUNNING
