"""A site's own jobs on the link: who may admit what is told, what was admitted is taken over, and a lie ends the session."""

from typing import Any

import msgspec
import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.ids import IdSource
from federator.model.allotments import Allotment, AllotmentRule, LocalJob
from federator.model.rules import PolicySet
from federator.wire import link
from federator.wire.jobfile import encode_spec
from tests.support.dispatch import World
from tests.unit.hub.agents import SPEC, Agent, a_world

ALLOTMENT = Allotment(
    policy="Allotment/north",
    queue="default",
    users=("ada",),
    gpu_h=10.0,
    jobs=5,
    max_duration_s=7200.0,
    max_priority=30,
    after_s=60.0,
    longest_s=86_400.0,
)
IDS = IdSource(ManualClock())
GOOD = LocalJob(
    job=IDS.new("job"),
    placement=IDS.new("pl"),
    spec=encode_spec(SPEC).decode(),
    owner="ada",
    queue="default",
    allotment="Allotment/north",
    pool="main",
    submitted_at=1.0,
    max_duration_s=60.0,
)


async def arrived(*knows: str, allotments: tuple[Allotment, ...] = (ALLOTMENT,)) -> tuple[World, Agent]:
    world, agents = await a_world("north")
    rules = tuple(AllotmentRule(each.policy, ("north",), each) for each in allotments)
    await world.put(PolicySet(version=1, author="root", reason="test", applied_at=0.0, rules=rules))
    agent = agents["north"]
    agent.dial()
    agent.say(link.Hello(link.PROTOCOL, agent.member, agent.boot_id, "test", agent.runtime, knows=knows))
    challenge = await agent.hear()
    assert isinstance(challenge, link.Challenge)
    agent.say(link.Proof(agent.key.sign(link.challenge_bytes(challenge, agent.member)).hex()))
    assert isinstance(await agent.hear(), link.Welcome)
    return world, agent


async def test_an_agent_that_knows_of_it_is_told_what_it_may_admit_and_what_was_taken_over() -> None:
    world, agent = await arrived(link.LOCAL_JOBS)
    assert await agent.hear() == link.Allotments((ALLOTMENT,))
    await agent.told()
    agent.say(link.LocalJobs((GOOD,)))
    heard = [await agent.hear(), await agent.hear()]
    assert link.Adopted((GOOD.placement,)) in heard
    assert any(
        isinstance(each, link.Desired) and each.entries[0].placement == GOOD.placement for each in heard
    )
    assert world.core.records.jobs[GOOD.job].placement == GOOD.placement


async def test_an_allotment_that_is_taken_back_is_told() -> None:
    world, agent = await arrived(link.LOCAL_JOBS)
    await agent.hear()
    await agent.told()
    await world.put(PolicySet(version=2, author="root", reason="test", applied_at=0.0))
    agent.say(link.LocalJobs((GOOD,)))
    heard = [await agent.hear() for _ in range(3)]
    assert link.Allotments(()) in heard
    assert world.core.records.jobs[GOOD.job].status == "CANCELLING"


async def test_an_older_agent_is_told_nothing_of_it() -> None:
    _, agent = await arrived()
    assert isinstance(await agent.hear(), link.Desired)
    assert await agent.silent()


@pytest.mark.parametrize(
    ("lie", "field"),
    [
        ({"job": "job-of-pl"}, "$.jobs[0].job"),
        ({"placement": GOOD.job}, "$.jobs[0].placement"),
        ({"owner": "a\x1b[2Jb"}, "$.jobs[0].owner"),
        ({"queue": "default/"}, "$.jobs[0].queue"),
        ({"allotment": "Queue/default"}, "$.jobs[0].allotment"),
        ({"cancelled_by": "a b"}, "$.jobs[0].cancelled_by"),
    ],
)
async def test_a_job_that_no_agent_admits_ends_the_session(lie: dict[str, Any], field: str) -> None:
    world, agent = await arrived(link.LOCAL_JOBS)
    await agent.hear()
    await agent.told()
    agent.say(link.LocalJobs((msgspec.structs.replace(GOOD, **lie),)))
    answer = await agent.hear()
    assert isinstance(answer, link.Refusal)
    assert (answer.code, field in answer.detail) == ("invalid", True)
    assert not world.core.records.jobs


async def test_more_than_can_wait_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("federator.hub.sessions.MOST_OFFERED", 3)
    _, agent = await arrived(link.LOCAL_JOBS)
    await agent.hear()
    await agent.told()
    many = tuple(msgspec.structs.replace(GOOD, placement=IDS.new("pl")) for _ in range(4))
    agent.say(link.LocalJobs(many))
    assert isinstance(await agent.hear(), link.Refusal)
