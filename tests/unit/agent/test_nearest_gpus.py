"""Which of a host's free GPUs a rank gets."""

import pytest

from federator_agent.core.lent_capacity import nearest

NVLINK = ((0, 2, 4, 6), (1, 3), (5, 7))
NUMA = ((0, 1, 2, 3), (4, 5, 6, 7))
ALL = tuple(range(8))


@pytest.mark.parametrize(
    ("free", "count", "near", "chosen"),
    [
        (ALL, 2, (), (0, 1)),
        (ALL, 2, (NVLINK, NUMA), (1, 3)),
        (ALL, 3, (NVLINK, NUMA), (0, 2, 4)),
        (ALL, 4, (((1, 3), (5, 7)), NUMA), (0, 1, 2, 3)),
        (ALL, 5, (NVLINK, NUMA), (0, 1, 2, 3, 4)),
        ((0, 2, 4, 5, 7), 1, (NVLINK,), (5,)),
        ((0, 3, 5), 2, (NVLINK, NUMA), (0, 3)),
        ((0, 3, 5), 0, (NVLINK, NUMA), ()),
    ],
    ids=[
        "nothing-known", "the-smallest-island", "the-one-that-has-enough", "a-numa-node-where-no-island-has",
        "more-than-any-has", "what-is-left-of-an-island", "one-numa-node", "none",
    ],
)  # fmt: skip
def test_gpus_of_a_rank_reach_each_other(
    free: tuple[int, ...], count: int, near: tuple[tuple[tuple[int, ...], ...], ...], chosen: tuple[int, ...]
) -> None:
    assert nearest(free, count, near) == chosen
