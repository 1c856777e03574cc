"""What a pod carries beside its job: the order to its side container, and what both containers mount for that.

Inputs lie in a volume that the site names for them, where they are kept for the next job, or else with the pod and go with it. The job sees them, and what
`file:///` addresses lead to, but changes nothing there.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from federator.model.jobs import JobSpec
from federator.wire.needs import DATA, needs_of
from federator_agent.core.state import PlacementRecord
from federator_agent.data.carrier import Carrier, Load
from federator_agent.data.sources import scheme_of
from federator_agent.kube import security
from federator_agent.kube.data_mover import CACHE, FOLDER, GATE, Order
from federator_agent.kube.manifests import CHECKPOINTS, DATA_NOTE, mount, pod_name, verbatim
from federator_agent.kube.settings import KubeData, KubeSettings, KubeVolume
from federator_agent.runtime import Surroundings

CLAIM = f"{FOLDER}/claim"
"""The whole claim on which checkpoints outlive their pods, as the side container sees it."""
MEMORY = ".federator"
"""What is known there of the jobs' directories."""


def laden(
    pods: Sequence[dict[str, Any]],
    record: PlacementRecord,
    spec: JobSpec,
    settings: KubeSettings,
    around: Surroundings,
) -> None:
    """Put into the manifests of a placement's pods, which are in the order of its ranks, what is to be moved for its job, if anything."""
    if settings.data is None or DATA not in needs_of(spec):
        return
    load = around.carrier.load_of(record, spec)
    load = replace(load, every_s=around.clock.real_delay_s(load.every_s))
    on_claim = bool(settings.checkpoints and load.uri)
    for rank, pod in zip(record.entry.ranks, pods, strict=True):
        order = _order(record, rank, load, around.carrier, on_claim=on_claim)
        _address(pod, order, settings, settings.data)


def _order(record: PlacementRecord, rank: int, load: Load, carrier: Carrier, *, on_claim: bool) -> Order:
    """What is moved for a rank, of all that is for its placement.

    Without a claim each rank has a directory for checkpoints, and moves its own. The one on a claim is the job's, and the first rank's to move.
    """
    first = min(record.entry.ranks)
    return Order(
        pod=pod_name(record.entry.placement, rank),
        load=replace(load, part=first if on_claim else rank),
        checkpoints=f"{CLAIM}/{record.entry.job}" if on_claim else CHECKPOINTS,
        memory=f"{CLAIM}/{MEMORY}" if on_claim else f"{GATE}/memory",
        follows=on_claim and rank != first,
        leads=on_claim and rank == first and len(record.entry.ranks) > 1,
        limit_bytes=carrier.limit_bytes,
        bulk_limits=carrier.bulk_limits,
    )


def _address(pod: dict[str, Any], order: Order, settings: KubeSettings, data: KubeData) -> None:
    main, side = pod["spec"]["containers"]
    main["securityContext"] = security.of_main_beside_carrier(settings.run_as)
    side["securityContext"] = security.of_carrier(settings.run_as)
    volumes = _volumes(data)
    bare = replace(order, load=replace(order.load, inputs=()))
    words = (msgspec.json.encode(bare).decode(), *order.load.inputs)
    side["image"] = data.image
    side["args"] += [verbatim(word) for word in words]
    # It writes the cache, and the others only where a job has its checkpoints there.
    writes = scheme_of(order.load.uri) == "file" and not order.follows
    side["volumeMounts"] += [
        mount(name, each.path) | ({} if writes or each.path == CACHE else {"readOnly": True})
        for name, each in volumes
    ]
    if order.checkpoints.startswith(CLAIM):
        side["volumeMounts"].append(mount("checkpoints", CLAIM))
    if data.secret:
        side["envFrom"] = [{"secretRef": {"name": data.secret}}]
    main["volumeMounts"] += [mount(name, each.path) | {"readOnly": True} for name, each in volumes]
    pod["spec"]["volumes"] += [{"name": name} | _source(each) for name, each in volumes]
    if order.load.uri and not order.follows:
        pod["metadata"]["annotations"][DATA_NOTE] = order.load.uri


def _volumes(data: KubeData) -> list[tuple[str, KubeVolume]]:
    """Those that a site names for data, each with a name in the pod."""
    cache = [replace(data.cache, path=CACHE)] if data.cache is not None else []
    return [(f"data-{number}", each) for number, each in enumerate((*cache, *data.volumes))]


def _source(volume: KubeVolume) -> dict[str, Any]:
    if volume.claim:
        return {"persistentVolumeClaim": {"claimName": volume.claim}}
    return {"hostPath": {"path": volume.host_path, "type": "DirectoryOrCreate"}}
