"""How a list of jobs is shown: in which order, with which columns, and again and again."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Literal, get_args, get_type_hints

from cyclopts import Group, Parameter
from msgspec.structs import replace
from rich.console import Group as RichGroup
from rich.text import Text

from federator.cli.columns import job_columns
from federator.cli.layout import Column, Row, table
from federator.cli.output import ListFormat, console, show_csv, show_rows, with_instants
from federator.cli.parquet import refuse_parquet, write_parquet
from federator.cli.phrases import counted, instant
from federator.cli.session import LONG_PATIENCE_S, Connection, ask
from federator.client.verbs import Verbs
from federator.kernel.errors import Invalid
from federator.wire.changes import Topic
from federator.wire.http import JobOrder, JobRow
from federator.wire.nearest import nearest

if TYPE_CHECKING:
    from rich.console import RenderableType

    from federator.client.jobs import JobFilter

PAGE = 1000
FRAME_LINES = 3
"""Of a terminal, beside the rows: the headline, the titles and what has no room."""
SAME_ORDER = {"age": "-submitted", "-age": "submitted", "id": "submitted", "-id": "-submitted"}
"""What is another word for an order: a young job was submitted late."""


JobsFormat = Literal[ListFormat, "parquet"]
JobsOutput = Annotated[
    JobsFormat,
    Parameter(name=("-o", "--output"), help="How to show it; parquet goes to a file: > jobs.parquet."),
]
KINDS = {
    frozenset({bool}): "BOOLEAN",
    frozenset({int}): "BIGINT",
    frozenset({float}): "DOUBLE",
    frozenset({int, float}): "DOUBLE",
}
"""Types of Parquet columns; what is not here is text, or JSON as text."""
Watch = Annotated[bool, Parameter(negative="", help="Show it again as it changes, until Ctrl-C.")]


@Parameter(name="*", group=Group("How it is shown", sort_key=80))
@dataclass(frozen=True, kw_only=True)
class Listing:
    """Options about the list itself."""

    sort: Annotated[
        str | None,
        Parameter(
            allow_leading_hyphen=True,
            help="By age, deadline, gpus, priority, spent or another column; -gpus has the largest first.",
        ),
    ] = None
    columns: Annotated[
        str | None,
        Parameter(
            help="Only these columns, in this order, as in id,name,gpus,because; of CSV and Parquet the fields of -o json."
        ),
    ] = None
    watch: Watch = False

    def check(self, output: JobsFormat) -> None:
        """Raises `Invalid` for what cannot be."""
        if output == "parquet":
            refuse_parquet("jobs")
        self.order()
        if self.watch:
            tables_only(output)
        if self.columns and output in ("json", "yaml"):
            raise Invalid("are those of tables and CSV", field="--columns", remedy="JSON has every field")

    def order(self) -> str | None:
        """What to sort by, as the dispatcher calls it. Raises `Invalid`."""
        if self.sort is None:
            return None
        asked = self.sort.lower()
        known = ("age", "id", *get_args(JobOrder))
        if asked.removeprefix("-") not in known:
            raise _unknown(self.sort, known, "--sort")
        return SAME_ORDER.get(asked, asked)

    def chosen(self, columns: Iterable[Column[JobRow]]) -> tuple[Column[JobRow], ...]:
        """The columns that were asked for. Raises `Invalid` for one that there is not."""
        known = {_named(column): column for column in columns}
        if self.columns is None:
            return tuple(known.values())
        names = [name.strip().lower() for name in self.columns.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise _unknown(name, known, "--columns")
        return tuple(known[name]._replace(wide=False, least=0) for name in names)

    def fields(self) -> tuple[str, ...]:
        """Those of CSV. Raises `Invalid` for one that there is not."""
        names = tuple(name.strip() for name in (self.columns or "").split(",") if name.strip())
        for name in names:
            if name not in JobRow.__struct_fields__:
                raise _unknown(name, JobRow.__struct_fields__, "--columns")
        return names

    async def collected(self, client: Verbs, which: "JobFilter", limit: int) -> tuple[list[JobRow], int]:
        """At most so many jobs (0: all) in the order that was asked for, and how many there are."""
        which = replace(which, sort=self.order())
        rows: list[JobRow] = []
        page = await client.jobs(which, limit=min(limit or PAGE, PAGE))
        rows += page.jobs
        while page.next_after and not (limit and len(rows) >= limit):
            page = await client.jobs(which, after=page.next_after, limit=PAGE)
            rows += page.jobs
        return rows[: limit or None], page.total

    def show(self, rows: Sequence[JobRow], now: float, output: JobsFormat) -> None:
        """Once."""
        if output == "csv":
            show_csv(rows, self.fields() or JobRow.__struct_fields__)
        elif output == "parquet":
            records = with_instants(rows)
            assert isinstance(records, list)
            write_parquet(records, {name: _kind(name) for name in self.fields() or JobRow.__struct_fields__})
        else:
            show_rows(
                rows, self.chosen(job_columns(now, rows, whole_ids=output == "wide")), output, empty="no jobs"
            )

    async def drawn(
        self, client: Verbs, which: "JobFilter", limit: int, output: JobsFormat
    ) -> "RenderableType":
        """What `--watch` shows at one moment: as much as the terminal has room for."""
        out = console()
        rows, total = await self.collected(
            client, which, min(limit or out.height, max(1, out.height - FRAME_LINES))
        )
        now = client.now()
        columns = self.chosen(job_columns(now, rows, whole_ids=output == "wide"))
        title = Text(f"{instant(now)}  {len(rows)} of {total} jobs", style="bold")
        return RichGroup(title, table(rows, columns, width=out.width, wide=output == "wide"))


AS_IT_COMES = Listing()


async def watched(
    client: Verbs,
    topics: Sequence[Topic],
    look: Callable[[], Awaitable["RenderableType"]],
    *,
    every_s: float = 0.0,
) -> None:
    """Draw what is looked at whenever the dispatcher says that it has changed, with so many seconds in between at least, until somebody ends it; over restarts of the dispatcher too."""
    from rich.live import Live

    out = console()
    if not out.is_terminal:
        raise Invalid("needs a terminal", field="--watch", remedy="leave it out, or repeat the command")
    first = await look()
    client.transport.patience_s = LONG_PATIENCE_S
    with Live(first, console=out, screen=True, auto_refresh=False, vertical_overflow="ellipsis") as live:
        async for _ in client.changes(topics):
            live.update(await look(), refresh=True)
            await client.transport.sleep(every_s)


def watch_rows(
    connection: Connection,
    topic: Topic,
    ask_for: Callable[[Verbs], Awaitable[Sequence[Row]]],
    columns: Callable[[float], Iterable[Column[Row]]],
    output: ListFormat,
) -> None:
    """Show a list as it changes; `columns` are as of a moment. Raises `Invalid` for what is no table, and without a terminal."""
    tables_only(output)

    async def look(client: Verbs) -> "RenderableType":
        out, rows, now = console(), await ask_for(client), client.now()
        title = Text(f"{instant(now)}  {counted(len(rows), topic.removesuffix('s'))}", style="bold")
        shown = rows[: max(1, out.height - FRAME_LINES)]
        return RichGroup(title, table(shown, columns(now), width=out.width, wide=output == "wide"))

    ask(connection, lambda client: watched(client, (topic,), partial(look, client)))


def tables_only(output: JobsFormat) -> None:
    """Raise `Invalid` for a format that cannot be drawn again."""
    if output not in ("table", "wide"):
        raise Invalid("shows tables only", field="--watch", remedy="leave out -o")


def _kind(field: str) -> str:
    """Of a field of `JobRow`, the type of its column."""
    if field.endswith("_at"):
        return "TIMESTAMP WITH TIME ZONE"
    hint = get_type_hints(JobRow)[field]
    return KINDS.get(frozenset(get_args(hint) or (hint,)) - {NoneType}, "VARCHAR")


def _named(column: Column[JobRow]) -> str:
    return column.title.lower().replace(" ", "-")


def _unknown(name: str, known: Iterable[str], option: str) -> Invalid:
    near = nearest(name.removeprefix("-").lower(), known)
    return Invalid(
        f"there is no {name!r}",
        field=option,
        remedy=f"did you mean {near}?" if near else f"known are {', '.join(known)}",
    )
