"""Ranks on hosts, in whole numbers: what fits is found, what does not is refused, and neither depends on luck in the order."""

from itertools import permutations, product

from hypothesis import given
from hypothesis import strategies as st

from federator.model.capacity import Shape
from federator.planning.checks.packing import Hosts, Size


def test_totals_do_not_hide_fragments() -> None:
    assert not Hosts([Shape(2, 0, 0, 2)]).take((3, 0, 0), 1)
    assert Hosts([Shape(2, 0, 0, 2)]).take((2, 0, 0), 2)


def test_ranks_share_a_host() -> None:
    assert Hosts([Shape(8, 0, 0, 1)]).take((4, 0, 0), 2)


def test_a_failed_take_changes_nothing() -> None:
    hosts = Hosts([Shape(4, 0, 0, 1)])
    assert not hosts.take((3, 0, 0), 2)
    assert hosts.take((4, 0, 0), 1)


def test_earlier_ranks_are_moved_together_when_that_makes_room() -> None:
    # Best fit puts the first job, tight in memory, on the host that the second one needs.
    hosts = Hosts([Shape(2, 0, 8), Shape(3, 0, 4)])
    assert hosts.take((2, 0, 2), 1)
    assert hosts.take((2, 0, 6), 1)
    assert not hosts.take((2, 0, 1), 1)


def test_no_hosts_hold_not_even_nothing() -> None:
    assert not Hosts([]).take((0, 0, 0), 1)


SIZES = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3),
    st.lists(SIZES, min_size=1, max_size=4),
)
def test_exactly_the_sets_that_some_assignment_holds_are_taken(free: list[Size], ranks: list[Size]) -> None:
    hosts = Hosts([Shape(*size) for size in free])
    taken: list[Size] = []
    for rank in ranks:
        fits = _some_assignment(free, [*taken, rank])
        assert hosts.take(rank, 1) is fits
        if fits:
            taken.append(rank)


@given(st.lists(SIZES, min_size=2, max_size=4))
def test_whether_a_set_fits_does_not_depend_on_its_order(ranks: list[Size]) -> None:
    answers = set()
    for order in permutations(ranks):
        hosts = Hosts([Shape(3, 3, 3), Shape(2, 4, 3)])
        answers.add(all(hosts.take(rank, 1) for rank in order))
    assert len(answers) == 1


def _some_assignment(free: list[Size], ranks: list[Size]) -> bool:
    for choice in product(range(len(free)), repeat=len(ranks)):
        used = [[0, 0, 0] for _ in free]
        for host, rank in zip(choice, ranks, strict=True):
            for part in range(3):
                used[host][part] += rank[part]
        if all(use[part] <= has[part] for use, has in zip(used, free, strict=True) for part in range(3)):
            return True
    return False
