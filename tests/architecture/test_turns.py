"""Tests that share what is dear to start are given to one worker: a cluster, a demonstration, a dispatcher."""

from types import SimpleNamespace
from typing import Any

import pytest

KUBE = "tests/integration/kube/test_data.py::test_a"
DEMO = "tests/system/test_demo.py"
CONTRACT = "tests/contract/runtimes"
ALONE = "tests/system/test_partitions.py"


@pytest.fixture
def scheduler(request: pytest.FixtureRequest) -> Any:
    """As a run with workers has it. That the one of xdist groups nothing was noticed by nobody."""
    config = SimpleNamespace(getoption=lambda _: "loadgroup", getvalue=lambda _: ["popen", "popen"])
    return request.config.hook.pytest_xdist_make_scheduler(config=config, log=None)


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (KUBE, "tests/attacks/kube/test_pods.py::test_b", True),
        (KUBE, f"{CONTRACT}/test_runtime_contract.py::test_b[kube]", False),
        (
            f"{CONTRACT}/test_runtime_contract.py::test_a[kube]",
            f"{CONTRACT}/test_parts_of_gpus.py::test_b[mig_at_kube]",
            True,
        ),
        (KUBE, "tests/integration/slurm/test_ends.py::test_b", False),
        (KUBE, "tests/federation/test_federation.py::test_b[kube]", False),
        (f"{DEMO}::test_a", f"{DEMO}::test_b[kube]", True),
        ("tests/console/test_now.py::test_a", "tests/console/test_jobs.py::test_b", True),
        ("tests/console/test_now.py::test_a", "tests/integration/command/test_ssh.py::test_b", False),
        (f"{ALONE}::test_a", f"{ALONE}::test_b", False),
    ],
)
def test_who_shares_takes_turns(scheduler: Any, one: str, other: str, together: bool) -> None:
    assert (scheduler._split_scope(one) == scheduler._split_scope(other)) is together  # noqa: SLF001 - what xdist itself asks
