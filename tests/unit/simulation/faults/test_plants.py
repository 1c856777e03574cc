"""Bugs that are planted are found: else a fault simulation that finds nothing would say nothing."""

import re

import pytest

from tests.architecture.sources import text
from tests.support.examples import NIGHTLY
from tests.unit.simulation.faults.plants import PLANTS, Plant, play_with

PAGE = "docs/explanation/fault-simulation.md"
NEARBY = 8
"""A change of the product moves the order of events a little: one of so many seeds finds it."""
SAMPLE = {
    "dispatch_twice",
    "drop_a_terminal_status",
    "forget_a_budget",
    "reuse_a_placement_id",
    "skip_the_fence",
    "write_as_a_deposed_leader",
}
"""Found soon, and each by another promise: these are in every run, and at night there are all of them."""


def test_the_page_says_within_how_many_seeds_each_is_found() -> None:
    rows = dict(re.findall(r"^\| (.+) \| .+ \| (\d+) \|$", text(PAGE), re.MULTILINE))
    said = {(plant.__doc__ or "").rstrip("."): str(seed + 1) for plant, seed in PLANTS}
    assert rows == said


@pytest.mark.parametrize(
    "plant",
    [each for each in PLANTS if NIGHTLY or each.plant.__name__ in SAMPLE],
    ids=lambda plant: plant.plant.__name__,
)
def test_a_planted_bug_is_found(plant: Plant) -> None:
    for seed in range(plant.seed, plant.seed + NEARBY):
        if play_with(plant.plant, seed):
            return
    raise AssertionError(
        f"{plant.plant.__doc__} Seeds {plant.seed} to {plant.seed + NEARBY - 1} do not see it"
    )
