"""Data goes where the work goes: inputs are there before it starts, and what it saved at one site is there at the next."""

from pathlib import Path
from typing import Any

import pytest

from federator.cli.demo.federation import DemoFederation
from federator.model.jobs import JobStatus
from tests.support.waiting import until

pytestmark = pytest.mark.system

COUNT = """
step=$(cat "$FEDERATOR_CHECKPOINT_DIR/step" 2>/dev/null || echo 0)
echo "at $FEDERATOR_SITE resume $FEDERATOR_RESUME from $step with $(cat "$FEDERATOR_INPUTS_DIR/words")" >> JOURNAL
trap 'exit 143' TERM
while [ ! -e ENOUGH ]; do
  step=$((step + 1))
  echo $step > "$FEDERATOR_CHECKPOINT_DIR/.new" && mv "$FEDERATOR_CHECKPOINT_DIR/.new" "$FEDERATOR_CHECKPOINT_DIR/step"
  echo "at $FEDERATOR_SITE step $step" >> JOURNAL
  sleep 0.1
done
"""


class Counting:
    """A job that counts, at two sites without a disk in common."""

    def __init__(self, folder: Path) -> None:
        self.federation = DemoFederation(folder / "world", 10.0)
        self.folder, self.journal, self.enough = folder, folder / "journal", folder / "enough"
        self.job = ""
        (folder / "world").mkdir()

    async def begin(self) -> None:
        await self.federation.start_dispatcher()
        for name in ("first", "second"):
            pool = {"name": "main", "model": "A100", "nodes": 1, "gpus_per_node": 1, "cpus_per_node": 4}
            await self.federation.start_sites([{"site": name, "kind": "onprem", "pools": [pool]}])
        (self.folder / "words").write_text("the words")

    async def submit(self, **fields: Any) -> None:
        run = COUNT.replace("JOURNAL", str(self.journal)).replace("ENOUGH", str(self.enough))
        job = {
            "name": "count",
            "run": run,
            "resources": {"gpus": 1},
            "inputs": [{"uri": f"file://{self.folder}/words", "size": "9MB"}],
            "checkpoint": {"grace": "60s", "uri": f"file://{self.folder}/kept"},
            **fields,
        }
        self.job = (await self.federation.admin.submit(job)).jobs[0]

    def lines(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    async def status(self) -> JobStatus:
        return (await self.federation.admin.job(self.job)).job.status


async def test_a_job_goes_on_at_another_site_from_what_it_saved(tmp_path: Path) -> None:
    counting = Counting(tmp_path)
    admin = counting.federation
    try:
        await counting.begin()
        await counting.submit()
        await until(lambda: len(counting.lines()) > 5, "the job to count")
        here = counting.lines()[0].split()[1]
        await admin.admin.drain(here)
        await admin.admin.act("requeue", [counting.job])
        await until(
            lambda: len({line.split()[1] for line in counting.lines()}) > 1, "the job to go on elsewhere"
        )
        there = next(line for line in counting.lines() if line.split()[1] != here)
        last = [line for line in counting.lines() if line.startswith(f"at {here} step")][-1].split()[-1]
        # Written before its journal's line, so it may be one ahead of it.
        assert there.split()[2:4] == ["resume", "1"]
        assert int(there.split()[5]) in (int(last), int(last) + 1)
        assert there.endswith("with the words")
        counting.enough.touch()
        await _ended(counting)
        assert await counting.status() == JobStatus.SUCCEEDED
        history = " ".join(event.text for event in await admin.admin.history(counting.job))
        assert f"which is kept at file://{tmp_path}/kept" in history
    finally:
        await admin.end()


async def test_an_input_that_nobody_has_ends_the_job_with_that_reason(tmp_path: Path) -> None:
    counting = Counting(tmp_path)
    try:
        await counting.begin()
        await counting.submit(inputs=[f"file://{tmp_path}/no/such"])
        await _ended(counting)
        detail = await counting.federation.admin.job(counting.job)
        assert detail.job.status == JobStatus.FAILED
        assert detail.job.outcome is not None
        assert "no/such" in detail.job.outcome.detail
        assert counting.lines() == []
    finally:
        await counting.federation.end()


async def _ended(counting: Counting) -> None:
    async def ended() -> bool:
        return await counting.status() in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)

    await until(ended, "the job to end")
