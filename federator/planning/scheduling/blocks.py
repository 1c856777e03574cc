"""Why a job did not start when the schedule looked at it, as values: the words are those that its owner will read."""

from typing import NamedTuple

from federator.model.plans import Reservation, ReservedFor
from federator.model.rules import CapRow
from federator.model.snapshot import JobView
from federator.planning.places.candidates import Candidate
from federator.planning.rules.caps import QUEUE_UNITS, Caps
from federator.planning.wording import gpus, moment, money


class Block(NamedTuple):
    """`kind` is that of `Waiting`, `situation` a name of `feasibility.SITUATIONS`. A busy place has no words of its own."""

    kind: str
    situation: str
    text: str = ""
    change: str = ""
    reserved: Reservation | None = None


BUSY = Block("capacity", "busy")


def not_before(job: JobView, now: float) -> Block | None:
    """The job waits out a backoff."""
    if job.not_before_at is None or job.not_before_at <= now:
        return None
    when = moment(job.not_before_at, now)
    return Block("time", "not-before", f"it is not tried again before {when}", f"wait until {when}")


def capped(caps: Caps, row: CapRow, job: JobView, at: Candidate) -> Block:
    """A cap stops it."""
    kind, situation = ("quota", "queue-limit") if row.unit in QUEUE_UNITS else ("budget", "budget")
    return Block(kind, situation, *caps.describe(row, job, at))


def held(job: JobView, at: Candidate, until_at: float, now: float) -> Block:
    """What is free is kept for a gang."""
    until = moment(until_at, now)
    text = f"free GPUs at {at.shown} are held for {job.name} ({job.id}, {gpus(job.gpus_total)}) until {until}"
    reserved = Reservation(why=ReservedFor.GANG, place=at.names[0], until_at=until_at, for_job=job.id)
    return Block("capacity", "held", text, f"an estimate short enough to end by {until}", reserved)


def better_elsewhere(at: Candidate, start_at: float, now: float) -> Block:
    """Starting where it fits would miss the deadline; waiting for another place would not."""
    text = (
        f"where it fits now it would miss its deadline; {at.shown} is free at about {moment(start_at, now)}"
    )
    reserved = Reservation(why=ReservedFor.DEADLINE, place=at.names[0], until_at=start_at)
    return Block("later", "better-elsewhere", text, "a later deadline", reserved)


def cheaper_elsewhere(at: Candidate, start_at: float, now: float, saves_usd: float) -> Block:
    """Starting where it fits costs so much more, all told, than waiting for another place."""
    text = (
        f"it waits for {at.shown}, where it can start by {moment(start_at, now)}, with all that wait for it before: with its run, "
        f"its data, its wait and the risk to its deadline, that costs {money(saves_usd)} less than to start where it fits now"
    )
    reserved = Reservation(why=ReservedFor.CHEAPER, place=at.names[0], until_at=start_at, saves_usd=saves_usd)
    return Block("later", "cheaper-elsewhere", text, "a higher price of waiting", reserved)


def to_be_rented(at: Candidate, rent_at: float, now: float) -> Block:
    """Starting where it fits would miss the deadline; renting, which need not begin yet, would not."""
    text = (
        f"where it fits now it would miss its deadline; {at.shown} is to be rented at {moment(rent_at, now)}"
    )
    reserved = Reservation(why=ReservedFor.RENTAL, place=at.names[0], until_at=rent_at)
    return Block("later", "not-yet", text, "a later deadline", reserved)
