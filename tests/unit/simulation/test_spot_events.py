"""A real spot market's events on simulated machines: what is taken when, and when nothing is to be had."""

import gzip
import random
from pathlib import Path

import msgspec
import pytest

from federator.kernel.errors import Invalid
from federator.model.capacity import Market
from federator.simulation.clouds import OfferRisk
from federator.simulation.spot_events import SpotEvent, SpotHistory, read_history
from federator.simulation.world_files import from_yaml
from tests.unit.simulation.tiny import HOUR_S, OFFER, TURN_S, job, renting_world, run

TABLE = """trace,t_s,event,node,instances_after
aws-p3,0,add,n1,1
aws-p3,0,add,n2,2
aws-g4dn,0,add,n1,1
aws-p3,3600,remove,n1,1
aws-p3,5400,add,n3,2
aws-p3,7200,remove,n2,1
aws-p3,9000,add,n4,2
"""
WORLD = """
sites: [{name: a, pools: [{model: A100, nodes: 1, gpus_per_node: 4}]}]
burst:
  - {model: A100, gpus: 4, price: 4 USD, market: %s, events: {file: events.csv.gz, trace: %s, start: 30m}}
"""
SPOT = msgspec.structs.replace(OFFER, market=Market.SPOT, price_usd_h=4.0)


def written(folder: Path) -> Path:
    path = folder / "events.csv.gz"
    path.write_bytes(gzip.compress(TABLE.encode()))
    return path


def test_a_trace_is_read_from_its_table(tmp_path: Path) -> None:
    history = read_history(written(tmp_path), "aws-p3")
    assert [event.taken_of for event in history.events] == [0, 0, 2, 0, 2, 0]
    assert history.length_s == 9001.0


def test_nothing_is_to_be_had_after_a_removal_until_something_is_given(tmp_path: Path) -> None:
    history = read_history(written(tmp_path), "aws-p3")
    times_s = (0.0, 3599.0, 3600.0, 5399.0, 5400.0, 7200.0, 9000.0, 9001.0 + 3600.0)
    assert [history.sold_out(at_s) for at_s in times_s] == [
        False,
        False,
        True,
        True,
        False,
        True,
        False,
        True,
    ]
    later = msgspec.structs.replace(history, start_s=3600.0)
    assert later.sold_out(0.0)


def test_a_removal_takes_one_of_so_many(tmp_path: Path) -> None:
    """Of two machines each is taken with a chance of a half at 3600 s, and of the rest half at 7200 s; then the trace begins again."""
    history = read_history(written(tmp_path), "aws-p3")
    lives = [history.lives_s(0.0, random.Random(n)) for n in range(2000)]
    shares = [sum(life == at_s for life in lives) / len(lives) for at_s in (3600.0, 7200.0, 9001.0 + 3600.0)]
    assert shares == pytest.approx([0.5, 0.25, 0.125], abs=0.04)


def test_simulated_machines_are_taken_when_the_trace_says_so() -> None:
    """The one machine of the trace is taken two hours after the start, and given again an hour later: ours is taken then, too, and none can be rented before."""
    history = SpotHistory(
        events=(
            SpotEvent(0.0, 0),
            SpotEvent(2 * HOUR_S, 1),
            SpotEvent(3 * HOUR_S, 0),
            SpotEvent(90 * HOUR_S, 1),
        )
    )
    jobs = [job("long", run_s=30 * HOUR_S, gpus=4), job("next", 60.0, gpus=4, run_s=5 * HOUR_S)]
    outcome = run(renting_world(SPOT, OfferRisk(history=history)), *jobs, by="fifo")
    first, *_, last = [row for row in outcome.schedule.attempts if row.job == "next"]
    assert first.end_s == pytest.approx(2 * HOUR_S, abs=200.0)
    assert first.outcome != "succeeded"
    assert last.outcome == "succeeded"
    launched = sorted(lease.start_s for lease in outcome.schedule.leases if lease.start_s is not None)
    assert launched[0] < HOUR_S
    assert launched[1] > 3 * HOUR_S - TURN_S


def test_a_world_file_names_the_table_beside_it(tmp_path: Path) -> None:
    written(tmp_path)
    world = from_yaml(WORLD % ("spot", "aws-p3"), tmp_path)
    (risk,) = world.risks.values()
    assert risk.history is not None
    assert (risk.history.start_s, len(risk.history.events)) == (1800.0, 6)


@pytest.mark.parametrize(
    ("market", "trace", "words"),
    [("spot", "aws-p4", "aws-g4dn, aws-p3"), ("spot", "aws-g4dn", "nothing is taken"), ("on-demand", "aws-p3", "only spot")],
)  # fmt: skip
def test_what_is_wrong_with_it_is_named(tmp_path: Path, market: str, trace: str, words: str) -> None:
    written(tmp_path)
    with pytest.raises(Invalid) as raised:
        from_yaml(WORLD % (market, trace), tmp_path)
    assert words in raised.value.describe()


def test_counts_are_read_as_what_was_given_and_taken(tmp_path: Path) -> None:
    """From 3 to 1 two are gone: one of three, and one of the two that were left."""
    path = tmp_path / "counts.csv"
    path.write_text("trace,t_s,time,instances\ngcp,0,x,3\nother,60,x,9\ngcp,600,x,1\ngcp,1200,x,2\n")
    history = read_history(path, "gcp")
    assert history.events == (
        SpotEvent(0.0, 0),
        SpotEvent(600.0, 3),
        SpotEvent(600.0, 2),
        SpotEvent(1200.0, 0),
    )
    assert history.sold_out(900.0)
    assert not history.sold_out(1200.0)


def test_a_table_without_its_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(Invalid, match="columns"):
        read_history(tmp_path / "other.csv", "aws-p3")
