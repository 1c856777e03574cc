"""Records of decisions: what changed since the one before, from a checkpoint on, and nothing that cannot be read again."""

import asyncio
import zlib
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from federator.control.record import decisions
from federator.control.record.decision_parts import Delta, join, pack, split, unpack
from federator.control.record.decisions import DecisionLog, DecisionRecord
from federator.kernel.errors import Damaged, NotFound, Unavailable
from federator.model.plans import Plan
from federator.model.snapshot import Lead, Outside, Problem
from federator.ports import Put, Transaction
from federator.settings import RetentionSettings
from tests.support.dispatch import World, make_world


async def _seen(jobs: int = 40) -> tuple[World, Problem, Plan]:
    """A world in which most of the jobs wait, and the first decision on it."""
    world = await make_world()
    await world.add_site("home", nodes=4, gpus=4)
    for number in range(jobs):
        await world.submit(name=f"job{number}", resources={"gpus": 2}, estimate="3h")
    await world.turn()
    seen = await world.core.decisions.load(world.core.decisions.rows()[0].id)
    await world.core.decisions.drop_before(float("inf"))
    return world, *seen


def _log(world: World, **retention: Any) -> DecisionLog:
    """Another one, on the same store: as after a restart."""
    return DecisionLog(world.core.records, RetentionSettings(**retention), world.core.turn.solver)


def _next(problem: Problem, plan: Plan, number: int, after_s: float = 1.0) -> tuple[Problem, Plan]:
    """A decision a little later: one job has changed, and all reports are older."""
    seen = problem.snapshot
    jobs = (*seen.jobs[:3], replace(seen.jobs[3], priority=number), *seen.jobs[4:])
    pools = tuple(replace(pool, age_s=float(number)) for pool in seen.pools)
    at = seen.taken_at + number * after_s
    problem = replace(problem, snapshot=replace(seen, jobs=jobs, pools=pools, taken_at=at))
    return problem, replace(plan, decision=f"dec-{number:04}", taken_at=at)


async def test_a_decision_is_put_together_from_its_parts() -> None:
    _, problem, plan = await _seen()
    jobs = tuple(replace(job, behind_s=float(n % 3)) for n, job in enumerate(problem.snapshot.jobs))
    problem = replace(
        problem,
        snapshot=replace(problem.snapshot, jobs=jobs),
        warm_prices={"row b": 1.5, "row a": -0.0},
        outside={"row b": Outside(2.5, 0.1), "row c": Outside(0.0, 3.0)},
        leads=(Lead("job-1", "acme/eu", 1.5), Lead("job-2", "acme/eu", 2.0, form=1)),
    )
    assert len(plan.waiting) > 20
    parts = split(problem, plan)
    assert join(parts) == (problem, plan)
    assert msgspec.json.encode(join(unpack([], pack([], parts)))) == msgspec.json.encode((problem, plan))


async def test_what_has_not_changed_costs_next_to_nothing() -> None:
    _, problem, plan = await _seen(200)
    first, second = split(problem, plan), split(*_next(problem, plan, 1))
    delta = pack(first, second)
    assert unpack(first, delta) == second
    assert len(delta) < len(pack([], second)) / 10


async def test_records_follow_from_a_checkpoint_until_it_is_old() -> None:
    world, problem, plan = await _seen()
    log = _log(world)
    made = [_next(problem, plan, number, after_s=100.0) for number in range(1, 8)]
    for each in made:
        await log.record(*each)
    assert [row.checkpoint for row in log.rows()] == ["dec-0001"] * 3 + ["dec-0004"] * 3 + ["dec-0007"]
    assert log.rows()[1].size_bytes < log.rows()[0].size_bytes / 3
    for before, row in zip(made, log.rows(), strict=True):
        assert await log.load(row.id) == before


async def test_records_are_unpacked_in_a_thread_and_those_of_one_run_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, problem, plan = await _seen()
    log = _log(world)
    for number in range(1, 7):
        await log.record(*_next(problem, plan, number))
    unpacked: list[bool] = []

    def noted(before: list[bytes], data: bytes) -> list[bytes]:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        unpacked.append(True)
        return unpack(before, data)

    monkeypatch.setattr(decisions, "unpack", noted)
    names = [row.id for row in log.rows()]
    found = [each async for each in log.each([*names[:2], "dec-gone", *names[3:]])]
    assert [seen.decision for _, seen in found] == [*names[:2], *names[3:]]
    assert len(unpacked) == len(names)
    assert await log.load(names[4]) == found[3]


async def test_after_a_restart_a_run_begins_and_the_old_ones_are_read() -> None:
    world, problem, plan = await _seen()
    first = _log(world)
    for number in (1, 2):
        await first.record(*_next(problem, plan, number))
    second = _log(world)
    await second.load_index()
    await second.record(*_next(problem, plan, 3))
    assert [row.checkpoint for row in second.rows()][-3:] == ["dec-0001", "dec-0001", "dec-0003"]
    assert [(await second.load(f"dec-000{n}"))[1].decision for n in (1, 2, 3)] == [
        "dec-0001",
        "dec-0002",
        "dec-0003",
    ]


async def test_what_is_recorded_while_the_index_is_read_is_known_once_and_dropped_once() -> None:
    world, problem, plan = await _seen()
    log = _log(world)
    await log.record(*_next(problem, plan, 1))
    size_bytes = log.size_bytes
    await log.load_index()
    assert ([row.id for row in log.rows()], log.size_bytes) == (["dec-0001"], size_bytes)
    await log.drop_before(problem.snapshot.taken_at + 1e6)
    assert log.rows() == []


async def test_runs_are_dropped_whole_and_never_the_one_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "RUNS", 2)
    world, problem, plan = await _seen()
    log = _log(world, decisions=6)
    for number in range(1, 8):
        await log.record(*_next(problem, plan, number))
    assert [row.id for row in log.rows()] == ["dec-0004", "dec-0005", "dec-0006", "dec-0007"]
    with pytest.raises(NotFound):
        await log.load("dec-0003")
    for row in log.rows():
        assert (await log.load(row.id))[1].decision == row.id
    small = _log(world, decisions_mib=0)
    await small.load_index()
    for number in range(8, 11):
        await small.record(*_next(problem, plan, number))
    assert [row.id for row in small.rows()] == ["dec-0008", "dec-0009", "dec-0010"]
    await small.drop_before(problem.snapshot.taken_at + 9.5)
    assert len(small.rows()) == 3, "its last record is young"
    await small.drop_before(problem.snapshot.taken_at + 11)
    assert small.rows() == []
    await small.record(*_next(problem, plan, 11))
    assert (await small.load("dec-0011"))[1].decision == "dec-0011", "what it would follow from is gone"


async def test_nothing_follows_from_a_record_that_may_not_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    world, problem, plan = await _seen()
    log = _log(world)
    await log.record(*_next(problem, plan, 1))

    async def full(_transaction: Transaction) -> int:
        raise Unavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(world.core.records.store, "commit", full)
        with pytest.raises(Unavailable):
            await log.record(*_next(problem, plan, 2))
    await log.record(*_next(problem, plan, 3))
    assert [row.checkpoint for row in log.rows()] == ["dec-0001", "dec-0003"]
    assert (await log.load("dec-0003"))[1].decision == "dec-0003"


async def test_a_record_of_before_there_were_parts_is_read() -> None:
    world, problem, plan = await _seen()
    old = {
        "problem": zlib.compress(msgspec.json.encode(problem), 1),
        "plan": zlib.compress(msgspec.json.encode(replace(plan, decision="dec-0")), 1),
    }
    row = {"id": "dec-0", "at": 1.0, "winner": "lp", "objective_usd": 1.0, "actions": 1, "jobs": 40, "stages": "lp", "size_bytes": 9}  # fmt: skip
    puts = (
        Put("decision/dec-0", msgspec.msgpack.encode(old)),
        Put("decision-index/dec-0", msgspec.json.encode(row)),
    )
    await world.core.records.commit(Transaction(puts=puts))
    log = _log(world)
    await log.load_index()
    assert await log.load("dec-0") == (problem, replace(plan, decision="dec-0"))
    await log.drop_before(2.0)
    assert not log.kept("dec-0")
    assert log.rows() == []


async def test_a_damaged_record_says_so() -> None:
    world, problem, plan = await _seen()
    log = _log(world)
    await log.record(*_next(problem, plan, 1))
    await world.core.records.commit(
        Transaction(puts=(Put("decision/dec-0001", msgspec.msgpack.encode(DecisionRecord(parts=b"no"))),))
    )
    with pytest.raises(Damaged, match="cannot be read"):
        await log.load("dec-0001")


async def test_parts_that_are_lost_or_damaged_say_so() -> None:
    _, problem, plan = await _seen(8)
    parts = split(problem, plan)
    for wrong in (
        [],
        parts[:3],
        parts[:-1],
        [*parts, parts[-1]],
        [b"\xc1", *parts[1:]],
        [*parts[:-1], b"\xc1"],
    ):
        with pytest.raises(Damaged, match="cannot be read"):
            join(wrong)
    few = Delta(runs=((-1, 2),), new=(parts[0],))
    with pytest.raises(Damaged, match="cannot be read"):
        unpack([], zlib.compress(msgspec.msgpack.encode(few)))


@pytest.mark.parametrize("stored", [b"\xc1", msgspec.msgpack.encode({"problem": b"no", "plan": b"no"})])
async def test_a_record_that_is_damaged_as_a_whole_says_so(stored: bytes) -> None:
    world, problem, plan = await _seen(4)
    log = _log(world)
    await log.record(*_next(problem, plan, 1))
    await world.core.records.commit(Transaction(puts=(Put("decision/dec-0001", stored),)))
    with pytest.raises(Damaged, match="cannot be read"):
        await log.load("dec-0001")


async def test_a_decision_tells_tasks_of_an_array_apart() -> None:
    world = await make_world()
    await world.add_site("home", nodes=1, gpus=1)
    await world.submit(name="sweep", array="0-1", resources={"gpus": 1}, estimate="1h")
    await world.turn()
    decisions = world.core.decisions
    problem, _ = await decisions.load(decisions.rows()[0].id)
    assert [job.name for job in problem.snapshot.jobs] == ["sweep[0]", "sweep[1]"]
