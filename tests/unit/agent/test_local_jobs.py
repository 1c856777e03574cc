"""What the agent admits by itself: only while it is cut off, within its allotment, beside what was planned; and it says nothing of it too early."""

from typing import Any

import msgspec
import pytest

from federator.model.allotments import Allotment
from federator.model.placements import PlacementStatus
from federator.wire.jobfile import encode_spec
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.state import LocalChange, State, restore, whole
from tests.unit.agent.worlds import World, only, spec

ALLOTMENT = Allotment(
    policy="Allotment/here",
    queue="retrain",
    users=("ada",),
    gpu_h=4.0,
    jobs=3,
    max_duration_s=3600.0,
    max_priority=30,
    after_s=60.0,
    longest_s=86_400.0,
)


def cut_off(*allotments: Allotment, down_s: float = 61.0) -> World:
    """An agent that has lost its dispatcher so long ago."""
    world = World()
    world.connect()
    world.tell(ev.Allotted(allotments or (ALLOTMENT,)))
    world.tell(ev.LinkDown())
    world.advance(down_s)
    return world


def submit(world: World, name: str = "a", gpus: int = 1, **fields: Any) -> str:
    """The refusal; empty: it was admitted."""
    of = spec(gpus=gpus)
    given = {"owner": "ada", "spec": of, "text": encode_spec(of).decode(), "at": world.at, **fields}
    answers = only(
        world.tell(ev.LocalSubmitted(job=f"job-{name}", placement=f"pl-{name}", **given)), do.Answer
    )
    refusal: str = answers[0].refusal
    return refusal


def test_it_is_written_down_before_it_is_begun_and_answered() -> None:
    world = cut_off()
    of = spec()
    done = world.tell(
        ev.LocalSubmitted(
            job="job-a", placement="pl-a", owner="ada", spec=of, text=encode_spec(of).decode(), at=world.at
        )
    )
    assert isinstance(done[0], do.Persist)
    assert isinstance(done[0].changes[0], LocalChange)
    assert only(done, do.Stage)
    assert only(done, do.Answer)[0].refusal == ""
    work = world.state.local["pl-a"].job
    assert (work.queue, work.max_duration_s, work.priority) == ("retrain", 3600.0, 30)
    assert world.state.records["pl-a"].entry.max_duration_s == 3600.0


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another person": ({"owner": "ben"}, "no allotment of this site is for ben"),
    "another queue": ({"queue": "other"}, "for ada in queue other"),
    "for too long": ({"max_duration_s": 3601.0}, "max_duration"),
    "too important": ({"priority": 31}, "priority 31 is above the 30"),
    "more than there is": ({"gpus": 5}, "GPU-hours"),
    "more than a host has": ({"gpus": 8, "max_duration_s": 60.0}, "GPUs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_beyond_the_allotment_is_refused_and_leaves_nothing(case: str) -> None:
    fields, says = REFUSED[case]
    world = cut_off()
    assert says in submit(world, **fields)
    assert not world.state.local
    assert not world.state.records


def test_a_job_that_needs_what_the_site_has_not_is_refused() -> None:
    world = cut_off()
    of = spec(image="pytorch/pytorch:2.4.0", secrets=("wandb",))
    assert "images, secret:wandb" in submit(world, spec=of, text=encode_spec(of).decode())
    world.state = msgspec.structs.replace(world.state, abilities=("images", "secret:wandb"))
    assert submit(world, spec=of, text=encode_spec(of).decode()) == ""


def test_nothing_is_admitted_while_connected_nor_right_after() -> None:
    world = cut_off(down_s=59.0)
    assert "59s" in submit(world)
    world.advance(1.0)
    assert submit(world, "b") == ""
    world.connect()
    assert "this site is connected" in submit(world, "c")


def test_nothing_is_admitted_without_an_allotment_or_long_after_the_last_word() -> None:
    bare = World()
    bare.advance(3600.0)
    assert "no allotment" in submit(bare)
    world = cut_off(down_s=86_399.0)
    assert submit(world) == ""
    world.advance(2.0)
    assert "last heard" in submit(world, "b")


def test_an_allotment_is_used_up_by_what_may_run_and_given_back_by_what_has_ended() -> None:
    world = cut_off()
    assert submit(world, "a", gpus=3) == ""
    assert "2 GPU-hours, and of the allotment's 4 in 24 hours 1 are left" in submit(world, "b", gpus=2)
    world.tell(ev.Staged("pl-a", 29500))
    world.tell(ev.RankStarted("pl-a", 0, world.at))
    world.advance(1200.0)
    world.end("pl-a")
    assert submit(world, "b", gpus=3) == ""
    assert "GPU-hours" in submit(world, "c", gpus=1)
    world.advance(86_000.0)
    assert "last heard" in submit(world, "c")


def test_a_link_that_comes_and_goes_renews_nothing() -> None:
    world = cut_off()
    for name in "abc":
        assert submit(world, name, max_duration_s=60.0) == ""
        world.connect()
        world.tell(ev.Adopted((f"pl-{name}",)))
        world.tell(ev.LinkDown())
        world.advance(61.0)
    assert "3 jobs were admitted" in submit(world, "d")


def test_what_was_planned_keeps_its_place() -> None:
    world = World()
    world.connect()
    world.tell(ev.Allotted((msgspec.structs.replace(ALLOTMENT, gpu_h=100.0),)))
    world.run("planned", spec(gpus=4, nodes=2))
    world.tell(ev.LinkDown())
    world.advance(61.0)
    assert "no room" in submit(world)
    for rank in range(2):
        world.end("planned", rank)
    assert submit(world, "b", gpus=4) == ""


def test_the_owner_of_the_site_may_have_paused_it() -> None:
    world = cut_off()
    world.tell(ev.Paused(True))
    assert "paused" in submit(world)


def test_nothing_is_said_of_it_before_it_is_adopted_and_no_other_number_is_taken_for_its() -> None:
    world = cut_off()
    submit(world)
    world.tell(ev.Staged("pl-a", 29500))
    world.tell(ev.RankStarted("pl-a", 0, world.at))
    offered = only(world.connect(), do.OfferJobs)
    assert [job.placement for job in offered[0].jobs] == ["pl-a"]
    world.tell(ev.ReportDue())
    assert not world.said
    world.tell(ev.Acknowledged(10**6))
    done = world.tell(ev.Adopted(("pl-a",)))
    assert only(done, do.Release)[0].placement == "pl-a"
    assert [report.status for report in world.said] == [PlacementStatus.RUNNING]
    record = world.state.records["pl-a"]
    assert record.report is not None
    world.tell(ev.Acknowledged(record.report.seq - 1))
    assert not world.state.records["pl-a"].acknowledged, "that was about another placement"


def test_an_acknowledgement_that_was_on_its_way_is_not_about_it() -> None:
    """Of another placement, whose number is higher than any that this one has had."""
    world = cut_off()
    submit(world)
    world.tell(ev.Staged("pl-a", 29500))
    world.tell(ev.RankStarted("pl-a", 0, world.at))
    world.end("pl-a")
    world.tell(ev.Collected("pl-a"))
    world.connect()
    world.run("other", spec())
    (other,) = [each for each in world.said if each.placement == "other" and each.status == "RUNNING"]
    world.tell(ev.Adopted(("pl-a",)))
    world.tell(ev.Acknowledged(other.seq))
    assert "pl-a" in world.state.records, "the dispatcher has not heard of its end"


def test_more_than_one_message_holds_follows_when_the_first_is_adopted() -> None:
    many = msgspec.structs.replace(ALLOTMENT, jobs=100, gpu_h=1000.0)
    world = cut_off(many)
    for number in range(25):
        assert submit(world, f"{number:02}", gpus=0) == ""
    first = only(world.connect(), do.OfferJobs)[0].jobs
    rest = only(world.tell(ev.Adopted(tuple(job.placement for job in first))), do.OfferJobs)[0].jobs
    assert (len(first), len(rest)) == (20, 5)
    world.advance(61.0)
    assert only(world.tell(ev.ReportDue()), do.OfferJobs)[0].jobs == rest, "said again"


def test_a_crash_forgets_nothing_and_tears_nothing_apart() -> None:
    world = cut_off()
    submit(world)
    work = world.state.local["pl-a"]
    world.specs[work.job.spec_hash] = spec()
    done = world.crash()
    assert [each.placement for each in only(done, do.Withhold)] == ["pl-a"]
    assert world.state.local == {"pl-a": work}
    assert restore(State(site=world.site), whole(world.state)).local == {"pl-a": work}
    torn = next(number for number, change in enumerate(world.disk) if isinstance(change, LocalChange))
    del world.disk[torn + 1 :]
    world.crash()
    assert not world.state.local, "a job without its placement never began"


def test_cancelled_at_the_site_it_stays_cancelled_and_an_adopted_one_is_the_dispatchers() -> None:
    world = cut_off()
    submit(world)
    world.tell(ev.Staged("pl-a", 29500))
    world.tell(ev.RankStarted("pl-a", 0, world.at))
    done = world.tell(ev.LocalCancelled("pl-a", "ada"))
    assert only(done, do.Answer)[0].refusal == ""
    assert only(done, do.SignalRanks)
    assert only(world.connect(), do.OfferJobs)[0].jobs[0].cancelled_by == "ada"
    world.tell(ev.Adopted(("pl-a",)))
    world.tell(ev.LinkDown())
    assert "cancel it there" in only(world.tell(ev.LocalCancelled("pl-a", "ada")), do.Answer)[0].refusal


def test_a_store_from_a_backup_is_told_what_there_still_is_a_record_of() -> None:
    world = cut_off()
    submit(world)
    world.connect()
    world.tell(ev.Adopted(("pl-a",)))
    world.tell(ev.LinkDown())
    assert only(world.connect("inc-2"), do.OfferJobs)[0].jobs[0].placement == "pl-a"


def test_it_is_forgotten_after_a_day() -> None:
    world = cut_off()
    submit(world)
    world.tell(ev.Staged("pl-a", 29500))
    world.tell(ev.RankStarted("pl-a", 0, world.at))
    world.end("pl-a")
    world.connect()
    world.tell(ev.Adopted(("pl-a",)))
    world.tell(ev.Collected("pl-a"))
    world.tell(ev.Acknowledged(world.said[-1].seq))
    world.tell(ev.ReportDue())
    assert "pl-a" in world.state.local
    world.advance(86_400.0)
    world.tell(ev.ReportDue())
    assert not world.state.local


def test_an_agent_without_allotments_writes_nothing_that_an_older_one_cannot_read() -> None:
    world = World()
    world.connect()
    world.tell(ev.Allotted(()))
    world.tell(ev.LinkDown())
    assert not [change for change in world.disk if "Allot" in type(change).__name__]
