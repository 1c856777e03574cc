"""What was used, and what it cost: for oneself, and as chargeback for teams and queues."""

import csv
import sys
import time
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from federator.cli.layout import Column
from federator.cli.output import show_data, show_rows
from federator.cli.parquet import refuse_parquet, write_parquet
from federator.cli.phrases import NONE, duration, moment_at, plain
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import Invalid
from federator.wire.usage import KEYS, Key, UsageReport, UsageRow

TOTAL = "total"
MONEY = "DECIMAL(18, 2)"


def usage(
    *,
    by: Annotated[str, Parameter(name=("-b", "--by"))] = "month",
    since: str = "30d",
    until: str | None = None,
    everybody: Annotated[bool, Parameter(negative="")] = False,
    output: Annotated[
        Literal["table", "csv", "json", "yaml", "parquet"],
        Parameter(
            name=("-o", "--output", "--format"),
            help="How to show it; parquet goes to a file: > usage.parquet.",
        ),
    ] = "table",
    connection: Connection = HERE,
) -> None:
    """Add up GPU time, money, waits and deadlines: your own, or of everybody whom you administer.

    GPU time and money are those of the ledger, written when an attempt ends or a bill grows; rows add up to the total to the cent. Owned GPUs cost what
    their site says as an attempt is placed. Jobs, waits and deadlines are of the jobs on record that ended in that time.

    Parameters
    ----------
    by:
        One row for each: user, team, queue, site, model, month or day (UTC); several with commas between, such as team,month.
    since:
        From then on: an instant such as 2026-11-01T00:00:00Z, or how long ago, such as 90d.
    until:
        Up to then; without it, now.
    everybody:
        All that you may see, and not only your own: everything with the role platform, else your queues, teams and sites if you administer any.
    """
    if output == "parquet":
        refuse_parquet("usage")
    now = time.time()
    since_at = moment_at(since, "--since", now)
    until_at = None if until is None else moment_at(until, "--until", now)
    keys = _keys(by)
    report, _ = ask(
        connection,
        lambda client: client.usage(by=keys, since=since_at, until=until_at, everybody=everybody),
    )
    if output == "csv":
        _write_csv(report, keys)
    elif output == "parquet":
        _write_parquet(report, keys)
    elif output != "table":
        show_data(report, output)
    else:
        rows = [*report.rows, report.total] if len(report.rows) > 1 else list(report.rows)
        show_rows(
            rows, _columns(keys, report.total), "table", empty=f"nothing was used by {plain(report.whose)}"
        )


def _keys(text: str) -> tuple[Key, ...]:
    known: dict[str, Key] = {key: key for key in KEYS}
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or (unknown := [word for word in words if word not in known]):
        what = f"cannot group by {unknown[0]!r}" if words else "names nothing"
        raise Invalid(what, field="--by", remedy=f"write one or more of {', '.join(KEYS)}")
    return tuple(known[word] for word in words)


def _write_csv(report: UsageReport, keys: tuple[Key, ...]) -> None:
    """Without a total: whoever adds the rows up has it."""
    names = [*keys, *(name for name in UsageRow.__struct_fields__ if name not in KEYS)]
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(names)
    for row in report.rows:
        values = msgspec.structs.asdict(row)
        out.writerow([plain(values[name]) if name in KEYS else values[name] for name in names])


def _write_parquet(report: UsageReport, keys: tuple[Key, ...]) -> None:
    """The same rows and columns. Money is in decimals, so that sums are those of the ledger."""
    kinds = {"usd": MONEY, "s": "DOUBLE", "kwh": "DOUBLE", "kg": "DOUBLE"}
    figures = {
        name: kinds.get(name.rpartition("_")[2], "BIGINT")
        for name in UsageRow.__struct_fields__
        if name not in KEYS
    }
    columns: dict[str, str] = dict.fromkeys(keys, "VARCHAR") | figures
    write_parquet(report.rows, columns)


def _columns(keys: tuple[Key, ...], total: UsageRow) -> tuple[Column[UsageRow], ...]:
    def named(key: Key) -> Column[UsageRow]:
        first = key == keys[0]
        return Column(
            key.upper(),
            lambda row: (
                TOTAL if row is total and first else "" if row is total else getattr(row, key) or NONE
            ),
        )

    return (
        *(named(key) for key in keys),
        Column("GPU-H", lambda row: f"{row.gpu_s / 3600:,.2f}", right=True),
        Column("RENTED GPU-H", lambda row: f"{row.rented_gpu_s / 3600:,.2f}", right=True, least=110),
        Column("OWNED USD", lambda row: f"{row.owned_usd:,.2f}", right=True, least=80),
        Column("RENTED USD", lambda row: f"{row.rented_usd:,.2f}", right=True, least=80),
        Column("DATA USD", lambda row: f"{row.data_usd:,.2f}", right=True, least=120),
        Column("USD", lambda row: f"{row.usd:,.2f}", right=True),
        Column("KWH", lambda row: _amount(row.energy_kwh), right=True, least=90),
        Column("POWER USD", lambda row: _amount(row.power_usd), right=True, least=120),
        Column("CO2 KG", lambda row: _amount(row.co2_kg), right=True, least=120),
        Column("JOBS", lambda row: str(row.jobs), right=True),
        Column("SUCCEEDED", lambda row: str(row.succeeded), right=True, least=100),
        Column("WAITED", lambda row: duration(row.wait_s), right=True),
        Column("LONGEST", lambda row: duration(row.longest_wait_s), right=True, least=120),
        Column("DEADLINES", lambda row: _share(row.deadlines_met, row.deadlines), right=True),
        Column("REQUESTS MET", lambda row: _part(row.met, row.answered), right=True, least=140),
        Column("STARTS AS TOLD", lambda row: _share(row.starts_kept, row.starts_told), right=True, least=140),
        Column(
            "ENDS AS TOLD", lambda row: _share(row.finishes_kept, row.finishes_told), right=True, least=140
        ),
        Column("COST AS TOLD", lambda row: _share(row.costs_kept, row.costs_told), right=True, least=140),
    )


def _amount(amount: float) -> str:
    """Of what not every site tells."""
    return f"{amount:,.2f}" if amount else NONE


def _part(met: int, of: int) -> str:
    return f"{100 * met / of:.1f} %" if of else NONE


def _share(met: int, of: int) -> str:
    return f"{met} of {of}" if of else NONE
