"""Processes of this host, each job in namespaces of its own."""

import shutil

from federator_agent.local.isolation import Mode
from tests.contract.runtimes.factories_local_users import made
from tests.contract.runtimes.world import Site


def lacking() -> str:
    """It wants its launcher."""
    return "" if shutil.which("bwrap") else "bubblewrap is not installed"


def site() -> Site:
    """This one."""
    return Site(lambda around: made(around, Mode.SANDBOX), "cpu")
