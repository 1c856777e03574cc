"""What a command in a running job may rely on where apptainer or enroot runs its image: they take nobody in, so it has a container of its own.

A stand-in for apptainer takes the real one's words and runs the command on this host.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federator.wire.tunnel import STDIN, STDIN_ENDS, STDOUT, Exec, Size
from federator_agent.images import Engine, Images
from federator_agent.runtime import Runtime, Surroundings
from tests.contract.runtimes import factories_local, factories_slurm
from tests.contract.runtimes.test_entering import heard, running, stop
from tests.contract.runtimes.world import RuntimeWorld, Site
from tests.testbeds.required import need

KINDS = {"local": factories_local, "slurm": factories_slurm}
IMAGE = "lab/img:1"
SAID = "echo $FEDERATOR_JOB_ID; ls"
STAND_IN = """#!/bin/sh
# apptainer exec [OPTIONS] docker://IMAGE COMMAND...
[ "$1" = exec ] || exit 255
while [ "${1#docker://}" = "$1" ]; do
    case $1 in --pwd=*) cd "${1#--pwd=}" || exit 255 ;; esac
    shift
done
shift
exec "$@"
"""


@pytest.fixture(params=KINDS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RuntimeWorld]:
    need(KINDS[request.param].lacking())
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "apptainer").write_text(STAND_IN)
    (programs / "apptainer").chmod(0o755)
    site: Site = KINDS[request.param].site()

    def make(around: Surroundings) -> Runtime:
        path = {"PATH": f"{programs}:{os.environ['PATH']}"}
        engine = Images(engine=Engine.APPTAINER)
        return site.make(around._replace(images=engine, environment=path))

    made = RuntimeWorld(tmp_path, Site(make, site.pool, alone=site.alone))
    made.begin()
    yield made
    await made.close()


async def test_a_command_has_the_folder_and_the_variables_of_the_job(world: RuntimeWorld) -> None:
    record = await running(world, "echo it runs; touch here; sleep 600", image=IMAGE)
    spec = world.spec("sleep 600", image=IMAGE)
    piped = await world.runtime.enter(record, spec, 0, Exec(("/bin/sh", "-c", f"{SAID}; cat; exit 7")))
    await piped.send(bytes((STDIN,)) + b"in\n")
    await piped.send(STDIN_ENDS)
    said, code = await heard(piped)
    assert (said[STDOUT], code) == (f"{record.entry.job}\nhere\nin\n".encode(), 7)
    request = Exec(("/bin/sh",), tty=True, term="vt100", size=Size(120, 40))
    terminal = await world.runtime.enter(record, spec, 0, request)
    await terminal.send(bytes((STDIN,)) + b"stty size; echo $TERM; exit 3\n")
    said, code = await heard(terminal)
    assert b"40 120" in said[STDOUT]
    assert b"vt100" in said[STDOUT]
    assert code == 3
    await stop(world, record)
