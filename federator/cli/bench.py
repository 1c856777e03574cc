"""`bench`: what the everyday paths cost on this machine. The scenarios are with the tests, so it wants a checkout of the sources."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from federator.cli.planner import ready_planner
from federator.kernel.errors import Invalid

CHECKOUT = Path(__file__).resolve().parents[2]

app = App(name="bench", help="What the everyday paths, and the optimizer's turns, cost on this machine.")


@app.default
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
    command = [*_program("tests.bench"), *scenarios, f"--runs={runs}", f"--scale={scale}"]
    command += [f"--report={report.resolve()}"] if report else []
    command += [f"--remark={remark}"] if remark else []
    ready_planner()
    return subprocess.run(command, cwd=CHECKOUT, check=False).returncode


@app.command
def solver(
    *,
    jobs: int,
    sites: int,
    classes: int | None = None,
    seed: int = 0,
    turns: int = 10,
    baselines: bool = True,
    certificate: bool = True,
    report: Path | None = None,
    problem: Annotated[Path | None, Parameter(name="--problem")] = None,
) -> int:
    """Measure warm turns of the optimizer under 3 % churn, and what they decide beside simpler rules, against a proven bound.

    Needs no dispatcher and starts no process. Works in a checkout of Federator's sources.

    Parameters
    ----------
    jobs:
        How many wait.
    sites:
        How many sites there are: four in ten on premises, three clouds, three edges.
    classes:
        Of identical jobs; an eighth of the jobs when left out.
    seed:
        Another one makes another federation.
    turns:
        So many are measured.
    baselines:
        Also decide by greedy, first-fit, random, cheapest-first, race and CP-SAT with a variable per job.
    certificate:
        Prove a bound of the whole line, and tell how far decisions are from it. With a hundred thousand jobs that takes minutes.
    report:
        Write the results to this Markdown file, too: a section for each size, beside those of other sizes that are there.
    problem:
        Only write the first turn's problem to this file, as `federator solver run` takes it.
    """
    for name, value, least in (
        ("jobs", jobs, 1),
        ("sites", sites, 1),
        ("classes", classes or 1, 1),
        ("turns", turns, 1),
    ):
        if value < least:
            raise Invalid(f"must be at least {least}", field=f"--{name}", remedy="write how many")
    command = [
        *_program("tests.bench.solver"),
        f"--jobs={jobs}",
        f"--sites={sites}",
        f"--seed={seed}",
        f"--turns={turns}",
    ]
    command += [f"--classes={classes}"] if classes else []
    command += [f"--problem={problem.resolve()}"] if problem else []
    command += [f"--report={report.resolve()}"] if report else []
    command += [] if baselines else ["--no-baselines"]
    command += [] if certificate else ["--no-certificate"]
    ready_planner()
    return subprocess.run(command, cwd=CHECKOUT, check=False).returncode


def _program(module: str) -> list[str]:
    """How to run a module of the tests; raises `Invalid` where they are not."""
    if not (CHECKOUT / "tests" / "bench" / "__main__.py").exists():
        raise Invalid(
            "the benchmarks are not part of an installed Federator",
            remedy="run federator bench from a checkout of its sources, with `make dev`",
        )
    return [sys.executable, "-m", module]
