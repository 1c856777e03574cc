"""The solver in this process: for the simulator and the offline tool, where nobody waits for the answer."""

from federator.model.plans import Plan
from federator.model.snapshot import Problem
from federator.solving.decide import decide


class InlineSolver:
    """A `Solver` without a child. Limits are not enforced: its callers have none."""

    async def decide(
        self,
        problem: Problem,
        *,
        stages: tuple[str, ...],
        seed: int,
        limit_s: float,  # noqa: ARG002 - the port's signature
    ) -> Plan | None:
        """The plan."""
        return decide(problem, seed=seed, stages=stages)

    async def close(self) -> None:
        """Nothing to end."""
