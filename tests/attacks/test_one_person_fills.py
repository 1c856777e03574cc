"""One person fills what is for all: they are refused at their share, and a second person gets through."""

import asyncio
from typing import Any

import msgspec
import pytest

from federator.api.rates import HEAVY, MOST_KNOWN, PLAIN, RATES, Rates
from federator.control.record.holders import Held, Holder
from federator.control.record.records import Changes
from federator.control.record.rows import OutputPart, Outputs
from federator.control.record.signer import is_signed
from federator.kernel.errors import TooMany
from federator.kernel.ids import content_hash
from federator.model.jobs import JobStatus
from federator.model.ledger import Verifier
from federator.settings import LimitSettings
from tests.attacks.test_blobs import packed
from tests.integration.api.rig import Answer, Rig
from tests.integration.api.test_agents import placed
from tests.support.dispatch import make_world

DAY_S = 86400.0
TEAM = """
apiVersion: federator/v1
kind: Team
metadata: {name: vision}
spec: {members: [ada]}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {allow: [{users: [bob]}, {teams: [vision]}]}
"""


def limited(rig: Rig, **limits: Any) -> None:
    """Put these limits in force."""
    core = rig.world.core
    settings = msgspec.structs.replace(core.settings.limits, **limits)
    core.settings = msgspec.structs.replace(core.settings, limits=settings)
    core.intake.acceptance.limits = settings
    core.series.limits = settings
    core.sweeper.retention.shares.limits = settings


def kept(rig: Rig, **limits: Any) -> None:
    """Put these limits of retention in force."""
    retention = rig.world.core.sweeper.retention
    retention.configure(msgspec.structs.replace(retention.settings, **limits))


async def submitted(rig: Rig, who: str, **fields: object) -> Answer:
    return await rig.ask("POST", "/v1/jobs", who, json={"run": "true", **fields})


def refused(answer: Answer, *words: str) -> None:
    problem = answer.problem
    assert (problem["status"], problem["code"]) == (429, "too-many")
    assert int(answer.headers["Retry-After"]) > 0
    for word in words:
        assert word in f"{problem['detail']} {problem['remedy']}", problem


async def finish(rig: Rig, *jobs: str) -> None:
    """Their jobs are over."""
    for name in jobs:
        job = rig.world.core.records.jobs[name]
        ended = msgspec.structs.replace(
            job, status=JobStatus.SUCCEEDED, finished_at=rig.world.clock.now(), placement=None
        )
        await rig.world.put(ended)


async def test_queued_jobs(rig: Rig) -> None:
    limited(rig, queued_jobs=8)
    job, _ = [await rig.submit("ada") for _ in range(2)]
    answer = await submitted(rig, "ada")
    refused(
        answer,
        "user ada has 2 queued jobs",
        "0.25 of limits.queued_jobs",
        "cancel some",
        "limits.person_share",
    )
    refused(await submitted(rig, "ada", array="0-1"), "user ada")
    assert (await submitted(rig, "bob")).status == 201
    await rig.ask("DELETE", f"/v1/jobs/{job}", "ada")
    assert (await submitted(rig, "ada")).status == 201


async def test_an_array_counts_with_all_its_tasks(rig: Rig) -> None:
    limited(rig, queued_jobs=8)
    refused(await submitted(rig, "ada", array="0-2"), "user ada has 0 queued jobs")
    assert (await submitted(rig, "ada", array="0-1")).status == 201


async def test_arrays_that_come_at_one_moment_count_together(rig: Rig) -> None:
    """What is accepted and still being written counts."""
    limited(rig, queued_jobs=1200)
    answers = await asyncio.gather(*(submitted(rig, "ada", array="0-199", name=f"a{n}") for n in range(5)))
    assert sorted(answer.status for answer in answers) == [201, 429, 429, 429, 429]
    held_counts = rig.world.core.records.held_counts
    assert held_counts.of(Held.QUEUED, Holder("user", "ada")) == 200
    assert (await submitted(rig, "bob", array="0-199")).status == 201


async def test_many_lines_at_once(rig: Rig) -> None:
    limited(rig, queued_jobs=8)
    lines = b'{"run": "true"}\n' * 200
    answer = await rig.ask(
        "POST", "/v1/jobs", "ada", data=lines, headers={"Content-Type": "application/x-ndjson"}
    )
    results = [msgspec.json.decode(line) for line in answer.data.splitlines()]
    assert [bool(each.get("submitted")) for each in results] == [True, True, *[False] * 198]
    assert all("share of one user is 2 queued jobs" in each["problem"]["detail"] for each in results[2:])
    assert (await submitted(rig, "bob")).status == 201


async def test_the_count_is_right_after_a_restart_and_takes_no_look_at_all_jobs(rig: Rig) -> None:
    first, _, _ = [await rig.submit("ada", name=f"n{number}") for number in range(3)]
    await finish(rig, first)
    again = await make_world(rig.world.core.records.store, rig.world.clock)  # type: ignore[arg-type]
    held_counts = again.core.records.held_counts
    ada = Holder("user", "ada")
    assert [held_counts.of(what, ada) for what in (Held.QUEUED, Held.FINISHED)] == [2, 1]
    await again.core.records.transact(lambda: Changes(deletes=[f"job/{first}"]))
    assert [held_counts.of(what, ada) for what in (Held.QUEUED, Held.FINISHED)] == [2, 0]


async def test_a_team(rig: Rig) -> None:
    """Who is in no team, or in another, is not held up by those who have filled theirs."""
    limited(rig, queued_jobs=8, person_share=1.0)
    await rig.world.policies(TEAM)
    for _ in range(4):
        await rig.submit("ada")
    refused(
        await submitted(rig, "ada"),
        "team vision has 4 queued jobs",
        "the share of one team is 4 queued jobs (0.5 of limits.queued_jobs)",
        "limits.team_share",
    )
    assert (await submitted(rig, "bob")).status == 201


async def test_series(rig: Rig) -> None:
    limited(rig, series=8)
    for number in range(2):
        assert (await submitted(rig, "ada", name=f"s{number}", every="1h")).status == 201
    refused(await submitted(rig, "ada", name="s2", every="1h"), "user ada has 2 series", "limits.series")
    assert (await submitted(rig, "ada", name="s1", every="2h")).status == 201, "one that is there may change"
    assert (await submitted(rig, "bob", name="s0", every="1h")).status == 201


async def upload(rig: Rig, who: str, data: bytes) -> Answer:
    return await rig.ask("PUT", f"/v1/blobs/{content_hash(data)}", who, data=data)


async def test_work_directories(rig: Rig) -> None:
    """Also before a sweep has measured them."""
    data = packed("one") + bytes(200_000)
    kept(rig, blobs_mib=1)
    assert (await upload(rig, "ada", data)).status == 201
    other = packed("two") + bytes(200_000)
    for _ in range(2):
        refused(
            await upload(rig, "ada", other),
            "user ada has",
            "MiB of work directories",
            "0.25 of retention.blobs_mib",
        )
        await rig.world.core.sweeper.retention.sweep()
    assert (await upload(rig, "bob", other)).status == 201
    assert (await submitted(rig, "bob")).status == 201


async def test_logs(rig: Rig) -> None:
    """Of a person whose jobs have filled their share of the logs, nothing new is taken."""
    placement = await placed(rig)
    rig.world.core.blobs.append_log(f"{placement.id}/0", 0, bytes(2**18))
    kept(rig, logs_mib=1)
    await rig.world.core.sweeper.retention.sweep()
    refused(await submitted(rig, "ada"), "user ada has 0.25 MiB of logs", "0.25 of retention.logs_mib")
    assert (await submitted(rig, "bob")).status == 201


async def test_a_gang_fills_no_more_than_one_jobs_logs(rig: Rig) -> None:
    """Each of its ranks is below its own limit; all of them together are over the job's."""
    limited(rig, log_mib=1, job_log_mib=1)
    agent = await rig.agent()
    gang, alone = await placed(rig, *["north"] * 4), await placed(rig, "north")
    for rank in range(4):
        answer = await agent.ask("PUT", f"/agent/v1/logs/{gang.id}/{rank}?offset=0", data=b"x" * 2**19)
        assert answer.json() == {"length": 2**19, "most": 2**18}
        log = (await rig.ask("GET", f"/v1/jobs/{gang.job}/logs?node={rank}")).data
        assert log == b"x" * 2**18 + b"\n[the log is cut here: over 0.25 MiB]\n"
    logs = rig.world.core.blobs.usage().logs
    assert logs[gang.id] < 2**20 + 4 * 64
    answer = await agent.ask("PUT", f"/agent/v1/logs/{alone.id}/0?offset=0", data=b"x" * 2**19)
    assert answer.json() == {"length": 2**19, "most": 2**20}


async def test_finished_jobs(rig: Rig) -> None:
    """What others have finished stays, however many one has: theirs go first, once they are older than what is promised."""
    kept(rig, jobs=8)
    bobs = await rig.submit("bob")
    await finish(rig, bobs)
    rig.world.clock.advance(DAY_S)
    adas = [await rig.submit("ada") for _ in range(2)]
    await finish(rig, *adas)
    refused(await submitted(rig, "ada"), "user ada has 2 finished jobs", "0.25 of retention.jobs", "7 days")
    other = await submitted(rig, "bob")
    assert other.status == 201
    await rig.world.core.sweeper.retention.sweep()
    assert {bobs, *adas} <= set(rig.world.core.records.jobs), "nobody's goes before its time"
    rig.world.clock.advance(7.5 * DAY_S)
    await rig.world.core.sweeper.retention.sweep()
    left = set(rig.world.core.records.jobs)
    assert bobs in left, "it is the oldest, but not of the one who has too many"
    assert not left >= set(adas)
    assert (await submitted(rig, "ada")).status == 201


async def test_outputs_count_for_the_owner_of_the_job(rig: Rig) -> None:
    placement = await placed(rig)
    core = rig.world.core
    digest = core.blobs.put(bytes(2**18))
    await rig.world.put(Outputs(placement.job, placement.id, 1, (OutputPart("north", digest, 2**18),)))
    kept(rig, blobs_mib=1)
    await core.sweeper.retention.sweep()
    assert core.records.held_counts.of(Held.BLOB_BYTES, Holder("user", "ada")) == 2**18
    refused(await submitted(rig, "ada"), "work directories and outputs")
    assert (await submitted(rig, "bob")).status == 201


async def test_uploads_that_are_begun_and_never_ended_count_as_whole(rig: Rig) -> None:
    kept(rig, blobs_mib=1)

    async def begun(who: str, archive: int) -> Answer:
        path = f"/v1/blobs/{archive:064x}?size={2**18 - 1000}"
        return await rig.ask("PUT", path, who, data=b"\x1f\x8b")

    assert (await begun("ada", 1)).json() == {"length": 2}
    refused(await begun("ada", 2), "work directories and outputs")
    assert (await begun("ada", 1)).status == 201
    assert (await begun("bob", 2)).status == 201


@pytest.mark.parametrize("share", [1.0, 0.5])
async def test_a_small_share_is_of_one_at_least(rig: Rig, share: float) -> None:
    limited(rig, queued_jobs=1, person_share=share)
    assert (await submitted(rig, "ada")).status == 201


def test_the_shares_leave_a_person_alone_room_enough() -> None:
    """100,000 jobs are submitted by one person at once: benchmarks do, and people may."""
    limits = LimitSettings()
    assert limits.queued_jobs * limits.person_share >= 2 * limits.batch_jobs


# ---------------------------------------------------------------------------------------------------- rates and the disk


class Ticks:
    """Real seconds that go on when they are told to."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def rated(rig: Rig, **limits: Any) -> Ticks:
    """These rates in force, on a clock of their own."""
    ticks = Ticks()
    application = rig.client.app
    assert application is not None
    rates = application[RATES]
    rates.limits, rates.now = LimitSettings(**limits), ticks
    return ticks


async def test_a_rate_of_requests(rig: Rig) -> None:
    ticks = rated(rig, person_burst=41, person_rate=1.0)
    for _ in range(2):
        assert (await rig.ask("POST", "/v1/preview", "ada", json={"run": "true"})).status == 200
    assert (await submitted(rig, "ada")).status == 201
    answer = await submitted(rig, "ada")
    refused(answer, "user ada has sent too many requests", "limits.person_rate")
    assert len(rig.world.core.records.jobs) == 1, "refused before anything is done"
    assert (await rig.ask("GET", "/v1/jobs/nothing/explain", "ada")).status == 429, "and looked for"
    assert (await rig.ask("GET", "/v1/sites", "ada")).status == 200, "looks cost nothing"
    assert (await submitted(rig, "bob")).status == 201
    ticks.now_s += float(answer.headers["Retry-After"])
    assert (await submitted(rig, "ada")).status == 201


def test_who_submits_ten_thousand_one_by_one_is_not_held_up_and_many_lines_cost_one() -> None:
    assert LimitSettings().person_burst >= 10_000


def test_what_is_heavy_has_few_places_of_each_person() -> None:
    rates = Rates(LimitSettings(heavy_each=2), Ticks())
    with rates.spend("ada", HEAVY), rates.spend("ada", HEAVY):
        with pytest.raises(TooMany, match="user ada has 2 previews"), rates.spend("ada", HEAVY):
            pass
        with rates.spend("ada", PLAIN), rates.spend("bob", HEAVY):
            pass
    with rates.spend("ada", HEAVY):
        pass


def test_people_who_have_gone_take_no_room() -> None:
    ticks = Ticks()
    rates = Rates(LimitSettings(), ticks)
    for number in range(2 * MOST_KNOWN):
        ticks.now_s += 1
        with rates.spend(f"u{number}", PLAIN):
            pass
    assert len(rates.left) <= MOST_KNOWN + 1


async def test_the_last_of_the_disk_is_for_ending_what_runs(rig: Rig) -> None:
    """New work is refused, and said by `/readyz`; what runs ends with its outputs and its status."""
    agent = await rig.agent()
    placement = await placed(rig, "north")
    path = f"/agent/v1/logs/{placement.id}/0"
    assert (await agent.ask("PUT", f"{path}?offset=0", data=b"before\n")).json()["length"] == 7
    assert "refuses" not in (await rig.ask("GET", "/readyz", None)).json()
    blobs: Any = rig.world.core.blobs
    blobs.free = 511 * 2**20
    for answer in (await submitted(rig, "ada"), await upload(rig, "ada", packed("new"))):
        assert (answer.status, answer.problem["code"]) == (507, "no-room")
        assert "limits.reserve_mib" in answer.problem["remedy"]
        assert int(answer.headers["Retry-After"]) > 0
    assert "512 MiB left" in (await rig.ask("GET", "/readyz", None)).json()["refuses"]
    assert (await agent.ask("PUT", f"{path}?offset=7", data=b"x" * 993)).json()["length"] == 1000
    assert blobs.log_length(f"{placement.id}/0") == 7, "the agent goes on, and nothing is written"
    assert (await agent.ask("PUT", f"/agent/v1/outputs/{placement.id}", data=packed("out"))).status == 201
    assert (await rig.ask("DELETE", f"/v1/jobs/{placement.job}", "ada")).status == 202
    blobs.free = 2**40
    assert (await agent.ask("PUT", f"{path}?offset=1000", data=b"after\n")).json()["length"] == 7
    assert (await agent.ask("PUT", f"{path}?offset=1000", data=b"after\n")).json()["length"] == 1006
    log = blobs.read_log(f"{placement.id}/0", 0, 2000)
    assert log.startswith(b"before\n\n[993 bytes of this log were lost]\n")
    assert log.endswith(b"after\n")
    assert (await submitted(rig, "ada")).status == 201


async def test_an_upload_that_has_begun_stops_where_the_reserve_begins(rig: Rig) -> None:
    blobs: Any = rig.world.core.blobs
    draft = blobs.draft

    def begun() -> Any:
        blobs.free = 0
        return draft()

    blobs.draft = begun
    assert (await upload(rig, "ada", packed("large"))).status == 507
    assert blobs.usage().blobs_bytes == 0


async def test_the_arrays_of_one_request_count_with_all_their_tasks(rig: Rig) -> None:
    """900 lines of a thousand tasks each, less than a mebibyte, made one dispatcher build 900,000 jobs."""
    limited(rig, batch_jobs=100)
    lines = b"\n".join(b'{"name": "n%d", "run": "true", "array": "0-59"}' % number for number in range(3))
    answer = await rig.ask(
        "POST", "/v1/jobs", "ada", data=lines, headers={"Content-Type": "application/x-ndjson"}
    )
    first, second, third = (msgspec.json.decode(line) for line in answer.data.splitlines())
    assert len(first["submitted"]["jobs"]) == 60
    for line in (second, third):
        assert line["problem"]["code"] == "too-many"
        assert "only 40 more jobs fit into this request (limits.batch_jobs)" in line["problem"]["detail"]
    assert len(rig.world.core.records.jobs) == 60


async def test_lines_of_the_ledger(rig: Rig) -> None:
    """Whoever changes one job for ever, and rotates a token between, fills the ledger with acts and nothing else. To end work stays possible."""
    retention, job = rig.world.core.sweeper.retention, await rig.submit("ada")
    kept(rig, ledger_lines=40)
    await retention.sweep()
    answers = [
        await rig.ask("PATCH", f"/v1/jobs/{job}", "ada", json={"priority": number}) for number in range(1, 12)
    ]
    assert [answer.status for answer in answers] == [200] * 9 + [429] * 2, "ten lines, with the submission"
    refused(
        answers[-1],
        "user ada has 10 lines of the ledger",
        "0.25 of retention.ledger_lines",
        "7 days old",
        "limits.person_share",
    )
    for verb in ("hold", "release", "requeue"):
        refused(
            await rig.ask("POST", "/v1/jobs/actions", "ada", json={"verb": verb, "jobs": [job]}),
            "lines of the ledger",
        )
    refused(await rig.ask("POST", "/v1/tokens/ada/rotate", "ada", json={}), "lines of the ledger")
    refused(await rig.ask("PUT", "/v1/notifications", "ada", json={}), "lines of the ledger")
    refused(await submitted(rig, "ada"), "lines of the ledger")
    assert (await submitted(rig, "bob")).status == 201
    assert (await rig.ask("DELETE", f"/v1/jobs/{job}", "ada")).status == 202
    rig.world.clock.advance(8 * DAY_S)
    await retention.sweep()
    assert (await submitted(rig, "ada")).status == 201
    assert (await submitted(rig, "ada")).status == 201
    again = await make_world(rig.world.core.records.store, rig.world.clock)  # type: ignore[arg-type]
    await again.core.sweeper.retention.sweep()
    held_counts = again.core.records.held_counts
    assert held_counts.of(Held.LEDGER_LINES, Holder("user", "ada")) == 2, "those of before do not count"


async def test_a_ledger_that_is_full_of_promised_lines_takes_no_more_acts(rig: Rig) -> None:
    """Many together fill it: the disk is bounded, and what was dropped to make room leaves the rest verified."""
    core = rig.world.core
    await core.chain.begin()
    kept(rig, ledger_lines=12)
    limited(rig, person_share=1.0)
    await core.sweeper.retention.sweep()
    job = await rig.submit("ada")
    for number in range(1, 40):
        await rig.ask("PATCH", f"/v1/jobs/{job}", "ada", json={"priority": number})
    await core.chain.seal()
    assert len((await core.records.store.range("ledger/")).items) == 12
    refused(await submitted(rig, "bob"), "12 lines of the ledger are kept, which is the limit")
    rig.world.clock.advance(8 * DAY_S)
    await core.sweeper.retention.sweep()
    assert (await submitted(rig, "bob")).status == 201
    await core.chain.seal()
    verifier = Verifier(is_signed)
    async for part in core.chain.export():
        verifier.take(part)
    found = verifier.end()
    assert (found.findings, found.unsealed, found.lines + found.before) == ((), 0, 12)
