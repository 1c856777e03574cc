"""What a tunnel may rely on where a host's jobs run in images, by a real podman."""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from federator.wire import tunnel
from federator.wire.tunnel import STDIN, STDOUT, Exec, Forward, Size
from federator_agent.core.state import PlacementRecord
from federator_agent.images import Engine, Images, Pull
from federator_agent.local.runtime import LocalRuntime
from federator_agent.runtime import Channel, Runtime, Surroundings
from tests.contract.runtimes.test_entering import HOLD, SERVE_IN_BUSYBOX, done, heard, running, stop
from tests.contract.runtimes.world import RuntimeWorld, Site
from tests.support.waiting import until
from tests.testbeds.podman import IMAGE, Podman, missing
from tests.testbeds.required import need


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    need(missing())
    made = Podman(Path(tempfile.mkdtemp(prefix="podman-")))
    yield made
    made.end()


@pytest.fixture
async def world(tmp_path: Path, podman: Podman) -> AsyncIterator[RuntimeWorld]:
    def make(around: Surroundings) -> Runtime:
        path = {"PATH": f"{podman.programs}:{os.environ['PATH']}"}
        engine = Images(engine=Engine.PODMAN, pull=Pull.NEVER)
        return LocalRuntime(around._replace(images=engine, environment=path))

    made = RuntimeWorld(tmp_path, Site(make, "cpu"))
    made.begin()
    yield made
    await made.close()


async def entered(world: RuntimeWorld, record: PlacementRecord, *command: str, tty: bool = False) -> Channel:
    request = Exec(command, tty=tty, term="vt100" if tty else "", size=Size(120, 40))
    return await world.runtime.enter(record, world.spec(HOLD, image=IMAGE), 0, request)


async def test_a_command_is_in_the_image_with_the_rights_of_the_job(world: RuntimeWorld) -> None:
    said = "pwd; echo $FEDERATOR_JOB_ID $PATH; grep -e CapEff -e NoNewPrivs -e ^Uid /proc/self/status"
    record = await running(world, f"{said}; echo it runs; touch here; sleep 600", image=IMAGE)
    out, errors, code = await done(world, record, f"{said}; ls; cat; echo wrong >&2; exit 7", b"in\n")
    assert (out, errors, code) == (
        world.log(record).replace("it runs\n", "") + "here\nin\n",
        "wrong\n",
        7,
    )
    assert (await done(world, record, "kill -9 $$"))[2] == 137
    await stop(world, record)


async def test_a_terminal_is_one_and_who_hangs_up_ends_it(world: RuntimeWorld) -> None:
    record = await world.run(world.spec(HOLD, image=IMAGE))
    channel = await entered(world, record, "/bin/sh", tty=True)  # its container may be to come
    await channel.send(bytes((STDIN,)) + b"stty size; echo $TERM\n")
    said, _ = await heard(channel, b"vt100")
    assert b"40 120" in said[STDOUT]
    await channel.send(tunnel.resize_frame(Size(99, 33)))
    await channel.send(
        bytes((STDIN,))
        + b"until stty size | grep '33 99'; do :; done; sh -c 'echo sle\"\"eps; exec sleep 600'\n"
    )
    await heard(channel, b"sleeps")
    await channel.send(bytes((STDIN,)) + b"\x03")
    await channel.send(bytes((STDIN,)) + b"echo code-$?; exec sleep 4711\n")
    await heard(channel, b"code-130")
    piped = await entered(world, record, "/bin/sh", "-c", "echo begun; exec sleep 4711")
    await heard(piped, b"begun")
    channel.close()
    piped.close()

    async def gone() -> bool:
        return "sleep 4711" not in (await done(world, record, "ps -o args"))[0]

    await until(gone, "both to end")
    await stop(world, record)


async def test_it_ends_with_the_job_and_its_port_is_reached(world: RuntimeWorld) -> None:
    record = await running(world, SERVE_IN_BUSYBOX, "is open", image=IMAGE)
    through = await world.runtime.enter(record, world.spec(HOLD, image=IMAGE), 0, Forward(4711))
    await through.send(bytes((STDIN,)) + b"shout")
    assert (await heard(through))[0][STDOUT] == b"SHOUT"
    through.close()
    channel = await entered(world, record, "/bin/sh", "-c", "trap '' HUP TERM; echo begun; exec sleep 600")
    await heard(channel, b"begun")
    await stop(world, record)
    assert (await heard(channel))[1] != 0
    channel.close()
