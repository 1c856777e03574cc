"""What an hour costs in which nothing happens at a site: the agent's own loop on a clock of the test's, its messages counted as they are encoded."""

from pathlib import Path
from typing import cast

import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.route import Way
from federator.wire.link import Heard, Report, Unchanged, Up, Welcome, encode
from federator_agent import loop
from federator_agent.config import AgentSettings, parse
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.executor import InstructionExecutor
from federator_agent.link_use import HOUR_S, REPORTS
from federator_agent.loop import Agent
from federator_agent.spool import Identity, Spool

SITE = """
site: ship
pools:
  - {name: a100, model: A100, gpu_memory: 80GB, nodes: 8, gpus_per_node: 8, cpus_per_node: 96, memory_per_node: 1TiB}
  - {name: cpu, nodes: 4, gpus_per_node: 0, cpus_per_node: 32, memory_per_node: 128GiB}
labels: {region: north-sea, vessel: ada}
"""
KB = 1000


class NoHands:
    """Carries out nothing: there is no work."""

    logs = property(lambda self: self)

    def carry_out(self, instruction: do.Instruction) -> None:
        """Nothing."""

    def drop_oldest(self, ended: list[Path]) -> None:
        """Nothing."""


class Quiet:
    """An agent whose dispatcher hears it at once, and has nothing to say."""

    def __init__(
        self, folder: Path, clock: ManualClock, settings: AgentSettings, takes: tuple[str, ...]
    ) -> None:
        spool = Spool(folder)
        spool.load()
        identity = Identity(dispatcher="http://127.0.0.1:9", member="ship", site="ship", incarnation="inc-1")
        self.clock, self.said = clock, list[Up]()
        self.agent = Agent(settings, identity, spool, Way())
        self.agent.link.takes = takes
        self.agent.link.say = self._hear  # type: ignore[method-assign]
        self.agent.executor = cast(InstructionExecutor, NoHands())
        self.agent.handle(ev.Awake("boot"))
        welcome = Welcome("s1", "t1", "inc-1", 1, 5.0, takes)
        self.agent.handle(ev.LinkUp(welcome.incarnation, welcome.term, clock.boot(), ""))

    def _hear(self, message: Up) -> None:
        """As the link does: count it, and what is answered."""
        use = self.agent.link_use
        use.count(REPORTS, sent=len(encode(message)))
        self.said.append(message)
        if isinstance(message, Report | Unchanged):
            assert message.sent_boot_s is not None
            answer = Heard(message.sent_boot_s)
            use.count(REPORTS, received=len(encode(answer)))
            self.agent.said(answer)

    def hour(self) -> int:
        """Bytes of the next hour, both ways."""
        self.said.clear()
        for _ in range(int(HOUR_S)):
            self.clock.advance(1.0)
            self.agent.tick()
        (reports,) = self.agent.link_use.state().hour
        return reports.sent + reports.received


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The agent's."""
    clock = ManualClock()
    monkeypatch.setattr(loop, "parse_clock", lambda _text: clock)
    return clock


def settings(more: str, folder: Path) -> AgentSettings:
    return parse(f"{SITE}state_dir: {folder}\n{more}", "site.yaml", {"PATH": "/bin"})


def test_an_idle_hour_costs_less_than_a_hundred_kilobytes(tmp_path: Path, clock: ManualClock) -> None:
    quiet = Quiet(tmp_path, clock, settings("", tmp_path), ("unchanged",))
    spent = quiet.hour()
    assert {type(message) for message in quiet.said} == {Unchanged}
    assert 700 <= len(quiet.said) <= 720
    assert spent < 100 * KB


def test_an_older_dispatcher_is_told_all_of_it_each_time(tmp_path: Path, clock: ManualClock) -> None:
    quiet = Quiet(tmp_path, clock, settings("", tmp_path), ())
    assert quiet.hour() > 5 * 100 * KB
    assert {type(message) for message in quiet.said} == {Report}


def test_with_a_budget_that_is_used_up_reports_come_as_seldom_as_promises_allow(
    tmp_path: Path, clock: ManualClock
) -> None:
    quiet = Quiet(tmp_path, clock, settings("link: {budget: 1MiB}", tmp_path), ())
    first, second = quiet.hour(), quiet.hour()
    assert second <= first
    assert second < 2**19 + 10 * KB, "half of the budget"
    assert 360 <= len(quiet.said) <= 720


def test_a_report_that_differs_is_told_whole_and_a_new_session_is_told_all(
    tmp_path: Path, clock: ManualClock
) -> None:
    quiet = Quiet(tmp_path, clock, settings("", tmp_path), ("unchanged",))
    quiet.hour()
    quiet.agent.handle(ev.Paused(paused=True))
    assert isinstance(quiet.said[-1], Report)
    assert quiet.said[-1].report.paused
