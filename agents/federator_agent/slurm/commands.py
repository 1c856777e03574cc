"""Runs Slurm's commands: as subprocesses, a few at a time, each with a limit on its time.

Why commands and not REST: every cluster has them, of every version, and they find the cluster, its credentials and its spare controller by themselves. What a
command says when it fails is all there is to tell a refusal, which will not change, from a controller that is away, which proves nothing.
"""

import asyncio
import contextlib
import os
import re

from federator.kernel.errors import Permanent, Transient
from federator.retry import Backoff
from federator_agent.slurm.settings import SlurmSettings

BACKOFF = Backoff(1.0, 4.0)
"""Between attempts to reach a slurmctld that does not answer."""
AT_ONCE = 8
"""Commands that run at the same time; slurmctld serves people, too."""
LIMIT_S = 60.0
"""Slurm's own timeouts are shorter; a command that is later than this is given up."""
_AWAY = re.compile(
    r"unable to contact|connection refused|connection failure|timed out|zero bytes|communication|"
    r"standby mode|temporarily unavailable|temporarily unable|protocol authentication|controller not responding|"
    r"connection reset|munge|could not establish a configuration source|"
    r"unable to process configuration|cannot stat file",
    re.IGNORECASE,
)
_NOISE = re.compile(r"^(?:\w+: )?(?:error: |fatal: |allocation failure: )*")


class Unreachable(Transient):
    """Slurm has not answered. Whether it has done what was asked is not known."""


class Rejected(Permanent):
    """Slurm has answered, and refuses."""


class Commands:
    """Slurm's commands, for one cluster."""

    def __init__(self, settings: SlurmSettings, environment: dict[str, str]) -> None:
        """`environment`: what jobs get of the agent's own; nothing else of it reaches Slurm."""
        self.environment = dict(environment)
        if settings.conf is not None:
            self.environment["SLURM_CONF"] = str(settings.conf)
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def run(self, program: str, *arguments: str) -> str:
        """What the command prints. Raises `Unreachable`, `Rejected`."""
        # Times in what is printed are seconds since the epoch; sbatch would hand the variable on to the job.
        times = {} if program == "sbatch" else {"SLURM_TIME_FORMAT": "%s"}
        async with self._turns:
            try:
                process = await asyncio.create_subprocess_exec(
                    program, *arguments,
                    env=self.environment | times,
                    cwd=os.sep,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )  # fmt: skip
            except OSError as error:
                remedy = "install Slurm's client commands on this host"
                raise Unreachable(f"{program} cannot be run: {error.strerror}", remedy=remedy) from None
            try:
                async with asyncio.timeout(LIMIT_S):
                    printed, said = await process.communicate()
            except TimeoutError:
                raise Unreachable(f"{program} has not ended within {LIMIT_S:g} s") from None
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
        if process.returncode != 0:
            raise failure(program, said.decode(errors="replace"))
        return printed.decode(errors="replace")


def failure(program: str, said: str) -> Unreachable | Rejected:
    """What a command's words mean when it has failed."""
    lines = [_NOISE.sub("", line.strip(), count=1) for line in said.splitlines() if line.strip()]
    words = "; ".join(dict.fromkeys(lines))[:400] or f"{program} failed and did not say why"
    if not lines or _AWAY.search(words):
        return Unreachable(f"Slurm does not answer: {words}")
    return Rejected(words)
