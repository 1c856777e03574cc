"""One cluster for all tests of a run: of our own with one real node, or the one that `KUBECONFIG` names."""

import atexit
import base64
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from federator.wire.yamltext import read_document
from federator_agent.kube.settings import KubeData, KubeVolume
from tests.support.waiting import wait_until
from tests.testbeds.kubernetes.cluster import AGENTS, NAMESPACE, Admin, KubeCluster, missing
from tests.testbeds.kubernetes.image import IMAGE
from tests.testbeds.kubernetes.node import RealNode, unable

FOREIGN_IMAGE = "busybox:1.36"
ROOT = Path(__file__).parents[3]
MANIFEST = ROOT / "deploy" / "kubernetes" / "federator-agent.yaml"
SECRET = "data-mover"
GRANTS = (
    "Namespace",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "NetworkPolicy",
)


class Bed(NamedTuple):
    """A cluster that tests may use. `kubeconfig`: of the agent, with no more rights than its manifest gives it. `cluster` and `node`: None when it is somebody else's."""

    admin: Admin
    kubeconfig: Path
    image: str
    cluster: KubeCluster | None = None
    node: RealNode | None = None


def lacking() -> str:
    """Why there can be no testbed; empty: there can."""
    return "" if os.environ.get("KUBECONFIG") else missing() or unable()


_STARTED = ExitStack()


@atexit.register
def end() -> None:
    """End it, if it was started: once no test of this process needs it any more, and with the process at the latest."""
    _begun.cache_clear()
    _STARTED.close()


def testbed() -> Bed:
    """It, started by whoever is first to ask, and anew where its API server has ended by itself: this one does so where it is kept waiting at its start."""
    bed = _begun()
    if bed.cluster is not None and bed.cluster.has_ended("kube-apiserver"):
        sys.stderr.write(f"the API server has ended by itself: {bed.cluster.said('kube-apiserver')}\n")
        end()
        bed = _begun()
    return bed


@cache
def _begun() -> Bed:
    folder = _STARTED.enter_context(tempfile.TemporaryDirectory(prefix="kubernetes-"))
    if given := os.environ.get("KUBECONFIG"):
        image = os.environ.get("FEDERATOR_TEST_IMAGE", FOREIGN_IMAGE)
        admin = admin_of(Path(given), Path(folder))
        return Bed(admin, install(admin, Path(folder)), image)
    cluster = _STARTED.enter_context(KubeCluster(Path(folder)))
    node = _STARTED.enter_context(RealNode(cluster))
    return Bed(cluster.admin, install(cluster.admin, cluster.folder), IMAGE, cluster, node)


def manifests() -> list[dict[str, Any]]:
    """What an administrator applies."""
    text = MANIFEST.read_text()
    return [dict(document) for document in yaml.safe_load_all(text)]


def install(admin: Admin, folder: Path) -> Path:
    """Give the agent its account and its rights, and nothing else; its kubeconfig."""
    for document in manifests():
        if document["kind"] in GRANTS:
            admin.apply(document)
    path = f"/api/v1/namespaces/{AGENTS}/serviceaccounts/federator-agent/token"
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 86400},
    }
    wait_until(
        lambda: admin.find(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"),
        "the account of jobs",
    )
    token = admin.ask("POST", path, request)["status"]["token"]
    return admin.kubeconfig(folder / "agent.kubeconfig", token)


def data(bed: Bed) -> KubeData:
    """How the side containers of our own node bring data: with the Python of this machine, and this tree, which they mount as they mount the site's data."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "stringData": {"FEDERATOR_TEST_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)},
    }
    bed.admin.apply(secret)
    wanted = {
        "/usr",
        "/lib",
        "/lib64",
        sys.prefix,
        sys.base_prefix,
        str(ROOT),
        tempfile.gettempdir(),
        "/var/tmp",
    }
    folders = sorted(
        folder
        for folder in wanted
        if Path(folder).exists() and not any(folder.startswith(f"{above}/") for above in wanted)
    )
    volumes = tuple(KubeVolume(host_path=folder, path=folder) for folder in folders)
    return KubeData(image=bed.image, secret=SECRET, volumes=volumes)


def admin_of(kubeconfig: Path, folder: Path) -> Admin:
    """Whom a kubeconfig names: by a token, by a client's certificate, or by a program that prints either."""
    document: Any = read_document(kubeconfig.read_text()).value
    context = next(
        each["context"] for each in document["contexts"] if each["name"] == document["current-context"]
    )
    server = next(each["cluster"] for each in document["clusters"] if each["name"] == context["cluster"])
    user = next(each["user"] for each in document["users"] if each["name"] == context["user"])
    if "exec" in user:
        user = _printed(user["exec"])
    authority = _file(server, "certificate-authority", folder / "ca.crt")
    assert authority is not None, "the tests want a kubeconfig that names the cluster's certificate authority"
    certificate = _file(user, "client-certificate", folder / "client.crt")
    key = _file(user, "client-key", folder / "client.key")
    assert "token" in user or (certificate and key), "a kubeconfig wants a token or a client's certificate"
    return Admin(
        server["server"],
        user.get("token", ""),
        authority,
        (certificate, key) if certificate and key else None,
    )


def _printed(plugin: dict[str, Any]) -> dict[str, str]:
    """What a credential plug-in prints, under the names that a kubeconfig has for it."""
    environment = {each["name"]: each["value"] for each in plugin.get("env") or ()}
    info = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": False}}
    found = subprocess.run(
        [plugin["command"], *(plugin.get("args") or ())],
        env={**os.environ, **environment, "KUBERNETES_EXEC_INFO": json.dumps(info)},
        check=True,
        capture_output=True,
        timeout=60,
    )
    said = json.loads(found.stdout)["status"]
    encoded = {
        f"{name}-data": base64.b64encode(said[key].encode()).decode()
        for name, key in (("client-certificate", "clientCertificateData"), ("client-key", "clientKeyData"))
        if key in said
    }
    return encoded | ({"token": said["token"]} if "token" in said else {})


def _file(part: dict[str, str], name: str, file: Path) -> Path | None:
    """What a kubeconfig holds, or has a path of; None: neither."""
    if f"{name}-data" in part:
        file.write_bytes(base64.b64decode(part[f"{name}-data"]))
        return file
    return Path(part[name]) if name in part else None
