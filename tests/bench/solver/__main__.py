"""`python -m tests.bench.solver`: measures one size."""

import argparse
import sys
import time
from pathlib import Path

from federator.cli.planner import ready_planner
from federator.wire.solver_files import from_problem, write
from tests.bench.solver.instances import Instance, Parameters
from tests.bench.solver.measure import measure, text
from tests.bench.solver.page import updated


def main() -> int:
    """Measure one size; or only write its problem."""
    given = _parser().parse_args()
    instance = Instance(Parameters(given.jobs, given.sites, given.classes, given.seed))
    if given.problem is not None:
        file = from_problem(instance.problem())
        given.problem.write_bytes(write(file, packed=given.problem.suffix == ".gz"))
        print(instance.parameters.described())
        return 0
    ready_planner()
    begun = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - begun:6.0f} s  {what}", file=sys.stderr, flush=True)

    report = measure(
        instance,
        turns=given.turns,
        baselines=not given.no_baselines,
        certificate=not given.no_certificate,
        say=say,
    )
    print(text(instance, report))
    if given.report is not None:
        given.report.write_text(updated(given.report, instance, report, _command(given)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.solver", description="Measure the planner's turns."
    )
    parser.add_argument("--jobs", type=_positive, required=True, help="how many wait")
    parser.add_argument(
        "--sites", type=_positive, required=True, help="40 %% on premises, 30 %% clouds, 30 %% edges"
    )
    parser.add_argument(
        "--classes", type=_positive, help="of identical jobs; by default an eighth of the jobs"
    )
    parser.add_argument("--seed", type=int, default=0, help="another one makes another federation")
    parser.add_argument("--turns", type=_positive, default=10, help="how many are measured")
    parser.add_argument("--no-baselines", action="store_true", help="measure no simpler rules")
    parser.add_argument(
        "--no-certificate", action="store_true", help="prove no bound: with 100,000 jobs that takes minutes"
    )
    parser.add_argument(
        "--report", type=Path, help="write the results to this Markdown file: a section for each size"
    )
    parser.add_argument(
        "--problem", type=Path, help="only write the first turn's problem, for `federator solver run`"
    )
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _command(given: argparse.Namespace) -> str:
    """What was asked, as it is typed; the report's own place is nobody's business."""
    words = ["python -m tests.bench.solver", f"--jobs {given.jobs}", f"--sites {given.sites}"]
    words += [f"--classes {given.classes}"] if given.classes else []
    words += [f"--seed {given.seed}", f"--turns {given.turns}"]
    words += ["--no-baselines"] if given.no_baselines else []
    words += ["--no-certificate"] if given.no_certificate else []
    return " ".join(words)


sys.exit(main())
