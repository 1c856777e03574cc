"""The Python SDK: what the `federator` command itself uses.

`Client` is for asyncio; `SyncClient` has the same verbs for scripts and notebooks. Both speak in the records of
`federator.model` and `federator.wire.http` and raise the errors of `federator.kernel.errors`.
"""

from federator.client.client import Client
from federator.client.jobs import JobFilter
from federator.client.sync import SyncClient

__all__ = ["Client", "JobFilter", "SyncClient"]
