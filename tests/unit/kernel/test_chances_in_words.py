"""A chance is never told as none, or as certain, unless it is."""

import pytest

from federator.kernel.quantities import format_chance


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.0, "0%"),
        (1e-9, "under 1%"),
        (0.0049, "under 1%"),
        (0.005, "under 1%"),
        (0.0051, "1%"),
        (0.234, "23%"),
        (0.994, "99%"),
        (0.9951, "over 99%"),
        (1.0, "100%"),
    ],
)
def test_a_chance_in_words(share: float, said: str) -> None:
    assert format_chance(share) == said
