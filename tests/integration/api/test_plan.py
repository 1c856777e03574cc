"""The plan over HTTP: what runs, what is to start, what has ended; for whom, how much of it, and as a past decision saw it."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from federator.control.administration.visibility import ANOTHERS
from federator.control.queries import timetables
from federator.control.queries.timetables import PlanFilter
from federator.model.identity import Caller, Role
from federator.model.timetable import Bar, BarState, Timetable
from tests.integration.api.rig import Rig
from tests.support.dispatch import OFFER, renting

HOUR = 3600.0


async def plan(rig: Rig, who: str = "pat", path: str = "/v1/plan", **query: Any) -> dict[str, Any]:
    answer = await rig.ask("GET", path, who, params={name: str(value) for name, value in query.items()})
    assert answer.status == 200, answer.data
    found: dict[str, Any] = answer.json()
    return found


def states(page: dict[str, Any]) -> dict[str, str]:
    return {bar.get("name", ""): bar["state"] for bar in page["bars"]}


def at(rig: Rig, hours: float) -> str:
    return datetime.fromtimestamp(rig.world.clock.now() + hours * HOUR, UTC).isoformat()


async def a_day(rig: Rig) -> None:
    """One has ended, one runs, two wait: the first of them is next."""
    await rig.world.add_site("hall", gpus=4)
    asks = {"resources": {"gpus": 4}, "estimate": "1h"}
    first = await rig.submit("ada", name="first", **asks)
    await rig.world.turn()
    rig.world.clock.advance(600.0)
    await rig.world.sites["hall"].finish(first)
    await rig.submit("ada", name="second", **asks)
    await rig.world.turn()
    await rig.submit("ada", name="third", deadline=at(rig, 9.0), **asks)
    await rig.submit("bob", name="fourth", **asks)
    await rig.world.turn()


async def test_what_has_ended_runs_and_is_to_start(rig: Rig) -> None:
    assert (await plan(rig))["bars"] == []
    await a_day(rig)
    page = await plan(rig)
    assert states(page) == {"second": "running", "third": "planned", "fourth": "planned", "first": "ended"}
    assert [lane["key"] for lane in page["lanes"]] == ["hall/hall/main"]
    by_name = {bar["name"]: bar for bar in page["bars"]}
    rows = {row["name"]: row for row in (await rig.ask("GET", "/v1/jobs", "pat")).json()["jobs"]}
    for name in ("third", "fourth"):
        assert by_name[name]["start_at"] == rows[name]["expected_start_at"]
        assert by_name[name]["end_at"] == rows[name]["expected_finish_at"]
        assert by_name[name]["because"] == rows[name]["because"]
    third = by_name["third"]
    assert third["deadline_at"] == rows["third"]["deadline_at"]
    assert (third["gpus"], third["members"], third["owner"], third["queue"]) == (
        4.0,
        ["hall"],
        "ada",
        "default",
    )
    assert by_name["second"]["because"]
    assert by_name["first"]["end_at"] - by_name["first"]["start_at"] == 600.0
    assert by_name["first"]["status"] == "SUCCEEDED"


async def test_what_is_over_or_does_not_wait_any_more_is_not_foreseen(rig: Rig) -> None:
    await a_day(rig)
    jobs = {row["name"]: row["id"] for row in (await rig.ask("GET", "/v1/jobs", "pat")).json()["jobs"]}
    await rig.world.sites["hall"].finish(jobs["second"])
    await rig.ask("POST", "/v1/jobs/actions", "ada", json={"verb": "hold", "jobs": [jobs["third"]]})
    assert states(await plan(rig)) == {"fourth": "planned", "first": "ended", "second": "ended"}


async def test_a_window_a_site_a_queue_an_owner(rig: Rig) -> None:
    await a_day(rig)
    now = rig.world.clock.now()
    assert set(states(await plan(rig, owner="bob"))) == {"fourth"}
    assert set(states(await plan(rig, since=now, until=now + HOUR))) == {"second"}
    assert set(states(await plan(rig, since=now - HOUR, until=now))) == {"first"}
    wrong = await rig.ask("GET", f"/v1/plan?since={now}&until={now - 1.0}", "pat")
    assert wrong.problem["field"] == "?since"
    assert (await rig.ask("GET", f"/v1/plan?since=1&until={now}", "pat")).status == 400


async def test_page_by_page_and_tasks_together(rig: Rig) -> None:
    await rig.world.add_site("hall", nodes=2, gpus=4)
    await rig.submit("ada", name="sweep", array="0-19", resources={"gpus": 1}, estimate="2h")
    await rig.world.turn()
    whole, pages, after = await plan(rig), [], ""
    while True:
        page = await plan(rig, limit=7, **({"after": after} if after else {}))
        pages += page["bars"]
        after = page.get("next_after") or ""
        if not after:
            break
    assert len(pages) == whole["total"] == 20
    assert pages == whole["bars"]
    one = await plan(rig, collapse="true")
    assert [(bar["name"], bar["tasks"], bar["gpus"]) for bar in one["bars"]] == [
        ("sweep", 8, 8.0), ("sweep", 8, 8.0), ("sweep", 4, 4.0),
    ]  # fmt: skip
    gone = await rig.ask("GET", "/v1/plan?after=plc-of-another-time", "pat")
    assert gone.problem["field"] == "?after"


async def test_a_plan_is_put_in_order_in_a_thread_and_once_for_all_its_pages(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered: list[bool] = []
    order: Callable[[Bar], object] = timetables.sort_key

    def noted(bar: Bar) -> object:
        try:
            asyncio.get_running_loop()
            ordered.append(False)
        except RuntimeError:
            ordered.append(True)
        return order(bar)

    monkeypatch.setattr(timetables, "sort_key", noted)
    await rig.world.add_site("hall", nodes=2, gpus=4)
    await rig.submit("ada", name="sweep", array="0-19", resources={"gpus": 1}, estimate="2h")
    await rig.world.turn()
    page = await plan(rig, limit=7)
    for _ in range(2):
        page = await plan(rig, limit=7, after=page["next_after"])
    assert page["next_after"] is None
    assert ordered == [True] * 20
    assert (await plan(rig, "bob", limit=7))["total"] == 20
    assert len(ordered) == 40


async def test_pages_are_whole_where_jobs_are_hidden_and_one_of_them_ends(rig: Rig) -> None:
    rig.world.core.visibility.by_team = True
    site = await rig.world.add_site("hall", gpus=4)
    runs = [
        await rig.submit("ada", name=f"n{n}", resources={"gpus": 1}, estimate=f"{n + 1}h") for n in range(4)
    ]
    await rig.world.turn()
    before = {bar["id"]: bar["end_at"] for bar in (await plan(rig, "bob"))["bars"]}
    await site.finish(runs[0])
    bars = (await plan(rig, "bob"))["bars"]
    assert len(bars) == 4
    assert {bar["id"] for bar in bars} == before.keys()
    assert all(before[bar["id"]] == bar["end_at"] for bar in bars if bar["state"] != "ended")
    placements = rig.world.core.records.placements
    assert not any(name in bar["id"] for name in placements for bar in bars)
    assert (await plan(rig, "bob", after=bars[1]["id"]))["bars"] == bars[2:]


async def test_a_gang_on_several_lanes_is_on_one_page(rig: Rig) -> None:
    """Its bars have one id, by which the next page would begin anywhere among them."""
    lanes = {"plc-a": "x", "plc-b": "xy", "plc-c": "x"}
    bars = [
        Bar(id=name, lane=lane, state=BarState.RUNNING, start_at=1.0, end_at=9.0)
        for name, its in lanes.items()
        for lane in its
    ]
    found = Timetable(decision="dec-1", taken_at=2.0, winner="", bars=tuple(bars))
    made = rig.world.core.timetables
    sight = rig.world.core.visibility.of(Caller("pat", Role.PLATFORM))
    pages, after = [], None
    for _ in range(9):
        page = await made.page(found, PlanFilter(since_at=0.0, until_at=9.0), sight, after=after, limit=2)
        pages.append([bar.id for bar in page.bars])
        after = page.next_after
        if after is None:
            break
    assert pages == [["plc-a", "plc-b", "plc-b"], ["plc-c"]]


async def test_a_past_decision_and_only_what_had_ended_by_then(rig: Rig) -> None:
    await a_day(rig)
    rows = (await rig.ask("GET", "/v1/decisions", "pat")).json()
    first, second = rows[0]["id"], rows[1]["id"]
    assert states(await plan(rig, path=f"/v1/decisions/{first}/plan")) == {"first": "starting"}
    page = await plan(rig, path=f"/v1/decisions/{second}/plan")
    assert states(page) == {"second": "starting", "first": "ended"}
    assert (page["decision"], page["recorded"]) == (second, True)
    assert (await rig.ask("GET", "/v1/decisions/dec-none/plan", "pat")).status == 404


@pytest.mark.parametrize("by_team", [False, True])
async def test_of_others_when_and_where_alone(rig: Rig, by_team: bool) -> None:
    rig.world.core.visibility.by_team = by_team
    await a_day(rig)
    page = await plan(rig, "bob")
    assert len(page["bars"]) == 4
    others = [bar for bar in page["bars"] if bar.get("owner", "") != "bob"]
    assert len(others) == 3
    if by_team:
        assert {bar["name"] for bar in others} == {ANOTHERS}
        assert not any(
            bar.get(name) for bar in others for name in ("job", "owner", "queue", "because", "deadline_at")
        )
        assert (await plan(rig, "bob", owner="ada"))["bars"] == []
        last = await plan(rig, "bob", after=others[0]["id"])
        assert len(last["bars"]) < 4


async def test_hosts_that_are_held_for_a_gang_are_told_of(rig: Rig) -> None:
    await rig.world.add_site("hall", nodes=2, gpus=4)
    await rig.submit("ada", name="runs", resources={"gpus": 4}, estimate="1h")
    await rig.world.turn()
    await rig.submit("ada", name="gang", nodes=2, resources={"gpus": 4}, estimate="1h", priority=80)
    await rig.submit("bob", name="beside", resources={"gpus": 4}, estimate="9h")
    await rig.world.turn()
    page = await plan(rig)
    assert states(page) == {"runs": "running", "gang": "reserved", "beside": "planned"}
    gang = next(bar for bar in page["bars"] if bar["name"] == "gang")
    assert gang["members"] == ["hall", "hall"]


async def test_a_rented_machine_boots_and_then_runs_what_it_is_for(rig: Rig) -> None:
    await rig.world.policies(renting(max_duration="4h", deadline_usd=50.0, usd_per_day=500.0))
    await rig.world.core.executor.poll()
    job = await rig.submit("ada", name="soon", resources={"gpus": 8}, estimate="1h", finish_within="2h")
    await rig.world.core.turn.once()
    assert states(await plan(rig)) == {"soon": "starting"}
    await rig.world.core.turn.once()
    page = await plan(rig)
    lane = next(lane for lane in page["lanes"] if lane.get("lease"))
    found = {bar["state"]: bar for bar in page["bars"] if bar["lane"] == lane["key"]}
    assert found.keys() == {"booting", "starting"}
    assert found["starting"]["job"] == job
    assert found["booting"]["end_at"] - found["booting"]["start_at"] == pytest.approx(OFFER.delay_s, abs=5.0)
    assert found["starting"]["start_at"] >= found["booting"]["end_at"]
