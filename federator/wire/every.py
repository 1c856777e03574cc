"""The keys `every` and `overlap` of a job file: when the job is submitted again, and what if the last run is not over."""

from collections.abc import Callable, Mapping
from typing import TypeVar
from zoneinfo import ZoneInfo

import msgspec

from federator.kernel.errors import Invalid
from federator.kernel.quantities import parse_instant
from federator.model.cron import check_cron
from federator.model.series import Overlap, Recurrence
from federator.wire import fields

T = TypeVar("T")
SHORTEST_S = 60.0
MOST_KEPT = 100_000
LONGEST_NAME = 52
"""Of a series: the number of a run stands behind it, and a name has at most 63 letters."""
KNOWN = ("at", "interval", "timezone", "start", "end", "submit_within", "keep")
ELSEWHERE = {
    "cron": "at", "schedule": "at", "crons": "at", "time_zone": "timezone", "timeZone": "timezone", "until": "end", "from": "start",
    "history": "keep", "startingDeadlineSeconds": "submit_within", "catch_up": "submit_within", "period": "interval",
}  # fmt: skip
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


def read_every(given: Mapping[str, object], *, now: float) -> Repeated | None:
    """The keys `every` and `overlap` of a job file, if it has the former. Raises `Invalid`."""
    if "every" not in given:
        if "overlap" in given:
            raise Invalid(
                "has no effect without every", field="$.overlap", remedy="write every, or leave it out"
            )
        return None
    for key, remedy in PER_RUN.items():
        if key in given:
            raise Invalid("does not go with every", field=f"$.{key}", remedy=remedy)
    if "name" not in given:
        raise Invalid("is missing", field="$.name", remedy="a series is known by its name: write one")
    name = fields.name(given["name"], "$.name")
    if len(name) > LONGEST_NAME:
        raise Invalid(
            f"has {len(name)} letters; a series may have {LONGEST_NAME}", field="$.name", remedy="shorten it"
        )
    overlap = fields.one_of(given.get("overlap", Overlap.SKIP.value), "$.overlap", tuple(Overlap))
    every = msgspec.structs.replace(_recurrence(given["every"], now), overlap=Overlap(overlap))
    rest = {key: value for key, value in given.items() if key not in APART}
    return Repeated(every, msgspec.json.encode(rest, order="deterministic").decode())


def _recurrence(value: object, now: float) -> Recurrence:
    if not isinstance(value, Mapping):
        return _when(value, "$.every")
    given = fields.mapping(value, "$.every")
    fields.known_only(given, "$.every", KNOWN, elsewhere=ELSEWHERE)
    if ("at" in given) == ("interval" in given):
        remedy = "write 'at: \"0 3 * * *\"' or 'interval: 6h'"
        raise Invalid("needs exactly one of at and interval", field="$.every", remedy=remedy)
    start_at, end_at = (_instant_at(given, key) for key in ("start", "end"))
    if end_at is not None and end_at <= max(now, start_at or now):
        raise Invalid("leaves no time for a run", field="$.every.end", remedy="write a later one")
    if "timezone" in given and "interval" in given:
        raise Invalid(
            "cannot be combined with interval", field="$.every.timezone", remedy="write at, as cron does"
        )
    zone = _zone(given["timezone"]) if "timezone" in given else "UTC"
    within = (
        fields.duration_s(given["submit_within"], "$.every.submit_within", low_s=1)
        if "submit_within" in given
        else None
    )
    when = (
        _cron(given["at"], "$.every.at")
        if "at" in given
        else _interval(given["interval"], "$.every.interval")
    )
    return msgspec.structs.replace(
        when,
        timezone=zone,
        start_at=start_at,
        end_at=end_at,
        submit_within_s=within,
        keep=fields.whole(given["keep"], "$.every.keep", low=1, high=MOST_KEPT)
        if "keep" in given
        else when.keep,
    )


def _when(value: object, path: str) -> Recurrence:
    """`6h`, or five fields of cron."""
    if isinstance(value, str) and (" " in value.strip() or value.startswith("@")):
        return _cron(value, path)
    return _interval(value, path)


def _interval(value: object, path: str) -> Recurrence:
    return Recurrence(interval_s=fields.duration_s(value, path, low_s=SHORTEST_S))


def _cron(value: object, path: str) -> Recurrence:
    text = " ".join(fields.text(value, path, limit=200).split())
    _parsed(check_cron, text, path)
    return Recurrence(cron=text)


def _instant_at(given: Mapping[str, object], key: str) -> float | None:
    if key not in given:
        return None
    path = f"$.every.{key}"
    return _parsed(parse_instant, fields.text(given[key], path, limit=100), path)


def _zone(value: object) -> str:
    name = fields.text(value, "$.every.timezone", limit=60)
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        remedy = "write one of the IANA database, such as Europe/Berlin"
        raise Invalid(f"there is no time zone {name!r}", field="$.every.timezone", remedy=remedy) from None
    return name


def _parsed(parse: Callable[[str], T], value: str, path: str) -> T:
    try:
        return parse(value)
    except (ValueError, OverflowError) as error:
        raise Invalid(str(error), field=path) from None
