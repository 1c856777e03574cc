"""`bench`: what the everyday paths cost on this machine. The scenarios are with the tests, so it wants a checkout of the sources."""

import math
import subprocess
import sys
from pathlib import Path

from federator.kernel.errors import Invalid

CHECKOUT = Path(__file__).resolve().parents[2]


def bench(
    *scenarios: str, runs: int = 3, report: Path | None = None, remark: str = "", scale: float = 1.0
) -> int:
    """Measure submission, start and end of jobs, memory and more, on real processes; beside a real Slurm where one is installed.

    Takes some ten minutes, and wants a machine that does nothing else. Works in a checkout of Federator's sources.

    Parameters
    ----------
    scenarios:
        All, or some of those in tests/bench/scenarios.
    runs:
        How often each is measured; medians are shown.
    report:
        Write the results to this Markdown file, too.
    remark:
        A line for the report, such as what else the machine did meanwhile.
    scale:
        How much work, of the usual: below 1 for a quick look.
    """
    if runs < 1:
        raise Invalid("must be at least 1", field="--runs", remedy="write how often each is measured")
    if not 0 < scale < math.inf:
        raise Invalid("must be a number above 0", field="--scale", remedy="write 1 for the usual work")
    if not (CHECKOUT / "tests" / "bench" / "__main__.py").exists():
        raise Invalid(
            "the benchmarks are not part of an installed Federator",
            remedy="run federator bench from a checkout of its sources, with `make dev`",
        )
    command = [sys.executable, "-m", "tests.bench", *scenarios, f"--runs={runs}", f"--scale={scale}"]
    command += [f"--report={report.resolve()}"] if report else []
    command += [f"--remark={remark}"] if remark else []
    return subprocess.run(command, cwd=CHECKOUT, check=False).returncode
