"""What a job inherits from the agent that starts it, or finds among the devices of its user: nothing that opens anything.

A descriptor and a terminal are rights without a name in the file system, so no mount hides them.
"""

import os
import pty
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federator.model.jobs import JobSpec
from federator_agent import staging
from federator_agent.local.confinement import keep_descriptors
from tests.attacks.test_processes_apart import MODES
from tests.contract.runtimes.world import RuntimeWorld
from tests.testbeds.required import need

LEASE_AND_GROW = """
import fcntl, os, signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
os.write(1, b"it begins\\n")
os.ftruncate(1, 2**40)
fcntl.fcntl(1, fcntl.F_SETLEASE, fcntl.F_WRLCK)
"""


@pytest.fixture(params=list(MODES))
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RuntimeWorld]:
    factory = MODES[request.param]
    need(factory.lacking())
    world = RuntimeWorld(tmp_path, factory.site())
    world.begin()
    yield world
    await world.close()


async def _said(world: RuntimeWorld, spec: JobSpec) -> str:
    record = await world.run(spec, owner="eve")
    await world.over(record)
    return world.log(record)


def _python(program: str) -> str:
    return f"exec /usr/bin/python3 -c {shlex.quote(program)}"


async def test_terminals_of_the_agents_user_are_not_its_jobs(world: RuntimeWorld) -> None:
    """In a sandbox a job has the agent's user: it could read what is typed in that user's other sessions."""
    ours, theirs = pty.openpty()
    name = os.ttyname(theirs)
    os.write(ours, b"what is typed\n")
    try:
        said = await _said(
            world,
            world.spec(
                f"head -n 1 <{name}; ls /dev/pts; echo well >/dev/null; head -c 1 /dev/urandom | wc -c"
            ),
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert "what is typed" not in said
    assert "1\n" in said


async def test_a_job_can_open_terminals_of_its_own(world: RuntimeWorld) -> None:
    program = "import pty, os; a, b = pty.openpty(); print('opened', os.ttyname(b))"
    assert "opened /dev/pts/" in await _said(world, world.spec(_python(program)))


def test_what_the_agent_was_started_with_is_passed_on_to_nobody() -> None:
    """Whatever starts the agent may have left it descriptors, a supervisor's socket for one."""
    read_end, write_end = os.pipe()
    os.set_inheritable(read_end, True)
    try:
        keep_descriptors()
        assert not os.get_inheritable(read_end)
        assert all(os.get_inheritable(number) for number in (1, 2))
    finally:
        os.close(read_end)
        os.close(write_end)


async def test_the_log_of_a_set_up_is_read_in_parts(
    world: RuntimeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set-up that makes its log a terabyte long, and takes a lease of it, neither fills the agent's memory nor has it wait."""
    shown: list[int] = []
    note = staging.append_note

    def noted(log_file: Path, data: bytes) -> None:
        shown.append(len(data))
        note(log_file, data)

    monkeypatch.setattr(staging, "append_note", noted)
    spec = world.spec("true", setup=f"{_python(LEASE_AND_GROW)}")
    record = await world.run(spec, owner="eve")
    await world.over(record)
    assert sum(shown) <= staging.SAID_BYTES
    assert "it begins" in world.log(record)
