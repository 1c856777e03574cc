"""`make histories`: seeded histories of what clients are told while dispatchers, members of etcd, links, disks and clocks fail, and a judge.

python -m tests.histories --seeds 200 --from 0
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.histories.play import play


def main() -> int:
    """Play them; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many histories")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--folder", type=Path, help="where, kept afterwards; else in one that is removed")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    with tempfile.TemporaryDirectory(prefix="federator-histories-") as folder:
        figures = asyncio.run(play((given.folder or Path(folder)) / "world", seeds, _say))
    _say(str(figures))
    return 1 if figures.wrong else 0


def _say(text: str) -> None:
    print(text, flush=True)


sys.exit(main())
