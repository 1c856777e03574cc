"""What real clouds ask for GPU machines, so that a local trial burns believable amounts of pretended money.

Prices in USD per hour, restated from open price collections; all are Apache-2.0:

- `aws` on demand, us-east-1, as published 2026-07-20: aws/karpenter-provider-aws (generated price tables).
- `aws` spot: that price less the average saving of AWS's Spot Advisor of 2025-06-28, by alexei-led/spotinfo. It is an estimate:
  spot prices move by the zone and the hour, and for p3 and p5 this one is known to be high.
- `gcp`, on demand and spot, us-central1, as published 2026-07-30: Cyclenerd/google-cloud-pricing-cost-calculator, (c) 2022-2025
  Nils Knieling.

GPU model, memory and count are those of the public instance specifications. Boot delays are not in any list: three minutes is
our assumption for a machine with its driver, until a provider measures its own.
"""

from typing import NamedTuple


class InstanceType(NamedTuple):
    """One row. Memory in GiB, as the lists have it."""

    cloud: str
    name: str
    model: str
    gpu_memory_gib: int
    gpus: int
    cpus: int
    memory_gib: int
    price_usd_h: float
    spot_usd_h: float


BOOT_DELAY_S = 180.0

_ROWS = (
    InstanceType("aws", "g4dn.xlarge", "T4", 16, 1, 4, 16, 0.526, 0.18936),
    InstanceType("aws", "g6.xlarge", "L4", 24, 1, 4, 16, 0.8048, 0.41045),
    InstanceType("aws", "g5.xlarge", "A10G", 24, 1, 4, 16, 1.006, 0.41246),
    InstanceType("aws", "g5.12xlarge", "A10G", 24, 4, 48, 192, 5.672, 2.38224),
    InstanceType("aws", "g6e.xlarge", "L40S", 48, 1, 4, 32, 1.861, 0.78162),
    InstanceType("aws", "p3.8xlarge", "V100", 16, 4, 32, 244, 12.24, 1.7136),
    InstanceType("aws", "p4d.24xlarge", "A100", 40, 8, 96, 1152, 21.95764, 7.24602),
    InstanceType("aws", "p4de.24xlarge", "A100", 80, 8, 96, 1152, 27.44705, 9.60647),
    InstanceType("aws", "p5.48xlarge", "H100", 80, 8, 192, 2048, 55.04, 26.4192),
    InstanceType("gcp", "a2-highgpu-1g", "A100", 40, 1, 12, 85, 3.67339, 1.92802),
    InstanceType("gcp", "a2-highgpu-4g", "A100", 40, 4, 48, 340, 14.69354, 7.71208),
    InstanceType("gcp", "a3-highgpu-1g", "H100", 80, 1, 26, 234, 11.06125, 6.32619),
    InstanceType("gcp", "a3-highgpu-8g", "H100", 80, 8, 208, 1872, 88.49, 50.60954),
)

CATALOGUE = {row.name: row for row in _ROWS}
