"""Jobs over HTTP: submit, list, change, and every way to be refused."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from itertools import pairwise

import msgspec
import pytest

from federator.settings import LimitSettings
from tests.integration.api.rig import Rig

YAML = {"Content-Type": "application/yaml"}
NDJSON = {"Content-Type": "application/x-ndjson"}


def limit(rig: Rig, **limits: int) -> None:
    rig.world.core.settings = msgspec.structs.replace(
        rig.world.core.settings, limits=msgspec.structs.replace(LimitSettings(), **limits)
    )


async def test_a_file_with_only_run_is_accepted_and_shown_by_id_and_by_name(rig: Rig) -> None:
    answer = await rig.ask("POST", "/v1/jobs", json={"run": "python train.py"})
    assert answer.status == 201
    submitted = answer.json()
    by_id = (await rig.ask("GET", f"/v1/jobs/{submitted['jobs'][0]}")).json()
    by_name = (await rig.ask("GET", f"/v1/jobs/{submitted['name']}")).json()
    assert by_id["job"]["owner"] == "ada"
    assert by_id["spec"]["run"] == "python train.py"
    assert by_name["job"]["id"] == by_id["job"]["id"]


async def test_yaml_is_taken_as_well_as_json(rig: Rig) -> None:
    answer = await rig.ask("POST", "/v1/jobs", data="run: echo hi\nname: from-yaml\n", headers=YAML)
    assert answer.status == 201
    assert answer.json()["name"] == "from-yaml"


async def test_the_same_idempotency_key_gives_the_same_job_and_another_body_is_a_conflict(rig: Rig) -> None:
    key = {"Idempotency-Key": "nightly-1"}
    first = await rig.ask("POST", "/v1/jobs", json={"run": "true", "name": "a"}, headers=key)
    again = await rig.ask("POST", "/v1/jobs", json={"name": "a", "run": "true"}, headers=key)
    other = await rig.ask("POST", "/v1/jobs", json={"run": "false"}, headers=key)
    assert again.json()["jobs"] == first.json()["jobs"]
    assert again.json()["repeated"]
    assert other.status == 409
    assert other.problem["code"] == "client-id-reused"
    assert len(rig.world.core.records.jobs) == 1


@pytest.mark.parametrize(
    ("body", "headers", "status", "field"),
    [
        (b"{", {"Content-Type": "application/json"}, 400, "$"),
        (b"\xff\xfe", {"Content-Type": "application/json"}, 400, "$"),
        (b'{"run": "true", "nodes": "two"}', {"Content-Type": "application/json"}, 400, "$.nodes"),
        (b'{"run": "true", "array": "0-9%0"}', {"Content-Type": "application/json"}, 400, "$.array"),
        (b"run: [", YAML, 400, None),
        (b"\xff", YAML, 400, "$"),
        (b'{"run": "true"}', {"Content-Type": "text/plain"}, 415, "Content-Type"),
        (
            b'{"run": "true"}',
            {"Content-Type": "application/json", "Idempotency-Key": "a b"},
            400,
            "Idempotency-Key",
        ),
        (
            b'{"run": "true", "client_id": "a"}',
            {"Content-Type": "application/json", "Idempotency-Key": "b"},
            400,
            "$.client_id",
        ),
    ],
)
async def test_bad_input_changes_nothing_and_is_told_where_it_is_wrong(
    rig: Rig, body: bytes, headers: dict[str, str], status: int, field: str | None
) -> None:
    answer = await rig.ask("POST", "/v1/jobs", data=body, headers=headers)
    assert answer.status == status, answer.data
    assert field is None or answer.problem["field"] == field
    assert answer.problem["detail"]
    assert rig.world.core.records.jobs == {}


async def test_thousands_of_lines_are_answered_one_by_one_in_order(rig: Rig) -> None:
    lines = [b'{"run": "true", "name": "job-%d"}' % number for number in range(2000)]
    lines[700] = b'{"run": "true", "nodes": 0}'
    lines[701] = b"not json"
    answer = await rig.ask("POST", "/v1/jobs", data=b"\n".join(lines), headers=NDJSON)
    assert answer.status == 200
    results = [msgspec.json.decode(line) for line in answer.data.splitlines()]
    assert [result["line"] for result in results] == list(range(1, 2001))
    assert [result["line"] for result in results if result["problem"]] == [701, 702]
    assert results[1999]["submitted"]["name"] == "job-1999"
    assert len(rig.world.core.records.jobs) == 1998


async def test_lines_are_accepted_while_the_client_is_still_sending_and_before_it_reads(rig: Rig) -> None:
    go_on = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b'{"run": "true"}\n'
        await go_on.wait()
        yield b'{"run": "true"}\n'

    async with rig.open("POST", "/v1/jobs", data=body(), headers=NDJSON) as response:
        first = await response.content.readline()
        assert msgspec.json.decode(first)["submitted"]
        go_on.set()
        assert msgspec.json.decode(await response.content.readline())["line"] == 2


async def test_a_line_sent_twice_with_one_client_id_makes_one_job(rig: Rig) -> None:
    line = b'{"run": "true", "client_id": "x-1"}\n'
    answer = await rig.ask("POST", "/v1/jobs", data=line * 2, headers=NDJSON)
    results = [msgspec.json.decode(line) for line in answer.data.splitlines()]
    assert results[0]["submitted"]["jobs"] == results[1]["submitted"]["jobs"]
    assert len(rig.world.core.records.jobs) == 1


async def test_over_the_limit_on_lines_the_rest_is_refused_and_the_first_stay(rig: Rig) -> None:
    limit(rig, batch_jobs=3)
    answer = await rig.ask("POST", "/v1/jobs", data=b'{"run": "true"}\n' * 2, headers=NDJSON)
    assert answer.data.count(b'"submitted":{') == 2
    answer = await rig.ask("POST", "/v1/jobs", data=b'{"run": "true"}\n' * 5, headers=NDJSON)
    last = msgspec.json.decode(answer.data.splitlines()[-1])
    assert last["problem"]["status"] == 429


async def test_a_body_over_the_limit_is_refused_unread_and_while_it_comes(rig: Rig) -> None:
    limit(rig, body_mib=1)
    large = b'{"run": "' + b"x" * 2**20 + b'"}'

    async def undeclared() -> AsyncIterator[bytes]:
        yield large

    for body in (io.BytesIO(large), undeclared()):
        answer = await rig.ask("POST", "/v1/jobs", data=body, headers={"Content-Type": "application/json"})
        assert answer.status == 413
        assert answer.problem["code"] == "too-large"


async def test_over_the_limit_on_queued_jobs_submission_is_refused_for_a_while(rig: Rig) -> None:
    rig.world.core.intake.acceptance.limits = msgspec.structs.replace(LimitSettings(), queued_jobs=1)
    await rig.submit()
    answer = await rig.ask("POST", "/v1/jobs", json={"run": "true"})
    assert answer.status == 429
    assert "queued jobs would be 2, and at most 1 may be" in answer.problem["detail"]
    assert int(answer.headers["Retry-After"]) > 0


async def test_lists_are_filtered_and_paged(rig: Rig) -> None:
    for number in range(5):
        await rig.submit(name=f"a-{number}", labels={"team": "x" if number % 2 else "y"})
    await rig.submit("bob", name="b")
    first = (await rig.ask("GET", "/v1/jobs?limit=4&mine=true")).json()
    rest = (await rig.ask("GET", f"/v1/jobs?limit=4&mine=true&after={first['next_after']}")).json()
    assert [row["name"] for row in first["jobs"] + rest["jobs"]] == ["a-4", "a-3", "a-2", "a-1", "a-0"]
    assert rest["next_after"] is None
    labelled = (await rig.ask("GET", "/v1/jobs?label=team%3Dx")).json()
    assert {row["name"] for row in labelled["jobs"]} == {"a-1", "a-3"}
    assert (await rig.ask("GET", "/v1/jobs?status=running,succeeded")).json()["jobs"] == []
    assert (await rig.ask("GET", "/v1/jobs?status=pending&name=b")).json()["total"] == 1


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "?limit"),
        ("limit=1001", "?limit"),
        ("limit=x", "?limit"),
        ("mine=maybe", "?mine"),
        ("statuss=RUNNING", "?statuss"),
        ("status=SLEEPING", "?status"),
        ("label=team", "?label"),
        ("limit=1&limit=2", "?limit"),
    ],
)
async def test_a_query_that_means_nothing_is_refused(rig: Rig, query: str, field: str) -> None:
    answer = await rig.ask("GET", f"/v1/jobs?{query}")
    assert answer.status == 400
    assert answer.problem["field"] == field
    assert "JobStatus" not in answer.problem["detail"]


async def test_a_job_is_changed_and_cancelled(rig: Rig) -> None:
    job = await rig.submit()
    assert (await rig.ask("PATCH", f"/v1/jobs/{job}", json={"priority": 70})).json()["job"]["priority"] == 70
    cancelled = await rig.ask("DELETE", f"/v1/jobs/{job}")
    assert cancelled.status == 202
    assert cancelled.json()["job"]["status"] == "CANCELLED"
    assert (await rig.ask("PATCH", f"/v1/jobs/{job}", json={"priority": 60})).status == 409


async def test_a_patch_with_an_unknown_field_changes_nothing(rig: Rig) -> None:
    job = await rig.submit()
    answer = await rig.ask("PATCH", f"/v1/jobs/{job}", json={"priority": 70, "machines": 2})
    assert answer.status == 400
    assert answer.problem["field"] == "$.machines"
    assert rig.world.job(job).priority == 50


async def test_others_see_a_job_but_do_not_change_it_and_the_platform_may(rig: Rig) -> None:
    job = await rig.submit()
    assert (await rig.ask("GET", f"/v1/jobs/{job}", "bob")).status == 200
    for method, path in [
        ("PATCH", ""),
        ("DELETE", ""),
        ("GET", "/logs"),
        ("GET", "/outputs"),
    ]:
        answer = await rig.ask(method, f"/v1/jobs/{job}{path}", "bob", json={} if method == "PATCH" else None)
        assert answer.status == 403, (method, path)
        assert answer.problem["code"] == "forbidden"
    assert rig.world.job(job).status == "PENDING"
    assert (await rig.ask("DELETE", f"/v1/jobs/{job}", "pat")).status == 202


async def test_an_unknown_job_is_not_found(rig: Rig) -> None:
    answer = await rig.ask("GET", "/v1/jobs/nothing")
    assert answer.status == 404
    assert answer.problem["remedy"]


async def test_of_an_array_the_first_task_that_waits_is_explained(rig: Rig) -> None:
    body = {"name": "sweep", "run": "true", "array": "0-9"}
    jobs = (await rig.ask("POST", "/v1/jobs", json=body)).json()["jobs"]
    explained = (await rig.ask("GET", "/v1/jobs/sweep/explain")).json()
    assert (explained["job"], explained["name"], explained["tasks"]) == (jobs[0], "sweep[0]", {"PENDING": 10})
    of_one = (await rig.ask("GET", f"/v1/jobs/{jobs[4]}/explain")).json()
    assert (of_one["name"], of_one["tasks"]) == ("sweep[4]", {})


async def test_preview_and_explain_change_nothing(rig: Rig) -> None:
    await rig.world.add_site("north")
    preview = await rig.ask("POST", "/v1/preview", json={"run": "true", "name": "what-if"})
    assert preview.status == 200
    assert preview.json()["name"] == "what-if"
    assert rig.world.core.records.jobs == {}
    job = await rig.submit()
    await rig.world.turn()
    explanation = await rig.ask("GET", f"/v1/jobs/{job}/explain")
    assert explanation.status == 200
    assert explanation.json()["because"]


async def test_a_line_may_follow_one_of_an_earlier_part_of_the_body(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts are taken up while those before them are still being written: answers keep their order all the same."""
    monkeypatch.setattr("federator.api.jobs.CHUNK_LINES", 2)
    names = [f"step-{number}" for number in range(9)]
    lines: list[dict[str, object]] = [{"run": "x", "name": names[0]}]
    lines += [{"run": "x", "name": name, "after": [before]} for before, name in pairwise(names)]
    body = "\n".join(json.dumps(line) for line in lines)
    answer = await rig.ask("POST", "/v1/jobs", data=body, headers=NDJSON)
    results = [json.loads(line) for line in answer.data.splitlines()]
    assert [result["line"] for result in results] == list(range(1, 10))
    jobs = [result["submitted"]["jobs"][0] for result in results]
    for before, job in pairwise(jobs):
        assert rig.world.core.records.jobs[job].after == (before,)


async def test_a_list_is_sorted_and_filtered_by_the_dispatcher_over_its_pages(rig: Rig) -> None:
    for priority in (50, 90, 10, 70):
        job = {"run": "true", "name": f"train-{priority}", "priority": priority}
        assert (await rig.ask("POST", "/v1/jobs", json=job)).status == 201
    await rig.ask("POST", "/v1/jobs", json={"run": "true", "name": "other", "priority": 60})
    found, query = [], {"sort": "-priority", "text": "TRAIN", "owner": "ada", "limit": "1"}
    while True:
        page = (await rig.ask("GET", "/v1/jobs", params=query)).json()
        assert page["total"] == 4
        found += [row["priority"] for row in page["jobs"]]
        if page["next_after"] is None:
            break
        query["after"] = page["next_after"]
        # One that comes meanwhile before what was shown moves nothing.
        if len(found) == 1:
            await rig.ask("POST", "/v1/jobs", json={"run": "true", "name": "new", "priority": 95})
    assert found == [90, 70, 50, 10]
    soonest = (await rig.ask("GET", "/v1/jobs", params={"until": str(rig.world.clock.now() - 1)})).json()
    assert soonest["total"] == 0


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"sort": "colour"}, "?sort"),
        ({"sort": "priority", "after": "job-01"}, "?after"),
        ({"sort": "name", "after": "ksufgAAAAAAAAKFh"}, "?after"),
        ({"mine": "true", "owner": "bob"}, "?owner"),
        ({"text": "x" * 101}, "?text"),
        ({"since": "nan"}, "?since"),
        ({"since": "inf"}, "?since"),
        ({"until": "1.2e12"}, "?until"),
    ],
)
async def test_what_a_list_cannot_be_is_said(rig: Rig, query: dict[str, str], field: str) -> None:
    answer = await rig.ask("GET", "/v1/jobs", params=query)
    assert (answer.status, answer.problem["field"]) == (400, field)
