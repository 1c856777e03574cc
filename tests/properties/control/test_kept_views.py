"""What an observer keeps from one look to the next is what one would see that has never looked before, whatever has happened in between."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from federator.control.observation import Observer
from federator.model.snapshot import PoolView
from tests.properties.control.test_committing import Committing


class Looking(Committing):
    """The same events, and a look after each."""

    @invariant()
    def a_look_is_as_if_it_were_the_first(self) -> None:
        if hasattr(self, "world"):
            assert self.world.core.turn._observer.pools() == self._made_anew()

    def _made_anew(self) -> list[PoolView]:
        core = self.world.core
        listeners = core.records._listeners[:]
        slack_s = core.turn._observer.slack_s
        anew = Observer(
            core.records, core.inventory, core.history, core.clock, core.settings.providers, slack_s=slack_s
        )
        core.records._listeners[:] = listeners
        return anew.pools()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_look_at_the_world_never_shows_what_is_over() -> None:
    run_state_machine_as_test(
        Looking,
        settings=settings(
            max_examples=30,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
