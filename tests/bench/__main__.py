"""`federator bench`, from a checkout: runs the scenarios, shows a table, and writes the page of the docs."""

import argparse
import asyncio
import sys
import time
from pathlib import Path

from tests.bench.harness import SCENARIOS, load, run_all
from tests.bench.report import page, text_table


def main() -> int:
    """Run what is asked for. 0: all scenarios did their work, however fast."""
    parser = argparse.ArgumentParser(
        prog="federator bench", description="Measure the everyday paths on this machine."
    )
    parser.add_argument(
        "scenarios", nargs="*", metavar="SCENARIO", help=f"all, or some of: {', '.join(SCENARIOS)}"
    )
    parser.add_argument("--runs", type=int, default=3, help="of each scenario; medians are reported")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the results to this Markdown file")
    parser.add_argument(
        "--remark", default="", help="a line for the report, such as what else the machine did"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="how much work, of the usual: below 1 for a quick look"
    )
    given = parser.parse_args()
    if unknown := set(given.scenarios) - set(SCENARIOS):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    scenarios = [load(name) for name in given.scenarios or SCENARIOS]
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:6.0f} s  {text}", file=sys.stderr, flush=True)

    results = asyncio.run(run_all(scenarios, runs=given.runs, say=say, scale=given.scale))
    print(text_table(results))
    if given.report:
        given.report.write_text(page(results, scenarios, runs=given.runs, remark=given.remark))
        say(f"written to {given.report}")
    return 0


sys.exit(main())
