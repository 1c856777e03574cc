"""GPU machines of Compute Engine and what they cost in us-central1, as of a date. Google has no price list that one can ask without an account for billing.

Prices in USD per hour, as published 2026-07-30, restated from Cyclenerd/google-cloud-pricing-cost-calculator (Apache-2.0). Spot prices may
change every day, by Google's word; a price in the settings replaces either. GPU model, memory and count, vCPUs and memory are those of the public
specifications. Prices of GPUs that are attached to machines of type n1 are not known here.
"""

import re
from typing import NamedTuple

from federator_providers.offers import Catalogue, MachineType

N1_VCPUS = (2, 4, 8, 16, 32, 64, 96)
_N1 = re.compile(r"n1-(standard|highmem)-(\d+)")
_N1_MIB_PER_VCPU = {"standard": 3840, "highmem": 6656}


class Accelerator(NamedTuple):
    """A GPU that can be attached to machines of type n1."""

    name: str
    model: str
    memory_gib: int
    quota: str


_ROWS = (
    MachineType("g2-standard-4", "L4", 24, 1, 4, 16, 0.70683, 0.39734, "NVIDIA_L4_GPUS"),
    MachineType("g2-standard-8", "L4", 24, 1, 8, 32, 0.85362, 0.47987, "NVIDIA_L4_GPUS"),
    MachineType("g2-standard-12", "L4", 24, 1, 12, 48, 1.00042, 0.56241, "NVIDIA_L4_GPUS"),
    MachineType("g2-standard-16", "L4", 24, 1, 16, 64, 1.14721, 0.64494, "NVIDIA_L4_GPUS"),
    MachineType("g2-standard-24", "L4", 24, 2, 24, 96, 2.00083, 1.12482, "NVIDIA_L4_GPUS"),
    MachineType("g2-standard-32", "L4", 24, 1, 32, 128, 1.73438, 0.97509, "NVIDIA_L4_GPUS"),
    MachineType("g2-standard-48", "L4", 24, 4, 48, 192, 4.00167, 2.24963, "NVIDIA_L4_GPUS"),
    MachineType("g2-standard-96", "L4", 24, 8, 96, 384, 8.00333, 4.49926, "NVIDIA_L4_GPUS"),
    MachineType("a2-highgpu-1g", "A100", 40, 1, 12, 85, 3.67339, 1.92802, "NVIDIA_A100_GPUS"),
    MachineType("a2-highgpu-2g", "A100", 40, 2, 24, 170, 7.34677, 3.85604, "NVIDIA_A100_GPUS"),
    MachineType("a2-highgpu-4g", "A100", 40, 4, 48, 340, 14.69354, 7.71208, "NVIDIA_A100_GPUS"),
    MachineType("a2-highgpu-8g", "A100", 40, 8, 96, 680, 29.38708, 15.42416, "NVIDIA_A100_GPUS"),
    MachineType("a2-megagpu-16g", "A100", 40, 16, 96, 1360, 55.7395, 29.25568, "NVIDIA_A100_GPUS"),
    MachineType("a2-ultragpu-1g", "A100", 80, 1, 12, 170, 5.0688, 2.75955, "NVIDIA_A100_80GB_GPUS"),
    MachineType("a2-ultragpu-2g", "A100", 80, 2, 24, 340, 10.1376, 5.51909, "NVIDIA_A100_80GB_GPUS"),
    MachineType("a2-ultragpu-4g", "A100", 80, 4, 48, 680, 20.27519, 11.03819, "NVIDIA_A100_80GB_GPUS"),
    MachineType("a2-ultragpu-8g", "A100", 80, 8, 96, 1360, 40.55038, 22.07637, "NVIDIA_A100_80GB_GPUS"),
    MachineType("a3-highgpu-1g", "H100", 80, 1, 26, 234, 11.06125, 6.32619, "NVIDIA_H100_GPUS"),
    MachineType("a3-highgpu-2g", "H100", 80, 2, 52, 468, 22.1225, 12.65239, "NVIDIA_H100_GPUS"),
    MachineType("a3-highgpu-4g", "H100", 80, 4, 104, 936, 44.245, 25.30477, "NVIDIA_H100_GPUS"),
    MachineType("a3-highgpu-8g", "H100", 80, 8, 208, 1872, 88.49, 50.60954, "NVIDIA_H100_GPUS"),
)
_ACCELERATORS = (
    Accelerator("nvidia-tesla-t4", "T4", 16, "NVIDIA_T4_GPUS"),
    Accelerator("nvidia-tesla-v100", "V100", 16, "NVIDIA_V100_GPUS"),
    Accelerator("nvidia-tesla-p100", "P100", 16, "NVIDIA_P100_GPUS"),
    Accelerator("nvidia-tesla-p4", "P4", 8, "NVIDIA_P4_GPUS"),
)
CATALOGUE = Catalogue(_ROWS, region="us-central1", source="catalogue of 2026-07-30", lacks="prices of n1")
ACCELERATORS = {each.name: each for each in _ACCELERATORS}


def with_attached(machine_type: str, accelerator: Accelerator, gpus: int) -> MachineType | None:
    """A machine of type n1 with so many of these GPUs, named as offers name it; None: there is no such type."""
    match = _N1.fullmatch(machine_type)
    if match is None or int(match[2]) not in N1_VCPUS:
        return None
    vcpus = int(match[2])
    return MachineType(
        f"{machine_type}+{gpus}x{accelerator.name}",
        accelerator.model,
        accelerator.memory_gib,
        gpus,
        vcpus,
        vcpus * _N1_MIB_PER_VCPU[match[1]] / 1024,
        quota=accelerator.quota,
    )
