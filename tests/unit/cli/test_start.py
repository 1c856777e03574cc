"""A simple verb starts fast: what is imported is counted, for a time on a shared machine says nothing."""

import os
import subprocess
import sys

import pytest

from federator.cli.app import VERBS
from federator.wire.http import ActedOn, JobPage
from tests.support.fake_dispatcher import FakeDispatcher
from tests.support.waiting import PATIENCE_S
from tests.unit.client.test_client import detail

PROGRAM = """
import sys
from federator.cli.app import run_command
code = run_command(sys.argv[1:])
print(code, *sys.modules, file=sys.stderr)
"""
HEAVY = {
    "aiohttp", "asyncio", "cryptography", "federator.app", "federator.assembly", "federator.planning", "federator.simulation",
    "federator.solving", "federator_agent", "numba", "numpy", "ortools", "pathspec", "prometheus_client", "ruamel", "ruamel.yaml", "structlog", "tarfile", "yaml",
}  # fmt: skip


def started(fake: FakeDispatcher, *words: str) -> tuple[int, set[str]]:
    """Run a command in a process of its own; answers its exit code, and what it has imported."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], env=dict(os.environ), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )  # fmt: skip
    code, *modules = ran.stderr.strip().splitlines()[-1].split()
    return int(code), set(modules)


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (("list",), 380),
        (("show", "train"), 380),
        (("cancel", "train"), 380),
        (("sites",), 380),
        (("queues",), 380),
        (("logs", "train"), 380),
    ],
)
def test_a_simple_verb_imports_little(fake: FakeDispatcher, words: tuple[str, ...], most: int) -> None:
    fake.answer("GET /v1/jobs", JobPage(()))
    for route in ("GET /v1/series", "GET /v1/sites", "GET /v1/queues", "GET /v1/jobs/job-1/events"):
        fake.answer(route, [])
    fake.answer("POST /v1/jobs/actions", [ActedOn("train", "train", 1, 0, {"CANCELLED": 1}, "cancelled")])
    for route in ("GET /v1/jobs/train", "GET /v1/jobs/job-1"):
        fake.answer(route, detail())
    fake.answer("GET /v1/jobs/job-1/logs", b"hello\n")
    code, modules = started(fake, *words)
    assert (code, modules & HEAVY) == (0, set())
    assert len(modules) <= most, sorted(modules)


@pytest.mark.parametrize("words", [("--version",), ("--help",)])
def test_without_a_verb_no_verb_is_imported(fake: FakeDispatcher, words: tuple[str, ...]) -> None:
    code, modules = started(fake, *words)
    verbs = {where.partition(":")[0] for group in VERBS.values() for where in group.values()}
    assert (code, modules & (HEAVY | verbs)) == (0, set())
    assert "msgspec" not in modules
