"""The kind `Reservation`: capacity that is kept for somebody, or for nobody, between two moments."""

from typing import Literal

import msgspec

from federator.kernel.errors import Invalid
from federator.kernel.quantities import parse_instant
from federator.model.rules import Opening, Rule, Window
from federator.wire.decoding import decode
from federator_policies.places import Places, pools_of
from federator_policies.whose import Who, read_users, scope_of


class ReservationSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """`spec` of a `Reservation`."""

    where: Places
    """What is kept."""
    from_: str
    """When it begins, such as `2026-12-24T18:00Z`; with its offset from UTC."""
    until: str
    """When it ends."""
    who: Who | None = None
    """Whose jobs may use it in that time. Left out: nobody's, as for maintenance."""
    at_start: Literal["stop", "finish"] = "stop"
    """What becomes of others' work that still runs there when it begins. `stop`: it is told in time to save itself, and goes on elsewhere or later; a job without
    `checkpoint` is started only where it is expected to be done by then. `finish`: it goes on to its end."""


class ReservationKind:
    """Checks and compiles `Reservation` documents; see `federator.ports.PolicyKind`."""

    kind = "Reservation"
    spec = ReservationSpec

    def compile(self, name: str, spec: object) -> tuple[Rule, ...]:
        """A closing that is not about those for whom it is kept."""
        given = decode(spec, ReservationSpec, "$.spec")
        first_at, until_at = _moment(given.from_, "$.spec.from"), _moment(given.until, "$.spec.until")
        if until_at <= first_at:
            raise Invalid(
                f"{given.until} is not after {given.from_}",
                field="$.spec.until",
                remedy="write a later moment",
            )
        if given.who is not None:
            read_users(given.who.owners, "$.spec.who.owners")
        kept_for = None if given.who is None else scope_of(given.who)
        if given.who == Who():
            raise Invalid(
                "admits everybody: nothing would be reserved",
                field="$.spec.who",
                remedy="name queues, owners or labels, or leave it out to reserve for nobody",
            )
        closed = (Window(first_at=first_at, until_at=until_at),)
        stops = given.at_start == "stop"
        policy = f"{self.kind}/{name}"
        return (
            Opening(policy=policy, pools=pools_of(given.where), closed=closed, stops=stops, but_for=kept_for),
        )


kind = ReservationKind()


def _moment(text: str, path: str) -> float:
    try:
        return parse_instant(text)
    except ValueError as error:
        raise Invalid(str(error), field=path, remedy="write UTC, or the offset as in +01:00") from None
