"""An agent that watches its host's GPUs fall ill and recover, through NVML's own symbols, while work runs on them."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from federator.kernel.clock import SystemClock
from federator.model.jobs import Accelerators, Resources
from federator.model.placements import Cause, PlacementStatus, Used
from federator_agent.gpus import Gpu
from federator_agent.local import traces
from federator_agent.local.confinement import Confinement
from federator_agent.local.gpu_tests import GpuTest, GpuTests
from federator_agent.local.isolation import Isolation, Mode
from tests.contract.runtimes import factories_local_users
from tests.integration.agent.conftest import AgentProcess, entry, serving
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.support.waiting import until
from tests.testbeds.nvml import A100, StubDriver
from tests.testbeds.required import need

POOLS = """
pools:
  - {name: gpu, model: A100, gpu_memory: 80GB, gpus_per_node: 4, cpus_per_node: 16, memory_per_node: 64GiB}
"""
HUNG = "the driver does not answer"


@pytest.fixture
def driver(tmp_path: Path) -> StubDriver:
    return StubDriver(tmp_path, A100, A100, A100, A100)


@pytest.fixture
async def agent(
    dispatcher: FakeDispatcher, tmp_path: Path, driver: StubDriver
) -> AsyncIterator[AgentProcess]:
    """One on a host with four GPUs, that has joined and serves."""
    async with serving(dispatcher, tmp_path, POOLS, driver) as process:
        yield process


def gpus(count: int) -> Resources:
    return Resources(gpus=Accelerators(count=count, models=("A100",)))


def free(dispatcher: FakeDispatcher) -> int:
    return sum(shape.gpus * shape.count for shape in dispatcher.reports[-1].pools[0].free)


def ailing(dispatcher: FakeDispatcher) -> dict[int, str]:
    return {each.gpu: each.why for each in dispatcher.reports[-1].ailing}


def running(dispatcher: FakeDispatcher, placement: str) -> bool:
    last = dispatcher.last(placement)
    return last is not None and last.status is PlacementStatus.RUNNING


async def test_a_lost_gpu_leaves_the_shapes_until_it_is_back_and_what_runs_on_it_goes_on(
    dispatcher: FakeDispatcher, agent: AgentProcess, driver: StubDriver
) -> None:
    assert (free(dispatcher), ailing(dispatcher)) == (4, {})
    run = 'echo "$CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES"; while ! [ -e go ]; do sleep 0.05; done'
    await dispatcher.want(entry("p1", dispatcher.spec(run=run, resources=gpus(2))))
    await dispatcher.until(lambda: running(dispatcher, "p1") and free(dispatcher) == 2)
    driver.change(0, lost=1)
    driver.change(2, lost=1)
    await dispatcher.until(lambda: set(ailing(dispatcher)) == {0, 2})
    assert set(ailing(dispatcher).values()) == {"it is lost from the bus"}
    assert (free(dispatcher), dispatcher.reports[-1].health) == (1, "ok")
    await dispatcher.want(entry("p2", dispatcher.spec(run="true", resources=gpus(2))))
    refused = await dispatcher.ended("p2")
    assert (refused.status, refused.cause) == (PlacementStatus.REFUSED, Cause.CANNOT)
    echo = 'echo "$CUDA_VISIBLE_DEVICES"'
    await dispatcher.want(entry("p3", dispatcher.spec(run=echo, resources=gpus(1))))
    assert (await dispatcher.ended("p3")).status is PlacementStatus.SUCCEEDED
    assert dispatcher.log("p3") == "3\n", "the only one that is free and well"
    (agent.placement("p1") / "work" / "go").touch()
    assert (await dispatcher.ended("p1")).status is PlacementStatus.SUCCEEDED
    assert dispatcher.log("p1") == "PCI_BUS_ID 0,1\n"
    driver.change(0, lost=0)
    driver.change(2, lost=0)
    await dispatcher.until(lambda: (free(dispatcher), ailing(dispatcher)) == (4, {}))


async def test_devices_that_a_command_counts_are_shown_by_their_own_variable_and_ail_as_gpus_do(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    await agent.end()
    cards = [{"name": "U250", "memory_mib": 65536}] * 4
    counted = tmp_path / "cards.json"
    counted.write_text(json.dumps({"gpus": cards}))
    site = agent.config.read_text()
    probe = f"gpu_probe: {{command: cat {counted}, visible: XRT_DEVICES}}\n"
    agent.config.write_text(f"{probe}{site[: site.index('pools:')]}pools: [{{name: gpu}}]\n")
    before = len(dispatcher.reports)
    await agent.start()
    await dispatcher.until(lambda: len(dispatcher.reports) > before)
    assert (free(dispatcher), dispatcher.reports[-1].pools[0].model) == (4, "U250")
    new = tmp_path / "new.json"
    new.write_text(json.dumps({"gpus": [cards[0] | {"trouble": "no power"}, *cards[1:]]}))
    new.replace(counted)
    await dispatcher.until(lambda: ailing(dispatcher) == {0: "no power"})
    asks = Resources(gpus=Accelerators(count=2, models=("U250",)))
    run = 'echo "$XRT_DEVICES ${CUDA_VISIBLE_DEVICES-none}"'
    spec = dispatcher.spec(run=run, resources=asks, env={"XRT_DEVICES": "0,1,2,3"})
    await dispatcher.want(entry("p1", spec))
    assert (await dispatcher.ended("p1")).status is PlacementStatus.SUCCEEDED
    assert dispatcher.log("p1") == "1,2 none\n", "whatever the job says of it"


async def test_a_gpu_that_ails_when_the_agent_starts_never_shows(
    dispatcher: FakeDispatcher, agent: AgentProcess, driver: StubDriver
) -> None:
    await agent.end()
    driver.change(1, ecc=3)
    before = len(dispatcher.reports)
    await agent.start()
    await dispatcher.until(lambda: len(dispatcher.reports) > before)
    assert {len(report.ailing) for report in dispatcher.reports[before:]} == {1}
    assert free(dispatcher) == 3


async def test_a_job_has_gpus_that_nvlink_joins(
    dispatcher: FakeDispatcher, agent: AgentProcess, driver: StubDriver
) -> None:
    """Here of 0 and 2, and of 1 and 3: the first two by number are of two islands."""
    await agent.end()
    for index in range(4):
        driver.change(index, switch=1 + index % 2, numa=1)
    before = len(dispatcher.reports)
    await agent.start()
    await dispatcher.until(lambda: len(dispatcher.reports) > before)
    for name in ("p1", "p2"):
        run = 'echo "$CUDA_VISIBLE_DEVICES"; sleep 600'
        await dispatcher.want(entry(name, dispatcher.spec(run=run, resources=gpus(2))))
        await dispatcher.until(partial(dispatcher.log, name))
    assert [dispatcher.log(name) for name in ("p1", "p2")] == ["0,2\n", "1,3\n"]
    await dispatcher.until(lambda: bool(dispatcher.gpu_use))
    assert [use.near for use in dispatcher.gpu_use] == [f"NVLink {index % 2}, NUMA 0" for index in range(4)]


TESTS = """
gpu_test: {{command: '{command}', within: {within}, again: 1s}}
"""


async def restarted(
    agent: AgentProcess, dispatcher: FakeDispatcher, command: str, within: str = "60s"
) -> None:
    """With that test of faulty GPUs in its site file."""
    await agent.end()
    agent.config.write_text(agent.config.read_text() + TESTS.format(command=command, within=within))
    before = len(dispatcher.reports)
    await agent.start()
    await dispatcher.until(lambda: len(dispatcher.reports) > before)


async def test_a_faulty_gpu_is_back_when_its_test_has_passed(
    dispatcher: FakeDispatcher, agent: AgentProcess, driver: StubDriver, tmp_path: Path
) -> None:
    """What runs on it goes on and is not disturbed by the test, which sees that GPU and no other."""
    seen = tmp_path / "seen"
    seen.touch()
    test = f"echo $CUDA_VISIBLE_DEVICES >>{seen}; echo it is broken; [ -e {tmp_path}/mended ]"
    await restarted(agent, dispatcher, test)
    run = "while ! [ -e go ]; do sleep 0.05; done"
    await dispatcher.want(entry("p1", dispatcher.spec(run=run, resources=gpus(1))))
    await dispatcher.until(lambda: running(dispatcher, "p1"))
    driver.change(0, ecc=2)
    driver.change(3, xid=79)
    await dispatcher.until(lambda: "its test" in ailing(dispatcher).get(3, ""))
    assert "Xid 79: it has fallen off the bus; its test" in ailing(dispatcher)[3]
    assert "failed" in ailing(dispatcher)[3]
    assert "(exit code 1: it is broken), and another comes " in ailing(dispatcher)[3]
    assert ailing(dispatcher)[0].endswith("; it is to be tested"), "a job has it"
    (agent.placement("p1") / "work" / "go").touch()
    assert (await dispatcher.ended("p1")).status is PlacementStatus.SUCCEEDED
    await dispatcher.until(lambda: "its test" in ailing(dispatcher).get(0, ""))
    assert set(seen.read_text().split()) == {"0", "3"}
    (tmp_path / "mended").touch()
    await dispatcher.until(lambda: (free(dispatcher), ailing(dispatcher)) == (4, {}))
    (tmp_path / "mended").unlink()
    driver.change(0, ecc=3)
    await dispatcher.until(lambda: set(ailing(dispatcher)) == {0})  # that is another fault


async def test_a_gpu_test_that_hangs_is_ended_and_has_failed(
    dispatcher: FakeDispatcher, agent: AgentProcess, driver: StubDriver, tmp_path: Path
) -> None:
    await restarted(agent, dispatcher, f"echo $$ >{tmp_path}/pid; sleep 600", within="1s")
    driver.change(1, remap_failure=1)
    await dispatcher.until(lambda: "it did not end within 1s" in ailing(dispatcher).get(1, ""))
    pid = int((tmp_path / "pid").read_text())
    await until(lambda: not Path(f"/proc/{pid}").exists())


async def test_a_gpu_test_runs_as_a_user_of_its_own_in_namespaces_of_its_own(tmp_path: Path) -> None:
    need(factories_local_users.lacking())
    tmp_path.chmod(0o755)
    kept_apart = Confinement(Mode.USERS, Isolation(shared=(str(tmp_path),)), tmp_path)
    command = 'echo "$(id -u) $(echo /proc/[0-9]* | wc -w)"; exit 3'
    tests = GpuTests(GpuTest(command), tmp_path, {"PATH": os.environ["PATH"]}, kept_apart, SystemClock())
    sick, held = {2: Gpu(2, trouble="broken", fault="broken, 0")}, set[int]()
    task = asyncio.create_task(tests.run(lambda: sick, lambda: held))
    try:
        await until(lambda: "its test has failed" in tests.trouble(sick[2]))
    finally:
        task.cancel()
    said = re.search(r"exit code 3: (\d+) (\d+)", tests.trouble(sick[2]))
    assert said is not None, tests.trouble(sick[2])
    assert int(said[1]) >= 200_000
    assert int(said[2]) < 10, "it sees its own processes"


async def test_a_gpu_that_is_lost_is_not_tested(
    dispatcher: FakeDispatcher, agent: AgentProcess, driver: StubDriver, tmp_path: Path
) -> None:
    await restarted(agent, dispatcher, f"touch {tmp_path}/tested-$CUDA_VISIBLE_DEVICES")
    driver.change(1, lost=1)
    driver.change(2, ecc=1)
    await until((tmp_path / "tested-2").exists)
    await dispatcher.until(lambda: ailing(dispatcher) == {1: "it is lost from the bus"})
    assert not (tmp_path / "tested-1").exists()


async def test_anothers_process_with_most_of_a_gpus_memory_takes_it_away_and_a_jobs_own_does_not(
    dispatcher: FakeDispatcher, agent: AgentProcess, driver: StubDriver
) -> None:
    await dispatcher.want(entry("p1", dispatcher.spec(run="echo $$; exec sleep 600", resources=gpus(1))))
    await dispatcher.until(lambda: dispatcher.log("p1").strip())
    driver.change(0, used=80000, processes=f"{dispatcher.log('p1').strip()}:80000")
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        driver.change(1, used=50000, processes=f"{stranger.pid}:50000")
        driver.change(2, used=30000, processes=f"{stranger.pid}:30000")
        await dispatcher.until(lambda: ailing(dispatcher))
        (said,) = ailing(dispatcher).items()
        assert said[0] == 1
        assert f"pid {stranger.pid} (python" in said[1]
        assert free(dispatcher) == 2
    finally:
        stranger.kill()
        stranger.wait()
    driver.change(1, used=0, processes="")
    await dispatcher.until(lambda: not ailing(dispatcher))


async def test_a_driver_that_hangs_stops_new_work_and_nothing_else(
    dispatcher: FakeDispatcher, agent: AgentProcess, driver: StubDriver
) -> None:
    await dispatcher.want(
        entry("p1", dispatcher.spec(run="while ! [ -e go ]; do sleep 0.05; done; exit 3", resources=gpus(1)))
    )
    await dispatcher.until(lambda: running(dispatcher, "p1"))
    driver.driver("hang")
    await dispatcher.until(lambda: ailing(dispatcher) == dict.fromkeys(range(4), HUNG))
    assert free(dispatcher) == 0
    (agent.placement("p1") / "work" / "go").touch()
    assert (await dispatcher.ended("p1")).exit_code == 3
    assert await agent.end() == 0, "nor does it keep the agent from ending"
    driver.driver()
    before = len(dispatcher.reports)
    await agent.start()
    await dispatcher.until(lambda: len(dispatcher.reports) > before and free(dispatcher) == 4)


async def test_gpus_that_nobody_is_to_watch_or_that_are_made_up_are_taken_at_their_word(
    dispatcher: FakeDispatcher, agent: AgentProcess, driver: StubDriver
) -> None:
    await agent.end()
    driver.change(0, lost=1)
    site = agent.config.read_text()
    for changed in (site + "watch_gpus: false\n", site.replace("A100", "H100")):
        agent.config.write_text(changed)
        dispatcher.reports.clear()
        await agent.start()
        await dispatcher.until(lambda: dispatcher.reports)
        assert (free(dispatcher), ailing(dispatcher)) == (4, {})
        await agent.end()


async def test_the_check_shows_the_driver_and_each_gpu(agent: AgentProcess, driver: StubDriver) -> None:
    driver.change(3, remap_failure=1)
    code, output = await agent.run("check")
    assert "ok    NVIDIA driver 550.54.15, GPUs: 4" in output
    assert "ok    GPU 0: A100" in output
    assert "FAIL  GPU 3: A100" in output
    assert "a broken memory row could not be replaced" in output
    assert code == 1
    driver.driver("init 18")
    code, output = await agent.run("check")
    assert "FAIL  the NVIDIA driver cannot be used" in output
    assert code == 1


async def test_a_host_says_itself_what_it_has(agent: AgentProcess, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    agent.environment = StubDriver(mixed, "Tesla T4", A100, A100, A100).environment
    site = agent.config.read_text()
    agent.config.write_text(site[: site.index("pools:")])
    _, output = await agent.run("check")
    assert "pool t4: 1 host, each 1 GPU T4" in output
    assert "pool a100: 1 host, each 3 GPUs A100" in output
    agent.config.write_text(site[: site.index("pools:")] + "pools: [{name: all}]\n")
    code, output = await agent.run("check")
    assert code == 1
    assert "$.pools[0].model: " in output
    assert "is missing: this host has T4, A100" in output


def spent_s(agent: AgentProcess, placement: str) -> float:
    """Processor time of a placement's processes so far, as the kernel has it."""
    total = 0
    for pids in traces.processes_of([agent.placement(placement) / "rank-0"]).values():
        for pid in pids:
            total += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


async def test_what_a_job_really_uses_is_sampled(
    dispatcher: FakeDispatcher, agent: AgentProcess, driver: StubDriver
) -> None:
    driver.change(0, util=90, used=40_000, watts=400)
    driver.change(1, util=30, used=10_000)
    run = "while :; do :; done"
    await dispatcher.want(entry("p1", dispatcher.spec(run=run, resources=gpus(2))))
    await dispatcher.until(lambda: dispatcher.samples.get("p1", Used()).gpu_memory_peak_mib == 40_000)
    first = dispatcher.samples["p1"]
    assert 0.0 < (first.gpus_busy or 0.0) <= 0.6
    assert first.idle_s == 0.0
    driver.change(0, util=0)
    driver.change(1, util=0)
    await dispatcher.until(lambda: dispatcher.samples["p1"].idle_s > 2.0)
    await dispatcher.until(lambda: dispatcher.samples["p1"].cpu_s > first.cpu_s + 0.2)
    later, after_s = dispatcher.samples["p1"], spent_s(agent, "p1")
    assert 0.0 < (later.gpus_busy or 0.0) < 0.6
    assert later.cpu_s <= after_s, (
        "never more than there was, however little a busy host gives to one process"
    )
    assert later.cpus == pytest.approx(later.cpu_s / later.sampled_s)
    assert later.memory_peak_mib >= 1
    assert later.energy_kwh == pytest.approx(0.4 * later.power_sampled_s / 3600), (
        "of the one that tells its power"
    )
    assert 0.0 < later.power_sampled_s < later.gpus_sampled_s


async def test_the_use_of_each_gpu_is_told_rounded_and_whose_it_is(
    dispatcher: FakeDispatcher, agent: AgentProcess, driver: StubDriver
) -> None:
    driver.change(0, util=88, used=40_000, watts=313, clocks=0x40)
    await dispatcher.want(entry("p1", dispatcher.spec(run="sleep 600", resources=gpus(1))))
    await dispatcher.until(
        lambda: any(use.placements for use in dispatcher.gpu_use) and bool(dispatcher.gpu_use[0].busy_percent)
    )
    first, second = (use for use in dispatcher.gpu_use if use.gpu in (0, 1))
    assert (first.busy_percent, first.memory_mib, first.power_w) == (90, 39_936, 310)
    assert second.power_w is None, "its driver does not say"
    assert (first.slowed_by, second.slowed_by) == ("heat", "")
    assert not ailing(dispatcher), "that is a remark"
    assert sorted(use.placements for use in (first, second)) == [(), ("p1",)]
