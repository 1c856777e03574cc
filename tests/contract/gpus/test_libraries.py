"""What every library promises that counts this host's GPUs: NVIDIA's driver, a command of the site's, and AMD's library through such a command."""

import ctypes
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pynvml
import pytest

from federator_agent import gpu_probe, nvml
from federator_agent.gpu_probe import GpuProbe, Probe
from federator_agent.gpus import Driver, DriverTrouble, Library, describe, makes
from federator_agent.nvml import Nvml
from tests.testbeds.nvml import A100, StubDriver

AMD_FOLDER = Path(__file__).parents[2] / "testbeds" / "amdsmi"


class Bench(Protocol):
    """A library whose GPUs a test changes."""

    library: Library
    model: str

    def busy(self) -> None:
        """GPU 1 is 93 % busy and has 40 GiB in use."""

    def ail(self) -> None:
        """GPU 1 has had two memory errors that could not be corrected."""

    def break_down(self) -> None:
        """It answers with an error."""

    def hang(self) -> None:
        """It answers nothing."""


class NvidiaBench:
    model = "A100"

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._stub = StubDriver(folder, A100, A100)
        monkeypatch.setenv("NVML_STUB_FILE", self._stub.environment["NVML_STUB_FILE"])
        monkeypatch.setattr(nvml, "LIBRARY", str(self._stub.library))
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(self._stub.library)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        self.library = Nvml()

    def busy(self) -> None:
        self._stub.change(1, util=93, used=40960)

    def ail(self) -> None:
        self._stub.change(1, ecc=2)

    def break_down(self) -> None:
        self._stub.driver("init 18")

    def hang(self) -> None:
        self._stub.driver("hang")


class CommandBench:
    model = "MI300X"

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch
        self._gpus: list[dict[str, Any]] = [{"name": self.model, "memory_mib": 81920} for _ in range(2)]
        self.library = Probe(GpuProbe(self._command(), "ROCR_VISIBLE_DEVICES"))
        self._write()

    def _command(self) -> str:
        return f"test ! -e {self._folder}/hang || sleep 600; cat {self._folder}/gpus"

    def _write(self) -> None:
        (self._folder / "gpus").write_text(json.dumps({"driver": "ROCm 6.4", "gpus": self._gpus}))

    def busy(self) -> None:
        self._gpus[1] |= {"utilisation_percent": 93, "used_mib": 40960}
        self._write()

    def ail(self) -> None:
        self._gpus[1]["trouble"] = "memory errors that could not be corrected: 2"
        self._write()

    def break_down(self) -> None:
        (self._folder / "gpus").unlink()

    def hang(self) -> None:
        (self._folder / "hang").touch()
        self._monkeypatch.setattr(gpu_probe, "RUNS_S", 0.05)


class AmdBench(CommandBench):
    def _command(self) -> str:
        path = os.pathsep.join([str(AMD_FOLDER), *sys.path])
        program = f"AMDSMI_STUB_FILE={self._folder}/gpus PYTHONPATH={path} {sys.executable}"
        return f"test ! -e {self._folder}/hang || sleep 600; {program} -m federator_agent.amd"

    def _write(self) -> None:
        keys = {"memory_mib": "vram_total", "used_mib": "vram_used", "utilisation_percent": "gfx_activity"}
        rows = [{keys.get(key, key): value for key, value in gpu.items()} for gpu in self._gpus]
        rows = [
            {"vram_used": 0} | row | {"market_name": "AMD Instinct MI300X OAM", "average_socket_power": 140}
            for row in rows
        ]
        (self._folder / "gpus").write_text(json.dumps(rows))

    def ail(self) -> None:
        self._gpus[1]["uncorrectable_count"] = 2
        self._write()

    def break_down(self) -> None:
        (self._folder / "gpus").write_text('"AMDSMI_STATUS_DRIVER_NOT_LOADED"')


@pytest.fixture(params=[NvidiaBench, CommandBench, AmdBench])
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    make: Callable[[Path, pytest.MonkeyPatch], Bench] = request.param
    return make(tmp_path, monkeypatch)


def test_gpus_are_numbered_in_order_with_model_memory_and_use(bench: Bench) -> None:
    bench.busy()
    gpus = Driver(bench.library).read().gpus
    assert [(gpu.index, gpu.model, gpu.memory_mib) for gpu in gpus] == [
        (0, bench.model, 81920),
        (1, bench.model, 81920),
    ]
    assert (gpus[0].used_mib, gpus[1].used_mib, gpus[1].utilisation_percent) == (0, 40960, 93)
    assert [(make.model, make.number) for make in makes(bench.library)] == [(bench.model, 2)]


def test_one_that_ails_says_so_and_the_other_does_not(bench: Bench) -> None:
    bench.ail()
    reading = Driver(bench.library).read()
    assert [bool(gpu.trouble) for gpu in reading.gpus] == [False, True]
    assert "could not be corrected" in reading.gpus[1].trouble
    assert [line.startswith("ok") for line in describe(reading)] == [True, True, False]


def test_a_library_that_breaks_down_is_in_trouble(bench: Bench) -> None:
    bench.break_down()
    with pytest.raises(DriverTrouble):
        Driver(bench.library).read()


def test_a_library_that_hangs_is_in_trouble_and_is_not_waited_for(bench: Bench) -> None:
    bench.hang()
    with pytest.raises(DriverTrouble):
        Driver(bench.library).read(0.3)


@pytest.mark.parametrize(
    ("printed", "says"),
    [
        ("echo nothing", "cannot be read"),
        ("""echo '{"gpus": [{"memory_mib": 1}]}'""", "$.gpus[0].name"),
        ("""echo '{"gpus": [{"name": "A", "colour": "red"}]}'""", "colour"),
        ("""echo '{"gpus": [{"name": "A", "utilisation_percent": 101}]}'""", "utilisation_percent"),
        ("echo out of luck >&2; exit 3", "exit code 3: out of luck"),
        ("yes", "exit code"),
    ],
)
def test_what_a_command_prints_wrong_is_named(printed: str, says: str) -> None:
    with pytest.raises(DriverTrouble, match="gpu_probe") as caught:
        Driver(Probe(GpuProbe(printed, "ROCR_VISIBLE_DEVICES"))).read()
    assert says in str(caught.value)


def test_amds_library_is_missing_with_a_remedy() -> None:
    command = f"{sys.executable} -m federator_agent.amd"
    with pytest.raises(DriverTrouble, match="install amd-smi-lib"):
        Driver(Probe(GpuProbe(command, "ROCR_VISIBLE_DEVICES"))).read()
