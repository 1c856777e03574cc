"""Jobs that are submitted at the same moment: one transaction, and an answer of his own for each who asked."""

import asyncio

import pytest
from msgspec.structs import replace

from federator.control.record.holders import Held, holders_of
from federator.control.record.records import Changes
from federator.control.record.shares import Shares
from federator.control.submission.acceptance import Acceptance, Accepted, Entry, Submission
from federator.control.submission.group_commit import GROUP, IN_FLIGHT
from federator.kernel.errors import Invalid, TooLarge, TooMany, Unavailable
from federator.model.identity import Caller
from federator.ports import Transaction
from federator.store.memory import MemoryStore
from federator.wire.http import Submitted
from federator.wire.jobfile import read_job
from tests.support.dispatch import ADA, BOB, World, make_world


@pytest.fixture
async def world() -> World:
    return await make_world()


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each transaction wrote."""
    found: list[int] = []
    real = MemoryStore.commit

    async def commit(store: MemoryStore, transaction: Transaction) -> int:
        found.append(sum(put.key.startswith("job/") for put in transaction.puts))
        await asyncio.sleep(0)  # as a disk is waited for
        return await real(store, transaction)

    monkeypatch.setattr(MemoryStore, "commit", commit)
    return found


def submit(world: World, caller: Caller, number: int, queue: str = "default") -> asyncio.Task[Submitted]:
    document = {"run": f"echo {number}", "resources": {"gpus": 1}, "queue": queue}
    request = read_job(document, now=world.clock.now())
    client_id, body_hash = f"client-{number}", f"{number} in {queue}"
    return asyncio.ensure_future(
        world.core.intake.submit(caller, request, client_id=client_id, body_hash=body_hash)
    )


async def test_what_comes_at_once_is_written_as_few_transactions_whoever_submits_it(
    world: World, commits: list[int]
) -> None:
    tasks = [submit(world, (ADA, BOB)[number % 2], number) for number in range(GROUP + 5)]
    answers = await asyncio.gather(*tasks)
    assert commits == [GROUP, 5]
    jobs = [world.job(answer.jobs[0]) for answer in answers]
    assert [job.owner for job in jobs] == [("ada", "bob")[number % 2] for number in range(GROUP + 5)]
    assert [job.client_id for job in jobs] == [f"client-{number}" for number in range(GROUP + 5)]


async def test_who_is_refused_does_not_cost_the_others(world: World, commits: list[int]) -> None:
    tasks = [submit(world, ADA, 1), submit(world, ADA, 2, "no-such"), submit(world, ADA, 3)]
    first, refused, third = await asyncio.gather(*tasks, return_exceptions=True)
    assert commits == [2]
    assert isinstance(refused, Invalid)
    assert refused.field == "$.queue"
    assert isinstance(first, Submitted)
    assert isinstance(third, Submitted)


async def test_the_same_client_id_at_the_same_moment_is_one_job(world: World) -> None:
    first, again, others = await asyncio.gather(*(submit(world, who, 1) for who in (ADA, ADA, BOB)))
    assert (again.jobs, again.repeated) == (first.jobs, True)
    assert not first.repeated
    assert others.jobs != first.jobs
    assert len(world.core.records.jobs) == 2


async def test_a_fault_of_ours_in_one_does_not_cost_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Acceptance.accept

    def accept(self: Acceptance, changes: Changes, entry: Entry, asked: Submission) -> Accepted:
        if asked.client_id == "client-1":
            raise ZeroDivisionError
        return real(self, changes, entry, asked)

    monkeypatch.setattr(Acceptance, "accept", accept)
    answers = await asyncio.gather(
        *(submit(world, ADA, number) for number in range(3)), return_exceptions=True
    )
    assert [type(each) for each in answers] == [Submitted, ZeroDivisionError, Submitted]
    assert len(world.core.records.jobs) == 2


async def test_a_fault_of_ours_after_the_write_starts_no_job_twice(world: World, commits: list[int]) -> None:
    """Not even one without a client id, which cannot be known again."""

    def fail(_: Changes) -> None:
        raise RuntimeError

    before, unsubscribe = len(world.core.records.jobs), world.core.records.subscribe(fail)
    told = await asyncio.gather(*(submit(world, ADA, number) for number in range(3)), return_exceptions=True)
    unsubscribe()
    assert [type(each) for each in told] == [RuntimeError] * 3
    assert (len(world.core.records.jobs) - before, commits) == (3, [3])


async def test_who_hangs_up_does_not_cost_the_others(world: World) -> None:
    gone, stays = submit(world, ADA, 1), submit(world, ADA, 2)
    await asyncio.sleep(0)
    gone.cancel()
    assert world.job((await stays).jobs[0]).client_id == "client-2"


async def test_more_gather_while_as_many_are_on_their_way_as_may_be(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, answered = list[int](), asyncio.Event()
    real = MemoryStore.commit

    async def commit(store: MemoryStore, transaction: Transaction) -> int:
        sent.append(sum(put.key.startswith("job/") for put in transaction.puts))
        await answered.wait()
        return await real(store, transaction)

    monkeypatch.setattr(MemoryStore, "commit", commit)
    tasks = []
    for number in range(9):
        tasks.append(submit(world, ADA, number))
        for _ in range(20):
            await asyncio.sleep(0)
    assert sent == [1, 1, 1, 1]
    answered.set()
    await asyncio.gather(*tasks)
    assert sent == [1, 1, 1, 1, 5]


async def test_those_who_wait_are_told_when_the_dispatcher_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def commit(_store: MemoryStore, _transaction: Transaction) -> int:
        raise asyncio.CancelledError

    monkeypatch.setattr(MemoryStore, "commit", commit)
    tasks = [submit(world, ADA, number) for number in range(GROUP * (IN_FLIGHT + 1))]
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(each) for each in answers} == {Unavailable}
    assert "submit it again with the same client id" in str(answers[-1])


async def test_what_is_on_its_way_counts_against_the_limit_of_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions that are on their way at once do not see each other's jobs on record."""
    real, answered = MemoryStore.commit, asyncio.Event()

    async def commit(store: MemoryStore, transaction: Transaction) -> int:
        await answered.wait()
        return await real(store, transaction)

    monkeypatch.setattr(MemoryStore, "commit", commit)
    monkeypatch.setattr(Shares, "refuse_over", lambda *_: None)  # each person's share is not what is tried
    limits = replace(world.core.intake.acceptance.limits, queued_jobs=GROUP + 3)
    monkeypatch.setattr(world.core.intake.acceptance, "limits", limits)
    tasks = [submit(world, (ADA, BOB)[number % 2], number) for number in range(3 * GROUP)]
    for _ in range(20):
        await asyncio.sleep(0)
    answered.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(each, Submitted) for each in answers) == GROUP + 3
    assert {type(each) for each in answers[GROUP + 3 :]} == {TooMany}
    assert world.core.records.held_counts.on_the_way == 0


async def test_a_refused_group_is_told_to_each(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def commit(_store: MemoryStore, _transaction: Transaction) -> int:
        raise Unavailable("the disk is gone")

    monkeypatch.setattr(MemoryStore, "commit", commit)
    answers = await asyncio.gather(
        *(submit(world, ADA, number) for number in range(3)), return_exceptions=True
    )
    assert [str(each) for each in answers] == ["the disk is gone"] * 3
    assert not world.core.records.held_counts.of(Held.QUEUED, holders_of("ada")[0])


async def test_a_job_that_is_too_large_for_the_store_does_not_cost_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = MemoryStore.commit

    async def commit(store: MemoryStore, transaction: Transaction) -> int:
        if any(b"client-3" in put.value for put in transaction.puts):
            raise TooLarge("etcd refuses it: request is too large")
        return await real(store, transaction)

    monkeypatch.setattr(MemoryStore, "commit", commit)
    tasks = [submit(world, (ADA, BOB)[number % 2], number) for number in range(7)]
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(each, TooLarge) for each in answers] == [number == 3 for number in range(7)]
    jobs = [world.job(each.jobs[0]) for each in answers if isinstance(each, Submitted)]
    assert [job.client_id for job in jobs] == [f"client-{number}" for number in range(7) if number != 3]
