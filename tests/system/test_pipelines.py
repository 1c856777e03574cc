"""A pipeline: what one step has collected at one site is at another site, under its name, before the next starts; through a retry and a dispatcher that is killed."""

import asyncio
from pathlib import Path

import pytest

from federator.cli.demo.federation import DemoFederation
from federator.model.jobs import JobStatus

pytestmark = pytest.mark.system


async def _begun(folder: Path) -> DemoFederation:
    federation = DemoFederation(folder / "world", 10.0)
    federation.folder.mkdir()
    await federation.start_dispatcher()
    pool = {"name": "main", "model": "A100", "nodes": 1, "gpus_per_node": 1, "cpus_per_node": 8}
    for name in ("first", "second"):
        await federation.start_sites([{"site": name, "kind": "onprem", "pools": [pool]}])
    return federation


async def test_steps_at_two_sites_hand_data_on(tmp_path: Path) -> None:
    federation = await _begun(tmp_path)
    try:
        ada = await federation.as_person("ada")
        once = tmp_path / "once"
        prepare = {
            "run": f"test -e {once} || {{ touch {once}; exit 7; }}; mkdir -p out/deep; echo words > out/deep/words; echo no > rest",
            "outputs": ["out/**", "rest"],
            "placement": {"sites": "first"},
            "retry": {"on": "error", "backoff": "1s"},
        }
        sweep = {
            "array": "1-2",
            "run": 'echo "$(cat $FEDERATOR_INPUTS_DIR/out/deep/words) $FEDERATOR_ARRAY_INDEX" > score',
            "inputs": {"from": "prepare", "output": "out"},
            "outputs": "score",
            "placement": {"sites": "second"},
        }
        best = {
            "run": "cd $FEDERATOR_INPUTS_DIR && ls && cat sweep/1/score sweep/2/score words && ls -a sweep/1",
            "inputs": [
                {"from": "sweep"},
                {"from": "prepare", "output": "out/deep/words"},
            ],
            "placement": {"sites": "first"},
        }
        steps = {"best": best, "sweep": sweep, "prepare": prepare}
        submitted = await ada.submit({"name": "night", "steps": steps})
        last = submitted.jobs[-1]
        # The dispatcher dies while all this goes on.
        await asyncio.sleep(0.5)
        federation.kill_dispatcher()
        await federation.start_dispatcher()
        found = await ada.wait(last)
        assert found.job.status is JobStatus.SUCCEEDED, found.job
        log = b"".join([part async for part in ada.logs(last)]).decode()
        assert "words 1\nwords 2\nwords\n" in log
        attempts = (await ada.job("night.prepare")).attempts
        assert [row.name for row in await ada.steps("night")] == [
            "night.prepare",
            "night.sweep",
            "night.best",
        ]
        assert len(attempts) == 2, "the first failed, and was tried again"
        # A reader whose output is not there fails, and says what there is.
        wrong = (
            await ada.submit({"run": "true", "inputs": {"from": "night.prepare", "output": "out/word"}})
        ).jobs[0]
        detail = await ada.wait(wrong)
        assert detail.job.outcome is not None
        for word in ("night.prepare", "out/word", "out/deep/words"):
            assert word in detail.job.outcome.detail
    finally:
        await federation.end()
