"""The page of the solver's files, from the records that read and write them."""

from federator.cli.schema import SCHEMAS
from federator.wire import solver_plan, solver_problem
from tools.record_docs import Schema, fields, one_line, page, paths


def solver_files() -> str:
    """The files of `federator solver`: problems and plans, field by field."""
    problem, plan = SCHEMAS["solver-problem"](), SCHEMAS["solver-plan"]()
    rules = {name for name, path in paths(problem).items() if path.startswith("rules")}
    return page([
        "# The solver's files",
        ("`federator solver run PROBLEM -o PLAN` decides a problem file, `federator solver check PROBLEM PLAN` judges a plan by it. "
        "Any program may write either; `federator decisions show ID --problem FILE` writes the problem of a recorded decision. "
        "Both are JSON, or gzip of it. JSON Schemas: [problem](solver-problem.schema.json), [plan](solver-plan.schema.json). "
        "How plans are made and priced is told in [planning](../explanation/planning.md)."),
        ("Names end in their units: `_at` seconds since the epoch (UTC), `_s` seconds, `_h` hours, `_usd` US dollars, `_mib` MiB, "
        "`_milli` thousandths of a core. A field that is not listed is refused, with its path."),
        "## The problem",
        (solver_problem.__doc__ or "").split("\n\n", 1)[1].strip(),
        *tables(problem, ["ProblemFile", *(name for name in paths(problem) if name not in rules)]),
        "## Rules",
        "What policies compile into. `limit` of a cap is in the unit that its `unit` names.",
        *tables(problem, [name for name in paths(problem) if name in rules]),
        "## The plan",
        (solver_plan.__doc__ or "").split("\n\n", 1)[1].strip(),
        *tables(plan, ["PlanFile", *paths(plan)]),
    ])  # fmt: skip


def tables(schema: Schema, names: list[str]) -> list[str]:
    """A heading, words and a table for each of these records."""
    return [
        part
        for name in names
        for part in (
            f"### {name}",
            one_line(schema["$defs"][name]["description"]),
            fields(schema, name, lambda other: f"[{other}](#{other.lower()})"),
        )
    ]
