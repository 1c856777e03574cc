"""`python -m federator_agent.amd`: AMD's GPUs as `gpu_probe` reads them, by AMD's own library `amdsmi`, which comes with ROCm.

What not every GPU tells is left out. Numbers are in the order of the library, which is that of `ROCR_VISIBLE_DEVICES`.
"""

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

MISSING = "amdsmi cannot be imported: install amd-smi-lib of ROCm, and its Python package"


def gpus(smi: Any) -> list[dict[str, object]]:
    """Each GPU as `gpu_probe` takes it."""
    return [_gpu(smi, handle) for handle in smi.amdsmi_get_processor_handles()]


def _gpu(smi: Any, handle: Any) -> dict[str, object]:
    def told(call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except smi.AmdSmiException:
            return {}

    asic, memory = told(smi.amdsmi_get_gpu_asic_info, handle), told(smi.amdsmi_get_gpu_vram_usage, handle)
    if not asic or not memory:
        return {"name": _name(asic), "trouble": "it does not answer"}
    power, errors = told(smi.amdsmi_get_power_info, handle), told(smi.amdsmi_get_gpu_total_ecc_count, handle)
    junction, now = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
    heat = told(smi.amdsmi_get_temp_metric, handle, junction, now)
    uncorrected = _number(errors, "uncorrectable_count") or 0
    found = {
        "name": _name(asic),
        "uuid": told(smi.amdsmi_get_gpu_device_uuid, handle) or "",
        "memory_mib": _number(memory, "vram_total") or 0,
        "used_mib": _number(memory, "vram_used") or 0,
        "utilisation_percent": _number(told(smi.amdsmi_get_gpu_activity, handle), "gfx_activity"),
        "temperature_c": heat if isinstance(heat, int) else None,
        "power_w": _number(power, "current_socket_power") or _number(power, "average_socket_power"),
        "trouble": f"memory errors that could not be corrected: {uncorrected}" if uncorrected else "",
    }
    return {key: value for key, value in found.items() if value is not None}


def _name(asic: Mapping[str, Any]) -> str:
    """`MI300X` of `AMD Instinct MI300X OAM`."""
    words = str(asic.get("market_name") or "AMD").split()
    return next((word for word in words if any(map(str.isdigit, word))), " ".join(words))


def _number(values: Mapping[str, Any], key: str) -> int | None:
    """What the library does not know is `N/A`."""
    value = values.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def main() -> int:
    """Print them; 1 where the library is missing or does not answer."""
    try:
        amdsmi = importlib.import_module("amdsmi")  # it comes with ROCm
    except ImportError as error:
        sys.stderr.write(f"{MISSING} ({error})\n")
        return 1
    try:
        amdsmi.amdsmi_init()
        found = {"driver": f"amdsmi {getattr(amdsmi, '__version__', '')}".strip(), "gpus": gpus(amdsmi)}
    except amdsmi.AmdSmiException as error:
        sys.stderr.write(f"amdsmi answers: {error}\n")
        return 1
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
