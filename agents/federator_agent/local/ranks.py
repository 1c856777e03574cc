"""Starts ranks, finds them again after the agent's restart, signals them, and learns how they end.

A rank's end is seen through a descriptor of its shim's process (`pidfd`), which the event loop waits on: nothing polls, and it
is the same for shims that this agent started and for those that its life before left behind.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals

from federator.kernel import files
from federator.kernel.clock import Clock
from federator_agent.local import cgroups, keyrings, traces
from federator_agent.local.confinement import FIRST_NAMESPACE, GIVEN_DESCRIPTOR, OWNER, Launch, exports
from federator_agent.local.memory import KILLED, LOOK_S, KillCount
from federator_agent.local.traces import MARK, Shim
from federator_agent.local.watchdog import ASKED, Fence

SHIM = Path(__file__).with_name("shim.sh").read_text()
"""Read once: an upgrade that replaces the file under a running agent must not meet the old arguments."""
PACKAGES = os.pathsep.join({str(Path(each).parents[2]) for each in (__file__, files.__file__)})
"""Where a bare interpreter finds this package."""
SELF_FENCING = True
"""Ranks that are cut off for too long are ended even if the agent is dead: by the watchdog."""
LOCK_DESCRIPTOR = 9
NS_GET_USERNS = 0xB701
"""Asks a namespace for the user namespace that owns it."""
TICK_S = 0.01
"""Times of files may lag by a tick of the kernel. An end is put later by that, so that what came after a stop never seems before it."""
_LOOK_AGAIN_S = 0.02
_LOOKS = 500
TOLD = "told"
"""A file of this name in the rank's directory: a TERM came to its shim, to which this agent sends none."""
TOLD_FROM_OUTSIDE = "it received TERM from the host or from a user on it"
OUT_OF_MEMORY = "the kernel killed it: out of memory"
log = logging.getLogger("federator_agent.local")

Ended = Callable[[float, int | None, str], None]
"""Told the time of the end; the exit code, and that the kernel killed it: out of memory if it did; or, without one, how the rank was lost: `TOLD_FROM_OUTSIDE` if it was told to end."""


class Found(StrEnum):
    """What became of a rank while the agent was away."""

    RUNNING = "running"
    OVER = "over"
    ABSENT = "absent"


class LocalRanks:
    """The ranks on this host. Each is known by its directory, which is absolute and never used for another."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watched: dict[Path, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: dict[Path, asyncio.Future[None]] = {}
        """What is being ended, and who waits for that."""
        self._kills = KillCount()
        self._looking: asyncio.Task[None] | None = None

    def start(
        self,
        directory: Path,
        work: Path,
        launch: Launch,
        ended: Ended,
        fence: Fence | None = None,
    ) -> None:
        """Start a rank under its shim, its output appended to `log` in its directory. Raises OSError when it cannot.

        The caller has made sure that it was never started. The lock is taken here and passed on, so that at no time a started
        rank has a free lock.
        """
        lock = traces.take_lock(directory)
        if lock is None:
            raise OSError(f"{directory} is in use")
        if traces.read_shim(directory) is not None:
            os.close(lock)
            raise OSError(f"{directory} has been used")
        watchdog = ("", "")
        output = given = -1
        try:
            output = os.open(directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            if fence is not None:
                fence.write(directory)
                watchdog = (sys.executable, PACKAGES)
            mark: dict[str, str] = {MARK: str(directory)}
            actions: list[keyrings.Action] = []
            if launch.given is not None:
                given = to_read(exports(launch.given | mark))
                actions = [(os.POSIX_SPAWN_DUP2, given, GIVEN_DESCRIPTOR)]
            if launch.log_owner is not None:
                os.fchown(output, launch.log_owner, -1)
            actions += [
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
                (os.POSIX_SPAWN_DUP2, lock, LOCK_DESCRIPTOR),
            ]
            words = ["sh", "-c", SHIM, "shim.sh", str(directory), str(work), *watchdog, *launch.command]
            pid = keyrings.spawn(words, launch.environment | mark, actions, apart=launch.given is not None)
            self._watch(directory, os.pidfd_open(pid), ended)
        finally:
            for descriptor in (lock, output, given):
                if descriptor >= 0:
                    os.close(descriptor)

    async def namespaces_made(self, directory: Path) -> None:
        """Wait, for some seconds at most, until the launcher of a rank that runs has made the namespaces round it: whoever hears that it runs may be sooner."""
        for _ in range(_LOOKS):
            if not self.watches(directory) or await asyncio.to_thread(traces.holder, directory) is not None:
                return
            await asyncio.sleep(_LOOK_AGAIN_S)

    def start_beside(
        self,
        directory: Path,
        launch: Launch,
        doors: Sequence[tuple[str, str]],
        given: Sequence[tuple[int, int]],
    ) -> int:
        """Start a command beside a rank that runs, with these descriptors; it is ended with the rank. Its process id. Raises `OSError`.

        `doors`: the namespaces of the rank that it is to find open. They are taken from the process that holds them before it is looked whether that is it.
        """
        holder = traces.holder(directory) if doors else None
        if doors and holder is None:
            raise OSError("its processes are not there any more")
        mark, opened = {MARK: str(directory)}, []
        try:
            opened += [_namespace(holder, name) for _, name in doors]
            if traces.holder(directory) != holder:
                raise OSError("its processes are not there any more")
            actions: list[keyrings.Action] = [(os.POSIX_SPAWN_DUP2, ours, theirs) for ours, theirs in given]
            if not doors and os.isatty(given[0][0]):
                # Who leads a session and opens a terminal has it as his. In namespaces it is led by another process, further in.
                actions = [
                    (os.POSIX_SPAWN_OPEN, each, os.ttyname(given[0][0]), os.O_RDWR, 0) for _, each in given
                ]
            actions += [
                (os.POSIX_SPAWN_DUP2, each, number) for number, each in enumerate(opened, FIRST_NAMESPACE)
            ]
            if launch.given is not None:
                opened.append(to_read(exports(launch.given | mark)))
                actions.append((os.POSIX_SPAWN_DUP2, opened[-1], GIVEN_DESCRIPTOR))
            words = ["sh", "-c", 'exec "$@"', "sh", *cgroups.join(directory), *launch.command]
            return keyrings.spawn(words, launch.environment | mark, actions, apart=launch.given is not None)
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def begun(self, directory: Path) -> bool:
        """Whether a rank was started, in this life of the agent or an earlier one."""
        return directory in self._watched or traces.read_shim(directory) is not None

    def watches(self, directory: Path) -> bool:
        """Whether its end will be told."""
        return directory in self._watched

    async def find(self, directory: Path, ended: Ended) -> Found:
        """What became of a rank that an earlier life of the agent was to start; `ended` is told when it is, or already was, over."""
        while (lock := traces.take_lock(directory)) is None:
            shim = traces.read_shim(directory)
            if shim is not None and self._adopt(directory, shim, ended):
                return Found.RUNNING
            await asyncio.sleep(_LOOK_AGAIN_S)
        os.close(lock)
        return self._over(directory, ended)

    def started_at(self, directory: Path) -> float:
        """When a rank's shim said that it is there, by this agent's clock; now, if it never did."""
        shim = traces.read_shim(directory)
        return self._clock_time(shim.real_at) if shim else self._clock.now()

    def _adopt(self, directory: Path, shim: Shim, ended: Ended) -> bool:
        try:
            descriptor = os.pidfd_open(shim.pid)
        except ProcessLookupError:
            return False
        with contextlib.suppress(OSError):
            if traces.start_time(Path(f"/proc/{shim.pid}/stat").read_text()) == shim.start:
                self._watch(directory, descriptor, ended)
                return True
        os.close(descriptor)
        return False

    def _over(self, directory: Path, ended: Ended) -> Found:
        if traces.read_exit(directory) is None and traces.read_shim(directory) is None:
            return Found.ABSENT
        self._keep(self._clean_up(directory, ended))
        return Found.OVER

    def _watch(self, directory: Path, descriptor: int, ended: Ended) -> None:
        loop = asyncio.get_running_loop()
        self._watched[directory] = descriptor
        if self._looking is None or self._looking.done():
            self._looking = self._keep(self._look_at_kills())

        def gone() -> None:
            loop.remove_reader(descriptor)
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, descriptor, os.WEXITED)
            os.close(descriptor)
            del self._watched[directory]
            self._keep(self._clean_up(directory, ended))

        loop.add_reader(descriptor, gone)

    async def _clean_up(self, directory: Path, ended: Ended) -> None:
        """The shim is gone: end what it leaves behind, and only then say that the rank is over."""
        await self.end_all(directory)
        groups = cgroups.of(directory)
        kills = cgroups.kills(groups)
        for _ in range(_LOOKS):
            if cgroups.clear(groups):
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
        written = traces.read_exit(directory)
        if written is not None:
            asked = (directory / ASKED).exists()
            if (directory / TOLD).exists() and not asked:
                # Whatever the code: what was told to end may have saved half of its work, and gone.
                ended(self._clock_time(written[1]), None, TOLD_FROM_OUTSIDE)
                return
            counted = self._kills.rose() if kills is None else kills > 0
            starved = written[0] == KILLED and not asked and counted
            ended(self._clock_time(written[1]), written[0], OUT_OF_MEMORY if starved else "")
            return
        shim = traces.read_shim(directory)
        if shim is None:
            ended(self._clock.now(), None, "its shim could not start; the rank's log may say why")
        elif shim.boot_id != traces.boot_id():
            ended(self._clock.now(), None, "the machine was restarted")
        else:
            ended(
                self._clock.now(),
                None,
                "its shim ended without an exit code; what was left of it has been ended",
            )

    async def _look_at_kills(self) -> None:
        """While ranks run. One that was found over has no look before it, and is not judged by one."""
        self._kills = KillCount()
        while self._watched:
            await asyncio.sleep(LOOK_S)
            self._kills.look()

    async def end_all(self, directory: Path) -> None:
        """Kill everything that was started under a directory, shim included; returns when nothing of it runs."""
        over = self._ending.get(directory)
        if over is None:
            over = self._ending[directory] = asyncio.get_running_loop().create_future()
            if len(self._ending) == 1:
                self._keep(self._end_all())
        await asyncio.shield(over)

    async def _end_all(self) -> None:
        """One look at the host's processes serves all ranks that have ended by then: it costs more than anything else at a rank's end."""
        while self._ending:
            await asyncio.sleep(0)
            left = traces.kill_all_of(self._ending)
            for directory in self._ending.keys() - left:
                self._ending.pop(directory).set_result(None)
            if left:
                await asyncio.sleep(_LOOK_AGAIN_S)

    def _clock_time(self, real_at: float) -> float:
        """A real time of the past by this agent's clock, which may run faster."""
        ago_s = max(0.0, time.time() - real_at - TICK_S)
        return self._clock.now() - ago_s / (self._clock.real_delay_s(1.0) or 1.0)

    def signal(self, directory: Path, name: str) -> None:
        """Send a signal to a rank's process group; `KILL` to everything it ever started. The shim lives on to note the end."""
        number = Signals.__members__.get(f"SIG{name.removeprefix('SIG')}")
        if number is None:
            log.warning("there is no signal %s here; TERM is sent instead", name)
            number = SIGTERM
        (directory / ASKED).touch()
        self._keep(self._signal(directory, number))

    async def _signal(self, directory: Path, number: Signals) -> None:
        """A rank that has just been started may not have its group yet: look again, for a short while."""
        for _ in range(_LOOKS):
            if directory not in self._watched:
                return
            shim = traces.read_shim(directory)
            if shim is not None:
                hit = traces.signal_group(directory, shim, number)
                if number is SIGKILL:
                    hit = traces.kill_all(directory, spare=shim.pid) > 0 or hit
                if hit:
                    return
            await asyncio.sleep(_LOOK_AGAIN_S)
        log.warning("no process of %s took the signal %s", directory, number.name)

    def _keep(self, work: "asyncio._CoroutineLike[None]") -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        """Stop watching. Everything that runs goes on."""
        loop = asyncio.get_running_loop()
        for descriptor in self._watched.values():
            loop.remove_reader(descriptor)
            os.close(descriptor)
        self._watched.clear()
        for task in self._tasks:
            task.cancel()


def to_read(data: bytes) -> int:
    """A descriptor that reads so much, and is none of those that a shim is given. No file that anybody else could read has it."""
    memory = os.memfd_create("given")
    view = memoryview(data)
    while view:
        view = view[os.write(memory, view) :]
    os.lseek(memory, 0, os.SEEK_SET)
    return _out_of_the_way(memory)


def _namespace(pid: int | None, name: str) -> int:
    """A descriptor of a namespace of a process. Raises `OSError`."""
    mounts = name == OWNER
    found = os.open(f"/proc/{pid}/ns/{'mnt' if mounts else name}", os.O_RDONLY | os.O_CLOEXEC)
    if not mounts:
        return _out_of_the_way(found)
    try:
        return _out_of_the_way(fcntl.ioctl(found, NS_GET_USERNS))
    finally:
        os.close(found)


def _out_of_the_way(descriptor: int) -> int:
    """The same under a number that is none of those that what is started is given."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, LOCK_DESCRIPTOR + 1)
    finally:
        os.close(descriptor)
