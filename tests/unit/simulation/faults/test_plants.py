"""Bugs that are planted are found: else a fault simulation that finds nothing would say nothing."""

import pytest

from tests.unit.simulation.faults.plants import PLANTS, Plant, play_with

NEARBY = 8
"""A change of the product moves the order of events a little: one of so many seeds finds it."""


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.plant.__name__)
def test_a_planted_bug_is_found(plant: Plant) -> None:
    for seed in range(plant.seed, plant.seed + NEARBY):
        if play_with(plant.plant, seed):
            return
    raise AssertionError(
        f"{plant.plant.__doc__} Seeds {plant.seed} to {plant.seed + NEARBY - 1} do not see it"
    )
