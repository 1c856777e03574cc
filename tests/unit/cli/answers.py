"""What a dispatcher might answer, for tests of the command."""

import msgspec

from federator.model.events import Event
from federator.model.jobs import Accelerators, Job, JobSpec, JobStatus, Outcome, Resources, TerminalReason
from federator.wire.http import (
    ArrayDetail,
    JobDetail,
    JobRow,
)

NOW = 1_760_000_000.0
TIME = {"X-Federator-Time": str(NOW)}


def detail(status: JobStatus = JobStatus.RUNNING, code: int | None = None, **fields: object) -> JobDetail:
    reason = TerminalReason.EXIT_CODE if code else TerminalReason.DONE
    job = Job(
        id="job-1", name="train", owner="ada", queue="research", status=status, spec_hash="0", submitted_at=NOW - 3600,
        placement="pl-1", started_at=NOW - 60, because="running at north",
        outcome=Outcome(reason, exit_code=code) if status in ("SUCCEEDED", "FAILED", "CANCELLED") else None,
    )  # fmt: skip
    spec = JobSpec(
        name="train", run="python train.py", nodes=2, resources=Resources(gpus=Accelerators(4, ("A100",)))
    )
    return JobDetail(msgspec.structs.replace(job, **fields), spec, site="north", pool="a100", market="owned")


def frames(*statuses: str) -> bytes:
    shown = [
        Event(f"ev-{n}", "job-1", NOW, "x", status, f"it is {status}") for n, status in enumerate(statuses)
    ]
    return b"".join(
        b"id: " + each.id.encode() + b"\ndata: " + msgspec.json.encode(each) + b"\n\n" for each in shown
    )


def row(number: int, **fields: object) -> JobRow:
    made = JobRow(
        id=f"job-{number}", name="train", owner="ada", queue="research", status="PENDING", priority=50, nodes=1, gpus=1,
        models="", submitted_at=NOW - 60, because="waits for north",
    )  # fmt: skip
    return msgspec.structs.replace(made, **fields)


def an_array(**fields: object) -> ArrayDetail:
    made = ArrayDetail(
        id="job-0", name="sweep", indices="0-9", owner="ada", queue="research", spec=JobSpec(name="sweep", run="true"),
        tasks={"FAILED": 2, "SUCCEEDED": 8}, submitted_at=NOW - 3600, started_at=NOW - 3000, finished_at=NOW - 60,
        mean_run_s=90.0, spent_usd=1.5, gpu_s=7200.0, ended={"FAILED, exit-code 1": "3,7"}, outputs="0-2",
    )  # fmt: skip
    return msgspec.structs.replace(made, **fields)
