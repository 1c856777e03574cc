"""The chart at a real cluster, with the images of this tree: Helm installs dispatcher, agent and operator, changes their image and takes that back, and work goes on meanwhile."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from federator.operator.definition import definition
from federator.operator.objects import API_VERSION, KIND, PLURAL
from tests.support.waiting import PATIENCE_S, wait_until
from tests.testbeds.kubernetes.cluster import KubeCluster, missing
from tests.testbeds.kubernetes.image import IMAGE
from tests.testbeds.kubernetes.network import Network
from tests.testbeds.kubernetes.node import RealNode, unable
from tests.testbeds.podman import Podman
from tests.testbeds.required import need
from tools import manifests

USER = 10001
"""Whose the files of the images' programs are."""
CONTROLLERS = "deployment,replicaset,statefulset,persistentvolume-binder"
CLAIMS = ("state-federator-dispatcher-0-0", "federator-agent")
ROLES = ("dispatcher", "agent")
JOBS = "lent"
WORKLOADS = {
    "federator-dispatcher-0-0": "dispatcher",
    "federator-agent-": "agent",
    "federator-operator-": "dispatcher",
}
"""How the names of pods begin, and which image they run."""
SMALL = {"requests": {"cpu": "10m", "memory": "64Mi"}}
AT_ONCE = {"periodSeconds": 1, "timeoutSeconds": 10}

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("images"),
]


class Release:
    """The release `federator`, and what is asked of the cluster that it is at."""

    def __init__(self, node: RealNode, network: Network, folder: Path) -> None:
        self.admin, self.network, self._folder = node.admin, network, folder
        self.address = ""
        """The dispatcher's, once it has a Service."""
        self._kubeconfig = self.admin.kubeconfig(folder / "helm.kubeconfig")
        self._states = {claim: folder / claim for claim in CLAIMS}
        for claim, state in self._states.items():
            state.mkdir()
            os.chown(state, USER, USER)
            self.admin.apply(_volume(claim, state))

    def helm(self, *words: str) -> None:
        command = [manifests.helm(), *words, "--namespace=federator", f"--kubeconfig={self._kubeconfig}"]
        homes = {f"HELM_{name}_HOME": str(self._folder / "helm") for name in ("CACHE", "CONFIG", "DATA")}
        ran = subprocess.run(
            command, text=True, capture_output=True, timeout=600, check=False, env=os.environ | homes
        )
        pods = [(each["metadata"]["name"], each["status"]) for each in self.pods("federator")]
        assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}{pods}"

    def put(self, verb: str, values: dict[str, Any]) -> None:
        """`helm install` or `helm upgrade`, until all of it is ready."""
        file = self._folder / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        more = ["--create-namespace"] if verb == "install" else []
        self.helm(
            verb, "federator", str(manifests.CHART), f"--values={file}", "--wait", "--timeout=8m", *more
        )

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.admin.ask("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return found

    def images(self) -> dict[str, set[str]]:
        """By the beginning of a pod's name, the images of the pods that are not on their way out."""
        return {
            start: {
                container["image"].rpartition("/")[2]
                for pod in self.pods("federator")
                if pod["metadata"]["name"].startswith(start) and "deletionTimestamp" not in pod["metadata"]
                for container in pod["spec"]["containers"]
            }
            for start in WORKLOADS
        }

    def secret(self, name: str, **values: str) -> None:
        metadata = {"name": name, "namespace": "federator"}
        self.admin.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values})

    def token(self, *words: str) -> str:
        """What `federator token create` prints, by the dispatcher's administrator."""
        known = {
            "FEDERATOR_SERVER": self.address,
            "FEDERATOR_TOKEN": (self._states[CLAIMS[0]] / "admin.token").read_text().strip(),
        }
        ran = subprocess.run(
            [sys.executable, "-m", "federator", "token", "create", *words], env=os.environ | known, text=True, capture_output=True, timeout=120, check=False
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout.splitlines()[0]

    def apply(self, name: str, run: str) -> None:
        document = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name, "namespace": "research"},
        }
        spec = {"run": run, "resources": {"cpus": 0.1}}
        self.admin.ask("POST", f"/apis/{API_VERSION}/namespaces/research/{PLURAL}", document | {"spec": spec})

    def phase(self, name: str, wanted: str) -> None:
        path = f"/apis/{API_VERSION}/namespaces/research/{PLURAL}/{name}"
        wait_until(
            lambda: self.admin.ask("GET", path).get("status", {}).get("phase") == wanted,
            f"{name} to be {wanted}",
            2 * PATIENCE_S,
        )


def _volume(claim: str, folder: Path) -> dict[str, Any]:
    """For that claim alone: nobody provisions volumes here."""
    spec = {
        "capacity": {"storage": "20Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": str(folder)},
        "claimRef": {"namespace": "federator", "name": claim},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": claim}, "spec": spec}


@pytest.fixture
def release(podman: Podman, built: dict[str, str]) -> Iterator[Release]:
    need(missing() or unable() or ("" if manifests.helm() else "helm cannot be found"))
    part = os.getpid() % 200
    with (
        tempfile.TemporaryDirectory(prefix="chart-") as short,  # the kubelet's sockets are below it
        KubeCluster(Path(short) / "cluster", f"10.214.{part}.0/24", CONTROLLERS) as cluster,
        RealNode(cluster, f"10.215.{part}.0/24") as node,
        Network(node, f"10.215.{part}.1/24") as network,
    ):
        folder = Path(short)
        for role in ROLES:
            names = [f"registry.test/federator-{role}:{tag}" for tag in ("1", "2")]
            archive = folder / f"{role}.tar"
            for name in names:
                podman("tag", built[f"federator-{role}"], name)
            podman("save", "--multi-image-archive", f"--output={archive}", *names)
            node.load(archive)
            archive.unlink()
        network.serve_api(cluster.place)
        yield Release(node, network, folder)


def test_an_image_is_changed_and_put_back_under_running_work(release: Release) -> None:
    release.admin.apply(definition())
    probes = {"startup": AT_ONCE | {"failureThreshold": 400}, "readiness": AT_ONCE}
    values: dict[str, Any] = {
        "image": {"registry": "registry.test", "tag": "1"},
        "dispatcher": {"enabled": True, "resources": SMALL, "probes": probes},
    }
    release.put("install", values)
    release.address = f"http://{release.network.serve('federator-dispatcher', 'federator')}"
    release.secret("federator-join", token=release.token("--site", "north", "--kind", "onprem"))
    release.secret("federator-operator", research=release.token("--name", "ada", "--role", "user"))
    release.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research"}})
    kube = {"image": IMAGE, "side_image": IMAGE}
    site = {"site": "north", "dispatcher": release.address, "kube": kube}
    namespaces = {"research": {"token_file": "/run/tokens/research"}}
    settings = {"dispatcher": release.address, "namespaces": namespaces}
    values["agent"] = {
        "enabled": True,
        "jobsNamespace": JOBS,
        "site": site,
        "resources": SMALL,
        "probes": probes,
    }
    values["operator"] = {"enabled": True, "settings": settings, "resources": SMALL, "probes": probes}
    release.put("upgrade", values)

    release.apply("long", "sleep 100000")
    release.phase("long", "Running")
    (pod,) = release.pods(JOBS)
    for number, tag in enumerate(("1", "2", "1")):
        if tag == "2":
            release.put("upgrade", values | {"image": {"registry": "registry.test", "tag": "2"}})
        elif number:
            release.helm("rollback", "federator", "--wait", "--timeout=8m")
        assert release.images() == {start: {f"federator-{role}:{tag}"} for start, role in WORKLOADS.items()}
        release.apply(f"short-{number}", "true")
        release.phase(f"short-{number}", "Succeeded")
        kept = release.admin.ask("GET", f"/api/v1/namespaces/{JOBS}/pods/{pod['metadata']['name']}")
        assert kept["metadata"]["uid"] == pod["metadata"]["uid"], "it was begun anew"
        assert kept["status"]["phase"] == "Running"
        assert [each["restartCount"] for each in kept["status"]["containerStatuses"]] == [0, 0]
        release.phase("long", "Running")
