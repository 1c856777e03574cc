"""What an administrator of a site asks of the dispatcher, and the answers: drain, evict, declare dead."""

import msgspec


class DeathNotice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the operator knows that nothing runs at the site any more, or at the one member that is named."""

    reason: str
    member: str = ""


class DrainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Until when what runs at the site may stay, a duration or an instant (empty: to its end), and why."""

    by: str = ""
    why: str = ""


class EvictRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which job leaves the site (its name or id; empty: all), by when (empty: with the grace that each asks for), and why."""

    why: str
    job: str = ""
    by: str = ""


class Evicted(msgspec.Struct, frozen=True):
    """The jobs that leave, by id."""

    jobs: tuple[str, ...]


class GivenUp(msgspec.Struct, frozen=True):
    """The placements that were given up with a site."""

    placements: tuple[str, ...]
