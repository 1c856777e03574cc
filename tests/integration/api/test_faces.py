"""Everything there is can be read, and the description says what the server does."""

import asyncio
from typing import Any

import msgspec
import pytest

from federator.api import governance
from federator.api.routes import ROUTES
from federator.control.maintenance.reconciliation import FLAG
from federator.control.queries.policy_replays import PolicyReplays
from federator.control.record.records import Flag
from federator.model.sites import LinkState, LinkTraffic
from federator.telemetry import CATALOGUE, METRICS
from federator.wire import decisions, http, waiting
from federator.wire.contrast import Contrast, PolicyReplay, PolicyTrial, QueueContrast, SideSums, TrialOutcome
from tests.integration.api.rig import Rig
from tests.support.waiting import PATIENCE_S

LISTS = {
    "/v1/sites": list[http.SiteRow],
    "/v1/queues": list[http.QueueRow],
    "/v1/offers": list[http.OfferRow],
    "/v1/leases": list[http.LeaseRow],
    "/v1/budgets": list[http.BudgetRow],
    "/v1/decisions": list[decisions.DecisionRow],
    "/v1/overview": http.Overview,
    "/v1/waiting": waiting.WaitingNow,
    "/v1/alerts": list[waiting.AlertRow],
}
QUEUE = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {}
"""


@pytest.mark.parametrize("path", LISTS)
async def test_every_list_is_answered_as_its_type(rig: Rig, path: str) -> None:
    await rig.world.add_site("north")
    await rig.submit()
    answer = await rig.ask("GET", path)
    assert answer.status == 200
    assert msgspec.json.decode(answer.data, type=LISTS[path]) is not None


async def test_every_answer_tells_the_dispatchers_time(rig: Rig) -> None:
    for path in ("/v1/queues", "/v1/nothing", "/healthz"):
        assert float((await rig.ask("GET", path)).headers["X-Federator-Time"]) == rig.world.clock.now()


async def test_a_site_is_shown_by_name(rig: Rig) -> None:
    await rig.world.add_site("north")
    assert (await rig.ask("GET", "/v1/sites/north")).json()["name"] == "north"
    assert (await rig.ask("GET", "/v1/sites/nowhere")).status == 404


async def test_policies_are_validated_applied_and_remembered(rig: Rig) -> None:
    wrong = {"text": QUEUE.replace("kind: Queue", "kind: Kween")}
    verdict = await rig.ask("POST", "/v1/policies/validate", json=wrong)
    assert verdict.json()["problems"]
    refused = await rig.ask("POST", "/v1/policies", "pat", json=wrong)
    assert refused.json()["version"] is None
    applied = await rig.ask("POST", "/v1/policies", "pat", json={"text": QUEUE, "reason": "first"})
    assert applied.json()["version"] == 1
    assert (await rig.ask("GET", "/v1/policies")).json()["author"] == "pat"
    assert [each["reason"] for each in (await rig.ask("GET", "/v1/policies/history")).json()] == ["first"]


class Trials:
    """Simulates nothing, and remembers what it was to."""

    def __init__(self) -> None:
        self.asked: list[PolicyTrial] = []

    async def run(self, trial: PolicyTrial) -> TrialOutcome:
        self.asked.append(trial)
        sums = SideSums(jobs=len(trial.jobs))
        row = QueueContrast(queue="", moved=0, before=sums, after=sums)
        return TrialOutcome(
            contrast=Contrast(
                names=("in force", "proposed"), changes=(), total=row, queues=(), sooner=0, later=0,
                newly_met=0, newly_missed=0, refused={}, jobs=(),
            )
        )  # fmt: skip


async def test_policies_are_replayed_on_the_load_that_there_was(rig: Rig) -> None:
    trials = Trials()
    core = rig.world.core
    core.policy_replays = PolicyReplays(core.recorded, core.policy_service, trials, core.clock, most_jobs=2)
    nowhere = await rig.ask("POST", "/v1/policies/replay", "pat", json={"text": QUEUE})
    assert (nowhere.status, trials.asked) == (400, [])
    assert "no site that has reported" in nowhere.problem["detail"]
    await rig.world.add_site("north", gpus=4)
    for number in range(3):
        await rig.submit(name=f"job{number}")
    request = {"text": "kind: Nonsense", "last_s": 3600}
    wrong = await rig.ask("POST", "/v1/policies/replay", "pat", json=request)
    assert (wrong.status, bool(wrong.json()["problems"]), trials.asked) == (200, True, [])
    request["text"] = QUEUE
    assert (await rig.ask("POST", "/v1/policies/replay", json=request)).status == 403
    answer = await rig.ask("POST", "/v1/policies/replay", "pat", json=request)
    found = msgspec.json.decode(answer.data, type=PolicyReplay)
    assert found.contrast is not None
    assert found.contrast.total.before.jobs == 2
    assert found.remarks == ("only the newest 2 jobs of that time (limits.policy_replay_jobs)",)
    assert found.until_at - found.since_at == 3600
    assert [job.name for job in trials.asked[0].jobs] == ["job1", "job2"]
    far = await rig.ask("POST", "/v1/policies/replay", "pat", json=request | {"last_s": 1e9})
    assert (far.status, far.problem["field"]) == (400, "$.last_s")


async def test_a_replay_that_nobody_waits_for_ends(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(governance, "LOOK_S", 0.01)
    begun, ended = asyncio.Event(), asyncio.Event()
    await rig.world.add_site("north", gpus=4)

    class Endless:
        async def run(self, trial: PolicyTrial) -> TrialOutcome:
            begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                ended.set()
            return TrialOutcome()

    core = rig.world.core
    core.policy_replays = PolicyReplays(
        core.recorded, core.policy_service, Endless(), core.clock, most_jobs=2
    )
    gathered, gather = list[object](), core.recorded.jobs

    def counted(*words: Any, **options: Any) -> object:
        gathered.append(words)
        return gather(*words, **options)

    monkeypatch.setattr(core.recorded, "jobs", counted)
    for number in (1, 2):
        asked = asyncio.create_task(rig.ask("POST", "/v1/policies/replay", "pat", json={"text": QUEUE}))
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        asking = rig.ask("POST", "/v1/policies/replay", "pat", json={"text": QUEUE})
        second = await asyncio.wait_for(asking, PATIENCE_S)
        assert (second.status, len(gathered)) == (429, number), "it is refused before its load is gathered"
        begun.clear()
        asked.cancel()
        await asyncio.wait_for(ended.wait(), PATIENCE_S)
        ended.clear()


async def test_renting_is_paused_and_resumed(rig: Rig) -> None:
    assert (await rig.ask("POST", "/v1/burst/pause", "pat")).status == 204
    assert rig.world.core.records.flags["burst-paused"].on
    assert (await rig.ask("POST", "/v1/burst/resume", "pat")).status == 204
    assert not rig.world.core.records.flags["burst-paused"].on


async def test_a_silent_site_is_declared_dead_with_a_reason(rig: Rig) -> None:
    site = await rig.world.add_site("north")
    session = rig.world.core.inventory.members["north"].session
    connected = await rig.ask("POST", "/v1/sites/north/declare-dead", "sam", json={"reason": "fire"})
    assert connected.status == 409
    job = await rig.submit()
    await rig.world.turn()
    assert site.held()
    rig.world.core.inventory.closed("north", session)
    assert (await rig.ask("POST", "/v1/sites/north/declare-dead", "sam", json={"reason": " "})).status == 400
    dead = await rig.ask("POST", "/v1/sites/north/declare-dead", "sam", json={"reason": "fire"})
    assert len(dead.json()["placements"]) == 1
    assert rig.world.job(job).status == "PENDING"


async def test_one_host_of_a_site_is_declared_dead_by_itself(rig: Rig) -> None:
    await rig.world.add_site("north")
    await rig.world.add_member("north", "north-2")
    job = await rig.submit()
    placement = await rig.world.place(job, "north-2")
    rig.world.core.inventory.closed("north-2", rig.world.core.inventory.members["north-2"].session)
    path = "/v1/sites/north/declare-dead"
    unknown = await rig.ask("POST", path, "sam", json={"reason": "fire", "member": "north-3"})
    assert (unknown.status, "members are: north, north-2" in str(unknown.json())) == (404, True)
    assert (await rig.ask("POST", path, "sam", json={"reason": "fire", "member": "north"})).status == 409
    dead = await rig.ask("POST", path, "sam", json={"reason": "fire", "member": "north-2"})
    assert dead.json()["placements"] == [placement.id]
    assert rig.world.job(job).status == "PENDING"


async def test_after_a_restore_a_host_that_is_declared_dead_is_not_waited_for(rig: Rig) -> None:
    await rig.world.add_site("north")
    await rig.world.add_member("north", "north-2")
    rig.world.core.inventory.closed("north-2", rig.world.core.inventory.members["north-2"].session)
    await rig.world.put(Flag(FLAG, on=True, who="store adopt", at=0.0))
    path = "/v1/sites/north/declare-dead"
    assert (await rig.ask("POST", path, "sam", json={"reason": "fire", "member": "north-2"})).status == 200
    async with asyncio.timeout(PATIENCE_S):
        await rig.world.core.reconciliation.finish()
    assert not rig.world.core.reconciliation.on


async def test_the_load_and_the_world_are_for_platform_engineers(rig: Rig) -> None:
    await rig.world.add_site("north")
    job = await rig.submit()
    await rig.world.turn()
    since = f"?since={rig.world.clock.now() - 100.0}"
    for path in ("/v1/recorded/world", f"/v1/recorded/jobs{since}"):
        assert (await rig.ask("GET", path)).status == 403
    world = (await rig.ask("GET", "/v1/recorded/world", "pat")).json()
    assert [site["name"] for site in world["sites"]] == ["north"]
    page = (await rig.ask("GET", f"/v1/recorded/jobs{since}", "pat")).json()
    assert page["next_after"] is None
    assert [each["id"] for each in page["jobs"]] == [job]
    for query, told in (
        (f"{since}&until=1", "in the past"),
        ("?since=-1", ">= 0"),
        ("?since=1", "400 days"),
        (f"{since}&limit=1001", "limit"),
        (f"{since}&after=no%20id", "after"),
    ):
        answer = await rig.ask("GET", f"/v1/recorded/jobs{query}", "pat")
        assert answer.status in (400, 422), query
        assert told in answer.data.decode(), query


async def test_recorded_decisions_are_shown_and_unknown_ones_are_not_found(rig: Rig) -> None:
    await rig.world.add_site("north")
    await rig.submit()
    await rig.world.turn()
    rows = (await rig.ask("GET", "/v1/decisions")).json()
    whole = (await rig.ask("GET", f"/v1/decisions/{rows[-1]['id']}")).json()
    assert whole["plan"]["decision"] == rows[-1]["id"]
    assert whole["problem"]["snapshot"]
    told = (await rig.ask("GET", f"/v1/decisions/{rows[-1]['id']}/told")).json()
    action = told["plan"]["actions"][0]
    assert action["because"].startswith("fits now: ") or " fit now at north" in action["because"], action
    assert told["names"][action["job"]] == rig.world.job(action["job"]).name
    assert (told["row"]["id"], told["pools"]) == (rows[-1]["id"], 1)
    replayed = await rig.ask("POST", f"/v1/decisions/{rows[-1]['id']}/replay", "pat")
    assert set(replayed.json()) == {"identical", "differences"}
    assert (await rig.ask("GET", "/v1/decisions/dec-none")).status == 404


async def test_recorded_decisions_are_listed_page_by_page(rig: Rig) -> None:
    await rig.world.add_site("north")
    for number in range(3):
        await rig.submit(name=f"job{number}")
        await rig.world.turn()
    rows = (await rig.ask("GET", "/v1/decisions")).json()
    assert [(row["actions"], row["stale"], row["winner"]) for row in rows] == [
        (1, 0, rows[0]["winner"])
    ] * len(rows)
    newest = (await rig.ask("GET", "/v1/decisions", params={"last": "1"})).json()
    older = (await rig.ask("GET", "/v1/decisions", params={"before": newest[0]["id"], "last": "10"})).json()
    assert older + newest == rows
    none = await rig.ask("GET", "/v1/decisions", params={"until": str(rows[0]["at"] - 1)})
    assert none.json() == []
    gone = await rig.ask("GET", "/v1/decisions", params={"before": "dec-none"})
    assert gone.status == 404


async def test_metrics_tell_of_requests_and_of_what_exists(rig: Rig) -> None:
    await rig.world.add_site("north", gpus=4)
    state = LinkState((LinkTraffic("logs", 1200, 34),), 0.65)
    rig.world.core.inventory.measured("north", (), state=state)
    await rig.submit()
    text = (await rig.ask("GET", "/metrics", None)).data.decode()
    assert 'federator_jobs{status="PENDING"} 1.0' in text
    assert 'federator_site_gpus{site="north"} 4.0' in text
    assert 'federator_site_link_bytes{direction="up",kind="logs",site="north"} 1200.0' in text
    assert 'federator_site_link_round_trip_seconds{site="north"} 0.65' in text
    assert 'route="/v1/jobs",status="201"' in text
    for metric in CATALOGUE:
        assert metric.name.removesuffix("_total") in text
    assert METRICS.value("federator_jobs", status="PENDING") == 1.0


async def test_the_description_lists_every_route_and_resolves_all_its_references(rig: Rig) -> None:
    document = (await rig.ask("GET", "/v1/openapi.json", None)).json()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in ROUTES}
    references: set[str] = set()

    def collect(value: object) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                references.add(value["$ref"])
            for each in value.values():
                collect(each)
        elif isinstance(value, list):
            for each in value:
                collect(each)

    collect(document)
    assert references
    for reference in references:
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]
    operations = [
        operation["operationId"] for methods in document["paths"].values() for operation in methods.values()
    ]
    assert len(operations) == len(set(operations))
    limit = [p for p in document["paths"]["/v1/jobs"]["get"]["parameters"] if p["name"] == "limit"]
    assert limit[0]["schema"]["maximum"] == 1000
