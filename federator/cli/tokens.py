"""Tokens: for people, with a role; for agents, to join once."""

from typing import Literal

from cyclopts import App

from federator.cli.columns import token_columns
from federator.cli.output import Output, say, show_data, show_rows
from federator.cli.phrases import when
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import Invalid
from federator.wire.http import TokenRequest

app = App(name="token", help="Make, list and revoke tokens for people and for agents.")


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
    output: Output = "table",
    connection: Connection = HERE,
) -> None:
    """Make a token and print its secret, this once.

    With a role it is a person's: `token create ada --role user`. With a site and its kind it admits one agent, once:
    `token create --site north --kind onprem`, for `federator-agent join`.

    Parameters
    ----------
    name:
        Whose it is: the owner of the jobs submitted with it.
    role:
        What it may do.
    site:
        The site that an agent joins, or that a site-admin is bound to.
    kind:
        What sort of site that is.
    region:
        Where it is.
    default_queue:
        Queue of the jobs that name none.
    expires_in:
        How long it is valid, such as 30d.
    """
    if role is None and not site:
        raise Invalid(
            "is missing",
            field="--role",
            remedy="write --role user for a person, or --site and --kind for an agent",
        )
    if role is None and kind is None:
        raise Invalid("is missing", field="--kind", remedy="write --kind onprem, cloud or edge")
    request = TokenRequest(name, role or "", site, kind or "", region, default_queue, expires_in)
    answer, now = ask(connection, lambda client: client.create_token(request))
    if output in ("json", "yaml"):
        show_data(answer, output)
        return
    print(answer.secret)
    ends = f", expires {when(answer.expires_at, now)}" if answer.expires_at else ""
    whose = f"{answer.name}, {answer.role}" if answer.role else f"one agent of {answer.site}"
    say(f"for {whose}{ends}; it is not shown again")


@app.command(name="list")
def list_tokens(*, output: Output = "table", connection: Connection = HERE) -> None:
    """List who has which tokens, newest first, and which still wait for an agent; never their secrets."""
    rows, now = ask(connection, lambda client: client.tokens())
    show_rows(rows, token_columns(now), output, empty="no tokens")


@app.command
def revoke(name: str, *, connection: Connection = HERE) -> None:
    """Revoke all tokens of a name, from now on.

    Parameters
    ----------
    name:
        Whose.
    """
    revoked, _ = ask(connection, lambda client: client.revoke_tokens(name))
    print(f"{revoked} revoked")
