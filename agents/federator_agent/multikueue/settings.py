"""The `multikueue:` part of a site file: which cluster of a MultiKueue the site stands for."""

from typing import Annotated

import msgspec

from federator.wire import fields


class MultiKueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The site stands for a cluster of a MultiKueue: it nominates that cluster for Workloads, and Kueue carries them out."""

    cluster: Annotated[str, fields.short(253, "worker-north")]
    """The name of the `MultiKueueCluster`, as the manager has it."""
    check: Annotated[str, fields.short(253, "multikueue")]
    """The name of the `AdmissionCheck` whose controller is MultiKueue."""
    kubeconfig: Annotated[str, fields.short(4096, "/etc/federator-agent/kubeconfig")] = ""
    """How the manager is reached: a file. Left out: the agent is a pod of the manager."""
    context: Annotated[str, fields.short(1000)] = ""
    """Which cluster of that file. Left out: its current one."""
    admit_within: Annotated[float, fields.duration("5m", low_s=1.0, high_s=86_400)] = 300.0
    """So long the cluster may take to admit a Workload before the nomination is withdrawn and another site is planned. Left out: 5m."""
