"""Changes that would help a job, as records: what somebody would have to do so that a reason for waiting is gone.

Each says one thing and can be applied to a problem (`federator.planning.explanations.changes`): the same decision made again then shows whether it helps. So what
an explanation advises is never words alone. Several together are one piece of advice: all of them are needed.
"""

from collections.abc import Mapping

import msgspec

from federator.model.rules import CapRow

Value = bool | int | float | str | tuple[str, ...] | Mapping[str, str | int] | None


class AskFor(msgspec.Struct, frozen=True, tag="ask", forbid_unknown_fields=True, omit_defaults=True):
    """The job asks for something else. `field` is one of those by which planning knows it (`gpus`, `models`, `deadline_at`, `max_cost_usd` …).

    `form`: of a job that may run in several, in which it does; forms that its file says in the same words change with it.
    """

    job: str
    field: str
    value: Value
    form: int = 0


class MoreHosts(msgspec.Struct, frozen=True, tag="hosts", forbid_unknown_fields=True):
    """So many more free hosts of the same make in a pool; of an offer, so many more machines to be had. `key` is the pool's or the offer's."""

    key: str
    hosts: int
    gpus: float = 0
    """GPUs on all of them."""
    model: str = ""


class Open(msgspec.Struct, frozen=True, tag="open", forbid_unknown_fields=True):
    """Pools (by key) take work again."""

    keys: tuple[str, ...]


class Offers(msgspec.Struct, frozen=True, tag="ability", forbid_unknown_fields=True):
    """Pools (by key) have something beside hardware that jobs ask for: `secret:NAME`, `images`, `data`."""

    keys: tuple[str, ...]
    ability: str


class RaiseCap(msgspec.Struct, frozen=True, tag="cap", forbid_unknown_fields=True):
    """A cap is higher: `limit` instead of what `row` has. Of a limit on borrowing, `row` is the cap that it comes to."""

    row: CapRow
    limit: float


class ChangeRule(msgspec.Struct, frozen=True, tag="rule", forbid_unknown_fields=True):
    """All rules of a policy that forbid (`deny`) or let rent (`allow`) have this value in a field; `lifted`: they are gone."""

    policy: str
    effect: str
    field: str
    value: bool | float | str | None


class Permit(msgspec.Struct, frozen=True, tag="permit", forbid_unknown_fields=True):
    """A burst policy more: the queue may rent at the site, where a deadline needs it."""

    queue: str
    site: str


class WaitUntil(msgspec.Struct, frozen=True, tag="wait", forbid_unknown_fields=True):
    """Nothing but time: it is that moment (seconds since the epoch), and what is expected to have ended by then has."""

    at: float


class Federation(msgspec.Struct, frozen=True, tag="federation", forbid_unknown_fields=True):
    """Renting goes on (`burst_paused`), or sites that are away for a moment are back (`away`)."""

    field: str


Change = AskFor | MoreHosts | Open | Offers | RaiseCap | ChangeRule | Permit | WaitUntil | Federation


class Delay(msgspec.Struct, frozen=True):
    """A job that would start later for it, by so many seconds."""

    job: str
    by_s: float


class Remedy(msgspec.Struct, frozen=True):
    """One piece of advice: what would have to change, in words and as records that can be tried.

    `certain`: with it the filters let the job run there, by their own rules. Otherwise it is reckoned from what waits and runs now: an estimate.
    """

    text: str
    changes: tuple[Change, ...]
    places: tuple[str, ...] = ()
    """`site/pool` that it opens; empty: it is about the job as a whole."""
    certain: bool = False
    start_at: float | None = None
    """When the job would start then, where that is what the advice is about (a higher priority)."""
    delays: tuple[Delay, ...] = ()
    """Who would start later then, those that lose most; at most three."""
