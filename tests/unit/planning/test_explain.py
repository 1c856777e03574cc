"""An explanation names every pool and offer, tells the plan's reason, and needs neither numpy nor a solver."""

import re
from typing import Any

import pytest
from msgspec.structs import replace

from federator.kernel.quantities import parse_duration_s
from federator.model.capacity import Market, Shape
from federator.model.changes import AskFor, Remedy, WaitUntil
from federator.model.plans import Plan, Rent
from federator.model.rules import CapRow, CapUnit, Period
from federator.model.snapshot import OfferView, Problem
from federator.planning.explanations.changes import apply
from federator.planning.explanations.explain import Aftermath, explain_waiting
from federator.planning.explanations.rental_advice import RENTING
from federator.planning.plans.greedy import plan_greedily
from federator.planning.plans.preview import preview
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, an_offer, bursting, busy, changed

FULL = a_pool(
    nodes=1,
    busy=(busy("p", "j", gpus=4, cpus_milli=1000, memory_mib=1024, ends_at=NOW + 2 * HOUR),),
    free=(Shape(0, 63_000, 261_120),),
)
EDGE = a_pool("edge", kind="edge", model="T4", nodes=1)


def test_every_place_has_a_reason_and_those_that_pass_a_price() -> None:
    job = a_job("tight", gpus=4, models=("A100",), deadline_at=NOW + 1.2 * HOUR)
    cap = CapRow("burst", CapUnit.USD, 5.0, period=Period.DAY)
    problem = a_world([job], [FULL, EDGE], [an_offer(), an_offer("h100", model="H100")], [bursting(), cap])
    found = explain_waiting(problem, plan_greedily(problem), "tight")
    reasons = {(site.site, site.pool): site for site in found.sites}
    assert {key: site.filter for key, site in reasons.items()} == {
        ("home", "gpu"): "busy",
        ("edge", "gpu"): "gpu-model",
        ("acme-eu", "eu/4xA100"): "budget",
        ("acme-eu", "h100"): "gpu-model",
    }
    home = reasons["home", "gpu"]
    assert (home.start_at, home.finish_at) == (NOW + 2 * HOUR, NOW + 3 * HOUR)
    assert home.extra_cost_usd is not None
    assert found.status == "waiting"
    assert "cap of 5.00 USD per day" in found.because
    assert found.changes[0] == "edge/gpu: allow T4", (
        "what the user can do goes before what a platform team has to"
    )
    assert any("a higher cap in burst" in change for change in found.changes[1:])
    assert (found.home_finish_at, found.deadline_at) == (NOW + 3 * HOUR, NOW + 1.2 * HOUR)
    assert found.policies == ("burst",)


def test_of_a_job_that_starts_at_home_no_rental_is_said_to_be_put_off() -> None:
    """Its finish there is known, and it is in time: nothing is rented for it, now or later."""
    job = a_job("ready", deadline_at=NOW + 10 * HOUR)
    problem = a_world([job], [a_pool()], [an_offer()], [bursting()])
    for found in (explain_waiting(problem, plan_greedily(problem), "ready"), preview(problem, job)):
        (offer,) = [site for site in found.sites if site.site == "acme-eu"]
        assert offer.filter == "no-need", offer
        assert "at home it is expected to finish" in offer.text


def test_a_job_for_a_site_that_is_closed_for_now_waits_because_of_that() -> None:
    """Not because another site is not the one that it asks for; but what would not hold it open comes no closer for being closed."""
    closed = a_pool("home", open=False, closed_because="the site is draining")
    problem = a_world([a_job("pinned", sites=("home",))], [closed, a_pool("other")])
    found = explain_waiting(problem, plan_greedily(problem), "pinned")
    assert found.because == "nowhere to run: closest is home/gpu: the site is draining"
    old = a_pool("home", model="T4", open=False, closed_because="the site is draining")
    problem = a_world([a_job("wide", gpus=8, models=("A100",))], [old, a_pool("other")])
    found = explain_waiting(problem, plan_greedily(problem), "wide")
    assert found.because.startswith("nowhere to run: closest is other/gpu")


def test_a_change_is_offered_once_with_all_the_places_that_it_opens() -> None:
    job = a_job("wants", models=("H100",))
    problem = a_world([job], [a_pool("a"), a_pool("b")])
    found = explain_waiting(problem, plan_greedily(problem), "wants")
    changes = [site.change for site in found.sites]
    assert len(set(changes)) == 1
    assert sum(changes[0] in change for change in found.changes) == 1


def test_what_the_plan_itself_takes_is_no_longer_free() -> None:
    first, second = a_job("first", gpus=4, submitted_at=NOW - 900), a_job("second", gpus=4)
    problem = a_world([first, second], [a_pool(nodes=1)])
    found = explain_waiting(problem, plan_greedily(problem), "second")
    assert found.sites[0].filter == "busy"
    assert "0 GPUs free" in found.sites[0].text


def test_free_gpus_without_cpus_beside_them_are_not_offered_as_room() -> None:
    """The reader sees free GPUs in the list of sites, and would not believe that they are too few."""
    first, second = (
        a_job(name, gpus=1, cpus_milli=60_000, submitted_at=at)
        for name, at in (("first", NOW - 900), ("second", NOW))
    )
    problem = a_world([first, second], [a_pool(nodes=1)])
    (home,) = explain_waiting(problem, plan_greedily(problem), "second").sites
    assert "3 GPUs free, but too few CPUs or too little memory beside them" in home.text
    assert home.change == "ask for fewer CPUs or less memory per node"


def test_a_job_that_starts_is_told_where_and_why() -> None:
    problem = a_world([a_job("one")], [a_pool()])
    found = explain_waiting(problem, plan_greedily(problem), "one")
    assert found.status == "placed"
    assert "fit now at home/home-1/gpu" in found.because
    assert found.expected_finish_at == NOW + HOUR


def test_a_rental_carries_its_evidence() -> None:
    problem = a_world(
        [a_job("tight", gpus=4, deadline_at=NOW + 1.2 * HOUR)], [FULL], [an_offer()], [bursting()]
    )
    found = explain_waiting(problem, plan_greedily(problem), "tight")
    assert found.status == "rented for"
    assert found.burst is not None
    assert found.burst.home_finish_at == found.home_finish_at == NOW + 3 * HOUR
    assert found.burst.burst_finish_at < NOW + 1.2 * HOUR < found.burst.home_finish_at
    assert found.burst.policy == "burst"
    assert found.burst.decision == "dec-1"


def test_costs_are_those_beyond_the_cheapest_place() -> None:
    pools = [a_pool("cheap", price_usd_gpu_h=0.1), a_pool("dear", price_usd_gpu_h=0.6)]
    problem = a_world([a_job("one", gpus=2)], pools)
    found = explain_waiting(problem, plan_greedily(problem), "one")
    assert {site.site: site.extra_cost_usd for site in found.sites} == {"cheap": 0.0, "dear": 1.0}


def test_a_place_that_is_held_for_another_is_told_as_such() -> None:
    running = busy("p", "j", gpus=2, cpus_milli=1000, memory_mib=1024)
    pool = a_pool(nodes=1, busy=(running,), free=(Shape(2, 63_000, 261_120),))
    jobs = [a_job("gang", gpus=4, priority=90), a_job("long", gpus=2, run_s=3 * HOUR)]
    problem = a_world(jobs, [pool])
    (site,) = explain_waiting(problem, plan_greedily(problem), "long").sites
    assert site.filter == "held"
    assert "are held for gang" in site.text


def test_an_unknown_job_is_answered_too() -> None:
    problem = a_world([], [a_pool()])
    assert explain_waiting(problem, plan_greedily(problem), "nobody").status == "unknown"


def test_a_preview_is_what_submitting_would_bring() -> None:
    problem = a_world([], [FULL], [an_offer()], [bursting()])
    relaxed = preview(problem, a_job("new", gpus=4))
    assert relaxed.status == "would wait"
    assert relaxed.home_finish_at == NOW + 3 * HOUR
    assert relaxed.sites[-1].filter == "no-need"
    tight = preview(problem, a_job("new", gpus=4, deadline_at=NOW + 1.2 * HOUR))
    assert tight.status == "would be rented for now"
    assert tight.burst is not None
    assert tight.sites[-1].extra_cost_usd is not None
    assert preview(problem, a_job("new", models=("T4",))).status == "would wait"


def test_a_preview_of_a_waiting_job_replaces_it() -> None:
    problem = a_world([a_job("one", gpus=8)], [a_pool()])
    assert preview(problem, a_job("one", gpus=1)).status == "would start now"


def test_what_is_to_be_advised_of_a_gang_on_one_host_changes_something() -> None:
    """It asks for no memory, with its nodes together or as they come: that is no change, and none to offer."""
    gang = {"nodes": 1, "gpus": 6, "cpus_milli": 3000, "memory_mib": 0, "together": "host", "ranks_in_one": 3}
    job = a_job("gang", deadline_at=NOW + 3 * HOUR, value_usd=500.0, **gang)
    problem = a_world([job], [], [an_offer()], [bursting()])
    found = explain_waiting(problem, plan_greedily(problem), "gang")
    asked = [change for remedy in found.remedies for change in remedy.changes if isinstance(change, AskFor)]
    assert {"together", "nodes", "gpus"} <= {change.field for change in asked}
    assert all(getattr(job, change.field) != change.value for change in asked)


def test_advice_that_would_change_nothing_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    job = a_job("ready")
    problem = a_world([job], [], [an_offer()], [bursting()])
    plan = plan_greedily(problem)
    assert explain_waiting(problem, plan, "ready").remedies
    same = Remedy("the queue that it is in", (AskFor("ready", "queue", job.queue),))
    monkeypatch.setitem(RENTING, "no-need", lambda *_: same)
    assert not explain_waiting(problem, plan, "ready").remedies


def test_far_back_in_a_long_line_it_is_told_how_long_it_waits_and_nothing_is_reckoned_for_all_before_it() -> (
    None
):
    jobs = [a_job(f"job-{number:04}", gpus=4, submitted_at=NOW - 5000 + number) for number in range(450)]
    problem = a_world(jobs, [a_pool()])
    plan = plan_greedily(problem)
    after = Aftermath(problem, plan)
    near, far = plan.waiting[0].job, plan.waiting[-1].job
    assert any("A100" in change for change in after.explain(near).changes)
    (told,) = after.explain(far).remedies
    (wait,) = told.changes
    assert isinstance(wait, WaitUntil)
    assert wait.at == plan.waiting[-1].expected_start_at
    assert [view.id for view, _ in after.before(far)] == [each.job for each in plan.waiting[:-1]]


def _tight(
    late_s: float, *offers: OfferView, paused: bool = True, value_usd: float = 500.0, **fields: Any
) -> Problem:
    """Home is full for long; renting the slow offer is done so much after the deadline."""
    full = a_pool(nodes=1, free=(), busy=(busy("pl-1", "job-1", gpus=4, ends_at=NOW + 5 * HOUR),))
    due = NOW + an_offer().offer.delay_s + HOUR - late_s
    job = a_job("job-a", gpus=4, deadline_at=due, value_usd=value_usd, **fields)
    return a_world([job], [full], [an_offer(), *offers], rules=[bursting()], burst_paused=paused)


def _after_advice(problem: Problem) -> tuple[list[str], Plan]:
    """What is advised, and the plan once the first of it is done."""
    found = explain_waiting(problem, plan_greedily(problem), "job-a")
    return [each.text for each in found.remedies], plan_greedily(apply(problem, found.remedies[0].changes))


def test_to_resume_renting_is_not_advised_alone_where_the_deadline_would_still_be_missed() -> None:
    advice, again = _after_advice(_tight(400.0))
    assert advice == ["an operator runs `federator burst resume`; and a deadline 7m later"]
    assert [type(action) for action in again.actions] == [Rent]


def test_to_resume_renting_is_all_that_is_advised_where_some_offer_is_quick_enough() -> None:
    quick = an_offer("eu/quick", delay_s=100.0, price_usd_h=20.0)
    advice, again = _after_advice(_tight(400.0, quick))
    assert advice == ["an operator runs `federator burst resume`"]
    assert [action.offer for action in again.actions if isinstance(action, Rent)] == ["eu/quick"]


MARGIN = {"run_low_s": 0.5 * HOUR, "run_high_s": 1.4 * HOUR}


WORTH_MORE_THAN_HALF_A_CHANCE = {**MARGIN, "value_usd": 20.0}


@pytest.mark.parametrize(
    ("late_s", "margin"),
    [(1.0, {}), (484.0, {}), (700.0, WORTH_MORE_THAN_HALF_A_CHANCE), (7000.0, {}), (7000.0, MARGIN)],
)
def test_a_place_and_the_advice_name_the_same_later_deadline(late_s: float, margin: dict[str, float]) -> None:
    """Also where it would probably be done sooner than is planned, and also who only reads the words is told enough."""
    problem = _tight(late_s, paused=False, **margin)
    found = explain_waiting(problem, plan_greedily(problem), "job-a")
    (row,) = [site for site in found.sites if site.filter == "too-late"]
    (advice,) = [each for each in found.remedies if "deadline" in each.text]
    assert row.change == advice.text
    (change,) = advice.changes
    assert isinstance(change, AskFor)
    words = re.fullmatch("a deadline (.*) later", advice.text)
    assert words
    due = problem.snapshot.jobs[0].deadline_at
    assert due is not None
    assert due + parse_duration_s(words[1]) == change.value
    again = plan_greedily(apply(problem, advice.changes))
    assert [type(action) for action in again.actions] == [Rent]


def test_a_spot_offer_that_is_late_says_when_it_would_be_done_if_it_were_taken_back() -> None:
    """Else nobody would understand the length of the later deadline that it names."""
    spot = an_offer("eu/spot", market=Market.SPOT, price_usd_h=4.0)
    problem = _tight(0.001, spot, paused=False)
    rows = {row.pool: row for row in explain_waiting(problem, plan_greedily(problem), "job-a").sites}
    assert "1s after its deadline" in rows["eu/4xA100"].text
    assert rows["eu/spot"].text.endswith(" after its deadline, and taken back at the very end at 00:40 UTC")
    assert rows["eu/spot"].change == "a deadline 1h19m later"


def test_what_would_not_be_rented_for_its_chance_is_not_said_to_be_rented_later() -> None:
    """The deadline is worth more than the rent, but not so much more likely to be met there as that takes."""
    rent_usd = 11.67
    problem = _tight(-1300.0, paused=False, **MARGIN)
    (job,) = problem.snapshot.jobs
    full = replace(FULL, busy=(replace(FULL.busy[0], ends_at=NOW + 5 * HOUR),))
    problem = changed(problem, jobs=(replace(job, value_usd=1.05 * rent_usd),), pools=(full,))
    plan = plan_greedily(problem)
    found = explain_waiting(problem, plan, "job-a")
    (row,) = [site for site in found.sites if site.site == "acme-eu"]
    assert plan.waiting[0].reason == row.filter == "no-gain"
    assert re.fullmatch(
        r"it costs 11.67 USD; meeting the deadline is worth 12.25 USD, and that much likelier there: \d\d%",
        row.text,
    )
    (advice,) = [each for each in found.remedies if "value" in each.text]
    assert advice.text.startswith(row.change)
    again = plan_greedily(apply(problem, advice.changes[:1]))
    assert again.waiting == ()
    assert [type(action).__name__ for action in again.actions] == ["Rent"]


def test_of_a_place_that_is_full_it_is_said_until_when() -> None:
    work = busy("p", "j", gpus=4, cpus_milli=1000, memory_mib=1024, ends_at=NOW + HOUR)
    full = a_pool(nodes=1, busy=(work,), free=(Shape(0, 63_000, 261_120),))
    problem = a_world([a_job("one", gpus=4)], [full])
    (home,) = explain_waiting(problem, plan_greedily(problem), "one").sites
    assert home.filter == "busy"
    assert "room at about 23:13" in home.text
    assert home.change == "wait until 23:13 UTC, or more hosts there"


def test_where_other_hardware_would_have_to_be_bought_another_place_is_advised() -> None:
    """The closest place has no GPUs, which no advice can change; the other is forbidden by the job itself, and has room."""
    job = a_job("whole", gpus=1, not_sites=("away",))
    problem = a_world([job], [a_pool("home", model="", gpus_per_node=0, gpu_memory_mib=0), a_pool("away")])
    found = explain_waiting(problem, plan_greedily(problem), "whole")
    assert found.remedies[0].changes == (AskFor("whole", "not_sites", ()),)
    again = plan_greedily(apply(problem, found.remedies[0].changes))
    assert [action.job for action in again.actions] == ["whole"]
    assert not found.remedies[0].certain


def test_an_own_rental_is_advised_to_who_waits_beside_one() -> None:
    """Nothing at home is for it: it waits for what is left of another's machine."""
    first = a_job("first", gpus=2, models=("A100",), deadline_at=NOW + 1.5 * HOUR, value_usd=500.0)
    beside = a_job("beside", gpus=2, models=("A100",), deadline_at=NOW + 5 * HOUR, value_usd=5.0)
    problem = a_world([first, beside], [EDGE], [an_offer()], [bursting()])
    plan = plan_greedily(problem)
    assert [type(action) for action in plan.actions] == [Rent]
    assert plan.waiting[0].reason == "busy"
    found = explain_waiting(problem, plan, "beside")
    told = next(remedy for remedy in found.remedies if not remedy.certain)
    again = plan_greedily(apply(problem, told.changes))
    assert "beside" in [action.job for action in again.actions]
