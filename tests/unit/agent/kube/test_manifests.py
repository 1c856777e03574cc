"""A job's image and secrets in its pod; nothing of a secret's value is there."""

from typing import Any

from federator.model.jobs import JobSpec
from federator_agent.core.lent_capacity import Slot
from federator_agent.core.state import Phase, PlacementRecord
from federator_agent.kube import manifests, pod_template
from federator_agent.kube.capacity import PoolPlace
from federator_agent.kube.settings import KubeSettings
from tests.unit.agent.worlds import entry


def _pod(secrets: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    spec = JobSpec(name="job", run="x", **fields)
    record = PlacementRecord(
        entry=entry("p1", spec, pool="main"), phase=Phase.STAGING, slots=(Slot(0, "main", "n", (), 1000, 0),)
    )
    place = PoolPlace({})
    return manifests.pod(record, spec, 0, place, KubeSettings(image="site:1"), "here", secrets)


def _container(secrets: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    main: dict[str, Any] = _pod(secrets, **fields)["spec"]["containers"][0]
    return main


def test_the_sites_image_unless_the_job_names_one() -> None:
    assert _container()["image"] == "site:1"
    assert _container(image="own:2")["image"] == "own:2"


def test_secrets_are_referred_to_by_name() -> None:
    assert "envFrom" not in _container()
    assert _container(("wandb-key",))["envFrom"] == [{"secretRef": {"name": "wandb-key"}}]


def test_who_scales_a_cluster_down_leaves_pods_alone_unless_a_template_says_otherwise() -> None:
    notes = _pod()["metadata"]["annotations"]
    assert notes["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert notes["karpenter.sh/do-not-disrupt"] == "true"
    template = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "false"}}}
    laid = pod_template.laid_over(_pod(), pod_template.read_template(template, "$.pod"))
    assert laid["metadata"]["annotations"] == notes | {"karpenter.sh/do-not-disrupt": "false"}
