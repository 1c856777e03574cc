"""`make soak`: a federation works for some minutes, an hour of its own time in each, and what it uses must not grow.

python -m tests.soak --minutes 10 --seed 1
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from federator.kernel.errors import FederatorError
from tests.soak.growth import growth
from tests.soak.soak import Soak


def main() -> int:
    """Run it; 1 when anything has grown beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="real ones")
    parser.add_argument("--seed", type=int, default=1, help="of the work that comes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="federator-soak-") as folder:
        soak = Soak(Path(folder) / "world", given.seed)
        try:
            verdict = asyncio.run(soak.soak(60 * given.minutes, lambda text: print(text, flush=True)))
        except FederatorError:
            print(soak.log_tail())
            raise
    found = growth(soak.samples)
    print(f"{verdict.jobs} jobs, {len(soak.samples)} looks; second quarter and last, medians:")
    for each in found:
        print(f"  {each.measure:32} {each.second:10.1f} {each.last:10.1f}{'  GROWS' if each.leaks else ''}")
    return 1 if any(each.leaks for each in found) else 0


sys.exit(main())
