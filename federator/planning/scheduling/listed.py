"""Schedules by the quickest means at hand: the compiled kernel, or plain Python where there is none.

Both come to the same. What the kernel needs – numpy, the arrays of a world – is loaded when the kernel is there, and not before.
"""
# ruff: noqa: PLC0415 - for that reason

from collections.abc import Mapping
from typing import TYPE_CHECKING

from federator.planning import kernels
from federator.planning.renting.burst import Bursting
from federator.planning.scheduling import schedule as plain
from federator.planning.scheduling.bookings import Booking, Schedule
from federator.planning.world.problem import World

if TYPE_CHECKING:
    from federator.planning.scheduling.carried import Carried


def at_home(world: World) -> Mapping[str, Booking]:
    """All jobs, with nothing rented and no lease used."""
    found = carry_out(world, None, {})
    return plain.schedule(world, None).bookings if found is None else found.schedule().bookings


def starts_now(world: World) -> Schedule:
    """What of the waiting work starts now at home, and nothing beyond it."""
    found = carry_out(world, None, {}, whole=False)
    return plain.starts_now(world) if found is None else found.schedule()


def carry_out(
    world: World,
    bursting: Bursting | None,
    starts: Mapping[str, int],
    order: Mapping[str, int] | None = None,
    *,
    whole: bool = True,
    required_usd: float = 0.0,
) -> "Carried | None":
    """A decision by the kernel, carried out and priced; None where there is no kernel, or where a job is sent to a place that is not open to it.

    `order`: every job's turn where it is not the published one; `required_usd`: what it costs, on top, not to rent what a policy requires.
    """
    kernel = kernels.at_hand()
    if kernel is None:
        return None
    from federator.planning.scheduling.carried import Carried
    from federator.planning.scheduling.cases import cases_of
    from federator.planning.scheduling.ways import numbers_of

    numbers = numbers_of(world)
    found = Carried(
        numbers,
        cases_of(numbers, bursting),
        starts,
        bursts=bursting is not None,
        whole=whole,
        required_usd=required_usd,
        forbidden=world.forbidden,
    )
    if order is not None:
        found.reorder(order)
    return None if found.foreign else found.run(kernel)
