"""Steps beside a placement's ranks: srun's own words are taken out of what it says, and nothing out of what the job says."""

import pytest

from federator.kernel.errors import Unavailable
from federator.wire import tunnel
from federator.wire.tunnel import STDERR, STDOUT, End
from federator_agent.slurm import steps
from federator_agent.slurm.steps import KILLED, RelayChannel, StepChannel
from tests.support.channels import Told

OF_SRUN = b"srun: error: n1: task 0: Exited with exit code 3\n"
ABORTED = b"srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"


def out(data: bytes) -> bytes:
    return bytes((STDOUT,)) + data


def err(data: bytes) -> bytes:
    return bytes((STDERR,)) + data


async def received(channel: StepChannel | RelayChannel) -> list[bytes]:
    found = []
    while (frame := await channel.receive()) is not None:
        found.append(frame)
    return found


@pytest.mark.parametrize("tty", [False, True])
async def test_what_srun_says_of_the_commands_end_is_left_out(*, tty: bool) -> None:
    said = out if tty else err
    end = tunnel.end_frame(End(exit_code=3))
    step = StepChannel(Told(said(b"mine\n" + OF_SRUN), said(OF_SRUN), end), tty=tty)
    assert await received(step) == [said(b"mine\n"), end]


@pytest.mark.parametrize("tty", [False, True])
async def test_a_step_that_ended_with_its_job_was_killed(*, tty: bool) -> None:
    said = (out if tty else err)(ABORTED)
    step = StepChannel(Told(said, tunnel.end_frame(End(exit_code=0))), tty=tty)
    assert await received(step) == [said, tunnel.end_frame(End(exit_code=KILLED))]


async def test_a_log_of_srun_that_a_command_shows_is_whole() -> None:
    frames = [out(OF_SRUN), out(b"a\n" + OF_SRUN + ABORTED), tunnel.end_frame(End(exit_code=0))]
    assert await received(StepChannel(Told(*frames), tty=False)) == frames


async def test_a_connection_passes_every_byte() -> None:
    relay = await RelayChannel.made(Told(out(b"\n" + OF_SRUN), out(ABORTED + OF_SRUN)), 80)
    assert await received(relay) == [out(OF_SRUN), out(ABORTED + OF_SRUN)]


async def test_a_connection_that_srun_does_not_make_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks again and again, for as long as the job is suspended."""
    monkeypatch.setattr(steps, "BEGIN_S", 0.05)
    step = Told(err(b"srun: Job step creation temporarily disabled, retrying\n"), goes_on=True)
    with pytest.raises(Unavailable, match=r"within 0\.05 s"):
        await RelayChannel.made(step, 80)
    assert step.closed
