"""Sites: what they have, and taking them out of use."""

import time
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import RenderableType

from federator.cli.columns import (
    RUNTIMES,
    agent_versions,
    ailing_columns,
    gpu_columns,
    labels,
    link_columns,
    local_work_columns,
    member_columns,
    part_columns,
    pool_columns,
    site_columns,
    statement_columns,
    stopped_columns,
)
from federator.cli.layout import table
from federator.cli.listing import Watch, watch_rows
from federator.cli.output import ListOutput, Output, facts, show, show_data, show_rows, status, width
from federator.cli.phrases import NONE, counted, duration, moment_at, plain, when
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import Invalid
from federator.wire.sites import DrainPreview

app = App(name="site")
app.command("federator.cli.upgrades:upgrade", name="upgrade")
SiteName = Annotated[str, Parameter(help="Name of the site.")]


def list_sites(*, watch: Watch = False, output: ListOutput = "table", connection: Connection = HERE) -> None:
    """List the sites: what they have, what is busy, and how fresh that is."""
    if watch:
        watch_rows(connection, "sites", lambda client: client.sites(), lambda _: site_columns(), output)
        return
    rows, _ = ask(connection, lambda client: client.sites())
    show_rows(
        rows,
        site_columns(),
        output,
        empty="no sites: see federator token create --site and federator-agent join",
    )


def drain(
    site: SiteName,
    *,
    by: str = "",
    why: str = "",
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = HERE,
) -> None:
    """Start nothing new at a site. What runs there goes on to its end, or until a deadline.

    Parameters
    ----------
    by:
        When the last work has to be gone: 2h, or 2026-12-01T18:00:00Z. It is told in time to save itself, and waits for another place.
    why:
        Why; the owners of jobs that have to leave are told.
    dry_run:
        Say which jobs would be stopped, when the site would be empty, and what is lost; change nothing.
    """
    if dry_run:
        _preview(site, *ask(connection, lambda client: client.preview_drain(site, by=by)))
        return
    drained, now = ask(connection, lambda client: client.drain(site, by=by, why=why))
    rest = "what runs there goes on to its end"
    if drained.drain_by_at is not None:
        rest = f"what still runs is stopped {when(drained.drain_by_at, now)} at the latest"
    print(f"{plain(site)} is draining: nothing new starts there; {rest}")


def _preview(site: str, found: DrainPreview, now: float) -> None:
    empty = NONE if found.empty_at is None else when(found.empty_at, now)
    print(
        f"{plain(site)} has {counted(found.jobs, 'job')}: {found.ends_alone} would end there, {found.stops} would be stopped"
    )
    print(
        f"empty: {empty}; to be done again: {found.lost_gpu_s / 3600:.1f} GPU-hours, {found.lost_usd:.2f} USD"
    )
    if found.stopped:
        show(table(found.stopped, stopped_columns(now), width=width()))


def undrain(site: SiteName, *, connection: Connection = HERE) -> None:
    """Let a drained site take work again."""
    ask(connection, lambda client: client.undrain(site))
    print(f"{plain(site)} takes work again")


@app.command
def evict(
    site: SiteName,
    job: str = "",
    *,
    every: Annotated[bool, Parameter(name="--all", negative=())] = False,
    by: str = "",
    why: str = "",
    connection: Connection = HERE,
) -> None:
    """Have one job, or all, leave a site: each saves itself, stops, and waits for another place.

    A job does not come back to the site for an hour. To let nothing new start there, drain it first.

    Parameters
    ----------
    job:
        The job that is to leave, by name or id.
    every:
        All jobs that run there.
    by:
        When they have to be gone: 10m, or 2026-12-01T18:00:00Z. Without it they are told at once, with the grace that each asks for.
    why:
        Why; the jobs' owners are told, and the ledger keeps it.
    """
    if bool(job) == every:
        raise Invalid(
            "name a job or write --all", field="JOB", remedy=f"federator site evict {site} JOB --why TEXT"
        )
    if not why.strip():
        raise Invalid("is missing", field="--why", remedy="write why; the jobs' owners are told")
    told, _ = ask(connection, lambda client: client.evict(site, why=why, job=job, by=by))
    print(f"told to leave {plain(site)}: {counted(len(told), 'job')}")
    for each in told:
        print(f"  {plain(each)}")


@app.command(name="show")
def show_site(site: SiteName, *, output: Output = "table", connection: Connection = HERE) -> None:
    """Show one site and its pools."""
    row, now = ask(connection, lambda client: client.site(site))
    if output in ("json", "yaml"):
        show_data(row, output)
        return
    age = NONE if row.age_s is None else f"{duration(row.age_s)} ago"
    parts: list[RenderableType] = [
        facts(
            [
                ("site", f"{row.name} ({', '.join(filter(None, (row.kind, row.region)))})"),
                ("runtime", "" if row.age_s is None else RUNTIMES.get(row.runtime, row.runtime)),
                ("isolation", row.isolation),
                ("lends to", row.lends_to),
                ("status", status("DRAINING" if row.draining else row.status)),
                ("because", row.drain_because or row.because),
                ("empty at the latest", "" if row.drain_by_at is None else when(row.drain_by_at, now)),
                (
                    "gpus",
                    f"{row.busy} of {row.gpus} busy, largest gang that fits: {row.largest_gang or NONE}",
                ),
                ("members", str(row.members) if row.members > 1 else ""),
                ("agent", agent_versions(row.hosts)),
                ("report", age),
                ("labels", labels(row.labels)),
            ]
        )
    ]
    if len(row.hosts) > 1 or any(host.because != row.because for host in row.hosts):
        parts += ["", table(row.hosts, member_columns(), width=width())]
    if any(host.link for host in row.hosts):
        parts += ["", table(row.hosts, link_columns(), width=width())]
    if row.pools:
        parts += ["", table(row.pools, pool_columns(), width=width())]
    if local := [(pool.member, work) for pool in row.pools for work in pool.local_work]:
        parts += ["", table(local, local_work_columns(now), width=width())]
    if parts_of := [(pool.member, part) for pool in row.pools for part in pool.parts]:
        parts += ["", table(parts_of, part_columns(), width=width())]
    if row.gpu_use:
        parts += ["", table(row.gpu_use, gpu_columns(now), width=width())]
    if ailing := [(pool.member, gpu) for pool in row.pools for gpu in pool.ailing]:
        parts += ["", table(ailing, ailing_columns(), width=width())]
    show(*parts)


@app.command
def remove(site: SiteName, *, member: str = "", connection: Connection = HERE) -> None:
    """Forget a site that is gone for good, with its members; or one host of it. Ended jobs stay on record.

    Refused while it is connected, or while something of the federation may still run there.

    Parameters
    ----------
    member:
        The one host that is gone, where the others stay.
    """
    ask(
        connection,
        lambda client: client.remove_member(site, member) if member else client.remove_site(site),
    )
    print(f"{plain(member or site)} is removed; an agent that comes back has to join again")


@app.command
def revoke(site: SiteName, *, member: str, connection: Connection = HERE) -> None:
    """Revoke the key of a host's agent, for example when it was copied. Its session ends; what runs there goes on, and counts.

    The host comes back by token create --site SITE --member MEMBER and federator-agent join --new-key. If it is lost, declare it dead.

    Parameters
    ----------
    member:
        The host.
    """
    ask(connection, lambda client: client.revoke_key(site, member))
    print(f"the key of {plain(member)} is revoked; what runs there goes on")


@app.command
def statement(
    site: SiteName,
    *,
    since: str = "",
    until: str = "",
    output: ListOutput = "table",
    connection: Connection = HERE,
) -> None:
    """What was used at a site, by owner, queue and GPU model, and what it cost. For the site's admin.

    Parameters
    ----------
    since:
        From this instant on, such as 2026-11-01T00:00:00Z; without it, all that the ledger holds.
    until:
        Up to this instant; without it, now.
    """
    since_at = moment_at(since, "--since", time.time()) if since else 0.0
    until_at = moment_at(until, "--until", time.time()) if until else None
    rows, _ = ask(connection, lambda client: client.statement(site, since=since_at, until=until_at))
    show_rows(rows, statement_columns(), output, empty="nothing was used there in that time")


@app.command
def trust(site: SiteName, *, member: str, connection: Connection = HERE) -> None:
    """Let work start again at a host of which two agents were seen at once, after you have looked which of them is the right one.

    If the key may have been stolen, revoke it instead and let the host join again with a new one.

    Parameters
    ----------
    member:
        The host.
    """
    ask(connection, lambda client: client.trust_member(site, member))
    print(f"{plain(member)} takes work again")


@app.command(name="declare-dead")
def declare_dead(
    site: SiteName, *, reason: str = "", member: str = "", connection: Connection = HERE
) -> None:
    """Declare that nothing runs at a site any more, or at one host of it, so that its jobs start elsewhere.

    If something does still run there, it runs twice: look first. Who said so, and why, is kept in the ledger.

    Parameters
    ----------
    reason:
        How you know.
    member:
        The one host that is dead, where a site has several; the others answer for themselves.
    """
    if not reason.strip():
        raise Invalid(
            "is missing", field="--reason", remedy="write how you know that nothing runs there any more"
        )
    given_up, _ = ask(connection, lambda client: client.declare_dead(site, reason, member=member))
    print(
        f"{plain(member or site)} is declared dead; {len(given_up)} attempts are given up, their jobs may start elsewhere"
    )
