"""The example sets at work: a small federation on virtual time, in which each set's rules are seen to act.

The trace begins on Thursday 2026-01-01 at midnight UTC.
"""

from pathlib import Path
from typing import Any

import msgspec

from federator.model.capacity import Offer
from federator.model.sites import SiteKind
from federator.simulation.running import Outcome
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSpec
from tests.unit.simulation.tiny import HOUR_S, OFFER, job, renting_world, row, run, site, world

EXAMPLES = Path(__file__).parents[3] / "policies" / "examples"
CHEAP = msgspec.structs.replace(OFFER, price_usd_h=6.0)
DAY_S = 24 * HOUR_S


def under(name: str, where: WorldSpec) -> WorldSpec:
    """The world with an example's rules."""
    text = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")
    return msgspec.structs.replace(where, policies=text)


def began_h(outcome: Outcome, name: str) -> float:
    """In which hour a job's one attempt began."""
    start_s = row(outcome, name).start_s
    assert start_s is not None
    return start_s / HOUR_S


def rented_for(outcome: Outcome) -> set[str]:
    return {attempt.job for attempt in outcome.schedule.attempts if attempt.market not in ("", "owned")}


def paper(name: str, **fields: Any) -> TraceJob:
    """A job of four GPUs that home cannot finish in time."""
    given = {"gpus": 4, "deadline_s": 4 * HOUR_S, "value_usd": 200.0, "queue": "paper", **fields}
    return job(name, 60.0, HOUR_S, **given)


def run_by_rules(where: WorldSpec, *jobs: TraceJob) -> Outcome:
    """By the dispatcher itself, its solver aside."""
    return run(where, *jobs, by="greedy")


# -- the lab ----------------------------------------------------------------------------------------------------------


def lab(offer: Offer = CHEAP) -> WorldSpec:
    where = renting_world(offer)
    return under("lab", msgspec.structs.replace(where, sites=(site("lab"), site("teaching-room"))))


def filler(hours: float = 20.0) -> TraceJob:
    """Fills the lab with work that nobody may take the place of."""
    limit_s = 22 * HOUR_S
    return job(
        "filler",
        0.0,
        hours * HOUR_S,
        gpus=4,
        max_duration_s=limit_s,
        sites=("lab",),
        owner="eve",
        queue="paper",
    )


def test_a_lab_rents_for_papers_and_not_for_others() -> None:
    jobs = (
        filler(),
        paper("paper", sites=("lab", "rented")),
        paper("other", queue="default", sites=("lab", "rented")),
    )
    outcome = run_by_rules(lab(), *jobs)
    assert rented_for(outcome) == {"paper"}


def test_a_lab_s_budget_for_each_owner_holds() -> None:
    """A machine of 8 USD an hour for five hours a day: three days of it fit into 150 USD, a fourth might not."""
    days = [
        job(
            f"day-{n}", n * DAY_S + 60, 5 * HOUR_S, gpus=4, queue="paper", owner="ada", sites=("lab", "rented"),
            max_duration_s=5.5 * HOUR_S, deadline_s=n * DAY_S + 6.5 * HOUR_S, value_usd=200.0,
        )
        for n in range(4)
    ]  # fmt: skip
    where = lab(msgspec.structs.replace(OFFER, price_usd_h=8.0))
    full = msgspec.structs.replace(filler(100.0), max_duration_s=5 * DAY_S)
    outcome = run_by_rules(where, full, *days)
    assert rented_for(outcome) == {"day-0", "day-1", "day-2"}


def test_the_teaching_room_is_used_at_night_only_and_for_what_is_done_by_morning() -> None:
    room = ("teaching-room",)
    jobs = (
        job("night", 0.0, 2 * HOUR_S, gpus=1, sites=room),
        job("morning", 8 * HOUR_S, 2 * HOUR_S, gpus=1, sites=room),
        job("too-long", 8 * HOUR_S, 11 * HOUR_S, gpus=1, sites=room, max_duration_s=20 * HOUR_S),
    )
    outcome = run_by_rules(lab(), *jobs)
    assert began_h(outcome, "night") < 0.1
    assert 22 <= began_h(outcome, "morning") < 22.1
    assert 46 <= began_h(outcome, "too-long") < 48.1, "it waits for the weekend"


def test_one_person_does_not_get_the_whole_lab() -> None:
    where = under("lab", world(site("lab", nodes=3)))
    mine = [job(f"mine-{n}", 0.0, HOUR_S, gpus=4, owner="ada") for n in range(3)]
    outcome = run_by_rules(where, *mine)
    assert sorted(round(began_h(outcome, each.name)) for each in mine) == [0, 0, 1]


# -- the enterprise ---------------------------------------------------------------------------------------------------


def enterprise(nodes: int = 4) -> WorldSpec:
    where = renting_world(msgspec.structs.replace(CHEAP, region="eu-central-1", available=9))
    return under("enterprise", msgspec.structs.replace(where, sites=(site("hq", nodes=nodes, gpus=8),)))


def test_production_finds_its_eight_gpus_free_and_displaces_for_more() -> None:
    research = [
        job(f"research-{n}", 0.0, 10 * HOUR_S, gpus=8, queue="research/language", priority=30)
        for n in range(4)
    ]
    urgent = [
        job(f"urgent-{n}", 2 * HOUR_S, HOUR_S, gpus=8, queue="production", priority=90) for n in range(2)
    ]
    outcome = run_by_rules(enterprise(), *research, *urgent)
    assert began_h(outcome, "urgent-0") < 2.1
    starts = [a.start_s for a in outcome.schedule.attempts if a.job == "urgent-1" and a.start_s is not None]
    assert min(starts) < 3 * HOUR_S, "rented for, or let in by who was displaced"
    first = [a for a in outcome.schedule.attempts if a.start_s is not None and a.start_s < HOUR_S]
    assert len(first) == 3, "what is kept for production is not lent"


def test_customers_data_does_not_leave_whatever_the_deadline() -> None:
    fill = [job(f"fill-{n}", 0.0, 20 * HOUR_S, gpus=8, queue="production", priority=90) for n in range(4)]
    due = {"deadline_s": 4 * HOUR_S, "queue": "production", "priority": 90, "value_usd": 400.0}
    plain = job("plain", 60.0, HOUR_S, gpus=4, **due)
    customers = job("customers", 60.0, HOUR_S, gpus=4, labels={"data": "customer"}, **due)
    outcome = run_by_rules(enterprise(), *fill, plain, customers)
    assert rented_for(outcome) == {"plain"}


def test_a_rental_beyond_the_amount_waits_for_a_person() -> None:
    fill = [job(f"fill-{n}", 0.0, 6 * HOUR_S, gpus=8, queue="production", priority=90) for n in range(4)]
    due = {"deadline_s": 4 * HOUR_S, "queue": "production", "priority": 90, "value_usd": 9000.0}
    dear = job("dear", 60.0, HOUR_S, gpus=4, max_duration_s=400 * HOUR_S, **due)
    outcome = run_by_rules(enterprise(), *fill, dear)
    assert not rented_for(outcome)


# -- the edge ---------------------------------------------------------------------------------------------------------


def edge() -> WorldSpec:
    shops = [site(name, gpus=2, model="L4", kind=SiteKind.EDGE) for name in ("shop-a", "shop-b")]
    return under("edge", world(*shops, site("depot", gpus=2, model="L4")))


def test_shops_train_at_night_and_the_depot_at_any_time() -> None:
    shops: dict[str, Any] = {"queue": "retrain", "kinds": ("edge",), "priority": 30}
    jobs = (
        job("day", 9 * HOUR_S, HOUR_S, **shops),
        job("dawn", 29 * HOUR_S + 60, 2 * HOUR_S, **shops),
        job("depot", 9 * HOUR_S, HOUR_S, queue="retrain", priority=30),
    )
    outcome = run_by_rules(edge(), *jobs)
    assert 20 <= began_h(outcome, "day") < 20.1
    assert 44 <= began_h(outcome, "dawn") < 44.1, "it would not have been done at six"
    assert row(outcome, "depot").site == "depot"
    assert began_h(outcome, "depot") < 9.1


def test_tills_come_first_and_one_team_does_not_fill_every_shop() -> None:
    training = [
        job(f"training-{n}", 0.0, 3 * HOUR_S, gpus=2, queue="retrain", priority=10, owner="ada")
        for n in range(3)
    ]
    others = job("others", 60.0, 3 * HOUR_S, gpus=2, queue="retrain", priority=10, owner="bob")
    till = job("till", 2 * HOUR_S, HOUR_S, gpus=2, queue="inference", priority=80)
    outcome = run_by_rules(edge(), *training, others, till)
    early = {a.job for a in outcome.schedule.attempts if a.start_s is not None and a.start_s < 600}
    assert "others" in early
    assert len(early) == 3
    assert began_h(outcome, "till") < 2.1
