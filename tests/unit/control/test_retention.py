"""What has outlived its promise goes, and nothing else does: jobs, logs, blobs, decisions, the ledger, credentials."""

import io
import tarfile
from typing import Any

import msgspec
import pytest

from federator.config import check
from federator.control.record.rows import OutputPart, Outputs
from federator.kernel.errors import Invalid, TooMany, Unavailable
from federator.model.capacity import Lease, LeaseStatus
from federator.model.identity import Caller, Role
from federator.model.jobs import JobStatus
from federator.model.placements import PlacementStatus
from federator.model.sites import Member, SiteStatus
from federator.settings import LimitSettings, RetentionSettings, Settings
from federator.wire.http import TokenRequest
from tests.support.dispatch import ADA, OFFER, World, make_world

DAY_S = 86400.0
ROOT = Caller("root", Role.ADMIN)


@pytest.fixture
async def world() -> World:
    world = await make_world()
    await world.add_site("north", nodes=1, gpus=8)
    share_all(world)
    return world


def share_all(world: World) -> None:
    """One person may fill a limit: these tests are about the whole federation's."""
    world.core.sweeper.retention.shares.limits = LimitSettings(person_share=1.0, team_share=1.0)


def keep(world: World, **limits: Any) -> None:
    """Put these limits in force."""
    retention = world.core.sweeper.retention
    retention.settings = msgspec.structs.replace(retention.settings, **limits)
    world.core.decisions.retention = retention.settings


async def run(world: World, **fields: Any) -> str:
    """A job from submission to success, with a log; its id."""
    job = await world.submit(resources={"gpus": 1}, **fields)
    await world.turn()
    world.core.blobs.append_log(f"{world.placement(job).id}/0", 0, b"text of the log")
    await world.sites["north"].finish(job)
    assert world.job(job).status is JobStatus.SUCCEEDED
    return job


async def stored(world: World, prefix: str = "") -> list[str]:
    page = await world.core.records.store.range(prefix, limit=100_000)
    return [item.key for item in page.items]


async def later(world: World, days: float) -> None:
    """Some days pass, the site stays connected, and the sweeper sweeps."""
    world.clock.advance(days * DAY_S)
    world.sites["north"].report()
    await world.core.sweeper.sweep()


def a_workdir(text: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo(text))
    return buffer.getvalue()


# --------------------------------------------------------------------------------------------------------------- by age


async def test_a_finished_job_goes_with_all_that_is_kept_of_it_when_its_time_is_over(world: World) -> None:
    workdir = await world.upload(a_workdir("a"))
    job = await run(world, workdir=f"sha256:{workdir}", client_id="once")
    placement = next(iter(world.core.records.placements))
    output = world.core.blobs.put(a_workdir("b"))
    await world.put(Outputs(job, placement, 1, (OutputPart("north", output, 100),)))
    await later(world, 29)
    assert world.core.blobs.log_length(f"{placement}/0") == 15
    assert world.core.blobs.get(workdir) is not None, "a record names it"
    assert (await world.submit_all(workdir=f"sha256:{workdir}", client_id="x", name="x")).jobs
    await world.core.intake.cancel(ADA, max(world.core.records.jobs))
    await later(world, 2)
    assert job not in world.core.records.jobs
    for prefix in (f"job/{job}", f"event/{job}", "placement/", "outputs/", "client/ada/once"):
        assert await stored(world, prefix) == [], prefix
    assert world.core.blobs.log_length(f"{placement}/0") == 0
    assert world.core.blobs.get(output) is None
    assert world.core.blobs.get(workdir) is not None, "the other job still names it"
    await later(world, 31)
    assert world.core.blobs.get(workdir) is None
    assert await stored(world, "spec/") == []
    assert await stored(world, "blob-owner/") == []
    assert world.core.blobs.usage().blobs_bytes == 0


async def test_a_job_with_more_events_than_a_page_leaves_none_behind(world: World) -> None:
    job = await run(world)
    record = world.job(job)
    for start in range(0, 1200, 100):
        await world.put(
            *(world.core.sweeper.event_writer.event(record, "note", str(start)) for _ in range(100))
        )
    await later(world, 31)
    assert await stored(world, "event/") == []


async def test_an_array_goes_as_a_whole_and_its_client_id_with_it(world: World) -> None:
    """Were the id dropped with the first task, or the tasks one by one, a client that repeats itself would run the array again."""
    answer = await world.submit_all(client_id="array", array="0-3", resources={"gpus": 1})
    first, *rest = answer.jobs
    await world.turn()
    for job in (first, rest[0], rest[1]):
        await world.sites["north"].finish(job)
    await later(world, 31)
    assert set(answer.jobs) <= set(world.core.records.jobs)
    again = await world.submit_all(client_id="array", array="0-3", resources={"gpus": 1})
    assert again == msgspec.structs.replace(answer, repeated=True)
    await world.sites["north"].finish(rest[2])
    await later(world, 31)
    assert world.core.records.jobs == {}
    assert world.core.records.client_keys == {}


async def test_what_is_still_needed_stays_whatever_its_age(world: World) -> None:
    before = await run(world, name="before")
    follower = await world.submit(after=["before"], name="follower")
    await world.core.intake.act_on_one(ADA, "hold", follower)
    zombie = await run(world, name="zombie")
    placement = world.core.records.placements[world.job(zombie).placement or ""]
    await world.put(msgspec.structs.replace(placement, status=PlacementStatus.LOST, stop_acknowledged=False))
    await later(world, 400)
    assert {before, follower, zombie} <= set(world.core.records.jobs)


async def test_a_sweep_cut_short_by_a_full_disk_is_taken_up_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [await run(world, client_id=f"c{number}", name=f"n{number}") for number in range(3)]
    commit, left = world.core.records.store.commit, [2]

    async def full(transaction: Any) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise Unavailable("the disk is full")
        return await commit(transaction)

    monkeypatch.setattr(world.core.records.store, "commit", full)
    with pytest.raises(Unavailable):
        await later(world, 31)
    assert set(world.core.records.jobs) < set(jobs)
    monkeypatch.undo()
    await later(world, 0.1)
    assert world.core.records.jobs == {}
    assert [key for key in await stored(world) if key.startswith(("event/", "placement/", "client/"))] == []


async def test_a_work_directory_that_waits_for_its_job_stays_for_a_while(world: World) -> None:
    world.clock.real_delay_s = lambda delay_s: delay_s  # type: ignore[method-assign]
    digest = world.core.blobs.put(a_workdir("new"))
    await later(world, 0.1)
    assert world.core.blobs.has(digest)
    keep(world, unused_blob_s=0.0)
    await later(world, 0.1)
    assert not world.core.blobs.has(digest)


async def test_a_submission_on_its_way_keeps_the_spec_that_it_found(world: World) -> None:
    """Between looking and writing the sweeper may run: the job must not be left without its spec."""
    await run(world)
    world.clock.advance(31 * DAY_S)
    commit = world.core.records.store.commit

    async def while_a_sweep_runs(transaction: Any) -> int:
        world.core.records.store.commit = commit  # type: ignore[method-assign]
        await world.core.sweeper.sweep()
        return await commit(transaction)

    world.core.records.store.commit = while_a_sweep_runs  # type: ignore[method-assign]
    job = await world.submit(resources={"gpus": 1})
    assert world.core.records.has_spec(world.job(job).spec_hash)
    world.sites["north"].connect()
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING


# ------------------------------------------------------------------------------------------------- by number and by size


async def test_over_the_limit_on_finished_jobs_the_oldest_go_once_they_are_older_than_promised(
    world: World,
) -> None:
    keep(world, jobs=3)
    jobs = []
    for number in range(3):
        jobs.append(await run(world, name=f"n{number}"))
        world.clock.advance(DAY_S)
        world.sites["north"].report()
    await later(world, 0.1)
    assert set(jobs) == set(world.core.records.jobs), "none is older than its promise"
    with pytest.raises(TooMany, match=r"3 finished jobs are kept.*promised"):
        await world.submit(name="one-more")
    assert set(jobs) == set(world.core.records.jobs)
    await later(world, 5.5)
    assert set(world.core.records.jobs) == set(jobs[1:])
    assert await world.submit(name="one-more")


async def test_a_repeated_submission_is_answered_however_full_it_is(world: World) -> None:
    job = await run(world, client_id="mine")
    keep(world, jobs=1)
    again = await world.submit_all(client_id="mine", resources={"gpus": 1})
    assert again.jobs == (job,)


@pytest.mark.parametrize(("limit", "words"), [("logs_mib", "MiB of logs"), ("blobs_mib", "MiB of work")])
async def test_over_a_limit_on_bytes_the_oldest_go_and_before_that_nothing_new_is_taken(
    world: World, limit: str, words: str
) -> None:
    old = await run(world, name="old")
    world.clock.advance(6 * DAY_S)
    world.sites["north"].report()
    new = await run(world, name="new")
    placement = world.core.records.placements[world.job(old).placement or ""].id
    world.core.blobs.append_log(f"{placement}/0", 0, bytes(2**20))
    digest = world.core.blobs.put(bytes(2**20))
    await world.put(Outputs(old, placement, 1, (OutputPart("north", digest, 2**20),)))
    keep(world, **{limit: 1})
    await later(world, 0.5)
    assert {old, new} == set(world.core.records.jobs)
    with pytest.raises(TooMany, match=words):
        await world.submit()
    if limit == "blobs_mib":
        with pytest.raises(TooMany, match=words):
            world.core.sweeper.retention.refuse_bytes_if_full()
    await later(world, 1)
    assert {new} == set(world.core.records.jobs)
    assert await world.submit()


async def test_the_ledger_is_kept_for_its_time_and_within_its_length(world: World) -> None:
    keep(world, ledger_s=10 * DAY_S, ledger_lines=60)
    for number in range(10):
        await world.core.policy_service.pause_burst(ROOT, on=bool(number % 2))
        await later(world, 1)
    lines = await stored(world, "ledger/")
    assert len(lines) == 10
    await later(world, 5)
    assert (await stored(world, "ledger/")) == lines[5:]
    for number in range(55):
        await world.core.policy_service.pause_burst(ROOT, on=bool(number % 2))
    with pytest.raises(TooMany, match="60 lines of the ledger"):
        await world.submit()
    await later(world, 1)
    left = await stored(world, "ledger/")
    assert len(left) == 57, "to a little below the limit, the oldest first, none younger than promised"
    assert set(left) >= set((await stored(world, "ledger/"))[-55:])
    assert await world.submit()


async def test_lines_of_the_ledger_younger_than_promised_are_kept_over_the_limit(world: World) -> None:
    keep(world, ledger_lines=5)
    for number in range(20):
        await world.core.policy_service.pause_burst(ROOT, on=bool(number % 2))
    await later(world, 6)
    assert len(await stored(world, "ledger/")) == 20
    with pytest.raises(TooMany, match="5 lines of the ledger"):
        await world.submit()


async def test_the_ledger_is_counted_after_a_restart(world: World) -> None:
    for number in range(20):
        await world.core.policy_service.pause_burst(ROOT, on=bool(number % 2))
    again = await make_world(world.core.records.store, world.clock)  # type: ignore[arg-type]
    keep(again, ledger_lines=20)
    await again.core.sweeper.sweep()
    with pytest.raises(TooMany, match="20 lines"):
        await again.submit()


async def test_decisions_are_kept_within_age_number_and_size(world: World) -> None:
    keep(world, decisions=3)
    for number in range(5):
        await run(world, name=f"n{number}")
    assert len(world.core.decisions.rows()) == 3
    assert len(await stored(world, "decision/")) == 3
    newest = world.core.decisions.rows()[-1].id
    assert (await world.core.decisions.load(newest))[1].decision == newest
    await later(world, 31)
    assert world.core.decisions.rows() == []
    assert [key for key in await stored(world) if key.startswith("decision")] == []


async def test_a_decision_that_could_not_be_written_is_not_listed_and_drops_none(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(world, decisions=1)
    await run(world)
    problem, plan = await world.core.decisions.load(world.core.decisions.rows()[0].id)

    async def full(_transaction: Any) -> int:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(world.core.records.store, "commit", full)
    with pytest.raises(Unavailable):
        await world.core.decisions.record(problem, msgspec.structs.replace(plan, decision="dec-new"))
    assert [row.id for row in world.core.decisions.rows()] == [plan.decision]


async def test_a_lower_limit_on_decisions_is_reached_in_portions(world: World) -> None:
    await run(world)
    problem, plan = await world.core.decisions.load(world.core.decisions.rows()[0].id)
    for number in range(200):
        await world.core.decisions.record(problem, msgspec.structs.replace(plan, decision=f"dec-{number:04}"))
    keep(world, decisions=10)
    for number in range(200, 210):
        await world.core.decisions.record(problem, msgspec.structs.replace(plan, decision=f"dec-{number:04}"))
    assert len(world.core.decisions.rows()) == 10
    assert len(await stored(world, "decision/")) == 10


# ---------------------------------------------------------------------------------------------------------- credentials


async def test_spent_credentials_go_and_those_in_use_stay(world: World) -> None:
    admission = world.core.admission
    await admission.create_token(ROOT, TokenRequest(name="short", role="user", expires_in="1h"))
    await admission.create_token(ROOT, TokenRequest(name="long", role="user"))
    await admission.create_token(ROOT, TokenRequest(site="north", kind="onprem"))
    used = next(iter(world.core.records.join_tokens.values()))
    await world.put(
        msgspec.structs.replace(used, digest="0" * 64, public_key="00", member="north"),
        msgspec.structs.replace(used, digest="1" * 64, public_key="00", member="gone"),
    )
    await later(world, 2)
    assert len(world.core.records.join_tokens) == 3, "whoever comes late is told that it has expired"
    await later(world, 8)
    assert [token.digest for token in world.core.records.join_tokens.values()] == ["0" * 64]
    assert [token.name for token in world.core.records.tokens.values()] == ["long"]


async def test_members_of_machines_given_back_go_and_their_leases_stay_for_the_budgets(world: World) -> None:
    lease = Lease(
        id="lease-1",
        provider="cloudy",
        site="cloud",
        offer=OFFER,
        status=LeaseStatus.GONE,
        requested_at=1.0,
        because="",
        ended_at=world.clock.now(),
        billed_usd=5.0,
    )
    member = Member(id="cloud-1", site="cloud", public_key="", status=SiteStatus.GONE, lease="lease-1")
    await world.put(lease, member)
    await later(world, 6)
    assert "cloud-1" in world.core.records.members
    await later(world, 2)
    assert list(world.core.records.members) == ["north"]
    assert list(world.core.records.leases) == ["lease-1"]


# ------------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"promised_s": 6 * DAY_S}, "promised_s"),
        ({"jobs_s": 6 * DAY_S}, "jobs_s"),
        ({"ledger_s": DAY_S}, "ledger_s"),
        ({"sweep_s": 0.0}, "sweep_s"),
    ],
)
def test_settings_that_break_the_promise_are_refused(fields: dict[str, float], key: str) -> None:
    with pytest.raises(Invalid, match=rf"\$\.retention\.{key}"):
        check(Settings(retention=RetentionSettings(**fields)))  # type: ignore[arg-type]
