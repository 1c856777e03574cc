"""Nobody uses a queue that is not theirs: what a stranger, a member with fewer rights and an administrator of another queue try, and what they are told.

The secrets and data of a site are given by queue, so the right to the queue is the right to them.
"""

from typing import Any

import pytest

from federator.control.queries.rows import team_rows
from federator.kernel.errors import FederatorError, Forbidden, Invalid
from federator.model.identity import Caller, Role, Token
from federator.model.jobs import Job, JobStatus
from federator.model.series import SeriesStatus
from federator.wire.http import JobPatch
from federator.wire.jobfile import read_job
from tests.support.dispatch import World, make_world

TEAMS = """
apiVersion: federator/v1
kind: Team
metadata: {name: vision}
spec: {members: [ada, ci-bot], groups: [ml-research], admins: [tess]}
---
apiVersion: federator/v1
kind: Team
metadata: {name: speech}
spec: {members: [ben, ada]}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: research}
spec: {admins: {users: [lea]}, allow_must: true}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: research-vision}
spec:
  path: research/vision
  allow_must: true
  allow:
    - {teams: [vision], max_priority: 60, max_value: 100 USD, must: false, rent: false}
    - {users: [cy]}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: research-speech}
spec: {path: research/speech, allow: [{teams: [speech]}]}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: other}
spec: {allow: [{users: [eve, ned]}], admins: {users: [ned]}}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: always}
spec: {who: {queues: [research]}, when: {mode: always}, limits: {usd: {per_day: 500}}}
"""
VISION = "research/vision"


def user(name: str, *groups: str) -> Caller:
    return Caller(name, Role.USER, groups=groups)


ADA, BEN, CY, EVE, LEA, NED, TESS = map(user, ("ada", "ben", "cy", "eve", "lea", "ned", "tess"))
PAT = Caller("pat", Role.PLATFORM)


@pytest.fixture
async def world() -> World:
    world = await make_world()
    await world.policies(TEAMS)
    return world


async def refused(attempt: Any) -> FederatorError:
    with pytest.raises(FederatorError) as found:
        await attempt
    return found.value


async def change(world: World, who: Caller, job: str, **fields: Any) -> Job:
    return await world.core.intake.update(who, job, JobPatch(**fields))


# -- submitting -----------------------------------------------------------------------------------------------------------


async def test_a_stranger_is_refused_and_told_where_they_may_go_and_whom_to_ask(world: World) -> None:
    error = await refused(world.submit(EVE, queue=VISION, secrets=["wandb"], inputs=["s3://medical/scans"]))
    assert isinstance(error, Forbidden)
    assert error.describe() == (
        "$.queue: eve may not submit to queue research/vision (queues open to eve: other; research/vision is administered by user lea)"
    )
    assert not world.core.records.jobs, "bad input changes nothing"


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"priority": 100}, "$.priority"), ({"value": "must"}, "$.value"), ({"value": "101 USD"}, "$.value")],
)
async def test_a_member_claims_no_more_than_the_entry_admits(
    world: World, fields: dict[str, Any], field: str
) -> None:
    error = await refused(world.submit(ADA, queue=VISION, **fields))
    assert (type(error), error.field) == (Invalid, field)
    assert "queue research/vision" in error.message
    assert "team vision" in error.message
    admitted = world.job(await world.submit(CY, queue=VISION, finish_within="1d", **fields))
    assert admitted.team == ""


async def test_the_queue_that_nobody_is_named_for_is_closed_also_where_no_queue_is_written(
    world: World,
) -> None:
    for who in (EVE, ADA, user("sam")):
        assert "may not submit to queue default" in (await refused(world.submit(who))).message
    assert world.job(await world.submit(PAT)).queue == "default"


@pytest.mark.parametrize("who", [ADA, user("ci-bot"), user("gil", "ml-research")])
async def test_members_by_name_service_accounts_and_groups_get_in_as_their_team(
    world: World, who: Caller
) -> None:
    assert world.job(await world.submit(who, queue=VISION)).team == "vision"


async def test_a_team_that_one_is_not_in_opens_nothing(world: World) -> None:
    for who, team in ((EVE, "vision"), (BEN, "vision"), (ADA, "speech")):
        error = await refused(world.submit(who, queue=VISION, team=team))
        assert isinstance(error, Forbidden)


async def test_a_preview_and_an_array_and_many_lines_are_tested_alike(world: World) -> None:
    request = read_job({"run": "true", "queue": VISION}, now=world.clock.now())
    assert isinstance(await refused(world.core.views.preview(EVE, request)), Forbidden)
    assert isinstance(await refused(world.submit(EVE, queue=VISION, array="0-9")), Forbidden)
    assert not world.core.records.jobs


# -- changing -------------------------------------------------------------------------------------------------------------


async def test_an_own_job_is_not_moved_into_a_queue_of_others(world: World) -> None:
    job = await world.submit(EVE, queue="other")
    assert isinstance(await refused(change(world, EVE, job, queue=VISION)), Forbidden)
    assert world.job(job).queue == "other"


@pytest.mark.parametrize("patch", [{"priority": 61}, {"value": "must"}, {"value": "101"}, {"priority": -1}])
async def test_an_update_claims_no_more_than_a_submission(world: World, patch: dict[str, Any]) -> None:
    job = await world.submit(ADA, queue=VISION, finish_within="1d")
    assert isinstance(await refused(change(world, ADA, job, **patch)), Invalid)


async def test_what_a_job_claims_is_claimed_anew_where_it_is_moved_to(world: World) -> None:
    job = await world.submit(ADA, queue="research/speech", value="500 USD", finish_within="1d", priority=90)
    assert (await refused(change(world, ADA, job, queue=VISION))).field == "$.value"
    moved = await change(world, ADA, job, queue=VISION, value="50")
    assert (moved.team, moved.may_rent, moved.priority) == ("vision", False, 60)


async def test_an_administrator_raises_and_moves_within_the_own_queues_only(world: World) -> None:
    job = await world.submit(ADA, queue=VISION)
    assert (await change(world, LEA, job, priority=95)).priority == 95
    assert (await change(world, LEA, job, queue="research/speech")).team == "vision"
    error = await refused(change(world, LEA, job, queue="other"))
    assert "ada may not submit to queue other" in error.message
    assert (await change(world, ADA, job, deadline="2d")).priority == 95, (
        "who asks for no more needs no right"
    )


async def test_an_administrator_cannot_carry_a_strangers_job_into_a_queue_where_only_they_may_submit(
    world: World,
) -> None:
    """Its owner would read that queue's secrets."""
    job = await world.submit(EVE, queue="other")
    assert "eve may not submit" in (await refused(change(world, NED, job, queue=VISION))).message


async def test_an_administrator_of_the_team_raises_no_further_than_its_owner_could(world: World) -> None:
    job = await world.submit(ADA, queue=VISION)
    assert (await change(world, TESS, job, priority=60)).priority == 60
    assert isinstance(await refused(change(world, TESS, job, priority=61)), Invalid)


# -- series ---------------------------------------------------------------------------------------------------------------


async def test_a_series_is_paused_when_its_owner_has_lost_the_right_and_goes_on_when_it_is_back(
    world: World,
) -> None:
    assert isinstance(await refused(_every_hour(world, EVE)), Forbidden)
    await _every_hour(world, ADA)
    await world.core.series_runs.look()
    (run,) = world.core.records.jobs.values()
    assert (run.series, run.team) == ("nightly", "vision")
    await world.core.intake.cancel(ADA, run.id)
    await world.policies(TEAMS.replace("members: [ada, ci-bot]", "members: [ci-bot]"))
    world.clock.advance(3600)
    await world.core.series_runs.look()
    (series,) = world.core.records.series.values()
    assert (series.runs, series.status) == (1, SeriesStatus.PAUSED)
    assert "ada may not submit to queue research/vision" in series.paused_because
    assert isinstance(await refused(world.core.series.resume(ADA, series)), Forbidden)
    await world.policies(TEAMS)
    await world.core.series_runs.look()
    (series,) = world.core.records.series.values()
    assert series.status is SeriesStatus.ACTIVE


async def test_a_series_runs_with_the_groups_and_the_role_of_who_has_submitted_it(world: World) -> None:
    await _every_hour(world, user("gil", "ml-research"))
    await world.put(Token(digest="d", name="pat", role=Role.PLATFORM))
    await _every_hour(world, PAT, name="daily", queue="default")
    world.clock.advance(3601)
    await world.core.series_runs.look()
    assert {job.owner for job in world.core.records.jobs.values()} == {"gil", "pat"}


async def test_a_stranger_neither_pauses_nor_reads_a_series_and_an_administrator_does(world: World) -> None:
    await _every_hour(world, ADA)
    (series,) = world.core.records.series.values()
    assert isinstance(await refused(world.core.series.pause(EVE, series)), Forbidden)
    assert isinstance(await refused(world.core.series.end(BEN, series)), Forbidden)
    assert world.core.series.detail(EVE, series).file is None
    assert world.core.series.detail(user("ci-bot"), series).file is not None
    await world.core.series.pause(LEA, series)


async def _every_hour(world: World, who: Caller, name: str = "nightly", queue: str = VISION) -> None:
    given = {"name": name, "run": "true", "queue": queue, "every": "1h"}
    request = read_job(given, now=world.clock.now())
    await world.core.intake.submit(who, request, client_id=None, body_hash="x")


# -- renting --------------------------------------------------------------------------------------------------------------


async def test_nothing_is_rented_for_whom_the_queue_gives_no_right_to(world: World) -> None:
    """Under the same policy, at the same moment: the one job rents, the other is told why not."""
    job = await world.submit(ADA, queue=VISION, resources={"gpus": 4}, max_duration="1h")
    await world.core.executor.poll()
    await world.core.turn.once()
    assert not world.leases()
    found = await world.core.views.explain(world.job(job))
    assert any("its owner has no right to rent in queue research/vision" in site.text for site in found.sites)
    other = await world.submit(CY, queue=VISION, resources={"gpus": 4}, max_duration="1h")
    await world.core.turn.once()
    assert [lease.evidence.job for lease in world.leases() if lease.evidence] == [other]


async def test_an_approval_that_could_change_nothing_is_refused_and_says_what_would_help(
    world: World,
) -> None:
    """The job would wait on, and whoever approved it would think that it rents."""
    job = await world.submit(ADA, queue=VISION, resources={"gpus": 4}, max_duration="1h")
    before = world.job(job)
    error = await refused(world.core.policy_service.approve(PAT, job, 100.0, "the paper is due"))
    assert error.describe() == (
        "ada has no right to rent in queue research/vision, so an approval would change nothing (give the right (`rent` in `allow` of "
        f"queue research/vision) and have the job submitted again, or move it to a queue where ada has it: federator update {job} --queue QUEUE)"
    )
    assert world.job(job) == before
    other = await world.submit(CY, queue=VISION, resources={"gpus": 4}, max_duration="1h")
    await world.core.policy_service.approve(PAT, other, 100.0, "the paper is due")
    assert world.job(other).approved_usd == 100.0


# -- advice ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("who", "advised"), [(EVE, None), (ADA, "research/speech")])
async def test_advice_names_no_queue_that_the_owner_may_not_use(
    world: World, who: Caller, advised: str | None
) -> None:
    site = await world.add_site("hall")
    site.report(lends_to=("research/speech",))
    job = await world.submit(who, queue="other" if who is EVE else VISION, resources={"gpus": 1})
    await world.core.turn.once()
    assert world.job(job).status is JobStatus.PENDING
    found = await world.core.views.explain(world.job(job))
    told = str(found.changes) + str([site.change for site in found.sites])
    assert ("submit to" in told) is (advised is not None)
    assert advised is None or f"submit to {advised}" in told


# -- what people are told -------------------------------------------------------------------------------------------------


async def test_the_list_of_queues_says_what_who_asks_may_do(world: World) -> None:
    rows = {row.queue: row for row in world.core.views.queues(ADA)}
    vision, other = rows[VISION], rows["other"]
    assert vision.open_to == "team vision, user cy"
    assert (vision.yours.submit, vision.yours.max_priority, vision.yours.rent) == (True, 60, False)
    assert (other.yours.submit, other.open_to) == (False, "user eve, user ned")
    assert rows["default"].open_to == "only the roles platform and admin"
    await world.policies("apiVersion: federator/v1\nkind: Queue\nmetadata: {name: q}\n")
    assert {row.open_to for row in world.core.views.queues(EVE)} == {"everybody"}


async def test_applying_policies_says_whether_they_are_open_or_closed(world: World) -> None:
    verdict = world.core.policy_service.validate(TEAMS)
    assert verdict.access.startswith("closed: ")
    assert "default, research" in verdict.access
    assert world.core.policy_service.validate("").access.startswith("open: ")


async def test_the_list_of_teams_says_who_is_in_them_and_what_that_alone_gives(world: World) -> None:
    rows = {row.team: row for row in team_rows(world.core.authority.now, ADA)}
    assert [(row.team, row.yours, row.members, row.groups, row.admins) for row in rows.values()] == [
        ("speech", True, ("ben", "ada"), (), ()),
        ("vision", True, ("ada", "ci-bot"), ("ml-research",), ("tess",)),
    ]
    (vision,), (speech,) = rows["vision"].queues, rows["speech"].queues
    assert (vision.queue, vision.max_priority, vision.rent, vision.teams) == (VISION, 60, False, ("vision",))
    assert (speech.queue, speech.max_priority, speech.rent) == ("research/speech", 100, True)
    assert [row.yours for row in team_rows(world.core.authority.now, EVE)] == [False, False]
