"""Tokens: for people, with a role; for agents, to join once."""

from typing import Literal

from cyclopts import App

from federator.cli.columns import token_columns
from federator.cli.output import ListOutput, Output, say, show_data, show_rows
from federator.cli.phrases import when
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import Invalid
from federator.model.identity import Scope
from federator.wire.http import TokenAnswer, TokenRequest, TokenRotation, TokenRow

SOON_S = 14 * 86400.0
"""A token that ends sooner is named."""
app = App(name="token")


@app.command
def create(
    name: str = "",
    *,
    role: Literal["user", "site-admin", "platform", "admin"] | None = None,
    site: str = "",
    kind: Literal["onprem", "cloud", "edge"] | None = None,
    region: str = "",
    default_queue: str = "",
    expires_in: str = "",
    member: str = "",
    most: int = 0,
    scope: tuple[Literal["read", "submit", "change", "manage"], ...] = (),
    output: Output = "table",
    connection: Connection = HERE,
) -> None:
    """Make a token and print its secret, this once.

    With a role it is a person's: `token create ada --role user`. With a site and its kind it admits one agent, once:
    `token create --site north --kind onprem`, for `federator-agent join`; a site that is there already needs no kind.
    With a pattern it admits the first agent of each of many new sites: `token create --site 'store-*' --kind edge --most 200`.

    Parameters
    ----------
    name:
        Whose it is: the owner of the jobs submitted with it.
    role:
        What it may do.
    site:
        The site that an agent joins, or that a site-admin is bound to; with --most a pattern of names, such as 'store-*'.
    kind:
        What sort of site that is.
    region:
        Where it is; only administrators may say so. Else the region in the site's file counts.
    default_queue:
        Queue of the jobs that name none.
    expires_in:
        How long it is valid, such as 30d; else as the dispatcher's settings say. A person's may also be `never`.
    member:
        The name under which the agent joins; to let the host of a revoked key in again, that member's.
    most:
        How many new sites it admits an agent of.
    scope:
        What a person's token is limited to, given once for each: read for dashboards, submit for pipelines. Else everything that the role may do.
    """
    if role is None and not site:
        raise Invalid(
            "is missing",
            field="--role",
            remedy="write --role user for a person, or --site and --kind for an agent",
        )
    request = TokenRequest(
        name,
        role or "",
        site,
        kind or "",
        region,
        default_queue,
        expires_in,
        member,
        scopes=tuple(map(Scope, scope)),
        most=most,
    )
    _show_secret(ask(connection, lambda client: client.create_token(request)), output)


@app.command
def rotate(
    name: str,
    *,
    keep: str = "",
    expires_in: str = "",
    output: Output = "table",
    connection: Connection = HERE,
) -> None:
    """Replace a token with a new one with the same rights, print its secret, this once, and end the old one.

    One's own, or as an admin anybody's.

    Parameters
    ----------
    name:
        Whose it is; of somebody with several, the token's id.
    keep:
        How long the old one still counts, such as 1h; else it ends at once.
    expires_in:
        How long the new one is valid; else as long as the old one. For an admin to say.
    """
    rotation = TokenRotation(keep, expires_in)
    _show_secret(ask(connection, lambda client: client.rotate_token(name, rotation)), output)


@app.command(name="list")
def list_tokens(*, output: ListOutput = "table", connection: Connection = HERE) -> None:
    """List who has which tokens, newest first, and which still wait for an agent; never their secrets."""
    rows, now = ask(connection, lambda client: client.tokens())
    if soon := sorted({row.name for row in rows if row.role and _ends_soon(row, now)}):
        say(f"tokens end within {SOON_S / 86400:g} days: {', '.join(soon)}; make new ones with token create")
    show_rows(rows, token_columns(now), output, empty="no tokens")


@app.command
def revoke(name: str, *, after: str = "", connection: Connection = HERE) -> None:
    """Revoke all tokens of a name, or the one of an id; also one for an agent that was not used yet.

    Parameters
    ----------
    name:
        Whose; or an id, as token list shows it.
    after:
        How long they still count, such as 1h; else they end at once.
    """
    revoked, _ = ask(connection, lambda client: client.revoke_tokens(name, after=after))
    print(f"{revoked} revoked" + (f", valid for another {after}" if after else ""))


def _ends_soon(row: TokenRow, now: float) -> bool:
    return row.status == "valid" and row.expires_at is not None and row.expires_at - now < SOON_S


def _show_secret(answered: tuple[TokenAnswer, float], output: Output) -> None:
    """The secret alone on standard output; for whom it is, and until when, beside it."""
    answer, now = answered
    if output in ("json", "yaml"):
        show_data(answer, output)
        return
    print(answer.secret)
    ends = f", expires {when(answer.expires_at, now)}" if answer.expires_at else ""
    agents = f"agents of {answer.most} sites {answer.site}" if answer.most else f"one agent of {answer.site}"
    whose = f"{answer.name}, {answer.role}" if answer.role else agents
    say(f"for {whose}{ends}; it is not shown again")
