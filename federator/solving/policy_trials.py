"""The parent's side of a simulation of two policy sets: a child process, with limits on its time and memory."""

import asyncio
import os
import sys

import msgspec

from federator.kernel.errors import TooLarge, Unavailable
from federator.settings import LimitSettings
from federator.wire.contrast import PolicyTrial, TrialOutcome

WORKER = "federator.simulation.policy_trial"
"""By name: nothing of the dispatcher imports the simulation."""
AGAIN_S = 10.0


class ChildTrials:
    """A `PolicyTrials` that simulates in a child process."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits

    async def run(self, trial: PolicyTrial) -> TrialOutcome:
        """See the port."""
        given = msgspec.msgpack.encode(trial)
        limits, pipe = self._limits, asyncio.subprocess.PIPE
        command = [sys.executable, "-m", WORKER, str(os.getpid()), str(limits.policy_replay_mib)]
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        except OSError as error:
            raise Unavailable(f"no process could be started: {error}", retry_after_s=AGAIN_S) from None
        try:
            async with asyncio.timeout(limits.policy_replay_s):
                answer, _ = await process.communicate(given)
        except TimeoutError:
            raise TooLarge(
                f"the simulation has taken longer than {limits.policy_replay_s:g} s (limits.policy_replay_s)",
                field="$.last_s",
                remedy="take a shorter time, or run federator policy replay on a machine of yours",
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise TooLarge(
                f"the simulation has failed, with exit code {process.returncode}; the dispatcher's log says why",
                field="$.last_s",
                remedy="take a shorter time, or have limits.policy_replay_mib raised",
            )
        return msgspec.msgpack.decode(answer, type=TrialOutcome)
