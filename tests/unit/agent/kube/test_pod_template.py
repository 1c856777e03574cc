"""What a site lays over the pods of jobs: merged as a strategic patch, and refused where the agent would break."""

from typing import Any

import pytest

from federator.kernel.errors import Invalid
from federator.model.whose import Whose
from federator.wire.decoding import decode
from federator_agent.kube.checks import notes
from federator_agent.kube.pod_template import MOST_BYTES, laid_over, merged
from federator_agent.kube.settings import KubeSettings, check


def settings(**kube: object) -> KubeSettings:
    found = decode({"image": "i", **kube}, KubeSettings, "$.kube")
    check(found)
    return found


def test_lists_of_named_things_are_merged_by_their_names() -> None:
    below = {
        "spec": {
            "containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}, {"name": "side"}],
            "imagePullSecrets": [{"name": "old"}],
            "nodeSelector": {"zone": "a"},
        }
    }
    above = {
        "spec": {
            "containers": [
                {"name": "main", "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}]}
            ],
            "imagePullSecrets": [{"name": "new"}],
            "nodeSelector": {"gpu": "yes"},
            "runtimeClassName": "nvidia",
        }
    }
    assert merged(below, above) == {
        "spec": {
            "containers": [
                {"name": "main", "env": [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]},
                {"name": "side"},
            ],
            "imagePullSecrets": [{"name": "old"}, {"name": "new"}],
            "nodeSelector": {"zone": "a", "gpu": "yes"},
            "runtimeClassName": "nvidia",
        }
    }
    assert below["spec"]["nodeSelector"] == {"zone": "a"}


def test_other_lists_are_replaced_and_null_takes_away() -> None:
    below = {"dnsConfig": {"nameservers": ["1.1.1.1"]}, "priorityClassName": "low"}
    above = {"dnsConfig": {"nameservers": ["2.2.2.2"]}, "priorityClassName": None}
    assert merged(below, above) == {"dnsConfig": {"nameservers": ["2.2.2.2"]}}


def test_what_is_said_for_a_team_lies_on_top_of_what_is_said_for_the_site() -> None:
    found = settings(
        pod={"metadata": {"labels": {"cost": "shared"}}, "spec": {"runtimeClassName": "nvidia"}},
        pods={
            "team:vision": {"metadata": {"labels": {"cost": "vision"}}},
            "research/*": {"spec": {"priorityClassName": "low"}},
        },
    )

    def pod(whose: Whose) -> dict[str, Any]:
        return laid_over({"metadata": {"labels": {}}, "spec": {}}, *found.templates(whose))

    assert pod(Whose("research/x", team="vision")) == {
        "metadata": {"labels": {"cost": "vision"}}, "spec": {"runtimeClassName": "nvidia"},
    }  # fmt: skip
    assert pod(Whose("research/x"))["spec"] == {"runtimeClassName": "nvidia", "priorityClassName": "low"}
    assert pod(Whose("other"))["metadata"] == {"labels": {"cost": "shared"}}


def test_each_team_may_have_a_namespace_and_a_queue_of_its_own() -> None:
    found = settings(
        namespace="jobs",
        namespaces={"team:vision": "vision"},
        kueue_queue="all",
        kueue_queues={"research/*": "research"},
    )
    assert found.home(Whose("q", team="vision")) == "vision"
    assert found.home(Whose("q")) == "jobs"
    assert found.homes() == ("jobs", "vision")
    assert found.local_queue(Whose("research/x")) == "research"
    assert found.local_queue(Whose("q")) == "all"


@pytest.mark.parametrize(
    ("template", "where", "remedy"),
    [
        ({"spce": {}}, r"\$\.kube\.pod\.spce", "did you mean spec"),
        ({"metadata": {"finalizers": []}}, r"pod\.metadata\.finalizers", "known are"),
        ({"metadata": {"labels": {"federator/job": "x"}}}, "federator/job", "prefix"),
        ({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "x"}}}, "queue-name", "kueue_queue"),
        ({"spec": {"schedulrName": "x"}}, "schedulrName", "did you mean schedulerName"),
        ({"spec": {"restartPolicy": "Always"}}, "restartPolicy", "never starts again"),
        ({"spec": {"tolerations": []}}, "tolerations", r"kube\.tolerations"),
        ({"spec": {"serviceAccountName": "x"}}, "serviceAccountName", "service_accounts"),
        ({"spec": {"activeDeadlineSeconds": 1}}, "activeDeadlineSeconds", "max_duration"),
        ({"spec": {"hostPID": True}}, "hostPID", "leave it out"),
        ({"spec": {"securityContext": {"runAsUser": 0}}}, "runAsUser", "run_as"),
        ({"spec": {"containers": [{"name": "mine"}]}}, r"containers\[0\]\.name", "initContainers"),
        ({"spec": {"containers": [{"name": "main", "image": "x"}]}}, "image", r"kube\.image"),
        ({"spec": {"containers": [{"name": "main", "command": ["x"]}]}}, "command", "leave it out"),
        (
            {"spec": {"containers": [{"name": "side", "securityContext": {"runAsUser": 1}}]}},
            "runAsUser",
            "run_as",
        ),
        (
            {"spec": {"containers": [{"name": "main", "env": [{"name": "FEDERATOR_SITE"}]}]}},
            "env",
            "leave it out",
        ),
        (
            {
                "spec": {
                    "containers": [
                        {"name": "main", "volumeMounts": [{"name": "x", "mountPath": "/federator/"}]}
                    ]
                }
            },
            "mountPath",
            "elsewhere",
        ),
        (
            {"spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "1Gi"}}}]}},
            "memory",
            "LimitRange",
        ),
        ({"spec": {"initContainers": [{"name": "side"}]}}, r"initContainers\[0\]", "another name"),
        ({"spec": {"volumes": [{"name": "gate", "emptyDir": {}}]}}, r"volumes\[0\]", "another name"),
        ({"spec": {"dnsPolicy": "x" * MOST_BYTES}}, "pod", "at most"),
        ("x", "pod", "key: value"),
        ({"spec": {"containers": "x"}}, "containers", "write"),
        ({"spec": {"securityContext": 3}}, "securityContext", "key: value"),
    ],
)
def test_what_the_agent_lives_by_cannot_be_laid_over(template: object, where: str, remedy: str) -> None:
    with pytest.raises(Invalid, match=where) as caught:
        settings(pod=template)
    assert caught.match(remedy)
    with pytest.raises(Invalid, match=r"pods\.research"):
        settings(pods={"research": template})


def test_check_tells_what_may_be_looser_than_the_namespaces_profile() -> None:
    plain = settings(namespace="jobs", pod={"spec": {"runtimeClassName": "nvidia"}})
    assert all(line.startswith("ok") for line in notes(plain, ""))
    loose = settings(namespace="jobs", pods={"research": {"spec": {"hostNetwork": True}}})
    (said,) = [line for line in notes(loose, "") if line.startswith("WARN")]
    assert "kube.pods.research lays over hostNetwork" in said
