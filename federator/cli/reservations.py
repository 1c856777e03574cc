"""Reservations: capacity that is kept for somebody, or for nobody, for some time. Each is a policy of the set in force, and `federator policy history` has it."""

import time
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

from cyclopts import Parameter

from federator.cli.layout import Column
from federator.cli.output import ListOutput, show_rows
from federator.cli.phrases import moment_at, plain, seconds_in, when, when_exactly
from federator.cli.policy_verdicts import show_verdict
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import Invalid, NotFound
from federator.kernel.quantities import format_instant, parse_instant
from federator.model.rules import Opening, PolicyDocument, PolicySet, Scope
from federator.wire.administration import PolicyVerdict

KIND = "Reservation"
Names = Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="", show_default=False)]
Reason = Annotated[str, Parameter(name=("-m", "--reason"))]


class Reserved(NamedTuple):
    """One reservation of the set in force; times in seconds since the epoch."""

    name: str
    where: str
    begins_at: float
    ends_at: float
    who: str


def reserve(
    name: str = "",
    *,
    site: Names = (),
    model: Names = (),
    begin: Annotated[str, Parameter(name="--from")] = "",
    until: str = "",
    for_: Annotated[str, Parameter(name="--for")] = "",
    queue: Names = (),
    owner: Names = (),
    finish: Annotated[bool, Parameter(negative="")] = False,
    reason: Reason = "",
    output: ListOutput = "table",
    connection: Connection = HERE,
) -> int:
    """Keep capacity for a queue or a person, or for nobody, for some time; without a name, list what is reserved.

    Parameters
    ----------
    name:
        What to call it.
    site:
        Sites whose capacity is kept; all of what they have, or of one model.
    model:
        GPU models of which it is kept.
    begin:
        When it begins: 18:00, 2026-12-01T08:00, or 2h from now. Left out: now.
    until:
        When it ends, written in the same ways.
    for_:
        How long it lasts, in place of --until.
    queue:
        Queues whose jobs may use it. Without --queue and --owner nobody's may, as for maintenance.
    owner:
        People whose jobs may use it; with --queue, those of their jobs that are in one of these queues.
    finish:
        Let work that runs when it begins go on to its end. Otherwise it is told in time to save itself, and what cannot save itself is started only where it is expected to be done by then.
    reason:
        Why; kept with the new version of the policies.
    """
    if not name:
        current, now = ask(connection, lambda client: client.policies())
        columns: tuple[Column[Reserved], ...] = (
            Column("NAME", lambda row: row.name),
            Column("WHERE", lambda row: row.where),
            Column("FROM", lambda row: when(row.begins_at, now)),
            Column("UNTIL", lambda row: when(row.ends_at, now)),
            Column("FOR", lambda row: row.who),
        )
        show_rows(_reserved(current), columns, output, empty="nothing is reserved")
        return 0
    if not (site or model):
        raise Invalid("is missing", field="--site", remedy="write --site or --model, or both")
    now = time.time()
    begins_at = moment_at(begin, "--from", now, ahead=True) if begin else now
    spec: dict[str, Any] = {
        "where": {key: list(said) for key, said in (("sites", site), ("models", model)) if said},
        "from": format_instant(begins_at),
        "until": format_instant(_end_at(begins_at, until, for_, now)),
        "at_start": "finish" if finish else "stop",
    }
    who = {key: list(said) for key, said in (("queues", queue), ("owners", owner)) if said}
    document = {
        "apiVersion": "federator/v1",
        "kind": KIND,
        "metadata": {"name": name},
        "spec": spec | ({"who": who} if who else {}),
    }

    def changed(current: PolicySet, asked_at: float) -> list[str]:
        over = {each.name for each in _reserved(current) if each.ends_at <= asked_at}
        left = [each for each in current.documents if each.kind != KIND or each.name not in over]
        if any((each.kind, each.name) == (KIND, name) for each in left):
            raise Invalid(
                f"there is a reservation {name!r} already",
                field="NAME",
                remedy=f"choose another, or federator unreserve {name}",
            )
        from federator.wire.yamltext import write_document

        return [*_texts(left), write_document(document)]

    verdict = _apply(connection, changed, reason or f"reserve {name}")
    kept = _for(Scope(queues=queue, owners=owner))
    ends = when_exactly(parse_instant(spec["until"]), now)
    done = f"{name} is reserved for {kept} from {when_exactly(begins_at, now)} to {ends}"
    return show_verdict(verdict, f"{plain(done)}; version {verdict.version} of the policies is in force")


def unreserve(name: str, *, reason: Reason = "", connection: Connection = HERE) -> int:
    """End a reservation, or take it back before it begins.

    Parameters
    ----------
    name:
        As federator reserve lists it.
    reason:
        Why; kept with the new version of the policies.
    """

    def changed(current: PolicySet, _: float) -> list[str]:
        left = [each for each in current.documents if (each.kind, each.name) != (KIND, name)]
        if len(left) == len(current.documents):
            raise NotFound(
                f"there is no reservation {name!r}", field="NAME", remedy="federator reserve lists them"
            )
        return _texts(left)

    verdict = _apply(connection, changed, reason or f"unreserve {name}")
    done = f"{plain(name)} is no longer reserved; version {verdict.version} of the policies is in force"
    return show_verdict(verdict, done)


def _apply(
    connection: Connection, changed: Callable[[PolicySet, float], list[str]], reason: str
) -> PolicyVerdict:
    """Put the set in force with that change in it, and with no other that somebody has made meanwhile. `changed`: its texts, by the set and the dispatcher's time."""
    current, now = ask(connection, lambda client: client.policies())
    text = "---\n".join(each.rstrip("\n") + "\n" for each in changed(current, now))
    verdict, _ = ask(
        connection, lambda client: client.apply_policies(text, reason, instead_of=current.version)
    )
    return verdict


def _end_at(begins_at: float, until: str, for_: str, now: float) -> float:
    if bool(until) == bool(for_):
        raise Invalid("is missing", field="--until", remedy="write --until or --for, and one of them only")
    if until:
        return moment_at(until, "--until", now, ahead=True)
    return begins_at + seconds_in(for_, "--for")


def _reserved(current: PolicySet) -> list[Reserved]:
    """What the set in force reserves, the next first."""
    found = [
        Reserved(
            name=rule.policy.removeprefix(f"{KIND}/"),
            where=" ".join((*pools.sites, *pools.kinds, *pools.regions, *pools.models)),
            begins_at=rule.closed[0].first_at or 0.0,
            ends_at=rule.closed[0].until_at or 0.0,
            who=_for(kept),
        )
        for rule in current.rules
        if isinstance(rule, Opening) and rule.policy.startswith(f"{KIND}/")
        for pools, kept in [(rule.pools, rule.but_for or Scope())]
    ]
    return sorted(found, key=lambda each: (each.begins_at, each.name))


def _for(kept: Scope) -> str:
    """Whose jobs all of this is said of: `jobs in demo`, or `ada, ben in demo with course=2`."""
    if kept == Scope():
        return "nobody"
    said = [", ".join(kept.owners) or "jobs"]
    if kept.queues:
        said.append("in " + ", ".join(kept.queues))
    if kept.labels:
        said.append("with " + ", ".join(f"{name}={value}" for name, value in kept.labels.items()))
    return " ".join(said)


def _texts(documents: Iterable[PolicyDocument]) -> list[str]:
    return [each.text for each in documents]
