"""What pods are kept from: by default the whole of the profile "restricted", and where a site needs more, no more than that."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from federator.kernel.clock import SystemClock
from federator.kernel.errors import Invalid
from federator.model.jobs import Input, JobSpec, Resources
from federator.model.whose import Whose
from federator.wire.decoding import decode
from federator_agent.core.lent_capacity import Slot
from federator_agent.core.state import Phase, PlacementRecord
from federator_agent.data.carrier import Carrier
from federator_agent.kube import manifests
from federator_agent.kube.capacity import PoolPlace
from federator_agent.kube.checks import notes
from federator_agent.kube.pod_volumes import laden
from federator_agent.kube.security import NOBODY
from federator_agent.kube.settings import KubeData, KubeSettings, KubeVolume
from federator_agent.runtime import Surroundings, Tasks
from federator_agent.spool import Spool
from tests.support.podsecurity import baseline, restricted
from tests.testbeds.kubernetes.shared import manifests as installed
from tests.unit.agent.worlds import entry

SHARED = KubeData(image="data:1", secret="s3", volumes=(KubeVolume(path="/data", claim="sets"),))
Pod = Callable[..., dict[str, Any]]


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    """Makes the spec of a rank's pod; fields are of the job, `queue` of its entry."""
    spool = Spool(tmp_path)
    carrier = Carrier(spool.directory, SystemClock(), 1000)
    around = Surroundings("here", {}, SystemClock(), spool, None, carrier, Tasks(), print)  # type: ignore[arg-type]

    def made(settings: KubeSettings, queue: str = "", **fields: Any) -> dict[str, Any]:
        spec = JobSpec(name="job", run="x", **fields)
        slots = tuple(Slot(rank, "main", "n", (), 1000, 0) for rank in range(spec.nodes))
        record = PlacementRecord(
            entry=replace(entry("p1", spec, pool="main"), queue=queue), phase=Phase.STAGING, slots=slots
        )
        pods = [
            manifests.pod(record, spec, rank, PoolPlace({}), settings, "here") for rank in range(spec.nodes)
        ]
        laden(pods, record, spec, settings, around)
        inner: dict[str, Any] = pods[0]["spec"]
        return inner

    return made


def _settings(**fields: Any) -> KubeSettings:
    return KubeSettings(image="site:1", **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"nodes": 2},
        {"resources": Resources(cpus_milli=1000, shm_mib=100)},
        {"outputs": ("*",), "image": "own:1"},
    ],
)
def test_a_jobs_pod_keeps_to_the_restricted_profile(pod: Pod, fields: dict[str, Any]) -> None:
    assert restricted(pod(_settings(checkpoints="claim"), **fields)) == []


def test_where_data_is_brought_the_jobs_own_container_still_does(pod: Pod) -> None:
    """What moves the data may open any file, and has a secret; the job has neither, and is another user."""
    spec = pod(_settings(data=SHARED), inputs=(Input("file:///data/x"),))
    main, side = spec["containers"]
    assert restricted(spec | {"containers": [main]}) == []
    assert baseline(spec) == []
    assert side["securityContext"]["runAsUser"] == 0
    assert spec["securityContext"]["runAsUser"] == NOBODY
    assert side["securityContext"]["capabilities"]["drop"] == ["ALL"]


def test_a_site_may_let_images_choose_their_user(pod: Pod) -> None:
    spec = pod(_settings(run_as=None))
    assert baseline(spec) == []
    assert "runAsUser" not in spec["securityContext"]
    assert "runAsNonRoot" not in spec["securityContext"]


def test_no_pod_is_given_a_token(pod: Pod) -> None:
    for settings in (_settings(), _settings(run_as=None), _settings(service_account="jobs")):
        assert pod(settings)["automountServiceAccountToken"] is False


def test_a_user_without_a_name_has_a_home_and_a_name(pod: Pod) -> None:
    given = {each["name"]: each["value"] for each in pod(_settings())["containers"][0]["env"]}
    assert given["HOME"] == "/federator/home"
    assert given["USER"] == "federator"
    own = {
        each["name"]: each["value"] for each in pod(_settings(), env={"HOME": "/x"})["containers"][0]["env"]
    }
    assert own["HOME"] == "/x"
    assert "HOME" not in {each["name"] for each in pod(_settings(run_as=None))["containers"][0]["env"]}


def test_each_queue_has_the_service_account_that_the_site_gives_it(pod: Pod) -> None:
    settings = _settings(
        service_account="other", service_accounts={"research": "research", "research/vision": "vision"}
    )
    assert pod(settings, queue="research/vision/x")["serviceAccountName"] == "vision"
    assert pod(settings, queue="research/text")["serviceAccountName"] == "research"
    assert pod(settings, queue="researching")["serviceAccountName"] == "other"
    assert "serviceAccountName" not in pod(_settings(), queue="research")


def test_the_words_of_the_site_file() -> None:
    given = decode(
        {"image": "i", "run_as": "image", "service_accounts": {"research/*": "research", "*": "rest"}},
        KubeSettings,
        "$.kube",
    )
    assert given.run_as is None
    assert given.account(Whose("research/x")) == "research"
    assert given.account(Whose("x")) == "rest"
    assert decode({"image": "i"}, KubeSettings, "$.kube").run_as == NOBODY
    assert decode({"image": "i", "run_as": 1234}, KubeSettings, "$.kube").run_as == 1234
    for wrong in (0, -1, "root", True, 2**31):
        with pytest.raises(Invalid, match=r"\$\.kube\.run_as"):
            decode({"image": "i", "run_as": wrong}, KubeSettings, "$.kube")
    with pytest.raises(Invalid, match=r"\$\.kube\.service_accounts\.research"):
        decode({"image": "i", "service_accounts": {"research": "Not_One"}}, KubeSettings, "$.kube")


def test_check_says_what_is_looser_than_it_could_be() -> None:
    assert all(line.startswith("ok") for line in notes(_settings(namespace="jobs"), "federator"))
    (said,) = [line for line in notes(_settings(run_as=None), "") if "run_as" in line]
    assert "root" in said
    on_host = KubeData(image="d", cache=KubeVolume(host_path="/var/cache"))
    assert "privileged" in " ".join(notes(_settings(data=on_host), ""))
    assert "baseline" in " ".join(notes(_settings(data=SHARED), ""))
    assert "restricted" in " ".join(notes(_settings(), ""))
    assert "namespace" in " ".join(notes(_settings(namespace="federator"), "federator"))


# What is installed ---------------------------------------------------------------------------------------------------


def _of_kind(kind: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (one["metadata"].get("namespace", ""), one["metadata"]["name"]): one
        for one in installed()
        if one["kind"] == kind
    }


def test_jobs_have_a_namespace_of_their_own_that_takes_only_restricted_pods() -> None:
    spaces = _of_kind("Namespace")
    for name in ("federator", "federator-jobs"):
        marks = spaces["", name]["metadata"]["labels"]
        assert marks["pod-security.kubernetes.io/enforce"] == "restricted", name
    site = _of_kind("ConfigMap")["federator", "federator-site"]["data"]["site.yaml"]
    assert "namespace: federator-jobs" in site
    assert "service_account: federator-job" in site


def test_the_agents_own_pod_keeps_to_the_restricted_profile() -> None:
    spec = _of_kind("Deployment")["federator", "federator-agent"]["spec"]["template"]["spec"]
    assert restricted(spec) == []


def test_the_agent_may_do_nothing_where_its_key_lies_and_jobs_nothing_anywhere() -> None:
    roles = _of_kind("Role")
    assert {namespace for namespace, _ in roles} == {"federator-jobs"}
    account = _of_kind("ServiceAccount")["federator-jobs", "federator-job"]
    assert account["automountServiceAccountToken"] is False
    bound = [
        subject["name"]
        for kind in ("RoleBinding", "ClusterRoleBinding")
        for one in _of_kind(kind).values()
        for subject in one["subjects"]
    ]
    assert set(bound) == {"federator-agent"}
    for role in [*roles.values(), *_of_kind("ClusterRole").values()]:
        for rule in role["rules"]:
            assert not {"secrets", "serviceaccounts", "serviceaccounts/token", "*"} & {
                *rule["resources"],
                *rule["verbs"],
            }


def test_nobody_reaches_a_jobs_pod_from_elsewhere_nor_a_job_its_clouds_credentials() -> None:
    policies = _of_kind("NetworkPolicy")
    (jobs,) = [one["spec"] for (space, _), one in policies.items() if space == "federator-jobs"]
    assert jobs["podSelector"] == {}
    assert set(jobs["policyTypes"]) == {"Ingress", "Egress"}
    assert not jobs.get("ingress")
    open_to = {
        to["ipBlock"]["cidr"]: to["ipBlock"]["except"] for rule in jobs["egress"] for to in rule.get("to", ())
    }
    assert {"169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32"} <= set(open_to["0.0.0.0/0"])
    assert "fd00:ec2::254/128" in open_to["::/0"]
    (agent,) = [one["spec"] for (space, _), one in policies.items() if space == "federator"]
    (pods,) = [one["spec"]["template"]["metadata"]["labels"] for one in _of_kind("Deployment").values()]
    assert agent["podSelector"]["matchLabels"].items() <= pods.items()
    assert agent["policyTypes"] == ["Ingress"]
    assert not agent.get("ingress")


def test_the_ranks_of_a_gang_reach_each_other_and_nobody_elses() -> None:
    spec = JobSpec(name="job", run="x", nodes=2)
    record = PlacementRecord(entry=entry("p1", spec, pool="main"), phase=Phase.STAGING, slots=())
    policy = manifests.network_policy(record, "here", "jobs")
    assert policy["metadata"]["name"] == "p1"
    (rule,) = policy["spec"]["ingress"]
    (peer,) = rule["from"]
    assert peer == {"podSelector": policy["spec"]["podSelector"]}
    assert policy["spec"]["podSelector"] == {"matchLabels": {"federator/placement": "p1"}}
