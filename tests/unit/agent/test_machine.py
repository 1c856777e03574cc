"""The agent's decisions, one by one. What would break without each is in the test's name."""

import pytest

from federator.model.placements import Cause, Order, PlacementStatus
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core import state
from federator_agent.core.lent_capacity import Hours
from federator_agent.core.machine import next_wake_boot_s
from federator_agent.core.state import State, restore, whole
from tests.unit.agent.worlds import World, entry, lending, only, spec, spec_hash

JOB = spec()
GANG = spec(gpus=2, nodes=3)


def test_intent_is_on_disk_before_any_rank_is_started() -> None:
    world = World()
    world.want(entry("p", GANG))
    world.bring(GANG)
    before = len(world.disk)
    start = only(world.tell(ev.Staged("p", 29500)), do.StartRanks)
    assert len(world.disk) > before
    assert start[0].ranks == (0, 1, 2)
    again = only(world.crash(), do.FindRanks)
    assert [(found.record.entry.placement, found.ranks) for found in again] == [("p", (0, 1, 2))]


def test_events_that_come_together_share_one_write_and_only_the_newest_status_is_told() -> None:
    world = World()
    world.connect()
    world.run("p", JOB)
    world.want(entry("q", JOB))
    told = world.tell(ev.RankEnded("p", 0, world.at, 0, ""), ev.Staged("q", 29501))
    assert [type(each) for each in told].count(do.Persist) == 1
    assert only(told, do.Collect)[0].record.entry.placement == "p"
    assert only(told, do.StartRanks)[0].record.entry.placement == "q"
    told = world.tell(
        ev.Collected("p"), ev.RankStarted("q", 0, world.at), ev.RankEnded("q", 0, world.at, 1, "")
    )
    (statuses,) = only(told, do.SendStatuses)
    assert {each.placement: each.status for each in statuses.reports} == {
        "p": PlacementStatus.SUCCEEDED,
        "q": PlacementStatus.RUNNING,
    }
    (ended,) = only(world.tell(ev.Collected("q")), do.SendStatuses)
    assert ended.reports[0].started_at is not None


def test_a_rank_that_was_never_started_is_started_after_a_crash_and_one_that_was_is_not() -> None:
    world = World()
    world.want(entry("p", GANG))
    world.bring(GANG)
    world.tell(ev.Staged("p", 29500))
    world.crash()
    assert not only(world.tell(ev.RankStarted("p", 0, world.at)), do.StartRanks)
    assert only(world.tell(ev.RankAbsent("p", 1)), do.StartRanks)[0].ranks == (1,)


def test_after_another_boot_silence_of_the_disk_is_a_loss_and_not_a_second_start() -> None:
    world = World()
    world.connect()
    world.run("p", JOB)
    world.crash(boot_id="boot-2")
    world.connect()
    assert not only(world.tell(ev.RankAbsent("p", 0)), do.StartRanks)
    world.tell(ev.Collected("p"))
    assert (world.last("p").status, world.last("p").cause) == (PlacementStatus.LOST, Cause.NODE_LOST)


def test_statuses_are_repeated_until_acknowledged_and_not_after() -> None:
    world = World()
    world.connect()
    world.run("p", JOB)
    world.end("p")
    world.tell(ev.Collected("p"))
    last = world.last("p")
    assert last.status is PlacementStatus.SUCCEEDED
    assert last in only(world.tell(ev.ReportDue()), do.SendStatuses)[0].reports
    world.crash()
    assert only(world.connect(), do.SendStatuses)[0].reports == (last,)
    world.tell(ev.Acknowledged(last.seq))
    assert not only(world.tell(ev.ReportDue()), do.SendStatuses)


def test_numbers_of_statuses_never_go_back_over_crashes() -> None:
    world = World()
    world.connect()
    for turn in range(5):
        world.run(f"p{turn}", JOB)
        world.crash()
        world.connect()
        world.tell(ev.RankStarted(f"p{turn}", 0, world.at))
        world.end(f"p{turn}")
        world.tell(ev.Collected(f"p{turn}"))
    fresh: dict[int, str] = {}
    for report in world.said:
        assert fresh.setdefault(report.seq, report.placement) == report.placement
    terminal = [report.seq for report in world.said if report.status is PlacementStatus.SUCCEEDED]
    assert list(dict.fromkeys(terminal)) == sorted(set(terminal))


def test_slots_of_what_ended_are_free_at_once_even_while_its_outputs_are_on_the_way() -> None:
    world = World()
    world.connect()
    big = spec(gpus=4, nodes=2)
    world.run("p", big)
    world.want(entry("q", big))
    assert world.last("q").status is PlacementStatus.REFUSED
    world.end("p", 0)
    world.end("p", 1)
    world.want(entry("r", big))
    assert world.last("r").status is PlacementStatus.STARTING


def test_what_is_being_stopped_keeps_its_slots_until_it_is_gone() -> None:
    world = World()
    world.connect()
    big = spec(gpus=4, nodes=2)
    world.run("p", big)
    world.want(entry("p", big, order=Order.STOP))
    world.want(entry("q", big))
    assert world.last("q").status is PlacementStatus.REFUSED


def test_absence_stops_nothing_and_is_answered_with_a_report() -> None:
    world = World()
    world.connect()
    world.run("p", JOB)
    world.said.clear()
    done = world.want(forget=("p",))
    assert not only(done, do.SignalRanks)
    assert world.last("p").status is PlacementStatus.RUNNING
    world.end("p", code=3)
    world.tell(ev.Collected("p"))
    world.tell(ev.Acknowledged(world.last("p").seq))
    assert "p" not in world.state.records


def test_an_older_generation_or_term_changes_nothing() -> None:
    world = World()
    world.connect(term=3)
    world.want(entry("p", JOB), term=3)
    world.bring(JOB)
    world.generation = -1
    answer = world.want(entry("q", JOB), term=3)
    assert only(answer, do.SendDesiredAck)[0].generation == 1
    world.generation = 5
    world.want(entry("r", JOB), term=2)
    assert set(world.state.records) == {"p"}


def test_max_duration_counts_from_the_first_start_also_over_a_crash() -> None:
    world = World()
    world.connect()
    world.run("p", JOB, max_duration_s=100.0, signal="USR1")
    world.advance(60)
    world.crash()
    world.connect()
    world.tell(ev.RankStarted("p", 0, world.at - 60))
    assert not only(world.advance(39), do.SignalRanks)
    assert only(world.advance(2), do.SignalRanks)[0].signal == "USR1"
    world.end("p", code=1)
    world.tell(ev.Collected("p"))
    end = world.last("p")
    assert (end.status, end.cause, end.checkpointed) == (PlacementStatus.FAILED, Cause.MAX_DURATION, True)


def test_a_set_up_counts_as_run_time_and_is_ended_at_the_limit() -> None:
    world = World()
    world.connect()
    for name in ("hangs", "slow"):
        world.want(entry(name, JOB, max_duration_s=100.0))
    world.bring(JOB)
    world.advance(500)
    world.tell(ev.SettingUp("hangs"), ev.SettingUp("slow"))
    assert next_wake_boot_s(world.state) == world.boot_s + 100
    world.advance(60)
    world.tell(ev.Staged("slow", 1))
    world.tell(ev.RankStarted("slow", 0, world.at))
    assert not only(world.advance(39), do.SignalRanks)
    ended = world.advance(2)
    assert [each.placement for each in only(ended, do.StopStaging)] == ["hangs"]
    assert [each.placement for each in only(ended, do.SignalRanks)] == ["slow"]
    world.tell(ev.StagingStopped("hangs"))
    world.tell(ev.Collected("hangs"))
    end = world.last("hangs")
    assert (end.status, end.cause, end.checkpointed) == (PlacementStatus.FAILED, Cause.MAX_DURATION, False)
    assert end.exit_code is None
    assert "set-up" in end.detail


def test_a_set_up_that_a_new_life_of_the_agent_repeats_has_its_whole_time_again() -> None:
    world = World()
    world.connect()
    world.want(entry("p", JOB, max_duration_s=100.0))
    world.bring(JOB)
    world.tell(ev.SettingUp("p"))
    world.advance(99)
    world.crash()
    assert not only(world.advance(50), do.StopStaging), "it waits for its work directory"
    world.tell(ev.SettingUp("p"))
    assert not only(world.advance(99), do.StopStaging)
    assert only(world.advance(2), do.StopStaging)


def test_what_the_kernel_killed_for_want_of_memory_is_told_so_and_a_bare_137_is_only_explained() -> None:
    world = World()
    world.connect()
    for name, detail, cause in (
        ("starved", "the kernel killed it", Cause.OUT_OF_MEMORY),
        ("killed", "", None),
    ):
        world.run(name, JOB)
        world.end(name, code=137, detail=detail, cause=cause)
        world.tell(ev.Collected(name))
    starved, killed = world.last("starved"), world.last("killed")
    assert (starved.cause, starved.exit_code) == (Cause.OUT_OF_MEMORY, 137)
    assert "the kernel killed it" in starved.detail
    assert (killed.cause, killed.exit_code) == (Cause.EXIT, 137)
    assert "signal 9, often because it ran out of memory" in killed.detail


def test_a_kill_is_repeated_until_the_end_is_seen() -> None:
    world = World()
    world.connect()
    world.run("p", JOB, grace_s=10.0)
    asked = only(world.want(entry("p", JOB, order=Order.STOP, grace_s=10.0)), do.SignalRanks)
    assert asked[0].signal == "TERM"
    assert not only(world.advance(9), do.SignalRanks)
    assert only(world.advance(2), do.SignalRanks)[0].signal == "KILL"
    assert only(world.advance(6), do.SignalRanks)[0].signal == "KILL"
    world.end("p", code=137)
    world.tell(ev.Collected("p"))
    assert (world.last("p").status, world.last("p").checkpointed) == (PlacementStatus.STOPPED, False)


def test_success_before_the_stop_was_asked_stays_a_success() -> None:
    world = World()
    world.connect()
    world.run("p", JOB)
    ended_at = world.at
    world.advance(1)
    world.want(entry("p", JOB, order=Order.STOP))
    world.tell(ev.RankEnded("p", 0, ended_at, 0))
    world.tell(ev.Collected("p"))
    assert world.last("p").status is PlacementStatus.SUCCEEDED


def test_the_first_failed_rank_names_the_exit_code() -> None:
    world = World()
    world.connect()
    world.run("p", GANG)
    asked = only(world.end("p", 1, code=9), do.SignalRanks)
    assert asked[0].ranks == (0, 2)
    world.end("p", 0, code=143)
    world.end("p", 2, code=0)
    world.tell(ev.Collected("p"))
    assert (world.last("p").cause, world.last("p").exit_code) == (Cause.EXIT, 9)


def test_where_the_first_decides_its_success_ends_the_others_and_is_the_placements() -> None:
    world = World()
    world.connect()
    world.run("p", GANG, success="first")
    assert not only(world.end("p", 1), do.SignalRanks), "one that has done its part"
    assert only(world.end("p", 0), do.SignalRanks)[0].ranks == (2,)
    world.advance(1)
    world.end("p", 2, code=143)
    world.tell(ev.Collected("p"))
    assert (world.last("p").status, world.last("p").exit_code) == (PlacementStatus.SUCCEEDED, 0)


def test_where_the_first_decides_a_failure_of_any_rank_is_still_one() -> None:
    for rank, code in ((0, 5), (2, 6)):
        world = World()
        world.connect()
        world.run("p", GANG, success="first")
        world.end("p", rank, code=code)
        world.advance(1)
        for other in {0, 1, 2} - {rank}:
            world.end("p", other, code=0)
        world.tell(ev.Collected("p"))
        assert (world.last("p").status, world.last("p").exit_code) == (PlacementStatus.FAILED, code)


def test_where_the_first_decides_and_has_succeeded_no_later_failure_counts() -> None:
    world = World()
    world.connect()
    world.run("p", GANG, success="first")
    ended_at = world.at
    world.advance(1)
    world.end("p", 2, code=1)
    world.tell(ev.RankEnded("p", 0, ended_at, 0))
    world.end("p", 1, code=143)
    world.tell(ev.Collected("p"))
    assert world.last("p").status is PlacementStatus.SUCCEEDED, "its worker saw the end before the agent did"


def test_a_lost_rank_loses_the_placement_however_the_others_end() -> None:
    world = World()
    world.connect()
    world.run("p", GANG)
    world.end("p", 2, code=None, detail="gone")
    world.end("p", 0, code=143)
    world.end("p", 1, code=143)
    world.tell(ev.Collected("p"))
    assert (world.last("p").status, world.last("p").cause) == (PlacementStatus.LOST, Cause.NODE_LOST)
    assert "gone" in world.last("p").detail


def test_staging_is_given_up_on_a_stop_and_the_end_waits_for_it() -> None:
    world = World()
    world.connect()
    world.want(entry("p", JOB))
    world.bring(JOB)
    assert only(world.want(entry("p", JOB, order=Order.STOP)), do.StopStaging)
    assert world.last("p").status is PlacementStatus.STARTING
    assert not only(world.tell(ev.Staged("p", 1)), do.StartRanks)
    world.tell(ev.StagingStopped("p"))
    world.tell(ev.Collected("p"))
    assert (world.last("p").status, world.last("p").checkpointed) == (PlacementStatus.STOPPED, False)


def test_refusals_name_what_the_owner_does_not_lend() -> None:
    night = Hours(18 * 60, 8 * 60)
    noon = 1_760_011_200.0  # 12:00 UTC
    for site, of, fields, word in (
        (lending(queues=("research",)), JOB, {"queue": "ops/x"}, "lends only to queue research"),
        (lending(pools=("other",)), JOB, {}, "lend its pool gpu"),
        (lending(gpus={"gpu": 3}), spec(gpus=4), {}, "no room"),
        (lending(hours=(night,)), JOB, {}, "hour"),
        (lending(), spec(gpus=8), {}, "has 4 GPUs"),
    ):
        world = World(site)
        world.at = noon
        world.connect()
        world.want(entry("p", of, **fields))
        world.bring(of)
        assert world.last("p").status is PlacementStatus.REFUSED
        assert world.last("p").cause is Cause.CANNOT
        assert word in world.last("p").detail


def test_a_queue_that_is_lent_to_stands_for_all_below_it() -> None:
    world = World(lending(queues=("research",)))
    world.connect()
    world.want(entry("p", JOB, queue="research/vision"))
    world.bring(JOB)
    assert world.last("p").status is PlacementStatus.STARTING
    world.want(entry("q", JOB, queue="researchers"))
    assert world.last("q").status is PlacementStatus.REFUSED


def test_the_report_shows_only_what_is_lent_and_says_so_at_once_when_it_changes() -> None:
    world = World(lending(gpus={"gpu": 6}))
    report = only(world.connect(), do.SendReport)[0].report
    assert [(shape.gpus, shape.count) for shape in report.pools[0].free] == [(2, 1), (4, 1)]
    assert report.pools[0].lent_gpus == 6
    world.want(entry("p", JOB))
    report = only(world.bring(JOB), do.SendReport)[0].report
    assert [shape.gpus for shape in report.pools[0].free] == [1, 4]
    assert report.counted == ("p",)
    assert not only(world.tell(ev.Staged("p", 1)), do.SendReport)
    assert only(world.tell(ev.Paused(paused=True)), do.SendReport)[0].report.paused


def test_outside_the_lent_hours_nothing_is_free_and_what_runs_goes_on() -> None:
    world = World(lending(hours=(Hours(8 * 60, 12 * 60),)))
    world.at = 1_760_000_000.0 - 1_760_000_000.0 % 86400 + 11.5 * 3600
    world.connect()
    world.run("p", JOB)
    world.advance(3600)
    done = world.tell(ev.ReportDue())
    assert only(done, do.SendReport)[0].report.pools[0].free == ()
    assert not only(done, do.SignalRanks)


def test_an_unreadable_spec_is_refused_for_all_that_wait_for_it() -> None:
    world = World()
    world.connect()
    assert len(only(world.want(entry("p", JOB), entry("q", JOB)), do.FetchSpec)) == 2
    world.tell(ev.SpecUnknown(spec_hash(JOB), "not there"))
    assert world.last("p").status is world.last("q").status is PlacementStatus.REFUSED


def test_a_new_incarnation_is_told_everything_and_starts_its_generations_anew() -> None:
    world = World()
    world.connect()
    world.want(entry("old", JOB))
    world.bring(JOB)
    world.want()
    world.tell(ev.Acknowledged(world.last("old").seq))
    again = only(world.connect(incarnation="inc-2"), do.SendStatuses)
    assert [report.placement for report in again[0].reports] == ["old"]
    world.generation, world.desired = 0, {}
    world.want(entry("new", JOB))
    assert set(world.state.records) == {"old", "new"}
    assert world.state.left == ("inc-1",)


def test_a_restored_store_is_told_what_was_over_before() -> None:
    """Its backup may be older than these ends: without them it would run the jobs again."""
    world = World()
    world.connect()
    for placement in ("a", "b"):
        world.run(placement, JOB)
        world.end(placement)
        world.tell(ev.Collected(placement))
        world.tell(ev.Acknowledged(world.last(placement).seq))
        world.want(forget=(placement,))
    assert world.state.records == {}
    world.crash()
    world.connect()
    assert world.state.records == {}, "the same store knows them"
    (said,) = only(world.connect(incarnation="inc-2"), do.SendStatuses)
    assert [(each.placement, each.status, each.job) for each in said.reports] == [
        ("a", PlacementStatus.SUCCEEDED, "job-a"),
        ("b", PlacementStatus.SUCCEEDED, "job-b"),
    ]
    world.generation, world.desired = 0, {}
    world.want()
    world.tell(ev.Acknowledged(said.reports[-1].seq))
    assert world.state.records == {}
    assert set(world.state.over) == {"a", "b"}, "and the next one is told, too"


def test_so_much_is_remembered_of_what_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MOST_OVER", 3)
    world = World()
    world.connect()
    for number in range(5):
        world.run(f"p{number}", JOB)
        world.end(f"p{number}")
        world.tell(ev.Collected(f"p{number}"))
        world.tell(ev.Acknowledged(world.last(f"p{number}").seq))
        world.want(forget=(f"p{number}",))
    assert list(world.state.over) == ["p2", "p3", "p4"]
    again = restore(State(site=world.site), whole(world.state))
    assert again.over == world.state.over
    assert again.records == {}


def test_an_ended_placement_is_tidied_when_known_and_its_checkpoints_only_after_success() -> None:
    world = World()
    world.connect()
    for placement, code in (("good", 0), ("bad", 1)):
        world.run(placement, JOB)
        world.end(placement, code=code)
        world.tell(ev.Collected(placement))
        done = only(world.tell(ev.Acknowledged(world.last(placement).seq)), do.Discard)
        assert done == [do.Discard(placement, f"job-{placement}" if code == 0 else None)]
    world.want(entry("good", JOB))
    assert world.last("good").status is PlacementStatus.SUCCEEDED
    world.want(forget=("good",))
    assert set(world.state.records) == {"bad"}
