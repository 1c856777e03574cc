"""Every store against the memory store, on random histories: same answers, same contents.

What the contract's own tests did not think of shows here, as the shortest history on which two stores differ.
"""

import asyncio
import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from federator.kernel.errors import StoreConflict
from federator.ports import Compare, Page, Put, Store, Transaction
from tests.contract.stores.factories import FACTORIES, Factory, World, memory_world

KEYS = st.sampled_from(["a", "a/", "a/1", "a/\x7f", "a0", "b", "\x00", "\x7f"])
# Revisions of a short history, so that comparisons sometimes hold.
COMPARES = st.builds(Compare, KEYS, st.integers(0, 6))
EXPIRIES = st.none() | st.sampled_from([1.0, 5.0])


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    written = draw(st.lists(KEYS, max_size=4, unique=True))
    split = draw(st.integers(0, len(written)))
    puts = tuple(Put(key, draw(st.binary(max_size=3)), draw(EXPIRIES)) for key in written[:split])
    return Transaction(tuple(draw(st.lists(COMPARES, max_size=2))), puts, tuple(written[split:]))


class Comparison(RuleBasedStateMachine):
    """Does everything to a store and to the reference, and compares what they say."""

    factory: Factory
    expiring = True
    """Whether keys are given a time. A cluster ends the time of each key in a transaction of its own, so its revisions differ then."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.exits = contextlib.AsyncExitStack()
        self.known: dict[str, int] = {}

    @initialize()
    def begin(self) -> None:
        self.worlds = self.runner.run(self._begin())

    async def _begin(self) -> list[World]:
        folder = Path(self.exits.enter_context(tempfile.TemporaryDirectory()))
        factories = (memory_world, type(self).factory)
        return [await self.exits.enter_async_context(factory(folder)) for factory in factories]

    def teardown(self) -> None:
        self.runner.run(self.exits.aclose())
        self.runner.close()

    @rule(transaction=transactions())
    def commit(self, transaction: Transaction) -> None:
        if not self.expiring:
            puts = tuple(Put(put.key, put.value) for put in transaction.puts)
            transaction = Transaction(transaction.compares, puts, transaction.deletes)
        first, second = (self.runner.run(outcome(world.store, transaction)) for world in self.worlds)
        assert first == second

    @rule(key=KEYS, value=st.binary(max_size=3))
    def replace_what_is_there(self, key: str, value: bytes) -> None:
        item = self.runner.run(self.worlds[0].store.get(key))
        self.commit(Transaction((Compare(key, item.revision if item else 0),), (Put(key, value),)))

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.5]))
    def pass_time(self, seconds: float) -> None:
        for world in self.worlds if self.expiring else ():
            self.runner.run(world.pass_time(seconds))

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        first, second = (self.runner.run(world.store.get(key)) for world in self.worlds)
        assert first == second

    @rule(prefix=st.just("") | KEYS, after=st.none() | KEYS, limit=st.integers(1, 4))
    def range(self, prefix: str, after: str | None, limit: int) -> None:
        first, second = (
            self.runner.run(world.store.range(prefix, after=after, limit=limit)) for world in self.worlds
        )
        assert first == second

    @invariant()
    def contents_are_the_same(self) -> None:
        first, second = (self.runner.run(contents(world.store)) for world in self.worlds)
        assert first == second


async def outcome(store: Store, transaction: Transaction) -> int | str:
    try:
        return await store.commit(transaction)
    except StoreConflict as conflict:
        return conflict.key


async def contents(store: Store) -> Page:
    return await store.range("")


@pytest.mark.parametrize("name", sorted(set(FACTORIES) - {"memory"}))
def test_random_histories_agree_with_the_reference(name: str) -> None:
    slow = name == "etcd"
    parts = {"factory": staticmethod(FACTORIES[name]), "expiring": not slow}
    machine = type(f"Comparison_{name}", (Comparison,), parts)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=20 if slow else 60,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
