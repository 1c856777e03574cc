"""Every field of a job file that is accepted changes something: a table of fields, and what each one changes.

A field that nobody acts on must be refused; a field that is accepted and changes nothing is a lie to its user. What only shows where the work
runs (`run`, `command`, `workdir`, `setup`, `outputs`, `framework`, `success`, `groups`) is shown by real processes in `tests/integration/agent`.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from federator.control.queries.job_lists import Wanted
from federator.model.jobs import JobStatus
from federator.model.sites import Member, Site, SiteKind
from federator.settings import NotificationSettings
from federator.wire.jobfile import JobFile, read_job
from federator.wire.steps import read_steps
from federator_agent.core.state import PlacementRecord
from federator_agent.environment import Where, rank_environment
from tests.support.dispatch import ADA, World, make_world
from tests.support.waiting import until
from tests.unit.control.test_notifications import Post, told

AT_SITES = {"run", "command", "workdir", "setup", "outputs", "framework", "success", "groups"}
POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {met_deadline_usd_per_gpu_hour: 20, max_duration: 2h}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: capped}
spec: {limit: {gpus: 0}}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: calm}
spec: {patience: 3h}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: below}
spec: {path: calm/below}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: urgent}
spec: {allow_must: true, met_deadline_usd_per_gpu_hour: 0, max_duration: 2h}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: deadlines}
spec: {who: {queues: [default, urgent]}, when: {mode: economic}, limits: {usd: {per_day: 500}}}
---
apiVersion: federator/v1
kind: License
metadata: {name: elsewhere}
spec: {count: 1, where: {sites: [moon]}}
---
apiVersion: federator/v1
kind: Dataset
metadata: {name: far-away}
spec: {uri: s3://far-away, size: 100GB, replicas: [{region: moon}]}
---
apiVersion: federator/v1
kind: Links
metadata: {name: links}
spec: {between_regions: {gbit_per_s: 1}}
"""
FULL: dict[str, Any] = {"resources": {"gpus": 4}, "estimate": "100m", "name": "filler"}
BURSTS: dict[str, Any] = {"resources": {"gpus": 4}, "estimate": "1h", "finish_within": "100m"}


async def a_world() -> World:
    world = await make_world()
    await world.policies(POLICIES)
    await world.put(
        Site(name="lab", kind=SiteKind.ONPREM, labels={"room": "1"}),
        Member(id="lab", site="lab", public_key=""),
    )
    world.connect("lab", 1, 4, "A100")
    return world


async def status(**fields: Any) -> JobStatus:
    """What becomes of a job alone in the world."""
    world = await a_world()
    job = await world.submit(**fields)
    await world.turn()
    return world.job(job).status


async def rents(**fields: Any) -> bool:
    """Whether the job rents when home is full."""
    world = await a_world()
    await world.submit(**FULL)
    await world.turn()
    await world.core.executor.poll()
    job = await world.submit(**(BURSTS | fields))
    for _ in range(200):
        plan = await world.core.turn.once()
        if world.leases():
            evidence = world.leases()[0].evidence
            return evidence is not None and evidence.job == job
        wake_at = plan.wake_at if plan and plan.wake_at else world.clock.now() + 60
        world.clock.advance(min(60.0, max(1.0, wake_at - world.clock.now())))
    return False


async def first_of(mine: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether `mine` starts before `other` on capacity for one."""
    world = await a_world()
    base: dict[str, Any] = {"resources": {"gpus": 4}, "estimate": "1h"}
    second = await world.submit(**(base | other))
    first = await world.submit(**(base | mine))
    await world.turn()
    return world.job(first).status is JobStatus.RUNNING and world.job(second).status is JobStatus.PENDING


async def environment(**fields: Any) -> dict[str, str]:
    """The variables of its first rank."""
    world = await a_world()
    job = await world.submit(**fields)
    await world.core.turn.once()
    placement = world.placement(job)
    world.core.hub.start(term=1)
    entry = world.core.hub.desired.entry(placement, "lab")
    record = PlacementRecord(entry=entry)
    spec = world.core.records.spec(placement.spec_hash)
    where = Where(site="lab", address="127.0.0.1", checkpoints="checkpoints")
    return rank_environment(record, spec, 0, where) | {
        "signal": entry.signal, "grace": f"{entry.grace_s:g}", "limit": f"{entry.max_duration_s}",
    }  # fmt: skip


async def expected_s(**fields: Any) -> float:
    """How long the plan expects it to run."""
    world = await a_world()
    job = await world.submit(**fields)
    await world.core.turn.once()
    return (world.placement(job).expected_end_at or 0.0) - world.clock.now()


async def _name() -> bool:
    world = await a_world()
    job = await world.submit(name="my-name")
    return world.core.views.find_job(ADA, "my-name").id == job


async def _team() -> bool:
    """Of two teams that both have the right, the one that it names."""
    world = await make_world()
    team = "apiVersion: federator/v1\nkind: Team\nmetadata: {name: %s}\nspec: {members: [ada]}\n---\n"
    queue = (
        "apiVersion: federator/v1\nkind: Queue\nmetadata: {name: default}\nspec: {allow: [{teams: [a, b]}]}\n"
    )
    await world.policies(team % "a" + team % "b" + queue)
    named: tuple[dict[str, Any], ...] = ({}, {"team": "b"})
    jobs = [world.job(await world.submit(**fields)).team for fields in named]
    return jobs == ["a", "b"]


async def _nodes() -> bool:
    return (
        await status(nodes=2, resources={"gpus": 4}) is JobStatus.PENDING
        and await status(nodes=1, resources={"gpus": 4}) is JobStatus.RUNNING
    )


async def _runs_on(**fields: Any) -> int:
    """On how many nodes a job starts that is alone in the world; 0: it does not."""
    world = await a_world()
    job = await world.submit(**(ELASTIC | fields))
    await world.turn()
    return world.placement(job).nodes if world.job(job).placement else 0


ELASTIC: dict[str, Any] = {
    "nodes": 2,
    "resources": {"gpus": 1},
    "estimate": "2h",
    "checkpoint": {"signal": "TERM"},
}


async def _resources() -> bool:
    too_much = (
        {"gpus": 5},
        {"gpus": "H100:1"},
        {"gpus": "A100:100GB:1"},
        {"cpus": 65},
        {"memory": "600GiB"},
        {"shm": "600GiB"},
    )
    fits = {"gpus": "A100:80GB:1", "cpus": 2, "memory": "1GiB", "shm": "1GiB"}
    refused = [await status(resources=resources) for resources in too_much]
    return set(refused) == {JobStatus.PENDING} and await status(resources=fits) is JobStatus.RUNNING


async def _placement() -> bool:
    wrong = ({"kinds": ["edge"]}, {"sites": ["other"]}, {"not_sites": ["lab"]}, {"labels": {"room": "2"}})
    right = ({"kinds": ["onprem"]}, {"sites": ["lab"]}, {"not_sites": ["other"]}, {"labels": {"room": "1"}})
    return {await status(placement=p) for p in wrong} == {JobStatus.PENDING} and {
        await status(placement=p) for p in right
    } == {JobStatus.RUNNING}


async def _waits_for_cheaper(**fields: Any) -> bool:
    """Whether it leaves free GPUs alone that cost more than those that are free in a while."""
    world = await a_world()
    await world.submit(**(FULL | {"placement": {"sites": ["lab"]}}))
    await world.turn()
    await world.put(Site(name="dear", kind=SiteKind.ONPREM), Member(id="dear", site="dear", public_key=""))
    dear = world.connect("dear", 1, 4, "A100")
    job = await world.submit(name="choosy", resources={"gpus": 4}, estimate="4h", **fields)
    world.sites["lab"].report(price_usd_gpu_h=0.1)
    dear.report(price_usd_gpu_h=5.0)
    await world.turn()
    return world.job(job).status is JobStatus.PENDING


async def _patience() -> bool:
    return (
        not await _waits_for_cheaper()
        and not await _waits_for_cheaper(patience="10m")
        and await _waits_for_cheaper(patience="3h")
        and await _waits_for_cheaper(queue="calm/below")
        and not await _waits_for_cheaper(queue="calm/below", patience="0s")
    )


async def _checkpoint() -> bool:
    told = await environment(checkpoint={"signal": "USR1", "grace": "7s", "every": "10m"})
    return (told["signal"], told["grace"], told["FEDERATOR_CHECKPOINT_EVERY_S"]) == ("USR1", "7", "600")


async def _retry() -> bool:
    world = await a_world()
    job = await world.submit(retry={"on": ["error"], "max": 1, "backoff": "1m"})
    await world.turn()
    await world.sites["lab"].finish(job, exit_code=1)
    return world.job(job).status is JobStatus.PENDING and world.job(job).not_before_at == pytest.approx(
        world.clock.now() + 60
    )


async def _on_disconnect() -> bool:
    stop = {"on_disconnect": {"stop_within": "1h"}}
    return await _differs(status(on_disconnect="keep"), status(**stop))  # its site does not enforce it


async def _image() -> bool:
    return await _differs(status(), status(image="python:3"))  # its site runs no containers


async def _secrets() -> bool:
    return await _differs(status(), status(secrets=["wandb"]))  # its site has none


async def _after() -> bool:
    world = await a_world()
    await world.submit(name="before")
    job = await world.submit(after=["before"])
    await world.turn()
    return world.job(job).status is JobStatus.PENDING


async def _array() -> bool:
    world = await a_world()
    return len((await world.submit_all(array="0-2")).jobs) == 3


async def _labels() -> bool:
    world = await a_world()
    await world.submit(labels={"team": "vision"})
    totals = [
        (await world.core.views.page(ADA, Wanted(labels={"team": team})))[0].total
        for team in ("vision", "speech")
    ]
    return totals == [1, 0]


async def _series(**fields: Any) -> bool:
    """Whether a run comes by itself; and with an overlap, whether that is heeded."""
    world = await make_world()
    await world.submit_all(ADA, name="again", **fields)
    await world.core.series_runs.look()
    world.clock.advance(6 * 3600.0)
    await world.core.series_runs.look()
    (series,) = world.core.records.series.values()
    return series.runs == 1 and (series.owed_at is None) == ("overlap" not in fields)


async def _steps() -> bool:
    """Whether each step is a job."""
    world, document = await make_world(), {"name": "x", "steps": {"a": {"run": "a"}, "b": {"run": "b"}}}
    asked = read_steps(document, now=world.clock.now())
    await world.core.intake.submit_steps(ADA, asked, client_id=None, body_hash="")
    return {job.name for job in world.core.records.jobs.values()} == {"x.a", "x.b"}


async def _client_id() -> bool:
    return read_job({"run": "x", "client_id": "c"}, now=0.0).client_id == "c"


async def _deadline() -> bool:
    world = await a_world()
    job = await world.submit(deadline="2030-01-01T00:00:00Z")
    return world.job(job).deadline_at is not None and await first_of({"deadline": "2026-01-01T00:00:00Z"}, {})


async def _notify() -> bool:
    post = Post()
    world = await make_world(notifications=NotificationSettings(gather_s=0.0), reach=post.reach)
    world.core.records.subscribe(world.core.notifications.note)
    async with told(world):
        await world.core.intake.cancel(ADA, await world.submit())
        await world.core.intake.cancel(ADA, job := await world.submit(notify=["end"]))
        await until(lambda: world.job(job).notified != ())
    return [message.job for message in post.messages] == [job]


CHANGES: dict[str, Callable[[], Awaitable[bool]]] = {
    "name": _name,
    "queue": lambda: _differs(status(queue="capped", resources={"gpus": 1}), status(resources={"gpus": 1})),
    "priority": lambda: first_of({"priority": 90}, {"priority": 10}),
    "env": lambda: _has(environment(env={"A": "b"}), "A", "b"),
    "nodes": _nodes,
    "min_nodes": lambda: _differs(
        _runs_on(nodes=8, min_nodes=4, scaling={4: 1.0, 8: 1.5}), _runs_on(nodes=8)
    ),
    "max_nodes": lambda: _differs(_runs_on(max_nodes=4), _runs_on()),
    "scaling": lambda: _differs(_runs_on(max_nodes=4, scaling={2: 1.0, 3: 1.4}), _runs_on(max_nodes=4)),
    "resources": _resources,
    "max_duration": lambda: _has(environment(max_duration="90m"), "limit", "5400.0"),
    "estimate": lambda: _differs(expected_s(estimate="1h"), expected_s(estimate="2h", max_duration="4h")),
    "speed": lambda: _differs(
        expected_s(estimate="1h", resources={"gpus": 1}, speed={"A100": 2.0}),
        expected_s(estimate="1h", resources={"gpus": 1}),
    ),
    "deadline": _deadline,
    "finish_within": lambda: _differs(rents(), rents(finish_within="20h")),
    "value": lambda: _differs(rents(), rents(value="1 USD")),
    "max_cost": lambda: _differs(rents(), rents(max_cost="5 USD")),
    "spot_policy": lambda: _differs(rents(), rents(spot_policy="spot")),
    "patience": _patience,
    "notify": _notify,
    "checkpoint": _checkpoint,
    "retry": _retry,
    "on_disconnect": _on_disconnect,
    "placement": _placement,
    "image": _image,
    "secrets": _secrets,
    "licenses": lambda: _differs(status(), status(licenses={"elsewhere": 1})),
    "inputs": lambda: _differs(expected_s(inputs=["s3://far-away"]), expected_s(inputs=[])),
    "after": _after,
    "array": _array,
    "labels": _labels,
    "client_id": _client_id,
    "steps": _steps,
    "every": lambda: _series(every="6h"),
    "team": _team,
    "overlap": lambda: _series(every="6h", overlap="queue"),
}


async def _differs(one: Awaitable[object], other: Awaitable[object]) -> bool:
    return await one != await other


async def _has(variables: Awaitable[dict[str, str]], name: str, value: str) -> bool:
    return (await variables).get(name) == value


@pytest.mark.parametrize("field", sorted(CHANGES))
async def test_the_field_changes_something(field: str) -> None:
    assert await CHANGES[field]()


async def test_must_rents_where_the_queue_allows_it() -> None:
    assert await _differs(rents(queue="urgent"), rents(queue="urgent", value="must"))


def test_the_table_is_complete() -> None:
    assert set(CHANGES) | AT_SITES == set(JobFile.__struct_fields__)
