"""Promise 2 over a bad network: whatever is late, lost or cut, the dispatcher gives work up only when its site has ended it, though clocks drift.

Both sides are the production ones, the agent's core and the dispatcher's fences; between them is a network that hypothesis makes bad, and each has a
boot clock of its own, which runs up to half a percent fast or slow.
"""

import asyncio
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.machine import next_wake_boot_s
from tests.support.dispatch import World as Dispatcher
from tests.support.dispatch import make_world
from tests.support.examples import examples
from tests.unit.agent.worlds import World as Agent
from tests.unit.agent.worlds import spec

WITHIN_S = (100.0, 900.0)
GRACE_S = 60.0
DRIFT = 0.0045
SHARES = st.sampled_from([0.0, 0.02, 0.1, 0.3])
"""Of the time that the job may be cut off."""


class Exchange(NamedTuple):
    """One message of the agent and its answer. Times are shares of stop_within."""

    pause: float
    way_up: float
    way_down: float
    lost: str
    """What gets lost: `nothing`, the `answer`, the `question`; or the whole `session` is, and the next message is a proof."""


EXCHANGES = st.builds(
    Exchange, SHARES, SHARES, SHARES, st.sampled_from(["nothing", "nothing", "answer", "question", "session"])
)


class Network:
    """An agent whose one job does not end when asked, a dispatcher, and what is on its way between them."""

    def __init__(self, within_s: float, agent_rate: float, dispatcher_rate: float) -> None:
        self.agent = Agent()
        self.within_s = within_s
        self.agent_rate, self.dispatcher_rate = agent_rate, dispatcher_rate
        self.alive = True
        self.given_up = False
        self.dispatcher: Dispatcher
        self.linked = True

    async def begin(self) -> None:
        """The job runs."""
        self.dispatcher = await make_world()
        lab = await self.dispatcher.add_site("lab")
        lab.report(self_fencing=True)
        self.agent.tell(ev.LinkUp("inc-1", 1, self.agent.boot_s))
        self.dispatcher.core.fences.begin()
        stop = {"stop_within": f"{self.within_s:g}s"}
        await self.dispatcher.submit(on_disconnect=stop, checkpoint={"grace": f"{GRACE_S:g}s"})
        await self.dispatcher.turn()
        self.dispatcher.core.inventory.answered("lab")
        self.agent.run("pl-1", spec(stop_within_s=self.within_s), grace_s=GRACE_S)

    async def exchange(self, each: Exchange) -> None:
        """The agent says something, and may be answered."""
        await self.wait(each.pause * self.within_s)
        proves, sent_s = not self.linked, self.agent.boot_s
        await self.wait(each.way_up * self.within_s)
        if each.lost == "session":
            self.linked = False
            self.tell(ev.LinkDown())
        if each.lost not in ("nothing", "answer"):
            return
        self.dispatcher.core.inventory.answered("lab")
        await self.wait(each.way_down * self.within_s)
        if each.lost == "nothing":
            self.linked = True
            self.tell(ev.LinkUp("inc-1", 1, sent_s) if proves else ev.Renewed(sent_s))

    async def wait(self, real_s: float) -> None:
        """Time passes for both; the agent wakes when it wants to, the dispatcher looks as often as it can."""
        while real_s > 0:
            step_s = min(real_s, 1.0)
            wake = next_wake_boot_s(self.agent.state)
            if wake is not None and wake > self.agent.boot_s:
                step_s = min(step_s, (wake - self.agent.boot_s) / self.agent_rate)
            step_s = max(step_s, 1e-6)
            self.agent.at += step_s
            self.agent.boot_s += step_s * self.agent_rate
            self.tell(ev.Tick())
            self.dispatcher.clock.advance(step_s * self.dispatcher_rate)
            if await self.dispatcher.core.fences.step():
                assert not self.alive, "given up while it runs"
                self.given_up = True
            real_s -= step_s

    def tell(self, event: ev.Event) -> None:
        """The agent hears of something; a kill takes effect at once."""
        for instruction in self.agent.tell(event):
            if isinstance(instruction, do.SignalRanks) and instruction.signal == "KILL":
                self.alive = False


@pytest.mark.parametrize("within_s", WITHIN_S)
@settings(max_examples=examples(15), deadline=None)
@given(exchanges=st.lists(EXCHANGES, max_size=8), ahead=st.booleans())
def test_it_is_gone_before_it_is_given_up_and_given_up_in_the_end(
    within_s: float, exchanges: list[Exchange], ahead: bool
) -> None:
    async def play() -> None:
        drift = DRIFT if ahead else -DRIFT
        network = Network(within_s, 1 - drift, 1 + drift)
        await network.begin()
        for each in exchanges:
            await network.exchange(each)
        await network.wait(2 * within_s)
        assert not network.alive, "nobody answered, and it still runs"
        assert network.given_up, "it is never started elsewhere"

    asyncio.run(play())
