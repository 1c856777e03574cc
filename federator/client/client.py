"""The asyncio client: all verbs over one connection pool."""

import os
from collections.abc import Callable
from types import TracebackType
from typing import Self

from federator.client.copies import CopyVerbs
from federator.client.pooled import PooledTransport
from federator.client.progress import Tell
from federator.client.transport import DEFAULT_SERVER, Bearer
from federator.client.verbs import Verbs
from federator.kernel.errors import FederatorError
from federator.kernel.route import Way


class AsyncClient(Verbs, CopyVerbs):
    """One federation, asked by one person: its dispatcher, or the addresses of all of them with commas in between.

    `patience_s` is for how long calls are repeated while the dispatcher does not answer; `on_wait` hears of each repetition. `ca` is the PEM file of the
    authority to believe, where this machine does not know it; `proxy` a URL or `none`, else HTTPS_PROXY, HTTP_PROXY and NO_PROXY say how it is reached.
    Raises `Invalid` when one of them cannot be used.

        async with AsyncClient("http://127.0.0.1:7070", token) as client:
            submitted = await client.submit({"run": "python train.py"})
            detail = await client.wait(submitted.jobs[0])
    """

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        token: str | Bearer | None = None,
        *,
        patience_s: float = 60.0,
        on_wait: Callable[[FederatorError], None] | None = None,
        progress: Tell | None = None,
        ca: str = "",
        proxy: str = "",
    ) -> None:
        way = Way(ca=ca, proxy=proxy, environ=os.environ)
        transport = PooledTransport(server, token, patience_s=patience_s, on_wait=on_wait, way=way)
        super().__init__(transport, progress=progress)
        self.pool = transport

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
