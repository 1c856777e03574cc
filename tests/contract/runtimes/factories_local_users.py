"""Processes of this host, each job as a Unix user of its own."""

import os
import shutil

from federator_agent.local.confinement import Confinement
from federator_agent.local.isolation import Isolation, Mode
from federator_agent.local.runtime import LocalRuntime
from federator_agent.runtime import Runtime, Surroundings
from tests.contract.runtimes.world import INPUTS, Site


def lacking() -> str:
    """The agent has to be root, and to have its launcher."""
    if os.geteuid() != 0:
        return "only root can run jobs as other users"
    return "" if shutil.which("bwrap") else "bubblewrap is not installed"


def site() -> Site:
    """This one."""
    return Site(lambda around: made(around, Mode.USERS), "cpu")


def made(around: Surroundings, mode: Mode) -> Runtime:
    """A runtime whose jobs are kept apart, and see the test's own folder, where inputs are."""
    directory = around.spool.directory
    directory.parent.chmod(0o755)  # a site's data are where its jobs may read them
    INPUTS.mkdir(mode=0o755, exist_ok=True)
    isolation = Isolation(mode=mode, shared=(str(directory.parent), str(INPUTS)))
    return LocalRuntime(around._replace(confinement=Confinement(mode, isolation, directory)))
