"""Between turns nothing waits that could start: where there is no occasion for a turn, a turn would start nothing – promise 13."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from federator.model.plans import Place
from federator.planning.plans.greedy import plan_greedily
from tests.properties.control.test_committing import Committing
from tests.support.dispatch import World
from tests.support.examples import examples


class Turning(Committing):
    """The same events, told to a dispatcher that takes its turns only when there is an occasion."""

    async def _begin(self) -> World:
        self.world = await super()._begin()
        core = self.world.core
        self.occasion = core.turn.occasion
        core.records.subscribe(self.occasion.note)
        core.inventory.subscribe(self.occasion.hear)
        await self._turn()
        return self.world

    @rule()
    def turn(self) -> None:
        self.run(self._turn())

    async def _turn(self) -> None:
        self.occasion.begin()
        plan = await self.world.core.turn.once()
        self.occasion.end()
        self.wake_at = plan.wake_at if plan else None

    @invariant()
    def without_an_occasion_a_turn_would_start_nothing(self) -> None:
        if not hasattr(self, "occasion") or self.occasion.due:
            return
        if self.wake_at is not None and self.wake_at <= self.world.clock.now():
            return
        plan = plan_greedily(self.run(self.world.core.turn.observe()))
        assert not [action for action in plan.actions if isinstance(action, Place)]


@pytest.mark.timeout(180)
def test_work_that_fits_never_waits_for_an_occasion() -> None:
    run_state_machine_as_test(
        Turning,
        settings=settings(
            max_examples=examples(20),
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
