"""What a guarantee is of: GPUs with their share of cores and memory, or as much of each as a policy says."""

import math

import pytest
from msgspec.structs import replace

from federator.model.capacity import Shape
from federator.model.jobs import Accelerators, Form, Resources
from federator.model.rules import GuaranteeRow
from federator.planning.rules.shares import Amount, due_of
from federator.planning.scheduling.objective import SHORTFALL_H, Evaluator
from federator.planning.world.problem import World
from tests.support.worlds import a_job, a_lease, a_pool, a_world, busy

HALF = GuaranteeRow("share", "research", gpus=4, shortfall_usd_gpu_h=20.0)
HOSTS = a_pool(cpus_milli_per_node=40_000, memory_mib_per_node=100_000)
"""8 GPUs, 80 cores, 200,000 MiB."""


def short_gpus(*jobs: dict[str, object], row: GuaranteeRow = HALF) -> float:
    """What the guarantee is short of, in GPUs, while these wait."""
    full = replace(HOSTS, free=(Shape(0, 0, 0, 2),))
    world = World(a_world([a_job(f"job-{n}", **job) for n, job in enumerate(jobs)], [full], rules=[row]))
    return Evaluator(world).score({}).terms["shortfall"] / (row.shortfall_usd_gpu_h * SHORTFALL_H)


def test_what_is_not_said_is_the_share_of_the_gpus() -> None:
    assert due_of(HALF, [HOSTS]).amount == (4.0, 40_000.0, 100_000.0)


def test_of_a_model_it_is_the_share_of_where_that_is() -> None:
    other = a_pool("edge", model="H100", cpus_milli_per_node=4_000)
    row = GuaranteeRow("share", "research", gpus=2, model="H100")
    assert due_of(row, [HOSTS, other]).amount == (2.0, 2_000.0, 131_072.0)


def test_nobody_is_due_a_part_of_what_is_rented() -> None:
    assert due_of(HALF, [HOSTS, a_lease()]).amount == due_of(HALF, [HOSTS]).amount


def test_what_no_site_says_to_have_does_not_bound_a_guarantee() -> None:
    silent = a_pool(cpus_milli_per_node=0, memory_mib_per_node=0)
    assert due_of(HALF, [silent]).amount == (4.0, math.inf, math.inf)


def test_cores_alone_bring_memory_and_no_gpus() -> None:
    row = GuaranteeRow("share", "research", gpus=0, cpus_milli=20_000)
    assert due_of(row, [HOSTS]).amount == (0.0, 20_000.0, 50_000.0)


@pytest.mark.parametrize(
    ("job", "gpus"),
    [
        ({"gpus": 1}, 1.0),
        ({"gpus": 1, "cpus_milli": 20_000}, 2.0),
        ({"gpus": 0, "cpus_milli": 1_000, "memory_mib": 75_000}, 3.0),
        ({"gpus": 4, "nodes": 2}, 4.0),
    ],
)
def test_what_is_short_is_counted_in_what_is_wanted_most(job: dict[str, object], gpus: float) -> None:
    assert short_gpus({"memory_mib": 1, **job}) == pytest.approx(gpus)


def test_it_is_the_queues_largest_share_and_not_the_sum_of_its_jobs() -> None:
    assert short_gpus({"gpus": 2, "memory_mib": 1}, {"gpus": 0, "cpus_milli": 10_000, "memory_mib": 1}) == 2.0


def test_a_guarantee_of_cores_alone_has_a_price_too() -> None:
    row = GuaranteeRow("share", "research", gpus=0, cpus_milli=20_000)
    assert short_gpus({"gpus": 0, "cpus_milli": 10_000, "memory_mib": 1}, row=row) == pytest.approx(1.0)


def test_work_with_most_of_the_memory_is_not_owed_more_gpus() -> None:
    held = busy("pl-1", "job-1", queue="research", memory_mib=90_000)
    pool = a_pool(cpus_milli_per_node=40_000, memory_mib_per_node=100_000, busy=(held,))
    jobs = [a_job("small", memory_mib=10_000), a_job("large", memory_mib=10_001)]
    world = World(a_world([jobs[1], jobs[0]], [pool], rules=[HALF]))
    assert world.in_use(HALF) == Amount(1.0, 0.0, 90_000.0)
    assert world.owed == {"small"}


def test_a_job_of_several_forms_is_owed_the_widest_that_the_guarantee_covers() -> None:
    def on(gpus: int, models: tuple[str, ...] = ()) -> Form:
        return Form(
            1, Resources(gpus=Accelerators(count=gpus, models=models), cpus_milli=1, memory_mib=1), 1.0
        )

    wide = a_job("wide", gpus=8, forms=(on(3), on(2)))
    rest = a_job("rest", memory_mib=1, submitted_at=wide.submitted_at + 1.0)
    more = replace(rest, id="more", submitted_at=rest.submitted_at + 1.0)
    assert World(a_world([wide, rest, more], [HOSTS], rules=[HALF])).owed == {"wide", "rest"}
    assert World(a_world([replace(wide, forms=(on(5),))], [HOSTS], rules=[HALF])).owed == set()
    of_model = replace(HALF, model="H100")
    either = replace(wide, forms=(on(2, ("H100",)),))
    pools = [HOSTS, a_pool("edge", model="H100")]
    assert World(a_world([either], pools, rules=[of_model])).owed == {"wide"}
    assert World(a_world([replace(either, forms=())], pools, rules=[of_model])).owed == set()
