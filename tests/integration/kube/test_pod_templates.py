"""A team's namespace, its pod template and a gang scheduler, at a real cluster whose scheduler of gangs is a stand-in: it binds a whole group or nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from federator.model.placements import PlacementStatus
from tests.integration.agent.conftest import entry
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.integration.kube.conftest import POOL, KubeAgent
from tests.integration.kube.test_cluster_troubles import SMALL
from tests.support.waiting import until
from tests.testbeds.kubernetes import shared
from tests.testbeds.kubernetes.cluster import NAMESPACE, Admin, ApiError
from tests.testbeds.kubernetes.node import NODE
from tests.testbeds.kubernetes.shared import Bed

TEAM = "vision-jobs"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
GROUPS = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{TEAM}/podgroups"
POD_GROUPS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podgroups.scheduling.volcano.sh"},
    "spec": {
        "group": "scheduling.volcano.sh",
        "scope": "Namespaced",
        "names": {"kind": "PodGroup", "plural": "podgroups"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


def _install(admin: Admin) -> None:
    """A second namespace with the rights that the manifest gives in the first, and the type of Volcano's groups."""
    admin.apply(POD_GROUPS)
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    for document in shared.manifests():
        if document["metadata"].get("namespace") == NAMESPACE and document["kind"] in shared.GRANTS:
            copy = deepcopy(document)
            copy["metadata"]["namespace"] = TEAM
            admin.apply(copy)


def _bind(admin: Admin) -> None:
    """What the stand-in does each time: each group whose pods are all there is bound whole."""
    pods: list[dict[str, Any]] = admin.ask("GET", PODS)["items"]
    for group in admin.ask("GET", GROUPS)["items"]:
        name = group["metadata"]["name"]
        ours = [
            pod
            for pod in pods
            if pod["spec"]["schedulerName"] == "volcano"
            and pod["metadata"]["annotations"].get("scheduling.k8s.io/group-name") == name
        ]
        if len(ours) < group["spec"]["minMember"]:
            continue
        for pod in ours:
            if "nodeName" not in pod["spec"]:
                target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
                body = {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": pod["metadata"]["name"]},
                    "target": target,
                }
                with suppress(ApiError):
                    admin.ask("POST", f"{PODS}/{pod['metadata']['name']}/binding", body)


@pytest.fixture
async def volcano(testbed: Bed) -> AsyncIterator[Admin]:
    await asyncio.to_thread(_install, testbed.admin)

    async def run() -> None:
        while True:
            with suppress(ApiError):
                await asyncio.to_thread(_bind, testbed.admin)
            await asyncio.sleep(0.1)

    task = asyncio.create_task(run())
    yield testbed.admin
    task.cancel()
    for pod in testbed.admin.ask("GET", PODS)["items"]:
        testbed.admin.remove(f"{PODS}/{pod['metadata']['name']}")


async def test_a_teams_gang_is_bound_whole_in_its_own_namespace(
    dispatcher: FakeDispatcher, tmp_path: Path, testbed: Bed, volcano: Admin
) -> None:
    template = {
        "metadata": {"labels": {"cost-centre": "vision"}},
        "spec": {"containers": [{"name": "main", "env": [{"name": "CENTRE", "value": "vision"}]}]},
    }
    agent = KubeAgent(
        tmp_path, dispatcher.url, testbed,
        namespaces={"vision": TEAM}, pods={"vision": template}, gang_scheduler={"kind": "volcano", "queue": "vision"},
    )  # fmt: skip
    await agent.join(dispatcher.url)
    await agent.start()
    try:
        await dispatcher.until(lambda: any(report.pools for report in dispatcher.reports))
        spec = dispatcher.spec(run="echo $CENTRE; sleep 1", nodes=2, resources=SMALL)
        await dispatcher.want(replace(entry("p1", spec, nodes=2, pool=POOL), queue="vision/images"))
        first = await until(lambda: volcano.find(f"{PODS}/p1-0"), "a pod in the team's namespace")
        assert first["metadata"]["labels"]["cost-centre"] == "vision"
        group = volcano.ask("GET", f"{GROUPS}/p1")
        assert (group["spec"]["minMember"], group["spec"]["queue"]) == (2, "vision")
        report = await dispatcher.ended("p1")
        assert report.status is PlacementStatus.SUCCEEDED, report
        assert [dispatcher.log("p1", rank) for rank in (0, 1)] == ["vision\n", "vision\n"]
        await until(lambda: volcano.ask("GET", GROUPS)["items"] == [], "the group to go")
        assert volcano.ask("GET", PODS)["items"] == []
        assert volcano.ask("GET", f"/api/v1/namespaces/{TEAM}/services")["items"] == []
    finally:
        await agent.die()
