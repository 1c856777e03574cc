"""The loop between the core and the world: what comes together is taken up together, and one bad event spoils nothing else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from federator.kernel.route import Way
from federator_agent import loop
from federator_agent.config import AgentSettings
from federator_agent.core import events as ev
from federator_agent.core.machine import step
from federator_agent.loop import Agent
from federator_agent.spool import Identity, Spool
from tests.unit.agent.worlds import SITE


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    spool = Spool(tmp_path)
    spool.load()
    identity = Identity(dispatcher="http://127.0.0.1:9", member="here", site="here", incarnation="inc-1")
    return Agent(AgentSettings(site=SITE, state_dir=tmp_path), identity, spool, Way())


def test_an_event_that_the_core_fails_at_is_dropped_and_those_with_it_are_not(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def failing(state: Any, events: Sequence[ev.Event], now: ev.Now) -> Any:
        if any(isinstance(event, ev.LinkDown) for event in events):
            raise KeyError("a bug")
        return step(state, events, now)

    monkeypatch.setattr(loop, "step", failing)
    agent.handle(ev.LinkUp("inc-1", 3, None), ev.LinkDown(), ev.Paused(paused=True))
    assert agent.state.linked, "the failing event has changed something"
    assert agent.state.paused, "an event after the failing one was lost"
    assert '"term":3' in (tmp_path / "journal").read_text(), "an event before the failing one was lost"


async def test_all_that_has_happened_by_now_is_taken_up_together(agent: Agent) -> None:
    for _ in range(loop.MOST_EVENTS + 1):
        agent.tell(ev.ReportDue())
    assert len(await agent.next_events()) == loop.MOST_EVENTS
    assert len(await agent.next_events()) == 1
