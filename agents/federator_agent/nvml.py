"""Asks the NVIDIA driver about this host's GPUs. Optional: without the driver or its library there are none.

A call into a broken driver may never return. So each reading is made in a thread of its own, for which nobody waits longer than is
good, and which does not keep the process from ending. While one reading hangs, no second is begun.

An error event (Xid) counts until this process ends: the GPU that has had one must be reset, and the driver resets none that a process
watches.
"""

import asyncio
import ctypes
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from federator.kernel.quantities import format_mib
from federator_agent.gpu_topology import Groups, near

ANSWERS_WITHIN_S = 20.0
"""Real seconds. A driver that has nothing to do takes a second or two to wake up its GPUs."""
XIDS = {
    48: "a memory error that could not be corrected",
    62: "its microcontroller has halted",
    64: "a broken memory row could not be replaced",
    74: "its NVLink fails",
    79: "it has fallen off the bus",
    95: "a memory error that could not be contained",
    119: "its system processor does not answer",
    120: "its system processor has failed",
    140: "a memory error that could not be recovered from",
}
"""Those error events after which a GPU is good for nothing until it is reset. The others are mostly a program's own fault."""
SLOWED = {0x20 | 0x40: "heat", 0x80: "its power brake"}
"""By bits of the driver's reasons for slow clocks: what slows a GPU down although it has work. That it keeps to its limit of power is usual, and no remark."""
MOST_EVENTS = 1000
"""Taken at once; the rest waits for the next time."""
_BRANDS = frozenset({"NVIDIA", "Tesla", "GeForce", "Quadro"})


REMEDY = (
    "install the package nvidia-ml-py and the driver with its libnvidia-ml.so.1, or declare them under pools"
)
_VENDOR, _DISPLAY = "0x10de", "0x03"


def present(root: Path = Path("/")) -> bool:
    """Whether this host seems to have NVIDIA GPUs, by what the kernel shows below `root`, without the driver's library."""
    if (root / "proc/driver/nvidia/version").exists() or any((root / "dev").glob("nvidia[0-9]*")):
        return True
    return any(
        _line(device / "vendor") == _VENDOR and _line(device / "class").startswith(_DISPLAY)
        for device in (root / "sys/bus/pci/devices").glob("*")
    )


def _line(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


class NoDriver(Exception):
    """Nothing of NVIDIA's is to be asked here; the text says what is missing."""


class DriverTrouble(Exception):
    """There is a driver, and it does not do its work; the text says how."""


class Process(NamedTuple):
    """A process that has a context on a GPU. `memory_mib` None: the driver does not say."""

    pid: int
    memory_mib: int | None


class Gpu(msgspec.Struct, frozen=True):
    """A GPU as the driver describes it now. One that does not answer has nothing but its index and its trouble."""

    index: int
    name: str = ""
    uuid: str = ""
    memory_mib: int = 0
    used_mib: int = 0
    utilisation_percent: int | None = None
    temperature_c: int | None = None
    power_w: int | None = None
    processes: tuple[Process, ...] = ()
    slowed_by: str = ""
    """What keeps its clocks low although it has work: `heat`, `its power brake`. It takes work all the same."""
    trouble: str = ""
    """Why no new work should go to it; empty: it is well."""
    fault: str = ""
    """Tells this trouble from another of the same words, where it is one of the hardware that a test may find gone; empty: no test could."""

    @property
    def model(self) -> str:
        """As users write it: `A100` for `NVIDIA A100-SXM4-80GB`, `RTX4090` for `NVIDIA GeForce RTX 4090`."""
        words = [word for word in self.name.replace("-", " ").split() if word not in _BRANDS]
        numbered = next((place for place, word in enumerate(words) if any(map(str.isdigit, word))), 0)
        named = words[numbered : numbered + 1]
        return "".join(named if named and named[0][0].isalpha() else words[: numbered + 1]) or self.name


class Reading(NamedTuple):
    """All GPUs of this host at one moment, in the driver's order, which is that of the bus."""

    driver: str
    gpus: tuple[Gpu, ...]
    near: tuple[Groups, ...] = ()
    """Those that reach each other best, by number: by NVLink first, then by NUMA node."""


class Driver:
    """The driver of this host."""

    def __init__(self) -> None:
        self._reading: Future[Reading] | None = None
        self._nvml: Any = None
        self._near: tuple[Groups, ...] | None = None
        """It does not change while the driver stays: asked once."""
        self._met = False
        """It has answered once: there is a driver here."""
        self._events: Any = None
        self._heard_of: set[int] = set()
        """Devices whose events are listened for, by the address that NVML knows them by."""
        self._xids: dict[int, tuple[int, int]] = {}
        """The last error event of each device, and how many it has had."""

    def read(self, within_s: float = ANSWERS_WITHIN_S) -> Reading:
        """What it says now; blocks. Raises `NoDriver`, or `DriverTrouble`, also when it has said nothing in that time."""
        try:
            return self._ask().result(within_s)
        except TimeoutError:
            raise _hung() from None

    async def look(self, within_s: float = ANSWERS_WITHIN_S) -> Reading:
        """The same from an event loop."""
        try:
            async with asyncio.timeout(within_s):
                return await asyncio.wrap_future(self._ask())
        except TimeoutError:
            raise _hung() from None

    def _ask(self) -> Future[Reading]:
        """A reading that is under way; one that hangs is under way for long."""
        if self._reading is None or self._reading.done():
            self._reading = Future()
            self._reading.set_running_or_notify_cancel()  # who stops waiting does not end it
            threading.Thread(target=self._answer, args=(self._reading,), name="nvml", daemon=True).start()
        return self._reading

    def _answer(self, reading: Future[Reading]) -> None:
        try:
            reading.set_result(self._read())
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            reading.set_exception(error)

    def _read(self) -> Reading:
        nvml = self._nvml or self._open()
        try:
            self._hear()
            count = nvml.nvmlDeviceGetCount()
            driver = nvml.nvmlSystemGetDriverVersion()
        except nvml.NVMLError as error:
            self._nvml = None
            _optional(nvml, nvml.nvmlShutdown)
            raise DriverTrouble(f"the NVIDIA driver answers: {error}") from None
        gpus = tuple(self._gpu(index) for index in range(count))
        if self._near is None:
            well = (gpu.index for gpu in gpus if gpu.name)
            devices = {index: nvml.nvmlDeviceGetHandleByIndex(index) for index in well}
            self._near = near(nvml, devices, self._answered)
        return Reading(driver, gpus, self._near)

    def _answered(self, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None

    def _open(self) -> Any:
        try:
            import pynvml  # noqa: PLC0415 - optional, and slow to import
        except ImportError:
            raise NoDriver(
                "the package nvidia-ml-py is not installed: pip install 'federator[gpu]'"
            ) from None
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            absent = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
            if error.value in absent and not self._met:
                raise NoDriver(f"no NVIDIA driver: {error}") from None
            raise DriverTrouble(f"the NVIDIA driver cannot be used: {error}") from None
        self._met, self._nvml = True, pynvml
        self._heard_of = set()
        self._near = None
        self._events = _optional(pynvml, pynvml.nvmlEventSetCreate)
        return pynvml

    def _gpu(self, index: int) -> Gpu:
        nvml = self._nvml
        try:
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            self._listen(device)
            memory = nvml.nvmlDeviceGetMemoryInfo(device)
            milliwatts = _optional(nvml, nvml.nvmlDeviceGetPowerUsage, device)
            rates = _optional(nvml, nvml.nvmlDeviceGetUtilizationRates, device)
            reasons = _optional(nvml, nvml.nvmlDeviceGetCurrentClocksThrottleReasons, device) or 0
            fault, events = self._fault(device)
            return Gpu(
                index,
                name=nvml.nvmlDeviceGetName(device),
                uuid=nvml.nvmlDeviceGetUUID(device),
                memory_mib=int(memory.total) >> 20,
                used_mib=int(memory.used) >> 20,
                utilisation_percent=None if rates is None else int(rates.gpu),
                temperature_c=_optional(
                    nvml, nvml.nvmlDeviceGetTemperature, device, nvml.NVML_TEMPERATURE_GPU
                ),
                power_w=None if milliwatts is None else round(milliwatts / 1000),
                processes=_processes(nvml, device),
                slowed_by=" and ".join(words for bits, words in SLOWED.items() if reasons & bits),
                trouble=fault or self._mode(device),
                fault=f"{fault}, {events}" if fault else "",
            )
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                return Gpu(index, trouble="it is lost from the bus")
            return Gpu(index, trouble=f"the driver answers: {error}")

    def _fault(self, device: Any) -> tuple[str, int]:
        """What the driver holds against it, and how many error events it has had."""
        xid, events = self._xids.get(_address(device), (0, 0))
        return f"Xid {xid}: {XIDS[xid]}" if events else self._memory_fault(device), events

    def _memory_fault(self, device: Any) -> str:
        nvml = self._nvml
        remapped = _optional(nvml, nvml.nvmlDeviceGetRemappedRows, device)
        if remapped is not None and remapped[3]:
            return "a broken memory row could not be replaced"
        uncorrected = _optional(
            nvml,
            nvml.nvmlDeviceGetTotalEccErrors,
            device,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        )
        if uncorrected:
            return f"memory errors that could not be corrected since its last reset: {uncorrected}"
        if _optional(nvml, nvml.nvmlDeviceGetRetiredPagesPendingStatus, device):
            return "broken memory pages are in use until its next reset"
        return ""

    def _mode(self, device: Any) -> str:
        nvml = self._nvml
        mode = _optional(nvml, nvml.nvmlDeviceGetMigMode, device)
        if mode is not None and mode[0]:
            return "it is in MIG mode, and its parts cannot be told apart yet"
        return ""

    def _listen(self, device: Any) -> None:
        """Have the driver keep error events of a device until they are asked for."""
        if self._events is not None and _address(device) not in self._heard_of:
            nvml = self._nvml
            _optional(
                nvml, nvml.nvmlDeviceRegisterEvents, device, nvml.nvmlEventTypeXidCriticalError, self._events
            )
            self._heard_of.add(_address(device))

    def _hear(self) -> None:
        """Take the error events that there were since the last time."""
        nvml = self._nvml
        for _ in range(MOST_EVENTS if self._events is not None else 0):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 1)
            except nvml.NVMLError:
                return
            if event.eventType == nvml.nvmlEventTypeXidCriticalError and event.eventData in XIDS:
                _, events = self._xids.get(_address(event.device), (0, 0))
                self._xids[_address(event.device)] = int(event.eventData), events + 1


def _hung() -> DriverTrouble:
    return DriverTrouble("the NVIDIA driver does not answer")


def _optional(nvml: Any, call: Any, *arguments: Any) -> Any:
    """What not every GPU, driver or user can be asked for: None then. A GPU that is lost is another matter."""
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED):
            raise
        return None


def _processes(nvml: Any, device: Any) -> tuple[Process, ...]:
    found = _optional(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, device) or ()
    return tuple(
        Process(int(each.pid), None if each.usedGpuMemory is None else int(each.usedGpuMemory) >> 20)
        for each in found
    )


def _address(device: Any) -> int:
    return ctypes.addressof(device.contents)


class Make(NamedTuple):
    """The GPUs of one model on a host. `memory_mib`: of the one that has least."""

    model: str
    memory_mib: int
    number: int


def makes() -> tuple[Make, ...]:
    """What GPUs this host has, in the driver's order; none without a driver. Raises `DriverTrouble`."""
    try:
        found = [gpu for gpu in Driver().read().gpus if gpu.name]
    except NoDriver:
        return ()
    memory_mib: dict[str, list[int]] = {}
    for gpu in found:
        memory_mib.setdefault(gpu.model, []).append(gpu.memory_mib)
    return tuple(Make(model, min(each), len(each)) for model, each in memory_mib.items())


def describe(reading: Reading) -> list[str]:
    """The driver and each GPU in a line for people, which begins with `ok` unless the GPU ails."""
    lines = [f"ok    NVIDIA driver {reading.driver}, GPUs: {len(reading.gpus)}"]
    for gpu in reading.gpus:
        facts = [f"GPU {gpu.index}"]
        if gpu.name:
            facts[0] += f": {gpu.model} ({gpu.name})"
            facts.append(f"{format_mib(gpu.used_mib)} of {format_mib(gpu.memory_mib)} in use")
        if gpu.utilisation_percent is not None:
            facts.append(f"{gpu.utilisation_percent} % busy")
        if gpu.temperature_c is not None:
            facts.append(f"{gpu.temperature_c} °C")
        if gpu.power_w is not None:
            facts.append(f"{gpu.power_w} W")
        if gpu.slowed_by:
            facts.append(f"slowed down by {gpu.slowed_by}")
        if gpu.processes:
            facts.append(f"processes {', '.join(str(process.pid) for process in gpu.processes)}")
        lines.append(
            f"{', '.join(facts)}: {gpu.trouble}" if gpu.trouble else f"ok    {', '.join(facts)}: well"
        )
    return lines


def main() -> int:
    """`python -m federator_agent.nvml`: show what the driver says; 1 when something ails, or there is no driver."""
    try:
        reading = Driver().read()
    except (NoDriver, DriverTrouble) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    for line in describe(reading):
        sys.stdout.write(f"{line}\n" if line.startswith("ok") else f"FAIL  {line}\n")
    return 1 if any(gpu.trouble for gpu in reading.gpus) else 0


if __name__ == "__main__":
    sys.exit(main())
