"""Why a job did not start when the schedule looked at it, as values."""

from typing import NamedTuple

from federator.model.plans import Reservation, ReservedFor
from federator.model.reasons import (
    BetterElsewhere,
    CheaperElsewhere,
    Held,
    NotBefore,
    Reason,
    RentalAwaited,
)
from federator.model.rules import CapRow
from federator.model.snapshot import JobView
from federator.planning.places.candidates import Candidate
from federator.planning.rules.caps import QUEUE_UNITS, Caps


class Block(NamedTuple):
    """`kind` is that of `Waiting`, `situation` a name of `feasibility.SITUATIONS`. Of a busy place the reason is found later."""

    kind: str
    situation: str
    reason: Reason | None = None
    reserved: Reservation | None = None


BUSY = Block("capacity", "busy")


def not_before(job: JobView, now: float) -> Block | None:
    """The job waits out a backoff."""
    if job.not_before_at is None or job.not_before_at <= now:
        return None
    return Block("time", "not-before", NotBefore(until_at=job.not_before_at))


def capped(caps: Caps, row: CapRow, job: JobView, at: Candidate) -> Block:
    """A cap stops it."""
    kind, situation = ("quota", "queue-limit") if row.unit in QUEUE_UNITS else ("budget", "budget")
    return Block(kind, situation, caps.reached(row, job, at))


def held(job: JobView, at: Candidate, until_at: float) -> Block:
    """What is free is kept for a gang."""
    who = f"{job.name} ({job.id})"
    reason = Held(place=at.shown, job=who, gpus=float(job.gpus_total), until_at=until_at)
    reserved = Reservation(why=ReservedFor.GANG, place=at.names[0], until_at=until_at, for_job=job.id)
    return Block("capacity", "held", reason, reserved)


def better_elsewhere(at: Candidate, start_at: float) -> Block:
    """Starting where it fits would miss the deadline; waiting for another place would not."""
    reserved = Reservation(why=ReservedFor.DEADLINE, place=at.names[0], until_at=start_at)
    return Block("later", "better-elsewhere", BetterElsewhere(place=at.shown, start_at=start_at), reserved)


def cheaper_elsewhere(at: Candidate, start_at: float, saves_usd: float) -> Block:
    """Starting where it fits costs so much more, all told, than waiting for another place."""
    reason = CheaperElsewhere(place=at.shown, start_at=start_at, saves_usd=saves_usd)
    reserved = Reservation(why=ReservedFor.CHEAPER, place=at.names[0], until_at=start_at, saves_usd=saves_usd)
    return Block("later", "cheaper-elsewhere", reason, reserved)


def to_be_rented(at: Candidate, rent_at: float) -> Block:
    """Starting where it fits would miss the deadline; renting, which need not begin yet, would not."""
    reserved = Reservation(why=ReservedFor.RENTAL, place=at.names[0], until_at=rent_at)
    return Block("later", "not-yet", RentalAwaited(place=at.shown, rent_at=rent_at), reserved)
