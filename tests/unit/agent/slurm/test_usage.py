"""What `sstat` says of jobs, on what 22.05 prints and on what others may."""

from pathlib import Path

import pytest

from federator_agent.slurm.commands import Commands
from federator_agent.slurm.settings import SlurmSettings
from federator_agent.slurm.usage import Gathered, gathered, read_steps
from federator_agent.usage import GpuUse, Reading

PRINTED = """1.batch|cpu=00:00:01,energy=0,fs/disk=24394,mem=10776K,pages=2,vmem=219196K
1.0|cpu=1-02:03:04,energy=0,gres/gpumem=4000M,gres/gpuutil=150,mem=2G,pages=0
2.0|cpu=00:01:00,energy=0,mem=1M
"""


def test_the_steps_of_a_job_are_added_up() -> None:
    found = read_steps(PRINTED)
    assert found["1"] == Gathered(93_785.0, 10776 * 1024 + 2 * 2**30, 150.0, 4000 * 2**20)
    assert found["1"].reading(2).gpus == (GpuUse(75.0, 2000), GpuUse(75.0, 2000))
    assert found["2"].reading(2) == Reading(60.0, 2**20), "of GPUs that are not gathered nothing is known"
    assert found["1"].reading(0).gpus is None


STAND_IN = """#!/bin/sh
[ "$*" = "--allsteps --noheader --parsable2 --jobs=1,2 --format=JobID,TRESUsageInTot" ] || exit 2
cat <<'END'
{printed}
END
"""
OF_23_11 = """1.batch|cpu=00:00:00,energy=0,fs/disk=9311,gres/gpumem=0,gres/gpuutil=0,mem=1316K,pages=0,vmem=1316K
1.0|cpu=00:20:41,energy=0,fs/disk=5170834,gres/gpumem=10638M,gres/gpuutil=189,mem=8107332K,pages=26,vmem=8201416K
2.0|cpu=00:00:12,energy=0,fs/disk=75312,gres/gpumem=512M,gres/gpuutil=0,mem=90112K,pages=0,vmem=99012K
"""
"""As a cluster prints it whose `AccountingStorageTRES` has gres/gpuutil and gres/gpumem, and whose GPUs NVML finds."""


async def test_slurm_is_asked_for_all_jobs_at_once(tmp_path: Path) -> None:
    (tmp_path / "sstat").write_text(STAND_IN.format(printed=OF_23_11))
    (tmp_path / "sstat").chmod(0o755)
    commands = Commands(SlurmSettings(shared_dir=tmp_path), {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    found = await gathered(commands, ["1", "2"])
    assert found["1"].reading(2).gpus == (GpuUse(94.5, 5319),) * 2
    assert found["2"].reading(1).gpus == (GpuUse(0.0, 512),), "which is idle, and not unknown"
    assert await gathered(commands, ["3"]) == {}


@pytest.mark.parametrize(
    "printed",
    [
        "1.batch|\n1.0|\n",  # jobacct_gather/none
        "1.0|213503982334-14:25:51\n",
        "1.0",
        "|||,=,=\n1.0|cpu=x,mem=1K",
        "1.0|cpu=" + "9" * 5000,
    ],
)
def test_what_is_not_gathered_is_not_none_used(printed: str) -> None:
    assert read_steps(printed) == {}
