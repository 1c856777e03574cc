"""`federator notifications`: where one is told of one's own jobs."""

from typing import Annotated, Literal

from cyclopts import Parameter

from federator.cli.output import Output, facts, show, show_data
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import Invalid
from federator.wire.administration import MyAddress, MyNotifications


def notifications(
    *,
    mail: str = "",
    webhook: str = "",
    format: Literal["json", "slack", "teams"] = "json",  # noqa: A002 - the option's name
    clear: Annotated[bool, Parameter(negative="")] = False,
    output: Output = "table",
    connection: Connection = HERE,
) -> None:
    """Show where you are told of your jobs (`notify` in a job file), or say where.

    What is said replaces what was said before: to be told by mail and webhook, name both.

    Parameters
    ----------
    mail:
        Your mail address, in a domain that the dispatcher allows.
    webhook:
        An https URL that is posted to, at a host that the dispatcher allows. It is a secret, and is not shown again.
    format:
        What is posted: json, or a message for slack or teams.
    clear:
        Take your own words back: you are told as the dispatcher's settings say.
    """
    if clear and (mail or webhook):
        raise Invalid("conflicts with --mail and --webhook", field="--clear", remedy="leave one of them out")
    said = MyAddress(mail, webhook, format)
    if clear or mail or webhook:
        found, _ = ask(connection, lambda client: client.set_notifications(said))
    else:
        found, _ = ask(connection, lambda client: client.notifications())
    if output in ("json", "yaml"):
        show_data(found, output)
    else:
        show(facts(_told(found)))


def _told(found: MyNotifications) -> list[tuple[str, str]]:
    own = found.own
    by_settings = "as the dispatcher's settings say" if found.reachable else "nowhere: name an address"
    said = bool(own.mail or own.webhook)
    may = [f"--mail at {', '.join(found.mail_domains)}"] if found.mail_domains else []
    may += [f"--webhook at {', '.join(found.webhook_hosts)}"] if found.webhook_hosts else []
    return [
        ("told", "where you said" if said else by_settings),
        ("mail", own.mail),
        ("webhook", f"{own.webhook} ({own.format})" if own.webhook else ""),
        ("you may name", "; ".join(may) or "none: see notifications.own_mail_domains of the settings"),
    ]
