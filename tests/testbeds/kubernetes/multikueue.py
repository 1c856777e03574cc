"""A real MultiKueue: a manager and two workers, each a cluster of its own with Kueue. Its sources and programs are those of `docs/testing.md`.

No worker has a node: Kueue counts quota, and a pod ends when somebody says so in its status.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.testbeds.kubernetes.cluster import Admin, KubeCluster
from tests.testbeds.kubernetes.kueue import SYSTEM, start_kueue

VARIABLE = "FEDERATOR_MULTIKUEUE"
"""Environment variable: the folder that has a kubeconfig of each cluster, `NAME.kubeconfig`."""
MANAGER, GPUS = "manager", {"north": 8, "south": 4}
"""The clusters. Of workers, their quota."""
CHECK, NAMESPACE, QUEUE = "multikueue", "research", "team"
DISPATCHER = "federator.dev/dispatcher"
KUEUE = "kueue.x-k8s.io/v1beta2"


@contextmanager
def fleet(sources: Path) -> Iterator[Path]:
    """The folder with the kubeconfigs."""
    with tempfile.TemporaryDirectory(prefix="multikueue-") as folder, ExitStack() as stack:
        admins = {name: _start(stack, Path(folder), name, sources) for name in (MANAGER, *GPUS)}
        for name, gpus in GPUS.items():
            _queues(admins[name], gpus)
            _join(admins[MANAGER], admins[name], Path(folder), name)
        _choose(admins[MANAGER])
        _queues(admins[MANAGER], sum(GPUS.values()), checked=True)
        urgent = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}}
        admins[MANAGER].ask("POST", f"/apis/{KUEUE}/workloadpriorityclasses", urgent | {"value": 50})
        yield Path(folder)


def _start(stack: ExitStack, folder: Path, name: str, sources: Path) -> Admin:
    cluster = stack.enter_context(KubeCluster(folder / name))
    if name == MANAGER:
        chosen = {"multiKueue": {"dispatcherName": DISPATCHER, "workerLostTimeout": "30s"}}
        start_kueue(cluster, sources, "WorkloadRequestUseMergePatch=true", chosen)
    else:
        start_kueue(cluster, sources)
    cluster.admin.kubeconfig(folder / f"{name}.kubeconfig")
    return cluster.admin


def _object(kind: str, name: str, spec: dict[str, Any], **meta: str) -> dict[str, Any]:
    return {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def _queues(admin: Admin, gpus: int, checked: bool = False) -> None:
    """A queue for a namespace, with that many GPUs. `checked`: for the workers to carry out."""
    resources = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": str(gpus)}
    quotas = [{"name": name, "nominalQuota": quota} for name, quota in resources.items()]
    spec: dict[str, Any] = {
        "namespaceSelector": {},
        "resourceGroups": [
            {"coveredResources": list(resources), "flavors": [{"name": "any", "resources": quotas}]}
        ],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    if checked:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    admin.apply(_object("ResourceFlavor", "any", {}))
    admin.apply(_object("ClusterQueue", QUEUE, spec))
    admin.apply(_object("LocalQueue", QUEUE, {"clusterQueue": QUEUE}, namespace=NAMESPACE))


def _join(admin: Admin, worker: Admin, folder: Path, name: str) -> None:
    """Tell the manager of a worker."""
    kubeconfig = worker.kubeconfig(folder / f"{name}.kubeconfig").read_text()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": SYSTEM},
        "stringData": {"kubeconfig": kubeconfig},
    }
    admin.apply(secret)
    source = {"kubeConfig": {"locationType": "Secret", "location": name}}
    admin.apply(_object("MultiKueueCluster", f"worker-{name}", {"clusterSource": source}))


def _choose(admin: Admin) -> None:
    """The manager's check that gives Workloads to workers."""
    admin.apply(_object("MultiKueueConfig", CHECK, {"clusters": [f"worker-{name}" for name in GPUS]}))
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": CHECK}
    spec = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}
    admin.apply(_object("AdmissionCheck", CHECK, spec))
