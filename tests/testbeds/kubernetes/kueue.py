"""Kueue beside a cluster of its own kind, from its sources: `docs/testing.md` says where they are from and how its program is built.

It runs outside of the cluster, as the other programs of the testbed do, so its webhooks and conversions are reached by address and not by a service.
"""

import base64
import json
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.waiting import wait_until
from tests.testbeds.kubernetes.cluster import Admin, KubeCluster
from tests.testbeds.ports import free_ports

METRICS_CERTIFICATE = Path("/etc/kueue/metrics/certs")
"""Where it wants a certificate even when it serves no metrics."""
SYSTEM = "kueue-system"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HOOKED = ("--v1-pod", "batch-v1-job", "kueue-x-k8s-io")
"""In the paths of webhooks for kinds that are there; others are left out."""


def start_kueue(
    cluster: KubeCluster, sources: Path, gates: str = "", settings: Mapping[str, object] | None = None
) -> None:
    """Apply its definitions, start it, and apply its webhooks. Ends with the cluster. `gates`: more feature gates; `settings`: more of its configuration."""
    folder = cluster.folder / "kueue"
    folder.mkdir()
    authority = _certify(folder)
    port, health = free_ports(2)
    url = f"https://127.0.0.1:{port}"
    _define(
        cluster.admin, sources / "config/components/crd", {"url": f"{url}/convert", "caBundle": authority}
    )
    cluster.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    (folder / "config.yaml").write_text(
        json.dumps({**_configuration(folder, port, health), **(settings or {})})
    )
    kubeconfig = cluster.folder / "admin.kubeconfig"
    cluster.start(
        "kueue",
        f"--feature-gates=VisibilityOnDemand=false{gates and f',{gates}'}",
        f"--config={folder / 'config.yaml'}",
        f"--kubeconfig={kubeconfig}",
    )
    wait_until(lambda: _listens(cluster, port), "Kueue's webhooks")
    for document in yaml.safe_load_all((sources / "config/components/webhook/manifests.yaml").read_text()):
        _hook(cluster.admin, document, url, authority)


def _certify(folder: Path) -> str:
    """A certificate for 127.0.0.1, at its place for metrics too; as base64."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "tls.key", "-out", folder / "tls.crt"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    METRICS_CERTIFICATE.mkdir(parents=True, exist_ok=True)
    for name in ("tls.key", "tls.crt"):
        (METRICS_CERTIFICATE / name).write_bytes((folder / name).read_bytes())
    return base64.b64encode((folder / "tls.crt").read_bytes()).decode()


def _define(admin: Admin, folder: Path, client: dict[str, str]) -> None:
    """Its kinds; those of several versions are converted by itself."""
    converted = (folder / "kustomization.yaml").read_text()
    names = []
    for file in sorted((folder / "bases").glob("*.yaml")):
        document = yaml.safe_load(file.read_text())
        plural = document["spec"]["names"]["plural"]
        if f"\n- path: patches/webhook_in_{plural}.yaml" in converted:
            webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
            document["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        admin.ask("POST", DEFINITIONS, document)
        names.append(document["metadata"]["name"])
    wait_until(lambda: all(_is_served(admin, name) for name in names), "the definitions to be served")


def _is_served(admin: Admin, name: str) -> bool:
    status: dict[str, Any] = admin.ask("GET", f"{DEFINITIONS}/{name}").get("status", {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    return conditions.get("Established") == "True"


def _configuration(folder: Path, port: int, health: int) -> dict[str, object]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": SYSTEM,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 300, "burst": 500},
        "controller": {"groupKindConcurrency": {"Pod": 5, "Workload.kueue.x-k8s.io": 10, "Job.batch": 5}},
        "integrations": {"frameworks": ["batch/job", "pod"]},
    }


def _listens(cluster: KubeCluster, port: int) -> bool:
    assert not cluster.has_ended("kueue"), cluster.said("kueue")
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _hook(admin: Admin, document: dict[str, Any], url: str, authority: str) -> None:
    """One list of webhooks. Its own pods and the system's are not asked about."""
    kept = []
    for hook in document["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        if not any(each in path for each in HOOKED):
            continue
        hook["clientConfig"] = {"url": url + path, "caBundle": authority}
        if path.endswith("--v1-pod"):
            others = {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["kube-system", SYSTEM],
            }
            hook["namespaceSelector"] = {"matchExpressions": [others]}
        kept.append(hook)
    document["webhooks"] = kept
    admin.ask("POST", f"/apis/admissionregistration.k8s.io/v1/{document['kind'].lower()}s", document)
