"""Services: replicas that answer requests, as many as their load needs. A gateway sends them their requests."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.console import RenderableType
from rich.text import Text

from federator.cli.jobfiles import read_one
from federator.cli.layout import Column, table
from federator.cli.output import Output, facts, show, show_data, show_rows, width
from federator.cli.phrases import NONE, plain, usd, when_exactly
from federator.cli.session import HERE, Connection, ask
from federator.kernel.quantities import format_duration
from federator.wire.jobfile import BLOB_PREFIX
from federator.wire.servicefile import read_service
from federator.wire.services import ReplicaRow, ServiceDetail, ServiceRow

if TYPE_CHECKING:
    from federator.client import Verbs

app = App(name="service")
Name = Annotated[str, Parameter(help="Name of a service, your own first.")]
Owner = Annotated[str, Parameter(help="Whose it is, where several people have one of that name.")]


@app.command
def apply(
    *,
    file: Annotated[Path, Parameter(name=("--file", "-f"))],
    canary: Annotated[int, Parameter(validator=Number(gte=0, lte=99))] = 0,
    output: Output = "table",
    connection: Connection = HERE,
) -> None:
    """Begin a service, or give the one of that name another file.

    What its replicas run is a new revision: its replicas are started, and take the place of the former ones as they become ready. How many there may be, and the target, hold at once.

    Parameters
    ----------
    file:
        YAML file with `kind: service`; `-` is standard input.
    canary:
        Of a hundred requests so many go to the new revision, until `promote` or `rollback`.
    """
    written = read_one(file, read=read_service)

    async def send(client: "Verbs") -> ServiceDetail:
        document = dict(written.document)
        if written.workdir is not None:
            document["workdir"] = f"{BLOB_PREFIX}{(await client.upload(written.workdir)).hash}"
        return await client.apply_service(document, canary=canary)

    with written.told_in_lines():
        detail, now = ask(connection, send)
    _show(detail, now, output)


@app.command(name="list")
def list_services(
    *,
    mine: Annotated[bool, Parameter(negative="")] = False,
    output: Output = "table",
    connection: Connection = HERE,
) -> None:
    """List services: how many replicas are ready and wanted, and how requests are answered.

    Parameters
    ----------
    mine:
        Only your own.
    """
    rows, _ = ask(connection, lambda client: client.services(mine=mine))
    empty = "no services: write a file with kind: service, then federator service apply -f FILE"
    show_rows(rows, COLUMNS, output, empty=empty)


@app.command(name="show")
def show_service(
    name: Name, *, owner: Owner = "", output: Output = "table", connection: Connection = HERE
) -> None:
    """Show one service with its replicas, and where they are."""
    detail, now = ask(connection, lambda client: client.service(name, owner=owner))
    _show(detail, now, output)


@app.command
def promote(
    name: Name, *, owner: Owner = "", output: Output = "table", connection: Connection = HERE
) -> None:
    """Let the canary take the place of the former revision."""
    detail, now = ask(connection, lambda client: client.promote_service(name, owner=owner))
    _show(detail, now, output)


@app.command
def rollback(
    name: Name, *, owner: Owner = "", output: Output = "table", connection: Connection = HERE
) -> None:
    """Return to the former revision, from a canary too."""
    detail, now = ask(connection, lambda client: client.rollback_service(name, owner=owner))
    _show(detail, now, output)


@app.command
def delete(name: Name, *, owner: Owner = "", output: Output = "table", connection: Connection = HERE) -> None:
    """End a service. Its replicas finish what they work on, for as long as `drain` in its file says."""
    detail, now = ask(connection, lambda client: client.delete_service(name, owner=owner))
    _show(detail, now, output)


def _revision(row: ServiceRow) -> str:
    return f"{row.revision} ({row.canary} % canary)" if row.canary else str(row.revision)


COLUMNS: tuple[Column[ServiceRow], ...] = (
    Column("SERVICE", lambda row: row.name, cap=24),
    Column("OWNER", lambda row: row.owner, wide=True),
    Column("QUEUE", lambda row: row.queue, wide=True),
    Column("READY", lambda row: f"{row.ready}/{row.wanted}", right=True),
    Column("REVISION", _revision, least=80),
    Column("REQ/S", lambda row: NONE if row.rate is None else f"{row.rate:.1f}", right=True),
    Column("P95", lambda row: _latency(row.p95_s), right=True, least=70),
    Column("ATTAINED", lambda row: _part(row.attained), right=True, least=90),
    Column("USD/H", lambda row: usd(row.price_usd_h), right=True, least=100),
    Column("BECAUSE", lambda row: row.because, flow="cut"),
)
REPLICAS: tuple[Column[ReplicaRow], ...] = (
    Column("REPLICA", lambda row: row.name, cap=40),
    Column("SITE", lambda row: row.site or NONE),
    Column("REVISION", lambda row: str(row.revision), right=True),
    Column("STATUS", lambda row: row.status),
    Column("HEALTH", lambda row: "draining" if row.draining else row.health),
    Column("USD/H", lambda row: usd(row.price_usd_h), right=True),
)


def _latency(seconds: float | None) -> str:
    return NONE if seconds is None else f"{seconds:.3g}s"


def _part(part: float | None) -> str:
    return NONE if part is None else f"{100 * part:.1f}%"


def _show(detail: ServiceDetail, now: float, output: Output) -> None:
    if output in ("json", "yaml"):
        show_data(detail, output)
        return
    row, scale = detail.service, detail.scale
    target = f"{scale.requests_per_replica:g} requests at a time to a replica"
    if scale.p95_latency_s is not None:
        target += f", 95 of 100 within {format_duration(scale.p95_latency_s)}"
    if scale.gpu_utilisation_percent is not None:
        target += f", GPUs {scale.gpu_utilisation_percent:g} % busy"
    parts: list[RenderableType] = [
        facts([
            ("service", row.name),
            ("owner", f"{row.owner}, queue {row.queue}"),
            ("replicas", f"{row.ready} ready, {row.wanted} wanted, {row.least} to {row.most}{', spread over sites' if scale.spread else ''}"),
            ("because", plain(row.because)),
            ("revision", _revision(row) + (f", before it {detail.former}" if detail.former else "")),
            ("rolled back", detail.fault),
            ("port", f"{detail.port or 'auto'}, ready by {detail.ready_path or 'a connection'}"),
            ("target", target),
            ("requests", "" if row.rate is None else f"{row.rate:.1f} per second, p95 {_latency(row.p95_s)}"),
            ("GPUs", "" if row.gpu_use_percent is None else f"{row.gpu_use_percent:.0f} % busy"),
            ("attained", "" if row.attained is None else _part(row.attained)),
            ("cost", f"{usd(row.price_usd_h)} per hour" if row.price_usd_h else ""),
            ("file of", when_exactly(detail.changed_at, now)),
        ])
    ]  # fmt: skip
    if detail.replicas:
        rows = sorted(detail.replicas, key=lambda each: (each.site, each.name))
        parts += [Text(""), table(rows, REPLICAS, width=width())]
    show(*parts)
