"""Manners towards a provider: a rate, its retry-after, and silence after repeated faults."""

import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.errors import NoCapacity, TooMany, Unavailable
from federator_providers.fake import FakeProvider
from federator_providers.limits import LimitedProvider


def pair(clock: ManualClock, **limits: float) -> tuple[FakeProvider, LimitedProvider]:
    inner = FakeProvider("p", clock, [])
    return inner, LimitedProvider(inner, clock, **limits)  # type: ignore[arg-type] # some are whole numbers


async def test_calls_beyond_the_rate_are_refused_until_time_has_passed() -> None:
    clock = ManualClock()
    _, provider = pair(clock, calls_per_s=2.0, calls_at_once=3)
    for _ in range(3):
        await provider.offers()
    with pytest.raises(TooMany) as caught:
        await provider.offers()
    assert caught.value.retry_after_s == pytest.approx(0.5)
    clock.advance(0.5)
    await provider.terminate("x")
    with pytest.raises(TooMany):
        await provider.instances("lab")


async def test_a_pause_that_the_provider_asks_for_is_kept() -> None:
    clock = ManualClock()
    inner, provider = pair(clock)
    inner.faults = [Unavailable("throttled", retry_after_s=30.0)]
    with pytest.raises(Unavailable):
        await provider.offers()
    clock.advance(29.0)
    with pytest.raises(TooMany) as caught:
        await provider.offers()
    assert caught.value.retry_after_s == pytest.approx(1.0)
    clock.advance(1.0)
    assert await provider.offers() == []


async def test_repeated_faults_open_the_circuit_and_a_success_closes_it() -> None:
    clock = ManualClock()
    inner, provider = pair(clock, failures_to_open=2, open_s=100.0)
    inner.faults = [Unavailable("down"), Unavailable("down")]
    for _ in range(2):
        with pytest.raises(Unavailable):
            await provider.offers()
        clock.advance(1.0)
    with pytest.raises(TooMany):
        await provider.offers()
    clock.advance(99.0)
    assert await provider.offers() == []
    inner.faults = [Unavailable("down")]
    with pytest.raises(Unavailable):
        await provider.offers()
    clock.advance(1.0)
    assert await provider.offers() == []  # one fault alone does not open it again


async def test_sold_out_is_an_answer_and_not_a_fault() -> None:
    inner, provider = pair(ManualClock(), failures_to_open=1)
    inner.faults = [NoCapacity("sold out", retry_after_s=60.0)]
    with pytest.raises(NoCapacity):
        await provider.offers()
    assert await provider.offers() == []
