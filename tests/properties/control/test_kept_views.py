"""What an observer keeps from one look to the next is what one would see that has never looked before, whatever has happened in between.

But for one thing: when running work will end is forecast in steps of what it has run, so what others have taught since the last step is not in it yet.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, run_state_machine_as_test
from msgspec.structs import replace

from federator.control.turns.observation import Observer
from federator.model.snapshot import PoolView
from tests.properties.control.test_committing import Committing
from tests.support.examples import examples


class Looking(Committing):
    """The same events, and a look after each."""

    learns = False

    @invariant()
    def a_look_is_as_if_it_were_the_first(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.core.history.corrects = self.learns
        kept, anew = self.world.core.turn.observer.pools(), self._made_anew()
        if self.learns:
            now = self.world.core.clock.now()
            assert all(busy.ends_at >= now for pool in kept for busy in pool.busy)
            kept, anew = ([_without_ends(pool) for pool in pools] for pools in (kept, anew))
        assert kept == anew

    def _made_anew(self) -> list[PoolView]:
        core = self.world.core
        listeners = core.records.listeners[:]
        slack_s = core.turn.observer.slack_s
        anew = Observer(
            core.records,
            core.inventory,
            core.history,
            core.clock,
            core.settings.providers,
            core.turn.aside,
            slack_s=slack_s,
        )
        core.records.listeners[:] = listeners
        return anew.pools()


class Learning(Looking):
    """Where runs teach how long others take."""

    learns = True


def _without_ends(pool: PoolView) -> PoolView:
    return replace(pool, busy=tuple(replace(busy, ends_at=0.0, overdue=False) for busy in pool.busy))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("machine", [Looking, Learning])
def test_a_look_at_the_world_never_shows_what_is_over(machine: type[Looking]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(10),
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
