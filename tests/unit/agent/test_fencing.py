"""Work that is cut off: stopped a grace before its time is over, gone when it is, whatever is heard afterwards; and never begun too late."""

import pytest

from federator.model.placements import Cause, Order, PlacementStatus
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.machine import next_wake_boot_s
from federator_agent.core.state import Phase
from tests.unit.agent.worlds import World, entry, only, spec

WITHIN_S, GRACE_S = 600.0, 60.0
FENCED = spec(stop_within_s=WITHIN_S)
KEPT = spec()


def renew(world: World) -> list[do.Instruction]:
    """The dispatcher answers a message that was sent now."""
    return world.tell(ev.Renewed(world.boot_s))


def a_world(*, asked_boot_s: float | None = 1000.0) -> World:
    world = World()
    world.tell(ev.LinkUp("inc-1", 1, asked_boot_s))
    return world


def running(world: World) -> None:
    world.run("pl-1", FENCED, grace_s=GRACE_S)
    assert world.state.records["pl-1"].phase is Phase.RUNNING


def signals(instructions: list[do.Instruction]) -> list[str]:
    return [each.signal for each in only(instructions, do.SignalRanks)]


def test_it_is_asked_a_grace_before_its_time_is_over_and_killed_when_it_is() -> None:
    world = a_world()
    running(world)
    world.tell(ev.LinkDown())
    assert next_wake_boot_s(world.state) == 1000.0 + WITHIN_S - GRACE_S
    assert signals(world.advance(WITHIN_S - GRACE_S - 1)) == []
    assert signals(world.advance(1)) == ["TERM"]
    assert signals(world.advance(GRACE_S - 1)) == []
    assert signals(world.advance(1)) == ["KILL"]
    world.end("pl-1", code=137)
    world.tell(ev.Collected("pl-1"))
    world.connect()
    report = world.last("pl-1")
    assert (report.status, report.cause, report.checkpointed) == (
        PlacementStatus.STOPPED,
        Cause.STOPPED,
        False,
    )
    assert "cut off" in report.detail


def test_time_counts_from_when_the_answered_message_was_sent_not_from_its_answer() -> None:
    world = a_world()
    running(world)
    asked_boot_s = world.boot_s
    world.advance(500)
    (kept,) = only(world.tell(ev.Renewed(asked_boot_s + 5)), do.KeepRenewal)
    assert kept.boot_s == asked_boot_s + 5, "what watches from outside is told the same"
    assert next_wake_boot_s(world.state) == asked_boot_s + 5 + WITHIN_S - GRACE_S


def test_a_new_session_counts_from_when_its_proof_was_sent() -> None:
    world = a_world()
    running(world)
    world.tell(ev.LinkDown())
    world.advance(300)
    asked_boot_s = world.boot_s
    world.at, world.boot_s = world.at + 100, world.boot_s + 100
    (kept,) = only(world.tell(ev.LinkUp("inc-1", 2, asked_boot_s)), do.KeepRenewal)
    assert kept.boot_s == asked_boot_s
    assert next_wake_boot_s(world.state) == asked_boot_s + WITHIN_S - GRACE_S


@pytest.mark.parametrize("sent_s", [-1.0, 100.0])
def test_an_answer_to_something_older_or_not_yet_sent_renews_nothing(sent_s: float) -> None:
    world = a_world()
    running(world)
    before = next_wake_boot_s(world.state)
    assert world.tell(ev.Renewed(world.boot_s + sent_s)) == []
    assert next_wake_boot_s(world.state) == before


def test_as_long_as_there_are_answers_it_goes_on() -> None:
    world = a_world()
    running(world)
    for _ in range(20):
        assert signals(world.advance(WITHIN_S - GRACE_S - 1)) == []
        renew(world)


def test_a_renewal_that_comes_too_late_takes_nothing_back() -> None:
    world = a_world()
    running(world)
    world.at, world.boot_s = world.at + WITHIN_S - GRACE_S, world.boot_s + WITHIN_S - GRACE_S
    assert signals(renew(world)) == ["TERM"]
    assert world.state.records["pl-1"].phase is Phase.STOPPING
    assert signals(world.advance(GRACE_S)) == ["KILL"]


def test_an_agent_that_slept_stops_at_once_and_grants_no_new_grace() -> None:
    world = a_world()
    running(world)
    assert signals(world.advance(WITHIN_S - GRACE_S + 10)) == ["TERM"]
    assert signals(world.advance(GRACE_S - 10)) == ["KILL"]


def test_an_end_after_it_was_asked_from_outside_is_no_success() -> None:
    """The watchdog has asked it while the agent slept; it saved itself and ended with 0: half the work is done."""
    world = a_world()
    running(world)
    world.at, world.boot_s = world.at + WITHIN_S, world.boot_s + WITHIN_S
    asked_at = world.at - GRACE_S
    world.tell(ev.RankEnded("pl-1", 0, asked_at + 2, 0))
    world.tell(ev.Collected("pl-1"))
    assert world.last("pl-1").status is PlacementStatus.STOPPED


def test_kept_work_is_never_stopped_for_being_cut_off() -> None:
    world = a_world()
    world.run("pl-1", KEPT)
    world.tell(ev.LinkDown())
    assert next_wake_boot_s(world.state) is None
    assert signals(world.advance(10 * 365 * 86400)) == []


@pytest.mark.parametrize("order", [Order.RESERVE, Order.RUN])
def test_what_has_not_started_does_not_start_once_its_time_is_over(order: Order) -> None:
    world = a_world()
    world.want(entry("pl-1", FENCED, order=order, grace_s=GRACE_S))
    world.bring(FENCED)
    renewed_s = world.boot_s
    world.tell(ev.LinkDown())
    world.at, world.boot_s = world.at + WITHIN_S, renewed_s + WITHIN_S
    assert only(world.tell(ev.Staged("pl-1", 29500)), do.StartRanks) == []
    assert only(world.tell(ev.LinkUp("inc-1", 1, world.boot_s)), do.StartRanks) == []
    assert world.state.records["pl-1"].phase in (Phase.UNSTAGING, Phase.ENDED)


def test_a_spec_that_arrives_after_a_long_outage_starts_nothing_before_the_dispatcher_has_spoken() -> None:
    """It may have been given up for lost and started elsewhere meanwhile: only the new session's desired set says."""
    world = a_world()
    world.want(entry("pl-1", FENCED, grace_s=GRACE_S))
    world.tell(ev.LinkDown())
    world.advance(10 * WITHIN_S)
    world.tell(ev.LinkUp("inc-1", 1, world.boot_s))
    assert only(world.bring(FENCED), do.Stage) == []
    instructions = world.want(entry("pl-1", FENCED, grace_s=GRACE_S, order=Order.STOP))
    assert only(instructions, do.Stage) == []
    assert world.last("pl-1").status is PlacementStatus.STOPPED


def test_after_a_restart_it_counts_from_the_renewal_that_the_disk_has() -> None:
    world = a_world()
    running(world)
    world.specs = dict(world.state.specs)
    world.advance(100)
    world.crash()
    world.tell(ev.Awake("boot-1", 1050.0))
    assert next_wake_boot_s(world.state) == 1050.0 + WITHIN_S - GRACE_S


def test_nothing_begins_from_memory_alone() -> None:
    """Restarted after a long time, with the order and the spec on its disk: the order is not good any more."""
    world = a_world()
    world.want(entry("pl-1", FENCED, grace_s=GRACE_S))
    world.crash()
    world.advance(WITHIN_S)
    world.tell(ev.Awake("boot-1", 1000.0))
    assert only(world.bring(FENCED), do.Stage) == []


def test_after_a_reboot_it_is_lost_as_any_other_work() -> None:
    world = a_world()
    running(world)
    world.specs = dict(world.state.specs)
    world.crash(boot_id="boot-2")
    assert signals(world.advance(WITHIN_S)) == []
    world.end("pl-1", code=None, detail="the machine was restarted")
    world.tell(ev.Collected("pl-1"))
    world.connect()
    assert world.last("pl-1").status is PlacementStatus.LOST
