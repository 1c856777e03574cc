"""Two sides of a question, computed by hand: who moves, waits, meets a deadline, and what it costs."""

import pytest
from msgspec.structs import replace

from federator.kernel.errors import Invalid
from federator.simulation.contrast import Contrasted, Side, contrasted
from federator.simulation.contrast_page import lead, measures, sentence
from federator.simulation.loads import LoadOptions
from federator.simulation.what_if import changed
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSpec
from tests.unit.simulation.tiny import HOUR_S, TURN_S, job, renting_world, site, world

LAB = world(site("lab", price_usd_gpu_h=0.5))
TWO = (job("a", gpus=4), job("b", gpus=4, deadline_s=1.5 * HOUR_S))
QUEUES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: q}
spec: {max_priority: 60}
"""


def asked(before: WorldSpec, after: WorldSpec, *jobs: TraceJob) -> Contrasted:
    found = contrasted(
        (Side("now", before), Side("then", after)), jobs, LoadOptions(limit=None), by="fifo", changes=("it",)
    )
    assert not [trouble for run in found.runs for trouble in (*run.figures.violations, *run.figures.faults)]
    return found


def test_a_site_more_lets_the_second_job_start_at_once() -> None:
    contrast = asked(LAB, changed(LAB, add_pool=("far=4xA100x1",)).world, *TWO).contrast
    assert (contrast.total.moved, contrast.sooner, contrast.later) == (1, 1, 0)
    assert (contrast.newly_met, contrast.newly_missed) == (1, 0)
    old, new = contrast.total.before, contrast.total.after
    assert old.wait_mean_s == pytest.approx(HOUR_S / 2, abs=TURN_S)
    assert new.wait_mean_s < TURN_S
    assert (old.met, new.met, old.deadlines) == (0, 1, 1)
    assert old.owned_usd == pytest.approx(8 * 0.5, rel=0.01)
    assert new.owned_usd == pytest.approx(4 * 0.5, rel=0.01), "the new site costs nothing"
    (change,) = contrast.jobs
    assert (change.job, change.before.site, change.after.site) == ("b", "lab", "far")
    assert (change.before.met, change.after.met) == (False, True)
    assert "far" in change.after.because
    assert "1 of 2 jobs run elsewhere" in sentence(contrast)


def test_nothing_changed_is_no_difference() -> None:
    contrast = asked(LAB, LAB, *TWO).contrast
    assert (contrast.total.moved, contrast.sooner, contrast.later, contrast.jobs) == (0, 0, 0, ())
    assert all(old == new for _, old, new, _, _ in measures(contrast.total.before, contrast.total.after))


def test_rent_counts_for_the_job_it_was_for_and_its_queue() -> None:
    rents = renting_world()
    due = job("b", 300.0, gpus=4, deadline_s=2 * HOUR_S, value_usd=500.0, max_duration_s=2 * HOUR_S)
    found = contrasted(
        (Side("now", replace(rents, policies="")), Side("then", rents)),
        [job("a", run_s=8 * HOUR_S, gpus=4), due],
        LoadOptions(limit=None),
        by="greedy",
    )
    new = found.contrast.total.after
    assert found.contrast.total.before.rented_usd == 0.0
    assert new.rented_usd == pytest.approx(sum(lease.cost_usd for lease in found.outcomes[1].schedule.leases))
    assert new.rented_usd > 10.0
    change = next(change for change in found.contrast.jobs if change.after.market == "on-demand")
    assert change.after.usd == pytest.approx(new.rented_usd)
    assert "BurstPolicy/rent" in change.after.because


def test_jobs_that_only_the_other_policies_refuse_are_counted_with_the_reason() -> None:
    free = replace(LAB, policies=QUEUES.replace("60", "100"))
    capped = replace(LAB, policies=QUEUES)
    jobs = [job(f"j{n}", queue="q", priority=80) for n in range(2)]
    contrast = asked(free, capped, *jobs, job("low", queue="q")).contrast
    assert sum(contrast.refused.values()) == 2
    assert "60" in next(iter(contrast.refused))
    assert (contrast.total.before.refused, contrast.total.after.refused) == (0, 2)
    assert {change.after.because[:8] for change in contrast.jobs} == {"refused:"}


def test_a_world_that_cannot_be_is_refused_and_not_compared() -> None:
    with pytest.raises(Invalid):
        asked(LAB, replace(LAB, policies="kind: Nonsense"), *TWO)


def test_the_page_tells_both_sides_and_escapes_what_people_wrote() -> None:
    queue = "apiVersion: federator/v1\nkind: Queue\nmetadata: {name: other}\nspec: {}\n"
    contrast = asked(replace(LAB, policies=queue), LAB, job("a", queue="other"), TWO[1]).contrast
    assert [row.queue for row in contrast.queues] == ["default", "other"]
    text = lead(replace(contrast, changes=("<script>",)), ["a remark"])
    assert "&lt;script&gt;" in text
    assert "<script>" not in text
    for words in ("now", "then", "By queue", "a remark", "mean wait"):
        assert words in text
