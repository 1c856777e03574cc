"""FederatedJob at a real API server, with a real dispatcher, agent and operators: what is applied runs once, whatever happens to the operator."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from federator.cli.demo.federation import DemoFederation
from federator.client import AsyncClient
from federator.client.jobs import JobFilter
from federator.operator.definition import definition, site_definition
from federator.operator.objects import API_VERSION, FINALIZER, KIND, PLURAL, UID_LABEL
from federator.operator.sites import ALL as SITES
from federator.wire.http import JobRow, TokenRequest
from tests.support.waiting import until
from tests.testbeds.kubernetes.cluster import Admin, ApiError, KubeCluster, missing
from tests.testbeds.kubernetes.shared import GRANTS, ROOT
from tests.testbeds.required import need

pytestmark = pytest.mark.system

POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {max_duration: 60m}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: research}
spec: {}
"""
MANY = 100
SMALL = {"resources": {"cpus": 0.1}}
MANIFEST = ROOT / "deploy" / "kubernetes" / "federator-operator.yaml"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def of(namespace: str, name: str = "") -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}" + (f"/{name}" if name else "")


class Place:
    """A cluster with the definition, and a federation with one site. Namespace `research` is ada's, `vision` bob's, `other` nobody's."""

    def __init__(self, folder: Path, admin: Admin) -> None:
        self.folder, self.admin = folder, admin
        self.federation = DemoFederation(folder / "federation", 1.0)
        self.people: dict[str, AsyncClient] = {}

    async def begin(self) -> None:
        kubeconfig = await asyncio.to_thread(self._install)
        self.federation.folder.mkdir()
        await self.federation.start_dispatcher()
        await self.federation.apply_policies(POLICIES)
        pool = {"name": "main", "model": "A100", "nodes": 1, "gpus_per_node": 8, "cpus_per_node": 64}
        await self.federation.start_sites([{"site": "north", "kind": "onprem", "pools": [pool]}])
        tenants = {}
        for namespace, person in (("research", "ada"), ("vision", "bob")):
            secret = (await self.federation.admin.create_token(TokenRequest(name=person, role="user"))).secret
            self.people[person] = AsyncClient(self.federation.server, secret)
            token = self.folder / f"{person}.token"
            token.write_text(secret)
            tenants[namespace] = {"token_file": str(token)}
        tenants["research"]["queue"] = "research"
        (self.folder / "admin.token").write_text(self.federation.admin_token)
        file = {
            "dispatcher": self.federation.server,
            "kubeconfig": str(kubeconfig),
            "namespaces": tenants,
            "sites": {"token_file": str(self.folder / "admin.token")},
            "mirror_every": "500ms",
            "forecast_every": "1s",
        }
        (self.folder / "operator.yaml").write_text(json.dumps(file))

    def _install(self) -> Path:
        """What an administrator applies, and a kubeconfig with the rights that this gives."""
        for document in yaml.safe_load_all(MANIFEST.read_text()):
            if document["kind"] in GRANTS:
                self.admin.apply(document)
        if self.admin.find(f"{SITES}/north"):  # of the federation before this one
            self.admin.ask("DELETE", f"{SITES}/north")
        path = "/api/v1/namespaces/federator/serviceaccounts/federator-operator/token"
        wanted = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        token = self.admin.ask("POST", path, wanted)["status"]["token"]
        return self.admin.kubeconfig(self.folder / "kubeconfig", token)

    def start(self, name: str) -> None:
        self.federation.processes.start(
            name, "federator", ["operator", "--config", str(self.folder / "operator.yaml")]
        )

    def said(self, name: str) -> str:
        return self.federation.processes.log_file(name).read_text(errors="replace")

    def apply(self, name: str, namespace: str = "research", **spec: Any) -> dict[str, Any]:
        """What `kubectl apply --server-side` does: the same again changes nothing."""
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": SMALL | spec}
        path = f"{of(namespace, name)}?fieldManager=test&force=true"
        found: dict[str, Any] = self.admin.ask("PATCH", path, body, "application/apply-patch+yaml")
        return found

    def status(self, name: str, namespace: str = "research") -> dict[str, Any]:
        found = self.admin.find(of(namespace, name)) or {}
        status: dict[str, Any] = found.get("status", {})
        return status

    async def phase(self, name: str, *wanted: str, namespace: str = "research") -> dict[str, Any]:
        def there() -> dict[str, Any]:
            status = self.status(name, namespace)
            return status if status.get("phase") in wanted else {}

        found: dict[str, Any] = await until(there, f"{name} to be {wanted}: {self.status(name, namespace)}")
        return found

    async def jobs(self, person: str = "ada") -> list[JobRow]:
        return [row async for row in self.people[person].all_jobs(JobFilter(mine=True))]

    def conditions(self, name: str) -> dict[str, str]:
        return {each["type"]: each["status"] for each in self.status(name)["conditions"]}

    def events(self, name: str) -> Counter[str]:
        items = self.admin.ask("GET", "/api/v1/namespaces/research/events")["items"]
        return Counter(each["reason"] for each in items if each["involvedObject"]["name"] == name)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    need(missing())
    with KubeCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        admin = cluster.admin
        for each in (definition(), site_definition()):
            admin.ask("POST", DEFINITIONS, each)
        for name in ("research", "vision", "other"):
            admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield cluster


@pytest.fixture
async def place(cluster: KubeCluster, tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path, cluster.admin)
    try:
        await place.begin()
        place.start("operator-a")
        yield place
    finally:
        for client in place.people.values():
            await client.close()
        await place.federation.end()


async def test_a_job_is_applied_seen_changed_and_deleted(place: Place) -> None:
    place.apply("hello", run="echo hello", labels={"app": "x"})
    done = await place.phase("hello", "Succeeded")
    assert done["site"] == "north"
    assert place.conditions("hello") == {"Submitted": "True", "Complete": "True"}
    (row,) = await place.jobs()
    assert (row.id, row.name, row.queue, row.status) == (done["job"], "hello", "research", "SUCCEEDED")
    assert row.labels["app"] == "x"
    await until(
        lambda: (
            FINALIZER not in place.admin.ask("GET", of("research", "hello"))["metadata"].get("finalizers", ())
        ),
        "the finalizer to go",
    )
    await until(lambda: {"Pending", "Succeeded"} <= place.events("hello").keys(), "events")
    table = place.admin.ask("GET", of("research"))
    assert [item["metadata"]["name"] for item in table["items"]] == ["hello"]

    place.apply("hello", run="echo hello", labels={"app": "x"})
    place.apply("hello", run="echo other")
    await _refusals(place)
    running = await _changes(place)
    await _theft(place, running)

    place.admin.ask("DELETE", of("research", "long"))
    await until(lambda: place.admin.find(of("research", "long")) is None, "it to go")
    await until(lambda: _is(place.people["ada"], running, "CANCELLED"), "its job to be cancelled")

    place.apply("sweep", run="test $FEDERATOR_ARRAY_INDEX != 2", array="0-3")
    swept = await place.phase("sweep", "Failed")
    assert swept["tasks"] == {"SUCCEEDED": 3, "FAILED": 1}


async def _refusals(place: Place) -> None:
    """By the API server, by the operator, and by the dispatcher; the last is mended."""
    with pytest.raises(ApiError, match=r"spec\.nodes"):
        place.apply("wrong", run="true", nodes=0)
    place.apply("both", run="true", command=["true"])
    refused = await place.phase("both", "Refused")
    assert "exactly one of" in refused["message"]
    place.apply("elsewhere", namespace="other", run="true")
    refused = await place.phase("elsewhere", "Refused", namespace="other")
    assert refused["reason"] == "NamespaceNotMapped"
    place.apply("queued", run="true", queue="default")
    assert (await place.phase("queued", "Refused"))["reason"] == "forbidden"
    assert len(await place.jobs()) == 1
    body = [{"op": "remove", "path": "/spec/command"}]
    place.admin.ask("PATCH", of("research", "both"), body, "application/json-patch+json")
    await place.phase("both", "Succeeded")


async def _changes(place: Place) -> str:
    """A job that runs takes another priority, and no other program."""
    place.apply("long", run="sleep 600", priority=20)
    running = await place.phase("long", "Running")
    place.apply("long", run="sleep 500", priority=30)
    await until(lambda: place.conditions("long").get("SpecInForce") == "False", "the change to be judged")
    detail = await place.people["ada"].job(running["job"])
    assert (detail.job.priority, detail.spec.run) == (30, "sleep 600")
    (said,) = [each for each in place.status("long")["conditions"] if each["type"] == "SpecInForce"]
    assert "run cannot be changed" in said["message"]
    place.apply("long", run="sleep 600", priority=30)
    await until(lambda: place.conditions("long").get("SpecInForce") == "True", "the spec to be in force")
    found: str = running["job"]
    return found


async def _theft(place: Place, running: str) -> None:
    """Somebody of another namespace has written ada's job into the status of an object of his own, and deletes that."""
    place.apply("thief", namespace="vision", run="sleep 600")
    await place.phase("thief", "Running", namespace="vision")
    stolen = [{"op": "replace", "path": "/status/job", "value": running}]
    place.admin.ask("PATCH", of("vision", "thief") + "/status", stolen, "application/json-patch+json")
    place.admin.ask("DELETE", of("vision", "thief"))
    await until(lambda: place.admin.find(of("vision", "thief")) is None, "it to go")
    (theirs,) = await place.jobs("bob")
    await until(lambda: _is(place.people["bob"], theirs.id, "CANCELLED"), "bob's own job to be cancelled")
    assert (await place.people["ada"].job(running)).job.status == "RUNNING"


async def _is(client: AsyncClient, job: str, status: str) -> bool:
    return (await client.job(job)).job.status == status


async def test_a_site_is_seen_drained_and_taken_back(place: Place) -> None:
    at = f"{SITES}/north"

    def said(**wanted: object) -> bool:
        status: dict[str, Any] = (place.admin.find(at) or {}).get("status", {})
        return wanted.items() <= status.items()

    async def apply(**spec: Any) -> None:
        body = {"apiVersion": API_VERSION, "kind": "FederatedSite", "metadata": {"name": "north"}}
        query = "?fieldManager=test&force=true"
        await asyncio.to_thread(
            place.admin.ask, "PATCH", at + query, body | {"spec": spec}, "application/apply-patch+yaml"
        )

    await until(lambda: said(phase="Ready", gpus=8, drained=False), "the site to be seen")
    await apply(drained=True, why="new racks")
    await until(lambda: said(phase="Draining", drained=True), "the site to be drained")
    assert (await place.federation.admin.site("north")).drain_because.endswith(": new racks")
    with pytest.raises(ApiError, match=r"spec\.drained"):
        await apply(drained="perhaps")
    await apply(drained=False)
    await until(lambda: said(phase="Ready", drained=False), "the site to be taken back")
    await asyncio.to_thread(place.admin.ask, "DELETE", at)
    await until(lambda: said(phase="Ready"), "its object to be made anew")
    assert not (await place.federation.admin.site("north")).draining


async def test_a_hundred_run_once_each_though_the_operator_is_killed_in_the_middle(place: Place) -> None:
    place.start("operator-b")
    names = [f"many-{number}" for number in range(MANY)]
    with ThreadPoolExecutor(8) as threads:
        loop = asyncio.get_running_loop()
        applying = [loop.run_in_executor(threads, partial(place.apply, name, run="true")) for name in names]

        def taken() -> int:
            items = place.admin.ask("GET", of("research"))["items"]
            return sum(
                bool(item.get("status", {}).get("job"))
                for item in items
                if item["metadata"]["name"].startswith("many")
            )

        await until(lambda: taken() >= 10, "some to be submitted")
        working = next(name for name in ("operator-a", "operator-b") if " works: " in place.said(name))
        place.federation.processes.kill(working)
        await asyncio.gather(*applying)
    await until(lambda: taken() == MANY, "all to be submitted")
    for name in names:
        await place.phase(name, "Succeeded")
    rows = [row for row in await place.jobs() if row.name.startswith("many")]
    assert Counter(row.labels[UID_LABEL] for row in rows).most_common(1)[0][1] == 1
    assert len(rows) == MANY
    place.federation.processes.started["operator-b" if working == "operator-a" else "operator-a"].send_signal(
        signal.SIGTERM
    )
