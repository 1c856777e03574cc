"""Parts of gangs over several members: held until told to run, started once, given back in time."""

from federator.model.placements import Order, PlacementStatus
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.admission import RESERVE_FOR_S
from federator_agent.core.machine import next_wake_boot_s
from tests.unit.agent.worlds import World, entry, only, spec

JOB = spec()
GANG = spec(gpus=2, nodes=3)


def test_a_reservation_holds_its_slots_until_it_is_raised_or_runs_out() -> None:
    world = World()
    world.connect()
    world.reserve("p", JOB)
    assert world.last("p").status is PlacementStatus.ACCEPTED
    assert only(world.want(entry("p", JOB)), do.Stage)
    world.reserve("q", JOB)
    assert next_wake_boot_s(world.state) == world.boot_s + RESERVE_FOR_S
    world.advance(RESERVE_FOR_S)
    assert world.last("q").status is PlacementStatus.REFUSED


def test_a_reservation_that_is_raised_starts_its_ranks_once() -> None:
    world = World()
    world.connect()
    world.reserve("p", GANG, ranks=(1, 2))
    raised = entry("p", GANG, ranks=(1, 2), rendezvous="10.0.0.9:4000")
    assert len(only(world.want(raised), do.Stage)) == 1
    start = only(world.tell(ev.Staged("p", 29500)), do.StartRanks)
    assert [each.ranks for each in start] == [(1, 2)]
    assert start[0].record.entry.rendezvous == "10.0.0.9:4000"
    assert not only(world.want(raised), do.StartRanks)
    assert not only(world.crash(), do.StartRanks)


def test_a_reservation_that_ran_out_never_runs() -> None:
    """The order to run comes a moment too late: the slots may be somebody else's by now."""
    world = World()
    world.connect()
    world.reserve("p", JOB)
    world.advance(RESERVE_FOR_S)
    refused = world.last("p")
    assert refused.status is PlacementStatus.REFUSED
    late = world.want(entry("p", JOB, rendezvous="10.0.0.9:4000"))
    assert not only(late, do.Stage)
    assert not only(world.tell(ev.Staged("p", 29500)), do.StartRanks)
    assert refused in only(world.connect(), do.SendStatuses)[0].reports


def test_a_reservation_says_where_its_ranks_would_be_found_also_after_a_crash_before_the_answer() -> None:
    world = World()
    world.connect()
    world.want(entry("p", JOB, order=Order.RESERVE))
    assert only(world.bring(JOB), do.FindPort) == [do.FindPort("p")]
    world.crash()
    assert world.said == []
    assert only(world.connect(), do.FindPort) == [do.FindPort("p")]
    world.tell(ev.PortFound("p", 4000))
    world.tell(ev.PortFound("p", 4001))
    assert [(told.status, told.rendezvous) for told in world.said] == [
        (PlacementStatus.ACCEPTED, "10.0.0.5:4000")
    ]


def test_a_host_with_an_ipv6_address_is_found_too() -> None:
    world = World()
    world.tell(ev.LinkUp("inc-1", 1, address="fd00::5"))
    world.reserve("p", JOB)
    assert world.last("p").rendezvous == "[fd00::5]:31234"


def test_what_a_part_of_a_gang_saved_is_kept_though_that_part_succeeded() -> None:
    """Another member's rank may still fail, and the job go on from here."""
    world = World()
    world.connect()
    for placement, fields in (("p", {"ranks": (0,), "rendezvous": "10.0.0.9:4000"}), ("q", {})):
        world.run(placement, JOB, **fields)
        world.end(placement)
        world.tell(ev.Collected(placement))
        (discard,) = only(world.tell(ev.Acknowledged(world.last(placement).seq)), do.Discard)
        assert discard.checkpoints_of == (None if fields else f"job-{placement}")
