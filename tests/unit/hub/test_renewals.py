"""A report that carries a time is answered with it, and the dispatcher counts from before that answer; an older session renews nothing."""

from federator.model.sites import SiteReport
from federator.wire import link
from tests.unit.hub.agents import Agent, MemoryPipe, a_world

REPORT = SiteReport(taken_at=1.0, pools=())


async def test_a_report_is_answered_with_its_time_and_counts() -> None:
    world, agents = await a_world("m1")
    agent = agents["m1"]
    await agent.open()
    await agent.told()
    welcomed_s = world.core.inventory.members["m1"].answered_boot_s
    assert welcomed_s == world.clock.boot(), "the welcome answers the proof"
    world.clock.advance(7.0)
    agent.say(link.Report(REPORT, 123.25))
    assert await agent.hear() == link.Heard(123.25)
    assert world.core.inventory.members["m1"].answered_boot_s == welcomed_s + 7.0


async def test_an_agent_that_knows_nothing_of_it_is_told_nothing_new() -> None:
    world, agents = await a_world("m1")
    agent = agents["m1"]
    await agent.open()
    await agent.told()
    before_s = world.core.inventory.members["m1"].answered_boot_s
    world.clock.advance(7.0)
    agent.say(link.Report(REPORT))
    assert await agent.silent()
    assert world.core.inventory.members["m1"].answered_boot_s == before_s


async def test_many_reports_share_one_answer_and_the_newest_counts() -> None:
    _, agents = await a_world("m1")
    agent = agents["m1"]
    await agent.open()
    await agent.told()
    for sent_s in (1.0, 2.0, 3.0):
        agent.say(link.Report(REPORT, sent_s))
    heard = [await agent.hear()]
    while not agent.pipe.down.empty():
        heard.append(await agent.hear())
    assert heard[-1] == link.Heard(3.0)
    assert len(heard) < 4


async def test_of_two_live_sessions_of_one_identity_only_the_newer_is_answered() -> None:
    """The older connection may be half dead, or another machine with the same key: either way it must not go on for being heard."""
    _, agents = await a_world("m1")
    older = agents["m1"]
    await older.open()
    await older.told()
    newer = Agent(older.hub, "m1", older.key, pipe=MemoryPipe())
    await newer.open()
    await newer.told()
    older.say(link.Report(REPORT, 50.0))
    newer.say(link.Report(REPORT, 60.0))
    assert await newer.hear() == link.Heard(60.0)
    refusal = await older.hear()
    assert isinstance(refusal, link.Refusal)
    assert refusal.code == "replaced"
    assert await older.hear() is None
