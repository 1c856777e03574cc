"""A collector of OpenTelemetry on loopback: takes OTLP over HTTP, decoded by OpenTelemetry's own messages."""

import asyncio
import gzip
from typing import NamedTuple, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Received(NamedTuple):
    """A span as it came. Ids are in hex, times in seconds."""

    trace: str
    id: str
    parent: str
    name: str
    start_at: float
    end_at: float
    error: str
    attributes: dict[str, str]
    service: str


class Collector:
    """Keeps what is posted to `url`. While `silent`, it takes requests and never answers."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Received] = []
        self.headers: list[dict[str, str]] = []
        self.silent = False
        self._released = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1/traces"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._released.set()
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        if self.silent:
            await self._released.wait()
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        message = ExportTraceServiceRequest.FromString(body)
        for group in message.resource_spans:
            service = {each.key: each.value.string_value for each in group.resource.attributes}
            for scope in group.scope_spans:
                self.spans += [
                    Received(
                        trace=span.trace_id.hex(),
                        id=span.span_id.hex(),
                        parent=span.parent_span_id.hex(),
                        name=span.name,
                        start_at=span.start_time_unix_nano / 1e9,
                        end_at=span.end_time_unix_nano / 1e9,
                        error=span.status.message,
                        attributes={
                            each.key: str(each.value).partition(": ")[2].strip() for each in span.attributes
                        },
                        service=service["service.name"],
                    )
                    for span in scope.spans
                ]
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")
