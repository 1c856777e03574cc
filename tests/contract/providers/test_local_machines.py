"""Local machines die as machines die: with every process on them, whatever ends the machine and however a process tries to stay.

Everything here is real processes. Each test's processes are found by an argument that no other process has.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from federator.kernel.clock import Clock, ManualClock, ScaledClock
from federator.model.capacity import InstanceStatus, LaunchRequest
from federator.ports import Provider
from federator_providers.local import interrupt, machine
from federator_providers.local import provider as local_provider
from federator_providers.local.folder import TAG, InstanceFolder
from federator_providers.local.processes import kill_tagged
from tests.support.waiting import until

ESCAPE = """
import os, subprocess, sys
mark = sys.argv[1]
stay = ["sleep", mark]
subprocess.Popen(stay)                                                             # an ordinary child
subprocess.Popen(stay, start_new_session=True)                                     # a session of its own
subprocess.Popen(["/bin/sh", "-c", f"trap '' TERM HUP INT; while :; do sleep {mark}; done"])  # deaf
subprocess.run(["/bin/sh", "-c", f"setsid setsid sleep {mark} & setsid sleep {mark} &"])      # orphans
subprocess.Popen(["env", "-i", "/usr/bin/setsid", "-f", "sleep", mark])           # a daemon without environment
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", stay)                                                   # forked twice
    os._exit(0)
open("escaped", "w").close()
subprocess.run(stay)
"""


@dataclass
class World:
    """A state folder, and a sleeping time that marks this test's processes."""

    state_dir: Path
    mark: str

    def provider(self, clock: Clock, *command: str, boot_delay: str = "0s", **settings: object) -> Provider:
        offers = [{"instance_type": "a2-highgpu-1g", "boot_delay": boot_delay, "max_instances": 4}]
        return local_provider(
            "p", {"state_dir": str(self.state_dir), "command": command, "offers": offers, **settings}, clock
        )

    async def launch(self, provider: Provider, name: str = "m", user_data: str = "") -> InstanceFolder:
        (offer,) = await provider.offers()
        await provider.launch(LaunchRequest(name, offer, "lab", {}, user_data))
        return InstanceFolder(self.state_dir / name)

    def sleepers(self) -> list[int]:
        """Living processes on the machines of this test."""
        return [pid for pid in processes() if self.mark in command_line(pid) and "sleep" in command_line(pid)]

    def machine_processes(self, name: str = "m") -> list[int]:
        """Chassis and board, in this order."""
        path = str(self.state_dir / name)
        found = [pid for pid in processes() if command_line(pid)[-1:] == [path]]
        return sorted(found, key=lambda pid: parent(pid) in found)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "machines", f"97{secrets.randbelow(10**7):07}")
    yield made
    for folder in made.state_dir.iterdir() if made.state_dir.exists() else ():
        kill_tagged(TAG, str(folder))
    for pid in made.sleepers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended since it was listed
        return 0


async def ended(provider: Provider, name: str = "m") -> float:
    """Wait for the end of a machine: when it was."""

    async def end() -> float | None:
        (found,) = [each for each in await provider.instances("lab") if each.name == name]
        return found.ended_at if found.status == InstanceStatus.ENDED else None

    return float(await until(end, f"the end of {name}"))


async def with_escapees(world: World, clock: Clock) -> tuple[Provider, InstanceFolder]:
    provider = world.provider(clock, sys.executable, "-c", ESCAPE, world.mark)
    folder = await world.launch(provider)
    await until(lambda: (folder.home / "escaped").exists() and len(world.sleepers()) >= 8)
    return provider, folder


async def test_terminate_ends_every_process(world: World) -> None:
    provider, _ = await with_escapees(world, ManualClock())
    await provider.terminate("m")
    await ended(provider)
    assert world.sleepers() == []
    assert world.machine_processes() == []


@pytest.mark.parametrize("victim", [0, 1], ids=["chassis", "board"])
async def test_killing_either_half_of_the_machine_ends_every_process(world: World, victim: int) -> None:
    _, _ = await with_escapees(world, ManualClock())
    os.kill(world.machine_processes()[victim], signal.SIGKILL)
    await until(lambda: world.sleepers() == [])  # nobody lists: the other half does it
    await until(lambda: world.machine_processes() == [])


@pytest.mark.parametrize("kills", [0, 1, 2])
async def test_a_half_that_is_killed_while_it_switches_off_leaves_no_machine_that_is_on(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kills: int
) -> None:
    """Each half dies after so many of the kills that switch the others off, which it has stopped before."""
    program = tmp_path / "python"
    program.write_text(
        f"""#!{sys.executable}
import os, signal, sys
from pathlib import Path
from federator_providers.local import machine
send, left = os.kill, {kills}
def kill(pid, number):
    global left
    if number == signal.SIGKILL:
        left -= 1
        if left < 0:
            pid = os.getpid()
    send(pid, number)
os.kill = kill
machine.main(Path(sys.argv[-1]))
"""
    )
    program.chmod(0o755)
    provider = world.provider(ManualClock(), "/bin/sh", "-c", f"sleep {world.mark} & sleep {world.mark}")
    monkeypatch.setattr(sys, "executable", str(program))
    await world.launch(provider)
    monkeypatch.undo()
    await until(lambda: len(world.sleepers()) >= 2)
    await provider.terminate("m")
    await ended(provider)
    assert world.sleepers() == []
    assert world.machine_processes() == []


async def test_what_both_halves_leave_behind_is_ended_by_the_next_listing(world: World) -> None:
    tree = f"setsid sleep {world.mark} & (setsid sh -c 'trap \"\" TERM; sleep {world.mark}; :' &) ; sleep {world.mark}"
    provider = world.provider(ManualClock(), "/bin/sh", "-c", tree)
    await world.launch(provider)
    await until(lambda: len(world.sleepers()) == 3)
    halves = world.machine_processes()
    for pid in halves:
        os.kill(pid, signal.SIGSTOP)
    for pid in halves:
        os.kill(pid, signal.SIGKILL)
    await until(lambda: world.machine_processes() == [])
    assert len(world.sleepers()) == 3  # so that the listing has something to do
    await ended(provider)
    assert world.sleepers() == []


async def test_a_fork_storm_is_ended(world: World) -> None:
    storm = f"while :; do setsid sleep {world.mark} & sleep 0.01; done"
    provider = world.provider(ManualClock(), "/bin/sh", "-c", storm)
    await world.launch(provider)
    await until(lambda: len(world.sleepers()) >= 20)
    await provider.terminate("m")
    await ended(provider)
    assert world.sleepers() == []


async def test_a_machine_ends_with_its_command(world: World) -> None:
    provider = world.provider(ManualClock(), "/bin/sh", "-c", f"setsid sleep {world.mark} & exit 3")
    await world.launch(provider)
    await ended(provider)
    assert world.sleepers() == []


async def test_a_command_that_cannot_start_ends_the_machine_and_says_why(world: World) -> None:
    provider = world.provider(ManualClock(), "/no/such/program")
    folder = await world.launch(provider)
    await ended(provider)
    assert "/no/such/program" in folder.console_file.read_text()


async def test_a_machine_survives_the_death_of_who_launched_it(world: World) -> None:
    program = f"""
import asyncio, os, signal
from federator.kernel.clock import ManualClock
from federator.model.capacity import LaunchRequest
from federator_providers.local import provider
async def main():
    p = provider("p", {{"state_dir": {str(world.state_dir)!r}, "command": ["sleep", {world.mark!r}],
                        "offers": [{{"instance_type": "a2-highgpu-1g"}}]}}, ManualClock())
    (offer,) = await p.offers()
    await p.launch(LaunchRequest("m", offer, "lab", {{}}, ""))
    os.killpg(0, signal.SIGKILL)
asyncio.run(main())
"""
    dispatcher = await asyncio.create_subprocess_exec(sys.executable, "-c", program, start_new_session=True)
    assert await dispatcher.wait() == -signal.SIGKILL
    provider = world.provider(ManualClock(), "unused")
    await until(lambda: len(world.sleepers()) == 1)
    (found,) = await provider.instances("lab")
    assert found.status == InstanceStatus.RUNNING
    await provider.terminate("m")
    await ended(provider)
    assert world.sleepers() == []


async def test_a_launch_that_was_cut_short_is_finished_by_the_next_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = world.provider(ManualClock(), "sleep", world.mark)
    monkeypatch.setattr(sys, "executable", "/bin/true")  # written down, never switched on
    folder = await world.launch(provider)
    assert not folder.started_file.exists()
    monkeypatch.undo()
    (offer,) = await provider.offers()
    await provider.launch(LaunchRequest("m", offer, "lab", {}, ""))
    await until(lambda: len(world.sleepers()) == 1)


async def test_a_launch_that_was_cut_short_is_finished_by_a_later_listing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = world.provider(ManualClock(), "sleep", world.mark)
    monkeypatch.setattr(sys, "executable", "/bin/true")
    folder = await world.launch(provider)
    monkeypatch.undo()
    os.utime(folder.record_file)
    await provider.instances("lab")
    assert not folder.started_file.exists()  # its launcher may still be at it
    os.utime(folder.record_file, (time.time() - 60, time.time() - 60))
    await provider.instances("lab")
    await until(lambda: len(world.sleepers()) == 1)


async def test_switching_on_twice_runs_the_command_once(world: World) -> None:
    provider = world.provider(ManualClock(), "/bin/sh", "-c", f"echo on >> runs; sleep {world.mark}")
    folder = await world.launch(provider)
    await until(lambda: len(world.sleepers()) >= 1)
    await provider.terminate("m")
    await ended(provider)
    again = subprocess.run([sys.executable, "-m", machine.__name__, str(folder.path)], check=False)
    assert again.returncode == 0
    assert (folder.home / "runs").read_text() == "on\n"
    assert world.machine_processes() == []


async def test_user_data_is_handed_over_in_a_private_file_and_dropped_at_the_end(world: World) -> None:
    script = f'cp "$FEDERATOR_USER_DATA_FILE" copy; sleep {world.mark}'
    provider = world.provider(ManualClock(), "/bin/sh", "-c", script)
    folder = await world.launch(provider, user_data="join-token")
    await until(lambda: len(world.sleepers()) >= 1)
    assert (folder.home / "copy").read_text() == "join-token"
    assert stat.S_IMODE(folder.user_data_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    await provider.terminate("m")
    await ended(provider)
    assert not folder.user_data_file.exists()


async def test_a_machine_sees_its_own_settings_and_nothing_of_the_dispatchers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDERATOR_TOKEN", "of-the-dispatcher")
    provider = world.provider(
        ManualClock(), "/bin/sh", "-c", f"env > seen; sleep {world.mark}", "{name}", env={"COLOUR": "red"}
    )
    folder = await world.launch(provider)
    await until(lambda: len(world.sleepers()) >= 1)
    seen = dict(line.split("=", 1) for line in (folder.home / "seen").read_text().splitlines() if "=" in line)
    assert seen["COLOUR"] == "red"
    assert seen["FEDERATOR_INSTANCE"] == "m"
    assert seen["PWD"] == str(folder.home)
    assert seen["FEDERATOR_AGENT_STATE_DIR"] == str(folder.home)
    assert seen[TAG] == str(folder.path)
    assert "FEDERATOR_TOKEN" not in seen


async def test_the_blanks_in_the_command_are_filled_in(world: World) -> None:
    provider = world.provider(ManualClock(), "/bin/sh", "-c", 'echo "$@" > said', "-", "{name}", "{home}/x")
    folder = await world.launch(provider)
    await ended(provider)
    assert (folder.home / "said").read_text() == f"m {folder.home}/x\n"


async def test_a_machine_that_is_taken_back_dies_whole(world: World) -> None:
    provider, _ = await with_escapees(world, ManualClock())
    interrupt(world.state_dir, "m")
    await ended(provider)
    await until(lambda: world.sleepers() == [] and world.machine_processes() == [])


async def test_a_machine_goes_off_when_its_folder_is_taken_away(world: World) -> None:
    provider = world.provider(ManualClock(), "sleep", world.mark)
    folder = await world.launch(provider)
    await until(lambda: len(world.sleepers()) == 1)
    folder.delete()
    await until(lambda: world.sleepers() == [] and world.machine_processes() == [])


async def test_a_machine_boots_as_late_as_its_offer_says(world: World) -> None:
    clock = ScaledClock(factor=100.0, origin_at=time.time())
    provider = world.provider(clock, "sleep", world.mark, boot_delay="150s")
    folder = await world.launch(provider)
    await until(lambda: len(world.sleepers()) == 1)
    assert folder.running_file.stat().st_mtime - folder.started_file.stat().st_mtime >= 1.49


async def test_the_end_is_dated_by_the_machine_and_not_by_who_noticed(world: World) -> None:
    clock = ScaledClock(factor=100.0, origin_at=time.time())
    provider = world.provider(clock, "sleep", world.mark)
    folder = await world.launch(provider)
    await until(lambda: len(world.sleepers()) == 1)
    chassis, board = world.machine_processes()
    killed_at = clock.now()
    os.kill(chassis, signal.SIGSTOP)
    os.kill(board, signal.SIGKILL)
    os.kill(chassis, signal.SIGKILL)
    dead_at = clock.now()
    await asyncio.sleep(2.0)  # the provider is away, for 200 seconds of its clock
    ended_at = await ended(provider)
    # It is dated by its last sign of life, which is old where the machine was kept waiting for a processor.
    assert killed_at - 1000.0 <= ended_at <= dead_at + machine.TICK_S * clock.factor
    assert folder.ended_at() == ended_at
    (later,) = await world.provider(clock, "unused").instances("lab")
    assert later.ended_at == ended_at


async def test_a_bill_does_not_fall_when_a_machine_proves_to_have_been_dead(world: World) -> None:
    """Its other half still holds the lock, so that it counts as on: what is billed meanwhile is no more than is known."""
    clock = ScaledClock(factor=1000.0, origin_at=time.time())
    provider = world.provider(clock, "sleep", world.mark)
    await world.launch(provider)
    await until(lambda: len(world.sleepers()) == 1)
    chassis, board = world.machine_processes()
    os.kill(board, signal.SIGSTOP)
    os.kill(chassis, signal.SIGKILL)
    dead_at = clock.now()
    await until(lambda: clock.now() > dead_at + 1000.0)
    (meanwhile,) = await provider.instances("lab")
    assert meanwhile.ended_at is None
    os.kill(board, signal.SIGKILL)
    await ended(provider)
    (after,) = await provider.instances("lab")
    assert after.billed_usd == pytest.approx(meanwhile.billed_usd)


async def test_no_machine_ends_before_its_launch(world: World) -> None:
    clock = ScaledClock(factor=100.0, origin_at=time.time())
    provider = world.provider(clock, "sleep", world.mark)
    folder = await world.launch(provider)
    await until(lambda: len(world.sleepers()) == 1)
    os.kill(world.machine_processes()[0], signal.SIGKILL)
    await until(lambda: world.machine_processes() == [])
    os.utime(folder.heartbeat_file, (time.time() - 3600.0, time.time() - 3600.0))  # a clock set back
    assert await ended(provider) == (await provider.instances("lab"))[0].launched_at


async def test_long_ended_machines_are_forgotten(world: World) -> None:
    clock = ManualClock()
    provider = world.provider(clock, "/bin/true", keep_ended="2h")
    folder = await world.launch(provider)
    await ended(provider)
    clock.advance(7201)
    assert await provider.instances("lab") == []
    assert not folder.path.exists()
