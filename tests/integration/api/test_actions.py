"""One verb for many jobs over HTTP: everything is checked before anything is changed."""

from typing import Any

import pytest
from msgspec.structs import replace

from federator.control.submission.verbs import Acted
from tests.integration.api.rig import Rig
from tests.integration.api.test_jobs import limit


async def test_all_that_is_named_is_changed_in_one_request(rig: Rig) -> None:
    await rig.submit(name="sweep", array="0-9")
    await rig.submit(name="train")
    body = {"verb": "hold", "jobs": ["sweep[3-7]", "train"]}
    sweep, train = (await rig.ask("POST", "/v1/jobs/actions", json=body)).json()
    assert (sweep["label"], sweep["changed"], sweep["status"]) == ("sweep[3-7]", 5, {"HELD": 5})
    assert (train["label"], train["because"]) == ("train", "held by ada")
    shown = await rig.ask("GET", "/v1/jobs/sweep%5B3%5D")
    assert shown.json()["job"]["status"] == "HELD"


async def test_an_array_of_that_name_that_comes_meanwhile_is_left_alone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the tasks that are no jobs come those that are: of the array that was looked at, whatever the name means by now."""
    intake = rig.world.core.intake
    intake.acceptance.limits = replace(intake.acceptance.limits, array_waiting=10)
    await rig.submit(name="sweep", array="0-99")
    act_on_rest = intake.verbs.act_on_rest

    async def and_another_comes(*args: Any) -> Acted:
        acted = await act_on_rest(*args)
        await rig.submit(name="sweep", array="0-99")
        return acted

    monkeypatch.setattr(intake.verbs, "act_on_rest", and_another_comes)
    body = {"verb": "cancel", "jobs": ["sweep"]}
    (acted,) = (await rig.ask("POST", "/v1/jobs/actions", json=body)).json()
    assert (acted["changed"], acted["status"]) == (100, {"CANCELLED": 100})
    shown = (await rig.ask("GET", "/v1/jobs?collapse=true")).json()
    assert [row["tasks"] for row in shown["jobs"]] == [{"PENDING": 100}, {"CANCELLED": 100}]


async def test_an_update_changes_all_tasks_and_needs_what_to_change(rig: Rig) -> None:
    await rig.submit(name="sweep", array="0-9")
    body = {"verb": "update", "jobs": ["sweep"], "patch": {"priority": 20}}
    (acted,) = (await rig.ask("POST", "/v1/jobs/actions", json=body)).json()
    assert (acted["label"], acted["changed"]) == ("sweep[0-9]", 10)
    for wrong in ({"verb": "update", "jobs": ["sweep"]}, {**body, "verb": "cancel"}):
        refused = await rig.ask("POST", "/v1/jobs/actions", json=wrong)
        assert (refused.status, refused.problem["field"]) == (400, "$.patch")


async def test_one_job_of_somebody_else_refuses_the_whole_request(rig: Rig) -> None:
    await rig.submit(name="mine")
    await rig.submit("bob", name="theirs")
    answer = await rig.ask("POST", "/v1/jobs/actions", json={"verb": "cancel", "jobs": ["mine", "theirs"]})
    assert (answer.status, answer.problem["detail"]) == (403, "theirs belongs to bob")
    assert (await rig.ask("GET", "/v1/jobs/mine")).json()["job"]["status"] == "PENDING"


async def test_a_list_says_which_lines_may_be_changed(rig: Rig) -> None:
    team = "apiVersion: federator/v1\nkind: Team\nmetadata: {name: vision}\nspec: {members: [ada, bob], admins: [bob]}\n---\napiVersion: federator/v1\nkind: Queue\nmetadata: {name: default}\nspec: {allow: [{users: [ada]}, {teams: [vision]}]}"
    applied = await rig.ask("POST", "/v1/policies", "pat", json={"text": team, "reason": "test"})
    assert applied.status == 200, applied.data
    await rig.submit(name="shared", team="vision", array="0-2")
    await rig.submit(name="own")
    made = await rig.ask(
        "POST", "/v1/tokens", "root", json={"name": "pat", "role": "platform", "scopes": ["read"]}
    )
    rig.secrets["reader"] = made.json()["secret"]

    async def changeable(who: str) -> set[str]:
        page = (await rig.ask("GET", "/v1/jobs?collapse=true", who)).json()
        return {row["name"] for row in page["jobs"] if row["may_change"]}

    assert await changeable("ada") == {"shared", "own"}
    assert await changeable("bob") == {"shared"}, "he administers that team"
    assert await changeable("pat") == {"shared", "own"}
    assert await changeable("sam") == set()
    assert await changeable("reader") == set(), "the token may only read"


async def test_a_series_is_not_taken_for_its_run(rig: Rig) -> None:
    await rig.ask("POST", "/v1/jobs", json={"run": "true", "name": "nightly", "every": "1h"})
    answer = await rig.ask("POST", "/v1/jobs/actions", json={"verb": "cancel", "jobs": ["nightly"]})
    assert answer.status in (404, 409)
    for wrong in (
        {"verb": "cancel", "jobs": []},
        {"verb": "kill", "jobs": ["x"]},
        {"verb": "cancel", "jobs": ["x"] * 1001},
    ):
        assert (await rig.ask("POST", "/v1/jobs/actions", json=wrong)).status == 400
    assert (await rig.ask("POST", "/v1/jobs/actions", json={"verb": "cancel", "jobs": ["x[0-"]})).status in (
        400,
        404,
    )


async def test_what_failed_is_submitted_again_once_under_one_key(rig: Rig) -> None:
    job = await rig.submit(name="train")
    await rig.ask("DELETE", f"/v1/jobs/{job}")
    key = {"Idempotency-Key": "again-1"}
    first = await rig.ask("POST", "/v1/jobs/rerun", json={"job": "train"}, headers=key)
    again = await rig.ask("POST", "/v1/jobs/rerun", json={"job": job}, headers=key)
    assert first.status == 201
    assert again.status == 409, "another body"
    assert (await rig.ask("POST", "/v1/jobs/rerun", "bob", json={"job": job})).status == 403
    assert (await rig.ask("POST", "/v1/jobs/rerun", json={"job": job, "failed": True})).status == 409


LOW = """
apiVersion: federator/v1
kind: Queue
metadata: {name: low}
spec: {max_priority: 60}
"""


async def test_a_patch_that_one_job_may_not_have_changes_none(rig: Rig) -> None:
    await rig.world.policies(LOW)
    await rig.submit(name="first", priority=40)
    await rig.submit(name="second", queue="low", priority=40)
    body = {"verb": "update", "jobs": ["first", "second"], "patch": {"priority": 80}}
    refused = await rig.ask("POST", "/v1/jobs/actions", json=body)
    assert (refused.status, refused.problem["field"]) == (400, "$.priority")
    for name in ("first", "second"):
        assert (await rig.ask("GET", f"/v1/jobs/{name}")).json()["job"]["priority"] == 40


async def test_entries_are_taken_once_and_mean_no_more_jobs_than_a_request_may_have(rig: Rig) -> None:
    await rig.submit(name="sweep", array="0-9")
    limit(rig, batch_jobs=19)
    acted = await rig.ask("POST", "/v1/jobs/actions", json={"verb": "hold", "jobs": ["sweep"] * 1000})
    assert [each["changed"] for each in acted.json()] == [10]
    body = {"verb": "release", "jobs": ["sweep", "sweep[0-9]"]}
    refused = await rig.ask("POST", "/v1/jobs/actions", json=body)
    assert refused.status == 429
    assert "mean over 19 jobs (limits.batch_jobs)" in refused.problem["detail"]


async def test_what_is_about_one_job_is_refused_for_a_whole_array(rig: Rig) -> None:
    """It was done to the newest task alone, of which nobody had asked."""
    await rig.submit(name="sweep", array="0-2")
    for method, tail, verb in (
        ("GET", "/logs", "logs"),
        ("GET", "/outputs", "download"),
        ("GET", "/outputs/files", "download"),
        ("DELETE", "", "cancel"),
    ):
        refused = await rig.ask(method, f"/v1/jobs/sweep{tail}")
        remedy = f"name one of them: federator {verb} 'sweep[0]'"
        assert (refused.status, refused.problem["remedy"]) == (400, remedy)
    cancelled = await rig.ask("DELETE", "/v1/jobs/sweep%5B1%5D")
    assert (cancelled.status, cancelled.json()["job"]["status"]) == (202, "CANCELLED")


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/plan"])
async def test_a_name_that_nobody_knows_does_not_read_as_nothing(rig: Rig, path: str) -> None:
    for name, known in (("site", "sites are: none yet"), ("queue", "queues are: default")):
        refused = await rig.ask("GET", f"{path}?{name}=nowhere")
        assert (refused.status, refused.problem["field"], refused.problem["remedy"]) == (
            400,
            f"?{name}",
            known,
        )
    assert (await rig.ask("GET", f"{path}?queue=default")).status == 200
