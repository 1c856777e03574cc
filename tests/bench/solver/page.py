"""The report as a page: a section for each size of work. Measured again, a section replaces the one of the same size."""

import os
import platform
import re
import time
from pathlib import Path

from federator import __version__
from tests.bench.report import cpu_model, line, memory_gib
from tests.bench.solver.goals import judged
from tests.bench.solver.instances import Instance
from tests.bench.solver.measure import Report, text

INTRODUCTION = """\
# Benchmarks of the planner

<!-- Written by `python -m tests.bench.solver --report`: do not edit. What the figures mean is in planning.md. -->

What turns of the planner cost on synthetic federations, and what they decide is worth beside simpler rules, section by section as `python -m tests.bench.solver`
measured it. [How it plans](planning.md) says what a turn is.

*Turn*: the window of the line, the problem to the solver and its plan back, the decision, the check; *warm*: under 3 % churn. Seconds are of the processor.
*Decision gap*: what a plan starts now is fixed, all else completed as well as a fluid future allows, over a bound that is proven for the whole line, less one; a
turn of a long line decides on a window of it, and the rest of the line stands in the gap, too. *What the certificate leaves open*: the best fluid plan that is
known over the same bound, less one: so much of every gap may be the certificate's own. The rules have no window. *Times as long* compares with the planner's median turn in
the same run. None of the rules rents; per-job CP-SAT may.

Each section says when it was measured. Those of 2026-11-23 are older than [one judge of the future](../decisions/0044-one-judge-of-the-future.md), which has the times and
gaps of its own change, side by side, and than [what a gap must not count](../decisions/0048-gaps-and-free-capacity.md). Those of 2026-11-28 were measured while some
fifteen other processes used the two cores, which makes seconds of the processor longer, by up to a half: their gaps are what counts. A build without [rentals weighed at once](../decisions/0044-one-judge-of-the-future.md) has the same
gaps; for one recorded window of 10,000 × 50 its decision takes 319 ms at least where this build's takes 250, four tries each in one run.
"""
HEADER = ("figure", "floor", "goal", "measured", "")
RULES = ("decided by", "time", "times as long", "starts", "decision gap")


def updated(path: Path, instance: Instance, report: Report, command: str) -> str:
    """The page with this run's section in it: others stay as they are."""
    known = sections(path.read_text()) if path.exists() else {}
    known[_title(instance)] = section(instance, report, command)
    ordered = sorted(known.items(), key=lambda each: _size(each[0]))
    return "\n".join([INTRODUCTION, *(f"## {title}\n\n{body.strip()}\n" for title, body in ordered)])


def sections(page: str) -> dict[str, str]:
    """What stands under each heading."""
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def section(instance: Instance, report: Report, command: str) -> str:
    """One run."""
    goals = [line(row) for row in (HEADER, ("---",) * len(HEADER), *judged(instance.parameters, report))]
    turn_s = next((each.took_s for each in report.judged if each.name == "planner"), 0.0)
    rules = [line(row) for row in (RULES, ("---",) * len(RULES))]
    for each in report.judged:
        gap = each.note or ("–" if each.gap is None else f"{100 * each.gap:.2f} %")
        times = f"{each.took_s / turn_s:.2f}" if turn_s and each.name != "planner" else ""
        rules.append(line((each.name, f"{1000 * each.took_s:,.0f} ms", times, f"{each.starts:,}", gap)))
    told = text(instance, report).partition("\n\n")[0]
    return "\n".join(
        [
            f"- `{command}`",
            f"- {time.strftime('%Y-%m-%d', time.gmtime())}, {os.cpu_count()} cores, {memory_gib():.0f} GiB, {cpu_model()}, Federator {__version__}, Python {platform.python_version()}",
            *(f"- {each}" for each in told.splitlines()),
            "",
            *goals,
            "",
            *(rules if report.judged else ()),
        ]
    )


def _title(instance: Instance) -> str:
    it = instance.parameters
    seed = f", seed {it.seed}" if it.seed else ""
    return f"{it.jobs:,} jobs × {it.sites:,} sites, {it.kinds:,} classes{seed}"


def _size(title: str) -> tuple[int, ...]:
    return tuple(int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?<!,)", title))
