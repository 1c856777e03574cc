"""The page and the JSON Schemas of the solver's files, from the records that read and write them."""

import json
from collections.abc import Mapping
from types import ModuleType

import msgspec

from federator.model import datasets, rules
from federator.wire import solver_parts, solver_plan, solver_problem
from federator.wire.solver_parts import MOST_FORMS
from tools.record_docs import Record, page, records

TYPES = {
    "str": "text", "Name": "text, not empty", "int": "whole number", "Count": "whole number from 0", "Ranks": "whole number from 1 to 4,096", "Hosts": "whole number from 1 to 100,000",
    "Bytes": "whole number from 0", "Taken": "whole number from 1",     "float": "number", "Amount": "number from 0", "Used": "number from 0", "Seconds": "number from 0", "Moment": "number from 0", "bool": "`true` or `false`",
    "Market": "`owned`, `on-demand` or `spot`", "tuple[str, ...]": "list of texts", "tuple[Name, ...]": "list of texts, none empty", "tuple[float, ...]": "list of numbers",
    "dict[str, str]": "mapping of texts", "dict[str, float]": "mapping to numbers", "tuple[Rule, ...]": "list of [rules](#rules)",
    "Ratio": "number above 0", "dict[str, Ratio]": "mapping to numbers above 0", "dict[str, Amount]": "mapping to numbers from 0", "Annotated[float, Meta(ge=0)]": "number from 0",
    "Annotated[float, Meta(ge=0, le=1)]": "number from 0 to 1", "Annotated[int, Meta(ge=0)]": "whole number from 0", "Annotated[int, Meta(ge=1)]": "whole number from 1",
    "Annotated[tuple[ProblemForm, ...], Meta(max_length=MOST_FORMS)]": f"list of up to {MOST_FORMS} [ProblemForm](#problemform)",
    "tuple[int, ...]": "list of whole numbers", "tuple[Market, ...]": "list of `owned`, `on-demand` or `spot`", "dict[str, Any]": "a plan as the dispatcher keeps it",
}  # fmt: skip


ENUMS = (rules.Effect, rules.BurstMode, rules.CapUnit, rules.Period, rules.Each, rules.PriceKind)
TYPES |= {kind.__name__: " or ".join(f"`{each.value}`" for each in kind if each.value) for kind in ENUMS}
RULES = records(datasets) | records(rules)
"""Rules, and what they are made of."""


def solver_files() -> str:
    """The files of `federator solver`: problems and plans, field by field."""
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
        *tables("ProblemFile", solver_problem, solver_parts),
        "## Rules",
        "What policies compile into. `limit` of a cap is in the unit that its `unit` names.",
        *rule_tables(),
        "## The plan",
        (solver_plan.__doc__ or "").split("\n\n", 1)[1].strip(),
        *tables("PlanFile", solver_plan),
    ])  # fmt: skip


def tables(top: str, *modules: ModuleType) -> list[str]:
    """A heading and a table for each record of a file, the file itself first."""
    known = {n: record for module in modules for n, record in records(module).items() if record.fields}
    order = [top, *(name for name in known if name != top)]
    return [part for name in order for part in _table(known[name], known)]


def rule_tables() -> list[str]:
    """The kinds of rules, and what they are made of."""
    wanted = (
        "Filter",
        "Opening",
        "CapRow",
        "GuaranteeRow",
        "PriceTerm",
        "PreemptRule",
        "QueueTerms",
        "DatasetRule",
        "LinkRule",
        "Scope",
        "PoolSelector",
        "Window",
        "DataSelector",
        "Spot",
        "Link",
        "LinkRow",
    )
    known = RULES
    text = []
    for name in wanted:
        record, kind = known[name], getattr(rules, name, None) or getattr(datasets, name)
        tag = f"`type: {kind.__struct_config__.tag}`. " if kind.__struct_config__.tag else ""
        text += [f"### {name}", f"{tag}{record.doc}", _rows(record, known)]
    return text  # fmt: skip


def _table(record: Record, known: Mapping[str, Record]) -> list[str]:
    return [f"### {record.name}", record.doc, _rows(record, known)]


def _rows(record: Record, known: Mapping[str, Record]) -> str:
    lines = ["| field | holds | left out | meaning |", "| --- | --- | --- | --- |"]
    for each in record.fields:
        default = "needed" if each.required else _default(each.default)
        lines.append(f"| `{each.name}` | {_holds(each.annotation, known)} | {default} | {each.doc or '–'} |")
    return "\n".join(lines)


def _holds(annotation: str, known: Mapping[str, Record]) -> str:
    plain = annotation.removesuffix(" | None")
    if plain.startswith("Literal["):
        words = plain.removeprefix("Literal[").removesuffix("]").split(", ")
        return " or ".join(f"`{word.strip(chr(39))}`" for word in words)
    if plain in TYPES:
        return TYPES[plain]
    inner = plain.removeprefix("tuple[").removesuffix(", ...]").removeprefix("dict[str, ").removesuffix("]")
    if inner in known:
        many = "list of " if plain.startswith("tuple") else "mapping to " if plain.startswith("dict") else ""
        return f"{many}[{inner}](#{inner.lower()})"
    return f"`{inner}`"


def _default(value: object) -> str:
    if value is None or value in ((), {}, "") or isinstance(value, msgspec.Struct):
        return "–"
    return f"`{json.dumps(value)}`".replace('"', "")
