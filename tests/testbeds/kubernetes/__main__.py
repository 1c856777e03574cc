"""`python -m tests.testbeds.kubernetes`: a cluster to play with, until Ctrl-C; with `kueue SOURCES`, one that has Kueue; with `multikueue SOURCES`, a manager and two workers that have; with `figures`, what the runtime costs at one; with `endings`, whether work leaves Kueue's quota behind at that of `KUBECONFIG`."""

import contextlib
import signal
import sys
from pathlib import Path

from tests.testbeds.kubernetes import endings, figures, multikueue
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
    if sys.argv[1:2] == ["multikueue"]:
        with multikueue.fleet(Path(sys.argv[2])) as folder:
            return _stay(f"export {multikueue.VARIABLE}={folder}")
    bed = testbed()
    assert bed.cluster is not None
    if sys.argv[1:2] == ["kueue"]:
        start_kueue(bed.cluster, Path(sys.argv[2]))
    return _stay(
        f"export KUBECONFIG={bed.cluster.folder / 'admin.kubeconfig'} FEDERATOR_TEST_IMAGE={bed.image}"
    )


def _stay(said: str) -> int:
    """Until Ctrl-C or SIGTERM. `sigwait` does not see what a thread of a library is given."""
    with contextlib.suppress(KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        sys.stdout.write(f"{said}\n")
        sys.stdout.flush()
        signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
