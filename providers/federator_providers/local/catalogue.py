"""What real clouds ask for GPU machines, so that a local trial burns believable amounts of pretended money.

A choice from the catalogues of `aws` and `gce`, which name the source and date of each price. Boot delays are not in any list: three
minutes is our assumption for a machine with its driver, until a provider measures its own.
"""

from federator_providers.aws.catalogue import CATALOGUE as AWS
from federator_providers.gce.catalogue import CATALOGUE as GCE

BOOT_DELAY_S = 180.0

_AWS = (
    "g4dn.xlarge", "g6.xlarge", "g5.xlarge", "g5.12xlarge", "g6e.xlarge", "p3.8xlarge",
    "p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge",
)  # fmt: skip
_GCE = ("a2-highgpu-1g", "a2-highgpu-4g", "a3-highgpu-1g", "a3-highgpu-8g")

CATALOGUE = {name: AWS.rows[name] for name in _AWS} | {name: GCE.rows[name] for name in _GCE}
