"""`python -m tests.testbeds.kubernetes`: a cluster to play with, until Ctrl-C; with `figures`, what the runtime costs at one."""

import signal
import sys

from tests.testbeds.kubernetes import figures
from tests.testbeds.kubernetes.cluster import missing
from tests.testbeds.kubernetes.shared import testbed


def main() -> int:
    """Keep it up, or measure."""
    if lack := missing():
        sys.stderr.write(f"{lack}\n")
        return 1
    if sys.argv[1:] == ["figures"]:
        return figures.main()
    bed = testbed()
    assert bed.cluster is not None
    sys.stdout.write(
        f"export KUBECONFIG={bed.cluster.folder / 'admin.kubeconfig'} FEDERATOR_TEST_IMAGE={bed.image}\n"
    )
    sys.stdout.flush()
    signal.sigwait([signal.SIGINT, signal.SIGTERM])
    return 0


if __name__ == "__main__":
    sys.exit(main())
