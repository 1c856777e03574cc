"""The child process in which a dispatcher simulates two policy sets: reads one trial from standard input, writes its outcome to standard output, and ends.

It is no part of the dispatcher's process because it takes a processor for minutes, and may take more memory than there is: it has a limit of its own.
"""

import logging
import os
import resource
import sys

import msgspec

from federator.kernel.errors import FederatorError
from federator.planning import kernels
from federator.simulation.live import taken
from federator.simulation.loads import LoadOptions
from federator.simulation.policy_replay import replayed
from federator.solving.parentage import die_with_parent
from federator.wire.contrast import PolicyTrial, TrialOutcome

NICENESS = 15


def outcome_of(trial: PolicyTrial) -> TrialOutcome:
    """Simulate both sides. What is wrong with them is an outcome too."""
    try:
        live = taken(
            "the live world",
            trial.world,
            trial.jobs,
            trial.since_at,
            policies=trial.in_force,
            left_out=trial.left_out,
        )
        found, remarks, troubles = replayed(live, trial.proposed, LoadOptions(), seed=trial.seed)
    except FederatorError as error:
        return TrialOutcome(fault=error.message, remedy=error.remedy)
    except MemoryError:
        return TrialOutcome(
            fault="it takes more memory than limits.policy_replay_mib", remedy="take a shorter time"
        )
    return TrialOutcome(contrast=found.contrast, remarks=remarks, troubles=troubles)


def main() -> None:
    """`policy_trial PARENT MIB`."""
    parent, limit_mib = map(int, sys.argv[1:])
    die_with_parent(parent)
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_mib * 2**20,) * 2)
    logging.disable(logging.CRITICAL)  # what happens in the simulation has happened nowhere
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    trial = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=PolicyTrial)
    if not kernels.prepare():
        sys.exit(kernels.trouble())
    with answer:
        answer.write(msgspec.msgpack.encode(outcome_of(trial)))


if __name__ == "__main__":
    main()
