"""A site takes the work of the teams that its owner names, and no other's: what a plan, its checker, an explanation and the agent itself make of it.

Ada is in two teams. What the one may do at a site, her jobs under the other may not.
"""

from typing import Any

import msgspec
import pytest

from federator.hub.desired import DesiredPlacements, SyncSession
from federator.kernel.errors import Invalid
from federator.model.identity import Caller, Role
from federator.model.jobs import JobSpec, JobStatus
from federator.model.placements import DesiredEntry, PlacementStatus
from federator.model.sites import SHARED_TRUST
from federator.model.whose import Whose
from federator.planning.checks import check
from federator.wire import link
from federator.wire.decoding import decode
from federator_agent import secrets, whose
from federator_agent.config import parse
from federator_agent.data.allowed import Allowed, DataRules
from federator_agent.local import isolation
from federator_agent.staging_errors import StagingRefused
from tests.support.dispatch import World, make_world
from tests.support.worlds import a_job, a_plan, a_pool, a_world
from tests.unit.agent.worlds import World as AgentWorld
from tests.unit.agent.worlds import entry, lending, spec

POLICIES = """
apiVersion: federator/v1
kind: Team
metadata: {name: vision}
spec: {members: [ada, ci-bot]}
---
apiVersion: federator/v1
kind: Team
metadata: {name: speech}
spec: {members: [ada, ben]}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: lab}
spec: {allow: [{teams: [speech, vision]}]}
"""
ADA, BEN, BOT = (Caller(name, Role.USER) for name in ("ada", "ben", "ci-bot"))
VISION, SPEECH = Whose("lab", "ada", "vision"), Whose("lab", "ada", "speech")


@pytest.fixture
async def world() -> World:
    world = await make_world()
    await world.policies(POLICIES)
    return world


# -- the dispatcher -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reported", "reason"),
    [
        ({"lends_to": ("team:vision",)}, "lends only to team vision"),
        (
            {"isolation": SHARED_TRUST, "trusts": ("team:vision",)},
            "without isolation and takes only that of team vision",
        ),
    ],
)
async def test_a_site_of_one_team_gets_that_teams_jobs_alone(
    world: World, reported: dict[str, Any], reason: str
) -> None:
    site = await world.add_site("hall")
    site.report(**reported)
    mine = await world.submit(ADA, queue="lab", team="vision", resources={"gpus": 1})
    bots = await world.submit(BOT, queue="lab", resources={"gpus": 1})
    others = await world.submit(ADA, queue="lab", resources={"gpus": 1})
    bens = await world.submit(BEN, queue="lab", resources={"gpus": 1})
    site.report(**reported)
    await world.core.turn.once()
    assert [world.job(job).team for job in (mine, bots, others, bens)] == [
        "vision",
        "vision",
        "speech",
        "speech",
    ]
    assert {p.job for p in world.core.records.open_placements.values()} == {mine, bots}
    for job in (others, bens):
        assert world.job(job).status is JobStatus.PENDING
        found = await world.core.views.explain(world.job(job))
        told = [each.text for each in found.sites if each.site == "hall"]
        assert told
        assert all(reason in text for text in told)
        assert any("submit as team vision, if" in change for change in found.changes)


async def test_who_looks_at_a_site_sees_whose_work_it_takes(world: World) -> None:
    site = await world.add_site("hall")
    site.report(lends_to=("lab", "team:vision"), isolation=SHARED_TRUST, trusts=("team:vision", "owner:ben"))
    row = next(row for row in world.core.views.sites() if row.name == "hall")
    assert row.lends_to == "queue lab, team vision"
    assert row.isolation == "shared-trust: takes only work of owner ben, team vision"
    site.report()
    row = next(row for row in world.core.views.sites() if row.name == "hall")
    assert row.lends_to == ""


def test_the_checker_does_not_take_jobs_of_two_teams_for_one() -> None:
    jobs = [a_job("job-a", team="speech"), a_job("job-b", team="vision")]
    problem = a_world(jobs, [a_pool(lends_to=("team:vision",))])
    findings = check(problem, a_plan(waiting=["job-a", "job-b"]))
    assert {(finding.subject, finding.promise) for finding in findings} == {("job-b", 13)}


# -- the agent ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        ({"queue": "lab", "owner": "ada", "team": "vision"}, True),
        ({"queue": "lab", "owner": "ada", "team": "speech"}, False),
        ({"queue": "lab", "owner": "ada"}, False),
        ({"queue": "vision", "owner": "vision", "team": "visions"}, False),
        ({"queue": "own/deep", "owner": "eve"}, True),
    ],
)
def test_the_agent_itself_refuses_what_its_site_file_does_not_name(
    fields: dict[str, Any], *, taken: bool
) -> None:
    of, names = spec(), ("team:vision", "own")
    lends, trusts = AgentWorld(lending(queues=names)), AgentWorld()
    trusts.state = msgspec.structs.replace(trusts.state, trusts=names)
    for agent in (lends, trusts):
        agent.connect()
        agent.want(entry("p", of, **fields))
        agent.bring(of)
        assert (agent.last("p").status is not PlacementStatus.REFUSED) is taken


def test_secrets_addresses_and_accounts_go_by_team() -> None:
    known = decode(
        {"wandb": {"file": "/x", "queues": ["team:vision"]}}, dict[str, secrets.Secret], "$.secrets"
    )
    rules = DataRules(
        decode([{"address": "s3://scans", "queues": "team:vision"}], tuple[Allowed, ...], "$.data_addresses")
    )
    wants = JobSpec(name="job", run="x", secrets=("wandb",))
    secrets.check(known, wants, VISION)
    with pytest.raises(StagingRefused, match="'wandb' only to team vision"):
        secrets.check(known, wants, SPEECH)
    saves = msgspec.convert({"name": "job", "run": "x", "checkpoint": {"uri": "s3://scans/a"}}, JobSpec)
    rules.check(saves, VISION)
    with pytest.raises(StagingRefused, match="s3://scans/a for queue lab, owner ada, team speech"):
        rules.check(saves, SPEECH)


SITE = """
site: hall
lend: {queues: [lab, "team:vision"]}
slurm:
  shared_dir: /shared
  queues: {lab: {account: lab}, team:vision: {account: vision, user: vis}, "owner:ben": {qos: low}, "*": {account: rest}}
"""
KUBE = "site: hall\nkube: {image: x, service_accounts: {lab/*: lab, 'team:vision': vision}, service_account: rest}"


def test_of_what_a_site_has_for_each_the_nearest_name_counts() -> None:
    slurm, kube = parse(SITE, "f", {}).slurm, parse(KUBE, "f", {}).kube
    assert slurm is not None
    assert kube is not None
    assert parse(SITE, "f", {}).site.lend.queues == ("lab", "team:vision")
    ben = Whose("lab/deep", "ben", "vision")
    asked = (VISION, SPEECH, ben, Whose("other"))
    accounts = [slurm.account(each) for each in asked]
    assert [(each.account, each.qos, each.user) for each in accounts] == [
        ("vision", "", "vis"),
        ("lab", "", ""),
        ("", "low", ""),
        ("rest", "", ""),
    ]
    assert [kube.account(each) for each in asked] == ["vision", "lab", "vision", "rest"]


@pytest.mark.parametrize(
    "name",
    ["team:", "team:a/b", "team:a b", "owner:", "owner:a\nb", "teams:vision", "a//b", "team:" + "a" * 64],
)
def test_a_name_that_can_be_nobodys_is_refused_with_its_field(name: str) -> None:
    for given, kind in (([name], whose.Names), ({"trusts": [name]}, isolation.Isolation)):
        with pytest.raises(Invalid, match=r"^\$\.x(\.trusts)?\[0\]: "):
            decode(given, kind, "$.x")
    with pytest.raises(Invalid, match=r"^\$\.x\."):
        decode({name: "y"}, dict[whose.Key, str], "$.x")


async def test_only_an_agent_that_reads_teams_is_told_of_them(world: World) -> None:
    """One version behind refuses a field that it does not know, and with it all work."""
    site = await world.add_site("hall")
    await world.submit(ADA, queue="lab", team="vision", resources={"gpus": 1})
    site.report()
    await world.core.turn.once()

    def told(*knows: str) -> DesiredEntry:
        board = DesiredPlacements(world.core.records, lambda _member, _placement: None)
        board.load()
        desired = SyncSession(board, "hall", knows).next(1)
        assert desired is not None
        return desired.entries[0]

    assert told(link.OWNER, link.TEAM).whose == Whose("lab", "ada", "vision")
    assert told(link.OWNER).whose == Whose("lab", "ada")
    assert told("nonsense").whose == Whose("lab")
