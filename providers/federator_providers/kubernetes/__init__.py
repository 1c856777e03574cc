"""The `kubernetes` provider: nodes of a Kubernetes cluster, whose autoscaler adds them for a pod of ours and takes them away after it.

A machine is a pod that asks for what a whole node has and runs the agent. So a node pool that scales from zero is an offer with a price and a boot time, as any cloud's machines are, and its
jobs need no more of the cluster than that pod. Jobs as pods of a cluster that is there anyway are the agent's runtime `kube`.
"""

from federator.kernel.clock import Clock
from federator.kernel.errors import Invalid
from federator.kube.api import Api
from federator_providers.kubernetes.adapter import KubernetesProvider
from federator_providers.kubernetes.settings import read_settings

__all__ = ["provider"]


def provider(name: str, settings: dict[str, object], clock: Clock) -> KubernetesProvider:
    """The entry point. Raises `Invalid` that names the key in `settings`, or says that the client library is missing."""
    configuration = read_settings(name, settings)
    file = configuration.given.kubeconfig
    try:
        api = Api("" if file is None else str(file.expanduser()), configuration.given.context)
    except Invalid as error:
        raise Invalid(error.message, field=f"$.providers.{name}.type", remedy=error.remedy) from None
    return KubernetesProvider(name, configuration, clock, api)
