"""Series over HTTP: begun by a file with `every`, changed by their owner, and answered for by the names of their runs."""

import msgspec

from tests.integration.api.rig import Rig

FILE = {"run": "true", "name": "nightly", "every": "6h", "env": {"KEY": "secret"}}


async def begun(rig: Rig) -> None:
    answer = await rig.ask("POST", "/v1/jobs", json=FILE)
    assert answer.status == 201
    assert (answer.json()["jobs"], answer.json()["series"]) == ([], "nightly")


async def test_it_is_listed_shown_paused_resumed_and_ended(rig: Rig) -> None:
    await begun(rig)
    await rig.world.core.series_runs.look()
    (row,) = (await rig.ask("GET", "/v1/series", "bob")).json()
    assert (row["name"], row["every"], row["status"], row["last"]) == ("nightly", "6h", "ACTIVE", "nightly-1")
    shown = (await rig.ask("GET", "/v1/series/nightly")).json()
    assert shown["file"]["env"] == {"KEY": "secret"}
    assert (await rig.ask("GET", "/v1/series/nightly", "bob")).json()["file"] is None
    assert (await rig.ask("GET", "/v1/series?mine=true", "bob")).json() == []
    for who, verb, status in (("bob", "pause", 403), ("ada", "pause", 200), ("pat", "resume", 200)):
        assert (await rig.ask("POST", f"/v1/series/nightly/{verb}", who)).status == status
    assert (await rig.ask("DELETE", "/v1/series/nightly")).json()["series"]["status"] == "ENDED"
    assert (await rig.ask("POST", "/v1/series/nightly/resume")).status == 409
    assert (await rig.ask("GET", "/v1/series/other")).status == 404
    assert (await rig.ask("GET", "/v1/series/nightly?owner=bob")).status == 404
    assert (await rig.ask("GET", "/v1/series")).json() == []
    assert len((await rig.ask("GET", "/v1/series?ended=true")).json()) == 1


async def test_its_name_stands_for_its_newest_run_where_that_is_only_read(rig: Rig) -> None:
    await begun(rig)
    early = await rig.ask("GET", "/v1/jobs/nightly")
    assert early.status == 404
    assert "next run at" in early.problem["detail"]
    await rig.world.core.series_runs.look()
    shown = (await rig.ask("GET", "/v1/jobs/nightly")).json()
    assert shown["job"]["name"] == "nightly-1"
    assert shown["series"].startswith("series nightly: next run at")
    explained = (await rig.ask("GET", "/v1/jobs/nightly/explain")).json()
    assert "unless nightly-1 is over by then, it is skipped" in explained["series"]
    listed = (await rig.ask("GET", "/v1/jobs?series=nightly")).json()
    assert [row["name"] for row in listed["jobs"]] == ["nightly-1"]
    assert listed["jobs"][0]["series"] == "nightly"
    meant = await rig.ask("DELETE", "/v1/jobs/nightly")
    assert meant.status == 409
    assert "federator series pause, resume or cancel nightly" in meant.problem["remedy"]
    assert (await rig.ask("DELETE", "/v1/jobs/nightly-1")).status == 202


async def test_a_file_of_many_jobs_may_begin_series_among_them(rig: Rig) -> None:
    lines = [FILE, {"run": "true", "name": "once"}, {**FILE, "overlap": "never"}]
    body = b"\n".join(msgspec.json.encode(line) for line in lines)
    answer = await rig.ask("POST", "/v1/jobs", data=body, headers={"Content-Type": "application/x-ndjson"})
    results = msgspec.json.Decoder(dict).decode_lines(answer.data)
    assert results[0]["submitted"]["series"] == "nightly"
    assert len(results[1]["submitted"]["jobs"]) == 1
    assert results[2]["problem"]["field"] == "$.overlap"
