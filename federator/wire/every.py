"""The keys `every` and `overlap` of a job file: when the job is submitted again, and what if the last run is not over."""

from collections.abc import Mapping
from typing import Annotated, ClassVar
from zoneinfo import ZoneInfo

import msgspec
from msgspec import field

from federator.kernel.errors import Invalid
from federator.model.cron import check_cron
from federator.model.series import Overlap, Recurrence
from federator.wire import fields

SHORTEST_S = 60.0
MOST_KEPT = 100_000
LONGEST_NAME = 52
"""Of a series: the number of a run stands behind it, and a name has at most 63 letters."""
PER_RUN = {
    "deadline": "each run needs one of its own: write finish_within, which counts from when the run is due",
    "client_id": "leave it out: a series is known by its name",
}
"""Keys that cannot mean the same for every run."""
APART = ("every", "overlap")


class Repeated(msgspec.Struct, frozen=True):
    """A job file with `every`: when its runs are due, and the file of each run as JSON."""

    every: Recurrence
    file: str


def _cron(value: object, path: str) -> str:
    text = " ".join(fields.text(value, path, limit=200).split())
    try:
        check_cron(text)
    except (ValueError, OverflowError) as error:
        raise Invalid(str(error), field=path) from None
    return text


def read_zone(value: object, path: str) -> str:
    """The name of a time zone. Raises `Invalid`."""
    name = fields.text(value, path, limit=60)
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        remedy = "write one of the IANA database, such as Europe/Zurich; on a small system the package tzdata may be missing"
        raise Invalid(f"there is no time zone {name!r}", field=path, remedy=remedy) from None
    return name


Zone = Annotated[str, fields.written(read_zone, "Europe/Berlin")]
Interval = Annotated[float, fields.duration("6h", low_s=SHORTEST_S)]


class Every(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When the job is submitted again."""

    elsewhere: ClassVar = {
        "cron": "at", "schedule": "at", "crons": "at", "time_zone": "timezone", "timeZone": "timezone", "until": "end", "from": "start",
        "history": "keep", "startingDeadlineSeconds": "submit_within", "catch_up": "submit_within", "period": "interval",
    }  # fmt: skip

    cron: Annotated[str, fields.written(_cron, '"0 3 * * mon-fri"', "@daily")] = field(name="at", default="")
    """Minute, hour, day of the month, month, weekday, as cron writes them; also `L` for the last day of a month and `mon#2` for its second Monday. Exactly one of `at` and `interval`."""
    interval_s: Interval = field(name="interval", default=0.0)
    """So long from one run to the next, at least 60s. `1d` is 24 hours, also where clocks are put forward or back."""
    timezone: Zone = "UTC"
    """By whose clock `at` is meant. As in Debian's cron, a fixed time that does not exist because clocks are put forward is due right after the gap, and one that comes twice is due once; where the minute or the hour begins with `*`, the time that really passes counts."""
    start_at: fields.Instant | None = field(name="start", default=None)
    """No run is due before; intervals are counted from it. Left out: now."""
    end_at: fields.Instant | None = field(name="end", default=None)
    """No run is due then or later."""
    submit_within_s: Annotated[float, fields.duration("2h", low_s=1)] | None = field(
        name="submit_within", default=None
    )
    """A run that could not be submitted so long after it was due, because no dispatcher was there or the last run was not over, is left out. Left out: until the next is due."""
    keep: Annotated[int, msgspec.Meta(ge=1, le=MOST_KEPT)] = Recurrence().keep
    """So many runs that are over are kept whole, the newest; none goes before the seven days that all jobs are promised. Of older ones the archive has what is on record, without logs and outputs; what has moved there whole, because very many jobs have ended since, goes by its age alone."""


def repeated(
    every: str | Every | None, overlap: Overlap | None, given: Mapping[str, object], *, now: float
) -> Repeated | None:
    """The series that a job file asks for, if it has `every`; `given` is the file. Raises `Invalid`."""
    if every is None:
        if overlap is not None:
            raise Invalid(
                "has no effect without every", field="$.overlap", remedy="write every, or leave it out"
            )
        return None
    for key, remedy in PER_RUN.items():
        if key in given:
            raise Invalid("does not go with every", field=f"$.{key}", remedy=remedy)
    name = given.get("name")
    if not isinstance(name, str):
        raise Invalid("is missing", field="$.name", remedy="a series is known by its name: write one")
    if len(name) > LONGEST_NAME:
        raise Invalid(
            f"has {len(name)} letters; a series may have {LONGEST_NAME}", field="$.name", remedy="shorten it"
        )
    recurrence = msgspec.structs.replace(_recurrence(every, now), overlap=overlap or Overlap.SKIP)
    rest = {key: value for key, value in given.items() if key not in APART}
    return Repeated(
        recurrence,
        msgspec.json.encode(msgspec.to_builtins(rest, str_keys=True), order="deterministic").decode(),
    )


def _recurrence(every: str | Every, now: float) -> Recurrence:
    if isinstance(every, str):
        if " " in every.strip() or every.startswith("@"):
            return Recurrence(cron=_cron(every, "$.every"))
        return Recurrence(interval_s=fields.duration_s(every, "$.every", low_s=SHORTEST_S))
    if bool(every.cron) == bool(every.interval_s):
        remedy = "write 'at: \"0 3 * * *\"' or 'interval: 6h'"
        raise Invalid("needs exactly one of at and interval", field="$.every", remedy=remedy)
    if every.end_at is not None and every.end_at <= max(now, every.start_at or now):
        raise Invalid("leaves no time for a run", field="$.every.end", remedy="write a later one")
    if every.interval_s and every.timezone != "UTC":
        raise Invalid(
            "cannot be combined with interval", field="$.every.timezone", remedy="write at, as cron does"
        )
    return Recurrence(**msgspec.structs.asdict(every))
