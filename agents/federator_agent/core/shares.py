"""How a machine's CPUs and memory go with its GPUs, where these are of several sorts, or cut into parts, and so count in several pools.

What is told of one pool must be there whatever is taken in the others. So each unit has its part of the machine, by its weight; and what is free of the machine goes
with the units that are free.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Sort(NamedTuple):
    """Units of one sort at a machine: GPUs, or parts of such."""

    weight: int
    """Of one: thousandths of a GPU."""
    units: int
    free: int = 0


def most(size: int, sorts: Sequence[Sort], number: int) -> int:
    """What goes with all units of one sort, if all of the machine is free."""
    weights = [sort.weight * sort.units for sort in sorts]
    return size * weights[number] // sum(weights) if any(weights) else size * (number == 0)


def left(size: int, free: int, sorts: Sequence[Sort]) -> list[int]:
    """What of the machine's free ones goes with the free units of each sort; where no unit is free, all of it with the first sort."""
    weights = [sort.weight * sort.free for sort in sorts]
    if not any(weights):
        weights[0] = 1
    shares = (max(0, free) * weight // sum(weights) for weight in weights)
    return [min(share, most(size, sorts, number)) for number, share in enumerate(shares)]
