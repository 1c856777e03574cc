"""Which GPUs this host has, asked of the NVIDIA driver. Optional: without the driver or its library there are none."""

from typing import NamedTuple


class Gpus(NamedTuple):
    """The GPUs of a host with one make of them; of several makes only the first is counted."""

    model: str
    memory_mib: int
    number: int


def detect() -> Gpus | None:
    """What the driver shows, or None."""
    try:
        import pynvml  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        found = [
            (
                _model(str(pynvml.nvmlDeviceGetName(handle))),
                int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20,
            )
            for handle in handles
        ]
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    if not found:
        return None
    model, memory_mib = found[0]
    return Gpus(model, memory_mib, sum(each[0] == model for each in found))


def _model(name: str) -> str:
    """`NVIDIA A100-SXM4-80GB` as users write it: `A100`."""
    words = [word for word in name.replace("-", " ").split() if word not in ("NVIDIA", "Tesla", "GeForce")]
    return words[0] if words else name
