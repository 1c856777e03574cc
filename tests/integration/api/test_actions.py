"""One verb for many jobs over HTTP: everything is checked before anything is changed."""

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
