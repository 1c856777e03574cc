"""A real Slurm whose jobs run as two accounts of this machine, neither of them the agent's."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.integration.slurm.conftest import SETTINGS, SlurmAgent
from tests.testbeds.required import need
from tests.testbeds.slurm import Slurm, missing

ALICE, BOB = "games", "daemon"
"""Accounts that every Debian has and nothing runs as."""
SITE = (
    """
site: here
kind: onprem
dispatcher: {url}
state_dir: {state}
report_every: 1s
slurm:
  shared_dir: {shared}
  conf: {conf}
  queues:
    alices: {{user: """
    + ALICE
    + """}}
    bobs: {{user: """
    + BOB
    + """}}
  users: {{"bob@example.org": """
    + BOB
    + """}}
"""
)


def _lacking() -> str:
    return missing() or ("" if os.geteuid() == 0 else "jobs as other users want root")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Slurm]:
    """In a folder that every user passes, as an administrator makes it."""
    need(_lacking())
    with tempfile.TemporaryDirectory(prefix="slurm-users-") as folder:
        Path(folder).chmod(0o755)
        slurm = Slurm(Path(folder) / "cluster", nodes=2, settings=SETTINGS)
        asyncio.run(slurm.__aenter__())
        yield slurm
        slurm.end()


class UsersAgent(SlurmAgent):
    """The agent of such a site: it is root, and its state is its own."""

    def __init__(self, folder: Path, shared: Path, dispatcher: FakeDispatcher, slurm: Slurm) -> None:
        super().__init__(folder, dispatcher, slurm)
        self.shared = shared
        values = {"url": dispatcher.url, "state": self.state, "shared": shared, "conf": slurm.configuration}
        self.config.write_text(SITE.format(**values))


@pytest.fixture
async def agent(cluster: Slurm, tmp_path: Path) -> AsyncIterator[UsersAgent]:
    """One that serves, and has seen the cluster."""
    dispatcher = FakeDispatcher()
    await dispatcher.start()
    shared = cluster.folder.parent / tmp_path.name
    shared.mkdir(mode=0o755)
    agent = UsersAgent(tmp_path, shared, dispatcher, cluster)
    await agent.join(dispatcher.url)
    await agent.start()
    await dispatcher.until(lambda: dispatcher.reports and dispatcher.reports[-1].pools)
    yield agent
    await agent.kill()
    await dispatcher.stop()
    for user in (ALICE, BOB, "root"):
        await cluster.command("scancel", "--full", "--signal=KILL", f"--user={user}")
        await cluster.command("scancel", f"--user={user}")
    await cluster.idle()
    await cluster.ready()
    await asyncio.to_thread(shutil.rmtree, shared, ignore_errors=True)
