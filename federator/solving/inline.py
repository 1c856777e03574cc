"""The solver in this process: for the simulator and the offline tool, where nobody waits for the answer."""

import msgspec

from federator.model.snapshot import Problem
from federator.solving.decide import STAGES, decide


class InlineSolver:
    """A `Solver` without a child. Limits are not enforced: its callers have none."""

    def __init__(self, *, seed: int = 0, stages: tuple[str, ...] = STAGES) -> None:
        """`stages` as for `decide`."""
        self.seed, self.stages = seed, stages

    async def decide(self, problem: bytes, limit_s: float) -> bytes | None:  # noqa: ARG002 - the port's signature
        """An encoded plan for an encoded problem."""
        decoded = msgspec.msgpack.decode(problem, type=Problem)
        return msgspec.msgpack.encode(decide(decoded, seed=self.seed, stages=self.stages))

    async def close(self) -> None:
        """Nothing to end."""
