"""GPU machines of Azure and what they cost on demand in eastus.

Prices in USD per hour of Linux machines, restated from version 6 of skypilot-org/skypilot-catalog (Apache-2.0), which has them from Azure's
retail price list. A price in the settings replaces them. Spot prices differ by region and move: the settings say the most that is paid. Sizes with a part
of a GPU are left out. GPU model, memory and count, vCPUs and memory are those of the public specifications.
"""

from federator_providers.offers import Catalogue, MachineType

_ROWS = (
    MachineType("Standard_NC4as_T4_v3", "T4", 16, 1, 4, 28, 0.526),
    MachineType("Standard_NC8as_T4_v3", "T4", 16, 1, 8, 56, 0.752),
    MachineType("Standard_NC16as_T4_v3", "T4", 16, 1, 16, 110, 1.204),
    MachineType("Standard_NC64as_T4_v3", "T4", 16, 4, 64, 440, 4.352),
    MachineType("Standard_NV36ads_A10_v5", "A10", 24, 1, 36, 440, 3.2),
    MachineType("Standard_NV72ads_A10_v5", "A10", 24, 2, 72, 880, 6.52),
    MachineType("Standard_NC6s_v3", "V100", 16, 1, 6, 112, 3.06),
    MachineType("Standard_NC12s_v3", "V100", 16, 2, 12, 224, 6.12),
    MachineType("Standard_NC24s_v3", "V100", 16, 4, 24, 448, 12.24),
    MachineType("Standard_NC24ads_A100_v4", "A100", 80, 1, 24, 220, 3.673),
    MachineType("Standard_NC48ads_A100_v4", "A100", 80, 2, 48, 440, 7.346),
    MachineType("Standard_NC96ads_A100_v4", "A100", 80, 4, 96, 880, 14.692),
    MachineType("Standard_ND96asr_v4", "A100", 40, 8, 96, 900, 27.197),
    MachineType("Standard_ND96amsr_A100_v4", "A100", 80, 8, 96, 1800, 32.77),
    MachineType("Standard_NC40ads_H100_v5", "H100", 94, 1, 40, 320, 6.98),
    MachineType("Standard_NC80adis_H100_v5", "H100", 94, 2, 80, 640, 13.96),
    MachineType("Standard_ND96isr_H100_v5", "H100", 80, 8, 96, 1900, 98.32),
)
CATALOGUE = Catalogue(_ROWS, region="eastus", source="skypilot-catalog v6", lacks="spot prices")
