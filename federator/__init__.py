"""Federator: one submit endpoint over many clusters, and a dispatcher that assigns whole jobs to sites.

In Python: `from federator import Client` (or `AsyncClient`), which is imported when it is asked for.
"""

from importlib import import_module

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # By its name: agents import this package too, and must not depend on the client.
    if name in ("AsyncClient", "Client", "JobFilter"):
        return getattr(import_module("federator.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
