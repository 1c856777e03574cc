"""Pods that are being made while their placement is given up: they are waited for, or one would come to stay."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from federator.kernel.errors import Forbidden, Invalid
from federator.kube.objects import Pod
from federator.model.placements import Cause
from federator_agent.kube.manifests import pod_name
from federator_agent.kube.preparation import MOST_REFUSALS, Archives, Preparation
from federator_agent.staging_errors import StagingError, StagingLost, StagingRefused

MANIFESTS = [{"name": "p-0"}, {"name": "p-1"}]


class Pods:
    """An API server that takes its time over each pod but the first, which it may refuse."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.refuses = refuses
        self.made: list[str] = []
        self.looked: list[list[str]] = []

    async def create(self, manifest: dict[str, Any]) -> None:
        if self.refuses and manifest["name"] == "p-0":
            self.asked.set()
            raise Invalid("exceeded quota")
        self.asked.set()
        await self.go_on.wait()
        self.made.append(manifest["name"])

    async def of(self, _placement: str) -> tuple[Any, ...]:
        self.looked.append(list(self.made))
        return ()

    async def delete_service(self, _placement: str) -> None:
        pass


def _preparing(pods: Pods) -> Preparation:
    nothing: Any = SimpleNamespace()
    return Preparation(nothing, pods, nothing, nothing, nothing, nothing, nothing, nothing)  # type: ignore[arg-type]


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_is_given_up_while_its_pods_are_made_is_taken_back_once_they_are_there() -> None:
    pods = Pods()
    preparing = _preparing(pods)
    making = asyncio.create_task(preparing._make("p", MANIFESTS))
    await pods.asked.wait()
    making.cancel()
    taking = asyncio.create_task(preparing.take_back("p"))
    await _turns()
    assert pods.looked == [], "what is still on its way would not be found"
    pods.go_on.set()
    await taking
    assert pods.looked == [["p-0", "p-1"]]


async def test_one_pod_that_is_refused_does_not_hide_those_that_still_come() -> None:
    pods = Pods(refuses=True)
    making = asyncio.create_task(_preparing(pods)._make("p", MANIFESTS))
    await pods.asked.wait()
    await _turns()
    assert not making.done()
    pods.go_on.set()
    with pytest.raises(Invalid, match="quota"):
        await making
    assert pods.made == ["p-1"]


@pytest.mark.parametrize(
    ("more", "raised", "cause"),
    [
        ({}, StagingError, Cause.SETUP),
        ({"deletionTimestamp": "2026-11-21T10:00:00Z"}, StagingLost, Cause.EVICTED),
    ],
    ids=["by-itself", "after-its-pod-was-deleted"],
)
@pytest.mark.parametrize("code", [1, 137, 143])
def test_a_set_up_that_the_cluster_ends_has_not_failed(
    code: int, more: dict[str, Any], raised: type[StagingError], cause: Cause
) -> None:
    """Whatever it makes of that: a drained node is no fault of the job's."""
    terminated = {"exitCode": code, "finishedAt": "2026-11-21T10:00:05Z", "message": "set-up\n"}
    status = {"containerStatuses": [{"name": "main", "state": {"terminated": terminated}}]}
    pod = msgspec.convert({"metadata": more, "spec": {"nodeName": "n1"}, "status": status}, Pod)
    pods: Any = SimpleNamespace(get={pod_name("p", 0): pod}.get)
    record: Any = SimpleNamespace(entry=SimpleNamespace(placement="p"))
    with pytest.raises(StagingError) as failed:
        _preparing(pods).live(record, 0)
    assert (type(failed.value), failed.value.cause) == (raised, cause)


NO_POD = msgspec.convert({"metadata": {}}, Pod)


class Refusing(Preparation):
    """At an API server that refuses the first commands."""

    refusals = 0

    async def _side_runs(self, *_: Any) -> Pod:
        return NO_POD

    def live(self, *_: Any) -> Pod:
        return NO_POD

    async def _main_fails(self, *_: Any) -> None:
        await asyncio.Event().wait()

    async def _run_stage(self, *_: Any, **__: Any) -> None:
        if self.refusals:
            self.refusals -= 1
            raise Forbidden("the agent may not do that in pods")


@pytest.mark.parametrize(("refusals", "brought"), [(MOST_REFUSALS, True), (MOST_REFUSALS + 1, False)])
async def test_an_api_server_that_has_just_started_is_asked_again(refusals: int, brought: bool) -> None:
    async def wait(*_: object) -> None:
        await asyncio.sleep(0)

    around: Any = SimpleNamespace(wait=wait, follow=lambda *_: None)
    preparing = Refusing(around, around, around, around, around, around, around, around)
    preparing.refusals = refusals
    record: Any = SimpleNamespace(entry=SimpleNamespace(placement="p"))
    work = preparing.stage_rank(record, 0, Archives(None, None), lambda _: None, ())
    if brought:
        await work
    else:
        with pytest.raises(StagingRefused, match="the verb create on pods/exec"):
            await work
    assert preparing.refusals == 0
