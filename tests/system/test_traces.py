"""A job's trace from a dispatcher, an agent and a process as they are started: one trace, which the job itself is told of, too."""

import json
from pathlib import Path

import pytest

from federator.cli.demo.federation import DISPATCHER, DemoFederation
from federator.cli.demo.world import Document
from federator.model.spans import RUN, span_id, trace_id
from tests.support.waiting import until
from tests.testbeds.collector import Collector


class Traced(DemoFederation):
    """Its dispatcher traces jobs, and logs for machines."""

    def __init__(self, folder: Path, collector: str) -> None:
        super().__init__(folder, 1.0)
        self._collector = collector

    def _settings(self) -> Document:
        given = {"traces": {"endpoint": self._collector, "every_s": 0.2}, "log_format": "json"}
        return super()._settings() | given


@pytest.mark.system
async def test_one_trace_goes_from_the_submission_to_the_process(tmp_path: Path) -> None:
    told = tmp_path / "told"
    async with Collector() as collector:
        federation = Traced(tmp_path, collector.url)
        try:
            await federation.start_dispatcher()
            pool = {"name": "main", "model": "A100", "nodes": 1, "gpus_per_node": 1, "cpus_per_node": 4}
            await federation.start_sites([{"site": "lab", "kind": "onprem", "pools": [pool]}])
            file = {"name": "traced", "run": f'printf %s "$TRACEPARENT" >{told}; exit 3'}
            (job,) = (await federation.admin.submit(file)).jobs
            await until(lambda: len(collector.spans) == 7, "seven spans")
            placement = (await federation.admin.job(job)).attempts[0].placement
        finally:
            await federation.end()
    spans = {span.name: span for span in collector.spans}
    assert set(spans) == {"submit", "wait", "turn", "prepare", "run", "attempt", "job"}
    assert {span.trace for span in spans.values()} == {f"{trace_id(job):032x}"}
    _, trace, parent, _ = told.read_text().split("-")
    assert (trace, parent) == (spans[RUN].trace, spans[RUN].id)
    assert parent == f"{span_id(job, placement, RUN):016x}"
    assert "3" in spans[RUN].error
    order = ("submit", "turn", "prepare", "run")
    assert sorted(order, key=lambda name: spans[name].start_at) == list(order)
    lines = federation.processes.log_file(DISPATCHER).read_text().splitlines()
    assert [json.loads(line)["level"] for line in lines if line.startswith("{")]
