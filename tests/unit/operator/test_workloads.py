"""Workloads of a MultiKueue's manager as jobs: which job stands for one, and when there is none."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from federator.kernel.errors import Forbidden, Unavailable
from federator.kube.api import decoded
from federator.operator import workloads
from federator.operator.claims import Claims
from federator.operator.events import Events
from federator.operator.settings import MultiKueue, OperatorFile, Tenant
from federator.operator.submissions import Submissions
from federator.operator.workloads import Planned, Queued, Workloads, document_of, planned
from federator.wire.http import JobRow
from federator.wire.jobfile import read_job
from federator_agent.multikueue.workloads import TURN_LABEL, UID_LABEL
from tests.unit.operator.fake_cluster import FakeApi, FakeDispatcher

SETTINGS = MultiKueue(check="multikueue", sites=("north", "south"))
ONE = MultiKueue(check="multikueue", sites=("north",))
FILE = OperatorFile(
    dispatcher="http://x", namespaces={"n": Tenant(token_file=Path("/t"))}, multikueue=SETTINGS
)
HELD = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
FINISHED = {"type": "Finished", "status": "True", "reason": "Succeeded"}


def pods(gpus: int = 0, count: int = 1, product: str = "", cpus: str = "2") -> dict[str, Any]:
    requests = {"cpu": cpus, "memory": "8Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    if product:
        spec["nodeSelector"] = {"nvidia.com/gpu.product": product}
    return {"count": count, "template": {"spec": spec}}


def workload(
    *pod_sets: dict[str, Any],
    name: str = "w",
    state: str = "Pending",
    conditions: Sequence[Any] = (HELD,),
    admission: dict[str, Any] | None = None,
    **spec: Any,
) -> Queued:
    """As the API server has it."""
    document = {
        "metadata": {"name": name, "namespace": "n", "uid": f"uid-{name}"},
        "spec": {"podSets": list(pod_sets or [pods(1)])} | spec,
        "status": {
            "conditions": list(conditions),
            "admission": admission,
            "admissionChecks": [{"name": "multikueue", "state": state}],
        },
    }
    return decoded(json.dumps(document).encode(), Queued)


def test_a_workload_is_a_job_file_that_the_dispatcher_reads() -> None:
    launcher, ranks = pods(cpus="500m"), pods(8, 4, "NVIDIA-A100-SXM4-80GB")
    document = document_of(workload(launcher, ranks, priority=70, maximumExecutionTimeSeconds=3600), ONE, "q")
    request = read_job(document, now=0.0)
    spec = request.spec
    assert (spec.nodes, spec.resources.gpus.count, spec.resources.gpus.models) == (4, 8, ("A100",))
    assert (spec.resources.cpus_milli, spec.resources.memory_mib) == (2000, 8192)
    assert (request.queue, request.priority, request.max_duration_s) == ("q", 70, 3600.0)
    assert spec.placement.sites == ("north",)
    assert request.client_id == "uid-w.2026-01-01T00:00:00Z"
    without = read_job(document_of(workload(pods(), pods(count=2), priority=-5), ONE, None), now=0.0)
    assert (without.spec.nodes, without.spec.resources.gpus.count, without.priority) == (3, 0, None)


@pytest.mark.parametrize(
    ("requests", "product", "gpus"),
    [
        ({"nvidia.com/mig-1g.10gb": "1"}, "NVIDIA-A100-SXM4-80GB", (1, 143, ("A100",))),
        ({"nvidia.com/mig-3g.40gb": "3"}, "", (2, 0, ())),
        ({"nvidia.com/gpu.shared": "1"}, "", (1, 250, ())),
        ({"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "4"}, "", (4, 0, ())),
        ({"example.com/fpga": "4"}, "", (0, 0, ())),
    ],
)
def test_parts_and_classes_of_devices_are_gpus_too(
    requests: dict[str, str], product: str, gpus: tuple[int, int, tuple[str, ...]]
) -> None:
    """Planned as work without GPUs they went to clusters that had none free."""
    asked = pods(product=product)
    asked["template"]["spec"]["containers"][0]["resources"]["requests"] |= requests
    settings = msgspec.structs.replace(ONE, devices={"nvidia.com/gpu.shared": 250})
    found = read_job(document_of(workload(asked), settings, None), now=0.0).spec.resources.gpus
    assert (found.count, found.share_milli or 0, found.models) == gpus


def test_what_pods_claim_counts_as_kueue_counts_it() -> None:
    held = {"name": "main", "count": 2, "resourceUsage": {"whole-gpus": "8", "cpu": "4"}}
    asked = workload(pods(count=2) | {"name": "main"}, admission={"podSetAssignments": [held]})
    spec = read_job(
        document_of(asked, msgspec.structs.replace(ONE, devices={"whole-gpus": 1000}), None), now=0.0
    ).spec
    assert (spec.nodes, spec.resources.gpus.count) == (2, 4)
    assert document_of(asked, ONE, None)["resources"].get("gpus") is None


@pytest.mark.parametrize(
    "other",
    [
        workload(conditions=()),
        workload(conditions=(HELD | {"status": "False"},)),
        workload(conditions=(HELD, {"type": "Evicted", "status": "True"})),
        workload(conditions=(HELD, FINISHED)),
        workload(state="Retry"),
        workload(state="Rejected"),
    ],
)
def test_no_job_stands_for_what_holds_no_quota_or_is_over(other: Queued) -> None:
    assert planned(workload(), SETTINGS, None).document is not None
    assert planned(workload(state="Ready"), SETTINGS, None).document is not None
    assert planned(other, SETTINGS, None).document is None
    assert planned(workload(), MultiKueue(check="another", sites=("north",)), None).document is None


class World:
    """The keeper of one namespace, and a dispatcher with the jobs that live."""

    def __init__(self, most: int = 100) -> None:
        self.api, self.dispatcher = FakeApi(), FakeDispatcher()
        self.rows: list[JobRow] = []
        api: Any = self.api
        client: Any = self.dispatcher
        client.all_jobs = self._all
        client.act = self._act
        self.cancelled: list[str] = []
        self.events = Events(api)
        self.claims = Claims(most, ("n", "m"))
        self.keeper = Workloads(
            FILE, SETTINGS, api, {"n": client}, {"n": Submissions(client)}, self.events, self.claims
        )

    async def _all(self, _which: object) -> AsyncIterator[JobRow]:
        for row in self.rows:
            yield row

    async def _act(self, verb: str, names: Sequence[str]) -> None:
        assert verb == "cancel"
        self.cancelled += names

    def has(self, *found: Queued) -> None:
        self.keeper.items = {each.key: planned(each, SETTINGS, None) for each in found}

    def lives(self, of: Planned, status: str) -> None:
        turn = of.client_id.partition(".")[2]
        labels = {UID_LABEL: of.uid, TURN_LABEL: turn}
        self.rows = [
            JobRow(
                id=f"job-{of.name}",
                name="w",
                owner="ada",
                queue="q",
                status=status,
                priority=0,
                nodes=1,
                gpus=0,
                models="",
                labels=labels,
            )
        ]


async def test_each_turn_has_one_job_and_what_is_over_has_none() -> None:
    world = World()
    world.has(workload(), workload(name="other"))
    await world.keeper.look("n")
    await world.keeper.look("n")  # the list may be older than the submission
    assert sorted(world.dispatcher.documents) == [
        "uid-other.2026-01-01T00:00:00Z",
        "uid-w.2026-01-01T00:00:00Z",
    ]
    assert sum(world.dispatcher.requests) == 2

    world.lives(planned(workload(), SETTINGS, None), "RUNNING")
    again = workload(conditions=(HELD | {"lastTransitionTime": "2026-01-01T00:05:00Z"},))
    world.has(again)
    await world.keeper.look("n")
    assert world.cancelled == ["job-w"]
    assert "uid-w.2026-01-01T00:05:00Z" in world.dispatcher.documents
    await world.events.flush()
    assert set(world.api.events) == {"Planned"}


@pytest.mark.parametrize(("status", "cancelled"), [("PENDING", ["job-w"]), ("RUNNING", [])])
async def test_a_job_that_has_begun_ends_as_its_workload_and_one_that_waits_is_cancelled(
    status: str, cancelled: list[str]
) -> None:
    world = World()
    world.lives(planned(workload(), SETTINGS, None), status)
    world.has(workload(conditions=(HELD, FINISHED)))
    await world.keeper.look("n")
    assert world.cancelled == cancelled


async def test_the_job_of_a_deleted_one_is_cancelled_though_kueue_says_finished() -> None:
    world = World()
    world.lives(planned(workload(), SETTINGS, None), "RUNNING")
    world.has(workload(conditions=(HELD, FINISHED | {"reason": "OwnerNotFound"})))
    await world.keeper.look("n")
    assert world.cancelled == ["job-w"]


class Clock:
    """In place of the module `time` of the keeper."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(workloads, "time", clock)
    return clock


async def test_a_workload_whose_job_was_cancelled_before_it_has_another_after_a_while(clock: Clock) -> None:
    """A job that has no site yet leaves its Workload in its turn, in which nobody would nominate a cluster any more."""
    world, name = World(), "uid-w.2026-01-01T00:00:00Z"
    world.has(workload())
    await world.keeper.look("n")
    for ended, pause_s in ((1, 60.0), (2, 120.0), (3, 240.0)):
        world.lives(planned(workload(), SETTINGS, None), "PENDING")
        await world.keeper.look("n")
        world.rows = []
        for _ in range(2):
            await world.keeper.look("n")
            assert len(world.dispatcher.documents) == ended, "not at once"
            clock.now += pause_s / 2
        await world.keeper.look("n")
        assert list(world.dispatcher.documents)[ended:] == [f"{name}.{ended}"]
    assert world.cancelled == []


async def test_an_operator_that_has_begun_anew_finds_the_number_of_the_next_job(clock: Clock) -> None:
    world, name = World(), "uid-w.2026-01-01T00:00:00Z"
    document = document_of(workload(), SETTINGS, None)
    world.dispatcher.documents = {key: document | {"client_id": key} for key in (name, f"{name}.1")}
    world.has(workload())
    for _ in range(4):
        await world.keeper.look("n")
    assert list(world.dispatcher.documents)[2:] == [f"{name}.2"]
    await world.events.flush()
    assert world.api.events == ["Planned"], "of the one that lives"


async def test_a_list_that_is_older_than_a_submission_makes_no_second_job(clock: Clock) -> None:
    world = World()
    world.has(workload())
    for _ in range(2):
        await world.keeper.look("n")
    world.lives(planned(workload(), SETTINGS, None), "PENDING")
    for _ in range(3):
        clock.now += 100
        await world.keeper.look("n")
    assert len(world.dispatcher.documents) == 1


async def test_beyond_the_most_workloads_wait_but_each_namespace_has_its_share() -> None:
    """A manager with a hundred thousand Workloads made as many jobs."""
    world = World(most=4)
    world.claims.objects["m"] |= {"m/a", "m/b", "m/c", "m/d"}
    world.has(*(workload(name=name) for name in "abc"))
    rows = list[JobRow]()
    for name in "ab":
        world.lives(planned(workload(name=name), SETTINGS, None), "RUNNING")
        rows += world.rows
    world.rows = []
    for _ in range(2):
        await world.keeper.look("n")
        assert len(world.dispatcher.documents) == 2, "half of four, whatever the other namespace has"
        world.rows = rows
    world.claims.objects["m"].clear()
    await world.keeper.look("n")
    assert len(world.dispatcher.documents) == 3


async def test_a_workload_whose_submission_was_cut_takes_no_place_for_ever() -> None:
    world = World(most=1)
    world.has(workload())
    world.dispatcher.broken = [Unavailable("away")]
    with pytest.raises(Unavailable):
        await world.keeper.look("n")
    await world.keeper.look("n")
    assert len(world.dispatcher.documents) == 1


async def test_a_refusal_is_told_and_not_asked_for_at_every_look() -> None:
    world = World()
    world.dispatcher.refuses = Forbidden("no right to that queue")
    world.has(workload())
    await world.keeper.look("n")
    await world.keeper.look("n")
    await world.events.flush()
    assert world.api.events == ["NotPlanned"]
    assert sum(world.dispatcher.requests) == 1
