"""The port for accelerators of this host, GPUs and others: who counts them, and says how each is. `federator_agent.nvml` asks NVIDIA's driver, `federator_agent.gpu_probe` a command of the site's.

A call into a broken driver may never return. So each reading is made in a thread of its own, for which nobody waits longer than is
good, and which does not keep the process from ending. While one reading hangs, no second is begun.
"""

import asyncio
import threading
from concurrent.futures import Future
from typing import NamedTuple, Protocol

import msgspec

from federator.kernel.quantities import format_mib
from federator.wire.mig import Mig
from federator_agent.gpu_topology import Groups
from federator_agent.mig import place_of

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
ANSWERS_WITHIN_S = 20.0
"""Real seconds. A driver that has nothing to do takes a second or two to wake up its GPUs."""
_BRANDS = frozenset({"NVIDIA", "Tesla", "GeForce", "Quadro"})


class NoDriver(Exception):
    """There is no library to ask; the text says what is missing."""


class DriverTrouble(Exception):
    """There is a library, and it does not do its work; the text says how."""


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
    instances: tuple["Gpu", ...] | None = None
    """In MIG mode, the parts that it is cut into, each like a GPU with a number and a UUID of its own; None: it is in no such mode."""
    mig: Mig | None = None
    """Of an instance: what part of its GPU it is. Its power is that part of the GPU's."""

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
    """Who says so, with its version."""
    gpus: tuple[Gpu, ...]
    near: tuple[Groups, ...] = ()
    """Those that reach each other best, by number: by NVLink first, then by NUMA node."""


class Library(Protocol):
    """What the GPUs of this host are counted by."""

    def read(self) -> Reading:
        """All GPUs as they are now; blocks, maybe for ever. GPUs keep their numbers while the process runs. Raises `NoDriver` where there is nothing to ask, `DriverTrouble` where it does not answer as it should."""
        ...


class Driver:
    """A library that is asked in threads."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._reading: Future[Reading] | None = None

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
            threading.Thread(target=self._answer, args=(self._reading,), name="gpus", daemon=True).start()
        return self._reading

    def _answer(self, reading: Future[Reading]) -> None:
        try:
            reading.set_result(self._library.read())
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            reading.set_exception(error)


def _hung() -> DriverTrouble:
    return DriverTrouble("the driver does not answer")


class Make(NamedTuple):
    """The GPUs of one model on a host. `memory_mib`: of the one that has least."""

    model: str
    memory_mib: int
    number: int


def makes(library: Library) -> tuple[Make, ...]:
    """What GPUs this host has, in the library's order; none without a driver. Raises `DriverTrouble`."""
    try:
        found = [gpu for gpu in Driver(library).read().gpus if gpu.name]
    except NoDriver:
        return ()
    memory_mib: dict[str, list[int]] = {}
    for gpu in found:
        memory_mib.setdefault(gpu.model, []).append(gpu.memory_mib)
    return tuple(Make(model, min(each), len(each)) for model, each in memory_mib.items())


def describe(reading: Reading) -> list[str]:
    """The driver and each GPU in a line for people, with its instances, which begins with `ok` unless it ails."""
    devices = [each for gpu in reading.gpus for each in (gpu, *(gpu.instances or ()))]
    lines = [f"ok    {reading.driver}, GPUs: {len(reading.gpus)}"]
    for gpu in devices:
        facts = ", ".join(_facts(gpu))
        lines.append(f"{facts}: {gpu.trouble}" if gpu.trouble else f"ok    {facts}: well")
    return lines


def _facts(gpu: Gpu) -> list[str]:
    facts = [f"GPU {gpu.index}"]
    if gpu.mig:
        facts = [f"instance {gpu.index}: {gpu.mig.profile} of GPU {place_of(gpu.index)[0]}"]
    elif gpu.name:
        facts = [f"GPU {gpu.index}: {gpu.model} ({gpu.name})"]
    if gpu.instances:
        facts.append(f"in MIG mode, instances: {len(gpu.instances)}")
    if gpu.name:
        facts.append(f"{format_mib(gpu.used_mib)} of {format_mib(gpu.memory_mib)} in use")
    for value, unit in ((gpu.utilisation_percent, "% busy"), (gpu.temperature_c, "°C"), (gpu.power_w, "W")):
        facts += [] if value is None else [f"{value} {unit}"]
    if gpu.slowed_by:
        facts.append(f"slowed down by {gpu.slowed_by}")
    if gpu.processes:
        facts.append(f"processes {', '.join(str(process.pid) for process in gpu.processes)}")
    return facts
