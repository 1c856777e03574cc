"""The demonstration's work on virtual time: the same jobs and sites, and a difference between schedulers that one can follow by hand."""

import asyncio

from federator.cli.demo.side_by_side import SCHEDULERS, compare, offers_of_the_provider, simulated_world, work
from federator.cli.demo.world import OFFERS, load_world, without_deadlines
from federator.simulation.work import TraceJob


def jobs() -> dict[str, TraceJob]:
    return {job.name: job for job in work(load_world())}


def test_it_is_the_same_work_on_the_same_sites() -> None:
    world = load_world()
    simulated = simulated_world(world, asyncio.run(offers_of_the_provider()))
    assert [site.name for site in simulated.sites] == [site["site"] for site in world.sites]
    assert (simulated.gpus, len(simulated.offers)) == (18, len(OFFERS))
    assert len(jobs()) == 18
    assert {name for name in jobs() if name.startswith("sweep")} == {f"sweep-{n}" for n in range(4)}


def test_jobs_say_what_their_files_say_and_run_for_as_long_as_their_commands() -> None:
    pretrain, review, visitors = (jobs()[name] for name in ("pretrain", "review-figures", "count-visitors"))
    assert (pretrain.nodes, pretrain.gpus, pretrain.models, pretrain.home) == (2, 4, ("H100",), "hall")
    assert pretrain.run_s == 40 * 60
    assert (review.run_s, review.deadline_s) == (20 * 60, review.submit_s + 50 * 60)
    assert (visitors.home, visitors.models) == ("shop", ("L4",))
    assert pretrain.deadline_s == pretrain.submit_s + 86_400  # its queue's budget
    assert jobs()["evaluate"].submit_s >= pretrain.submit_s + pretrain.run_s
    assert jobs()["notebook"].deadline_s is None


def test_only_one_scheduler_meets_all_deadlines_and_does_not_pay_for_what_comes_too_late() -> None:
    """`review-figures` is due 50 min after minute 3 and takes 20. At home GPUs are free after 34 min: too late. Who waits for half an hour and then for a boot
    of eight minutes is too late as well, and has paid. The dispatcher expects it, and rents in time.
    """
    ours, threshold, isolated = compare(load_world(), asyncio.run(offers_of_the_provider()))
    assert tuple(each.scheduler for each in (ours, threshold, isolated)) == SCHEDULERS
    assert [each.due for each in (ours, threshold, isolated)] == [14, 14, 14]
    assert [each.missed for each in (ours, threshold, isolated)] == [0, 1, 1]
    assert 0 < ours.rented_usd < threshold.rented_usd
    assert isolated.rented_usd == 0
    assert all(each.done == each.jobs == 18 for each in (ours, threshold, isolated))


def test_without_deadlines_nothing_is_missed_and_ours_rents_nothing() -> None:
    ours, *_ = compare(without_deadlines(load_world()), asyncio.run(offers_of_the_provider()))
    assert (ours.due, ours.missed, ours.rented_usd) == (0, 0, 0)
