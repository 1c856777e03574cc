"""Spans to an OpenTelemetry collector, by OTLP over HTTP. The one door to OpenTelemetry's packages (`pip install federator[traces]`).

The kit's own processor sends them from a thread of its own, so nothing waits for the collector. What it does not take in time is dropped and logged: a trace is no
record, and the ledger is.
"""

import asyncio
import logging
import threading
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from federator.kernel.errors import Invalid
from federator.model.spans import Span, trace_id
from federator.settings import TraceSettings

MOST_WAITING = 65_536
"""Spans that wait for the collector; more are dropped. Some 2 KiB each."""
CLOSE_S = 5.0
"""Real seconds for which the end of a dispatcher waits for the collector."""
SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class OtlpSpans:
    """See `federator.ports.SpanTarget`."""

    def __init__(self, settings: TraceSettings, federation: str, version: str) -> None:
        """Raises `Invalid` where the file with headers cannot be read."""
        self._resource = Resource(
            {"service.name": "federator", "service.namespace": federation, "service.version": version}
        )
        exporter = OTLPSpanExporter(
            endpoint=settings.endpoint,
            headers=_headers(settings.headers_file),
            certificate_file=settings.ca or None,
            timeout=settings.timeout_s,
        )
        self._processor = BatchSpanProcessor(
            exporter, max_queue_size=MOST_WAITING, schedule_delay_millis=1000.0 * settings.every_s
        )
        # Its lines for each attempt would repeat once a second while a collector is away.
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)

    def export(self, span: Span) -> None:
        """Put it into the queue."""
        trace = trace_id(span.job)
        parent = SpanContext(trace, span.parent_id, is_remote=False, trace_flags=SAMPLED)
        self._processor.on_end(
            ReadableSpan(
                name=span.name,
                context=SpanContext(trace, span.id, is_remote=False, trace_flags=SAMPLED),
                parent=parent if span.parent_id else None,
                resource=self._resource,
                attributes={
                    "federator.job": span.job,
                    **{f"federator.{name}": value for name, value in span.attributes.items()},
                },
                kind=SpanKind.INTERNAL,
                status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.OK),
                start_time=round(span.start_at * 1e9),
                end_time=round(span.end_at * 1e9),
            )
        )

    async def close(self) -> None:
        """Send what waits, for `CLOSE_S` at most."""
        last = threading.Thread(target=self._processor.shutdown, name="last spans", daemon=True)
        last.start()
        await asyncio.to_thread(last.join, CLOSE_S)


def _headers(name: str) -> dict[str, str]:
    """A header a line, `NAME: VALUE`."""
    if not name:
        return {}
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"cannot be read: {error}", field="$.traces.headers_file") from None
    headers = {}
    for number, line in enumerate(lines, 1):
        key, colon, value = line.partition(":")
        if not line.strip() or line.startswith("#"):
            continue
        if not colon or not key.strip() or not key.strip().isascii():
            raise Invalid(
                f"line {number} of {name} is not a header",
                field="$.traces.headers_file",
                remedy="write NAME: VALUE",
            )
        headers[key.strip().lower()] = value.strip()
    return headers
