"""Spans reach a collector as they are, and a collector that is slow, dead or hostile delays nobody."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from federator.exporting import otlp
from federator.exporting.otlp import OtlpSpans
from federator.kernel.errors import Invalid
from federator.model.spans import ROOT, RUN, Span, span_id, trace_id
from federator.settings import TraceSettings
from tests.support.waiting import until
from tests.testbeds.collector import Collector

JOB = "job-01k742sg0013452znrksnf95fy"
RAN = Span(job=JOB, name=RUN, of="pl-1", parent="attempt", start_at=1000.25, end_at=1010.5, error="exit code 3", attributes={"exit_code": 3})  # fmt: skip


def sending(url: str, **given: object) -> OtlpSpans:
    settings = msgspec.convert({"endpoint": url, "every_s": 0.05, **given}, TraceSettings)
    return OtlpSpans(settings, "lab", "1.2.3")


async def test_a_span_arrives_as_it_is(tmp_path: Path) -> None:
    secret = tmp_path / "headers"
    secret.write_text("# of the collector\nAuthorization: Bearer abc:def\n\nX-Scope: lab\n")
    async with Collector() as collector:
        spans = sending(collector.url, headers_file=str(secret))
        spans.export(RAN)
        spans.export(Span(job=JOB, name=ROOT, start_at=990.0, end_at=1011.0))
        await until(lambda: len(collector.spans) == 2)
        await spans.close()
    ran, root = collector.spans
    assert ran.trace == root.trace == f"{trace_id(JOB):032x}"
    assert (ran.id, ran.parent) == (f"{RAN.id:016x}", f"{span_id(JOB, 'pl-1', 'attempt'):016x}")
    assert (root.parent, root.error, root.service) == ("", "", "federator")
    assert (ran.start_at, ran.end_at, ran.error) == (1000.25, 1010.5, "exit code 3")
    assert ran.attributes == {"federator.job": f'"{JOB}"', "federator.exit_code": "3"}
    assert collector.headers[0]["authorization"] == "Bearer abc:def"
    assert collector.headers[0]["x-scope"] == "lab"


async def test_what_is_left_is_sent_at_the_end() -> None:
    async with Collector() as collector:
        spans = sending(collector.url, every_s=3600.0)
        for number in range(1000):
            spans.export(msgspec.structs.replace(RAN, of=f"pl-{number}"))
        await spans.close()
        assert len({span.id for span in collector.spans}) == 1000


async def test_nobody_waits_for_a_collector_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "CLOSE_S", 0.2)
    monkeypatch.setattr(otlp, "MOST_WAITING", 1024)
    async with Collector() as collector:
        collector.silent = True
        spans = sending(collector.url)
        for number in range(5000):
            spans.export(msgspec.structs.replace(RAN, of=f"pl-{number}"))
        async with asyncio.timeout(5.0):
            await spans.close()
        assert not collector.spans


@pytest.mark.parametrize("text", ["no header", ": value", "naïve: x"])
def test_a_file_that_holds_no_headers_is_refused_by_its_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "headers").write_text(f"a: b\n{text}\n")
    with pytest.raises(Invalid, match="line 2"):
        sending("http://127.0.0.1:1/v1/traces", headers_file=str(tmp_path / "headers"))


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(Invalid, match="nowhere"):
        sending("http://127.0.0.1:1/v1/traces", headers_file="/nowhere")
