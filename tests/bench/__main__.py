"""`python -m tests.bench`, from a checkout: runs the scenarios, shows a table, and writes the page of the docs."""

import argparse
import asyncio
import math
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from federator.cli.planner import ready_planner
from tests.bench.figures import Results
from tests.bench.harness import SCENARIOS, Scenario, load, run_all
from tests.bench.report import page, text_table


def main() -> int:
    """Run what is asked for. 0: all scenarios did their work, however fast."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Measure the everyday paths on this machine."
    )
    parser.add_argument(
        "scenarios", nargs="*", metavar="SCENARIO", help=f"all, or some of: {', '.join(SCENARIOS)}"
    )
    parser.add_argument("--runs", type=int, default=3, help="of each scenario; medians are reported")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the results to this Markdown file")
    parser.add_argument("--title", default="Benchmarks", help="of the report")
    parser.add_argument(
        "--remark", default="", help="a line for the report, such as what else the machine did"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="how much work, of the usual: below 1 for a quick look"
    )
    given = parser.parse_args()
    if unknown := set(given.scenarios) - set(SCENARIOS):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    if given.runs < 1:
        parser.error("--runs must be at least 1")
    if not 0 < given.scale < math.inf:
        parser.error("--scale must be a number above 0")
    ready_planner()
    scenarios = [load(name) for name in given.scenarios or SCENARIOS]
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:6.0f} s  {text}", file=sys.stderr, flush=True)

    try:
        results = asyncio.run(_measure(scenarios, given, say))
    except (asyncio.CancelledError, KeyboardInterrupt):
        return 130
    print(text_table(results))
    if given.report:
        given.report.write_text(
            page(results, scenarios, runs=given.runs, remark=given.remark, title=given.title)
        )
        say(f"written to {given.report}")
    return 0


async def _measure(
    scenarios: list[Scenario], given: argparse.Namespace, say: Callable[[str], None]
) -> Results:
    """All of it. Told to end, it ends what it has started first, as on Ctrl-C."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run_all(scenarios, runs=given.runs, say=say, scale=given.scale)


sys.exit(main())
