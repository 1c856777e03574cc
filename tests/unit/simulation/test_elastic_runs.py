"""Elastic jobs on virtual time: they widen onto what is idle, narrow for a job that gains more, and lose none of their work."""

from federator.simulation.running import Outcome
from federator.simulation.schedule import Attempt
from federator.simulation.work import RESUMING_S, TraceForm
from tests.unit.simulation.tiny import HOUR_S, job, run, site, world

WIDER = (TraceForm(1, 2, 1.9), TraceForm(1, 4, 3.6))


def attempts(outcome: Outcome, name: str) -> list[Attempt]:
    found = [each for each in outcome.schedule.attempts if each.job == name]
    return sorted(found, key=lambda each: each.attempt)


def test_one_widens_when_its_neighbour_ends_and_goes_on_from_what_it_saved() -> None:
    first = job("first", run_s=HOUR_S, gpus=3)
    long = job("long", submit_s=1.0, run_s=20 * HOUR_S, forms=WIDER, elastic=True)
    found = attempts(run(world(site("lab", gpus=4)), first, long, by="greedy"), "long")
    assert [each.gpus for each in found] == [1, 4]
    narrow, wide = found
    assert narrow.outcome.startswith("stopped")
    assert narrow.start_s is not None
    assert narrow.end_s is not None
    assert wide.start_s is not None
    assert wide.end_s is not None
    left_s = 20 * HOUR_S - (narrow.end_s - narrow.start_s)
    assert abs(wide.end_s - wide.start_s - RESUMING_S - left_s / 3.6) < 30.0, "no work is done twice"


def test_one_narrows_for_a_job_whose_deadline_would_be_missed() -> None:
    long = job("long", run_s=20 * HOUR_S, forms=WIDER, elastic=True)
    urgent = job("urgent", submit_s=2 * HOUR_S, run_s=HOUR_S, gpus=2, deadline_s=4 * HOUR_S, value_usd=100.0)
    outcome = run(world(site("lab", gpus=4)), long, urgent, by="greedy")
    widths = [each.gpus for each in attempts(outcome, "long")]
    assert widths[0] == 4
    assert widths[1] == 2
    assert widths[-1] == 4, "and takes back what it gave once that is idle"
    (met,) = attempts(outcome, "urgent")
    assert met.end_s is not None
    assert met.end_s < 4 * HOUR_S


def test_one_that_is_not_elastic_keeps_its_form() -> None:
    first = job("first", run_s=HOUR_S, gpus=3)
    long = job("long", submit_s=1.0, run_s=20 * HOUR_S, forms=WIDER)
    found = attempts(run(world(site("lab", gpus=4)), first, long, by="greedy"), "long")
    assert len(found) == 1


def test_nothing_changes_shortly_before_its_end() -> None:
    first = job("first", run_s=400.0, gpus=3)
    short = job("short", submit_s=1.0, run_s=650.0, forms=WIDER, elastic=True)
    found = attempts(run(world(site("lab", gpus=4)), first, short, by="greedy"), "short")
    assert len(found) == 1, "a change would take as long as what is left"


def test_none_narrows_for_a_job_that_would_gain_less_than_the_change_costs() -> None:
    long = job("long", run_s=20 * HOUR_S, forms=WIDER, elastic=True, deadline_s=6.5 * HOUR_S, value_usd=500.0)
    other = job("other", submit_s=2 * HOUR_S, run_s=HOUR_S, gpus=2)
    outcome = run(world(site("lab", gpus=4)), long, other, by="greedy")
    assert len(attempts(outcome, "long")) == 1
    (late,) = attempts(outcome, "other")
    assert late.start_s is not None
    assert late.start_s > 5 * HOUR_S
