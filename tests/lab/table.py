"""`python -m tests.lab table`: every scheduler on the published work, as one table. What is compared is in `tests.lab.comparison`."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from federator.cli.planner import ready_planner
from federator.kernel.errors import Invalid
from federator.kernel.quantities import parse_duration_s

if TYPE_CHECKING:
    from tests.lab.comparison.running import Made


def table(
    *,
    data: Path,
    out: Path = Path("table"),
    only: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = (),
    scheduler: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = (),
    jobs: int = 2,
    length: str | None = None,
    within: str | None = None,
    any_build: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Make the whole comparison of schedulers: every case, every scheduler, in processes; what is there already is used again.

    Results are kept in the folder, each as soon as it is there, and used again while code and work are the same. The table is written as table.json,
    table.md and table.html, also after an interruption; it names what is missing.

    Parameters
    ----------
    data:
        The folder with the traces: itp10_*, chronus_philly_mix1.csv.gz and online/.
    out:
        The folder for results and tables.
    only:
        Cases whose names begin so, such as online/load0.9 or ten-clusters/x0.2/k3.
    scheduler:
        Some of the schedulers; else all.
    jobs:
        How many simulations run at once.
    length:
        Take the jobs of so long a time from the start of each trace, such as 2d.
    within:
        After so long, such as 40m, leave out what is not done.
    any_build:
        Use results of other builds, too.
    """
    from federator.cli.exit_codes import FAILED, OK
    from tests.lab.comparison.cases import all_cases, chosen, runs_of
    from tests.lab.comparison.running import Orders, make
    from tests.lab.schedulers import SCHEDULERS

    if not 1 <= jobs <= 4 * (os.cpu_count() or 1):
        raise Invalid("must be at least 1, and not many times the cores that there are", field="--jobs")
    runs = runs_of(chosen(all_cases(), only), scheduler or tuple(SCHEDULERS))
    absent = sorted({run.case.trace for run in runs if not (data / run.case.trace).is_file()})
    if absent:
        raise Invalid(
            f"there is no {absent[0]}", field="--data", remedy="name the folder that has the traces"
        )
    orders = Orders(
        data=data,
        folder=out,
        workers=jobs,
        length_s=_duration_s(length, "--length"),
        within_s=_duration_s(within, "--within"),
        any_build=any_build,
    )
    ready_planner()
    made = make(runs, orders, lambda text: print(text, file=sys.stderr, flush=True))
    wrong = _write(out, data, made)
    return FAILED if wrong or made.failed else OK


def _write(out: Path, data: Path, made: "Made") -> bool:
    """The three files, and the means on the terminal; whether something in them cannot be true."""
    import msgspec

    from federator.cli.layout import Column
    from federator.cli.output import show_rows
    from tests.lab.comparison.pages import markdown, page, pictures, table_of
    from tests.lab.comparison.tables import means_table

    found = table_of(made)
    (out / "table.json").write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    (out / "table.md").write_text(markdown(found, data), encoding="utf-8")
    (out / "table.html").write_text(page(found, data), encoding="utf-8")
    for name, drawn in pictures(found).items():
        (out / name).write_text(drawn, encoding="utf-8")
    cells = means_table(found.groups)
    columns: list[Column[tuple[str, ...]]] = [
        Column(title.upper(), lambda row, n=number: row[n], right=number >= cells.names)  # type: ignore[misc]
        for number, title in enumerate(cells.titles)
    ]
    show_rows(cells.rows, columns, "table", empty="nothing is there")
    for name, texts in found.violations.items():
        print(f"{name}: {texts[0]}", file=sys.stderr)
    print(
        f"{out / 'table.html'}: {len(made.results)} simulations, {len(made.missing)} missing", file=sys.stderr
    )
    return bool(found.violations)


def _duration_s(text: str | None, option: str) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise Invalid(str(error), field=option) from None
