"""Pipelines over HTTP: submitted as a whole or not at all, once by a client id, and shown, cancelled and run again by their name."""

from typing import Any

import msgspec

from federator.control.record.rows import OutputPart, Outputs
from federator.model.jobs import Job, JobStatus
from federator.wire.steps import MOST_STEPS
from tests.integration.api.rig import Answer, Rig

STEPS: dict[str, Any] = {
    "prepare": {"run": "a", "outputs": ["data/**"]},
    "train": {"run": "b", "array": "1-2", "inputs": {"from": "prepare"}, "outputs": "model"},
    "plot": {"run": "d", "array": "2", "after": {"each": "train"}, "inputs": {"from": "train"}},
    "report": {"run": "c", "inputs": [{"from": "train"}, {"from": "prepare", "output": "data"}]},
}


async def submit(rig: Rig, who: str = "ada", **more: Any) -> Answer:
    body = {"name": "nightly", "steps": STEPS, **more}
    return await rig.ask("POST", "/v1/jobs", who, json=body)


def jobs(rig: Rig) -> dict[str, Job]:
    """The newest of each name and index."""
    return {job.label: job for job in sorted(rig.world.core.records.jobs.values(), key=lambda job: job.id)}


async def end(rig: Rig, label: str, status: JobStatus) -> None:
    job = jobs(rig)[label]
    await rig.world.put(msgspec.structs.replace(job, status=status, finished_at=1.0))


async def test_all_steps_are_there_with_those_that_they_follow(rig: Rig) -> None:
    answer = await submit(rig)
    assert answer.status == 201, answer.data
    told, found = answer.json(), jobs(rig)
    assert (told["name"], len(told["jobs"])) == ("nightly", 4)
    assert set(found) == {
        "nightly.prepare",
        "nightly.train[1]",
        "nightly.train[2]",
        "nightly.plot[2]",
        "nightly.report",
    }
    assert {job.pipeline for job in found.values()} == {told["pipeline"]}
    prepare, task = found["nightly.prepare"], found["nightly.train[2]"]
    assert task.after == (prepare.id,)
    assert found["nightly.plot[2]"].after == (task.id,)
    assert set(found["nightly.report"].after) == {task.array, prepare.id}
    sources = rig.world.core.records.spec(found["nightly.plot[2]"].spec_hash).inputs_from
    assert sources
    assert (sources[0].job, sources[0].each) == (task.array, True)


async def test_the_same_client_id_gives_the_first_answer_and_another_file_is_refused(rig: Rig) -> None:
    first = (await submit(rig, client_id="once")).json()
    again = await submit(rig, client_id="once")
    assert again.json() == {**first, "repeated": True}
    assert len(jobs(rig)) == len(rig.world.core.records.jobs) == 5
    other = await submit(rig, client_id="once", queue="default")
    assert other.status == 409


async def test_a_step_that_is_refused_leaves_nothing_of_the_others(rig: Rig) -> None:
    steps = {**STEPS, "last": {"run": "x", "after": "report", "queue": "none/such"}}
    refused = await submit(rig, steps=steps)
    assert (refused.status, refused.problem["field"]) == (refused.status, "$.steps.last.queue")
    assert refused.status in (400, 403, 404, 422)
    assert not rig.world.core.records.jobs
    for shared in ({"queue": "none/such"}, {"workdir": f"sha256:{'0' * 64}"}):
        refused = await submit(rig, **shared)
        assert refused.problem["field"] == f"$.{next(iter(shared))}"
    assert not rig.world.core.records.jobs


async def test_the_largest_pipeline_is_one_transaction(rig: Rig) -> None:
    chain = {
        f"s{number}": {"run": f"step {number}", **({"after": f"s{number - 1}"} if number else {})}
        for number in range(MOST_STEPS)
    }
    answer = await submit(rig, steps=chain, client_id="large")
    assert answer.status == 201, answer.data
    assert len(rig.world.core.records.jobs) == MOST_STEPS
    arrays = {f"s{number}": {"run": f"step {number}", "array": "0-2"} for number in range(MOST_STEPS)}
    assert (await submit(rig, steps=arrays, name="arrays")).status == 201
    assert len(rig.world.core.records.jobs) == 4 * MOST_STEPS


async def test_steps_are_listed_and_cancelled_by_the_pipelines_name_and_only_by_who_may(rig: Rig) -> None:
    old = (await submit(rig)).json()
    told = (await submit(rig)).json()
    await submit(rig, "bob")
    listed = (await rig.ask("GET", "/v1/jobs?pipeline=nightly&collapse=true")).json()["jobs"]
    assert sorted(row["id"] for row in listed) == sorted(told["jobs"])
    by_id = await rig.ask("GET", f"/v1/jobs?pipeline={old['pipeline']}&collapse=true")
    assert sorted(row["id"] for row in by_id.json()["jobs"]) == sorted(old["jobs"])
    assert (await rig.ask("GET", "/v1/jobs?pipeline=none")).status == 404
    cancel = {"verb": "cancel", "jobs": [told["pipeline"]]}
    assert (await rig.ask("POST", "/v1/jobs/actions", "bob", json=cancel)).status in (403, 404)
    acted = (await rig.ask("POST", "/v1/jobs/actions", json={**cancel, "jobs": ["nightly"]})).json()
    assert [each["label"] for each in acted] == [
        "nightly.prepare",
        "nightly.train[1-2]",
        "nightly.plot[2]",
        "nightly.report",
    ]
    ended = {job.pipeline for job in rig.world.core.records.jobs.values() if job.terminal}
    assert ended == {told["pipeline"]}


async def test_a_rerun_of_what_failed_has_what_follows_and_reads_what_the_others_left(rig: Rig) -> None:
    await submit(rig)
    first = jobs(rig)
    rerun = {"job": "nightly", "failed": True}
    assert (await rig.ask("POST", "/v1/jobs/rerun", json=rerun)).status == 409
    for label in first:
        await end(rig, label, JobStatus.FAILED if label == "nightly.train[1]" else JobStatus.SUCCEEDED)
    await end(rig, "nightly.report", JobStatus.CANCELLED)
    prepare = first["nightly.prepare"].id
    gone = await rig.ask("POST", "/v1/jobs/rerun", json=rerun)
    assert gone.problem["field"] == "$.steps.train.inputs", "what it left is not kept any more"
    await rig.world.put(Outputs(prepare, "plc-1", 1, (OutputPart("north", "0" * 64, 1),)))
    answer = await rig.ask("POST", "/v1/jobs/rerun", json=rerun)
    assert answer.status == 201, answer.data
    again = {
        label: job for label, job in jobs(rig).items() if job.id not in {each.id for each in first.values()}
    }
    assert set(again) == {"nightly.train[1]", "nightly.train[2]", "nightly.plot[2]", "nightly.report"}
    assert again["nightly.train[1]"].after == (first["nightly.prepare"].id,)
    assert again["nightly.plot[2]"].after == (again["nightly.train[2]"].id,)
    assert set(again["nightly.report"].after) == {
        again["nightly.train[1]"].array,
        first["nightly.prepare"].id,
    }
    assert (await rig.ask("POST", "/v1/jobs/rerun", "bob", json=rerun)).status in (403, 404)
