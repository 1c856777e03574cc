"""`solver`: the optimizer as a tool of its own, on files that any program may write. It asks no dispatcher."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import App, Parameter
from rich.console import RenderableType
from rich.text import Text

from federator.cli.exit_codes import FAILED, OK
from federator.cli.layout import Column, table
from federator.cli.output import Output, facts, say, show, show_data, width
from federator.cli.phrases import counted, usd
from federator.cli.planner import ready_planner
from federator.kernel.errors import Invalid
from federator.model.plans import Finding, Severity
from federator.solving.frames import STAGES
from federator.wire.faults import told_in
from federator.wire.named_files import read_whole
from federator.wire.solver_files import MOST_BYTES, read_plan, read_problem, write
from federator.wire.solver_plan import Objective, PlanFile

if TYPE_CHECKING:
    from federator.solving.plan_check import Verdict

PACKED = ".gz"
T = TypeVar("T")

app = App(name="solver")


@app.command
def run(
    problem: Path,
    *,
    output: Annotated[Path | None, Parameter(name=("-o", "--output"))] = None,
    seed: int = 0,
    certify: Annotated[bool, Parameter(negative="")] = False,
    stages: str = ",".join(STAGES),
) -> None:
    """Decide a problem file and write the plan: the same plan for the same problem, seed and stages, on the same build.

    Parameters
    ----------
    problem:
        A problem file, JSON or gzip of it: of `federator decisions show ID --problem FILE`, or of any program.
    output:
        Where the plan goes; packed with gzip where the name ends in .gz. Left out: on the screen, as JSON.
    seed:
        For stages that leave something to chance.
    certify:
        Prove a lower bound, and say how far the decisions of now are from it.
    stages:
        Those that may run, with commas in between: greedy, lead, lp. Greedy always runs.
    """
    from federator.solving.offline import run as decide

    wanted = tuple(stages.replace(" ", "").split(","))
    if unknown := [stage for stage in wanted if stage not in STAGES]:
        raise Invalid(f"no stage {unknown[0]!r}", field="--stages", remedy=f"there are {', '.join(STAGES)}")
    seen = _read(problem, read_problem)
    ready_planner()
    plan = decide(
        seen,
        clock=time.perf_counter,
        seed=seed,
        stages=tuple(stage for stage in STAGES if stage in wanted),
        proven=certify,
    )
    if output is None:
        show_data(plan, "json", as_it_is=True)
        return
    output.write_bytes(write(plan, packed=output.suffix == PACKED))
    gap = plan.certificate.gap if plan.certificate is not None else None
    certified = f", decision gap {100 * gap:.2f} %" if gap is not None else ""
    say(f"{output}: {_summary(plan)}{certified}")


@app.command
def check(problem: Path, plan: Path, *, output: Output = "table") -> int:
    """Judge a plan file by its problem file; exits 1 if it breaks a rule, or if its objective or its certificate is not what it says.

    The checker shares no code with the solver, and the objective is reckoned from these two files alone. A certificate is proven again, which takes as long as it took; where the plan has none, nothing is proven.
    """
    from federator.solving.plan_check import judge

    file = _read(plan, read_plan)
    seen = _read(problem, read_problem)
    ready_planner()
    with told_in(plan):
        verdict = judge(seen, file)
    fatal = [finding for finding in verdict.findings if finding.severity is Severity.FATAL]
    valid = not fatal and not verdict.differences
    if output in ("json", "yaml"):
        answer = {
            "valid": valid,
            "findings": verdict.findings,
            "objective": verdict.objective,
            "differences": verdict.differences,
            "certificate": verdict.certificate,
        }
        show_data(answer, "yaml" if output == "yaml" else "json")
    else:
        show(*_drawn(file, verdict, fatal, wide=output == "wide"))
    return OK if valid else FAILED


def _read(path: Path, read: Callable[[bytes], T]) -> T:
    with told_in(path):
        return read(read_whole(path, most_bytes=MOST_BYTES))


def _summary(plan: PlanFile) -> str:
    counts = {what: sum(each.does == what for each in plan.assignments) for what in ("start", "rent", "wait")}
    what = f"{counts['start']} start, {counts['rent']} rented for, {counts['wait']} wait"
    return f"{what}; {usd(plan.objective.total_usd)} by {plan.winner}"


def _drawn(plan: PlanFile, verdict: "Verdict", fatal: list[Finding], *, wide: bool) -> list[RenderableType]:
    """The verdict first, then what is wrong, then what the plan costs."""
    word = f"not valid: {counted(len(fatal), 'violation')}" if fatal else "valid"
    remarks = counted(len(verdict.findings) - len(fatal), "remark")
    wrong = [name for name in verdict.differences if name.startswith("certificate")]
    money = "as the plan says" if wrong == [*verdict.differences] else "not what the plan says"
    lines = [("plan", f"{word}, {remarks}"), ("does", _summary(plan)), ("objective", money)]
    parts: list[RenderableType] = [facts([*lines, ("certificate", _proven(plan, verdict, wrong))])]
    if verdict.findings:
        parts += [
            Text("\nFindings", style="bold"),
            table(verdict.findings, FINDINGS, width=width(), wide=wide),
        ]
    rows = [_Term(name, plan.objective, verdict) for name in Objective.__struct_fields__]
    return [*parts, Text("\nObjective", style="bold"), table(rows, TERMS, width=width(), wide=wide)]


def _proven(plan: PlanFile, verdict: "Verdict", wrong: list[str]) -> str:
    """What is proven of the plan, whatever it says."""
    if plan.certificate is None:
        return "none: nothing is proven"
    found = verdict.certificate
    if found is None:
        return "not proven: the model is not solved within its limit"
    above = "no gap to tell" if found.gap is None else f"decision gap {100 * found.gap:.2f} %"
    told = f"{above} over the model's bound of {usd(found.model_usd)}; no plan costs less than {usd(found.bound_usd)}"
    fields = ", ".join(name.removeprefix("certificate.") for name in wrong)
    return f"{told}; not what the plan says: {fields}" if fields else f"{told}, as the plan says"


class _Term:
    """One line of the objective: what the plan says, and what it comes to."""

    def __init__(self, name: str, said: Objective, verdict: "Verdict") -> None:
        self.name = name.removesuffix("_usd")
        self.said, self.found = getattr(said, name), getattr(verdict.objective, name)
        self.wrong = name in verdict.differences


FINDINGS: tuple[Column[Finding], ...] = (
    Column(
        "SEVERITY",
        lambda row: Text(row.severity.value, style="bold red" if row.severity is Severity.FATAL else ""),
    ),
    Column("PROMISE", lambda row: str(row.promise), right=True),
    Column("JOB", lambda row: row.subject),
    Column("WHAT IS WRONG", lambda row: row.text, flow="fold"),
)
TERMS: tuple[Column[_Term], ...] = (
    Column("TERM", lambda row: row.name),
    Column("THE PLAN SAYS", lambda row: usd(row.said), right=True),
    Column(
        "IT COMES TO", lambda row: Text(usd(row.found), style="bold red" if row.wrong else ""), right=True
    ),
)
