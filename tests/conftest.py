"""What holds for every test: no traffic leaves this machine, a property that fails prints how to see it again, and who gets a second try.

Tests of real processes get one, because a shared machine may stop for longer than any of them waits. It is never silent: the closing section names
each, with how it failed. All other tests are on their own: what fails there once in a thousand runs is a defect of ours.
"""

import gc
import ipaddress
import logging
import os
import signal
import socket
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from federator.planning import kernels
from tests.support.examples import examples
from tests.support.turns import turns
from tests.testbeds.kubernetes import shared as kubernetes

HERE = Path(__file__).parent
# A shell that starts the run in the background has this signal ignored, and the commands that tests interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
REAL = (
    "system/",
    "integration/",
    "federation/",
    "console/",
    "attacks/kube/",
    "attacks/slurm/",
    "attacks/test_endless_output.py",
    "attacks/test_processes_apart.py",
    "docs/test_walkthroughs.py",
)
"""Where tests start processes of their own, or talk over real connections."""
CONTRACT = "contract/"
SERVERS = {"aws", "etcd", "kubernetes", "local", "local-sandbox", "local-users", "slurm"}
PRETENDED = {"fake", "limited", "memory"}
"""Parameters of the contract suites: what stands for real processes, and what does without."""
LONG = (
    "kubernetes",
    "slurm",
    "tests/console/",
    "tests/docs/test_walkthroughs",
    "tests/integration/command/",
    "tests/federation/",
    "tests/system/test_demo",
    "tests/system/test_kills",
    "tests/system/test_histories",
    "tests/system/test_bench",
    "tests/system/test_images",
    "tests/system/test_installer",
    "tests/system/test_partitions",
    "tests/system/test_leaders",
)
"""What takes minutes begins first, and so does what is slow, so that at the end of a run nobody waits for one of these alone."""
SLOW = ("properties/", "unit/simulation/faults/")
"""What is tried on many examples, or plays seeds of whole federations: not in `make unit`, and far more of it in `make nightly`. Tests of real processes that are marked so are only there."""
PROCESS_FREE = ("contract/stores/", "contract/wire/")
"""Suites that start no process, but for a parameter that does."""

# Examples are drawn anew on each run at home, and are the same on each run in CI; both print the blob that reproduces a
# failure. There is no deadline: nothing asserts on the speed of the machine.
settings.register_profile(
    "home",
    deadline=None,
    max_examples=examples(40),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("home"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "home")


# As the product writes traces: structlog's own way draws them with every local variable, which takes seconds each.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)

# Jobs of tests leave their marks where the test looks: in shared folders, read and written by one user. Tests of isolation say otherwise in their site files.
os.environ.setdefault("FEDERATOR_ISOLATION", "shared")


@pytest.fixture(autouse=True)
def _loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections to any other machine: a test that needs one would pass or fail by somebody else's network."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(address[0]):
            raise AssertionError(f"a test tried to reach {address[0]}; only loopback is allowed")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


def _is_loopback(host: str) -> bool:
    if host in ("localhost", ""):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def pytest_report_header() -> str:
    """Which planner the run uses: there is one."""
    return "planner: the compiled kernels, with numba"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of one part does not read the files of the other, which takes each of its processes longer than most tests. What is named is read."""
    asked: str = config.getoption("markexpr")
    named = (Path(config.invocation_params.dir, arg.partition("::")[0]).resolve() for arg in config.args)
    if not asked or not collection_path.is_relative_to(HERE) or collection_path == HERE:
        return None
    path = collection_path.relative_to(HERE).as_posix() + "/" * collection_path.is_dir()
    wholly, partly = path.startswith(REAL), any(real.startswith(path) for real in REAL)
    not_real = not (wholly or partly or path.startswith(CONTRACT))
    other_part = {
        "real": not_real,
        "real and not slow": not_real,
        "not real": wholly,
        "not real and not slow": wholly or path.startswith(SLOW),
    }.get(asked, False)
    return True if other_part and not any(each.is_relative_to(collection_path) for each in named) else None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compile the planner before the first test, whose time limit it would use up. Tests of the house alone do not plan."""
    if any("architecture" not in item.path.parts for item in session.items) and not kernels.prepare():
        pytest.exit(kernels.trouble(), returncode=pytest.ExitCode.INTERNAL_ERROR)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark those with real processes, which get a second try and run several at a time, and those that are slow."""
    for item in items:
        if _has_real_processes(item):
            item.add_marker(pytest.mark.real)
            item.add_marker(pytest.mark.flaky(reruns=1))
        if _path(item).startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    items.sort(key=_place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who takes turns with whom is read from the names: the groups of xdist 3.8 are lost on pytest 9.2, in silence."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only where it is used

    made = LoadScopeScheduling(config, log)
    made._split_scope = turns  # noqa: SLF001 - xdist has no option for it
    return made


def _place(item: pytest.Item) -> int:
    if not item.get_closest_marker("real"):
        return 0 if item.get_closest_marker("slow") else 1
    return next((n for n, name in enumerate(LONG) if turns(item.nodeid).startswith(name)), len(LONG))


def _path(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).as_posix() if item.path.is_relative_to(HERE) else ""


def _has_real_processes(item: pytest.Item) -> bool:
    path = _path(item)
    if not path.startswith(CONTRACT):
        return path.startswith(REAL)
    call = getattr(item, "callspec", None)
    words = {value for value in call.params.values() if isinstance(value, str)} if call else set()
    return bool(words & SERVERS) or not (path.startswith(PROCESS_FREE) or words & PRETENDED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """A loop that ends does not wait for the goodbyes of its TLS connections: what is left of them is collected here, not in a later test.

    A cluster that no later test of this process needs is ended: it takes as much of a processor while nobody asks it.
    """
    yield
    if item.get_closest_marker("real") and "kube" in item.nodeid:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "unclosed (transport|<socket)", ResourceWarning)
            gc.collect()
    if nextitem is not None and turns(nextitem.nodeid) != turns(item.nodeid):
        kubernetes.end()


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A program that a test runs in this process sets logging up, with a stream that ends with the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """The second try has the whole time again: the plugin sets its timer once for both, and once it has gone off there is none."""
    if getattr(item, "execution_count", 1) > 1 and (
        timeout := item.config.pluginmanager.get_plugin("timeout")
    ):
        limit = timeout._get_item_settings(item)  # noqa: SLF001 - the plugin has no other way to its own setting
        item.config.hook.pytest_timeout_set_timer(item=item, settings=limit)
    return (yield)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Whoever reads the end of a run sees what was not well, although the run is green."""
    again = terminalreporter.stats.get("rerun", [])
    if not again:
        return
    terminalreporter.section("needed a second try", yellow=True)
    for report in again:
        terminalreporter.write_line(f"{report.nodeid} ({report.when}), the first time:", bold=True)
        terminalreporter.write_line(report.longreprtext)
        for title, content in report.sections:
            terminalreporter.write_line(f"{title}:\n{content}")
    names = sorted({report.nodeid for report in again})
    terminalreporter.write_line(
        f"{len(names)} of these tests passed or failed only at the second try. Each is a defect of the test or of the product, to be looked into:"
    )
    for name in names:
        terminalreporter.write_line(f"  {name}")
