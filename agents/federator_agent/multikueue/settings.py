"""The `multikueue:` part of a site file: which cluster of a MultiKueue the site stands for."""

from functools import partial
from typing import Annotated

import msgspec

from federator.wire import fields

_namespaces = partial(
    fields.persons, limit=1000, remedy="name the person of the operator's token for that namespace"
)


class MultiKueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The site stands for a cluster of a MultiKueue: it nominates that cluster for Workloads, and Kueue carries them out."""

    cluster: Annotated[str, fields.short(253, "worker-north")]
    """The name of the `MultiKueueCluster`, as the manager has it."""
    check: Annotated[str, fields.short(253, "multikueue")]
    """The name of the `AdmissionCheck` whose controller is MultiKueue."""
    namespaces: Annotated[
        dict[str, str], fields.written(_namespaces, "{research: research-operator}", **fields.PAIRS)
    ]
    """Of each namespace the person whose jobs stand for its Workloads: that of the operator's token. A job says by its labels for which Workload it stands, so another person's is refused: it could have the Workload evicted."""
    kubeconfig: Annotated[str, fields.short(4096, "/etc/federator-agent/kubeconfig")] = ""
    """How the manager is reached: a file. Left out: the agent is a pod of the manager."""
    context: Annotated[str, fields.short(1000)] = ""
    """Which cluster of that file. Left out: its current one."""
    admit_within: Annotated[float, fields.duration("5m", low_s=1.0, high_s=86_400)] = 300.0
    """So long the cluster may take to admit a Workload before the nomination is withdrawn and another site is planned. Left out: 5m."""
