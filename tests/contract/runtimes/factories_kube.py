"""Pods of a real cluster."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from federator_agent.kube.runtime import KubeRuntime
from federator_agent.kube.settings import PRODUCT_LABEL, KubePool, KubeSettings
from tests.contract.runtimes.world import Site
from tests.testbeds.kubernetes import shared
from tests.testbeds.kubernetes.cluster import NAMESPACE, Admin
from tests.testbeds.kubernetes.node import NODE


def lacking() -> str:
    """Why there is no cluster."""
    return shared.lacking()


def foreign() -> str:
    """Why its nodes are left as they are."""
    return "" if shared.testbed().node is not None else "the cluster is somebody else's"


def settings(**fields: object) -> KubeSettings:
    """How the tests reach it."""
    testbed = shared.testbed()
    given = {
        "kubeconfig": str(testbed.kubeconfig),
        "namespace": NAMESPACE,
        "service_account": "federator-job",
        "image": testbed.image,
        "side_image": testbed.image,
        **fields,
    }
    return KubeSettings(**given)  # type: ignore[arg-type]


def site(**fields: object) -> Site:
    """One with the pool of nodes that have GPUs. Somebody else's cluster sees nothing of this machine, and brings no data from it."""
    bed = shared.testbed()
    data = shared.data(bed) if bed.node is not None else None
    return Site(
        lambda around: KubeRuntime(settings(data=data, **fields), around), "a100", carries=data is not None
    )


def pool(**fields: object) -> KubePool:
    """Of our own node."""
    return KubePool(selector={PRODUCT_LABEL: "A100"}, **fields)  # type: ignore[arg-type]


@contextmanager
def devices(counts: Mapping[str, int]) -> Iterator[Admin]:
    """Have our own node offer so many devices of these resources, as a device plugin would, until the end."""
    bed = shared.testbed()
    path = f"/api/v1/nodes/{NODE}/status"

    def offer(amounts: Mapping[str, str | None]) -> None:
        bed.admin.patch(path, {"status": {"capacity": amounts, "allocatable": amounts}})

    offer({name: str(count) for name, count in counts.items()})
    try:
        yield bed.admin
    finally:
        offer(dict.fromkeys(counts))
