"""Virtual time passes only while nobody has anything to do, and the same program runs the same way each time."""

import asyncio

import pytest

from federator.simulation.virtual_time import LoopClock, Stalled, VirtualLoop, run


def test_a_month_passes_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(30 * 86400.0)
        return asyncio.get_running_loop().time()

    assert run(lambda _: main()) == pytest.approx(30 * 86400.0)


def test_timers_fire_in_the_order_of_their_times_and_ties_in_that_of_their_making() -> None:
    fired: list[str] = []

    async def wait(name: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        fired.append(f"{name}@{asyncio.get_running_loop().time():g}")

    async def main() -> None:
        await asyncio.gather(wait("late", 5.0), wait("first", 2.0), wait("second", 2.0), wait("now", 0.0))

    run(lambda _: main())
    assert fired == ["now@0", "first@2", "second@2", "late@5"]


def test_time_stands_still_while_something_runs() -> None:
    async def main() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return asyncio.get_running_loop().time()

    assert run(lambda _: main()) == 0.0


def test_threads_are_done_in_place() -> None:
    async def main() -> tuple[int, float]:
        value = await asyncio.to_thread(lambda: 42)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return value, asyncio.get_running_loop().time()

    assert run(lambda _: main()) == (42, 0.0)


def test_timeouts_are_virtual() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600.0):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run(lambda _: main()) == pytest.approx(3600.0)


def test_who_waits_for_what_nobody_will_do_is_told() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stalled):
        run(lambda _: main())


def test_both_clocks_follow_the_loop() -> None:
    async def main(loop: VirtualLoop) -> None:
        clock = LoopClock(loop, origin_at=1000.0)
        at, boot_s = clock.now(), clock.boot()
        await asyncio.sleep(clock.real_delay_s(90.0))
        assert clock.now() - at == pytest.approx(90.0)
        assert clock.boot() - boot_s == pytest.approx(90.0)
        assert at == 1000.0
        assert boot_s > 0

    run(main)


def test_what_is_left_is_cancelled() -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def main() -> None:
        asyncio.get_running_loop().create_task(forever())
        await asyncio.sleep(1.0)

    run(lambda _: main())
    assert ended == ["cancelled"]


@pytest.mark.parametrize(
    "others", [(), (1.0,), (0.5, 1.0, 1.0000004), tuple(0.1 * number for number in range(40))]
)
def test_timers_of_one_time_run_in_the_order_in_which_they_were_set_whoever_else_has_some(
    others: tuple[float, ...],
) -> None:
    """So watching a simulation does not change it."""
    ran: list[tuple[int, float]] = []

    async def main(loop: VirtualLoop) -> None:
        for number in range(12):
            loop.call_at(
                1.0 if number % 3 else 1.0000005, lambda which: ran.append((which, loop.time())), number
            )
            for at in others:
                loop.call_at(at, lambda: None)
        await asyncio.sleep(2.0)

    run(main)
    first = [(number, 1.0) for number in range(12) if number % 3]
    assert ran == first + [(number, 1.0000005) for number in range(12) if number % 3 == 0]
