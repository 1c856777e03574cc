"""What jobs at Slurm use, as the cluster gathers it: `sstat` says it of the steps of jobs that run.

A cluster that gathers nothing (`JobAcctGatherType=jobacct_gather/none`) says nothing, and one without `AcctGather` of GPUs nothing of them: then
nothing is known, which is another thing than none.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from federator_agent.slurm.commands import Commands, Rejected, Unreachable
from federator_agent.usage import GpuUse, Reading

AT_A_TIME = 200
"""Jobs of one command."""
FORMAT = "JobID,TRESUsageInTot"
PERCENT = 7
"""Fewer digits are believed to be a share."""
_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,6}):(\d\d):(\d\d)")
_BYTES = re.compile(r"(\d{1,18})(?:\.\d{0,6})?([KMGT]?)")
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


class Gathered(NamedTuple):
    """Of one job, its steps together."""

    cpu_s: float = 0.0
    memory_bytes: int = 0
    gpu_percent: float | None = None
    """Over all its GPUs, so that two that are busy are 200; None: the cluster does not gather it."""
    gpu_memory_bytes: int = 0

    def reading(self, gpus: int) -> Reading:
        """The same, of a job that holds so many GPUs: each is taken to do the same."""
        if not gpus or self.gpu_percent is None:
            return Reading(self.cpu_s, self.memory_bytes)
        each = GpuUse(min(100.0, self.gpu_percent / gpus), (self.gpu_memory_bytes // gpus) >> 20)
        return Reading(self.cpu_s, self.memory_bytes, (each,) * gpus)


async def gathered(commands: Commands, jobs: Sequence[str]) -> dict[str, Gathered]:
    """What Slurm says of these jobs. It is asked again soon, so its silence is passed over."""
    found: dict[str, Gathered] = {}
    for begin in range(0, len(jobs), AT_A_TIME):
        named = ",".join(jobs[begin : begin + AT_A_TIME])
        options = ("--allsteps", "--noheader", "--parsable2", f"--jobs={named}", f"--format={FORMAT}")
        try:
            found |= read_steps(await commands.run("sstat", *options))
        except (Unreachable, Rejected):
            continue
    return found


def read_steps(printed: str) -> dict[str, Gathered]:
    """What `sstat` has printed, by job. Lines that are not understood are passed over."""
    found: dict[str, Gathered] = {}
    for line in printed.splitlines():
        step, _, used = line.partition("|")
        values = dict(word.partition("=")[::2] for word in used.split(","))
        cpu = _TIME.fullmatch(values.get("cpu", ""))
        if cpu is None:
            continue
        days, hours, minutes, seconds = (int(each or 0) for each in cpu.groups())
        percent = values.get("gres/gpuutil", "")
        job = step.partition(".")[0]
        before = found.get(job, Gathered())
        busy = float(percent) if percent.isascii() and percent.isdigit() and len(percent) < PERCENT else None
        found[job] = Gathered(
            before.cpu_s + ((days * 24 + hours) * 60 + minutes) * 60 + seconds,
            before.memory_bytes + _bytes(values.get("mem", "")),
            before.gpu_percent if busy is None else (before.gpu_percent or 0.0) + busy,
            before.gpu_memory_bytes + _bytes(values.get("gres/gpumem", "")),
        )
    return found


def _bytes(text: str) -> int:
    found = _BYTES.fullmatch(text)
    return int(found[1]) << _UNITS[found[2]] if found else 0
