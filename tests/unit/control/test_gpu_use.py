"""How busy each GPU is: whose word counts, how much is kept of it, and who sees whose it is."""

from collections import OrderedDict
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from federator.control.administration.visibility import ANOTHERS
from federator.control.reports import gpu_use
from federator.control.reports.gpu_use import MOST_POINTS, Curve
from federator.hub.report_validation import check_gpu_use
from federator.kernel.errors import Invalid
from federator.model.sites import GpuUse
from tests.support.dispatch import ADA, World
from tests.unit.control.test_measurements import running


def tell(world: World, *uses: GpuUse, member: str = "north") -> None:
    world.core.inventory.measured(member, (), uses)


def use_of(world: World, job: str, gpu: int = 0, busy: int | None = 50) -> GpuUse:
    return GpuUse("main", "host-0", gpu, busy, 1024, 300, (world.placement(job).id,))


def test_a_curve_keeps_its_length_and_its_mean() -> None:
    curve = Curve()
    for second in range(1000):
        curve.add(float(second), GpuUse("p", "h", 0, 100 if second < 500 else 0, 64, None))
        assert len(curve.points()) <= MOST_POINTS
    points = curve.points()
    assert points[0][0] == 0.0
    assert [at for at, *_ in points] == sorted(at for at, *_ in points)
    assert all(busy in (0.0, 100.0) or 480 <= at <= 520 for at, busy, _, _ in points)
    assert {watts for *_, watts in points} == {None}


async def test_the_site_shows_each_gpu_and_the_job_its_curves() -> None:
    world, job = await running()
    tell(world, use_of(world, job), GpuUse("main", "host-0", 1, slowed_by="heat", near="NVLink 0"))
    first, second = world.core.views.site("north").gpu_use
    assert (first.busy_percent, first.power_w, [each.job for each in first.jobs]) == (50, 300, [job])
    assert (second.busy_percent, second.jobs) == (None, ())
    assert (first.slowed_by, second.slowed_by, second.near) == ("", "heat", "NVLink 0")
    (curve,) = world.core.views.gpu_curves(world.job(job))
    assert [(point.busy_percent, point.power_w) for point in curve.points] == [(50.0, 300.0)]
    assert not world.core.views.sites()[0].gpu_use, "lists stay short"


async def test_nobody_speaks_for_anothers_work() -> None:
    world, job = await running()
    tell(world, use_of(world, job), member="elsewhere")
    assert not world.core.views.gpu_curves(world.job(job))
    assert not world.core.views.site("north").gpu_use


async def test_whose_a_gpu_is_is_hidden_where_the_job_is() -> None:
    world, job = await running()
    tell(world, use_of(world, job))
    world.core.visibility.by_team = True
    eve = type(ADA)("eve", ADA.role)
    (row,) = world.core.views.site("north", eve).gpu_use
    assert (row.busy_percent, row.jobs[0].job, row.jobs[0].name) == (50, "", ANOTHERS)


async def test_what_is_over_makes_room_for_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_use, "MOST_CURVES", 1)
    world, job = await running()
    tell(world, use_of(world, job), use_of(world, job, gpu=1))
    assert len(world.core.views.gpu_curves(world.job(job))) == 1
    await world.sites["north"].finish(job)
    again = await world.submit(resources={"gpus": 1})
    await world.turn()
    await world.sites["north"].run_all()
    tell(world, use_of(world, again))
    assert len(world.core.views.gpu_curves(world.job(again))) == 1
    assert not world.core.views.gpu_curves(world.job(job))


async def test_a_job_has_no_more_curves_than_gpus_whatever_numbers_are_invented() -> None:
    world, job = await running()
    gpus = world.placement(job).gpus_per_node
    for first in range(0, 200, 50):
        tell(world, *(use_of(world, job, gpu) for gpu in range(first, first + 50)))
    curves = world.core.views.gpu_curves(world.job(job))
    assert [each.gpu for each in curves] == list(range(gpus))


async def test_a_placement_counts_once_in_a_message_for_each_gpu() -> None:
    world, job = await running()
    use = use_of(world, job)
    tell(world, replace(use, placements=use.placements * 100), use)
    ((_, _, curve),) = world.core.inventory.gpu_uses.of(world.placement(job))
    assert len(curve.points()) == 1


async def test_what_is_full_is_looked_through_once_until_a_placement_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, job = await running()
    uses = world.core.inventory.gpu_uses
    monkeypatch.setattr(gpu_use, "MOST_CURVES", 1)
    tell(world, use_of(world, job))
    again = await world.submit(resources={"gpus": 1})
    await world.turn()
    await world.sites["north"].run_all()
    looked: list[str] = []

    class Watched(OrderedDict[str, dict[str, dict[int, Curve]]]):
        def __iter__(self) -> Iterator[str]:
            looked.append("through")
            return super().__iter__()

    uses.curves = Watched(uses.curves)
    looked.clear()
    for _ in range(5):
        tell(world, use_of(world, again))
    assert looked == ["through"]
    await world.sites["north"].finish(job)
    tell(world, use_of(world, again))
    assert len(world.core.views.gpu_curves(world.job(again))) == 1


def test_a_message_names_a_bounded_number_of_placements() -> None:
    names = tuple(f"plc-{number}" for number in range(1000))
    with pytest.raises(Invalid, match="4096"):
        check_gpu_use([GpuUse("p", "h", gpu, 1, placements=names) for gpu in range(5)])
    check_gpu_use([GpuUse("p", "h", gpu, 1, placements=names) for gpu in range(4)])


@pytest.mark.parametrize(
    ("use", "field"),
    [
        (GpuUse("p", "h", 0, 101), "busy_percent"),
        (GpuUse("p", "h", -1, 1), "gpu"),
        (GpuUse("p", "h", 1024, 1), "gpus[0].gpu"),
        (GpuUse("p", "h", 0, 1, 1, -5), "power_w"),
        (GpuUse("p" * 600, "h", 0), "gpus[0]"),
        (GpuUse("p", "h", 0, slowed_by="x" * 600), "gpus[0]"),
    ],
)
def test_what_cannot_be_is_refused(use: GpuUse, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_gpu_use((use,))
    assert field in str(refused.value.field)
