"""GPU machines of Amazon EC2 and what they cost in us-east-1, as of a date: what is known until the API has answered.

Prices in USD per hour, restated from open collections, both Apache-2.0:

- on demand, as published 2026-07-20: aws/karpenter-provider-aws at 1d927085dd81 (generated price tables);
- spot: that price less the average saving of AWS's Spot Advisor of 2025-06-28, by alexei-led/spotinfo at 05e933139449. It is an
  estimate, known to be high for p3 and p5.

GPU model, memory and count, vCPUs and memory are those of the public instance specifications.
"""

from federator_providers.offers import Catalogue, MachineType

AS_OF = "2026-07-20"
SPOT_AS_OF = "2025-06-28"


_ROWS = (
    MachineType("g4dn.xlarge", "T4", 16, 1, 4, 16, 0.526, 0.18936),
    MachineType("g4dn.12xlarge", "T4", 16, 4, 48, 192, 3.912, 1.40832),
    MachineType("g4dn.metal", "T4", 16, 8, 96, 384, 7.824, 3.83376),
    MachineType("g5.xlarge", "A10G", 24, 1, 4, 16, 1.006, 0.41246),
    MachineType("g5.4xlarge", "A10G", 24, 1, 16, 64, 1.624, 0.6496),
    MachineType("g5.12xlarge", "A10G", 24, 4, 48, 192, 5.672, 2.38224),
    MachineType("g5.48xlarge", "A10G", 24, 8, 192, 768, 16.288, 4.72352),
    MachineType("g6.xlarge", "L4", 24, 1, 4, 16, 0.8048, 0.41045),
    MachineType("g6.12xlarge", "L4", 24, 4, 48, 192, 4.6016, 1.88666),
    MachineType("g6.48xlarge", "L4", 24, 8, 192, 768, 13.3504, 4.13862),
    MachineType("g6e.xlarge", "L40S", 48, 1, 4, 32, 1.861, 0.78162),
    MachineType("g6e.12xlarge", "L40S", 48, 4, 48, 384, 10.49264, 4.61676),
    MachineType("g6e.48xlarge", "L40S", 48, 8, 192, 1536, 30.13118, 9.64198),
    MachineType("p3.2xlarge", "V100", 16, 1, 8, 61, 3.06, 0.612),
    MachineType("p3.8xlarge", "V100", 16, 4, 32, 244, 12.24, 1.7136),
    MachineType("p3.16xlarge", "V100", 16, 8, 64, 488, 24.48, 4.1616),
    MachineType("p4d.24xlarge", "A100", 40, 8, 96, 1152, 21.95764, 7.24602),
    MachineType("p4de.24xlarge", "A100", 80, 8, 96, 1152, 27.44705, 9.60647),
    MachineType("p5.48xlarge", "H100", 80, 8, 192, 2048, 55.04, 26.4192),
    MachineType("p5en.48xlarge", "H200", 141, 8, 192, 2048, 63.296, 22.78656),
)

CATALOGUE = Catalogue(_ROWS, region="us-east-1", source=f"catalogue of {AS_OF}", lacks="price")
