"""Asks the NVIDIA driver about this host's GPUs. Optional: without the driver or its library there are none.

An error event (Xid) counts until this process ends: the GPU that has had one must be reset, and the driver resets none that a process
watches.
"""

import ctypes
import re
import sys
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from federator.model.jobs import WHOLE_MILLI
from federator.wire.mig import mig
from federator_agent.gpu_topology import Groups, near
from federator_agent.gpus import Driver, DriverTrouble, Gpu, NoDriver, Process, Reading, describe
from federator_agent.mig import number_of

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
NO_INSTANCE = 0xFFFFFFFF
"""In an error event: it is of the whole GPU."""
_COMPUTE_PART = re.compile(r"\b[1-7]c\.[1-7]g\.")

REMEDY = (
    "install the package nvidia-ml-py and the driver with its libnvidia-ml.so.1, or declare them under pools"
)
LIBRARY = "libnvidia-ml.so.1"
"""Of the driver."""
CUT_REMEDY = "make some by nvidia-smi mig -cgi PROFILES -C, or switch MIG off"
WHOLE_REMEDY = "make one compute instance of the whole instance, by nvidia-smi mig -cgi PROFILES -C"
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


class Nvml:
    """The driver of this host, as `federator_agent.gpus.Library`."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._near: tuple[Groups, ...] | None = None
        """It does not change while the driver stays: asked once."""
        self._met = False
        """It has answered once: there is a driver here."""
        self._events: Any = None
        self._heard_of: set[int] = set()
        """Devices whose events are listened for, by the address that NVML knows them by."""
        self._xids: dict[tuple[int, int], tuple[int, int]] = {}
        """The last error event of each device and of each of its instances, and how many it has had."""

    def read(self) -> Reading:
        """What it says now."""
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
        return Reading(f"NVIDIA driver {driver}", gpus, self._near)

    def _answered(self, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None

    def _open(self) -> Any:
        try:
            ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise NoDriver(f"no NVIDIA driver: {error}") from None
        try:
            import pynvml  # noqa: PLC0415 - optional, and 2 MB of memory
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
            fault = self._fault(device)
            gpu = Gpu(
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
                trouble=fault[0],
                fault=", ".join(map(str, fault)) if fault[0] else "",
            )
            return self._cut(gpu, device)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                return Gpu(index, trouble="it is lost from the bus")
            return Gpu(index, trouble=f"the driver answers: {error}")

    def _fault(self, device: Any) -> tuple[str, int]:
        """What the driver holds against it, and how many error events it has had."""
        xid, events = self._xids.get((_address(device), NO_INSTANCE), (0, 0))
        return _of_xid(xid) or self._memory_fault(device), events

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

    def _cut(self, gpu: Gpu, device: Any) -> Gpu:
        """With its instances, where it is in MIG mode. Without any it is of no use."""
        nvml = self._nvml
        mode = _optional(nvml, nvml.nvmlDeviceGetMigMode, device)
        if mode is None or not mode[0]:
            return gpu
        most = _optional(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, device) or 0
        handles = (
            _optional(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, device, at) for at in range(most)
        )
        found = (self._instance(gpu, device, handle) for handle in handles if handle is not None)
        instances = {each.index: each for each in found if each is not None}
        gpu = replace(gpu, instances=tuple(instances.values()))
        return gpu if instances else _unfit(gpu, f"it is in MIG mode and has no instances: {CUT_REMEDY}")

    def _instance(self, gpu: Gpu, device: Any, handle: Any) -> Gpu | None:
        """What ails its GPU ails it, too. None: it is gone meanwhile, or the driver does not say what part it is."""
        nvml = self._nvml
        number = _optional(nvml, nvml.nvmlDeviceGetGpuInstanceId, handle)
        uuid = _optional(nvml, nvml.nvmlDeviceGetUUID, handle)
        memory = _optional(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
        name = _optional(nvml, nvml.nvmlDeviceGetName, handle) or ""
        part = mig(name, gpu.model, gpu.memory_mib)
        if number is None or uuid is None or memory is None or part is None:
            return None
        xid, events = self._xids.get((_address(device), number), (0, 0))
        trouble, fault = gpu.trouble, gpu.fault
        if not trouble and xid:
            trouble, fault = _of_xid(xid), f"{_of_xid(xid)}, {events}"
        instance = replace(
            gpu,
            index=number_of(gpu.index, number),
            uuid=uuid,
            memory_mib=int(memory.total) >> 20,
            used_mib=int(memory.used) >> 20,
            utilisation_percent=None,
            power_w=None if gpu.power_w is None else round(gpu.power_w * part.milli / WHOLE_MILLI),
            processes=_processes(nvml, handle),
            trouble=trouble,
            fault=fault,
            mig=part,
        )
        divided = f"its processors are divided again: {WHOLE_REMEDY}"
        return _unfit(instance, divided) if _COMPUTE_PART.search(name) else instance

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
                of = _address(event.device), int(event.gpuInstanceId)
                self._xids[of] = int(event.eventData), self._xids.get(of, (0, 0))[1] + 1


def _unfit(gpu: Gpu, why: str) -> Gpu:
    """It ails by the way it is cut. A fault beside that is told when that is mended: a test that finds the fault gone does not make it fit."""
    return replace(gpu, trouble=why, fault="")


def _of_xid(xid: int) -> str:
    return f"Xid {xid}: {XIDS[xid]}" if xid else ""


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


def main() -> int:
    """`python -m federator_agent.nvml`: show what the driver says; 1 when something ails, or there is no driver."""
    try:
        reading = Driver(Nvml()).read()
    except (NoDriver, DriverTrouble) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    for line in describe(reading):
        sys.stdout.write(f"{line}\n" if line.startswith("ok") else f"FAIL  {line}\n")
    whole = (each for gpu in reading.gpus for each in (gpu, *(gpu.instances or ())))
    return 1 if any(gpu.trouble for gpu in whole) else 0


if __name__ == "__main__":
    sys.exit(main())
