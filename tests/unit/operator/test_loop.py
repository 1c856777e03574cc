"""An operator that may die between any two requests: what is applied is submitted once, and what is deleted is cancelled."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from federator.kernel.errors import Forbidden, Unavailable
from federator.kube.api import decoded
from federator.model.jobs import JobStatus
from federator.operator.events import MOST
from federator.operator.loop import Operator
from federator.operator.objects import FINALIZER, UID_LABEL, FederatedJob, Meta, without_spec
from federator.operator.settings import OperatorFile, Tenant
from federator.operator.submissions import Submissions
from federator.wire.http import JobRow, SubmitResult
from federator.wire.jsontext import cut
from federator_agent.kube.informer import Informer
from tests.unit.operator.fake_cluster import FakeApi, FakeDispatcher

FILE = OperatorFile(dispatcher="http://x", namespaces={"n": Tenant(token_file=Path("/t"))})


class World:
    """What stays when an operator dies."""

    def __init__(self) -> None:
        self.api, self.dispatcher = FakeApi(), FakeDispatcher()

    def operator(self, file: OperatorFile = FILE) -> Operator:
        """A new one, which has listed what there is."""
        api: Any = self.api
        dispatcher: Any = self.dispatcher
        made = Operator(file, api, lambda _file, _tenant: dispatcher)
        self.listed(made)
        return made

    def listed(self, operator: Operator) -> None:
        found = {
            job.key: without_spec(job)
            for job in (msgspec.convert(each, FederatedJob) for each in self.api.objects.values())
        }
        operator.jobs.items.clear()
        operator.jobs.items.update(found)

    async def rounds(self, operator: Operator, name: str = "a", count: int = 4) -> None:
        """It looks at the object again and again, each time as it is by then."""
        for _ in range(count):
            self.listed(operator)
            await operator.look_at(f"n/{name}")

    def status(self, name: str = "a") -> dict[str, Any]:
        found: dict[str, Any] = self.api.objects[name].get("status", {})
        return found

    def condition(self, kind: str) -> str:
        found: str = next(each["status"] for each in self.status()["conditions"] if each["type"] == kind)
        return found


@pytest.fixture
def world() -> World:
    world = World()
    world.api.make("a")
    return world


async def test_a_lost_answer_is_asked_for_again_by_the_next_operator(world: World) -> None:
    world.dispatcher.broken = [Unavailable("the connection broke")]
    await world.rounds(world.operator(), count=1)
    assert "job" not in world.status()
    assert FINALIZER in world.api.objects["a"]["metadata"]["finalizers"]
    await world.rounds(world.operator())
    assert world.status()["job"] == "job-uid-a"
    assert len(world.dispatcher.jobs_by_id) == 1


async def test_a_spec_that_changes_meanwhile_makes_no_second_job_and_its_change_is_judged(
    world: World,
) -> None:
    world.dispatcher.broken = [Unavailable("the connection broke")]
    await world.rounds(world.operator(), count=1)
    world.api.edit("a", run="false", priority=7)
    await world.rounds(world.operator())
    assert len(world.dispatcher.jobs_by_id) == 1
    assert [patch.priority for patch in world.dispatcher.patches] == [7]
    assert world.condition("SpecInForce") == "False"
    world.api.edit("a", run="true")
    await world.rounds(world.operator())
    assert world.condition("SpecInForce") == "True"


async def test_a_change_leads_to_no_queue_but_the_namespaces_own(world: World) -> None:
    own = {"n": Tenant(token_file=Path("/t"), queue="research")}
    operator = world.operator(msgspec.structs.replace(FILE, namespaces=own))
    await world.rounds(operator)
    world.api.edit("a", queue="prod", priority=7)
    await world.rounds(operator)
    assert [(patch.queue, patch.priority) for patch in world.dispatcher.patches] == [(None, 7)]
    assert world.condition("SpecInForce") == "False"
    assert "may not go to prod" in world.status()["conditions"][-1]["message"]
    world.api.edit("a", queue="research/vision")
    await world.rounds(operator)
    assert world.dispatcher.patches[-1].queue == "research/vision"
    assert world.condition("SpecInForce") == "True"


async def test_an_object_that_is_deleted_before_its_status_names_a_job_has_it_cancelled(world: World) -> None:
    world.dispatcher.broken = [Unavailable("the connection broke")]
    await world.rounds(world.operator(), count=1)
    world.api.delete("a")
    await world.rounds(world.operator(), count=1)
    assert "a" not in world.api.objects
    assert world.dispatcher.jobs_by_id["job-uid-a"][0].status is JobStatus.CANCELLED


async def test_an_object_that_goes_while_it_is_submitted_leaves_no_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = world.operator()
    submit = world.dispatcher.submit

    async def slowly(document: dict[str, Any]) -> Any:
        world.api.objects.clear()  # finalizer and all
        return await submit(document)

    monkeypatch.setattr(world.dispatcher, "submit", slowly)
    await operator.look_at("n/a")
    assert world.dispatcher.jobs_by_id["job-uid-a"][0].status is JobStatus.CANCELLED


async def test_two_that_work_at_once_submit_once(world: World) -> None:
    one, other = world.operator(), world.operator()
    await one.look_at("n/a")
    await other.look_at("n/a")
    await world.rounds(other)
    assert len(world.dispatcher.jobs_by_id) == 1
    assert world.status()["job"] == "job-uid-a"


async def test_what_the_dispatcher_refuses_holds_no_object(world: World) -> None:
    world.dispatcher.refuses = Forbidden("no right to that queue")
    operator = world.operator()
    await world.rounds(operator)
    assert (world.status()["phase"], world.status()["reason"]) == ("Refused", "forbidden")
    assert FINALIZER not in world.api.objects["a"]["metadata"]["finalizers"]
    await operator.events.flush()
    assert world.api.events == ["Refused"]
    world.dispatcher.refuses = None
    world.api.edit("a", nodes=2)
    await world.rounds(operator)
    assert world.status()["job"] == "job-uid-a"


async def test_others_finalizers_stay(world: World) -> None:
    world.api.objects["a"]["metadata"]["finalizers"] = ["others/one"]
    await world.rounds(world.operator())
    assert world.api.objects["a"]["metadata"]["finalizers"] == ["others/one", FINALIZER]
    world.api.delete("a")
    await world.rounds(world.operator(), count=1)
    assert world.api.objects["a"]["metadata"]["finalizers"] == ["others/one"]


async def test_beyond_the_most_objects_wait(world: World) -> None:
    world.api.make("b")
    operator = world.operator(msgspec.structs.replace(FILE, most=1))
    for name in ("a", "b"):
        operator.jobs.put(f"n/{name}", operator.jobs.items[f"n/{name}"])
    await operator.look_at("n/a")
    operator.jobs.put("n/a", msgspec.convert(world.api.objects["a"], FederatedJob))
    await operator.look_at("n/b")
    assert len(world.dispatcher.jobs_by_id) == 1


def held(namespace: str, name: str) -> FederatedJob:
    meta = Meta(name=name, namespace=namespace, annotations={"x": "y"}, finalizers=(FINALIZER,))
    return FederatedJob(metadata=meta, spec={"run": "true"})


@pytest.mark.parametrize("namespace", ["other", "unmapped"])
async def test_another_namespace_cannot_take_every_place(world: World, namespace: str) -> None:
    mapped = {name: Tenant(token_file=Path("/t")) for name in ("n", "other")}
    operator = world.operator(msgspec.structs.replace(FILE, namespaces=mapped, most=2))
    for name in ("x", "y", "z"):
        operator.jobs.put(f"{namespace}/{name}", held(namespace, name))
    await operator.look_at("n/a")
    assert len(world.dispatcher.jobs_by_id) == 1


async def test_what_somebody_has_written_is_not_held_in_memory(world: World) -> None:
    operator = world.operator()
    operator.jobs.take(held("n", "x"))
    kept = operator.jobs.items["n/x"]
    assert (kept.claimed, kept.spec, kept.metadata.annotations) == (True, {}, {})
    assert kept.fields == held("n", "x").fields


async def test_objects_that_come_together_share_requests(world: World) -> None:
    names = [f"many-{number}" for number in range(30)]
    for name in names:
        world.api.make(name)
    world.api.make("wrong", labels="x")
    operator = world.operator()
    await asyncio.gather(*(operator.look_at(f"n/{name}") for name in (*names, "wrong")))
    assert world.status("wrong")["phase"] == "Refused"
    assert sum(world.dispatcher.requests) == 30
    assert len(world.dispatcher.requests) < 4
    assert {world.status(name)["job"] for name in names} == {f"job-uid-{name}" for name in names}


async def test_events_beyond_the_most_are_left_out_and_counted_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    operator = world.operator()
    job = operator.jobs.items["n/a"]
    for number in range(MOST + 5):
        operator.events.tell(job, "Running", f"{number}")
    await operator.events.flush()
    assert len(world.api.events) == MOST
    said = [each.getMessage() for each in caplog.records if "left out" in each.getMessage()]
    assert said == [
        f"events are left out, that of a first: {MOST} wait to be written",
        "5 events were left out",
    ]


async def test_who_sends_for_others_may_be_cancelled() -> None:
    sent: list[list[str]] = []
    reached, go = asyncio.Event(), asyncio.Event()

    class Slow(FakeDispatcher):
        async def submit_many(self, documents: Sequence[dict[str, Any]]) -> AsyncIterator[SubmitResult]:
            sent.append([each["name"] for each in documents])
            if len(sent) == 1:
                await go.wait()
            if len(sent) == 2:
                reached.set()
                await asyncio.Event().wait()
            async for each in super().submit_many(documents):
                yield each

    together = Submissions(cast(Any, Slow()))
    documents = [{"client_id": name, "name": name, "labels": {UID_LABEL: name}} for name in ("a", "b", "c")]
    first, sender, other = [asyncio.create_task(together.submit(each)) for each in documents]
    await asyncio.sleep(0)
    go.set()
    await reached.wait()
    sender.cancel()
    assert [(await first).jobs, (await other).jobs] == [("job-a",), ("job-c",)]
    assert sent == [["a"], ["b", "c"], ["c"]]


async def test_of_a_request_that_breaks_nobody_is_told_that_it_was_taken(world: World) -> None:
    world.dispatcher.broken = [Unavailable("the connection broke")]
    together = Submissions(cast(Any, world.dispatcher))
    with pytest.raises(Unavailable):
        await together.submit({"client_id": "a", "name": "a", "labels": {}})
    assert (await together.submit({"client_id": "a", "name": "a", "labels": {}})).jobs == ("job-a",)


class Stored:
    """A list of one page, and a watch of one change each: what the API server sends, byte for byte."""

    def __init__(self, *objects: str) -> None:
        self.objects = objects
        self.limits: list[int] = []

    async def ask(self, *_: object, query: Mapping[str, str], **__: object) -> bytes:
        self.limits.append(int(query["limit"]))
        return f'{{"items":[{",".join(self.objects)}],"metadata":{{"resourceVersion":"5"}}}}'.encode()

    @asynccontextmanager
    async def stream(self, *_: object, **__: object) -> AsyncIterator[Any]:
        lines = [f'{{"type":"MODIFIED","object":{each}}}\n' for each in self.objects]

        class Body:
            async def iter_any(self) -> AsyncIterator[bytes]:
                for line in lines:
                    yield line.encode()

        yield Body()


def stored(name: str, outputs: str = "[]", meta: str = "") -> str:
    return f'{{"metadata":{{"name":"{name}","namespace":"n","resourceVersion":"9"{meta}}},"spec":{{"outputs":{outputs}}}}}'


@pytest.mark.parametrize("way", ["list", "watch"])
@pytest.mark.parametrize("levels", [600, 950, 5000])
async def test_one_object_that_cannot_be_read_hides_no_other(way: str, levels: int) -> None:
    deep = "[" * levels + '"] \\" ["' + "]" * levels
    wrong = stored("wrong", meta=',"generation":1e+20')
    api: Any = Stored(stored("a"), stored("deep", deep), wrong, stored("z"))
    dispatcher: Any = FakeDispatcher()
    jobs = Operator(FILE, api, lambda _file, _tenant: dispatcher).jobs
    assert await (jobs.relist() if way == "list" else jobs.watch("1")) == ("5" if way == "list" else "9")
    assert sorted(jobs.items) == ["n/a", "n/deep", "n/z"]
    assert all(limit <= 50 for limit in api.limits), "a page of objects of a megabyte each is in memory"
    # it is refused as any other that is written wrong, and by whatever way it comes, it is the same one
    alone = decoded(cut(stored("deep", deep).encode()), FederatedJob)
    assert jobs.items["n/deep"] == without_spec(alone)
    assert b"nested too deeply" in msgspec.json.encode(alone.spec)


async def test_without_leave_to_pass_over_an_object_nothing_is_known() -> None:
    api: Any = Stored(stored("a"), stored("wrong", meta=',"generation":1e+20'))
    pods: Informer[FederatedJob, FederatedJob] = Informer(
        api, "/x", FederatedJob, lambda job: (job.key, job), lambda _name, _job: None
    )
    with pytest.raises(msgspec.ValidationError):
        await pods.relist()


async def test_a_fault_of_its_own_stops_one_object_and_not_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = world.operator()

    async def fails(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(world.dispatcher, "submit", fails)
        await operator.look_at("n/a")
    await world.rounds(operator)
    assert world.status()["job"] == "job-uid-a"


@pytest.mark.parametrize("what", ["all_jobs", "job"])
async def test_a_fault_while_mirroring_ends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    operator = world.operator()
    await world.rounds(operator)

    rows: list[JobRow] = []

    async def none(_which: object) -> AsyncIterator[JobRow]:
        for row in rows:
            yield row

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(world.dispatcher, "all_jobs", none, raising=False)
    client: Any = world.dispatcher
    with monkeypatch.context() as patched:
        patched.setattr(world.dispatcher, what, fails)
        await operator.mirror_namespace("n", client)
    assert world.status()["phase"] == "Pending"
    await operator.mirror_namespace("n", client)
    assert world.status()["phase"] == "Running"
