"""A simple verb starts fast: what is imported is counted, for a time on a shared machine says nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from federator.cli.app import VERBS
from federator.model.plans import Explanation
from federator.wire.http import ActedOn, JobPage, Submitted
from federator.wire.usage import UsageReport, UsageRow
from tests.support.fake_dispatcher import FakeDispatcher
from tests.support.waiting import PATIENCE_S
from tests.unit.cli.answers import NOW
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


EACH = """
import os, sys
from importlib import import_module
import federator.cli.jobs
from federator.cli.app import VERBS
for where in sorted({where.partition(":")[0] for verbs in VERBS.values() for where in verbs.values()}):
    sys.stdout.flush()
    if not os.fork():
        import_module(where)
        print(where, *sys.modules, flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, where
"""
SLOWER = {
    **{each: {"asyncio"} for each in ("attached", "copy", "gateway", "notebook", "operator", "serve", "ssh", "store", "tunnels")},
    "ledger": {"yaml"}, "policies": {"yaml"}, "services": {"yaml"}, "run": {"asyncio", "yaml"}, "solver": {"federator.solving", "yaml"},
}  # fmt: skip
"""What modules of verbs import besides: those that hold a connection, and those that read files."""


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
        (("list",), 385),
        (("show", "train"), 385),
        (("cancel", "train"), 385),
        (("sites",), 385),
        (("queues",), 385),
        (("logs", "train"), 385),
        (("explain", "train"), 386),
        (("usage",), 385),
        (("wait", "train", "--for", "running"), 385),
        (("submit", "job.json"), 440),
    ],
)
def test_a_simple_verb_imports_little(
    fake: FakeDispatcher, words: tuple[str, ...], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.json").write_text('{"run": "true"}')
    fake.answer("GET /v1/jobs/train/explain", Explanation(job="job-1", status="PENDING", because="full"))
    fake.answer("GET /v1/usage", UsageReport(whose="", since=0.0, until=NOW, rows=(), total=UsageRow()))
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "train"), 201)
    fake.answer("GET /v1/jobs", JobPage(()))
    for route in ("GET /v1/series", "GET /v1/sites", "GET /v1/queues", "GET /v1/jobs/job-1/events"):
        fake.answer(route, [])
    fake.answer("POST /v1/jobs/actions", [ActedOn("train", "train", 1, 0, {"CANCELLED": 1}, "cancelled")])
    for route in ("GET /v1/jobs/train", "GET /v1/jobs/job-1"):
        fake.answer(route, detail())
    fake.answer("GET /v1/jobs/job-1/logs", b"hello\n")
    code, modules = started(fake, *words)
    assert (code, modules & HEAVY) == (0, {"yaml"} if words[0] == "submit" else set())
    assert len(modules) <= most, sorted(modules)


def test_a_verb_that_holds_a_connection_imports_a_client_for_it_and_no_tables(fake: FakeDispatcher) -> None:
    _, modules = started(fake, "exec", "train", "--", "true")
    assert modules & (HEAVY | {"federator.cli.jobs"}) == {"aiohttp", "asyncio"}
    assert len(modules) <= 560, len(modules)


def test_no_certificates_are_read_where_no_tls_is_used(tmp_path: Path) -> None:
    """Importing aiohttp reads those that this machine knows, twice: 50 ms."""
    authority = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(authority)
    program = """
import gc, os, ssl
from federator.cli.session import HERE, open_client
open_client(HERE)
found = [each for each in gc.get_objects() if isinstance(each, ssl.SSLContext)]
print(len(found) > 0, sum(each.cert_store_stats()["x509"] for each in found), "SSL_CERT_DIR" in os.environ)
print(ssl.create_default_context().cert_store_stats()["x509"] > 0)
"""
    environment = os.environ | {"SSL_CERT_FILE": str(authority)}
    environment.pop("SSL_CERT_DIR", None)
    words = [sys.executable, "-c", program]
    ran = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert ran.stdout.splitlines() == ["True 0 False", "True"]


def test_a_job_that_nobody_follows_is_submitted_without_an_event_loop(fake: FakeDispatcher) -> None:
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "train"), 201)
    code, modules = started(fake, "run", "--detach", "--", "hostname")
    assert (code, modules & {"aiohttp", "federator.client.pooled"}) == (0, set())


@pytest.mark.parametrize("words", [("--version",), ("--help",)])
def test_without_a_verb_no_verb_is_imported(fake: FakeDispatcher, words: tuple[str, ...]) -> None:
    code, modules = started(fake, *words)
    verbs = {where.partition(":")[0] for group in VERBS.values() for where in group.values()}
    assert (code, modules & (HEAVY | verbs)) == (0, set())
    assert "msgspec" not in modules


def test_a_reader_that_has_enough_is_no_fault(fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs", JobPage(()))
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "federator", "list", "-o", "json"]
    ran = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_no_verb_imports_more_than_it_needs_to_begin() -> None:
    """Each module of verbs, in a process of its own; what it needs later it imports then."""
    words = [sys.executable, "-c", EACH]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    lines = [line.split() for line in ran.stdout.splitlines()]
    found = {where.rpartition(".")[2]: HEAVY & set(modules) for where, *modules in lines}
    assert {where: heavy for where, heavy in found.items() if heavy} == SLOWER
    assert {where: len(modules) for where, *modules in lines if len(modules) > 480} == {}


def test_the_way_into_a_job_imports_no_tables_and_no_second_client() -> None:
    """What they do need, a client with WebSockets, takes long enough."""
    program = "import sys, federator.cli.copy, federator.cli.tunnels\nprint(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    modules = set(ran.stdout.split())
    assert modules & {"rich", "federator.client", "federator.cli.jobs", "federator.cli.output"} == set()
