"""The Python client: what the `federator` command itself uses.

`Client` blocks, for scripts and notebooks; `AsyncClient` has the same verbs for asyncio. Both speak in the records of
`federator.model` and `federator.wire.http` and raise the errors of `federator.kernel.errors`.

Each is imported when it is asked for: a command with a simple question starts faster without aiohttp.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from federator.client.client import AsyncClient
    from federator.client.jobs import JobFilter
    from federator.client.sync import Client
    from federator.client.verbs import Verbs

__all__ = ["AsyncClient", "Client", "JobFilter", "Verbs"]
_MODULES = {"AsyncClient": "client", "Client": "sync", "JobFilter": "jobs", "Verbs": "verbs"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
