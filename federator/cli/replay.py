"""`decisions replay`: decide recorded problems again, here, and say whether the same plans came out.

A plan follows from its problem, the seed and the stages that completed, on one build. So an operator can prove on a laptop that a decision was what
the code makes of what was seen, and whoever changes the code sees at which decisions it now decides differently.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from cyclopts import Parameter, validators

from federator.cli.exit_codes import FAILED, OK
from federator.cli.layout import Column
from federator.cli.output import Output, show_data, show_rows
from federator.cli.phrases import plain
from federator.cli.planner import ready_planner
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import Invalid
from federator.model.plans import Plan
from federator.model.snapshot import Problem
from federator.planning.plans.differences import completed, differences
from federator.wire.faults import told_in
from federator.wire.jsontext import read
from federator.wire.named_files import read_whole
from federator.wire.solver_files import MOST_BYTES, read_problem, unpacked

if TYPE_CHECKING:
    from federator.client import Verbs

FILES = (".json", ".gz")
ANOTHER_BUILD = "what another build has recorded may differ; --at-dispatcher lets the dispatcher decide it again by its own"


class Recorded(NamedTuple):
    """A decision as it was recorded: its id, what it was made of, and what came out."""

    name: str
    problem: Problem
    plan: Plan


class _Verdict(msgspec.Struct, frozen=True):
    """What came of one replay."""

    decision: str
    identical: bool
    actions: int
    waiting: int
    stages: tuple[str, ...]
    differences: list[str]


def replay(
    *decisions: str,
    last: Annotated[int | None, Parameter(validator=validators.Number(gte=1, lte=10_000))] = None,
    at_dispatcher: Annotated[bool, Parameter(negative="")] = False,
    output: Output = "table",
    connection: Connection = HERE,
) -> int:
    """Decide recorded problems again; exits 1 if a plan is not the same byte for byte, and says where it differs.

    It is done here, by this build, with the stages that completed at the time; the dispatcher is asked for the records only.

    Parameters
    ----------
    decisions:
        Ids of recorded decisions, or files of `federator decisions show ID --problem FILE`.
    last:
        The newest so many.
    at_dispatcher:
        Let the dispatcher decide again, by its own build.
    """
    found = recorded(decisions, last, connection, "federator decisions replay --last 20")
    if not at_dispatcher:
        ready_planner()
    verdicts = [_at_dispatcher(each, connection) if at_dispatcher else _decided_again(each) for each in found]
    different = [verdict for verdict in verdicts if not verdict.identical]
    if output in ("json", "yaml"):
        show_data(verdicts, output)
    elif len(verdicts) == 1 and not different:
        print("identical")
    else:
        show_rows(verdicts, _columns(), output, empty="no recorded decisions")
    if output not in ("json", "yaml"):
        for verdict in different:
            print(f"{plain(verdict.decision)} is different:")
            for line in verdict.differences:
                print(f"  {plain(line)}")
        if different and not at_dispatcher:
            print(ANOTHER_BUILD, file=sys.stderr)
    return FAILED if different else OK


def _decided_again(recorded: Recorded) -> _Verdict:
    from federator.solving.decide import decide

    stages = tuple(stage.stage for stage in completed(recorded.plan).stages)
    again = decide(recorded.problem, seed=recorded.plan.seed, stages=stages)
    return _verdict(recorded, differences(recorded.problem, recorded.plan, again))


def _at_dispatcher(recorded: Recorded, connection: Connection) -> _Verdict:
    answer, _ = ask(connection, lambda client: client.replay(recorded.name))
    return _verdict(recorded, list(answer.differences))


def _verdict(recorded: Recorded, found: list[str]) -> _Verdict:
    plan = recorded.plan
    stages = tuple(stage.stage for stage in completed(plan).stages)
    return _Verdict(recorded.name, not found, len(plan.actions), len(plan.waiting), stages, found)


def recorded(
    names: tuple[str, ...], last: int | None, connection: Connection, example: str
) -> Iterator[Recorded]:
    """Those that are named, or the last so many, one after another, for each may be large. Raises `Invalid`, with the example, unless it is one of the two."""
    if (last is None) == (not names):
        raise Invalid("name decisions, or say how many of the last", field="DECISIONS", remedy=example)
    return _each(names, last, connection)


def _each(names: tuple[str, ...], last: int | None, connection: Connection) -> Iterator[Recorded]:
    if last is not None:
        rows, _ = ask(connection, lambda client: client.decisions(last=last))
        names = tuple(row.id for row in rows)
    for name in names:
        if Path(name).suffix in FILES:
            yield _of_file(Path(name))
        else:
            answer, _ = ask(connection, lambda client, name=name: _asked(client, name))  # type: ignore[misc]
            yield _taken(name, answer)


async def _asked(client: "Verbs", name: str) -> dict[str, Any]:
    return await client.decision(name)


def _taken(name: str, answer: dict[str, Any]) -> Recorded:
    return Recorded(name, msgspec.convert(answer["problem"], Problem), msgspec.convert(answer["plan"], Plan))


def _of_file(path: Path) -> Recorded:
    """A problem file with the plan that was recorded, or what `decisions show --json` has written."""
    with told_in(path):
        content = unpacked(read_whole(path, most_bytes=MOST_BYTES))
    try:
        told = read(content, object)
    except msgspec.DecodeError as error:
        raise Invalid(f"this is not JSON: {error}", field=str(path)) from None
    remedy = "write one with 'federator decisions show ID --problem FILE'"
    try:
        if not isinstance(told, dict):
            raise Invalid("is not a recorded decision", field=str(path), remedy=remedy)
        if {"problem", "plan"} <= told.keys():
            return _taken(told["plan"]["decision"], told)
        with told_in(path):
            problem = read_problem(content)
        if told.get("recorded") is None:
            raise Invalid("has a problem, but no recorded plan", field=str(path), remedy=remedy)
        return Recorded(problem.decision, problem, msgspec.convert(told["recorded"], Plan))
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise Invalid(f"is not a recorded decision: {error}", field=str(path), remedy=remedy) from None


def _columns() -> tuple[Column[_Verdict], ...]:
    return (
        Column("DECISION", lambda row: row.decision),
        Column("REPLAYED", lambda row: "identical" if row.identical else "different"),
        Column("ACTIONS", lambda row: str(row.actions), right=True),
        Column("WAITING", lambda row: str(row.waiting), right=True),
        Column("STAGES", lambda row: ", ".join(row.stages)),
    )
