"""Gets a placement ready to run: its work directory, and the set-up script's result.

The set-up runs once per site for a work directory, a script and the job's environment, in a tree of its own; every placement then works on a copy
of that tree. It runs under the same shim as a rank. All that wait for the same set-up share one run of it, and each shows its
output in its own log. When nobody waits any more, it is killed. What has to be gone when its site is cut off has a set-up that is, too: it is
watched as a rank is, and shared only among those that may stay for equally long.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from federator.kernel.errors import FederatorError, Permanent
from federator.kernel.files import write_durably
from federator.kernel.ids import content_hash
from federator.model.jobs import JobSpec
from federator.model.placements import Cause
from federator_agent import archives, job_folders
from federator_agent.bulk import Bulk
from federator_agent.environment import lasting_environment
from federator_agent.excerpts import Excerpt
from federator_agent.local import cgroups, traces
from federator_agent.local.confinement import Confinement, Place, shared
from federator_agent.local.ranks import TOLD_FROM_OUTSIDE, LocalRanks
from federator_agent.local.watchdog import Fence
from federator_agent.staging_errors import StagingError, StagingLost
from federator_agent.work_archives import WorkArchives, keep_newest

SHOW_EVERY_S = 0.25
SAID_BYTES = 2**24
"""Most of a set-up's output that is kept and shown."""
log = logging.getLogger("federator_agent.staging")


@dataclass
class SharedSetup:
    """A set-up that is being run, and how many placements wait for it."""

    directory: Path
    task: asyncio.Task[None]
    waiting: int = 0


class Staging:
    """Work directories and set-ups of one agent, under its state directory."""

    def __init__(
        self, state_dir: Path, bulk: Bulk, ranks: LocalRanks, confinement: Confinement | None = None
    ) -> None:
        self._archives = WorkArchives(state_dir, bulk)
        self._setups = state_dir / "setups"
        self._setups.mkdir(exist_ok=True)
        self._ranks = ranks
        self._confinement = confinement or shared()
        self._running: dict[str, SharedSetup] = {}

    def clear(self) -> None:
        """At the start of the agent: end set-ups of the life before, whose result nobody would learn; drop what is old."""
        for directory in self._setups.iterdir():
            if not (directory / "done").exists():
                traces.kill_all(directory, spare=None)
                cgroups.clear(cgroups.of(directory))
                job_folders.remove(directory)
        keep_newest(self._setups)
        self._archives.drop_old()

    async def prepare(
        self,
        spec: JobSpec,
        work: Path,
        log_file: Path,
        environment: dict[str, str],
        setting_up: Callable[[], None],
        fence: Fence | None = None,
        owner: str = "",
    ) -> None:
        """Make `work` ready. `setting_up` is called when there is a script to wait for, and nothing from elsewhere. Raises `StagingError`.

        `fence`: when the script has to be gone, agent or not.
        """
        work.parent.mkdir(parents=True, exist_ok=True)
        try:
            if spec.setup is not None:
                if spec.workdir is not None:
                    await self._archives.fetch(spec.workdir)
                setting_up()
                tree = await self._set_up(spec, spec.setup, log_file, environment, fence, owner)
                await _copy_tree(tree, work)
            else:
                await self._unpack(spec, work)
        except Permanent as error:
            raise StagingError(Cause.STAGING, error.describe()) from None
        except OSError as error:
            raise StagingError(Cause.STAGING, f"the work directory cannot be written: {error}") from None

    async def _unpack(self, spec: JobSpec, target: Path) -> None:
        if spec.workdir is None:
            _make_empty(target)
        else:
            await asyncio.to_thread(archives.unpack, await self._archives.fetch(spec.workdir), target)

    async def _set_up(
        self,
        spec: JobSpec,
        script: str,
        log_file: Path,
        environment: dict[str, str],
        fence: Fence | None,
        owner: str,
    ) -> Path:
        """The tree in which the script has run, by this placement or an earlier one. Where jobs are kept apart, one of the same owner."""
        stays_s = fence.stop_within_s if fence else None
        made_of = [spec.workdir, script, lasting_environment(spec), stays_s]
        if self._confinement.apart:
            made_of.append(owner)
        key = content_hash(msgspec.json.encode(made_of, order="sorted"))
        directory = self._setups / key
        if key not in self._running and (directory / "done").exists():
            directory.touch()
            append_note(log_file, f"set-up: done before at this site ({key[:12]})\n".encode())
            return directory / "tree"
        shared = self._running.get(key)
        if shared is None:
            task = asyncio.create_task(
                self._run_setup(spec, script, Place(directory, directory / "tree", owner), environment, fence)
            )
            shared = self._running[key] = SharedSetup(directory, task)
            task.add_done_callback(lambda _: self._running.pop(key, None))
        shared.waiting += 1
        try:
            await _follow(shared, log_file)
        finally:
            shared.waiting -= 1
            if not shared.waiting and not shared.task.done():
                await self._abandon(shared)
        return directory / "tree"

    async def _run_setup(
        self, spec: JobSpec, script: str, place: Place, environment: dict[str, str], fence: Fence | None
    ) -> None:
        directory = place.own
        _make_empty(directory)
        await self._unpack(spec, place.work)
        await asyncio.to_thread(self._confinement.own, place, fresh=True)
        base = {name: value for name, value in environment.items() if name not in spec.env}
        launch = self._confinement.launch(place, ["/bin/sh", "-c", script], environment, base)
        need = spec.resources
        # Another agent of this host may run the same set-up.
        name = f"setup-{directory.name}-{os.getpid()}"
        launch = self._confinement.limited(launch, directory, need.cpus_milli, need.memory_mib, name)
        over: asyncio.Future[tuple[int | None, str]] = asyncio.get_running_loop().create_future()
        self._ranks.start(
            directory,
            place.work,
            launch,
            lambda _, code, detail: None if over.done() else over.set_result((code, detail)),
            # It has nothing to save, and others may wait for it who have a shorter grace.
            fence._replace(grace_s=0.0) if fence else None,
        )
        code, detail = await over
        if code is None:
            # As of a command: what was told to end, or is lost, has not failed, and every placement that waits for it is to be had elsewhere.
            told = Cause.EVICTED if detail == TOLD_FROM_OUTSIDE else Cause.NODE_LOST
            raise StagingLost(f"in its set-up: {detail}", told)
        if code != 0:
            message = detail or f"the set-up ended with exit code {code}; the log has its output"
            raise StagingError(Cause.SETUP, message, code)
        write_durably(directory / "done", b"")

    async def _abandon(self, shared: SharedSetup) -> None:
        """Nobody waits for it any more: nothing of it may stay."""
        shared.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, FederatorError, OSError):
            await shared.task
        await self._ranks.end_all(shared.directory)


def _make_empty(directory: Path) -> None:
    job_folders.remove(directory)
    directory.mkdir(parents=True)


async def _follow(shared: SharedSetup, log_file: Path) -> None:
    """Show the script's output in the placement's log until it is over; raises what the set-up raised."""
    shown = 0
    said = Excerpt(shared.directory, shared.directory / "log", SAID_BYTES)
    while True:
        await asyncio.wait([shared.task], timeout=SHOW_EVERY_S)
        said.over = over = shared.task.done()
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # a lease of it ends with the script
            with contextlib.suppress(OSError):  # a file system without holes
                said.shorten()
            while shown < said.length() and (data := said.chunk(shown)):
                append_note(log_file, data)
                shown += len(data)
        if over:
            if shared.task.cancelled():
                raise StagingError(Cause.SETUP, "the set-up was given up")
            shared.task.result()
            return


def append_note(log_file: Path, data: bytes) -> None:
    """Append to a rank's log before the rank runs."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as file:
        file.write(data)


async def _copy_tree(tree: Path, work: Path) -> None:
    """A copy of its own for each placement; shared blocks where the file system can."""
    job_folders.remove(work)
    copy = await asyncio.create_subprocess_exec("cp", "-a", "--reflink=auto", "--", str(tree), str(work))
    if await copy.wait() != 0:
        raise OSError(f"copying {tree} failed")


def free_port() -> int:
    """A TCP port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
