"""The `kube:` part of a site file: what is written is what is used, and a mistake is told where it is."""

import pytest

from federator.kernel.errors import Invalid
from federator.wire.decoding import decode
from federator_agent.kube.settings import KubeData, KubePool, KubeSettings, KubeVolume, check


def parse(written: object) -> KubeSettings:
    found = decode(written, KubeSettings, "$.kube")
    check(found)
    return found


def test_an_image_is_enough() -> None:
    assert parse({"image": "i:1"}) == KubeSettings(image="i:1")


def test_everything_that_is_written_is_taken() -> None:
    pool = {
        "name": "fast",
        "selector": {"gpu": "h100"},
        "model": "h100",
        "gpu_memory": "80GiB",
        "resource": "x/gpu",
    }
    toleration = {"key": "gpu", "operator": "Exists"}
    written = {
        "image": "i:1", "namespace": "ns", "kubeconfig": "/etc/kc", "context": "c", "side_image": "s:1", "service_account": "jobs",
        "priority_class": "low", "tolerations": [toleration], "start_within": "90s", "checkpoints": "claim", "pools": [pool], "kueue_queue": "q",
        "data": {"image": "d:1", "secret": "s3", "cache": {"host_path": "/cache/"}, "volumes": [{"path": "/data", "claim": "sets"}]},
    }  # fmt: skip
    assert parse(written) == KubeSettings(
        image="i:1", namespace="ns", kubeconfig="/etc/kc", context="c", side_image="s:1", service_account="jobs",
        priority_class="low", tolerations=(toleration,), start_within_s=90.0, checkpoints="claim", kueue_queue="q",
        pools=(KubePool(name="fast", selector={"gpu": "h100"}, model="H100", gpu_memory_mib=81920, resource="x/gpu"),),
        data=KubeData(
            image="d:1", secret="s3", cache=KubeVolume(host_path="/cache"), volumes=(KubeVolume(path="/data", claim="sets"),)
        ),
    )  # fmt: skip


def test_no_checkpoints_may_be_said() -> None:
    assert parse({"image": "i", "checkpoints": "none"}).checkpoints == ""


@pytest.mark.parametrize(
    ("written", "where"),
    [
        ({}, r"\$\.kube\.image"),
        ({"image": "i", "imagee": "j"}, "did you mean image"),
        ({"image": "i", "namespace": "Not_One"}, r"\$\.kube\.namespace"),
        ({"image": "i", "start_within": "soon"}, r"\$\.kube\.start_within"),
        ({"image": "i", "pools": [{"name": "a"}]}, r"\$\.kube\.pools\[0\]\.selector"),
        ({"image": "i", "pools": {"a": 1}}, r"\$\.kube\.pools"),
        (
            {"image": "i", "pools": [{"name": "a", "selector": {}}, {"name": "a", "selector": {}}]},
            "two pools",
        ),
        ({"image": "i", "tolerations": [{"keys": "x"}]}, r"\$\.kube\.tolerations\[0\]"),
        ({"image": "i", "tolerations": "x"}, r"\$\.kube\.tolerations"),
        ({"image": "i", "data": {}}, r"\$\.kube\.data\.image"),
        ({"image": "i", "data": {"image": "d", "cache": {}}}, r"\$\.kube\.data\.cache"),
        (
            {"image": "i", "data": {"image": "d", "cache": {"claim": "c", "host_path": "/c"}}},
            "one of 'claim' and 'host_path'",
        ),
        (
            {"image": "i", "data": {"image": "d", "volumes": [{"path": "data", "claim": "c"}]}},
            r"data\.volumes\[0\]\.path",
        ),
        (
            {"image": "i", "data": {"image": "d", "volumes": [{"path": "/federator/x", "claim": "c"}]}},
            "is taken",
        ),
    ],
)
def test_a_mistake_is_told_where_it_is(written: dict[str, object], where: str) -> None:
    with pytest.raises(Invalid, match=where):
        parse(written)
