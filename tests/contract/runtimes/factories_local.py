"""Processes of this host."""

from federator_agent.local.runtime import LocalRuntime
from tests.contract.runtimes.world import Site


def lacking() -> str:
    """There is always a host."""
    return ""


def site() -> Site:
    """This one."""
    return Site(LocalRuntime, "cpu")
