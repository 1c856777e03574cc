"""`decisions certify`: check recorded decisions again, and prove how good they were. No turn does this: remarks and bounds take longer than a decision."""

from typing import Annotated

import msgspec
from cyclopts import Parameter, validators

from federator.cli.exit_codes import FAILED, OK
from federator.cli.layout import Column
from federator.cli.output import Output, show_data, show_rows
from federator.cli.phrases import plain, usd
from federator.cli.planner import ready_planner
from federator.cli.replay import Recorded, recorded
from federator.cli.session import HERE, Connection
from federator.model.outlook import Proof
from federator.model.plans import Finding, Severity


class _Certified(msgspec.Struct, frozen=True):
    """What was found of one decision; no `proof` where the model has none for it."""

    decision: str
    findings: tuple[Finding, ...]
    proof: Proof | None

    def count(self, severity: Severity) -> int:
        """So many findings of it."""
        return sum(finding.severity is severity for finding in self.findings)


def certify(
    *decisions: str,
    last: Annotated[int | None, Parameter(validator=validators.Number(gte=1, lte=10_000))] = None,
    output: Output = "table",
    connection: Connection = HERE,
) -> int:
    """Check recorded decisions again, with remarks, and prove how good they were; exits 1 if one breaks a promise.

    It is done here, by this build; the dispatcher is asked for the records only. Each takes seconds. The decision gap is of what the turn
    saw: of a long line, its window.

    Parameters
    ----------
    decisions:
        Ids of recorded decisions, or files of `federator decisions show ID --problem FILE`.
    last:
        The newest so many.
    """
    found = recorded(decisions, last, connection, "federator decisions certify --last 20")
    ready_planner()
    rows = [_certified(each) for each in found]
    if output in ("json", "yaml"):
        show_data(rows, output)
    else:
        show_rows(rows, COLUMNS, output, empty="no recorded decisions")
        for row in rows:
            for each in row.findings:
                said = f"{row.decision}: {each.severity.value}: {each.subject}: {each.text}"
                print(plain(f"{said} (promise {each.promise})"))
    return FAILED if any(row.count(Severity.FATAL) for row in rows) else OK


def _certified(given: Recorded) -> _Certified:
    from federator.planning.checks import check
    from federator.solving.plan_check import prove

    problem, plan = given.problem, given.plan
    return _Certified(given.name, check(problem, plan), prove(problem, plan))


COLUMNS: tuple[Column[_Certified], ...] = (
    Column("DECISION", lambda row: row.decision),
    Column("VIOLATIONS", lambda row: str(row.count(Severity.FATAL)), right=True),
    Column("REMARKS", lambda row: str(row.count(Severity.REMARK)), right=True),
    Column("BOUND", lambda row: usd(row.proof.bound_usd) if row.proof else "", right=True),
    Column("GAP", lambda row: f"{100 * row.proof.gap:.2f} %" if row.proof else "", right=True),
)
