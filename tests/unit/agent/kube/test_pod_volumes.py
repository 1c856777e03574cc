"""What a pod carries beside its job: who moves what, and which container sees which volume."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from federator.kernel.clock import SystemClock
from federator.model.jobs import Checkpoint, Input, JobSpec
from federator_agent.core.lent_capacity import Hours, Slot
from federator_agent.core.state import Phase, PlacementRecord
from federator_agent.data.carrier import Carrier
from federator_agent.kube import manifests
from federator_agent.kube.capacity import PoolPlace
from federator_agent.kube.data_mover import Order
from federator_agent.kube.manifests import DATA_NOTE
from federator_agent.kube.pod_volumes import laden
from federator_agent.kube.settings import KubeData, KubeSettings, KubeVolume
from federator_agent.link_limits import Bulk, LinkLimits
from federator_agent.link_use import LinkUse
from federator_agent.runtime import Surroundings, Tasks
from federator_agent.spool import Spool
from tests.unit.agent.worlds import entry

DATA = KubeData(
    image="data:1",
    secret="s3",
    cache=KubeVolume(host_path="/var/cache"),
    volumes=(KubeVolume(path="/data", claim="sets"),),
)
LIMITS = Bulk(rate=2**16, hours=(Hours(60, 300),), on_site=("s3://scratch",))


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    spool = Spool(tmp_path)
    link = LinkUse(SystemClock(), LinkLimits(bulk=LIMITS))
    carrier = Carrier(spool.directory, SystemClock(), 1000, link=link)
    return Surroundings("here", {}, SystemClock(), spool, None, carrier, Tasks(), print)  # type: ignore[arg-type]


def _pods(around: Surroundings, spec: JobSpec, **settings: Any) -> list[dict[str, Any]]:
    """The manifests of all ranks."""
    site = KubeSettings(image="site:1", **settings)
    slots = tuple(Slot(rank, "main", "n", (), 1000, 0) for rank in range(spec.nodes))
    record = PlacementRecord(entry=entry("p1", spec, pool="main"), phase=Phase.STAGING, slots=slots)
    pods = [manifests.pod(record, spec, rank, PoolPlace({}), site, "here") for rank in range(spec.nodes)]
    laden(pods, record, spec, site, around)
    return pods


def _order(pod: dict[str, Any]) -> Order:
    return msgspec.json.decode(pod["spec"]["containers"][1]["args"][3], type=Order)


def test_the_order_is_an_argument_and_each_input_one_more(around: Surroundings) -> None:
    spec = JobSpec(name="job", run="x", inputs=(Input("s3://team/$(x)"), Input("file:///data/y")))
    (pod,) = _pods(around, spec, data=DATA)
    main, side = pod["spec"]["containers"]
    assert side["args"][4:] == ["s3://team/$$(x)", "file:///data/y"]
    assert (side["image"], side["envFrom"]) == ("data:1", [{"secretRef": {"name": "s3"}}])
    assert "envFrom" not in main, "the job gets nothing of the site's own secret"
    order = _order(pod)
    assert (order.pod, order.limit_bytes, order.load.inputs) == ("p1-0", 1000, ())
    assert order.bulk_limits == LIMITS
    assert DATA_NOTE not in pod["metadata"]["annotations"], "nothing is pushed"


def test_the_job_reads_what_the_side_container_writes(around: Surroundings) -> None:
    (pod,) = _pods(around, JobSpec(name="job", run="x", inputs=(Input("file:///data/y"),)), data=DATA)
    main, side = (
        {each["mountPath"]: each for each in one["volumeMounts"]} for one in pod["spec"]["containers"]
    )
    assert main["/data"]["readOnly"]
    assert side["/data"]["readOnly"], "nothing is saved there"
    assert main["/federator/cache"]["readOnly"]
    assert "readOnly" not in side["/federator/cache"]
    assert main["/federator/gate"]["readOnly"]
    assert "readOnly" not in side["/federator/gate"]
    sources = {each["name"]: each for each in pod["spec"]["volumes"]}
    assert sources[main["/data"]["name"]]["persistentVolumeClaim"] == {"claimName": "sets"}
    assert sources[main["/federator/cache"]["name"]]["hostPath"]["path"] == "/var/cache"


def test_where_the_job_saves_itself_is_written(around: Surroundings) -> None:
    spec = JobSpec(name="job", run="x", checkpoint=Checkpoint(uri="file:///data/saved"))
    (pod,) = _pods(around, spec, data=DATA)
    main, side = (
        {each["mountPath"]: each for each in one["volumeMounts"]} for one in pod["spec"]["containers"]
    )
    assert main["/data"]["readOnly"]
    assert "readOnly" not in side["/data"]


def test_the_job_can_do_less_than_what_moves_its_data(around: Surroundings) -> None:
    """Or else, both being root, it could read the other's secret and write its files, through /proc."""
    spec = JobSpec(name="job", run="x", inputs=(Input("file:///data/y"),))
    (pod,) = _pods(around, spec, data=DATA, run_as=None)
    main, side = (one["securityContext"]["capabilities"] for one in pod["spec"]["containers"])
    assert main["drop"] == side["add"]


def test_a_job_without_data_has_a_plain_pod(around: Surroundings) -> None:
    spec = JobSpec(name="job", run="x")
    assert _pods(around, spec, data=DATA) == _pods(around, spec)


def test_each_rank_moves_its_own_checkpoints(around: Surroundings) -> None:
    spec = JobSpec(name="job", run="x", nodes=2, checkpoint=Checkpoint(uri="s3://team/saved", every_s=60.0))
    pods = _pods(around, spec, data=DATA)
    orders = [_order(pod) for pod in pods]
    assert [order.load.part for order in orders] == [0, 1]
    assert not any(order.follows or order.leads for order in orders)
    assert [pod["metadata"]["annotations"][DATA_NOTE] for pod in pods] == ["s3://team/saved"] * 2


def test_what_lies_on_a_claim_is_moved_by_the_first_rank(around: Surroundings) -> None:
    spec = JobSpec(name="job", run="x", nodes=2, checkpoint=Checkpoint(uri="s3://team/saved"))
    first, second = _pods(around, spec, data=DATA, checkpoints="shared")
    assert (_order(first).leads, _order(first).follows) == (True, False)
    assert (_order(second).leads, _order(second).follows) == (False, True)
    assert _order(first).checkpoints == _order(second).checkpoints
    assert DATA_NOTE in first["metadata"]["annotations"]
    assert DATA_NOTE not in second["metadata"]["annotations"]
    mounted = {each["mountPath"] for each in first["spec"]["containers"][1]["volumeMounts"]}
    assert Path(_order(first).checkpoints).parent.as_posix() in mounted
