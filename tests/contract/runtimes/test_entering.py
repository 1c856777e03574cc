"""What a tunnel may rely on, whatever runs the work: a command beside the job's, as its user and in its surroundings, that ends with it at the latest."""

import asyncio
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from federator.kernel.errors import FederatorError
from federator.model.jobs import ON_ONE_HOST, Accelerators, PlacementConstraints, Resources
from federator.wire import tunnel
from federator.wire.tunnel import (
    CLOSE,
    DATA_BYTES,
    END,
    STDERR,
    STDIN,
    STDIN_ENDS,
    STDOUT,
    Exec,
    Forward,
    Size,
)
from federator_agent.core import events as ev
from federator_agent.core.state import PlacementRecord
from federator_agent.runtime import Channel
from federator_agent.slurm.settings import Account
from tests.contract.runtimes import factories_slurm
from tests.contract.runtimes.test_runtime_contract import world
from tests.contract.runtimes.world import RuntimeWorld
from tests.support.waiting import PATIENCE_S, until
from tests.testbeds.required import need

__all__ = ["world"]
LOCAL = ["local", "local-users", "local-sandbox"]
MANY_BYTES = 8 * 2**20
HOLD = "echo it runs; touch here; until [ -e stop ]; do sleep 0.1; done"
SERVE = """exec python3 -uc 'import socket as s
l = s.create_server(("127.0.0.1", 0)); print("port", l.getsockname()[1], "is open", flush=True)
while True:
    c, _ = l.accept(); c.sendall(c.recv(100).upper()); c.close()'
"""
SERVE_IN_BUSYBOX = """nc -ll -p 4711 -e /bin/sh -c 'head -c 5 | tr a-z A-Z' &
until netstat -ltn | grep -q :4711; do sleep 0.1; done
echo port 4711 is open; wait"""


async def running(
    world: RuntimeWorld, run: str = HOLD, said: str = "it runs", **fields: Any
) -> PlacementRecord:
    record = await world.run(world.spec(run, **fields))
    await world.has_written(record, said)
    return record


async def entered(world: RuntimeWorld, record: PlacementRecord, *command: str, **fields: Any) -> Channel:
    return await world.runtime.enter(record, world.spec(HOLD), 0, Exec(command, **fields))


async def heard(channel: Channel, until_said: bytes = b"") -> tuple[dict[int, bytes], int | None]:
    """What it says on each channel, and its exit code; up to some words if they are given."""
    said: dict[int, bytes] = {STDOUT: b"", STDERR: b""}
    async with asyncio.timeout(PATIENCE_S):
        while (frame := await channel.receive()) is not None and frame[0] != END:
            said[frame[0]] += frame[1:]
            if until_said and until_said in said[STDOUT]:
                return said, None
    assert frame is not None
    end = tunnel.read_end(frame)
    assert end.error == ""
    return said, end.exit_code


async def done(
    world: RuntimeWorld, record: PlacementRecord, script: str, given: bytes = b""
) -> tuple[str, str, int]:
    """Run a script to its end: output, errors, exit code."""
    channel = await entered(world, record, "/bin/sh", "-c", script)
    try:
        if given:
            await channel.send(bytes((STDIN,)) + given)
        await channel.send(STDIN_ENDS)
        said, code = await heard(channel)
    finally:
        channel.close()
    assert code is not None
    return said[STDOUT].decode(), said[STDERR].decode(), code


async def stop(world: RuntimeWorld, record: PlacementRecord) -> None:
    world.runtime.signal(record.entry.placement, record.entry.ranks, "KILL")
    await world.over(record)


async def test_input_goes_in_and_output_errors_and_exit_code_come_out(world: RuntimeWorld) -> None:
    record = await running(world)
    assert await done(world, record, "cat; echo wrong >&2; exit 7", b"in\n") == ("in\n", "wrong\n", 7)
    assert await done(world, record, "kill -9 $$") == ("", "", 137)
    await stop(world, record)


async def test_much_goes_through_as_it_is(world: RuntimeWorld) -> None:
    record = await running(world)
    channel = await entered(world, record, "cat")
    given = os.urandom(MANY_BYTES)

    async def feed() -> None:
        for at in range(0, len(given), DATA_BYTES):
            await channel.send(bytes((STDIN,)) + given[at : at + DATA_BYTES])
        await channel.send(STDIN_ENDS)

    feeding = asyncio.create_task(feed())
    said, code = await heard(channel)
    await feeding
    channel.close()
    assert (said[STDOUT] == given, code) == (True, 0)
    await stop(world, record)


async def test_what_has_no_end_of_line_comes_at_once(world: RuntimeWorld) -> None:
    record = await running(world)
    channel = await entered(world, record, "/bin/sh", "-c", "printf password:; read -r word; echo $word")
    await heard(channel, b"password:")
    await channel.send(bytes((STDIN,)) + b"secret\n")
    assert await heard(channel) == ({STDOUT: b"secret\n", STDERR: b""}, 0)
    channel.close()
    await stop(world, record)


async def test_it_is_the_jobs_user_in_the_jobs_folder_with_the_jobs_variables(world: RuntimeWorld) -> None:
    said = "id -u; id -G; pwd; echo $FEDERATOR_JOB_ID $ODD; grep NoNewPrivs /proc/self/status; umask"
    record = await running(world, f"{said}; echo it runs; touch here; sleep 600", env={"ODD": "a 'b"})
    channel = await world.runtime.enter(
        record, world.spec("", env={"ODD": "a 'b"}), 0, Exec(("/bin/sh", "-c", f"{said}; ls"))
    )
    out, code = await heard(channel)
    channel.close()
    assert code == 0
    assert out[STDOUT].decode() == world.log(record).replace("it runs\n", "") + "here\n"
    await stop(world, record)


async def test_it_sees_the_jobs_processes_and_they_see_it(world: RuntimeWorld) -> None:
    record = await running(world, "echo it runs; echo mark > /tmp/mark-of-test; exec sleep 4711")
    out, _, code = await done(world, record, "cat /tmp/mark-of-test; ps ax")
    assert (code, out.startswith("mark\n"), "sleep 4711" in out) == (0, True, True)
    await stop(world, record)


async def test_a_terminal_is_one(world: RuntimeWorld) -> None:
    record = await running(world)
    channel = await entered(world, record, "/bin/sh", tty=True, term="vt100", size=Size(120, 40))
    try:
        await channel.send(bytes((STDIN,)) + b"stty size; echo $TERM; : >/dev/tty && echo tty-$((6 * 7))\n")
        said, _ = await heard(channel, b"tty-42")
        assert b"40 120\r\nvt100\r\n" in said[STDOUT]
        await channel.send(tunnel.resize_frame(Size(99, 33)))

        async def is_resized() -> bool:
            """Slurm passes it on by a way of its own, beside what is typed."""
            await channel.send(bytes((STDIN,)) + b"stty size; echo asked-$((6 * 7))\n")
            said, _ = await heard(channel, b"asked-42")
            return b"33 99" in said[STDOUT]

        await until(is_resized, "the new size")
        await channel.send(bytes((STDIN,)) + b"sh -c 'echo sle\"\"eps; exec sleep 600'\n")
        await heard(channel, b"sleeps")
        await channel.send(bytes((STDIN,)) + b"\x03")
        await channel.send(bytes((STDIN,)) + b"echo code-$?; exit 5\n")
        said, code = await heard(channel)
        assert (b"code-130" in said[STDOUT], code) == (True, 5)
    finally:
        channel.close()
    await stop(world, record)


async def test_what_a_command_starts_in_the_background_can_be_interrupted(world: RuntimeWorld) -> None:
    """A shell that ignores INT itself would pass that on."""
    record = await running(world)
    out, _, _ = await done(world, record, "grep -e SigIgn /proc/self/status; :")
    assert int(out.split()[1], 16) & 0x7FFFFFFF == 0
    await stop(world, record)


@pytest.mark.parametrize("tty", [False, True])
async def test_who_hangs_up_ends_the_command(world: RuntimeWorld, *, tty: bool) -> None:
    record = await running(world)
    channel = await entered(world, record, "/bin/sh", "-c", "echo begun; exec sleep 4711", tty=tty)
    await heard(channel, b"begun")
    channel.close()

    async def gone() -> bool:
        return "sleep 4711" not in (await done(world, record, "ps ax -o args"))[0]

    await until(gone, "the command to end")
    await stop(world, record)


async def test_it_ends_with_the_job(world: RuntimeWorld) -> None:
    record = await running(world)
    channel = await entered(world, record, "/bin/sh", "-c", "trap '' HUP TERM; echo begun; exec sleep 600")
    await heard(channel, b"begun")
    await stop(world, record)
    _, code = await heard(channel)
    assert code != 0
    channel.close()


@pytest.mark.parametrize("world", LOCAL, indirect=True)
async def test_what_is_left_behind_does_not_hold_the_end_back(world: RuntimeWorld) -> None:
    record = await running(world)
    out, _, code = await done(world, record, "sleep 600 & echo ended")
    assert (out, code) == ("ended\n", 0)
    await stop(world, record)


async def test_a_port_of_the_job_is_reached_and_one_where_nobody_listens_is_not(world: RuntimeWorld) -> None:
    record = await running(world, SERVE_IN_BUSYBOX if world.site.pool == "a100" else SERVE, "is open")
    port = int(world.log(record).split()[1])
    channel = await world.runtime.enter(record, world.spec(SERVE), 0, Forward(port))
    await channel.send(bytes((STDIN,)) + b"shout")
    said, code = await heard(channel)
    assert (said[STDOUT], code) == (b"SHOUT", None)
    await channel.send(bytes((CLOSE, STDIN)))
    channel.close()
    assert "nothing of the job listens on port 1 " in await refusal(world, record, 1)
    await stop(world, record)
    assert world.count(ev.RankEnded, record) == 1


async def refusal(world: RuntimeWorld, record: PlacementRecord, port: int) -> str:
    """How a connection to a port is refused: before it stands, or as its end."""
    try:
        channel = await world.runtime.enter(record, world.spec(HOLD), 0, Forward(port))
    except FederatorError as error:
        return error.describe()
    frame = await asyncio.wait_for(channel.receive(), PATIENCE_S)
    channel.close()
    assert frame is not None
    return tunnel.read_end(frame).error


@pytest.mark.parametrize("world", ["slurm"], indirect=True)
async def test_each_rank_of_a_node_is_entered_with_its_own_devices(world: RuntimeWorld) -> None:
    gpus = Accelerators(count=2)
    need = {
        "nodes": 2,
        "resources": Resources(cpus_milli=10, gpus=gpus),
        "placement": PlacementConstraints(together=ON_ONE_HOST),
    }
    spec = world.spec("echo it has $CUDA_VISIBLE_DEVICES; sleep 600", **need)
    record = await world.run(spec, ranks=(0, 1))
    seen = []
    for rank in (0, 1):
        await world.has_written(record, "it has", rank)
        command = ("/bin/sh", "-c", "echo it has $CUDA_VISIBLE_DEVICES; echo $FEDERATOR_NODE_RANK")
        channel = await world.runtime.enter(record, spec, rank, Exec(command))
        said, _ = await heard(channel)
        channel.close()
        assert said[STDOUT].decode() == f"{world.log(record, rank)}{rank}\n"
        seen.append(world.log(record, rank))
    assert len(set(seen)) == 2
    await stop(world, record)


@pytest.mark.parametrize("world", LOCAL, indirect=True)
async def test_ports_of_others_on_the_host_are_not_reached(world: RuntimeWorld) -> None:
    record = await running(world)
    others = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with others:
        port = others.sockets[0].getsockname()[1]
        assert f"nothing of the job listens on port {port} " in await refusal(world, record, port)
    await stop(world, record)


async def test_at_slurm_a_job_of_another_user_has_that_users_rights_and_so_has_who_enters_it(
    tmp_path: Path,
) -> None:
    """Slurm would give it the group of the agent, which is root there."""
    need(factories_slurm.lacking())
    queues = {"theirs": Account(user="nobody")}
    world = RuntimeWorld(tmp_path, factories_slurm.site(queues=queues))
    world.begin()
    try:
        spec = world.spec("id -u; id -g; id -G; echo it runs; sleep 600")
        record = await world.run(spec, queue="theirs")
        await world.has_written(record, "it runs")
        out, errors, code = await done(world, record, "id -u; id -g; id -G")
        user = pwd.getpwnam("nobody")
        assert (out, errors, code) == (f"{user.pw_uid}\n{user.pw_gid}\n{user.pw_gid}\n", "", 0)
        assert world.log(record) == f"{out}it runs\n"
        await stop(world, record)
    finally:
        await world.close()
