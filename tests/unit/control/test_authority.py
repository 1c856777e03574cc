"""Who may submit where and how people stand to jobs, by one set of rules."""

from typing import Any

import pytest

from federator.control.administration.authority import Authority
from federator.kernel.errors import Forbidden, Invalid
from federator.model.identity import Caller, Role
from federator.model.jobs import Job, JobStatus
from federator.model.rights import Relation
from federator_policies.documents import compile_set, load

SET = """
apiVersion: federator/v1
kind: Team
metadata: {name: vision}
spec: {members: [ada, ben], groups: [phd], admins: [ada]}
---
apiVersion: federator/v1
kind: Team
metadata: {name: audit}
spec: {members: [ada]}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: research}
spec:
  max_priority: 80
  allow_must: true
  allow:
    - {teams: [vision], max_priority: 60, max_value: 100, must: false, rent: false}
    - {users: [cy], groups: [guests]}
  admins: {users: [lea]}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: vision}
spec: {path: research/vision}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: shut}
spec: {path: research/shut, allow: [], admins: {users: [ida]}}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: scratch}
spec: {allow: [{users: ["*"]}]}
"""
AUTHORITY = Authority(compile_set(load(SET)))
OPEN = Authority(compile_set(load("")))


def user(name: str, *groups: str, role: Role = Role.USER, site: str | None = None) -> Caller:
    return Caller(name, role, (site,) if site else (), groups=groups)


def job(owner: str = "ben", queue: str = "research/vision", team: str = "vision") -> Job:
    fields: dict[str, Any] = {"status": JobStatus.PENDING, "spec_hash": "", "submitted_at": 0.0}
    return Job(id="job-1", name="x", owner=owner, queue=queue, team=team, **fields)


def test_without_a_word_about_people_everybody_may_submit_everywhere() -> None:
    assert not OPEN.closed
    assert OPEN.rights(user("eve"), "default")[0].max_priority == 100
    assert "everybody" in OPEN.shown
    with pytest.raises(Invalid, match="there is no team") as refused:
        OPEN.rights(user("eve"), "default", "vision")
    assert refused.value.field == "$.team"


def test_one_name_anywhere_closes_every_other_queue() -> None:
    for who in (user("eve"), user("ada"), user("sam", role=Role.SITE_ADMIN, site="north")):
        with pytest.raises(Forbidden, match="may not submit to queue default"):
            AUTHORITY.rights(who, "default")
    for role in (Role.PLATFORM, Role.ADMIN):
        assert AUTHORITY.rights(user("pat", role=role), "default")
    assert "default" in AUTHORITY.shown


def test_a_refusal_names_the_queues_that_are_open_and_who_administers_the_one_that_is_not() -> None:
    with pytest.raises(Forbidden) as refused:
        AUTHORITY.rights(user("eve"), "research/vision")
    assert refused.value.field == "$.queue"
    assert refused.value.remedy == "queues open to eve: scratch; research/vision is administered by user lea"


@pytest.mark.parametrize("who", [user("ben"), user("ada"), user("phil", "phd")])
def test_a_team_is_who_is_named_and_who_is_in_a_group(who: Caller) -> None:
    (right,) = AUTHORITY.rights(who, "research/vision")
    assert (right.team, right.max_priority, right.max_value_usd, right.must, right.rent) == (
        "vision", 60, 100.0, False, False,
    )  # fmt: skip


def test_the_lower_limit_of_queue_and_entry_holds() -> None:
    (right,) = AUTHORITY.rights(user("cy"), "research")
    assert (right.team, right.max_priority, right.must, right.rent) == ("", 80, True, True)


def test_a_job_may_name_one_of_its_owners_teams_and_no_other() -> None:
    assert AUTHORITY.rights(user("ada"), "scratch", "audit")[0].team == "audit"
    for who, queue, team, field in (
        (user("ben"), "scratch", "audit", "$.team"),
        (user("ada"), "research", "audit", "$.queue"),
    ):
        with pytest.raises(Forbidden) as refused:
            AUTHORITY.rights(who, queue, team)
        assert refused.value.field == field


def test_who_administers_a_queue_may_submit_to_it_and_to_those_below() -> None:
    (right,) = AUTHORITY.rights(user("lea"), "research/vision")
    assert (right.max_priority, right.rent) == (80, True)
    assert not AUTHORITY.administers(user("lea"), "scratch")
    assert AUTHORITY.usable(user("ida")) == ("research/shut", "scratch")
    assert "research/shut" in AUTHORITY.usable(user("lea"))


def test_an_empty_list_is_an_answer_and_not_taken_from_above() -> None:
    with pytest.raises(Forbidden, match="may not submit to queue research/shut"):
        AUTHORITY.rights(user("ben"), "research/shut")


def test_an_owner_who_is_not_there_has_the_rights_of_the_name_and_of_the_jobs_team() -> None:
    assert AUTHORITY.usable_by_owner(job(owner="phil")) == ("research", "research/vision", "scratch")
    assert AUTHORITY.usable_by_owner(job(owner="phil", team="")) == ("scratch",)
    assert OPEN.usable_by_owner(job()) is None
    with pytest.raises(Forbidden):
        AUTHORITY.owners_rights(job(owner="phil", team="gone"), "research")


@pytest.mark.parametrize(
    ("who", "relations"),
    [
        (user("ben"), {Relation.OWNER, Relation.TEAM_MATE}),
        (user("ada"), {Relation.TEAM_MATE, Relation.TEAM_ADMIN}),
        (user("phil", "phd"), {Relation.TEAM_MATE}),
        (user("lea"), {Relation.QUEUE_ADMIN}),
        (user("cy"), set()),
        (user("sam", role=Role.SITE_ADMIN, site="north"), {Relation.SITE_ADMIN}),
        (user("sue", role=Role.SITE_ADMIN, site="south"), set()),
        (user("pat", role=Role.PLATFORM), {Relation.PLATFORM, Relation.QUEUE_ADMIN}),
    ],
)
def test_how_people_stand_to_a_job(who: Caller, relations: set[Relation]) -> None:
    assert AUTHORITY.relations(who, job(), "north") == relations


def test_two_teams_in_one_queue_are_strangers() -> None:
    assert AUTHORITY.relations(user("ben"), job(owner="cy", team="")) == frozenset()
