"""The agent's own socket: junk, floods, other users and other people's jobs get nothing but a refusal, and the agent goes on."""

import asyncio
import os
import pwd
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from federator.kernel.clock import ManualClock
from federator.model.allotments import Allotment, LocalJob
from federator.model.placements import Cause, PlacementStatus
from federator.wire import local_submit as wire
from federator.wire.jobfile import encode_spec
from federator_agent.core import events as ev
from federator_agent.core.state import AdmittedJob, Phase, PlacementRecord, State, Verdict
from federator_agent.local_socket import MOST_OF_ONE, LocalSocket
from federator_agent.local_submit import LocalSubmit
from tests.support.waiting import PATIENCE_S, until
from tests.unit.agent.worlds import SITE, entry, spec

MUCH = msgspec.json.encode({f"A{n}": "x" * 5000 for n in range(20)}).decode()
ME = pwd.getpwuid(os.geteuid()).pw_name
ALLOTMENT = Allotment(
    policy="Allotment/here",
    queue="default",
    users=("ada",),
    gpu_h=4.0,
    jobs=3,
    max_duration_s=60.0,
    max_priority=30,
    after_s=60.0,
    longest_s=86_400.0,
)


def work(name: str, owner: str) -> AdmittedJob:
    job = LocalJob(
        job=f"job-{name}",
        placement=f"pl-{name}",
        spec=encode_spec(spec()).decode(),
        owner=owner,
        queue="default",
        allotment="Allotment/here",
        pool="gpu",
        submitted_at=1.0,
        max_duration_s=60.0,
    )
    return AdmittedJob(job=job, gpus=1.0)


class Door:
    """The socket, before a core that refuses nothing."""

    def __init__(self, folder: Path, users: dict[str, str]) -> None:
        self.path = folder / "s"
        self.told: list[ev.Event] = []
        works = {each.job.placement: each for each in (work("mine", "ada"), work("theirs", "ben"))}
        self.state = State(site=SITE, local=works, allotments=(ALLOTMENT,))
        self.placements = folder / "placements"
        settings = LocalSubmit(users=users, socket=self.path)
        self.socket = LocalSocket(settings, ManualClock(), lambda: self.state, self.tell, self.placements)

    def tell(self, event: ev.Event) -> None:
        self.told.append(event)
        assert isinstance(event, ev.LocalSubmitted | ev.LocalCancelled)
        self.socket.answered(event.placement, "")

    async def send(self, data: bytes) -> wire.Answer | None:
        reader, writer = await asyncio.open_unix_connection(self.path, limit=wire.MAX_ANSWER_BYTES)
        try:
            writer.write(data)
            await writer.drain()
            line = await reader.readline()
        except ConnectionError:
            return None
        finally:
            writer.close()
        answer: wire.Answer | None = msgspec.json.decode(line, type=wire.Answer) if line else None
        return answer

    async def ask(self, request: wire.Request) -> wire.Answer | None:
        return await self.send(msgspec.json.encode(request) + b"\n")


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        made = Door(Path(folder), {ME: "ada"})
        served = asyncio.create_task(made.socket.serve())
        await until(made.path.exists, "the socket")
        yield made
        served.cancel()
        await asyncio.gather(served, return_exceptions=True)


@pytest.mark.parametrize(
    "junk",
    [
        b"\n",
        b"GET / HTTP/1.1\r\n",
        b"\xff\xfe\n",
        b"[" * 10_000 + b"\n",
        b'{"type": "submit"}\n',
        b'{"type": "list", "person": "ben"}\n',
        b'{"type": "submit", "file": "' + b"x" * wire.MAX_REQUEST_BYTES + b'"}\n',
        b'{"type": "log", "job": "mine", "offset": -1}\n',
    ],
)
async def test_junk_is_refused_and_the_next_is_answered(door: Door, junk: bytes) -> None:
    answer = await door.send(junk)
    assert answer is None or isinstance(answer, wire.Refused)
    assert isinstance(await door.ask(wire.List()), wire.Jobs)
    assert not door.told


async def test_a_user_whom_the_site_does_not_name_gets_nothing() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        shut = Door(Path(folder), {"nobody-here": "ada"})
        served = asyncio.create_task(shut.socket.serve())
        await until(shut.path.exists, "the socket")
        for request in (wire.List(), wire.Cancel("job-mine"), wire.Submit('{"run": "true"}')):
            answer = await shut.ask(request)
            assert isinstance(answer, wire.Refused)
            assert "nobody whom this site knows" in answer.message
        assert not shut.told
        served.cancel()
        await asyncio.gather(served, return_exceptions=True)


async def test_nobody_sees_or_ends_the_job_of_another(door: Door) -> None:
    listed = await door.ask(wire.List())
    assert isinstance(listed, wire.Jobs)
    assert [row.job for row in listed.jobs] == ["job-mine"]
    for request in (wire.Log("job-theirs"), wire.Cancel("job-theirs"), wire.Log("../theirs")):
        answer = await door.ask(request)
        assert isinstance(answer, wire.Refused)
        assert "no job" in answer.message
    assert not door.told


async def test_a_log_that_is_a_link_is_not_followed(door: Door) -> None:
    rank = door.placements / "pl-mine" / "rank-0"
    rank.mkdir(parents=True)
    (rank / "log").symlink_to("/etc/passwd")
    assert await door.ask(wire.Log("job-mine")) == wire.Piece(b"", over=True)


async def test_a_flood_of_silent_connections_is_bounded_and_over_soon(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federator_agent.local_socket.REQUEST_S", 0.5)
    held = [await asyncio.open_unix_connection(door.path) for _ in range(MOST_OF_ONE)]
    assert await door.ask(wire.List()) is None, "one user has no more than so many"
    for reader, _ in held:
        assert await reader.read() == b""
    assert isinstance(await door.ask(wire.List()), wire.Jobs)
    for _, writer in held:
        writer.close()


@pytest.mark.parametrize(
    ("file", "field"),
    [
        ('{"run": "true", "array": "1-1000"}', "$.array"),
        ('{"run": "true", "name": "x", "every": "1h"}', "$.every"),
        ('{"run": "true", "deadline": "2h"}', "$.deadline"),
        ('{"run": "true", "inputs": ["s3://bucket/x"]}', "$.inputs"),
        ('{"run": "true", "on_disconnect": {"stop_within": "10m"}}', "$.stop_within_s"),
        ('{"run": "true", "placement": {"sites": ["elsewhere"]}}', "$.placement"),
        ('{"run": "true", "env": ' + MUCH + "}", "$"),
        ('{"run": "true", "env": {"WANDB_API_KEY": "x"}}', "$.env.WANDB_API_KEY"),
        ('{"run": "true", "nodes": 1000000000}', "$.nodes"),
        ('{"run": "true", "run": "false"}', "$"),
    ],
)
async def test_a_file_that_needs_the_dispatcher_or_is_too_much_is_refused_by_its_field(
    door: Door, file: str, field: str
) -> None:
    answer = await door.ask(wire.Submit(file))
    assert isinstance(answer, wire.Refused), answer
    assert answer.field == field
    assert not door.told


async def test_who_submits_is_who_the_kernel_says(door: Door) -> None:
    answer = await door.ask(wire.Submit('{"run": "true", "queue": "default"}'))
    assert isinstance(answer, wire.Done)
    (event,) = door.told
    assert isinstance(event, ev.LocalSubmitted)
    assert (event.owner, event.job) == ("ada", answer.job)


async def test_what_the_dispatcher_has_and_has_forgotten_keeps_its_end_here(door: Door) -> None:
    mine = msgspec.structs.replace(work("mine", "ada"), adopted=True)
    verdict = Verdict(status=PlacementStatus.SUCCEEDED, cause=Cause.EXIT, ended_at=2.0, exit_code=0)
    over = PlacementRecord(entry=entry("pl-mine", spec()), phase=Phase.ENDED, verdict=verdict)
    door.state = msgspec.structs.replace(door.state, local={"pl-mine": mine}, over={"pl-mine": over})
    listed = await door.ask(wire.List())
    assert isinstance(listed, wire.Jobs)
    assert (listed.jobs[0].status, listed.jobs[0].over, listed.jobs[0].adopted) == ("SUCCEEDED", True, True)
    answer = await door.ask(wire.Log("job-mine"))
    assert isinstance(answer, wire.Refused)
    assert answer.remedy == "federator logs job-mine"


async def test_a_file_at_its_path_is_not_replaced_and_a_socket_that_was_left_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A site file may name a wrong path, and the agent may be root."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        door = Door(Path(folder), {ME: "ada"})
        door.path.write_text("of somebody")
        async with asyncio.timeout(PATIENCE_S):
            await door.socket.serve()  # it returns: nothing is served
        assert door.path.read_text() == "of somebody"
        assert "no jobs are taken" in caplog.text
        door.path.unlink()
        for _ in range(2):
            served = asyncio.create_task(Door(Path(folder), {ME: "ada"}).socket.serve())
            await until(door.path.is_socket, "the socket")
            await until(lambda: door.path.stat().st_mode & 0o777 == 0o666, "it to be everybody's")
            assert isinstance(await door.ask(wire.List()), wire.Jobs)
            served.cancel()
            await asyncio.gather(served, return_exceptions=True)
            door.path.unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as stale:
                stale.bind(str(door.path))  # as a killed agent leaves it
