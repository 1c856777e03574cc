"""A dispatcher whose term is over says nothing more to agents and does nothing more for people, whatever it still knows."""

import asyncio

import msgspec
import pytest
from aiohttp import WSMsgType
from aiohttp.test_utils import TestClient, TestServer

from federator.api.standby import LEADER_HEADER, build_standby
from federator.control.record.leadership import LEADER_KEY, Term
from federator.kernel.errors import NotLeading
from federator.model.sites import SiteReport
from federator.ports import Put, Transaction
from federator.wire import link
from tests.integration.api.rig import Rig


async def test_people_are_told_to_ask_another(rig: Rig) -> None:
    rig.world.core.reign.lose("a test")
    for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/v1/sites")):
        answer = await rig.ask(method, path, json={"run": "true"} if method == "POST" else None)
        assert answer.status == 503
        assert answer.problem["code"] == NotLeading.code
    assert (await rig.ask("GET", "/readyz", None)).status == 503
    assert (await rig.ask("GET", "/healthz", None)).status == 200
    assert rig.world.core.records.jobs == {}


async def test_an_agent_is_answered_nothing_any_more_not_even_that_it_was_heard(rig: Rig) -> None:
    agent = await rig.agent("south")
    assert isinstance(await agent.hear(), link.Desired)
    assert agent.socket is not None
    rig.world.core.reign.lose("a test")
    report = SiteReport(taken_at=rig.world.clock.now(), pools=())
    await agent.say(link.Report(report, sent_boot_s=1.0))
    async with asyncio.timeout(60):
        if (frame := await agent.socket.receive()).type is WSMsgType.TEXT:
            raise AssertionError(f"it was told {frame.data}")
    assert (await agent.ask("GET", f"/agent/v1/specs/{'0' * 64}")).status == 503


async def test_not_even_a_decision_is_recorded_by_one_who_was_replaced(rig: Rig) -> None:
    """Its clock may say that it leads; the store knows better."""
    world = rig.world
    await world.add_site("north")
    await world.submit()
    plan, last = await world.core.turn.once(), world.core.turn.last
    assert plan is not None
    assert last is not None
    usurper = Put(LEADER_KEY, b'{"number":9,"leader":"other","since_at":0.0}')
    await world.core.records.store.commit(Transaction(puts=(usurper,)))
    before = await world.core.records.store.range("decision")
    with pytest.raises(NotLeading):
        await world.core.decisions.record(last[0], msgspec.structs.replace(plan, decision="dec-late"))
    assert await world.core.records.store.range("decision") == before


async def test_one_that_stands_by_names_the_leader_for_whatever_it_is_asked() -> None:
    leader = Term(number=3, leader="x", since_at=0.0, address="http://leader:7070")
    trouble = ""
    async with TestClient(TestServer(build_standby(lambda: leader, lambda: trouble))) as client:
        for method, path in (
            ("GET", "/v1/jobs"),
            ("POST", "/v1/jobs"),
            ("GET", "/agent/v1/link"),
            ("PUT", "/x"),
        ):
            answer = await client.request(method, path)
            problem = await answer.json()
            assert (answer.status, problem["code"]) == (503, "not-leading")
            assert "http://leader:7070 leads" in problem["detail"]
            assert answer.headers[LEADER_HEADER] == "http://leader:7070"
        assert (await client.get("/healthz")).status == 200
        assert (await client.get("/metrics")).status == 200
        ready = await client.get("/readyz")
        assert ready.status == 503
        assert await ready.json() == {"status": "standby", "leader": "http://leader:7070"}
        trouble = "the etcd cluster does not answer"
        assert trouble in (await (await client.get("/v1/jobs")).json())["detail"]
