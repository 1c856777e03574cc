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


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """A job that draining a site would stop, to wait for another place."""

    job: str
    name: str
    owner: str
    gpus: int | float
    would_end_at: float | None = None
    """When it would have ended by itself; None: nobody knows."""
    saves: bool = False
    """It has checkpoints, and goes on from the last; else it begins anew."""
    lost_gpu_s: float = 0.0
    """GPU-seconds that have to be done again, and what they come to at the price of the GPUs there."""
    lost_usd: float = 0.0


class DrainPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What draining a site would come to; nothing is changed. Of `stopped` the costliest are named, `stops` counts all."""

    jobs: int
    """That are there now,"""
    ends_alone: int
    """those of them that end by themselves before they would be stopped,"""
    stops: int
    """and those that would be stopped."""
    stopped: tuple[Stopped, ...] = ()
    empty_at: float | None = None
    """When the last is gone; None: nobody knows how long something lasts."""
    lost_gpu_s: float = 0.0
    lost_usd: float = 0.0


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
