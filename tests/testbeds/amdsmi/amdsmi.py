"""AMD's library without a GPU: the names of `amdsmi` that the agent calls, answered from the JSON file that AMDSMI_STUB_FILE names."""

import json
import os
from enum import IntEnum
from pathlib import Path
from typing import Any

__version__ = "25.4.2"


class AmdSmiException(Exception):
    """What the library raises."""


class AmdSmiTemperatureType(IntEnum):
    """Where it is measured."""

    HOTSPOT = 1


class AmdSmiTemperatureMetric(IntEnum):
    """Which value."""

    CURRENT = 0


def _read() -> list[dict[str, Any]]:
    found = json.loads(Path(os.environ["AMDSMI_STUB_FILE"]).read_text())
    if not isinstance(found, list):
        raise AmdSmiException(found)
    return found


def _of(handle: int, *keys: str) -> dict[str, Any]:
    gpu = _read()[handle]
    if gpu.get("lost"):
        raise AmdSmiException("AMDSMI_STATUS_NO_DATA")
    return {key: gpu.get(key, "N/A") for key in keys}


def amdsmi_init() -> None:
    _read()


def amdsmi_get_processor_handles() -> list[int]:
    return list(range(len(_read())))


def amdsmi_get_gpu_asic_info(handle: int) -> dict[str, Any]:
    return _of(handle, "market_name")


def amdsmi_get_gpu_vram_usage(handle: int) -> dict[str, Any]:
    return _of(handle, "vram_total", "vram_used")


def amdsmi_get_gpu_activity(handle: int) -> dict[str, Any]:
    return _of(handle, "gfx_activity")


def amdsmi_get_power_info(handle: int) -> dict[str, Any]:
    return _of(handle, "current_socket_power", "average_socket_power")


def amdsmi_get_gpu_total_ecc_count(handle: int) -> dict[str, Any]:
    return _of(handle, "uncorrectable_count")


def amdsmi_get_gpu_device_uuid(handle: int) -> str:
    return f"{handle:08x}-0000-1000-8000-000000000000"


def amdsmi_get_temp_metric(handle: int, where: AmdSmiTemperatureType, which: AmdSmiTemperatureMetric) -> int:
    del where, which
    found = _of(handle, "temperature")["temperature"]
    if not isinstance(found, int):
        raise AmdSmiException("AMDSMI_STATUS_NOT_SUPPORTED")
    return found
