"""The `slurm:` part of a site file: what it may say, and what is told of what it may not."""

from typing import Any

import pytest

from federator.kernel.errors import Invalid
from federator.model.whose import Whose
from federator.wire.decoding import decode
from federator_agent.slurm.settings import Account, GpuType, SlurmSettings


def parse(written: object) -> SlurmSettings:
    return decode(written, SlurmSettings, "$.slurm")


LEAST = {"shared_dir": "/shared/federator"}


def test_what_it_may_say() -> None:
    settings = parse(
        LEAST
        | {
            "partitions": ["gpu", "cpu"],
            "gpus": {"a100": "A100:80GB", "gpu": "V100"},
            "queues": {
                "research/*": {"account": "res", "qos": "low"},
                "research/vision": {"user": "vis"},
                "*": {},
            },
            "start_within": "5m",
            "conf": "/etc/slurm/slurm.conf",
        }
    )
    assert settings.partitions == ("gpu", "cpu")
    assert settings.gpus["a100"] == GpuType("A100", 76294)
    assert settings.gpus["gpu"] == GpuType("V100", 0)
    assert settings.start_within_s == 300.0


def test_whose_name_a_queue_goes_by() -> None:
    queues = {
        "research": {"account": "res"},
        "research/vision/*": {"account": "vis"},
        "*": {"account": "rest"},
    }
    settings = parse(LEAST | {"queues": queues})
    for queue, account in (
        ("research", "res"),
        ("research/text/small", "res"),
        ("research/vision", "vis"),
        ("research/vision/deep", "vis"),
        ("research-2", "rest"),
        ("", "rest"),
    ):
        assert settings.account(Whose(queue)).account == account
    assert parse(LEAST).account(Whose("any")) == Account()


@pytest.mark.parametrize(
    ("fields", "where", "words"),
    [
        ({"shared_dir": None}, "$.slurm.shared_dir", "is missing"),
        ({"shared_dir": "here"}, "$.slurm.shared_dir", "from /"),
        ({"shared_dir": "/a%j"}, "$.slurm.shared_dir", "without %"),
        ({"partition": "gpu"}, "$.slurm.partition", "did you mean partitions?"),
        ({"gpus": {"a100": "4"}}, "$.slurm.gpus.a100", "not one model"),
        ({"gpus": {"a100": "A100:4"}}, "$.slurm.gpus.a100", "not one model"),
        ({"queues": {"a": {"acount": "x"}}}, "$.slurm.queues.a.acount", "did you mean account?"),
        ({"queues": {"a": {"account": "x --uid=root"}}}, "$.slurm.queues.a.account", "name of Slurm's"),
        ({"queues": {"a": {"account": "-x"}}}, "$.slurm.queues.a.account", "name of Slurm's"),
        ({"queues": {"a": {}, "a/*": {}}}, "$.slurm.queues.a/*", "listed twice"),
        ({"start_within": 5}, "$.slurm.start_within", "no unit"),
        ({"topology": "host"}, "$.slurm.topology", "such as rack"),
        ({"topology": "spread"}, "$.slurm.topology", "such as rack"),
        ({"topology": "hosts"}, "$.slurm.topology", "did you mean host?"),
        ({"topology": "a b"}, "$.slurm.topology", "is not a name"),
        ({"labels": {"gpu": {f"l{number}": "x" for number in range(16)}}}, "$.slurm.labels.gpu", "15"),
    ],
)
def test_what_it_may_not(fields: dict[str, Any], where: str, words: str) -> None:
    value = {key: each for key, each in (LEAST | fields).items() if each is not None}
    with pytest.raises(Invalid) as refused:
        parse(value)
    assert refused.value.field == where
    assert words in refused.value.describe()


def test_an_owners_own_account_goes_before_that_of_his_queue() -> None:
    written = {
        "shared_dir": "/s", "users": {"ann@example.org": "ann"}, "queues": {"research/*": {"user": "res", "account": "lab"}},
    }  # fmt: skip
    settings = parse(written)
    assert settings.account(Whose("research/x", "ann@example.org")) == Account(user="ann", account="lab")
    assert settings.account(Whose("research/x", "bob")).user == "res"
    assert settings.account(Whose("other", "ann@example.org")).user == "ann"
    assert settings.maps
    assert not parse({"shared_dir": "/s", "queues": {"a": {"qos": "low"}}}).maps


@pytest.mark.parametrize("user", ["root", "0", "00"])
@pytest.mark.parametrize("where", ["users", "queues"])
def test_nobodys_jobs_are_to_run_as_root(where: str, user: str) -> None:
    said = {"ann": user} if where == "users" else {"ann": {"user": user}}
    with pytest.raises(Invalid, match="do not run as root"):
        parse({"shared_dir": "/s", where: said})
