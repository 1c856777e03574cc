"""How many replicas a load needs, and what is done so that there are so many: bounds, hysteresis, and that a change of revision never takes away what is needed."""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from federator.model.services import (
    DRAINED_S,
    Health,
    Load,
    Replica,
    Revision,
    Scale,
    Service,
    Standing,
    needed,
    scaled,
    steps,
    weights,
)

SCALES = st.builds(
    lambda least, more, each, p95: Scale(
        least=least, most=max(1, least + more), requests_per_replica=each, p95_latency_s=p95
    ),
    st.integers(0, 5),
    st.integers(0, 20),
    st.floats(0.5, 50),
    st.none() | st.floats(0.01, 10),
)
LOADS = st.lists(
    st.builds(Load, st.floats(0, 1000), st.floats(0, 500), st.integers(0, 100), st.integers(0, 9), st.integers(0, 30)),
    max_size=30,
).map(lambda loads: sorted(loads, key=lambda each: each.at))  # fmt: skip


def told(scale: Scale, loads: list[Load]) -> list[Load]:
    """As the dispatcher keeps them: each with what it asked for when it came."""
    return [each._replace(needed=needed(scale, loads[: at + 1])) for at, each in enumerate(loads)]


@given(SCALES, LOADS, st.integers(0, 30))
def test_what_is_wanted_is_within_the_bounds(scale: Scale, loads: list[Load], wanted: int) -> None:
    assert scale.least <= scaled(scale, told(scale, loads), wanted, 1000.0).replicas <= scale.most


@given(SCALES, LOADS, st.integers(0, 30), st.floats(0, 200))
def test_more_load_never_wants_fewer(scale: Scale, loads: list[Load], wanted: int, more: float) -> None:
    calm = [each._replace(slow=0) for each in loads]
    loaded = [each._replace(at_once=each.at_once + more) for each in calm]
    before, after = (scaled(scale, told(scale, each), wanted, 1000.0) for each in (calm, loaded))
    assert after.replicas >= before.replicas


@given(SCALES, st.integers(1, 25), st.floats(1, 280))
def test_fewer_are_wanted_only_after_the_time_that_is_said(scale: Scale, wanted: int, quiet_s: float) -> None:
    held = max(scale.least, min(scale.most, wanted))
    quiet = [Load(1000.0 - quiet_s + step, 0.0) for step in range(int(quiet_s) + 1)]
    assert scaled(scale, told(scale, quiet), wanted, 1000.0).replicas == held
    long = [Load(1000.0 - step, 0.0) for step in range(310, -1, -1)]
    assert scaled(scale, told(scale, long), wanted, 1000.0).replicas == scale.least


@given(SCALES, st.integers(0, 25))
def test_without_a_gateway_the_number_stays(scale: Scale, wanted: int) -> None:
    held = max(scale.least, min(scale.most, wanted))
    assert scaled(scale, told(scale, [Load(0.0, 1000.0)]), wanted, 1000.0).replicas == held


def test_slow_answers_ask_for_one_more_once_they_are_more_than_chance() -> None:
    scale = Scale(least=1, most=20, requests_per_replica=4, p95_latency_s=2.0)
    loads = [Load(2.0 * at, 3.0, 10, 0, 3) for at in range(31)]
    few = [*loads[:-1], loads[-1]._replace(slow=10)]
    assert (needed(scale, few), needed(scale, few[-1:])) == (1, 1)
    many = [*loads[:-3], *(each._replace(slow=10) for each in loads[-3:])]
    assert needed(scale, many) == 4
    assert needed(scale, [each._replace(at_once=13.0) for each in many]) == 4, "for the load, not beside it"
    fourth = [*many, Load(62.0, 3.0, 10, 10, 4)]
    assert needed(scale, fourth) == 1, "what was slow with three ready says nothing of four"


def test_what_has_piled_up_is_work_to_do_once_and_no_rate() -> None:
    """One replica has answered 2 a second, each in 2 s; then 10 s bring 20 a second, and 180 wait in the end."""
    scale = Scale(least=1, most=200, requests_per_replica=4)
    calm = [Load(2.0 * at, 4.0, 4, working=4.0, rate=2.0) for at in range(60)]
    burst = [Load(120.0 + 2.0 * at, 40.0 + 36.0 * at, 4, working=4.0, rate=2.0) for at in range(5)]
    assert needed(scale, calm) == 1
    # 20 came in ten seconds, then 176; 108 waited on average.
    came, waited = 10 * 2.0 + 184.0 - 4.0, 108.0
    assert needed(scale, [*calm, *burst]) == ceil((came + waited) * 2.0 / 10 / 4) == 16
    assert needed(scale, burst[1:]) == 33, "a place for each of 130 at a time, where too few answers tell"


def service(**fields: object) -> Service:
    given_ = {
        "id": "svc-1", "name": "chat", "owner": "ada", "queue": "default", "scale": Scale(least=1, most=20),
        "revision": Revision(number=2, file="{}", port=80), "former": Revision(number=1, file="{}", port=80),
        "wanted": 4, "created_at": 0.0, "changed_at": 0.0, **fields,
    }  # fmt: skip
    return Service(**given_)  # type: ignore[arg-type]


HEALTHS = st.sampled_from([each for each in Health if each is not Health.GONE])
STANDINGS = st.lists(
    st.tuples(st.integers(1, 3), HEALTHS, st.booleans(), st.sampled_from("ab"), st.floats(0, 9)), max_size=12
).map(
    lambda rows: [
        Standing(Replica(f"job-{at}", revision, 80, 0.0 if drained else None), health, site, price)
        for at, (revision, health, drained, site, price) in enumerate(rows)
    ]
)


@given(STANDINGS, st.integers(0, 6), st.integers(0, 99), st.integers(1, 3))
def test_what_is_drained_leaves_what_is_wanted(
    standings: list[Standing], wanted: int, canary: int, surge: int
) -> None:
    present = service(wanted=wanted, canary=canary, scale=Scale(least=0, most=20, surge=surge))
    todo = steps(present, standings, 1000.0)
    ready = [each for each in standings if each.health is Health.READY and each.replica.drained_at is None]
    left = [each for each in ready if each.replica.job not in todo.drains]
    assert len(left) >= min(len(ready), wanted)
    active = sum(each.replica.drained_at is None and each.health is not Health.FAILING for each in standings)
    assert not todo.starts or active + len(todo.starts) <= wanted + max(surge, 1)
    assert set(todo.cancels) <= {
        each.replica.job for each in standings if each.replica.drained_at is not None
    }


@given(st.integers(0, 6), st.sampled_from([0, 10, 50]), st.integers(1, 3))
def test_it_comes_to_rest_with_what_is_wanted_whatever_was_there(
    wanted: int, canary: int, surge: int
) -> None:
    """Every replica that is started becomes ready, every one that is cancelled goes."""
    present = service(wanted=wanted, canary=canary, scale=Scale(least=0, most=20, surge=surge))
    standings = [Standing(Replica(f"old-{at}", 1), Health.READY) for at in range(4)]
    now = 0.0
    for look in range(60):
        now += 10 * DRAINED_S
        todo = steps(present, standings, now)
        serving = sum(each.health is Health.READY and each.replica.drained_at is None for each in standings)
        assert serving >= min(4, wanted)
        standings = [
            Standing(replace(each.replica, drained_at=now), each.health)
            if each.replica.job in todo.drains
            else each._replace(health=Health.READY)
            for each in standings
            if each.replica.job not in todo.cancels
        ]
        standings += [
            Standing(Replica(f"new-{look}-{at}", revision), Health.STARTING)
            for at, revision in enumerate(todo.starts)
        ]
    revisions = [each.replica.revision for each in standings]
    if not wanted:
        assert not revisions
    elif canary:
        assert revisions.count(2) == max(1, round(wanted * canary / 100))
        assert revisions.count(1) == max(1, wanted - revisions.count(2))
    else:
        assert revisions == [2] * wanted


@given(st.integers(1, 99), st.integers(1, 20), st.integers(1, 20))
def test_a_canary_has_its_part_of_the_weight(canary: int, old: int, new: int) -> None:
    found = weights(service(canary=canary), {1: old, 2: new})
    assert all(1 <= weight <= 256 for weight in found.values())
    part = found[2] * new / (found[1] * old + found[2] * new)
    assert abs(part - canary / 100) < 0.05 or 1 in found.values()


def test_the_dearest_goes_first_then_one_of_the_most_at_a_site() -> None:
    standings = [
        Standing(Replica("at-a", 2), Health.READY, "a", 1.0),
        Standing(Replica("too-at-a", 2), Health.READY, "a", 1.0),
        Standing(Replica("at-b", 2), Health.READY, "b", 1.0),
        Standing(Replica("dear", 2), Health.READY, "c", 9.0),
    ]
    assert steps(service(wanted=3), standings, 0.0).drains == ("dear",)
    assert steps(service(wanted=2), standings, 0.0).drains == ("dear", "too-at-a")
    waits = [*standings, Standing(Replica("waits", 2), Health.WAITING)]
    assert steps(service(wanted=4), waits, 0.0).drains == ("waits",)


def test_one_that_fails_is_replaced_and_drained_once_another_is_ready() -> None:
    failing = Standing(Replica("old", 2), Health.FAILING)
    alone = steps(service(wanted=1), [failing], 0.0)
    assert (alone.starts, alone.drains) == ((2,), ())
    both = [failing, Standing(Replica("new", 2), Health.STARTING)]
    assert steps(service(wanted=1), both, 0.0) == ((), (), (), ())
    both[1] = both[1]._replace(health=Health.READY)
    assert steps(service(wanted=1), both, 0.0).drains == ("old",)
