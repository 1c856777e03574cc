"""A plan of the whole line, and the window that it chooses: nothing of it is lost, and what it starts now is seen."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from federator.model.outlook import Outlook
from federator.model.snapshot import JobView, Problem
from federator.planning.world import window
from federator.planning.world.outlook import NOTHING, OutlookArrays, Plan
from federator.planning.world.window import Window, choose
from federator.solving.decide import decide
from federator.solving.outlook import look_ahead
from tests.properties.planning.test_window import a_line, tight
from tests.support.examples import examples
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world

POOLS = [a_pool(nodes=1), a_pool("lab", model="H100", nodes=1)]
KINDS = 5


@st.composite
def crowds(draw: st.DrawFn) -> list[JobView]:
    """More work than eight GPUs can do at once, of a few kinds."""
    jobs: list[JobView] = []
    for kind in range(KINDS):
        run_s = draw(st.sampled_from((0.2, 0.7, 2.0))) * HOUR
        slack_s = draw(st.sampled_from((None, 1.2, 3.0)))
        for number in range(draw(st.integers(3, 10))):
            jobs.append(
                a_job(
                    f"job-{kind}-{number}",
                    run_s=run_s + kind,
                    submitted_at=NOW - 900.0 + number,
                    gpus=draw(st.sampled_from((1, 1, 2))) if number == 0 else jobs[-1].gpus,
                    priority=50 + kind,
                    deadline_at=None if slack_s is None else NOW + slack_s * run_s,
                    value_usd=20.0,
                    max_duration_s=3 * HOUR,
                )
            )
    return jobs


def an_outlook(jobs: list[JobView]) -> tuple[Outlook, OutlookArrays]:
    """What is expected of the line; classes are known by the numbers that `a_line` gives them."""
    words = a_line(jobs).klass
    heads = [jobs[int(np.argmax(words == word))] for word in np.unique(words)]
    counts = np.bincount(words).tolist()
    found = look_ahead(a_world(heads, POOLS), counts)
    assert found is not None
    return found, OutlookArrays(found, np.unique(words).tolist())


def chosen(jobs: list[JobView], known: OutlookArrays | None) -> Window:
    """The window that a plan chooses; without one, that of the published order."""
    return choose(a_line(jobs), POOLS, (), NOW, known=known)


@settings(max_examples=examples(15), deadline=None)
@given(jobs=crowds())
def test_every_job_is_expected_once_at_most_and_the_same_line_has_the_same_outlook(
    jobs: list[JobView],
) -> None:
    found, _ = an_outlook(jobs)
    assert found == an_outlook(jobs)[0]
    planned = np.bincount(found.klass, weights=found.jobs)
    counts = np.bincount(a_line(jobs).klass, minlength=len(planned))
    assert (planned <= counts[: len(planned)] + 1e-4).all()
    assert all(usd >= 0.0 for usd in found.usd)


@settings(max_examples=examples(15), deadline=None)
@given(jobs=crowds())
def test_what_the_plan_starts_now_is_in_the_window(jobs: list[JobView]) -> None:
    found, known = an_outlook(jobs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "is_small", lambda _line, _evaluations: False)
        inside = chosen(jobs, known)
    klass = a_line(jobs).klass
    seen = Counter(klass[inside.chosen].tolist())
    at_once = np.bincount(found.klass, weights=np.where(found.now, found.jobs, 0.0), minlength=KINDS)
    for word, count in enumerate(at_once.tolist()):
        assert seen[word] >= int(count + 1e-4)


@settings(max_examples=examples(15), deadline=None)
@given(jobs=crowds(), share=st.floats(0.0, 1.0))
def test_what_is_inside_and_what_is_outside_add_up_to_the_plan(jobs: list[JobView], share: float) -> None:
    found, known = an_outlook(jobs)
    words, counts = np.unique(a_line(jobs).klass, return_counts=True)
    plan = Plan(known, words, counts, NOW)
    inside = np.floor(share * counts).astype(np.int64)
    used = [plan.outside(each) for each in (np.zeros_like(counts), inside, counts)]
    assert not used[2]
    priced = {row for row, usd in found.prices.items() if usd > 1e-6 and row.startswith("hours/")}
    assert set(used[0]) <= priced
    for row, left in used[1].items():
        assert left.used <= used[0][row].used + 1e-3
        assert left.usd == found.prices[row]


@settings(max_examples=examples(15), deadline=None)
@given(jobs=crowds(), most=st.integers(8, 20))
def test_the_first_in_order_is_inside_whatever_the_plan_says_and_limits_hold(
    jobs: list[JobView], most: int
) -> None:
    _, known = an_outlook(jobs)
    with pytest.MonkeyPatch.context() as patch:
        tight(patch, jobs=most, evaluations=200)
        inside = chosen(jobs, known)
    classes = len(np.unique(a_line(jobs).klass[inside.chosen]))
    assert len(inside.chosen) <= most
    assert len(inside.chosen) * classes <= window.PLANNED * 200
    assert int(np.argmin(inside.ahead)) in inside.chosen.tolist()


def test_what_has_come_since_is_seen_and_what_has_started_is_not_counted() -> None:
    jobs = [a_job(f"job-{n:02d}", run_s=HOUR, priority=60) for n in range(40)]
    _, known = an_outlook(jobs)
    urgent = a_job("new", run_s=HOUR / 3, deadline_at=NOW + HOUR / 2, value_usd=50.0)
    later = [*jobs[30:], urgent]
    with pytest.MonkeyPatch.context() as patch:
        tight(patch, jobs=20, evaluations=400)
        inside = chosen(later, known)
    assert [later[n].id for n in inside.chosen].count("new") == 1
    outside = sum(each.used for each in inside.told.outside.values())
    assert outside <= len(later) - len(inside.chosen) + 1e-3


def test_without_a_plan_the_window_is_that_of_the_published_order() -> None:
    jobs = [a_job(f"job-{n:02d}", run_s=HOUR + n % 7) for n in range(40)]
    with pytest.MonkeyPatch.context() as patch:
        tight(patch, jobs=12, evaluations=60)
        plain = chosen(jobs, None)
    assert plain.told == NOTHING


def test_a_line_that_is_too_long_has_no_outlook_and_costs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of each of so many jobs would not fit in any machine."""
    assert look_ahead(a_world([a_job()], POOLS), [10**12]) is None
    assert look_ahead(a_world([], POOLS), []) is None
    monkeypatch.setattr("federator.solving.outlook.MOST_CHOICES", 1)
    assert look_ahead(a_world([a_job()], POOLS), [3]) is None


def test_a_decision_of_such_a_window_repeats_itself_from_what_is_recorded() -> None:
    """Prices and what others use are part of the problem: nothing else shapes the plan."""
    jobs = [a_job(f"job-{n:02d}", run_s=HOUR * (1 + n % 3), priority=50 + n % 4) for n in range(40)]
    _, known = an_outlook(jobs)
    with pytest.MonkeyPatch.context() as patch:
        tight(patch, jobs=16, evaluations=100)
        inside = chosen(jobs, known)
    views = [replace(jobs[n], behind_s=float(inside.behind_s[n])) for n in inside.chosen]
    problem: Problem = replace(a_world(views, POOLS), outside=inside.told.outside)
    assert inside.told.outside
    assert decide(problem) == decide(problem)
