"""Nothing is stopped without a claim on its place, and what is stopped frees nothing within the same plan."""

from typing import Any

from msgspec.structs import replace

from federator.model.capacity import Shape
from federator.model.plans import Plan, Severity
from federator.model.rules import GuaranteeRow, PreemptRule, Rule, Scope
from federator.model.snapshot import BusyView, Problem
from federator.planning.checks import check
from tests.support.worlds import HOUR, NOW, a_job, a_lease, a_plan, a_pool, a_world, busy, placed, preempted

RULE = PreemptRule("urgent", who=Scope(queues=("research",)), victims=Scope(queues=("batch",)))
SHARE = GuaranteeRow("share", "research", gpus=4)
FULL = (Shape(0, 60_000, 200_000, 2),)


def blamed(problem: Problem, plan: Plan) -> set[tuple[str, int]]:
    """Who is at fault, and for which promise."""
    return {(f.subject, f.promise) for f in check(problem, plan) if f.severity is Severity.FATAL}


def world(*rules: Rule, victims: tuple[BusyView, ...] = ()) -> Problem:
    """One job that waits for four GPUs beside two full hosts."""
    runs = victims or (busy("pl-1", "job-1", gpus=4), busy("pl-2", "job-2", gpus=4))
    return a_world([a_job(gpus=4, priority=50)], [a_pool(free=FULL, busy=runs)], rules=rules)


STOP_1 = preempted(busy("pl-1", "job-1"), "job-a")
STOP_2 = preempted(busy("pl-2", "job-2"), "job-a")


def test_a_victim_without_any_claim_on_its_place_is_not_stopped() -> None:
    assert blamed(world(), a_plan(STOP_1)) == {("job-1", 5)}


def test_a_rule_that_puts_the_beneficiary_first_permits_it() -> None:
    assert blamed(world(RULE), a_plan(STOP_1)) == set()


def test_a_rule_protects_those_it_is_not_about() -> None:
    for rule in (
        replace(RULE, who=Scope(queues=("other",))),
        replace(RULE, victims=Scope(owners=("ada",))),
        replace(RULE, minimum_run_s=2 * HOUR),
        replace(RULE, minimum_priority_gap=41),
    ):
        assert blamed(world(rule), a_plan(STOP_1)) == {("job-1", 5)}


def test_a_rules_limits_are_inclusive() -> None:
    rule = replace(RULE, minimum_run_s=HOUR, minimum_priority_gap=40)
    assert blamed(world(rule), a_plan(STOP_1)) == set()


def test_a_guarantee_that_covers_the_beneficiary_permits_it() -> None:
    assert blamed(world(SHARE), a_plan(STOP_1)) == set()


def test_a_guarantee_that_is_full_or_too_small_does_not() -> None:
    assert blamed(world(replace(SHARE, gpus=3)), a_plan(STOP_1)) == {("job-1", 5)}
    runs = (busy("pl-1", "job-1", gpus=4), busy("pl-3", "job-3", gpus=1, queue="research/nlp"))
    assert blamed(world(SHARE, victims=runs), a_plan(STOP_1)) == {("job-1", 5)}


def test_a_guarantee_of_another_model_does_not() -> None:
    assert blamed(world(replace(SHARE, model="H100")), a_plan(STOP_1)) == {("job-1", 5)}


def test_work_within_its_own_guarantee_is_not_stopped_for_anothers() -> None:
    theirs = GuaranteeRow("share", "batch", gpus=8)
    assert blamed(world(SHARE, theirs), a_plan(STOP_1)) == {("job-1", 5)}


def test_borrowed_gpus_are_taken_back_only_as_far_as_they_are_borrowed() -> None:
    theirs = GuaranteeRow("share", "batch", gpus=4)  # uses 8
    assert blamed(world(SHARE, theirs), a_plan(STOP_1, STOP_2)) == {("job-2", 5)}


def test_work_of_the_same_guaranteed_queue_is_not_stopped_for_its_guarantee() -> None:
    runs = (busy("pl-1", "job-1", gpus=4, queue="research/nlp"),)
    assert blamed(world(replace(SHARE, gpus=8), victims=runs), a_plan(STOP_1)) == {("job-1", 5)}


def test_rented_gpus_are_nobodys_share() -> None:
    problem = a_world([a_job(gpus=4)], [a_lease(busy=(busy("pl-1", "job-1", gpus=4),))], rules=[SHARE])
    assert blamed(problem, a_plan(STOP_1)) == {("job-1", 5)}


def test_the_beneficiary_waits() -> None:
    assert blamed(world(RULE), a_plan(replace(STOP_1, beneficiary="job-x"))) == {("job-1", 5)}


def test_a_placement_that_is_over_is_not_stopped() -> None:
    assert blamed(world(RULE), a_plan(replace(STOP_1, placement="pl-9"))) == {("job-1", 5)}


def test_a_placement_of_another_job_is_not_stopped() -> None:
    assert blamed(world(RULE), a_plan(replace(STOP_1, job="job-2"))) == {("job-2", 5)}


def test_a_victim_that_changed_since_the_plan_is_not_stopped() -> None:
    assert blamed(world(RULE), a_plan(replace(STOP_1, revision=2))) == {("job-1", 2)}


def test_a_placement_is_stopped_once() -> None:
    assert blamed(world(RULE), a_plan(STOP_1, STOP_1)) == {("job-1", 5)}


def test_one_job_is_not_stopped_twice_under_two_placements() -> None:
    runs = (busy("pl-1", "job-1", gpus=4), busy("pl-2", "job-1", gpus=4))
    assert blamed(world(RULE, victims=runs), a_plan(STOP_1, replace(STOP_2, job="job-1"))) == {("job-1", 5)}


def waiting(rule: Rule, **fields: Any) -> Problem:
    """One job of such a size beside work on one of two hosts: 8 GPUs, 128 cores and 512 GiB in all."""
    hosts = a_pool(free=FULL, busy=(busy("pl-1", "job-1", gpus=4, cpus_milli=4_000, memory_mib=1_000),))
    return a_world([a_job(**fields)], [hosts], rules=[rule])


def test_half_of_the_gpus_is_half_of_the_cores_and_of_the_memory() -> None:
    fits: dict[str, int]
    for fits in ({"gpus": 0, "cpus_milli": 64_000}, {"gpus": 1, "memory_mib": 262_144}, {"gpus": 4}):
        assert blamed(waiting(SHARE, **fits), a_plan(STOP_1)) == set()
    too_much: dict[str, int]
    for too_much in ({"gpus": 0, "cpus_milli": 64_001}, {"gpus": 1, "memory_mib": 262_145}, {"gpus": 5}):
        assert blamed(waiting(SHARE, **too_much), a_plan(STOP_1)) == {("job-1", 5)}


def test_a_guarantee_may_say_how_much_of_each() -> None:
    more = replace(SHARE, cpus_milli=100_000, memory_mib=300_000)
    assert blamed(waiting(more, gpus=1, cpus_milli=100_000, memory_mib=300_000), a_plan(STOP_1)) == set()
    assert blamed(waiting(more, gpus=1, cpus_milli=100_001), a_plan(STOP_1)) == {("job-1", 5)}
    cores = replace(SHARE, gpus=0, cpus_milli=64_000)
    assert blamed(waiting(cores, gpus=0, cpus_milli=64_000), a_plan(STOP_1)) == set()
    assert blamed(waiting(cores, gpus=1), a_plan(STOP_1)) == {("job-1", 5)}


def test_who_borrows_memory_gives_back_what_has_memory() -> None:
    theirs = GuaranteeRow("share", "batch", gpus=4)
    runs = (
        busy("pl-1", "job-1", gpus=2, memory_mib=200_000),
        busy("pl-2", "job-2", gpus=1, memory_mib=100_000),
        busy("pl-3", "job-3", gpus=1),
    )
    problem = world(SHARE, theirs, victims=runs)
    assert blamed(problem, a_plan(STOP_1)) == set()
    assert blamed(problem, a_plan(preempted(busy("pl-3", "job-3"), "job-a"))) == {("job-3", 5)}
    within = world(SHARE, theirs, victims=(replace(runs[0], memory_mib=100_000), *runs[1:]))
    assert blamed(within, a_plan(STOP_1)) == {("job-1", 5)}


def test_what_is_stopped_frees_nothing_in_the_same_plan() -> None:
    problem = world(RULE)
    start = placed(problem.snapshot.jobs[0], problem.snapshot.pools[0])
    assert blamed(problem, a_plan(STOP_1, start)) == {("job-a", 4)}


def test_now_is_what_minimum_run_counts_from() -> None:
    young = (busy("pl-1", "job-1", gpus=4, started_at=NOW - 59.0),)
    assert blamed(world(replace(RULE, minimum_run_s=60.0), victims=young), a_plan(STOP_1)) == {("job-1", 5)}


def test_who_was_displaced_is_left_alone_for_as_long_as_the_rule_says() -> None:
    for ago_s, permitted in ((599.0, False), (600.0, True)):
        victim = busy("pl-1", "job-1", gpus=4, displaced_at=NOW - ago_s)
        problem = world(replace(RULE, cool_down_s=600.0), victims=(victim,))
        assert blamed(problem, a_plan(STOP_1)) == (set() if permitted else {("job-1", 5)})


def remarks(problem: Problem, plan: Plan) -> set[tuple[str, int]]:
    return {(f.subject, f.promise) for f in check(problem, plan) if f.severity is Severity.REMARK} - {
        ("job-a", 10)
    }


def borrower(number: int, **fields: Any) -> BusyView:
    """Work of the size of the job that waits."""
    return busy(f"pl-{number}", f"job-{number}", cpus_milli=1000, memory_mib=1024, **({"gpus": 4} | fields))


def test_it_is_remarked_that_a_guarantee_is_late_while_a_borrower_has_its_place() -> None:
    """The job has waited for ten minutes, of the five that its queue is to wait."""
    runs = (borrower(1), borrower(2))
    assert remarks(world(SHARE, victims=runs), a_plan()) == {("job-a", 5)}
    assert remarks(world(SHARE, victims=runs), a_plan(STOP_1)) == set()
    assert remarks(world(replace(SHARE, reclaim_s=1000.0), victims=runs), a_plan()) == set()
    assert remarks(world(replace(SHARE, gpus=3), victims=runs), a_plan()) == set()


def test_nobody_has_to_stop_besides_who_stops_already_or_is_no_borrower() -> None:
    stops = (borrower(1, stopping=True), borrower(2))
    assert remarks(world(SHARE, victims=stops), a_plan()) == set()
    own = (borrower(1, queue="research/x"), borrower(2, gpus=3))
    assert remarks(world(replace(SHARE, gpus=8), victims=own), a_plan()) == set()
