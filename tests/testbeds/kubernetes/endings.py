"""Whether work leaves quota behind, at a cluster with Kueue: `KUBECONFIG=… python -m tests.testbeds.kubernetes endings [COUNT]`.

So many placements end in every way that there is, some at once, in a ClusterQueue of their own. Printed are the ways with their times, and how long after the last of them Kueue
still held quota. The exit status is 1 when it holds any after two minutes, or a way did not end as it should.
"""

import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from federator.model.jobs import Resources
from federator_agent.core.state import PlacementRecord
from federator_agent.kube.manifests import pod_name
from federator_agent.kube.runtime import KubeRuntime
from federator_agent.kube.settings import KubeSettings
from federator_agent.staging_errors import StagingError
from tests.contract.runtimes import factories_kube
from tests.contract.runtimes.world import RuntimeWorld, Site
from tests.testbeds.kubernetes import shared
from tests.testbeds.kubernetes.cluster import NAMESPACE, Admin

QUEUE = "federator-endings"
GROUP = "/apis/kueue.x-k8s.io"
AT_ONCE = 16
WAIT_S = 120.0
QUOTA_CPUS = "400m"
"""Of which each rank takes 10m, but for those that are never admitted."""
TOO_MUCH = Resources(cpus_milli=300)
Way = Callable[[RuntimeWorld, RuntimeWorld, RuntimeWorld], Awaitable[None]]


def main(count: int) -> int:
    """Run them, and say what is left."""
    bed = shared.testbed()
    with _queues(bed.admin):
        return asyncio.run(_endings(bed.admin, count))


def say(what: str, figure: str) -> None:
    """One line of the report."""
    sys.stdout.write(f"{what:<62} {figure}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _queues(admin: Admin) -> Iterator[None]:
    """A flavor, a ClusterQueue and a LocalQueue, taken away again at the end."""
    version = admin.ask("GET", GROUP)["preferredVersion"]["version"]
    base, api_version = f"{GROUP}/{version}", f"kueue.x-k8s.io/{version}"
    resources = [{"name": "cpu", "nominalQuota": QUOTA_CPUS}, {"name": "memory", "nominalQuota": "64Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": QUEUE, "resources": resources}]}
    made = [
        ("resourceflavors", "ResourceFlavor", {}),
        ("clusterqueues", "ClusterQueue", {"namespaceSelector": {}, "resourceGroups": [group]}),
        (f"namespaces/{NAMESPACE}/localqueues", "LocalQueue", {"clusterQueue": QUEUE}),
    ]
    try:
        for path, kind, spec in made:
            body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": QUEUE}, "spec": spec}
            admin.ask("POST", f"{base}/{path}", body)
        yield
    finally:
        for path, _, _ in reversed(made):
            admin.remove(f"{base}/{path}/{QUEUE}")


def held(admin: Admin) -> dict[str, str]:
    """What Kueue holds for the queue now, by resource."""
    version = admin.ask("GET", GROUP)["preferredVersion"]["version"]
    status = admin.ask("GET", f"{GROUP}/{version}/clusterqueues/{QUEUE}").get("status", {})
    return {
        each["name"]: str(each["total"])
        for key in ("flavorsReservation", "flavorsUsage")
        for flavor in status.get(key, ())
        for each in flavor["resources"]
        if each["total"] not in ("0", 0)
    }


async def _endings(admin: Admin, count: int) -> int:
    usual = factories_kube.settings(kueue_queue=QUEUE, admit_within_s=600.0, start_within_s=600.0)
    hasty = replace(usual, admit_within_s=2.0)
    homeless = replace(usual, start_within_s=2.0, pod={"spec": {"nodeSelector": {"none": "such"}}})
    with tempfile.TemporaryDirectory(prefix="endings-") as name:
        worlds = [
            RuntimeWorld(Path(name) / str(number), _site(each))
            for number, each in enumerate((usual, hasty, homeless))
        ]
        for world in worlds:
            world.begin()
        faults, took_s = Counter[str](), defaultdict[str, list[float]](list)
        numbers = iter(range(count))
        ways = _ways(admin)
        names = list(ways)

        async def work() -> None:
            for number in numbers:
                way = names[number % len(names)]
                begun_s = time.monotonic()
                try:
                    await asyncio.wait_for(ways[way](*worlds), 900.0)
                except (AssertionError, TimeoutError, StagingError) as error:
                    faults[f"{way}: {type(error).__name__} {error}"[:300]] += 1
                took_s[way].append(time.monotonic() - begun_s)
                if not (number + 1) % 50:
                    say(
                        f"{number + 1} begun, and ended but for those beside it",
                        f"{time.monotonic() - first_s:.0f} s",
                    )

        first_s = time.monotonic()
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        total_s = time.monotonic() - first_s
        for way, took in took_s.items():
            say(f"{way}, median of {len(took)}", f"{statistics.median(took):.1f} s")
        say(f"{count} placements, {AT_ONCE} at once", f"{total_s:.0f} s")
        left = await _quiet(admin)
        for world in worlds:
            await world.close()
    for fault, times in faults.items():
        say(f"not as it should: {fault}", f"{times}")
    pods = len(admin.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"])
    say("quota that Kueue holds in the end", str(left) if left else "none")
    say("pods that are there in the end", str(pods))
    return 1 if faults or left or pods else 0


async def _quiet(admin: Admin) -> dict[str, str]:
    """What is still held once nothing is, or after `WAIT_S`."""
    begun_s = time.monotonic()
    while (left := held(admin)) and time.monotonic() - begun_s < WAIT_S:
        await asyncio.sleep(0.2)
    say("from the last ending to no quota held", f"{time.monotonic() - begun_s:.1f} s")
    return left


def _site(settings: KubeSettings) -> Site:
    return Site(lambda around: KubeRuntime(settings, around), "a100", carries=False)


async def _code(world: RuntimeWorld, run: str, wanted: int, nodes: int = 1) -> None:
    record = await world.run(world.spec(run, nodes=nodes))
    ends = await world.over(record)
    assert [end.exit_code for end in ends] == [wanted] * nodes, ends
    await world.runtime.discard(record.entry.placement, None)


async def _refused(world: RuntimeWorld, words: str, run: str = "true", **fields: Any) -> None:
    spec = world.spec(run, **fields)
    record = world.record(spec)
    try:
        await world.prepare(record, spec)
    except StagingError as error:
        said = str(error)
    else:
        said = "it was taken"
    await _given_up(world, record)
    assert words in said, said


async def _ended_running(world: RuntimeWorld, end: Callable[[RuntimeWorld, PlacementRecord], None]) -> None:
    record = await world.run(world.spec("sleep 600", nodes=2))
    end(world, record)
    await world.over(record)
    await world.runtime.discard(record.entry.placement, None)


async def _stopped_early(world: RuntimeWorld, after_s: float) -> None:
    spec = world.spec("sleep 600", nodes=2)
    record = world.record(spec)
    preparing = asyncio.create_task(world.prepare(record, spec))
    await asyncio.sleep(after_s)
    preparing.cancel()
    with contextlib.suppress(asyncio.CancelledError, StagingError):
        await preparing
    await _given_up(world, record)


async def _given_up(world: RuntimeWorld, record: PlacementRecord) -> None:
    await world.runtime.unprepare(record.entry.placement)
    await world.runtime.discard(record.entry.placement, None)


def _kill(world: RuntimeWorld, record: PlacementRecord) -> None:
    world.runtime.signal(record.entry.placement, record.entry.ranks, "KILL")


def _ways(admin: Admin) -> dict[str, Way]:
    """Each runs one placement to its end, and sees that it was that. Of the worlds the second does not wait for Kueue, and the pods of the third fit no node."""

    def delete(_: RuntimeWorld, record: PlacementRecord) -> None:
        for rank in record.entry.ranks:
            name = pod_name(record.entry.placement, rank)
            admin.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}", {"gracePeriodSeconds": 1})

    return {
        "a success": lambda usual, *_: _code(usual, "true", 0),
        "a gang that succeeds": lambda usual, *_: _code(usual, "true", 0, nodes=3),
        "a failure": lambda usual, *_: _code(usual, "exit 3", 3),
        "a gang that fails": lambda usual, *_: _code(usual, "exit 3", 3, nodes=2),
        "a set-up that fails": lambda usual, *_: _refused(usual, "exit code 4", setup="exit 4"),
        "killed while it runs": lambda usual, *_: _ended_running(usual, _kill),
        "its pods deleted while it runs": lambda usual, *_: _ended_running(usual, delete),
        "given up at once": lambda usual, *_: _stopped_early(usual, 0.05),
        "given up a second later": lambda usual, *_: _stopped_early(usual, 1.0),
        "never admitted": lambda _, hasty, __: _refused(
            hasty, "not admitted within", nodes=2, resources=TOO_MUCH
        ),
        "admitted, and no node": lambda _, __, homeless: _refused(homeless, "found no node within"),
        "an image that is not there": lambda usual, *_: _refused(
            usual, "image", image="federator.test/none:1"
        ),
    }
