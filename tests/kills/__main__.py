"""`make kills`: storms of seeded kills, one after another. A failing seed prints itself and every fault.

python -m tests.kills --kills 200 --seed 1     200 kills of each kind, in storms of 100 kills
"""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.kills.storm import KINDS, Storm

EACH = 10
"""Kills of each kind in one storm."""


def main() -> int:
    """Run the storms; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of each kind, in all")
    parser.add_argument("--seed", type=int, default=1, help="of the first storm; the next ones count up")
    parser.add_argument("--kinds", default=",".join(KINDS), help="which ones, with commas between them")
    given = parser.parse_args()
    kinds = given.kinds.split(",")
    total: Counter[str] = Counter()
    faults = 0
    for number in range(-(-given.kills // EACH)):
        seed = given.seed + number
        with tempfile.TemporaryDirectory(prefix="federator-kills-") as folder:
            verdict = asyncio.run(Storm(Path(folder) / "world", seed).run(dict.fromkeys(kinds, EACH), print))
        total += verdict.kills
        faults += len(verdict.faults)
        print(
            f"seed {seed}: {sum(verdict.kills.values())} kills, {verdict.jobs} jobs, {verdict.attempts} attempts, "
            f"{verdict.leases} leases, {verdict.spent_usd:.2f} USD, {len(verdict.faults)} faults",
            flush=True,
        )
        for fault in verdict.faults:
            print(f"  seed {seed}: {fault}", flush=True)
        print("so far: " + ", ".join(f"{kind} {count}" for kind, count in sorted(total.items())), flush=True)
    return 1 if faults else 0


sys.exit(main())
