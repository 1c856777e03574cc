"""Tables as Parquet files for data tools, written to standard output."""

import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec

from federator.kernel.errors import Invalid


def refuse_parquet(verb: str) -> None:
    """Raise `Invalid` where it cannot be made or is of no use, before anybody is asked."""
    if sys.stdout.isatty():
        raise Invalid(
            "Parquet is binary, and this is a terminal",
            field="--output",
            remedy=f"write > {verb}.parquet behind it",
        )
    if find_spec("duckdb") is None:
        remedy = "pip install 'federator[archive]', or take csv"
        raise Invalid("duckdb is not installed here", field="--output", remedy=remedy)


def write_parquet(rows: Iterable[object], columns: Mapping[str, str]) -> None:
    """Of these rows the columns that are named, each with its type in DuckDB."""
    from federator.archive import as_parquet

    sys.stdout.buffer.write(as_parquet(rows, columns))
