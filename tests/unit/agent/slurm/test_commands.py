"""Silence is told from refusal, by what Slurm's commands say when they fail."""

import pytest

from federator_agent.slurm.commands import Rejected, Unreachable, failure


@pytest.mark.parametrize(
    "said",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
        "squeue: error: If munged is up, restart with --num-threads=10\nsqueue: error: Munge encode failed: Failed to access socket",
        "slurm_load_jobs error: Slurm backup controller in standby mode",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
        "squeue: fatal: Could not establish a configuration source",
        "",
    ],
)
def test_silence(said: str) -> None:
    assert isinstance(failure("squeue", said), Unreachable)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid partition name specified",
            "invalid partition specified: nope; Batch job submission failed: Invalid partition name specified",
        ),
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            "Batch job submission failed: Invalid account or account/partition combination specified",
        ),
        (
            "scancel: error: Kill job error on job id 9999: Invalid job id specified",
            "Kill job error on job id 9999: Invalid job id specified",
        ),
    ],
)
def test_refusal(said: str, shown: str) -> None:
    found = failure("sbatch", said)
    assert isinstance(found, Rejected)
    assert found.message == shown
