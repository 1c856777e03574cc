"""`python -m tests.testbeds.kubernetes`: a cluster to play with, until Ctrl-C; with `kueue SOURCES`, one that has Kueue; with `figures`, what the runtime costs at one; with `endings`, whether work leaves Kueue's quota behind at that of `KUBECONFIG`."""

import signal
import sys
from pathlib import Path

from tests.testbeds.kubernetes import endings, figures
from tests.testbeds.kubernetes.cluster import missing
from tests.testbeds.kubernetes.kueue import start_kueue
from tests.testbeds.kubernetes.shared import testbed


def main() -> int:
    """Keep it up, or measure."""
    if sys.argv[1:2] == ["endings"]:
        return endings.main(int((sys.argv[2:] or ["500"])[0]))
    if lack := missing():
        sys.stderr.write(f"{lack}\n")
        return 1
    if sys.argv[1:] == ["figures"]:
        return figures.main()
    bed = testbed()
    assert bed.cluster is not None
    if sys.argv[1:2] == ["kueue"]:
        start_kueue(bed.cluster, Path(sys.argv[2]))
    sys.stdout.write(
        f"export KUBECONFIG={bed.cluster.folder / 'admin.kubeconfig'} FEDERATOR_TEST_IMAGE={bed.image}\n"
    )
    sys.stdout.flush()
    signal.sigwait([signal.SIGINT, signal.SIGTERM])
    return 0


if __name__ == "__main__":
    sys.exit(main())
