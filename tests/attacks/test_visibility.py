"""What a job runs, and with what, is its owner's, the team's and the administrators'; and credentials do not get into job files at all."""

from typing import Any

import msgspec
import pytest

from federator.api.routes import ROUTES
from federator.api.table import Gate, Route
from federator.control.administration.authority import Authority
from federator.control.administration.visibility import Sight
from federator.control.record.records import Records
from federator.kernel.clock import ManualClock
from federator.model.events import Event
from federator.model.identity import Caller, Role
from federator.model.plans import Reservation, ReservedFor, Waiting
from federator.settings import Settings
from federator.store.memory import MemoryStore
from tests.attacks.test_matrix import NAMES, POLICIES, Town, name_of
from tests.integration.api.rig import Answer, Rig

JOB: dict[str, Any] = {
    "name": "train", "run": "python hushhush.py", "setup": "pip install hushhush", "env": {"MODE": "hushhush"},
    "outputs": ["hushhush/**"], "inputs": ["s3://hushhush/set"],
    "checkpoint": {"signal": "USR1", "uri": "s3://hushhush/saved"}, "secrets": ["hushhush"], "resources": {"gpus": 2},
}  # fmt: skip


async def test_what_a_job_runs_is_not_for_everybody(rig: Rig) -> None:
    job = await rig.submit("ada", **JOB)
    for path in (f"/v1/jobs/{job}", "/v1/jobs", f"/v1/jobs/{job}/events?follow=false", f"/v1/jobs/{job}/explain", "/v1/overview", "/v1/series"):  # fmt: skip
        for who in ("bob", "sam"):
            answer = await rig.ask("GET", path, who)
            assert answer.status == 200, path
            assert b"hushhush" not in answer.data, (path, who)
    for path in (f"/v1/jobs/{job}/logs", f"/v1/jobs/{job}/outputs"):
        problem = (await rig.ask("GET", path, "bob")).problem
        assert (problem["status"], problem["code"]) == (403, "forbidden")
    for who in ("ada", "pat", "root"):
        spec = (await rig.ask("GET", f"/v1/jobs/{job}", who)).json()["spec"]
        assert spec["run"] == "python hushhush.py", who
    row = (await rig.ask("GET", f"/v1/jobs/{job}", "bob")).json()
    assert (row["job"]["name"], row["spec"]["resources"]["gpus"]["count"]) == ("train", 2)
    assert row["spec"]["run"] == "(hidden)"


async def test_a_series_file_is_not_for_everybody(rig: Rig) -> None:
    fields = {**JOB, "every": "1h"}
    assert (await rig.ask("POST", "/v1/jobs", "ada", json=fields)).status == 201
    assert b"hushhush" not in (await rig.ask("GET", "/v1/series/train", "bob")).data
    assert b"hushhush" in (await rig.ask("GET", "/v1/series/train", "ada")).data


@pytest.mark.parametrize(
    "env",
    [
        {"HF_TOKEN": "x"}, {"AWS_SECRET_ACCESS_KEY": "x"}, {"AWS_ACCESS_KEY_ID": "x"}, {"db_password": "x"}, {"WANDB_API_KEY": "x"},
        {"X": "ghp_0123456789abcdefghij"}, {"X": "AKIAIOSFODNN7EXAMPLE"}, {"X": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc"},
    ],
    ids=str,
)  # fmt: skip
async def test_credentials_are_refused_with_the_advice_to_use_secrets(rig: Rig, env: dict[str, str]) -> None:
    body = {"run": "true", "env": env}
    for path, asked in (
        ("/v1/jobs", body),
        ("/v1/preview", body),
        ("/v1/jobs", {**body, "name": "n", "every": "1h"}),
    ):
        problem = (await rig.ask("POST", path, "ada", json=asked)).problem
        assert (problem["status"], problem["field"]) == (400, f"$.env.{next(iter(env))}")
        assert "`secrets`" in problem["remedy"]
        assert next(iter(env.values())) not in problem["detail"].split()
    assert not rig.world.core.records.jobs


async def test_what_only_sounds_alike_is_taken(rig: Rig) -> None:
    env = {
        "PAD_TOKEN": "<pad>",
        "MAX_TOKENS": "4096",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_TOKEN": "",
        "KEYS": "a",
        "X": "sk-learn",
    }
    assert await rig.submit("ada", env=env)


# -- visibility.jobs: team ------------------------------------------------------------------------------------------------

READS = [route for route in ROUTES if route.gate in (Gate.PERSON, Gate.JOB) and route.method == "GET" and route.path not in ("/v1/events", "/v1/changes")]  # fmt: skip
OPEN_TO_EVE = """
---
apiVersion: federator/v1
kind: Queue
metadata: {name: other}
spec: {allow: [{users: [eve]}]}
"""
NAMED = (b"the-job", b"nightly")
"""What ada has: a job, which runs under her team, and a series."""


class Looks:
    """A town in which eve stands in no relation to anything of ada's, and what ada has is named wherever jobs can be."""

    def __init__(self, town: Town, waits: str) -> None:
        self.rig, self.town, self.waits = town.rig, town, waits

    @classmethod
    async def at(cls, town: Town) -> "Looks":
        world = town.rig.world
        await world.policies(POLICIES + OPEN_TO_EVE)
        waits = await town.rig.submit("eve", name="mine", queue="other")
        job = town.job
        held = f"free GPUs at north are held for the-job ({job.id}, 8 GPUs) until 10:00"
        text = f"makes room for the-job ({job.id}): it was not the-job[3] ({job.id})"
        world.core.turn.waiting[waits] = Waiting(
            job=waits,
            kind="later",
            because=f"{held}; {text}",
            reserved=Reservation(
                why=ReservedFor.GANG, place="north", until_at=9.0, saves_usd=0.0, for_job=job.id
            ),
        )
        for about, what in ((job.id, "the-job started"), (waits, text)):
            event = Event(
                id=world.core.ids.new("ev"), job=about, at=1.0, kind="told", status="PENDING", text=what
            )
            await world.put(event)
        return cls(town, waits)

    def by_team(self) -> None:
        self.rig.world.core.visibility.by_team = True

    async def answer(self, route: Route, who: str, job: str) -> Answer:
        named = next((NAMES[part] for part in route.path.split("/") if part in NAMES), "x")
        path = route.path.replace("{name}", named).replace("{id}", job)
        query = {"follow": "false"} if route.path.endswith("/events") else {}
        return await self.rig.ask("GET", path, who, params=query)

    async def told(self, route: Route, who: str) -> bytes:
        """All that they are told by a route, of any job that they name."""
        jobs = (self.town.job.id, "the-job", self.waits) if "{id}" in route.path else ("",)
        answers = [await self.answer(route, who, job) for job in jobs]
        return b"".join(answer.data for answer in answers if answer.status < 300)

    async def followed(self, who: str, last: bytes) -> bytes:
        """The stream of all events from the first on, up to one that says that."""
        async with self.rig.open("GET", "/v1/events", who, headers={"Last-Event-ID": "0"}) as stream:
            said = b""
            while last not in said:
                said += await stream.content.readuntil(b"\n\n")
            return said

    async def rows(self, who: str) -> bytes:
        """All rows of the stream of changes."""
        async with self.rig.open("GET", "/v1/changes", who) as stream:
            return bytes(await stream.content.readuntil(b"\n\n"))


@pytest.fixture
async def looks(rig: Rig) -> Looks:
    return await Looks.at(await Town(rig).build())


@pytest.mark.parametrize("route", READS, ids=name_of)
async def test_by_team_no_route_names_anothers_job(looks: Looks, route: Route) -> None:
    """Every route that reads is asked, so that a new one that forgets the rule fails here."""
    if route.roles:
        assert (await looks.answer(route, "eve", "the-job")).status in (403, 404)
        return
    looks.by_team()
    said = await looks.told(route, "eve")
    for name in (*NAMED, looks.town.job.id.encode()):
        assert name not in said, said[max(0, said.find(name) - 200) :][:400]


async def test_by_team_changes_name_no_job_of_anothers(looks: Looks) -> None:
    why = f"makes room for the-job ({looks.town.job.id})"
    await looks.rig.ask("POST", "/v1/sites/north/drain", "root", json={"why": why})
    assert b"the-job" in await looks.rows("eve")
    looks.by_team()
    assert b"the-job" in await looks.rows("ada")
    said = await looks.rows("eve")
    assert b"makes room for" in said
    assert not [name for name in (*NAMED, looks.town.job.id.encode()) if name in said]


@pytest.mark.parametrize("who", ["ada", "ben", "tess", "lea", "sam", "pat", "root"])
async def test_who_stands_in_a_relation_sees_what_they_saw(looks: Looks, who: str) -> None:
    job = looks.town.job.id
    paths = (f"/v1/jobs/{job}", f"/v1/jobs/{job}/explain", f"/v1/jobs/{job}/events?follow=false", "/v1/jobs", "/v1/jobs?name=the-job", "/v1/jobs/the-job", "/v1/overview")  # fmt: skip
    before = [(await looks.rig.ask("GET", path, who)).json() for path in paths]
    looks.by_team()
    for path, known in zip(paths, before, strict=True):
        answer = await looks.rig.ask("GET", path, who)
        assert answer.status == 200, path
        assert job.encode() in answer.data, path
        if "jobs/" in path:
            assert answer.json() == known, path


async def test_by_team_anothers_job_is_as_one_that_there_is_not(looks: Looks) -> None:
    rig, job = looks.rig, looks.town.job.id
    nothing = "job-" + "0" * 26
    known = await rig.ask("GET", f"/v1/jobs/{job}", "eve")
    assert known.status == 200, "as long as everybody sees all"
    looks.by_team()
    for route in ROUTES:
        if not route.path.startswith("/v1/jobs/{id}"):
            continue
        for asked, other in ((job, nothing), ("the-job", "no-job"), ("nightly", "no-job")):
            there, not_there = [
                await rig.ask(route.method, route.path.replace("{id}", name), "eve")
                for name in (asked, other)
            ]
            assert there.problem["status"] == 404, route.path
            assert there.data.replace(asked.encode(), other.encode()) == not_there.data
    for name in ("nightly", "no-series"):
        assert (await rig.ask("GET", f"/v1/series/{name}", "eve")).status == 404
        assert (await rig.ask("GET", f"/v1/series/{name}?owner=ada", "eve")).status == 404
    for name in (job, nothing):
        body = {"run": "true", "queue": "other", "after": [name]}
        problem = (await rig.ask("POST", "/v1/jobs", "eve", json=body)).problem
        assert problem["detail"] == f"you have no job '{name}'"


async def test_by_team_lists_and_counts_leave_others_out(looks: Looks) -> None:
    rig = looks.rig
    looks.by_team()
    for query in ("", "?name=the-job", "?site=north", "?queue=default", "?status=PLACED", "?limit=1"):
        page = (await rig.ask("GET", f"/v1/jobs{query}", "eve")).json()
        mine = query in ("", "?limit=1")
        assert [row["name"] for row in page["jobs"]] == ["mine"] * mine, query
        assert (page["total"], page["next_after"]) == (int(mine), None), query
    overview = (await rig.ask("GET", "/v1/overview", "eve")).json()
    assert ([row["name"] for row in overview["jobs"]], overview["jobs_total"]) == (["mine"], 1)
    assert (await rig.ask("GET", "/v1/series", "eve")).json() == []
    assert [row["name"] for row in (await rig.ask("GET", "/v1/series", "ben")).json()] == ["nightly"]


async def test_by_team_a_reason_says_that_it_is_another_teams_job(looks: Looks) -> None:
    looks.by_team()
    row = (await looks.rig.ask("GET", f"/v1/jobs/{looks.waits}", "eve")).json()
    assert row["waiting"]["because"] == (
        "free GPUs at north are held for another team's job (8 GPUs) until 10:00; "
        "makes room for another team's job: it was not another team's job"
    )
    assert row["waiting"]["job"] == looks.waits
    whole = (await looks.rig.ask("GET", f"/v1/jobs/{looks.waits}", "pat")).json()
    assert f"held for the-job ({looks.town.job.id}, 8 GPUs)" in whole["waiting"]["because"]


async def test_by_team_streams_have_ones_own_events_alone(looks: Looks) -> None:
    assert b"the-job" in await looks.followed("ada", b"the-job started")
    looks.by_team()
    said = await looks.followed("eve", b"makes room for another team's job")
    assert b"the-job" not in said
    assert looks.town.job.id.encode() not in said


async def test_by_team_only_who_sees_all_reads_whole_decisions(looks: Looks) -> None:
    looks.by_team()
    for who in ("eve", "ada", "sam"):
        problem = (await looks.rig.ask("GET", "/v1/decisions/dec-1", who)).problem
        assert (problem["status"], problem["code"]) == (403, "forbidden")
    assert (await looks.rig.ask("GET", "/v1/decisions/dec-1", "pat")).status == 404


def test_a_job_that_is_forgotten_is_not_named_either() -> None:
    records = Records(MemoryStore(ManualClock()))
    sight = Sight(records, Authority(), Caller("eve", Role.USER))
    gone = b"job-" + b"0" * 26
    assert sight.masked(b'"x of nightly[7] (' + gone + b')"') == b'"x of another team\'s job"'
    assert sight.masked(b'{"job":"' + gone + b'"}') == b'{"job":"' + gone + b'"}'


def test_the_setting_is_read() -> None:
    assert Settings().visibility.jobs == "everybody"
    assert msgspec.convert({"visibility": {"jobs": "team"}}, Settings).visibility.jobs == "team"
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"visibility": {"jobs": "nobody"}}, Settings)
