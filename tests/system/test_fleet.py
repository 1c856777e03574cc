"""Many agents and one dispatcher: they all come back when it does, and people do not notice."""

import asyncio
import re
from pathlib import Path

import aiohttp
import pytest

from federator.client import AsyncClient
from tests.support.fleet import Dispatcher, Fleet

pytestmark = pytest.mark.system

AGENTS = 200
DOWN_S = 1.5
LIMIT_S = 120.0
JOB = {"run": "sleep 1000", "resources": {"cpus": 1}}


async def test_a_dispatcher_that_comes_back_is_not_run_down(tmp_path: Path) -> None:
    dispatcher = Dispatcher(tmp_path, link={"report_every_s": 2.0})
    await dispatcher.start()
    try:
        async with Fleet(dispatcher) as fleet:
            await fleet.join(AGENTS)
            await fleet.until(lambda: fleet.linked == AGENTS, LIMIT_S)
            async with AsyncClient(dispatcher.url, dispatcher.token) as people:
                await people.submit({**JOB, "array": f"0-{AGENTS - 1}"})
            await fleet.until(lambda: len(fleet.running) == AGENTS, LIMIT_S)
            placed = fleet.running
            before = {agent.name: agent.attempts for agent in fleet.agents}

            dispatcher.kill()
            await fleet.until(lambda: fleet.linked == 0, LIMIT_S)
            await asyncio.sleep(DOWN_S)
            await dispatcher.start()
            asked = asyncio.create_task(_ask(dispatcher, fleet))
            await fleet.until(lambda: fleet.linked == AGENTS, LIMIT_S)
            assert await asked > 0

            tries = [agent.attempts - before[agent.name] for agent in fleet.agents]
            assert max(tries) <= 12, "pauses grow"
            assert {len(agent.welcomes) for agent in fleet.agents} == {2}, (
                "each is seated once more, not twice"
            )
            assert placed <= fleet.running, "all work goes on"
            await _settled(dispatcher)
    finally:
        dispatcher.end()


async def _ask(dispatcher: Dispatcher, fleet: Fleet) -> int:
    """Submit and list until everybody is back, without a second try: what is not answered fails the test. How often."""
    times = 0
    async with AsyncClient(dispatcher.url, dispatcher.token, patience_s=0.0) as people:
        while fleet.linked < AGENTS:
            await people.submit({**JOB, "name": f"meanwhile-{times}"})
            await people.jobs()
            times += 1
            await asyncio.sleep(0.02)
    return times


async def _settled(dispatcher: Dispatcher) -> None:
    """The dispatcher counts as many sessions as there are agents, and none has ended since it started but by itself."""
    async with (
        aiohttp.ClientSession() as http,
        http.get(
            f"{dispatcher.url}/metrics", headers={"Authorization": f"Bearer {dispatcher.token}"}
        ) as answer,
    ):
        metrics = await answer.text()
    assert re.search(rf"^federator_link_sessions {AGENTS}(\.0)?$", metrics, re.MULTILINE)
    ended = re.findall(r'^federator_link_ended_total{cause="([^"]+)"}', metrics, re.MULTILINE)
    assert set(ended) <= {"disconnected", "busy"}, "nothing has timed out, and nobody was replaced"
