"""Outputs of one job as the inputs of another: whose may be read, which are taken, and what an agent may fetch of them."""

from typing import Any

import msgspec
import pytest

from federator.api import placement_inputs
from federator.model.jobs import JobStatus
from federator.model.placements import Placement, PlacementStatus
from federator.wire.link import PlacementInputs
from tests.integration.api.rig import HttpAgent, Rig, archive
from tests.integration.api.test_agents import placed


async def collected(rig: Rig, agent: HttpAgent, **fields: Any) -> str:
    """A job of ada's that has ended well and left a file."""
    row = await placed(rig, "north", **fields)
    assert (await agent.ask("PUT", f"/agent/v1/outputs/{row.id}", data=archive(model="42"))).status == 201
    await ended(rig, row, JobStatus.SUCCEEDED)
    return row.job


async def ended(
    rig: Rig, placement: Placement, job: JobStatus, status: PlacementStatus = PlacementStatus.SUCCEEDED
) -> None:
    await rig.world.put(msgspec.structs.replace(placement, status=status, ended_at=1.0))
    await rig.world.put(msgspec.structs.replace(rig.world.job(placement.job), status=job, finished_at=1.0))


async def read(rig: Rig, agent: HttpAgent, placement: str) -> PlacementInputs:
    answer = await agent.ask("GET", f"/agent/v1/inputs/{placement}")
    assert answer.status == 200, answer.data
    return msgspec.json.decode(answer.data, type=PlacementInputs)


async def test_an_agent_fetches_what_its_placement_reads_and_no_more(rig: Rig) -> None:
    north, south = await rig.agent(), await rig.agent("south")
    train = await collected(rig, north, name="train", outputs=["model"])
    other = await collected(rig, north, name="other", outputs=["**"])
    row = await placed(rig, "south", name="eval", inputs={"from": "train", "output": "model"})
    ((found,),) = (await read(rig, south, row.id)).found
    assert (found.job, found.label, found.below) == (train, "train", "")
    data = await south.ask("GET", f"/agent/v1/inputs/{row.id}/{train}/{found.digest}")
    assert (data.status, data.data) == (200, archive(model="42"))
    for agent, path in (
        (south, f"{row.id}/{other}/{found.digest}"),
        (south, f"{row.id}/{train}/{'0' * 64}"),
        (north, f"{row.id}/{train}/{found.digest}"),
        (north, row.id),
        (south, f"{row.id}/job-none/{found.digest}"),
    ):
        assert (await agent.ask("GET", f"/agent/v1/inputs/{path}")).status == 404


async def test_another_person_may_not_read_them_by_name_or_by_id(rig: Rig) -> None:
    north = await rig.agent()
    train = await collected(rig, north, name="train", outputs=["**"])
    for name in ("train", train):
        body = {"run": "true", "inputs": [{"from": name}]}
        answer = await rig.ask("POST", "/v1/jobs", "bob", json=body)
        assert answer.status in (400, 403, 422), answer.data
        assert answer.problem["field"] == "$.inputs"
        assert (await rig.ask("POST", "/v1/preview", "bob", json=body)).status == answer.status


async def test_what_is_not_collected_is_refused_with_what_is(rig: Rig) -> None:
    await rig.submit(name="plain")
    await rig.submit(name="train", outputs=["results/*.pt"])
    for inputs, words in (
        ({"from": "plain"}, "plain collects no outputs"),
        ({"from": "train", "output": "weights"}, "its outputs are results/*.pt"),
        ({"from": "nobody"}, "no job 'nobody'"),
    ):
        answer = await rig.ask("POST", "/v1/jobs", json={"run": "true", "inputs": [inputs]})
        assert answer.problem["field"] == "$.inputs"
        assert words in answer.problem["detail"]
        assert answer.problem["remedy"]


async def test_one_that_has_left_nothing_is_named_when_it_is_looked_for(rig: Rig) -> None:
    north = await rig.agent()
    await rig.submit(name="train", outputs=["**"])
    row = await placed(rig, "north", name="eval", inputs={"from": "train"})
    answer = await north.ask("GET", f"/agent/v1/inputs/{row.id}")
    assert answer.status == 404
    assert "train (job-" in answer.problem["detail"]
    assert "has left no outputs" in answer.problem["detail"]


async def test_of_an_array_all_tasks_each_below_its_index_or_the_one_with_the_readers_own(rig: Rig) -> None:
    north = await rig.agent()
    answer = await rig.ask(
        "POST", "/v1/jobs", json={"run": "true", "name": "sweep", "array": "3,5", "outputs": ["**"]}
    )
    tasks = answer.json()["jobs"]
    for number, task in enumerate(tasks):
        place = await rig.world.place(task, "north")
        data = archive(score=str(number))
        assert (await north.ask("PUT", f"/agent/v1/outputs/{place.id}", data=data)).status == 201
    whole = await placed(rig, "north", name="best", inputs={"from": "sweep"})
    (found,) = (await read(rig, north, whole.id)).found
    assert [(each.job, each.label, each.below) for each in found] == [
        (tasks[0], "sweep[3]", "3"),
        (tasks[1], "sweep[5]", "5"),
    ]
    each = {"run": "true", "name": "plot", "array": "5", "after": {"each": "sweep"}}
    answer = await rig.ask("POST", "/v1/jobs", json={**each, "inputs": {"from": "sweep"}})
    place = await rig.world.place(answer.json()["jobs"][0], "north")
    ((own,),) = (await read(rig, north, place.id)).found
    assert (own.job, own.below) == (tasks[1], "")


async def test_of_more_tasks_than_may_be_read_none_are_left_out_in_silence(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    north = await rig.agent()
    sweep = {"run": "true", "name": "sweep", "array": "0-2", "outputs": ["**"]}
    await rig.ask("POST", "/v1/jobs", json=sweep)
    whole = await placed(rig, "north", name="best", inputs={"from": "sweep"})
    monkeypatch.setattr(placement_inputs, "MOST_TASKS", 2)
    answer = await north.ask("GET", f"/agent/v1/inputs/{whole.id}")
    assert answer.status == 413
    assert "has over 2 tasks" in answer.problem["detail"]


@pytest.mark.parametrize("newest_first", [False, True])
async def test_of_several_attempts_the_one_that_succeeded_counts(rig: Rig, *, newest_first: bool) -> None:
    """One that was given up has succeeded after all, while the next was on its way: what that one leaves, before or after, is a part at best."""
    north = await rig.agent()
    first = await placed(rig, "north", name="train", outputs=["**"])
    next_one = msgspec.structs.replace(first, id="plc-next", epoch=first.epoch + 1)
    await rig.world.put(next_one)
    good, part = (first, archive(model="42")), (next_one, archive(model="4"))
    for placement, data in (part, good) if newest_first else (good, part):
        assert (await north.ask("PUT", f"/agent/v1/outputs/{placement.id}", data=data)).status == 201
        status = PlacementStatus.SUCCEEDED if placement is first else PlacementStatus.STOPPED
        await ended(rig, placement, JobStatus.SUCCEEDED, status)
    answer = await rig.ask("GET", f"/v1/jobs/{first.job}/outputs")
    assert (answer.status, answer.data) == (200, archive(model="42"))


async def test_what_a_failed_attempt_left_is_not_taken_for_that_of_the_success(rig: Rig) -> None:
    """Whose own could not be kept."""
    north = await rig.agent()
    first = await placed(rig, "north", name="train", outputs=["**"])
    path = f"/agent/v1/outputs/{first.id}"
    assert (await north.ask("PUT", path, data=archive(model="4"))).status == 201
    await ended(rig, first, JobStatus.PENDING, PlacementStatus.FAILED)
    outputs = f"/v1/jobs/{first.job}/outputs"
    assert (await rig.ask("GET", outputs)).data == archive(model="4")
    second = msgspec.structs.replace(first, id="plc-next", epoch=first.epoch + 1)
    await ended(rig, second, JobStatus.SUCCEEDED)
    assert (await rig.ask("GET", outputs)).status == 404
