"""The child process: reads problems from stdin, writes plans to stdout, and dies with its parent.

OR-Tools is imported, and the planner's kernel loaded (or compiled), before the child says that it is ready, so that no turn pays for it. Whatever the solver's libraries print
goes to stderr: stdout carries frames only. The child holds no state between problems.

The collector of garbage runs between problems: looking through all that is loaded, in the middle of a small decision, took three times as long as deciding it.
"""

import gc
import os
import signal
import sys
from typing import BinaryIO

import msgspec

from federator.model.plans import Plan
from federator.model.snapshot import Problem
from federator.planning import kernels
from federator.solving.decide import decide
from federator.solving.frames import HEADER_BYTES, READY, Ask, Reply, body_length, pack
from federator.solving.outlook import look_ahead
from federator.solving.parentage import die_with_parent
from federator.solving.plan_check import prove

NICENESS = 5
"""The dispatcher's own loop goes first."""


def answer(ask: Ask) -> Reply:
    """Decide one problem; an exception is an answer too."""
    try:
        problem = msgspec.msgpack.decode(ask.problem, type=Problem)
        if ask.counts:
            outlook = look_ahead(problem, ask.counts)
            return Reply(number=ask.number, plan=b"" if outlook is None else msgspec.msgpack.encode(outlook))
        if ask.certify:
            proof = prove(problem, msgspec.msgpack.decode(ask.certify, type=Plan))
            return Reply(number=ask.number, plan=b"" if proof is None else msgspec.msgpack.encode(proof))
        plan = decide(problem, seed=ask.seed, stages=ask.stages)
    except Exception as error:  # noqa: BLE001 - the parent falls back on greedy whatever it was, and logs it
        return Reply(number=ask.number, error=f"{type(error).__name__}: {error}")
    return Reply(number=ask.number, plan=msgspec.msgpack.encode(plan))


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer frame by frame until the source ends."""
    gc.disable()
    gc.collect()
    gc.freeze()
    sink.write(pack(READY))
    sink.flush()
    while len(header := source.read(HEADER_BYTES)) == HEADER_BYTES:
        ask = msgspec.msgpack.decode(source.read(body_length(header)), type=Ask)
        sink.write(pack(answer(ask)))
        sink.flush()
        gc.collect()


def main() -> None:
    """Take stdout for frames, and serve."""
    die_with_parent(int(sys.argv[1]))
    os.nice(int(sys.argv[2]) if len(sys.argv) > 2 else NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not kernels.prepare():
        sys.exit(kernels.trouble())
    frames = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, frames)


if __name__ == "__main__":
    main()
