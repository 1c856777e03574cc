"""How honest forecasts were in a simulation, as a table: what `federator simulate --looks` says."""

from typing import TYPE_CHECKING

from federator.cli.layout import Column
from federator.cli.output import show_rows

if TYPE_CHECKING:
    from federator.simulation.looks import Judged
    from federator.simulation.study import Run


def show_looks(run: "Run") -> None:
    """Below the figures of a run; nothing where nobody looked."""
    from federator.simulation.looks import MEANT_SHARE

    if not run.looks:
        return
    print(
        f"\nWhat {run.figures.scheduler}, seed {run.figures.seed}, told open jobs: {MEANT_SHARE:.0%} are meant to come between.\n"
        "WIDTH is that of the range, over the time from the look to its middle."
    )
    columns: list[Column[Judged]] = [
        Column("OF", lambda row: row.what),
        Column("EXPECTED IN", lambda row: row.ahead),
        Column("LOOKS", lambda row: f"{row.looks:,}", right=True),
        Column("BEFORE %", lambda row: f"{100 * row.before_share:.0f}", right=True),
        Column("BETWEEN %", lambda row: f"{100 * row.between_share:.0f}", right=True),
        Column("AFTER %", lambda row: f"{100 * row.after_share:.0f}", right=True),
        Column("WIDTH", lambda row: f"{row.width:.1f} x", right=True, least=90),
    ]
    show_rows(run.looks, columns, "table", empty="")
