"""GPUs for machines that have none: NVIDIA's management library with its real symbols, compiled here, and a file that says what GPUs there are.

The file may change at any time under a running agent: that is how a GPU falls ill in a test.
"""

import functools
import subprocess
import tempfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("nvml_stub.c")
A100 = "NVIDIA A100-SXM4-80GB"


@functools.cache
def library() -> Path:
    """The compiled library, once per process that runs tests."""
    made = Path(tempfile.mkdtemp(prefix="nvml-")) / "libnvidia-ml.so.1"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{made.name}"]
    subprocess.run(["cc", *flags, "-o", str(made), str(SOURCE)], check=True)
    return made


class StubDriver:
    """A driver and its GPUs, all well and idle at first."""

    def __init__(self, folder: Path, *names: str, memory_mib: int = 81920) -> None:
        self.library = library()
        self._file = folder / "gpus"
        self._gpus: list[dict[str, Any]] = [{"memory": memory_mib, "name": name} for name in names]
        self._lines: tuple[str, ...] = ()
        self._cuts: dict[int, list[dict[str, Any]]] = {}
        self._write()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to find this driver instead of any other."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "NVML_STUB_FILE": str(self._file)}

    def change(self, index: int, **values: object) -> None:
        """Let a GPU be otherwise: `lost=1`, `ecc=2`, `used=70000`, `processes="77:70000"`; the keys are in the C file."""
        self._gpus[index].update(values)
        self._write()

    def driver(self, *lines: str) -> None:
        """Let the driver be otherwise: `hang`, `init 9`; nothing: as it should be."""
        self._lines = lines
        self._write()

    def cut(self, index: int, *instances: tuple[int, str, int], **values: object) -> None:
        """Switch MIG on, with these instances: number, profile and memory in MiB of each; `values` are of each, as in `change`. With none it is in that mode and not cut."""
        self._cuts[index] = [
            {
                "gi": number,
                "memory": memory_mib,
                **values,
                "name": f"{self._gpus[index]['name']} MIG {profile}",
            }
            for number, profile, memory_mib in instances
        ]
        self.change(index, mig=1)

    def uncut(self, index: int) -> None:
        """Switch MIG off."""
        self._cuts.pop(index, None)
        self.change(index, mig=0)

    def remove(self, index: int) -> None:
        """Take a GPU away altogether, as after a boot that no longer finds it."""
        del self._gpus[index]
        self._write()

    def _write(self) -> None:
        """Whole or not at all: it is read at any time."""
        lines = list(self._lines)
        devices = [("gpu", gpu) for gpu in self._gpus]
        for index, instances in self._cuts.items():
            devices += [(f"instance {index}.{count}", each) for count, each in enumerate(instances)]
        for first, device in devices:
            keys = [f"{key}={value}" for key, value in device.items() if key != "name"]
            lines.append(" ".join([first, *keys, f"name={device['name']}"]))
        new = self._file.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.replace(self._file)
