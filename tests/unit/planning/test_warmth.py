"""Whether an idle machine is kept: by the times that others like it idled, against what its time costs."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from federator.planning.rentals.warmth import LEAST_TIMES, Keeping, Wait, saved_s, worth_keeping
from tests.support.dispatch import OFFER

HOUR = 3600.0


def waits(*minutes: float, never: int = 0) -> list[Wait]:
    return [Wait(60.0 * each, came=True) for each in minutes] + [Wait(HOUR, came=False)] * never


def test_it_is_kept_where_it_is_mostly_needed_sooner_than_renting_anew_costs() -> None:
    kept = worth_keeping(waits(6, 7, 8, 8, never=1), 300.0, 600.0, HOUR)
    assert kept is not None
    assert (kept.until_s, kept.came, kept.of) == (480.0, 4, 5)
    assert kept.gain_s == (4 * 600.0 - (60.0 + 120.0 + 180.0 + 180.0) - 180.0) / 5


def test_it_is_not_kept_where_it_is_mostly_needed_much_later() -> None:
    assert worth_keeping(waits(40, 50, 55, 58), 300.0, 600.0, HOUR) is None
    assert worth_keeping(waits(9, never=6), 300.0, 600.0, HOUR) is None


def test_once_it_has_idled_for_longer_than_the_others_nothing_speaks_for_it() -> None:
    seen = waits(6, 7, 8, 9, 10, 11, never=2)
    assert worth_keeping(seen, 300.0, 600.0, HOUR) is not None
    assert worth_keeping(seen, 11 * 60.0, 600.0, HOUR) is None


def test_of_few_times_nothing_is_concluded() -> None:
    assert worth_keeping(waits(*[6.0] * (LEAST_TIMES - 1)), 300.0, 600.0, HOUR) is None
    assert worth_keeping(waits(*[6.0] * LEAST_TIMES), 300.0, 600.0, HOUR) is not None


def test_it_is_never_kept_for_longer_than_is_set() -> None:
    assert worth_keeping(waits(*[20.0] * 9), 300.0, HOUR, 1199.0) is None
    assert worth_keeping(waits(*[20.0] * 9), 300.0, HOUR, 1200.0) == Keeping(1200.0, 2700.0, 9, 9)


def test_renting_anew_costs_boot_teardown_and_what_is_billed_at_least() -> None:
    assert saved_s(OFFER, 1800.0) == OFFER.delay_s + OFFER.teardown_s
    assert saved_s(replace(OFFER, minimum_billing_s=3600.0), 1800.0) == 1800.0
    assert saved_s(replace(OFFER, minimum_billing_s=3600.0), 7200.0) == OFFER.delay_s + OFFER.teardown_s


seen = st.lists(st.builds(Wait, st.floats(1.0, 7200.0).map(round).map(float), st.booleans()), max_size=20)


@given(seen, st.integers(0, 3600).map(float), st.integers(1, 7200).map(float))
def test_what_it_gains_is_what_the_past_would_have_gained(
    past: list[Wait], idle_s: float, saves_s: float
) -> None:
    """Played over: each of the past times, kept until then; no other time would have gained more."""
    kept = worth_keeping(past, idle_s, saves_s, 2 * HOUR)
    left = [wait for wait in past if wait.s > idle_s]

    def gained(until_s: float) -> float:
        total = 0.0
        for wait in left:
            came = wait.came and wait.s <= until_s
            total += saves_s - (wait.s - idle_s) if came else idle_s - until_s
        return total / len(left)

    best = max((gained(wait.s) for wait in left), default=0.0)
    if kept is None:
        assert len(left) < LEAST_TIMES or best <= 1e-6
    else:
        assert abs(kept.gain_s - gained(kept.until_s)) < 1e-6
        assert kept.gain_s >= best - 1e-6
