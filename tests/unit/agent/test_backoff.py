"""Pauses between attempts to reach the dispatcher."""

import random

from federator_agent.dialling import FIRST_PAUSE_S, LONGEST_PAUSE_S, Backoff


def test_pauses_of_many_agents_lie_anywhere_below_a_bound_that_doubles_up_to_a_cap() -> None:
    fleet = [Backoff(random.Random(seed)) for seed in range(500)]
    bound_s = FIRST_PAUSE_S
    for _ in range(10):
        pauses = sorted(backoff.next_s() for backoff in fleet)
        assert pauses[0] < 0.05 * bound_s
        assert 0.95 * bound_s < pauses[-1] <= bound_s
        assert 0.4 * bound_s < pauses[250] < 0.6 * bound_s, "they are spread evenly"
        bound_s = min(LONGEST_PAUSE_S, 2 * bound_s)
    assert bound_s == LONGEST_PAUSE_S


def test_what_the_dispatcher_asks_of_all_is_kept_and_spread() -> None:
    pauses = [Backoff(random.Random(seed)).next_s(10.0) for seed in range(100)]
    assert min(pauses) >= 10.0
    assert max(pauses) - min(pauses) > 4.0


def test_success_brings_the_bound_back() -> None:
    backoff = Backoff(random.Random(1))
    for _ in range(8):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() <= FIRST_PAUSE_S
