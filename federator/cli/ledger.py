"""The ledger: who did what, what was used, what it cost – and whether it still says what it said."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import App, Parameter

from federator.cli.columns import ledger_columns
from federator.cli.exit_codes import FAILED, OK
from federator.cli.output import ListOutput, show_rows
from federator.cli.phrases import moment_at
from federator.cli.sanitize import harmless
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import Invalid
from federator.model.events import LedgerEntry
from federator.model.ledger import MADE, Head, Part, Verified, Verifier
from federator.wire.faults import told_in, unreadable
from federator.wire.jsontext import Reader
from federator.wire.named_files import UNREADABLE, read_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from federator.client import Verbs

LEDGER_PAGE = 1000
EXPORT_BYTES = 256 * 2**30
"""An export may be so large, unpacked."""
app = App(name="ledger")


@app.default
def ledger(
    *,
    since: str | None = None,
    job: str | None = None,
    site: str | None = None,
    after: str | None = None,
    limit: int = 100,
    all: Annotated[bool, Parameter(negative="")] = False,  # noqa: A002 - the option's name
    output: ListOutput = "table",
    connection: Connection = HERE,
) -> None:
    """List facts of the ledger, oldest first: acts, use and money. Where there are more, it says so.

    Parameters
    ----------
    since:
        Only from this instant on, such as 2026-12-01T00:00:00Z.
    job:
        Only of this job.
    site:
        Only of this site. A site's admin sees his site's only.
    after:
        Only after this entry: the id of the last one of the page before.
    limit:
        At most this many.
    all:
        All of them, however many.
    """
    if limit < 1:
        raise Invalid("must be at least 1", field="--limit", remedy="write --all for all")
    since_at = moment_at(since, "--since", time.time()) if since else None

    async def collect(client: "Verbs") -> list[LedgerEntry]:
        found: list[LedgerEntry] = []
        last = after
        while all or len(found) <= limit:
            size = LEDGER_PAGE if all else min(limit + 1 - len(found), LEDGER_PAGE)
            page = await client.ledger(since=since_at, job=job, site=site, after=last, limit=size)
            found += page
            if len(page) < size:
                break
            last = page[-1].id
        return found

    rows, _ = ask(connection, collect)
    cut = not all and len(rows) > limit
    rows = rows[:limit] if cut else rows
    show_rows(rows, ledger_columns(), output, empty="no entries")
    if cut:
        more = f"these are the oldest {limit}; next: --after {rows[-1].id}; later ones: --since; everything: --all"
        print(more, file=sys.stderr)


@app.command
def export(file: Path, *, connection: Connection = HERE) -> None:
    """Write the whole ledger with its signed seals to a file, as JSON lines that `federator ledger verify` reads anywhere.

    Whoever keeps one sees later whether the ledger was rolled back behind it.

    Parameters
    ----------
    file:
        Where to. It is there when it is whole.
    """
    draft = file.with_name(f".{file.name}.draft")
    with draft.open("wb") as out:

        async def write(client: "Verbs") -> None:
            async for line in client.ledger_parts():
                out.write(line)

        ask(connection, write)
    draft.rename(file)


@app.command
def verify(
    file: Path | None = None,
    *,
    key: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    since: Path | None = None,
    connection: Connection = HERE,
) -> int:
    """Verify that no line of the ledger is missing, changed, added or out of order. Exits 1 if any is, and names the first.

    The check is made here, and not by the dispatcher.

    Parameters
    ----------
    file:
        An export, which may be packed with gzip where its name ends in .gz; without it, the dispatcher is asked.
    key:
        A public key of a dispatcher, in hex; seals that another has signed are findings. May be given again. Without it each seal is held to the key that it names.
    since:
        An earlier export: its head has to be in the chain, or the ledger was rolled back or rewritten.
    """
    from federator.control.record.signer import is_signed

    kept = _head_of(since) if since is not None else ()
    verifier = Verifier(is_signed, trusted=key, kept=kept)
    if file is not None:
        _read(file, verifier, "FILE")
    else:
        take = _taking(verifier)

        async def follow(client: "Verbs") -> None:
            async for line in client.ledger_parts():
                take(line)

        ask(connection, follow)
    found = verifier.end()
    print(_said(found))
    for finding in found.findings:
        print(f"finding: {harmless(finding.text)}", file=sys.stderr)
    return FAILED if found.findings else OK


def _read(file: Path, verifier: Verifier, field: str) -> None:
    take = _taking(verifier)
    try:
        with told_in(file):
            for line in read_lines(file, most_bytes=EXPORT_BYTES):
                take(line)
    except UNREADABLE as error:
        raise unreadable(file, error, field) from None


def _taking(verifier: Verifier) -> "Callable[[bytes], None]":
    """What verifies the next line. Raises `Invalid`, or `TooLarge`, for what is none of an export."""
    decoder: Reader[Part] = Reader(Part)

    def take(line: bytes) -> None:
        try:
            if line.strip():
                verifier.take(decoder.decode(line))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Invalid(f"this is not an export of a ledger: {error}", remedy=MADE) from None

    return take


def _head_of(file: Path) -> tuple[Head, ...]:
    from federator.control.record.signer import is_signed

    verifier = Verifier(is_signed)
    _read(file, verifier, "--since")
    head = verifier.end().head
    return () if head is None else (head,)


def _said(found: Verified) -> str:
    head = f"head {found.head.number}:{found.head.head}" if found.head else "no seal yet"
    keys = f", signed by {', '.join(found.keys)}" if found.keys else ""
    return f"{found.lines} lines in {found.seals} seals, {found.unsealed} not sealed yet, {found.before} from before; {head}{keys}"
