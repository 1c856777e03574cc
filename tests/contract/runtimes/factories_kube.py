"""Pods of a real cluster."""

from federator_agent.kube.runtime import KubeRuntime
from federator_agent.kube.settings import KubeSettings
from tests.contract.runtimes.world import Site
from tests.testbeds.kubernetes import shared


def lacking() -> str:
    """Why there is no cluster."""
    return shared.lacking()


def settings(**fields: object) -> KubeSettings:
    """How the tests reach it."""
    testbed = shared.testbed()
    given = {
        "kubeconfig": str(testbed.kubeconfig),
        "image": testbed.image,
        "side_image": testbed.image,
        **fields,
    }
    return KubeSettings(**given)  # type: ignore[arg-type]


def site() -> Site:
    """One with the pool of nodes that have GPUs. Somebody else's cluster sees nothing of this machine, and brings no data from it."""
    bed = shared.testbed()
    data = shared.data(bed) if bed.node is not None else None
    return Site(lambda around: KubeRuntime(settings(data=data), around), "a100", carries=data is not None)
