"""What the runtime does in the shared directory, without a cluster: who may look into it, and that a gate is opened once."""

import asyncio
import errno
import os
import stat
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from federator.kernel.clock import SystemClock
from federator.kernel.files import write_durably
from federator.model.jobs import JobSpec, Resources
from federator_agent.core import events as ev
from federator_agent.core.lent_capacity import Slot
from federator_agent.core.state import Phase, PlacementRecord
from federator_agent.data.carrier import Carrier
from federator_agent.runtime import Surroundings, Tasks
from federator_agent.slurm.folder import Folder, Intent, Marks
from federator_agent.slurm.output import Job
from federator_agent.slurm.queue import QueueSnapshot
from federator_agent.slurm.runtime import SlurmRuntime
from federator_agent.slurm.settings import Account, SlurmSettings
from federator_agent.spool import Spool
from federator_agent.staging_errors import StagingRefused
from tests.support.waiting import until
from tests.unit.agent.worlds import entry

SPEC = JobSpec(name="job", run="true", nodes=3, resources=Resources(cpus_milli=1000))


class Site:
    """A runtime whose cluster is not there."""

    def __init__(self, folder: Path) -> None:
        self.told: list[ev.Event] = []
        self.tasks = Tasks()
        self.shared = folder / "shared"
        self.shared.mkdir()
        spool = Spool(folder / "state")
        self.around = Surroundings(
            site="here",
            environment={},
            clock=SystemClock(),
            spool=spool,
            bulk=None,  # type: ignore[arg-type]
            carrier=Carrier(spool.directory, SystemClock()),
            tasks=self.tasks,
            tell=self.told.append,
        )
        self.runtime = SlurmRuntime(SlurmSettings(shared_dir=self.shared), self.around)

    def record(self) -> PlacementRecord:
        slots = tuple(Slot(rank, "main", f"n{rank}", (), 1000, 0) for rank in range(SPEC.nodes))
        return PlacementRecord(entry=entry("p1", SPEC, pool="main"), phase=Phase.RUNNING, slots=slots)

    def folder(self) -> Folder:
        """Of its placement, which waits at its gate as Slurm's job 7."""
        folder = self.runtime.folder("p1")
        folder.make((0, 1, 2), self.shared.parent / "state" / "placements" / "p1")
        folder.intend(Intent(asked_at=0.0, slurm_job="7"))
        return folder


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    yield site
    await site.tasks.end_all()
    site.runtime.close()


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_nobody_else_looks_into_what_jobs_have(site: Site) -> None:
    site.folder()
    modes = {path.name: _mode(path) for path in site.shared.iterdir() if path.is_dir()}
    assert modes == {
        "blobs": 0o700,
        "setups": 0o700,
        "placements": 0o711,
        "checkpoints": 0o711,
        "inputs": 0o711,
    }
    assert _mode(site.shared / "placements" / "p1") == 0o700


async def test_what_a_job_leaves_in_the_place_of_a_mark_says_nothing(site: Site) -> None:
    """Where jobs run as another user the agent is root: it would read what they may not, or without an end."""
    folder = site.folder()
    (folder.path / "exit-0").symlink_to("/dev/zero")
    os.mkfifo(folder.path / "exit-1")
    (folder.path / "go").symlink_to("/dev/zero")
    (folder.path / "slurm.out").symlink_to("/dev/zero")
    (folder.path / "started-2").write_text("1.5\n")
    assert folder.marks() == Marks({}, {2: 1.5}, {})
    assert (folder.admitted, folder.said()) == ("", "")


async def test_a_set_up_is_not_run_for_those_who_run_as_another_user(site: Site) -> None:
    """It runs beside the agent, as the agent's user, which is root then."""
    settings = SlurmSettings(shared_dir=site.shared, queues={"*": Account(user="ada")})
    runtime = SlurmRuntime(settings, site.around)
    record = site.record()
    with pytest.raises(StagingRefused, match="run as ada here, without a set-up"):
        await runtime.prepare(record, replace(SPEC, setup="id"), lambda: None)
    runtime.close()


async def test_what_an_older_agent_left_open_is_shut(site: Site) -> None:
    for name in ("setups", "placements"):
        (site.shared / name).chmod(0o2755)
    SlurmRuntime(SlurmSettings(shared_dir=site.shared), site.around).close()
    assert _mode(site.shared / "setups") == 0o2700
    assert _mode(site.shared / "placements") == 0o2711


async def test_a_gate_is_opened_once_though_each_rank_is_asked_for_by_itself(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two who write the same files stumble over each other, and one of them would cancel what the other has let go."""
    opened: list[str] = []
    watched: list[tuple[int, ...]] = []

    async def address(_node: str) -> str:
        await asyncio.sleep(0)
        return "10.0.0.1"

    admit = Folder.admit

    def count(folder: Folder, slurm_job: str) -> None:
        opened.append(slurm_job)
        admit(folder, slurm_job)

    def watch(_placement: str, _folder: Folder, ranks: tuple[int, ...], **_: Any) -> None:
        watched.append(ranks)

    monkeypatch.setattr(Folder, "admit", count)
    monkeypatch.setattr(site.runtime.cluster, "address", address)
    monkeypatch.setattr(site.runtime, "_watch", watch)
    folder, record = site.folder(), site.record()
    for rank in range(3):
        site.runtime.start(record, SPEC, (rank,))
    await until(lambda: len(watched) == 3 or bool(site.told), "all ranks to be watched")
    assert sorted(watched) == [(0,), (1,), (2,)]
    assert opened == ["7"]
    assert folder.admitted == "7"
    assert not site.told


async def test_marks_that_cannot_be_read_for_a_while_fail_nobodys_job(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, there = [OSError(116, "Stale file handle"), ValueError("half a number")], Folder.marks

    async def look(_within_s: float = 0.0) -> QueueSnapshot:
        return QueueSnapshot([Job("7", "p1", "RUNNING")], 0.0)

    def marks(folder: Folder) -> Marks:
        if read:
            raise read.pop(0)
        return there(folder)

    monkeypatch.setattr(site.runtime.cluster, "look", look)
    monkeypatch.setattr(Folder, "marks", marks)
    folder = site.folder()
    for rank in range(3):
        (folder.path / f"at-gate-{rank}").write_text(f"7 n{rank}\n")
    job, nodes = await site.runtime.allocating.at_gate(site.record(), folder)
    assert (job, nodes) == ("7", {0: "n0", 1: "n1", 2: "n2"})
    assert not read


class Asked:
    """Slurm, as far as signals go: what it was asked for."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        monkeypatch.setattr(site.runtime.cluster.commands, "run", self.run)
        monkeypatch.setattr(site.runtime.cluster, "cancel", self.cancel)
        monkeypatch.setattr("federator_agent.slurm.runtime.AT_ONCE_S", 0.0)
        watch = SimpleNamespace(killed=False, slurm_job="7", hurry=lambda: None)
        site.runtime.watches["p1"] = watch  # type: ignore[assignment]

    async def run(self, *words: str) -> str:
        self.asked.append(" ".join(words))
        return ""

    async def cancel(self, placement: str) -> None:
        self.asked.append(f"cancel {placement}")


async def test_a_kill_right_behind_a_signal_is_sent(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each notes first that it is sent, in the same file."""
    folder, slurm, writing = site.folder(), Asked(site, monkeypatch), threading.Lock()

    def write(path: Path, data: bytes) -> None:
        assert writing.acquire(blocking=False), "two write the same file at once"
        time.sleep(0.02)
        write_durably(path, data)
        writing.release()

    monkeypatch.setattr("federator_agent.slurm.folder.write_durably", write)
    for signal in ("TERM", "KILL"):
        site.runtime.signal("p1", (), signal)
    await until(lambda: "cancel p1" in slurm.asked)
    assert any("--signal=KILL" in each for each in slurm.asked)
    assert folder.signalled


async def test_a_kill_is_sent_though_it_cannot_be_noted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    site.folder()
    slurm = Asked(site, monkeypatch)
    monkeypatch.setattr("federator_agent.slurm.folder.write_durably", full)
    site.runtime.signal("p1", (), "KILL")
    await until(lambda: "cancel p1" in slurm.asked)
