"""Accelerators that a command of the site's counts: AMD, Intel, TPUs, FPGAs, modules that no driver's library lists. It is run again and again, and prints one JSON object.

`federator_agent.amd` is such a command, for AMD's library. A process of its own, and no code loaded into the agent: a library that crashes or leaks ends with it.
"""

import os
import signal
import subprocess
import tempfile
from typing import Annotated

import msgspec
from msgspec import Meta

from federator.kernel.errors import Invalid
from federator.wire import fields
from federator.wire.decoding import decode
from federator.wire.jsontext import decode_json
from federator.wire.link import MAX_GPUS
from federator_agent.gpus import CUDA_VISIBLE_DEVICES, DriverTrouble, Gpu, Library, Reading
from federator_agent.nvml import Nvml

RUNS_S = 8.0
"""Real seconds; then it is ended."""
MOST_BYTES = 2**20
SAID = 200
"""Characters of its last line of complaint that are told."""
_WHOLE = Annotated[int, Meta(ge=0, le=2**40)]


class GpuProbe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command that counts what accelerators this host has, in place of NVIDIA's driver."""

    command: fields.Text
    """Run by `/bin/sh` as the agent's user, every three seconds, for eight at most. It prints `{"driver": "ROCm 6.4", "gpus": [{"name": "MI300X", "memory_mib": 196608}]}`, always in the same order. Of each also, where it is known: `uuid`, `used_mib`, `utilisation_percent`, `temperature_c`, `power_w`, `slowed_by`, and `trouble` for one that should take no new work."""
    visible: Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]{0,63}$", examples=["ROCR_VISIBLE_DEVICES"])] = (
        CUDA_VISIBLE_DEVICES
    )
    """The variable by which a job is told the numbers of its devices: `ROCR_VISIBLE_DEVICES` for AMD, `ZE_AFFINITY_MASK` for Intel, `TPU_VISIBLE_CHIPS` for TPUs. It is all that keeps jobs of this host from each other's devices. Left out: `CUDA_VISIBLE_DEVICES`, as on a Jetson board."""


class _Found(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One accelerator, as the command prints it."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    uuid: Annotated[str, Meta(max_length=100)] = ""
    memory_mib: _WHOLE = 0
    used_mib: _WHOLE = 0
    utilisation_percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    temperature_c: Annotated[int, Meta(ge=-100, le=1000)] | None = None
    power_w: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    slowed_by: Annotated[str, Meta(max_length=SAID)] = ""
    trouble: Annotated[str, Meta(max_length=SAID)] = ""


class _Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that it prints."""

    gpus: Annotated[tuple[_Found, ...], Meta(max_length=MAX_GPUS)]
    driver: Annotated[str, Meta(max_length=100)] = "gpu_probe"


class Probe:
    """The command, as `federator_agent.gpus.Library`."""

    def __init__(self, probe: GpuProbe) -> None:
        self._probe = probe

    def read(self) -> Reading:
        """What it prints now."""
        try:
            said = decode(decode_json(self._run()), _Said, "$")
        except Invalid as error:
            raise DriverTrouble(f"gpu_probe prints what cannot be read: {error.describe()}") from None
        gpus = (Gpu(number, **msgspec.structs.asdict(each)) for number, each in enumerate(said.gpus))
        return Reading(said.driver, tuple(gpus))

    def _run(self) -> bytes:
        """Its output. Raises `DriverTrouble`."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complaints:
            process = subprocess.Popen(
                ["/bin/sh", "-c", f"ulimit -f {MOST_BYTES // 512}; {self._probe.command}"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=complaints,
                start_new_session=True,
            )
            try:
                code = process.wait(RUNS_S)
            except subprocess.TimeoutExpired:
                raise DriverTrouble(f"gpu_probe runs for more than {RUNS_S:g} s") from None
            finally:
                _end(process)
            out.seek(0)
            complaints.seek(0)
            if code != 0:
                lines = complaints.read(MOST_BYTES).decode(errors="replace").split("\n")
                last = next((line for line in reversed(lines) if line.strip()), "")
                raise DriverTrouble(f"gpu_probe ends with exit code {code}: {last[-SAID:]}".rstrip(": "))
            return out.read(MOST_BYTES)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """It and what it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def library(probe: GpuProbe | None) -> Library:
    """What this host's accelerators are counted by."""
    return Nvml() if probe is None else Probe(probe)


def visible(probe: GpuProbe | None) -> str:
    """The variable that says which of them a program sees."""
    return CUDA_VISIBLE_DEVICES if probe is None else probe.visible
