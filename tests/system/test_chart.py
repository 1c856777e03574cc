"""The chart: what Helm makes of it by several sets of values, what the product says of the files in it, and a real API server of all of it."""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from federator.config import check, load_settings
from federator.operator.settings import load as load_operator
from federator_agent.config import load
from tests.support.podsecurity import restricted
from tests.testbeds.kubernetes.cluster import Admin, KubeCluster, missing
from tests.testbeds.required import need
from tools import manifests

EXAMPLES = manifests.CHART / "examples"
AGENT = {
    "enabled": True,
    "site": {"site": "basel", "dispatcher": "https://d.example.org", "kube": {"image": "i"}},
}
EVERYTHING: dict[str, Any] = {
    "image": {"registry": "registry.example.org/ai", "tag": "7", "pullSecrets": ["pull"]},
    "createReleaseNamespace": True,
    "dispatcher": {
        "enabled": True,
        "tlsSecret": "cert",
        "files": "files",
        "environment": "variables",
        "disruptionBudget": True,
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "ingress": {"enabled": True, "host": "d.example.org", "className": "nginx", "tlsSecret": "edge"},
        "networkPolicy": {"from": [{"namespaceSelector": {}}]},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "core", "operator": "Exists"}],
        "storage": {"className": "fast"},
    },
    "agent": {
        "enabled": True,
        "jobsNamespace": "jobs",
        "jobsNeverReach": ["192.0.2.7/32", "fd00:1::/64"],
        "podSecurity": "baseline",
        "site": {"site": "basel", "kube": {"image": "i"}},
    },
    "operator": {"enabled": True, "settings": {"namespaces": {"research": {"token_file": "/run/tokens/r"}}}},
}
WITH_PODS = [each for each in manifests.MORE if each != "multikueue"]
NOT_IN_1_20 = ("PodDisruptionBudget", "PodMonitor")
"""`policy/v1` is of 1.21, and the other of the Prometheus operator."""

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def _has_helm() -> None:
    need("" if manifests.helm() else "helm cannot be found; run make testbed-helm")


def helm(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([manifests.helm(), *words], text=True, capture_output=True, timeout=60, check=False)


def template(values: dict[str, Any]) -> "subprocess.CompletedProcess[str]":
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        return helm(
            "template", "federator", str(manifests.CHART), "--namespace=federator", f"--values={file.name}"
        )


def objects(values: dict[str, Any]) -> list[dict[str, Any]]:
    made = template(values)
    assert made.returncode == 0, made.stderr
    return [each for each in yaml.safe_load_all(made.stdout) if each]


def example(name: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    return values


def one(made: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in made if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def test_plain_manifests_are_those_of_the_chart() -> None:
    for name in manifests.MORE:
        file = manifests.PLAIN / f"federator-{name}.yaml"
        assert file.read_text() == manifests.rendered(name), f"{file.name} is old: run make manifests"
    assert {file.stem for file in EXAMPLES.glob("*.yaml")} == set(manifests.MORE)


def test_helm_has_nothing_to_say_of_it() -> None:
    for file in EXAMPLES.glob("*.yaml"):
        said = helm("lint", "--strict", str(manifests.CHART), f"--values={file}")
        assert said.returncode == 0, said.stdout


@pytest.mark.parametrize("values", [EVERYTHING, *map(example, WITH_PODS)], ids=["everything", *WITH_PODS])
def test_the_programs_take_the_files_that_it_writes(values: dict[str, Any], tmp_path: Path) -> None:
    seen = 0
    for each in objects(values):
        for name, text in (each.get("stringData") or each.get("data") or {}).items():
            (tmp_path / name).write_text(text)
            if name == "dispatcher.yaml":
                check(load_settings(tmp_path / name))
            elif name == "operator.yaml":
                assert load_operator(tmp_path / name).dispatcher.startswith("http")
            else:
                assert load(tmp_path / name).kube is not None
            seen += 1
    assert seen


@pytest.mark.parametrize("values", [EVERYTHING, *map(example, WITH_PODS)], ids=["everything", *WITH_PODS])
def test_its_pods_keep_to_the_profile_of_their_namespace(values: dict[str, Any]) -> None:
    pods = [
        each["spec"]["template"]["spec"]
        for each in objects(values)
        if each["kind"] in ("StatefulSet", "Deployment")
    ]
    assert pods
    assert [restricted(pod) for pod in pods] == [[]] * len(pods)
    for pod in pods:
        assert all(each["securityContext"]["readOnlyRootFilesystem"] for each in pod["containers"])


def test_three_on_etcd_have_an_address_and_a_volume_each_and_lead_everybody_to_the_leader() -> None:
    made = objects(example("dispatchers-etcd"))
    stateful = [each for each in made if each["kind"] == "StatefulSet"]
    assert [each["metadata"]["name"] for each in stateful] == [
        f"federator-dispatcher-{number}" for number in range(3)
    ]
    addresses = set()
    for each in stateful:
        name = each["metadata"]["name"]
        settings = yaml.safe_load(one(made, "Secret", name)["stringData"]["dispatcher.yaml"])
        addresses.add(settings["server"]["advertise"])
        selector = one(made, "Service", name)["spec"]["selector"]
        assert (
            selector
            == each["spec"]["selector"]["matchLabels"]
            == each["spec"]["template"]["metadata"]["labels"]
        )
        assert settings["server"]["advertise"] == f"http://{name}.federator.svc:7070"
        assert (
            each["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"]
            == "/readyz"
        )
    assert len(addresses) == 3
    assert one(made, "Service", "federator-dispatcher")["spec"]["selector"] == {"app": "federator-dispatcher"}


def test_what_is_given_arrives() -> None:
    made = objects(EVERYTHING)
    pod = one(made, "StatefulSet", "federator-dispatcher-0")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "registry.example.org/ai/federator-dispatcher:7"
    assert {
        container[f"{probe}Probe"]["httpGet"]["scheme"] for probe in ("startup", "liveness", "readiness")
    } == {"HTTPS"}
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    blocks = [to["ipBlock"] for to in one(made, "NetworkPolicy", "federator-jobs")["spec"]["egress"][0]["to"]]
    assert [block["except"][-1] for block in blocks] == ["192.0.2.7/32", "fd00:1::/64"]
    assert all(len(block["except"]) > 1 for block in blocks), "what is known stays"
    site = yaml.safe_load(one(made, "ConfigMap", "federator-site")["data"]["site.yaml"])
    assert site == {
        "site": "basel",
        "dispatcher": "https://federator-dispatcher.federator.svc:7070",
        "kube": {"image": "i", "namespace": "jobs", "service_account": "federator-job"},
    }
    assert one(made, "Namespace", "jobs")["metadata"]["labels"] == {
        "pod-security.kubernetes.io/enforce": "baseline"
    }
    changed = objects(
        EVERYTHING | {"dispatcher": EVERYTHING["dispatcher"] | {"settings": {"federation": "other"}}}
    )
    annotations = [
        one(each, "StatefulSet", "federator-dispatcher-0")["spec"]["template"]["metadata"]["annotations"]
        for each in (made, changed)
    ]
    assert annotations[0] != annotations[1], "changed settings would not reach the pod"


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"dispatcher": {"ingres": {}}}, "additional properties 'ingres' not allowed"),
        ({"dispatcher": {"replicas": 0}}, "'/dispatcher/replicas': minimum"),
        ({"dispatcher": {"ingress": {"enabled": True}}}, "'/dispatcher/ingress/host'"),
        ({"dispatcher": {"url": "d.example.org"}}, "'/dispatcher/url'"),
        ({"dispatcher": {"storage": {"size": "much"}}}, "'/dispatcher/storage/size'"),
        ({"agent": AGENT | {"podSecurity": "none"}}, "'/agent/podSecurity'"),
        ({"dispatcher": {"enabled": True, "replicas": 3}}, "give dispatcher.settings.store.etcd, or one replica"),
        ({"dispatcher": {"enabled": True, "settings": {"store": {"etcd": {"endpoints": ["http://e:2379"]}}}}}, "give dispatcher.settings.store.s3, or a claim"),
        ({"operator": {"enabled": True}}, "operator.settings.dispatcher: give the dispatcher's URL"),
        ({"operator": {"enabled": True, "settings": {"dispatcher": "https://d"}}}, "operator.settings.namespaces: say for whom"),
        ({"agent": AGENT | {"site": {}}}, "agent.site.site: give the name of this site"),
        ({"agent": AGENT | {"site": {"site": "a"}}}, "agent.site.dispatcher: give the dispatcher's URL"),
        ({"agent": AGENT | {"site": {"site": "a", "dispatcher": "https://d"}}}, "agent.site.kube.image: give the image"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_name(values: dict[str, Any], complaint: str) -> None:
    refused = template(values)
    assert refused.returncode != 0
    assert complaint in refused.stderr


def test_a_real_api_server_takes_all_of_it(tmp_path: Path) -> None:
    """Admission, defaults and validation, and nothing kept; namespaces alone are made."""
    need(missing())
    sets = [EVERYTHING, *map(example, manifests.MORE)]
    with KubeCluster(tmp_path) as cluster:
        taken = {
            created(cluster.admin, each)
            for values in sets
            for each in objects(values)
            if each["kind"] not in NOT_IN_1_20
        }
    assert {
        "StatefulSet",
        "Deployment",
        "Ingress",
        "NetworkPolicy",
        "PersistentVolumeClaim",
        "ClusterRole",
    } <= taken


def created(admin: Admin, document: dict[str, Any]) -> str:
    """Its kind, once the server has taken it."""
    kind, group, namespace = document["kind"], document["apiVersion"], document["metadata"].get("namespace")
    if kind == "Namespace":
        admin.apply(document)
        return "Namespace"
    if namespace:
        admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    plural = {"Ingress": "ingresses", "NetworkPolicy": "networkpolicies"}.get(kind, f"{kind.lower()}s")
    where = f"/namespaces/{namespace}" if namespace else ""
    base = f"/apis/{group}" if "/" in group else f"/api/{group}"
    answer = admin.ask("POST", f"{base}{where}/{plural}?dryRun=All&fieldManager=helm", document)
    assert answer["metadata"]["name"] == document["metadata"]["name"]
    return str(kind)


@pytest.mark.parametrize("values", [EVERYTHING, *map(example, WITH_PODS)], ids=["everything", *WITH_PODS])
def test_each_port_says_its_protocol(values: dict[str, Any]) -> None:
    """Helm 4 applies by the server, and API servers of 1.20 refuse such a port without it."""
    for each in objects(values):
        spec = each.get("spec", {})
        inner = spec.get("template", {}).get("spec", {})
        ports = spec.get("ports", []) + [
            port for container in inner.get("containers", ()) for port in container.get("ports", ())
        ]
        assert all("protocol" in port for port in ports), each["metadata"]["name"]


def test_each_namespace_of_a_team_has_what_the_namespace_of_jobs_has() -> None:
    kube = {"image": "i", "namespaces": {"team:vision": "vision", "research/*": "research", "*": "vision"}}
    site = {"site": "basel", "dispatcher": "https://d.example.org", "kube": kube}
    made = objects({"agent": {"enabled": True, "site": site}})

    def of(home: str) -> dict[str, Any]:
        found = [each for each in made if each["metadata"].get("namespace") == home]
        return {f"{each['kind']}/{each['metadata']['name']}": each | {"metadata": {}} for each in found}

    assert of("vision") == of("research") == of("federator-jobs")
    assert set(of("vision")) == {
        "ServiceAccount/federator-job",
        "Role/federator-agent",
        "RoleBinding/federator-agent",
        "NetworkPolicy/federator-jobs",
    }
    assert [each["metadata"]["name"] for each in made if each["kind"] == "Namespace"] == ["federator-jobs"]


def test_beside_multikueue_operator_and_agents_have_rights_for_workloads_alone() -> None:
    made = objects(example("multikueue"))
    rights = {each["metadata"]["name"]: each["rules"] for each in made if each["kind"] == "ClusterRole"}
    assert rights.keys() == {"federator-operator-multikueue", "federator-multikueue"}
    groups = {group for rules in rights.values() for rule in rules for group in rule["apiGroups"]}
    assert groups == {"kueue.x-k8s.io"}


@pytest.mark.parametrize(
    "values",
    [{"agent": AGENT}, {"operator": EVERYTHING["operator"], "dispatcher": EVERYTHING["dispatcher"]}],
    ids=["agent", "operator"],
)
def test_a_file_of_one_that_was_killed_is_no_sign_of_life(values: dict[str, Any]) -> None:
    (container,) = [
        container
        for each in objects(values)
        if each["kind"] in ("StatefulSet", "Deployment")
        for container in each["spec"]["template"]["spec"]["containers"]
        if "exec" in container["startupProbe"]
    ]
    startup, liveness = container["startupProbe"]["exec"], container["livenessProbe"]["exec"]
    assert startup == liveness
    assert "stat -c %Y" in liveness["command"][-1], "how old it is"
