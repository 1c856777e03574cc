"""What the agent understands of an NVIDIA driver: a library with the real symbols, compiled here, whose GPUs fall ill while they are watched."""

import asyncio
import contextlib
import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pynvml
import pytest

from federator.wire.mig import Mig
from federator_agent import nvml
from federator_agent.core.lent_capacity import HostPool, Site
from federator_agent.gpus import Driver, DriverTrouble, Gpu, NoDriver, Process
from federator_agent.local import devices
from federator_agent.nvml import CUT_REMEDY, WHOLE_REMEDY, Nvml
from tests.support.waiting import until
from tests.testbeds.nvml import A100, StubDriver

Install = Callable[..., StubDriver]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a stub driver into this process, in the place of whatever driver the machine has."""

    def made(*names: str) -> StubDriver:
        stub = StubDriver(tmp_path, *names)
        monkeypatch.setenv("NVML_STUB_FILE", stub.environment["NVML_STUB_FILE"])
        monkeypatch.setattr(nvml, "LIBRARY", str(stub.library))
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(stub.library)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        return stub

    return made


def troubles(driver: Driver) -> list[str]:
    return [gpu.trouble for gpu in driver.read().gpus]


def test_a_reading_has_model_memory_use_heat_and_processes_of_every_gpu(install: Install) -> None:
    stub = install(A100, "NVIDIA H200")
    stub.change(0, used=40960, util=93, temperature=61, processes="77:40000,78:960")
    reading = Driver(Nvml()).read()
    assert reading.driver == "NVIDIA driver 550.54.15"
    assert reading.gpus == (
        Gpu(
            index=0,
            name=A100,
            uuid="GPU-00000000-0000-0000-0000-000000000000",
            memory_mib=81920,
            used_mib=40960,
            utilisation_percent=93,
            temperature_c=61,
            processes=(Process(77, 40000), Process(78, 960)),
        ),
        Gpu(
            index=1,
            name="NVIDIA H200",
            uuid="GPU-00000001-0000-0000-0000-000000000000",
            memory_mib=81920,
            utilisation_percent=0,
            temperature_c=0,
        ),
    )
    assert [gpu.model for gpu in reading.gpus] == ["A100", "H200"]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA H100 PCIe", "H100"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000"),
        ("NVIDIA TITAN V", "TITAN"),
        ("", ""),
    ],
)
def test_models_are_named_as_users_write_them(name: str, model: str) -> None:
    assert Gpu(0, name=name).model == model


@pytest.mark.parametrize(
    ("ill", "well", "says"),
    [
        ({"lost": 1}, {"lost": 0}, "it is lost from the bus"),
        ({"ecc": 2}, {"ecc": 0}, "memory errors that could not be corrected since its last reset: 2"),
        ({"remap_failure": 1}, {"remap_failure": 0}, "a broken memory row could not be replaced"),
        (
            {"retired_pending": 1},
            {"retired_pending": 0},
            "broken memory pages are in use until its next reset",
        ),
        ({"mig": 1}, {"mig": 0}, f"it is in MIG mode and has no instances: {CUT_REMEDY}"),
    ],
)
def test_a_gpu_ails_and_is_well_again(
    install: Install, ill: dict[str, int], well: dict[str, int], says: str
) -> None:
    stub, driver = install(A100, A100), Driver(Nvml())
    assert troubles(driver) == ["", ""]
    stub.change(1, **ill)
    assert troubles(driver) == ["", says]
    stub.change(1, **well)
    assert troubles(driver) == ["", ""]


def test_errors_that_were_corrected_long_ago_or_only_wait_for_a_reset_are_no_ailment(
    install: Install,
) -> None:
    install(A100).change(0, corrected=9, lifetime_ecc=4, remapped=1, remap_pending=1)
    assert troubles(Driver(Nvml())) == [""]


def test_a_critical_xid_counts_until_the_agent_starts_anew_and_a_programs_own_fault_does_not(
    install: Install,
) -> None:
    stub, driver = install(A100, A100), Driver(Nvml())
    assert troubles(driver) == ["", ""]
    stub.change(0, xid=31)
    stub.change(1, xid=79)
    assert troubles(driver) == ["", "Xid 79: it has fallen off the bus"]
    stub.change(1, xid=0)
    assert troubles(driver) == ["", "Xid 79: it has fallen off the bus"]
    assert troubles(Driver(Nvml())) == ["", ""]


def test_an_error_event_that_comes_again_is_another_fault(install: Install) -> None:
    stub, driver = install(A100), Driver(Nvml())
    driver.read()
    faults = []
    for _ in range(2):
        stub.change(0, xid=79)
        faults.append(driver.read().gpus[0].fault)
        stub.change(0, xid=0)
        driver.read()
    assert len(set(faults)) == 2
    stub.change(0, ecc=1, xid=0)
    assert Driver(Nvml()).read().gpus[0].fault
    for ecc in (0, 1):
        stub.change(0, ecc=ecc, mig=1)
        (uncut,) = Driver(Nvml()).read().gpus
        says = f"it is in MIG mode and has no instances: {CUT_REMEDY}"
        assert (uncut.trouble, uncut.fault) == (says, ""), "no test would find that gone"


def test_the_instances_of_a_gpu_in_mig_mode_are_told_apart(install: Install) -> None:
    stub = install(A100, A100)
    stub.cut(1, (9, "1g.10gb", 9728), (5, "2g.20gb", 19968), used=512, processes="77:512")
    stub.change(1, watts=400, temperature=50)
    whole, divided = Driver(Nvml()).read().gpus
    assert whole.instances is None
    small, large = divided.instances or ()
    assert (small.index, small.uuid) == (20_009, "MIG-00000001-0000-0000-0000-000000000009")
    assert (small.model, small.memory_mib, small.used_mib, small.processes) == (
        "A100",
        9728,
        512,
        (Process(77, 512),),
    )
    assert (small.mig, large.mig) == (Mig("1g.10gb", 143, 1 / 8), Mig("2g.20gb", 286, 1 / 4))
    assert (small.power_w, small.temperature_c, small.utilisation_percent) == (57, 50, None)
    assert (divided.trouble, small.trouble) == ("", "")


def test_an_error_event_of_an_instance_is_no_other_instances_and_a_fault_of_its_gpu_is_all_of_theirs(
    install: Install,
) -> None:
    stub, driver = install(A100), Driver(Nvml())
    stub.cut(0, (7, "1g.10gb", 9728), (8, "1g.10gb", 9728), (1, "1c.3g.40gb", 40192))

    def faults() -> list[str]:
        (gpu,) = driver.read().gpus
        return [each.fault for each in gpu.instances or ()]

    assert faults() == ["", "", ""]
    stub.change(0, xid=95, xid_gi=8)
    one = "Xid 95: a memory error that could not be contained, 1"
    assert faults() == ["", one, ""]
    stub.change(0, remap_failure=1)
    assert faults() == [*(["a broken memory row could not be replaced, 0"] * 2), ""]
    stub.change(0, remap_failure=0)
    (gpu,) = driver.read().gpus
    assert [each.trouble for each in gpu.instances or ()] == [
        "",
        "Xid 95: a memory error that could not be contained",
        f"its processors are divided again: {WHOLE_REMEDY}",
    ]


@pytest.mark.parametrize(
    ("reasons", "says"),
    [
        (0x1, ""),
        (0x4, ""),
        (0x20, "heat"),
        (0x8 | 0x40, "heat"),
        (0x80, "its power brake"),
        (0xA0, "heat and its power brake"),
    ],
)
def test_a_gpu_that_heat_or_power_slows_down_is_not_sick(install: Install, reasons: int, says: str) -> None:
    install(A100).change(0, clocks=reasons)
    (gpu,) = Driver(Nvml()).read().gpus
    assert (gpu.slowed_by, gpu.trouble) == (says, "")


def test_islands_of_gpus_are_joined_by_links_and_by_switches(install: Install) -> None:
    stub = install(*[A100] * 6)
    for index, values in enumerate([{"switch": 3}, {}, {"switch": 3}, {"peer": 5}, {}, {}]):
        stub.change(index, numa=1 + (index >= 3), **values)
    assert Driver(Nvml()).read().near == (((0, 2), (3, 4)), ((0, 1, 2), (3, 4, 5)))


def test_where_the_driver_knows_no_topology_there_is_none(install: Install) -> None:
    install(A100, A100)
    assert Driver(Nvml()).read().near == ((), ())


def test_without_a_driver_or_its_library_there_is_nothing_to_ask(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(A100).driver("init 9")
    with pytest.raises(NoDriver, match="Driver Not Loaded"):
        Driver(Nvml()).read()
    monkeypatch.setattr(nvml, "LIBRARY", "libof-no-driver.so.1")
    with pytest.raises(NoDriver, match="libof-no-driver"):
        Driver(Nvml()).read()
    monkeypatch.undo()
    install(A100)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NoDriver, match="pip install 'federator"):
        Driver(Nvml()).read()


def test_a_driver_that_breaks_down_is_in_trouble_until_it_answers_again(install: Install) -> None:
    stub, driver = install(A100), Driver(Nvml())
    assert troubles(driver) == [""]
    stub.driver("init 18", "hang")
    with pytest.raises(DriverTrouble, match="does not answer"):
        driver.read(within_s=0.2)
    stub.driver("init 18")
    with pytest.raises(DriverTrouble, match="version mismatch"):
        Driver(Nvml()).read()
    stub.driver()
    assert troubles(driver) == [""]


def test_a_driver_that_is_unloaded_under_the_agent_is_not_taken_for_none(install: Install) -> None:
    stub, driver = install(A100), Driver(Nvml())
    assert troubles(driver) == [""]
    Path(stub.environment["NVML_STUB_FILE"]).unlink()
    for _ in range(2):
        with pytest.raises(DriverTrouble):
            driver.read()
    stub.change(0)
    assert troubles(driver) == [""]


async def test_a_hung_driver_is_asked_once_and_stops_nothing(install: Install) -> None:
    stub, driver = install(A100), Driver(Nvml())
    stub.driver("hang")
    for _ in range(3):
        with pytest.raises(DriverTrouble, match="does not answer"):
            await driver.look(within_s=0.05)
    assert sum(thread.name == "gpus" for thread in threading.enumerate()) == 1
    stub.driver()
    async with asyncio.timeout(60):
        assert (await driver.look(within_s=60)).gpus[0].model == "A100"


@contextlib.asynccontextmanager
async def watched(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[dict[int, str]]]:
    """Two A100 as a site file declares them: what ails at first, and what is told of them from then on."""
    for constant in ("EVERY_S", "NO_DRIVER_EVERY_S"):
        monkeypatch.setattr(devices, constant, 0.01)
    monkeypatch.setattr(devices, "FIRST_ANSWER_WITHIN_S", 0.5)
    pool = HostPool(
        name="a", model="A100", gpus_per_node=2, cpus_milli_per_node=1000, memory_mib_per_node=1000
    )
    host = devices.Devices(Site(name="here", pools=(pool,)), directory)
    told = [{gpu.gpu: gpu.why for gpu in host.ailing}]
    task = asyncio.create_task(
        host.watch(lambda event: told.append({gpu.gpu: gpu.why for gpu in event.ailing}))
    )
    yield told
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_driver_that_hangs_when_the_agent_starts_is_waited_for(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = install(A100, A100)
    stub.driver("hang")
    hung = "the driver does not answer"
    async with watched(tmp_path, monkeypatch) as told:
        assert told == [{0: hung, 1: hung}]
        stub.driver()
        await until(lambda: told[-1] == {})


async def test_a_driver_that_is_loaded_late_is_found(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = install(A100, A100)
    stub.driver("init 9")
    async with watched(tmp_path, monkeypatch) as told:
        assert told == [{}], "nobody knows of anything wrong"
        stub.change(1, lost=1)
        stub.driver()
        await until(lambda: told[-1] == {1: "it is lost from the bus"})


async def test_a_gpu_that_is_gone_or_another_than_it_was_takes_no_new_work(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = install(A100, A100)
    async with watched(tmp_path, monkeypatch) as told:
        assert told == [{}]
        stub.remove(1)
        await until(lambda: told[-1] == {1: "the driver does not show it"})
        stub.change(0, name="Tesla T4")
        await until(lambda: told[-1].keys() == {0, 1})
        assert told[-1][0].startswith("the driver shows T4 instead")


def shown(stub: StubDriver) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "federator_agent.nvml"],
        env=os.environ | stub.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_person_can_see_what_the_driver_says(tmp_path: Path) -> None:
    stub = StubDriver(tmp_path, A100, A100)
    stub.change(0, used=1024, util=5, temperature=40, processes="77:1024")
    code, text = shown(stub)
    assert code == 0, text
    assert text.splitlines() == [
        "ok    NVIDIA driver 550.54.15, GPUs: 2",
        "ok    GPU 0: A100 (NVIDIA A100-SXM4-80GB), 1GiB of 80GiB in use, 5 % busy, 40 °C, processes 77: well",
        "ok    GPU 1: A100 (NVIDIA A100-SXM4-80GB), 0MiB of 80GiB in use, 0 % busy, 0 °C: well",
    ]
    stub.change(1, lost=1)
    code, text = shown(stub)
    assert code == 1
    assert text.splitlines()[2] == "FAIL  GPU 1: it is lost from the bus"
