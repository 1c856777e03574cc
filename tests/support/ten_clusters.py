"""Three jobs on two clusters, under the names of the published files: what the comparison of schedulers is tried on."""

import gzip
from collections.abc import Sequence
from pathlib import Path

JOBS = (
    # two jobs of itp01 that do not fit there together, and one of itp02 that leaves room
    "cluster,job,submit_s,duration_s,num_gpu,deadline_s,model,batch_size,num_iteration",
    "itp01,01-0,0,3600,8,1,m,1,1",
    "itp01,01-1,60,3600,8,1,m,1,1",
    "itp02,02-0,60,3600,4,1,m,1,1",
)
SITES = "cluster,sim_gpus,gpus_per_node\nitp01,8,8\nitp02,16,8\n"


def write(folder: Path, jobs: Sequence[str] = JOBS) -> Path:
    """The folder of the data."""
    folder.mkdir(exist_ok=True)
    (folder / "itp10_jobs_month1.csv.gz").write_bytes(gzip.compress("\n".join(jobs).encode()))
    (folder / "itp10_sites_x0.2.csv").write_text(SITES)
    return folder
