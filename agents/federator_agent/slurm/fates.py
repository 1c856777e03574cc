"""What became of a rank, from what it left and what Slurm says of its job. Pure: every combination is a case of a test.

Slurm's word on the job goes before the exit code: it ends jobs with TERM, and a command that was told to go for the sake of local work has not failed.
"""

from typing import NamedTuple

from federator.model.placements import Cause
from federator_agent.slurm.folder import Exit

KILLED = 137
TERMINATED = 143
FORGOTTEN = ""
"""The state of a job that Slurm does not know any more."""
REQUEUED = "REQUEUED"
"""Of one that has run, and waits, or has begun again in vain: what had passed the gate is over, and what comes after it finds that."""


class RankEnd(NamedTuple):
    """How a rank ended; without a code it is lost."""

    code: int | None
    detail: str = ""
    cause: Cause | None = None


_EVICTED = {
    "PREEMPTED": "Slurm preempted its job for other work of the site",
    "REVOKED": "Slurm revoked its job",
    REQUEUED: "the site put its job back into Slurm's queue",
}
_LIMITED = {
    "TIMEOUT": "its job reached Slurm's time limit",
    "DEADLINE": "its job reached a deadline set in Slurm",
}
_NODES = {
    "NODE_FAIL": "Slurm says that a node of its job failed",
    "BOOT_FAIL": "Slurm says that a node of its job could not be booted",
}
_TOLD = "it was ended by a user or an administrator of the site"
_CANCELLED = "its job was cancelled at the site, not by the federation"
OUT_OF_MEMORY = "Slurm killed it: out of memory"


def by_itself(mark: Exit, *, told: bool) -> RankEnd:
    """Of a rank that has ended, for no reason that Slurm knows. `told`: somebody else than the federation has sent it a signal to end."""
    return RankEnd(None, _TOLD, Cause.EVICTED) if told else RankEnd(mark.code)


def fate(mark: Exit | None, state: str, *, killed: bool, told: bool = False) -> RankEnd:
    """Of a rank whose job is over. `state`: Slurm's, or `FORGOTTEN`; `killed`: the federation has cancelled the job; `told`: as above."""
    code = mark.code if mark else None
    if state == "CANCELLED" and not killed:
        return RankEnd(None, _CANCELLED, Cause.EVICTED)
    if state in _EVICTED:
        return RankEnd(None, _EVICTED[state], Cause.EVICTED)
    if state in _LIMITED:
        return RankEnd(code or TERMINATED, _LIMITED[state], Cause.MAX_DURATION)
    if state in _NODES:
        # Of the other ranks Slurm has ended the commands itself: one that ends well then has saved itself.
        return RankEnd(None, _NODES[state], Cause.NODE_LOST)
    if state == "OUT_OF_MEMORY" and code != 0:
        return RankEnd(code or KILLED, OUT_OF_MEMORY, Cause.OUT_OF_MEMORY)
    if mark is not None and not killed:
        return by_itself(mark, told=told)
    if code is not None or killed:
        return RankEnd(KILLED if code is None else code)
    why = f"Slurm says {state}" if state else "Slurm no longer knows its job"
    return RankEnd(None, f"it has left no exit code; {why}", Cause.NODE_LOST)
